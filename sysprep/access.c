/*
 * access.c - the accessor's live back end: opens files of this host, with the movable directories
 * below --root, and lists directories. It never writes and never follows a link out of the root.
 */
#include "access.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file.h"

#define ACCESS_BYTES_MAX (1024 * 1024)
#define ACCESS_NAMES_MAX 65536

struct prep_access {
	int root;     /* directory descriptor, owned */
	bool live;    /* no --root was given */
	bool all;     /* everything is below the root, /proc and /sys too */
	int short_of; /* first errno of a failure that says nothing about the host */
};

struct prep_access *prep_access_live(const char *root, struct ds_err *err)
{
	struct prep_access *a = calloc(1, sizeof(*a));
	if (a == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, root, "open root");
		return NULL;
	}
	a->live = root == NULL;
	a->root = open(root != NULL ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (a->root < 0) {
		ds_err_set(err, root != NULL ? DS_ERR_USAGE : DS_ERR_HOST, errno,
			   root != NULL ? root : "/", "open root");
		ds_err_fix(err, "give --root a directory that exists");
		free(a);
		return NULL;
	}
	return a;
}

struct prep_access *prep_access_tree(const char *dir, struct ds_err *err)
{
	struct prep_access *a = prep_access_live(dir, err);
	if (a != NULL)
		a->all = true;
	return a;
}

void prep_access_close(struct prep_access *a)
{
	if (a == NULL)
		return;
	close(a->root);
	free(a);
}

int prep_root_fd(const struct prep_access *a)
{
	return a->root;
}

int prep_access_short(const struct prep_access *a)
{
	return a->short_of;
}

void prep_access_forget(struct prep_access *a)
{
	a->short_of = 0;
}

/* Passes @rc on, and remembers it if it says nothing about the host. */
static int note(struct prep_access *a, int rc)
{
	if ((rc == ENOMEM || rc == EMFILE || rc == ENFILE) && a->short_of == 0)
		a->short_of = rc;
	return rc;
}

bool prep_root_is_live(const struct prep_access *a)
{
	return a->live;
}

/* What --root moves; everything else (/proc, /sys) stays the live host's (design.md 3.1). */
static bool moves(const char *path)
{
	static const char *const dirs[] = { "/etc", "/boot", "/usr", "/lib", "/var", "/run" };
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		size_t len = strlen(dirs[i]);
		if (strncmp(path, dirs[i], len) == 0 && (path[len] == '/' || path[len] == '\0'))
			return true;
	}
	return false;
}

/* Returns a descriptor or -1 with errno. Links stay inside the root; sysfs needs its own. */
static int open_in(const struct prep_access *a, const char *path, int flags)
{
	/* openat2() refuses O_PATH beside flags that it would ignore. */
	flags |= flags & O_PATH ? O_CLOEXEC : O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	if (!a->all && !moves(path))
		return open(path, flags);
	struct open_how how = { .flags = (unsigned int)flags, .resolve = RESOLVE_IN_ROOT };
	return (int)syscall(SYS_openat2, a->root, path + 1, &how, sizeof(how));
}

int prep_read(struct prep_access *a, const char *path, struct ds_buf *out)
{
	struct ds_err err = { 0 };
	ds_buf_reset(out);
	int fd = open_in(a, path, O_RDONLY);
	if (fd < 0)
		return note(a, errno);
	struct stat st;
	int rc = 0;
	if (fstat(fd, &st) != 0)
		rc = errno;
	else if (S_ISDIR(st.st_mode))
		rc = EISDIR;
	else if (!S_ISREG(st.st_mode))
		rc = EINVAL;
	else if (ds_fd_read(fd, path, ACCESS_BYTES_MAX, out, &err) != 0)
		rc = err.sys != 0 ? err.sys : EIO;
	close(fd);
	if (rc != 0)
		ds_buf_reset(out);
	return note(a, rc);
}

int prep_read_line(struct prep_access *a, const char *path, char *buf, size_t size)
{
	struct ds_buf b = { 0 };
	buf[0] = '\0';
	int rc = prep_read(a, path, &b);
	if (rc == 0) {
		size_t len = b.len > 0 ? strcspn(b.data, "\n") : 0;
		if (len >= size)
			len = size - 1;
		if (len > 0)
			memcpy(buf, b.data, len);
		buf[len] = '\0';
	}
	ds_buf_fini(&b);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All names of @dir, unsorted, owned by the caller. */
static int read_names(DIR *dir, char ***out, size_t *n_out)
{
	size_t cap = 0;
	int rc = 0;
	struct dirent *e;
	while (rc == 0 && (errno = 0, e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (*n_out == cap) {
			cap = cap == 0 ? 64 : cap * 2;
			char **more = realloc(*out, cap * sizeof(*more));
			if (more == NULL || cap > ACCESS_NAMES_MAX)
				rc = more == NULL ? ENOMEM : E2BIG;
			if (more != NULL)
				*out = more;
		}
		if (rc == 0 && ((*out)[*n_out] = strdup(e->d_name)) == NULL)
			rc = ENOMEM;
		if (rc == 0)
			++*n_out;
	}
	return rc != 0 ? rc : errno;
}

int prep_list(struct prep_access *a, const char *path, int (*fn)(const char *name, void *arg),
	      void *arg)
{
	int fd = open_in(a, path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return note(a, errno);
	DIR *dir = fdopendir(fd);
	if (dir == NULL) {
		int rc = errno;
		close(fd);
		return note(a, rc);
	}
	char **names = NULL;
	size_t n = 0;
	int rc = note(a, read_names(dir, &names, &n));
	closedir(dir);
	if (rc == 0 && n > 0)
		qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 0; i < n; i++) {
		if (rc == 0)
			rc = fn(names[i], arg);
		free(names[i]);
	}
	free(names);
	return rc;
}

int prep_link_target(struct prep_access *a, const char *path, char *buf, size_t size)
{
	int fd = open_in(a, path, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return note(a, errno);
	ssize_t n = readlinkat(fd, "", buf, size - 1);
	int rc = n < 0 ? errno : 0;
	/* The same errno as readlink() of something that is no link. */
	if (rc == ENOENT)
		rc = EINVAL;
	buf[n < 0 ? 0 : n] = '\0';
	close(fd);
	return rc;
}
