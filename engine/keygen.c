/*
 * keygen.c - `dsengine keygen [FILE]`: 32 random bytes that the ranks of a group share.
 *
 * The file is made anew, never overwritten: a secret in use must not change under a running group.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd.h"
#include "file.h"
#include "priv.h"
#include "settings.h"
#include "tp.h"

static int fail(const char *file, const char *what, struct ds_err *err)
{
	enum ds_err_kind kind = errno == EACCES || errno == EPERM ? DS_ERR_PERM : DS_ERR_HOST;
	ds_err_set(err, kind, errno, file, "%s", what);
	if (errno == EEXIST)
		ds_err_fix(
			err,
			"a secret is never overwritten: move the old one away first, on every node");
	return -1;
}

static int open_new(const char *file, struct ds_err *err)
{
	if (strcmp(file, ENG_SECRET_FILE) == 0 && mkdir("/etc/dsengine", 0755) != 0 &&
	    errno != EEXIST)
		return fail("/etc/dsengine", "make the folder", err);
	int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(file, "make the secret", err);
	const struct group *g = priv_is_root() ? getgrnam(PRIV_ACCOUNT) : NULL;
	if ((g != NULL && fchown(fd, (uid_t)-1, g->gr_gid) != 0) || fchmod(fd, 0640) != 0) {
		fail(file, "set group and mode of the secret", err);
		unlink(file);
		close(fd);
		return -1;
	}
	return fd;
}

static int fill(int fd, const char *file, struct ds_err *err)
{
	uint8_t secret[TP_SECRET_BYTES];
	int rc = 0;
	if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret) ||
	    ds_write_all(fd, secret, sizeof(secret)) != 0 || fsync(fd) != 0)
		rc = fail(file, "write the secret", err);
	explicit_bzero(secret, sizeof(secret));
	return rc;
}

int cmd_keygen(int argc, char **argv)
{
	struct ds_err err = { 0 };
	const char *file = argc > 1 ? argv[1] : ENG_SECRET_FILE;
	if (argc == 2 && strcmp(file, "--help") == 0) {
		printf("usage: dsengine keygen [FILE]; default " ENG_SECRET_FILE "\n");
		return 0;
	}
	if (argc > 2 || file[0] == '-' || file[0] == '\0') {
		ds_err_set(&err, DS_ERR_USAGE, 0, argc > 2 ? argv[2] : file,
			   "read the command line");
		ds_err_why(&err, "keygen takes one file name");
		return cmd_fail(&err);
	}
	int fd = open_new(file, &err);
	if (fd < 0)
		return cmd_fail(&err);
	/* Nothing is parsed, and a secret that could not be written must go: root is kept to the end. */
	int rc = fill(fd, file, &err);
	close(fd);
	if (rc != 0) {
		unlink(file);
		return cmd_fail(&err);
	}
	fprintf(stderr, "%s: made; copy it to every node of the group, over a channel you trust\n",
		file);
	return 0;
}
