/*
 * cmd.h - what main.c and the commands share: global options, the command table's shape, and the
 * steps that plan, apply and doctor begin with.
 *
 * A command is a function in its own file. It gets argv with its own name as argv[0], reads its
 * options with prep_getopt() and returns the exit status (design.md 3.1).
 */
#ifndef PREP_CMD_H
#define PREP_CMD_H

#include <getopt.h>
#include <stdbool.h>

#include "access.h"
#include "buf.h"
#include "conf.h"
#include "err.h"
#include "host.h"
#include "plan.h"

#define PREP_CONF_FILE "/etc/dsprep.conf"

enum {
	PREP_EXIT_OK = 0,
	PREP_EXIT_FAILED = 1,
	PREP_EXIT_PENDING = 3,	/* plan: there are changes to make */
	PREP_EXIT_REVERTED = 4, /* apply */
	PREP_EXIT_USAGE = 64,
	PREP_EXIT_LOCKED = 75,
	PREP_EXIT_PERM = 77,
};

struct prep_opts {
	const char *conf; /* -c FILE, taken as given; NULL: PREP_CONF_FILE below the root */
	const char *root; /* --root DIR; NULL: none */
	bool json, dry_run, quiet, verbose;
	bool no_color;	   /* --no-color */
	bool color;	   /* results may have colours: stdout is a terminal that wants them */
	int (*help)(void); /* prints the commands; main's */
};

struct prep_cmd {
	const char *name, *args, *summary; /* usage prints these very strings */
	int (*run)(struct prep_opts *o, int argc, char **argv);
};

/**
 * prep_getopt() - getopt_long() for a command: takes the global options itself.
 * @own: the command's long options, ended by a zeroed row; NULL for none; their val is returned
 * Return: an own option's val (optarg set), -1 at the end (optind set), '?' after printing a
 * usage error: the command then returns PREP_EXIT_USAGE. --help and --version print and exit 0.
 */
int prep_getopt(struct prep_opts *o, int argc, char **argv, const struct option *own);

/** prep_print_options() - the global options, one a line, on stdout. */
void prep_print_options(void);

/** prep_usage() - print "dsprep: TEXT" and where help is, on stderr. Return: PREP_EXIT_USAGE. */
int prep_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** prep_fail() - print @err on stderr. Return: its exit status (64, 77 or 1). */
int prep_fail(const struct ds_err *err);

/** prep_out() - write @b to stdout and empty it. Return: 0; PREP_EXIT_FAILED if stdout is broken. */
int prep_out(struct ds_buf *b);

/**
 * prep_conf_load() - read and parse the config that @o names.
 * @text: out, its bytes; caller's. Return: 0; -1 DS_ERR_USAGE, sys = ENOENT if there is none.
 */
int prep_conf_load(const struct prep_opts *o, struct prep_access *a, struct prep_conf *c,
		   struct ds_buf *text, struct ds_err *err);

/**
 * prep_conf_suggest() - a config for a pair that fits what is seen; management empty if no default
 * route tells it. @node: this node's number.
 */
void prep_conf_suggest(const struct prep_host *h, int node, struct prep_conf *c);

/* Everything that plan and apply decide from. */
struct prep_run {
	struct prep_access *access;
	struct prep_conf conf;
	struct ds_buf conf_text; /* the file's bytes, for the config digest of the journal */
	struct prep_host host;
};

/**
 * prep_run_begin() - open the root, read the config, observe the host.
 * Without a config it prints the one that fits what is seen (design.md 3.2).
 * Return: 0; else the exit status, with everything said and @r already ended.
 */
int prep_run_begin(const struct prep_opts *o, struct prep_run *r);
void prep_run_end(struct prep_run *r);

/**
 * prep_run_plan() - the plan for @r, host report included: looks at the existing report first.
 * @p: caller's; prep_plan_fini() it. Return: 0; -1 as prep_plan_make().
 */
int prep_run_plan(struct prep_run *r, struct prep_plan *p, struct ds_err *err);

/** prep_show_plan() - print @p as text or JSON by @o. Return: exit status of printing. */
int prep_show_plan(const struct prep_opts *o, const struct prep_plan *p, const struct prep_host *h);

int cmd_plan(struct prep_opts *o, int argc, char **argv);
int cmd_explain(struct prep_opts *o, int argc, char **argv);
int cmd_doctor(struct prep_opts *o, int argc, char **argv);
int cmd_apply(struct prep_opts *o, int argc, char **argv);
int cmd_undo(struct prep_opts *o, int argc, char **argv);

#endif
