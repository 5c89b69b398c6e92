/*
 * priv.h - giving up root, and proving it.
 *
 * Started as root, dsengine reads the bytes of its config, keys and secret, raises the locked-memory
 * limit and then calls priv_drop() before it parses anything and before it starts a thread: threads
 * and forked ranks inherit what is left, which is nothing (design.md 4.1). Nothing here parses.
 */
#ifndef ENG_PRIV_H
#define ENG_PRIV_H

#include <stdbool.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"

#define PRIV_ACCOUNT	"dsengine" /* who we become without --user */
#define PRIV_NOBODY	65534 /* uid and gid of commands other than serve without that account */
#define PRIV_FILE_BYTES (64 * 1024)

enum priv_command {
	PRIV_SERVE, /* the daemon: refuses to run for want of an account */
	PRIV_OTHER  /* everything else: falls back to PRIV_NOBODY */
};

/* Who the process becomes. */
struct priv_id {
	bool root; /* the process may change identity; otherwise uid and gid are its own */
	uid_t uid;
	gid_t gid;
};

/** priv_is_root() - whether any of the three user ids is 0. Threads: any thread. */
bool priv_is_root(void);

/**
 * priv_resolve() - the identity that priv_drop() would take; changes nothing.
 * @user: account name or decimal uid (its gid: the account's, or the same number); NULL = the default
 * Return: 0; -1: DS_ERR_USAGE (no such account, uid 0), DS_ERR_PERM (@user is somebody else, not root).
 */
int priv_resolve(const char *user, enum priv_command command, struct priv_id *out,
		 struct ds_err *err);

/**
 * priv_drop() - take that identity, without supplementary groups, with every capability set, the
 * ambient and the bounding set empty and no_new_privs set; then priv_verify().
 * Not root: identity and groups stay; the sets are emptied (the bounding set as far as it lets us).
 *
 * Before that it raises the soft and, as root, the hard locked-memory limit as far as it goes.
 * Threads: start-up only, while there is one thread (else DS_ERR_BUG).
 * Return: 0; -1: as priv_resolve(), or DS_ERR_HOST naming the step. After -1 the caller must end.
 */
int priv_drop(const char *user, enum priv_command command, struct ds_err *err);

/**
 * priv_verify() - read /proc/self/task/TID/status of every thread and compare with what priv_drop()
 * promised, then try privileged calls: each must fail with EPERM.
 * Threads: any thread, after priv_drop(). Return: 0; -1 with DS_ERR_HOST naming thread and field.
 */
int priv_verify(struct ds_err *err);

/**
 * priv_read() - the bytes of a config, key or secret file, at most PRIV_FILE_BYTES.
 * As root the last component may be no symbolic link and the file must be root's own, and not
 * writable by others; not root: any regular file.
 * Return: 0; -1 as ds_file_read(), or DS_ERR_PERM naming the owner.
 */
int priv_read(const char *path, struct ds_buf *out, struct ds_err *err);

#endif
