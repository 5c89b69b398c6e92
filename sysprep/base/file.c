/*
 * file.c - reading whole small files, and writing them so that a power cut leaves old or new.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int sys_fail(struct ds_err *err, const char *obj, const char *what)
{
	int e = errno;
	enum ds_err_kind kind = e == EACCES || e == EPERM ? DS_ERR_PERM : DS_ERR_HOST;
	return ds_err_set(err, kind, e, obj, "%s", what);
}

int ds_fd_read(int fd, const char *name, size_t max, struct ds_buf *out, struct ds_err *err)
{
	char part[16384];
	ds_buf_reset(out);
	for (;;) {
		ssize_t n = read(fd, part, sizeof(part));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sys_fail(err, name, "read");
		if (n == 0)
			break;
		if (out->len + (size_t)n > max) {
			ds_err_set(err, DS_ERR_INPUT, EFBIG, name, "read");
			return ds_err_why(err, "longer than %zu bytes", max);
		}
		ds_buf_put(out, part, (size_t)n);
	}
	ds_buf_put(out, "", 0);
	if (out->failed)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, name, "read");
	return 0;
}

int ds_file_read(int dirfd, const char *path, int flags, size_t max, struct ds_buf *out,
		 struct ds_err *err)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
	if (fd < 0)
		return sys_fail(err, path, "open");
	struct stat st;
	int rc = -1;
	if (fstat(fd, &st) != 0) {
		sys_fail(err, path, "stat");
	} else if (!S_ISREG(st.st_mode)) {
		ds_err_set(err, DS_ERR_INPUT, 0, path, "read");
		ds_err_why(err, "not a regular file");
	} else {
		rc = ds_fd_read(fd, path, max, out, err);
	}
	close(fd);
	return rc;
}

int ds_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;
	while (len > 0) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Fills the temporary file and gives it its final mode and owner. */
static int fill(int fd, const char *name, mode_t mode, const struct stat *old, const void *data,
		size_t len, struct ds_err *err)
{
	if (ds_write_all(fd, data, len) != 0)
		return sys_fail(err, name, "write");
	if (old != NULL && fchown(fd, old->st_uid, old->st_gid) != 0)
		return sys_fail(err, name, "keep the owner");
	if (fchmod(fd, old != NULL ? old->st_mode & 07777 : mode) != 0)
		return sys_fail(err, name, "set the mode");
	if (fsync(fd) != 0)
		return sys_fail(err, name, "fsync");
	return 0;
}

int ds_file_write(int dirfd, const char *name, mode_t mode, const void *data, size_t len,
		  struct ds_err *err)
{
	struct stat st;
	bool exists = fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!exists && errno != ENOENT)
		return sys_fail(err, name, "look at");
	if (exists && !S_ISREG(st.st_mode)) {
		ds_err_set(err, DS_ERR_INPUT, 0, name, "write");
		ds_err_why(err, "exists and is not a regular file");
		return ds_err_fix(err,
				  "look at it with: ls -ld, and move it away if it is not needed");
	}
	char tmp[NAME_MAX + 1];
	if (snprintf(tmp, sizeof(tmp), ".%s.new", name) >= (int)sizeof(tmp)) {
		errno = ENAMETOOLONG;
		return sys_fail(err, name, "write");
	}
	/* Left by a run that was killed; ours by name, and never a link we would follow. */
	if (unlinkat(dirfd, tmp, 0) != 0 && errno != ENOENT)
		return sys_fail(err, tmp, "remove");
	int fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return sys_fail(err, tmp, "create");
	int rc = fill(fd, name, mode, exists ? &st : NULL, data, len, err);
	if (close(fd) != 0 && rc == 0)
		rc = sys_fail(err, name, "close");
	if (rc == 0 && renameat(dirfd, tmp, dirfd, name) != 0)
		rc = sys_fail(err, name, "rename into place");
	if (rc != 0) {
		unlinkat(dirfd, tmp, 0);
		return -1;
	}
	if (fsync(dirfd) != 0)
		return sys_fail(err, name, "fsync the directory of");
	return 0;
}

int ds_hold_std_fds(struct ds_err *err)
{
	int fd;
	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return sys_fail(err, "/dev/null", "open");
	close(fd);
	return 0;
}
