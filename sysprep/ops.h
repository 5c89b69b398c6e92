/*
 * ops.h - the closed table of operations: all the power that dsprep has over a host.
 *
 * One row per kind: how to look, how to act, how to put back, the one capability it raises, and
 * the paragraph of the man page. Arguments come from a plan or from a journal and are checked again
 * here, next to the system calls. An operation names its interface twice, by name and by index: it
 * acts only while both still mean the same interface, and never on the management interface.
 */
#ifndef PREP_OPS_H
#define PREP_OPS_H

#include <stdbool.h>

#include "access.h"
#include "buf.h"
#include "nl.h"
#include "plan.h"

#define PREP_IFA_PROTO 0xd5 /* IFA_PROTO of addresses that we add: which are ours is not guessed */

/* Where operations act, and what they must stay away from. */
struct prep_op_ctx {
	struct prep_access *access; /* borrowed */
	struct prep_nl nl;	    /* owned; for reading only, so opened without power */
	char management[IFNAMSIZ];  /* never touched; "" if the config is not known */
	int management_ifindex;	    /* 0 = none */
	/* Host report: the text to write, and where its predecessor is kept for undo. */
	const struct ds_buf *report; /* borrowed; NULL when undoing */
	int save_fd;		     /* borrowed directory; -1 = none */
	unsigned int save_index;     /* names the kept file */
	bool keep_routes;  /* prepare: first removal of an IPv4 address on its interface */
	bool stale_report; /* undo: the predecessor is of another boot, do not restore it */
};

/** prep_op_ctx_init() - @management may be ""; @a borrowed until fini. Return: 0; -1 DS_ERR_HOST. */
int prep_op_ctx_init(struct prep_op_ctx *x, struct prep_access *a, const char *management,
		     struct ds_err *err);
void prep_op_ctx_fini(struct prep_op_ctx *x);

enum prep_op_now {
	PREP_NOW_OLD,	/* as before the operation */
	PREP_NOW_NEW,	/* as the operation leaves it */
	PREP_NOW_OTHER, /* neither: somebody else changed it */
	PREP_NOW_GONE,	/* the interface, or the kernel's knob, does not exist any more */
};

struct prep_op_state {
	enum prep_op_now now;
	char detail[160]; /* what was seen, for messages: "mtu is 2000" */
};

struct prep_op_row {
	enum prep_op_kind kind;
	const char *name; /* stable word, in JSON and the man page */
	int cap;	  /* CAP_* raised while it runs, PREP_CAP_NONE */
	int (*observe)(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
		       struct ds_err *err);
	int (*act)(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err);
	int (*back)(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err);
	const char *man; /* paragraph for dsprep.8 */
};

/** prep_op_row() - the row of a kind; NULL: no such operation. */
const struct prep_op_row *prep_op_row(int kind);
/** prep_op_rows() - all rows, for the man page check. */
const struct prep_op_row *prep_op_rows(size_t *n);

/** prep_op_check() - bounds of all arguments. Return: 0; -1 DS_ERR_INPUT naming the argument. */
int prep_op_check(const struct prep_op *op, struct ds_err *err);

/** prep_op_observe() - how things stand with @op. Needs no privilege. Return: 0; -1 DS_ERR_HOST. */
int prep_op_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
		    struct ds_err *err);

/**
 * prep_op_prepare() - just before the intent is recorded: complete @op with what undo will need,
 * and refuse if the host is not as the plan saw it.
 * Return: 0; -1 (DS_ERR_HOST changed since, or cannot look; DS_ERR_INPUT arguments).
 */
int prep_op_prepare(struct prep_op_ctx *x, struct prep_op *op, struct ds_err *err);

/** prep_op_do() - check again, resolve again, raise, act, lower. Return: 0; -1 with the kernel's words. */
int prep_op_do(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err);
/** prep_op_verify() - read back that it holds. Return: 0; -1 DS_ERR_HOST. */
int prep_op_verify(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err);

/* How an operation stopped being in force. Written to journals by these names. */
enum prep_undone {
	PREP_UNDONE_NOT = 0,
	PREP_UNDONE_RESTORED, /* put back, and read back */
	PREP_UNDONE_ALREADY,  /* was as before: never done, or somebody else put it back */
	PREP_UNDONE_GONE,     /* its interface is gone, and the change with it */
	PREP_UNDONE_LEFT,     /* somebody else changed it since: left alone */
	PREP_UNDONE_VOID,     /* of another boot: the kernel forgot it too */
};

/**
 * prep_op_undo() - put back what @op changed, unless somebody else changed it since.
 * @how: out, on success; @detail: out, what was seen, for PREP_UNDONE_LEFT
 * Safe to repeat after a kill at any instant. Return: 0; -1 (DS_ERR_HOST, DS_ERR_INPUT).
 */
int prep_op_undo(struct prep_op_ctx *x, const struct prep_op *op, enum prep_undone *how,
		 struct prep_op_state *s, struct ds_err *err);

/**
 * prep_op_wait_usable() - after the undo of an address removal: wait, at most 4 s, until duplicate
 * address detection is over. An undo that returned earlier would leave a state that differs from
 * the one it restores. Nothing to wait for in other operations. Return: 0; -1 DS_ERR_HOST.
 */
int prep_op_wait_usable(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err);

/**
 * prep_op_report_digest() - size and CRC-32C of a host report in one positive number.
 * An absent report is -1. These are `value` and `old` of PREP_OP_HOST_REPORT.
 */
int64_t prep_op_report_digest(const char *text, size_t len);

#endif
