/*
 * cmd_plan.c - dsprep plan: shows the operations that apply would run; and writes a first config
 * on request, the only thing it ever writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmd.h"
#include "file.h"

int prep_show_plan(const struct prep_opts *o, const struct prep_plan *p, const struct prep_host *h)
{
	struct ds_buf out = { 0 };
	if (o->json)
		prep_plan_json(p, h, &out);
	else if (!o->quiet)
		prep_plan_print(p, h, o->color, &out);
	return prep_out(&out);
}

static int show(struct prep_opts *o)
{
	struct prep_run r;
	struct prep_plan p;
	struct ds_err err = { 0 };
	int rc = prep_run_begin(o, &r);
	if (rc != 0)
		return rc;
	if (prep_run_plan(&r, &p, &err) != 0) {
		rc = prep_fail(&err);
	} else {
		rc = prep_show_plan(o, &p, &r.host);
		if (rc == 0 && p.n_op > 0)
			rc = PREP_EXIT_PENDING;
		prep_plan_fini(&p);
	}
	prep_run_end(&r);
	return rc;
}

/* ----------------------------- the first config ----------------------------- */

/* The directory that the config goes to, and the name in it. Below --root no symlink is followed. */
static int conf_dir(const struct prep_opts *o, struct prep_access *a, const char **name)
{
	if (o->conf == NULL) {
		struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
					.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
		*name = strrchr(PREP_CONF_FILE, '/') + 1;
		return (int)syscall(SYS_openat2, prep_root_fd(a), "etc", &how, sizeof(how));
	}
	const char *slash = strrchr(o->conf, '/');
	*name = slash != NULL ? slash + 1 : o->conf;
	if (slash == NULL)
		return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *dir = strndup(o->conf, slash == o->conf ? 1 : (size_t)(slash - o->conf));
	if (dir == NULL)
		return -1;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(dir);
	return fd;
}

static int put_config(const struct prep_opts *o, struct prep_access *a, const struct ds_buf *text,
		      struct ds_err *err)
{
	const char *name, *file = o->conf != NULL ? o->conf : PREP_CONF_FILE;
	struct stat st;
	int fd = conf_dir(o, a, &name);
	if (fd < 0)
		return ds_err_set(err, DS_ERR_HOST, errno, file, "open the directory of");
	int rc;
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		rc = ds_err_set(err, DS_ERR_USAGE, EEXIST, file, "write a first config");
		ds_err_fix(err, "edit it, or move it away first");
	} else {
		rc = ds_file_write(fd, name, 0644, text->data, text->len, err);
	}
	close(fd);
	return rc;
}

/* Makes, checks and writes the config for node @node. */
static int make_config(const struct prep_opts *o, struct prep_access *a, int node,
		       struct ds_err *err)
{
	struct prep_host h;
	struct prep_conf c;
	struct ds_buf text = { 0 };
	const char *file = o->conf != NULL ? o->conf : PREP_CONF_FILE;
	if (prep_host_read(a, &h, err) != 0)
		return -1;
	prep_conf_suggest(&h, node, &c);
	prep_host_fini(&h);
	prep_conf_print(&c, &text);
	int rc = 0;
	if (text.failed)
		rc = ds_err_set(err, DS_ERR_NOMEM, ENOMEM, file, "write a first config");
	else if (prep_conf_parse(file, text.data, text.len, &c, err) != 0)
		rc = -1;
	else
		rc = put_config(o, a, &text, err);
	ds_buf_fini(&text);
	return rc;
}

static int write_config(const struct prep_opts *o, int node)
{
	struct ds_err err = { 0 };
	const char *file = o->conf != NULL ? o->conf : PREP_CONF_FILE;
	if (geteuid() != 0) {
		ds_err_set(&err, DS_ERR_PERM, EPERM, file, "write a first config");
		ds_err_fix(&err, "run it with sudo");
		return prep_fail(&err);
	}
	struct prep_access *a = prep_access_live(o->root, &err);
	if (a == NULL)
		return prep_fail(&err);
	int rc = make_config(o, a, node, &err) == 0 ? 0 : prep_fail(&err);
	prep_access_close(a);
	if (rc == 0 && !o->quiet)
		fprintf(stderr, "dsprep: wrote %s; read it, then: dsprep plan\n", file);
	return rc;
}

int cmd_plan(struct prep_opts *o, int argc, char **argv)
{
	enum {
		OPT_WRITE = 1,
		OPT_NODE
	};
	static const struct option own[] = {
		{ "write-config", no_argument, NULL, OPT_WRITE },
		{ "node", required_argument, NULL, OPT_NODE },
		{ 0 },
	};
	bool write = false;
	long node = 0;
	int c;
	while ((c = prep_getopt(o, argc, argv, own)) != -1) {
		char *end;
		if (c == OPT_WRITE) {
			write = true;
		} else if (c == OPT_NODE) {
			node = strtol(optarg, &end, 10);
			if (*end != '\0' || node < 1 || node > 2)
				return prep_usage(
					"--node \"%.20s\" is neither 1 nor 2; a first config is for a pair",
					optarg);
		} else {
			return PREP_EXIT_USAGE;
		}
	}
	if (optind < argc)
		return prep_usage("plan takes no argument \"%.40s\"", argv[optind]);
	if (write != (node != 0))
		return prep_usage("--write-config and --node go together");
	return write ? write_config(o, (int)node) : show(o);
}
