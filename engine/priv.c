/*
 * priv.c - giving up root, and proving it. The order matters: the bounding set needs CAP_SETPCAP and
 * the groups need CAP_SETGID, so both go while uid 0 is still held; the uid goes last.
 */
#include "priv.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file.h"

#define THREADS_MAX 4096 /* bound of the walk over /proc/self/task */

/* What priv_drop() promised, for priv_verify(). Written once, at start-up. */
static struct {
	bool done, bound_empty, was_root;
	uid_t uid;
	gid_t gid;
} promise;

bool priv_is_root(void)
{
	uid_t r, e, s;
	return getresuid(&r, &e, &s) != 0 || r == 0 || e == 0 || s == 0;
}

static int by_number(const char *user, struct priv_id *out, struct ds_err *err)
{
	char *end;
	errno = 0;
	unsigned long v = strtoul(user, &end, 10);
	if (*end != '\0' || errno != 0 || v >= UINT32_MAX) {
		ds_err_set(err, DS_ERR_USAGE, 0, user, "read --user");
		return ds_err_why(err, "neither an account name nor a uid of 0..4294967294");
	}
	errno = 0;
	const struct passwd *pw = getpwuid((uid_t)v);
	out->uid = (uid_t)v;
	out->gid = pw != NULL ? pw->pw_gid : (gid_t)v;
	return 0;
}

static int by_name(const char *user, struct priv_id *out, struct ds_err *err)
{
	errno = 0;
	const struct passwd *pw = getpwnam(user);
	if (pw == NULL) {
		ds_err_set(err, DS_ERR_USAGE, 0, user, "give up root");
		return ds_err_why(err, "no such account on this machine");
	}
	out->uid = pw->pw_uid;
	out->gid = pw->pw_gid;
	return 0;
}

int priv_resolve(const char *user, enum priv_command command, struct priv_id *out,
		 struct ds_err *err)
{
	*out = (struct priv_id){ .root = priv_is_root(), .uid = geteuid(), .gid = getegid() };
	if (!out->root && user == NULL)
		return 0;
	struct priv_id want = { .root = out->root };
	const char *name = user != NULL ? user : PRIV_ACCOUNT;
	if (user == NULL && command == PRIV_OTHER && getpwnam(PRIV_ACCOUNT) == NULL) {
		want.uid = PRIV_NOBODY;
		want.gid = PRIV_NOBODY;
	} else if ((isdigit((unsigned char)name[0]) ? by_number : by_name)(name, &want, err) != 0) {
		return ds_err_fix(err, "name an account with --user NAME|UID, or make one: "
				       "useradd --system --no-create-home " PRIV_ACCOUNT);
	}
	if (want.uid == 0 || want.gid == 0) {
		ds_err_set(err, DS_ERR_USAGE, 0, name, "give up root");
		return ds_err_why(err, "its %s is 0: that would keep root",
				  want.uid == 0 ? "uid" : "gid");
	}
	if (!out->root && (want.uid != out->uid || want.gid != out->gid)) {
		ds_err_set(err, DS_ERR_PERM, 0, name, "run as another user");
		ds_err_why(err, "this process is uid %u and not root", (unsigned int)out->uid);
		return ds_err_fix(err, "leave out --user, or start as root");
	}
	*out = want;
	return 0;
}

static int step_failed(const char *step, struct ds_err *err)
{
	ds_err_set(err, DS_ERR_HOST, errno, step, "give up root");
	return ds_err_fix(err, "start as an ordinary user, or give the container CAP_SETUID, "
			       "CAP_SETGID and CAP_SETPCAP");
}

/*
 * Communication memory is locked later; a limit that cannot be raised is not an error here, whoever
 * then fails to lock will say so.
 */
