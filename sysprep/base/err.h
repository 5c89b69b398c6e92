/*
 * err.h - the error object of both programs.
 *
 * A function that can fail returns 0 or -1 and takes a `struct ds_err *` last. Whoever knows the
 * cause fills the object, once; callers may add context with ds_err_context(), never replace it.
 * Nothing here allocates. The object is plain data: copy it, put it on the stack, send it on.
 */
#ifndef DS_ERR_H
#define DS_ERR_H

#include <stdbool.h>
#include <stdio.h>

/* Who can act on it. */
enum ds_err_kind {
	DS_ERR_NONE = 0,
	DS_ERR_USAGE,	/* the command line or the config: the caller can correct it */
	DS_ERR_INPUT,	/* a file, message or request that is wrong in itself */
	DS_ERR_HOST,	/* the kernel, the disk or a device said no */
	DS_ERR_PERM,	/* a privilege is missing */
	DS_ERR_NOMEM,	/* memory */
	DS_ERR_TIMEOUT, /* a deadline passed */
	DS_ERR_PEER,	/* another rank or host */
	DS_ERR_BUG,	/* our own mistake */
};

struct ds_err {
	enum ds_err_kind kind;
	int sys;       /* errno, or 0 */
	char what[96]; /* the attempt: "set link mtu 9000" */
	char obj[256]; /* on what: "enp1s0f0np0"; a truncation keeps the tail of a path */
	char why[256]; /* extack, library text, or strerror() */
	char fix[256]; /* next step; empty when we do not know one */
};

/**
 * ds_err_set() - fill @err, the first and only time for one failure.
 * @err:  the object; NULL is allowed and does nothing
 * @kind: who can act
 * @sys:  errno of the failed call, 0 if there is none; its text becomes `why`
 * @obj:  on what; NULL for nothing. More than 255 bytes keep their tail behind "..."
 * @what: printf format of the attempt, without object and without final stop
 *
 * Threads: any thread. Return: always -1, so that `return ds_err_set(...)` reads well.
 */
int ds_err_set(struct ds_err *err, enum ds_err_kind kind, int sys, const char *obj,
	       const char *what, ...) __attribute__((format(printf, 5, 6)));

/** ds_err_why() - replace the cause's text: the kernel's, a library's or our own words. Return: -1. */
int ds_err_why(struct ds_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** ds_err_fix() - say what to do next. Return: -1. */
int ds_err_fix(struct ds_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/**
 * ds_err_context() - put "while ..." in front of the attempt; keeps everything else. Return: -1.
 * Use it where a caller knows more about the purpose than the callee: ds_err_context(err, "rank %d", r).
 */
int ds_err_context(struct ds_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** ds_err_clear() - make @err hold no failure. */
void ds_err_clear(struct ds_err *err);

/**
 * ds_err_print() - the one printer: "PROG: what on obj: why" and, indented, "try: fix".
 * @f:    where to; @prog: program name. Control bytes in the texts are printed as \xNN.
 */
void ds_err_print(FILE *f, const char *prog, const struct ds_err *err);

/** ds_err_line() - the same on one line into @buf ("what on obj: why; try: fix"). Return: @buf. */
char *ds_err_line(const struct ds_err *err, char *buf, size_t size);

/** ds_err_exit_code() - exit status of a command that failed: USAGE 64, PERM 77, everything else 1. */
int ds_err_exit_code(const struct ds_err *err);

/** ds_err_kind_name() - "usage", "input", ... for JSON and logs; a static string. */
const char *ds_err_kind_name(enum ds_err_kind kind);

#endif
