/*
 * access.h - the one accessor: every fact about a host is read through it.
 *
 * Today it reads the live host, with /etc /boot /usr /lib /var and /run moved below `root` when one
 * is given (--root): /proc, /sys and netlink stay live. A recorded host will be another back end
 * behind the same calls. Reading follows symlinks inside the root only, opens regular files only,
 * and caps sizes. A missing file is an answer, not a failure: it says ENOENT.
 */
#ifndef PREP_ACCESS_H
#define PREP_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"

struct prep_access;

/** prep_access_live() - @root: NULL or a directory. Returns owned; NULL: DS_ERR_USAGE (no such root). */
struct prep_access *prep_access_live(const char *root, struct ds_err *err);
/**
 * prep_access_tree() - read everything, /proc and /sys included, below @dir: a recorded or made-up
 * host. Reading stays inside it. Returns and errors: as prep_access_live().
 */
struct prep_access *prep_access_tree(const char *dir, struct ds_err *err);
void prep_access_close(struct prep_access *a);

/**
 * prep_read() - the content of @path (absolute, as on the host), at most 1 MiB.
 * Return: 0; otherwise the errno that a person would see: ENOENT looked and not there, EACCES,
 * EFBIG longer than that, EINVAL not a regular file; @out is then empty.
 */
int prep_read(struct prep_access *a, const char *path, struct ds_buf *out);
/** prep_read_line() - the first line of a small file, without the newline. Return: as prep_read(). */
int prep_read_line(struct prep_access *a, const char *path, char *buf, size_t size);
/**
 * prep_list() - call @fn for each name in a directory, sorted, until it returns non-zero.
 * Return: 0, an errno, or what @fn returned.
 */
int prep_list(struct prep_access *a, const char *path, int (*fn)(const char *name, void *arg),
	      void *arg);
/** prep_link_target() - readlink() of @path into @buf. Return: 0 or an errno. */
int prep_link_target(struct prep_access *a, const char *path, char *buf, size_t size);

/**
 * prep_access_short() - whether some reading so far failed for want of memory or descriptors.
 * "Not there" is an answer that callers build on; such a failure is none, and would pass for one.
 * So whoever concludes from what he read asks this once at the end. Return: 0; the first errno.
 */
int prep_access_short(const struct prep_access *a);
/** prep_access_forget() - forget such failures: for one who reads everything anew, as a watch does. */
void prep_access_forget(struct prep_access *a);

/** prep_root_fd() - directory descriptor of the root ("/" without --root); a view. For writers. */
int prep_root_fd(const struct prep_access *a);
/** prep_root_is_live() - true without --root. */
bool prep_root_is_live(const struct prep_access *a);

#endif