static void raise_memlock(void)
{
	struct rlimit rl = { RLIM_INFINITY, RLIM_INFINITY };
	if (setrlimit(RLIMIT_MEMLOCK, &rl) == 0 || getrlimit(RLIMIT_MEMLOCK, &rl) != 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	(void)setrlimit(RLIMIT_MEMLOCK, &rl);
}

static int count_threads(struct ds_err *err)
{
	DIR *d = opendir("/proc/self/task");
	if (d == NULL)
		return ds_err_set(err, DS_ERR_HOST, errno, "/proc/self/task",
				  "count threads before giving up root");
	int n = 0;
	for (const struct dirent *e; n < THREADS_MAX && (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Empty the bounding set. Without CAP_SETPCAP (not root) it stays, and no_new_privs makes it moot. */
static int drop_bounding(bool must, struct ds_err *err)
{
	for (cap_value_t c = 0; c < cap_max_bits(); c++) {
		if (cap_get_bound(c) != 1)
			continue;
		if (cap_drop_bound(c) != 0) {
			if (must)
				return step_failed("bounding set", err);
			return 0;
		}
	}
	promise.bound_empty = true;
	return 0;
}

static int change_identity(const struct priv_id *id, struct ds_err *err)
{
	if (setgroups(0, NULL) != 0)
		return step_failed("supplementary groups", err);
	if (setresgid(id->gid, id->gid, id->gid) != 0)
		return step_failed("group id", err);
	if (setresuid(id->uid, id->uid, id->uid) != 0)
		return step_failed("user id", err);
	return 0;
}

static int empty_sets(struct ds_err *err)
{
	if (cap_reset_ambient() != 0 && errno != EINVAL)
		return step_failed("ambient set", err);
	cap_t none = cap_init(); /* all flags clear */
	if (none == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "capabilities", "give up root");
	int rc = cap_set_proc(none);
	if (rc != 0)
		step_failed("capability sets", err);
	cap_free(none);
	if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		rc = step_failed("no_new_privs", err);
	return rc;
}

int priv_drop(const char *user, enum priv_command command, struct ds_err *err)
{
	struct priv_id id;
	if (priv_resolve(user, command, &id, err) != 0)
		return -1;
	int n = count_threads(err);
	if (n < 0)
		return -1;
	if (n != 1) {
		ds_err_set(err, DS_ERR_BUG, 0, NULL, "give up root");
		return ds_err_why(err, "%d threads run already; capabilities are per thread", n);
	}
	raise_memlock();
	promise.bound_empty = false;
	if (drop_bounding(id.root, err) != 0)
		return -1;
	if (id.root && change_identity(&id, err) != 0)
		return -1;
	if (empty_sets(err) != 0)
		return -1;
	promise.was_root = id.root;
	promise.uid = id.uid;
	promise.gid = id.gid;
	promise.done = true;
	return priv_verify(err);
}

/* ---------------------------------- the proof ---------------------------------- */

static int broken(const char *tid, const char *field, const char *line, struct ds_err *err)
{
	char obj[64];
	snprintf(obj, sizeof(obj), "thread %.20s", tid);
	ds_err_set(err, DS_ERR_HOST, 0, obj, "verify that root is given up");
	return ds_err_why(err, "%s is \"%.100s\"", field, line);
}

/* The value of "Field:" in a /proc status text, without leading blanks; NULL if it is not there. */
static const char *field_of(const char *text, const char *field, char *out, size_t size)
{
	size_t len = strlen(field);
	for (const char *p = text; p != NULL && *p != '\0';) {
		if (strncmp(p, field, len) == 0 && p[len] == ':') {
			p += len + 1;
			p += strspn(p, " \t");
			size_t n = strcspn(p, "\n");
			if (n >= size)
				n = size - 1;
			memcpy(out, p, n);
			out[n] = '\0';
			return out;
		}
		p = strchr(p, '\n');
		if (p != NULL)
			p++;
	}
	return NULL;
}

/* Four ids, all equal to @want. */
static bool ids_are(const char *value, unsigned long want)
{
	for (int i = 0; i < 4; i++) {
		char *end;
		if (strtoul(value, &end, 10) != want || end == value)
			return false;
		value = end;
	}
	return true;
}

static int check_status(const char *tid, const char *text, struct ds_err *err)
{
	static const char *const caps[] = { "CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd" };
	char v[160];
	if (field_of(text, "Uid", v, sizeof(v)) == NULL || !ids_are(v, promise.uid))
		return broken(tid, "Uid", v, err);
	if (field_of(text, "Gid", v, sizeof(v)) == NULL || !ids_are(v, promise.gid))
		return broken(tid, "Gid", v, err);
	if (field_of(text, "Groups", v, sizeof(v)) == NULL)
		return broken(tid, "Groups", "absent", err);
	if (promise.was_root && v[strspn(v, " ")] != '\0')
		return broken(tid, "Groups", v, err);
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		if (i == 4 && !promise.bound_empty)
			continue;
		if (field_of(text, caps[i], v, sizeof(v)) == NULL || v[strspn(v, "0")] != '\0')
			return broken(tid, caps[i], v, err);
	}
	if (field_of(text, "NoNewPrivs", v, sizeof(v)) == NULL || strcmp(v, "1") != 0)
		return broken(tid, "NoNewPrivs", v, err);
	return 0;
}

/* Raw system calls: glibc's wrappers would tell every thread to try the same. */
static int try_privileged(struct ds_err *err)
{
	uid_t r, e, s;
	if (getresuid(&r, &e, &s) != 0 || r == 0 || e == 0 || s == 0)
		return broken("self", "a user id", "0", err);
	if (syscall(SYS_setresuid, 0, 0, 0) == 0 || errno != EPERM)
		return broken("self", "setresuid(0, 0, 0)", "not refused with EPERM", err);
	if (syscall(SYS_setgroups, 0, NULL) == 0 || errno != EPERM)
		return broken("self", "setgroups()", "not refused with EPERM", err);
	cap_t c = cap_get_proc();
	cap_value_t raise[] = { CAP_NET_ADMIN };
	if (c == NULL || cap_set_flag(c, CAP_PERMITTED, 1, raise, CAP_SET) != 0)
		return ds_err_set(err, DS_ERR_NOMEM, errno, "capabilities",
				  "verify that root is given up");
	int rc = cap_set_proc(c);
	int why = errno;
	cap_free(c);
	if (rc == 0 || why != EPERM)
		return broken("self", "raising CAP_NET_ADMIN", "not refused with EPERM", err);
	return 0;
}

int priv_verify(struct ds_err *err)
{
	if (!promise.done)
		return ds_err_set(err, DS_ERR_BUG, 0, NULL, "verify a drop that did not happen");
	DIR *d = opendir("/proc/self/task");
	if (d == NULL)
		return ds_err_set(err, DS_ERR_HOST, errno, "/proc/self/task",
				  "verify that root is given up");
	struct ds_buf text = { 0 };
	int rc = 0, n = 0;
	for (const struct dirent *e; rc == 0 && n < THREADS_MAX && (e = readdir(d)) != NULL;) {
		char path[64];
		if (e->d_name[0] == '.')
			continue;
		n++;
		snprintf(path, sizeof(path), "%.20s/status", e->d_name);
		struct ds_err gone = { 0 };
		if (ds_file_read(dirfd(d), path, 0, PRIV_FILE_BYTES, &text, &gone) == 0) {
			rc = check_status(e->d_name, text.data != NULL ? text.data : "", err);
		} else if (gone.sys != ENOENT && gone.sys != ESRCH) {
			/* A thread may end while we look; anything else is a fault. */
			rc = broken(e->d_name, "its status file", gone.why, err);
		}
	}
	ds_buf_fini(&text);
	closedir(d);
	return rc != 0 ? rc : try_privileged(err);
}

int priv_read(const char *path, struct ds_buf *out, struct ds_err *err)
{
	if (!priv_is_root())
		return ds_file_read(AT_FDCWD, path, 0, PRIV_FILE_BYTES, out, err);
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		enum ds_err_kind kind = errno == EACCES || errno == EPERM ? DS_ERR_PERM
									  : DS_ERR_HOST;
		ds_err_set(err, kind, errno, path, "open");
		if (err != NULL && err->sys == ELOOP)
			ds_err_fix(err, "as root no symbolic link is followed here: name the file");
		return -1;
	}
	struct stat st;
	int rc = fstat(fd, &st);
	if (rc != 0) {
		ds_err_set(err, DS_ERR_HOST, errno, path, "stat");
	} else if (!S_ISREG(st.st_mode)) {
		ds_err_set(err, DS_ERR_INPUT, 0, path, "read");
		rc = ds_err_why(err, "not a regular file");
	} else if (st.st_uid != 0 || (st.st_mode & S_IWOTH) != 0) {
		ds_err_set(err, DS_ERR_PERM, 0, path, "read as root");
		ds_err_why(err, "its owner is uid %u, mode %04o", (unsigned int)st.st_uid,
			   (unsigned int)st.st_mode & 07777);
		rc = ds_err_fix(err, "root reads only files of root that others cannot write: "
				     "chown root and chmod o-w it");
	} else {
		rc = ds_fd_read(fd, path, PRIV_FILE_BYTES, out, err);
	}
	close(fd);
	return rc;
}
