/*
 * opts.c - options, usage errors and output: what every command needs to talk to its caller.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "file.h"

/* Values of the global options; commands' own are below. */
enum {
	OPT_ROOT = 1000,
	OPT_NO_COLOR,
	OPT_VERSION,
	OPT_HELP
};

static const struct {
	const char *name, *arg, *help;
	int val; /* a letter, or one of the above */
} globals[] = {
	/* clang-format off */
	{ "conf",     "FILE", "config file (default " PREP_CONF_FILE ")",      'c' },
	{ "json",     NULL,   "results as JSON",                              'j' },
	{ "dry-run",  NULL,   "change nothing, print the plan",               'n' },
	{ "root",     "DIR",  "move /etc /boot /usr /lib /var /run below DIR", OPT_ROOT },
	{ "quiet",    NULL,   "print no more than results and errors",        'q' },
	{ "verbose",  NULL,   "print more",                                   'v' },
	{ "no-color", NULL,   "no colours, also on a terminal",               OPT_NO_COLOR },
	{ "version",  NULL,   "print the version",                            OPT_VERSION },
	{ "help",     NULL,   "print this help",                              OPT_HELP },
	/* clang-format on */
};
#define N_GLOBALS (sizeof(globals) / sizeof(globals[0]))
#define N_OWN_MAX 8

void prep_print_options(void)
{
	for (size_t i = 0; i < N_GLOBALS; i++) {
		char left[40];
		snprintf(left, sizeof(left), "%c%c%s --%s%s%s", globals[i].val < 1000 ? '-' : ' ',
			 globals[i].val < 1000 ? globals[i].val : ' ',
			 globals[i].val < 1000 ? "," : " ", globals[i].name,
			 globals[i].arg != NULL ? " " : "",
			 globals[i].arg != NULL ? globals[i].arg : "");
		printf("  %-36s%s\n", left, globals[i].help);
	}
}

int prep_usage(const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	struct ds_err err;
	ds_err_set(&err, DS_ERR_USAGE, 0, NULL, "%s", "usage");
	ds_err_why(&err, "%s", text);
	ds_err_fix(&err, "dsprep --help");
	ds_err_print(stderr, "dsprep", &err);
	return PREP_EXIT_USAGE;
}

int prep_fail(const struct ds_err *err)
{
	ds_err_print(stderr, "dsprep", err);
	return ds_err_exit_code(err);
}

int prep_out(struct ds_buf *b)
{
	struct ds_err err;
	int rc = PREP_EXIT_OK;
	if (b->failed) {
		ds_err_set(&err, DS_ERR_NOMEM, ENOMEM, "the results", "print");
		rc = prep_fail(&err);
	} else if (fflush(stdout) != 0 || ds_write_all(STDOUT_FILENO, b->data, b->len) != 0) {
		ds_err_set(&err, DS_ERR_HOST, errno, "stdout", "write");
		rc = prep_fail(&err);
	}
	ds_buf_fini(b);
	return rc;
}

/* Takes a global option. Return: whether @val is one. */
static bool take_global(struct prep_opts *o, int val)
{
	switch (val) {
	case 'c':
		o->conf = optarg;
		return true;
	case 'j':
		o->json = true;
		return true;
	case 'n':
		o->dry_run = true;
		return true;
	case 'q':
		o->quiet = true;
		return true;
	case 'v':
		o->verbose = true;
		return true;
	case OPT_ROOT:
		o->root = optarg;
		return true;
	case OPT_NO_COLOR:
		o->no_color = true;
		return true;
	case OPT_VERSION:
		printf("dsprep %s\n", DS_VERSION);
		exit(fflush(stdout) == 0 ? PREP_EXIT_OK : PREP_EXIT_FAILED);
	case OPT_HELP:
		exit(o->help());
	default:
		return false;
	}
}

static void complain(int what, char **argv)
{
	char letter[3] = { '-', (char)optopt, '\0' };
	bool is_letter = optopt > 0 && optopt < 128 && isgraph(optopt) &&
			 strncmp(argv[optind - 1], "--", 2) != 0;
	const char *name = is_letter ? letter : argv[optind - 1];
	if (what == ':')
		prep_usage("option %.60s needs a value", name);
	else
		prep_usage("option %.60s is unknown, or takes no value", name);
}

int prep_getopt(struct prep_opts *o, int argc, char **argv, const struct option *own)
{
	struct option all[N_GLOBALS + N_OWN_MAX + 1] = { 0 };
	size_t n = 0;
	for (; n < N_GLOBALS; n++)
		all[n] = (struct option){ globals[n].name,
					  globals[n].arg != NULL ? required_argument : no_argument,
					  NULL, globals[n].val };
	for (size_t i = 0; own != NULL && own[i].name != NULL && i < N_OWN_MAX; i++)
		all[n++] = own[i];
	opterr = 0;
	int c;
	/* "+": stop at the command's name; the command itself takes options anywhere. */
	while ((c = getopt_long(argc, argv, own == NULL ? "+:c:jnqv" : ":c:jnqv", all, NULL)) !=
	       -1) {
		if (c == '?' || c == ':') {
			complain(c, argv);
			return '?';
		}
		if (!take_global(o, c))
			return c;
	}
	o->color = !o->no_color && isatty(STDOUT_FILENO);
	return -1;
}
