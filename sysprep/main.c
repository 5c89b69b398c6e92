/*
 * main.c - argv to command: the table of commands, the global options, help and version.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "caps.h"
#include "cmd.h"
#include "file.h"

static const struct prep_cmd cmds[] = {
	{ "doctor", "", "check this host; read-only, needs no root", cmd_doctor },
	{ "plan", "[--write-config --node N]", "print what apply would do; needs no root",
	  cmd_plan },
	{ "apply", "[--yes]", "bring this host to the plan; asks first; root", cmd_apply },
	{ "undo", "[ID | --all]", "put back what the newest apply changed; root", cmd_undo },
	{ "explain", "ID", "what a check means, what to do, and where that is known from",
	  cmd_explain },
};
#define N_CMDS (sizeof(cmds) / sizeof(cmds[0]))

static int help(void)
{
	printf("usage: dsprep [options] command [command options]\n\ncommands:\n");
	for (size_t i = 0; i < N_CMDS; i++)
		printf("  %s %s%*s%s\n", cmds[i].name, cmds[i].args,
		       (int)(36 - strlen(cmds[i].name) - strlen(cmds[i].args)), "",
		       cmds[i].summary);
	printf("\noptions:\n");
	prep_print_options();
	return fflush(stdout) == 0 ? PREP_EXIT_OK : PREP_EXIT_FAILED;
}

int main(int argc, char **argv)
{
	struct prep_opts o = { .help = help };
	struct ds_err err = { 0 };
	/* A journal that got descriptor 2 would be written into by every message. */
	if (ds_hold_std_fds(&err) != 0)
		return prep_fail(&err);
	/* Nothing here, and no library below, is to be steered from outside the command line. Without
	 * capabilities root is an owner like any other, and could lock itself out by an odd umask. */
	clearenv();
	umask(077);
	/* Reading, parsing and planning need no power; apply raises one capability at a time. */
	if (prep_caps_begin(&err) != 0)
		return prep_fail(&err);
	if (prep_getopt(&o, argc, argv, NULL) != -1)
		return PREP_EXIT_USAGE;
	if (optind >= argc)
		return prep_usage("no command given");
	argc -= optind;
	argv += optind;
	for (size_t i = 0; i < N_CMDS; i++) {
		if (strcmp(argv[0], cmds[i].name) != 0)
			continue;
		optind = 0; /* glibc: start over, on the command's own argv */
		return cmds[i].run(&o, argc, argv);
	}
	return prep_usage("\"%.40s\" is no command", argv[0]);
}
