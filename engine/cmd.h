/*
 * cmd.h - the commands of dsengine, one file each; main.c holds the table that names them.
 *
 * A command gets its own arguments, argv[0] being its name, and returns the exit status of
 * design.md 4.2: 0 done, 1 failure, 64 usage. It prints its own errors with cmd_fail().
 */
#ifndef ENG_CMD_H
#define ENG_CMD_H

#include <stdio.h>

#include "err.h"

#define ENG_PROG "dsengine"

#define CMD_USAGE 64 /* sysexits.h EX_USAGE */

struct eng_cmd {
	const char *name, *summary; /* --help prints these very strings */
	int (*run)(int argc, char **argv);
};

/** cmd_generate() - one prompt, one answer; ranks are forked here. */
int cmd_generate(int argc, char **argv);

/** cmd_serve() - the daemon: rank 0 answers HTTP, the others follow it. */
int cmd_serve(int argc, char **argv);

/** cmd_keygen() - make a secret for the ranks of a group. */
int cmd_keygen(int argc, char **argv);

/** cmd_fail() - print @err on stderr. Return: the exit status that goes with its kind. */
static inline int cmd_fail(const struct ds_err *err)
{
	ds_err_print(stderr, ENG_PROG, err);
	return ds_err_exit_code(err);
}

#endif
