/*
 * main.c - dsengine: the table of commands, --help and --version.
 *
 * A new command is a row here and a file of its own. Help is printed from the table, so it cannot
 * name what does not exist.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "file.h"

/* clang-format off */
static const struct eng_cmd cmds[] = {
	{ "serve",    "answer chat requests over HTTP, alone or with other ranks", cmd_serve },
	{ "generate", "answer one prompt, then end",                               cmd_generate },
	{ "keygen",   "make the secret that all ranks share",                      cmd_keygen },
	{ NULL, NULL, NULL },
};
/* clang-format on */

static void help(FILE *f)
{
	fprintf(f, "usage: " ENG_PROG " COMMAND [OPTION...]\n");
	for (const struct eng_cmd *c = cmds; c->name != NULL; c++)
		fprintf(f, "  %-10s %s\n", c->name, c->summary);
	fprintf(f, "  %-10s %s\n", "--version", "print the version");
	fprintf(f, "  %-10s %s\n", "--help", "print this list; COMMAND --help prints its options");
}

int main(int argc, char **argv)
{
	struct ds_err err = { 0 };
	/* A limit on file sizes is an error of write(), which names the file, and no reason to die. */
	signal(SIGXFSZ, SIG_IGN);
	if (ds_hold_std_fds(&err) != 0)
		return cmd_fail(&err);
	if (argc < 2) {
		help(stderr);
		return CMD_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "--version") == 0) {
		if (strcmp(argv[1], "--help") == 0)
			help(stdout);
		else
			printf(ENG_PROG " " DS_VERSION "\n");
		return fflush(stdout) == 0 ? 0 : 1;
	}
	for (const struct eng_cmd *c = cmds; c->name != NULL; c++)
		if (strcmp(argv[1], c->name) == 0)
			return c->run(argc - 1, argv + 1);
	ds_err_set(&err, DS_ERR_USAGE, 0, argv[1], "read the command");
	ds_err_why(&err, "no such command");
	ds_err_fix(&err, ENG_PROG " --help lists them");
	return cmd_fail(&err);
}
