/*
 * lock.c - takes the record lock of /run/dsprep/lock, or tells who has it.
 */
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

#define LOCK_PATH "/run/dsprep/lock"

/* The holder may go between two questions: then the lock is free and we ask for it again. */
static int try_lock(int fd, pid_t *holder, struct ds_err *err)
{
	for (int i = 0; i < 5; i++) {
		struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		if (fcntl(fd, F_SETLK, &l) == 0)
			return 0;
		if (errno != EACCES && errno != EAGAIN)
			return ds_err_set(err, DS_ERR_HOST, errno, LOCK_PATH, "lock");
		if (fcntl(fd, F_GETLK, &l) != 0)
			return ds_err_set(err, DS_ERR_HOST, errno, LOCK_PATH, "ask for the holder");
		if (l.l_type != F_UNLCK) {
			*holder = l.l_pid > 0 ? l.l_pid : 0;
			return 1;
		}
	}
	*holder = 0;
	return 1;
}

int prep_lock_take(int run_fd, int *out, pid_t *holder, struct ds_err *err)
{
	int fd = openat(run_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
			0600);
	if (fd < 0) {
		ds_err_set(err, DS_ERR_HOST, errno, LOCK_PATH, "open");
		return -1;
	}
	struct stat st;
	int rc = prep_state_trust(fd, LOCK_PATH, err);
	if (rc == 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
		ds_err_set(err, DS_ERR_INPUT, 0, LOCK_PATH, "lock");
		rc = ds_err_why(err, "exists and is not a regular file");
	}
	if (rc == 0)
		rc = try_lock(fd, holder, err);
	if (rc == 0)
		*out = fd;
	else
		close(fd);
	return rc;
}
