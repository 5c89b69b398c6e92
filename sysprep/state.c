/*
 * state.c - opens and makes the directories of dsprep's own state. It never reads what is in them.
 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct step {
	const char *name; /* one component */
	mode_t mode;	  /* when we make it */
	bool ours;	  /* must be ours, and closed to others */
};

static const struct step run_steps[] = { { "run", 0755, false }, { "dsprep", 0755, true }, { 0 } };
static const struct step journal_steps[] = {
	{ "var", 0755, false },
	{ "lib", 0755, false },
	{ "dsprep", 0700, true },
	{ "journal", 0700, true },
	{ 0 },
};

int prep_state_trust(int fd, const char *name, struct ds_err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return ds_err_set(err, DS_ERR_HOST, errno, name, "look at");
	if (st.st_uid == geteuid() && (st.st_mode & 022) == 0)
		return 0;
	ds_err_set(err, DS_ERR_INPUT, 0, name, "trust");
	ds_err_why(err, "owner %u, mode %04o: others could have written to it", st.st_uid,
		   st.st_mode & 07777);
	return ds_err_fix(err, "look at it with: ls -ld, and move it away if it is not dsprep's");
}

static int fail(struct ds_err *err, const char *path, const char *what)
{
	int e = errno;
	ds_err_set(err, e == EACCES || e == EPERM ? DS_ERR_PERM : DS_ERR_HOST, e, path, "%s", what);
	if (e == ELOOP || e == ENOTDIR)
		ds_err_fix(err, "a real directory is needed there; symlinks are not followed");
	return -1;
}

/* Opens one component of @dir, making it if asked. Return: descriptor, -1. */
static int enter(int dir, const struct step *s, const char *path, bool make, struct ds_err *err)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, s->name, flags);
	if (fd >= 0 || errno != ENOENT || !make)
		return fd >= 0 ? fd : fail(err, path, "open");
	if (mkdirat(dir, s->name, s->mode) != 0 && errno != EEXIST)
		return fail(err, path, "make directory");
	fd = openat(dir, s->name, flags);
	if (fd < 0)
		return fail(err, path, "open");
	/* The caller's umask must not decide who may read the report. */
	if (fchmod(fd, s->mode) == 0 && fsync(dir) == 0)
		return fd;
	fail(err, path, "set up directory");
	close(fd);
	return -1;
}

static int walk(struct prep_access *a, const struct step *s, bool make, struct ds_err *err)
{
	char path[64] = "";
	int dir = openat(prep_root_fd(a), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return fail(err, "/", "open");
	for (; s->name != NULL; s++) {
		strncat(path, "/", sizeof(path) - strlen(path) - 1);
		strncat(path, s->name, sizeof(path) - strlen(path) - 1);
		int next = enter(dir, s, path, make, err);
		close(dir);
		dir = next;
		if (dir >= 0 && s->ours && prep_state_trust(dir, path, err) != 0) {
			close(dir);
			dir = -1;
		}
		if (dir < 0)
			return -1;
	}
	return dir;
}

int prep_state_run(struct prep_access *a, struct ds_err *err)
{
	return walk(a, run_steps, true, err);
}

int prep_state_journal(struct prep_access *a, bool make, struct ds_err *err)
{
	return walk(a, journal_steps, make, err);
}
