/*
 * file.h - reading whole small files, and writing them so that a power cut leaves old or new.
 */
#ifndef DS_FILE_H
#define DS_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"

/**
 * ds_file_read() - the whole content of a regular file (or of a /proc or /sys file).
 * @dirfd: directory that a relative @path starts from, or AT_FDCWD
 * @flags: more open flags, for instance O_NOFOLLOW
 * @max:   bytes; a longer file is DS_ERR_INPUT
 * @out:   caller's; emptied first; holds the content on success
 *
 * Opens with O_NONBLOCK and O_CLOEXEC; FIFOs, sockets and devices are refused (DS_ERR_INPUT).
 * Return: 0; -1 with err->sys = errno of the failed call (ENOENT, EACCES, ... are DS_ERR_HOST, or
 * DS_ERR_PERM for EACCES and EPERM).
 */
int ds_file_read(int dirfd, const char *path, int flags, size_t max, struct ds_buf *out,
		 struct ds_err *err);

/** ds_fd_read() - the same from an open descriptor; @name for messages. */
int ds_fd_read(int fd, const char *name, size_t max, struct ds_buf *out, struct ds_err *err);

/**
 * ds_file_write() - put a whole file in place: temporary name, fsync, rename, fsync of the directory.
 * @dirfd: directory of the file, open
 * @name:  its name in there, without "/"
 * @mode:  permission bits; an existing target keeps its own mode and owner instead
 *
 * A target that exists and is not a regular file (symlink, FIFO, device, directory) is refused.
 * Nothing stays behind on failure. Return: 0; -1 (DS_ERR_HOST, DS_ERR_PERM, DS_ERR_INPUT).
 */
int ds_file_write(int dirfd, const char *name, mode_t mode, const void *data, size_t len,
		  struct ds_err *err);

/** ds_write_all() - write() until @len bytes are out; EINTR is retried. Return: 0, -1 with errno set. */
int ds_write_all(int fd, const void *data, size_t len);

/**
 * ds_hold_std_fds() - give /dev/null to each of descriptors 0 to 2 that is closed.
 *
 * A program may be started with them closed; the next file that it opens would get the number, and
 * every message would be written into that file. What takes the place is open for reading only, so
 * that writing still fails (EBADF) and a lost result is noticed. First thing in main().
 * Return: 0; -1 (DS_ERR_HOST).
 */
int ds_hold_std_fds(struct ds_err *err);

/**
 * ds_crc32c() - CRC-32C (Castagnoli, RFC 3720 B.4) of @len bytes.
 * @crc: 0 to start, or the result of the bytes before, so that parts chain.
 * Threads: any thread. Check value: ds_crc32c(0, "123456789", 9) == 0xe3069283.
 */
uint32_t ds_crc32c(uint32_t crc, const void *data, size_t len);

#endif
