/*
 * doctor.h - verdicts: what a check may say, the closed table of checks, and how they are shown.
 *
 * checks.c has the checks, doctor.c collects, prints and sums up. A check reads through the
 * accessor and from the observed host only, and says each thing once per subject. What it prints
 * holds no MAC address, GUID, serial number, host name or public address.
 */
#ifndef PREP_DOCTOR_H
#define PREP_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "access.h"
#include "conf.h"
#include "host.h"
#include "plan.h"

enum prep_verdict_kind {
	PREP_V_PASS,
	PREP_V_FINDING,
	PREP_V_NOT_APPLICABLE,
	PREP_V_UNDETERMINED
};

enum prep_severity {
	PREP_SEV_INFO,
	PREP_SEV_WARNING,
	PREP_SEV_ERROR,
	PREP_SEV_CRITICAL
};

struct prep_doctor;
struct prep_check {
	const char *id;
	enum prep_severity severity; /* of its worst finding */
	bool matters;		     /* whether being undetermined makes the exit status 3 */
	const char *meaning, *cure;  /* for explain: sentences */
	const char *source;
	const char *reads[8]; /* paths below the root, or "rtnetlink ..."; NULL-terminated */
	void (*run)(struct prep_doctor *d, const struct prep_check *check);
};

/** prep_checks() - the closed table. @n: out, its length. */
const struct prep_check *prep_checks(size_t *n);

#define PREP_EVIDENCE_MAX 6
struct prep_verdict {
	const struct prep_check *check;
	enum prep_verdict_kind kind;
	enum prep_severity severity; /* of a finding */
	char subject[48];	     /* interface, process, or "node" */
	char summary[256];	     /* of an undetermined verdict: why it is so */
	int n_evidence;
	struct {
		char what[48], value[112], from[96];
	} evidence[PREP_EVIDENCE_MAX];
	const char *follows_from; /* id of the finding that explains this one, or NULL */
	char remedy[2][192];	  /* "" = none */
	bool fixed_by_apply;
};

struct prep_doctor {
	/* Facts, borrowed. conf and plan are NULL without a config, plan also where it is refused. */
	struct prep_access *access;
	const struct prep_host *host;
	const struct prep_conf *conf;
	const struct prep_plan *plan;
	const char *refused; /* why there is a conf but no plan, or NULL */
	/* Verdicts, owned: prep_doctor_fini(). */
	struct prep_verdict *verdict;
	size_t n, cap;
	bool nomem; /* one could not be kept */
};

/**
 * prep_doctor_run() - run every check; the facts must be set, the rest zero.
 * Return: 0; -1 DS_ERR_NOMEM or DS_ERR_HOST (out of memory or descriptors).
 */
int prep_doctor_run(struct prep_doctor *d, struct ds_err *err);
void prep_doctor_fini(struct prep_doctor *d);

/**
 * prep_say() - add a verdict of @check about @subject; the summary as printf.
 * Return: the verdict, for evidence and remedies, a view until the next call; never NULL (where
 * memory is short it is a scratch one and the run fails).
 */
struct prep_verdict *prep_say(struct prep_doctor *d, const struct prep_check *check,
			      enum prep_verdict_kind kind, const char *subject, const char *fmt,
			      ...) __attribute__((format(printf, 5, 6)));
/** prep_evidence() - the raw value (printf) of @what and where it was read. */
void prep_evidence(struct prep_verdict *v, const char *what, const char *from, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/** prep_doctor_exit() - 0, 1, 2 or 3 by design.md 3.1; precedence 2 > 3 > 1 > 0. */
int prep_doctor_exit(const struct prep_doctor *d);
/** prep_doctor_print() - for people. @all: passes and what is not applicable too. */
void prep_doctor_print(const struct prep_doctor *d, bool all, bool color, struct ds_buf *out);
/** prep_doctor_json() - format 1 of design.md 3.1. @time: as it shall be printed. */
void prep_doctor_json(const struct prep_doctor *d, const char *time, struct ds_buf *out);

#endif
