/*
 * priv_drop.c - root is really gone: identity, groups and capability sets of every thread and of a
 * forked rank are read from /proc, and privileged calls are tried. Each case runs in a child,
 * because a drop cannot be taken back. Exit 77 without root.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "priv.h"

static int failed;

static void say(bool ok, const char *desc)
{
	printf("%s %s\n", ok ? "ok" : "not ok", desc);
	fflush(stdout);
	failed |= !ok;
}

/* Run @fn in a child; 0 = all it looked at was right. */
static bool child_ok(int (*fn)(void))
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		_exit(fn());
	int st = -1;
	return pid > 0 && waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0;
}

static int complain(const struct ds_err *err)
{
	ds_err_print(stderr, "priv_drop", err);
	return 1;
}

/* Reads the status files itself, so that the test does not believe priv_verify(). */
static int all_threads_are(unsigned int uid, int want_threads)
{
	char cmd[700];
	snprintf(cmd, sizeof(cmd),
		 "cat /proc/%d/task/*/status | awk -v uid=%u -v want=%d '"
		 "/^Pid:/ {n++} "
		 "/^[UG]id:/ && ($2 != uid || $3 != uid || $4 != uid || $5 != uid) {bad = $0} "
		 "/^Groups:/ && NF > 1 {bad = $0} "
		 "/^Cap(Inh|Prm|Eff|Bnd|Amb):/ && $2 !~ /^0+$/ {bad = $0} "
		 "/^NoNewPrivs:/ {nnp += $2} "
		 "END {if (n != want || nnp != n || bad != \"\") {"
		 "print n, nnp, bad > \"/dev/stderr\"; exit 1}}'",
		 (int)getpid(), uid, want_threads);
	return system(cmd) == 0 ? 0 : 1; /* NOLINT(cert-env33-c) */
}

static int denied(int rc, const char *what)
{
	if (rc == -1 && errno == EPERM)
		return 0;
	fprintf(stderr, "%s: returned %d, errno %d (%s)\n", what, rc, errno, strerror(errno));
	return 1;
}

/*
 * Each call is harmless even where it is allowed (an unknown file system, a host name too long, ...),
 * and none is tried with root still held: then the case has failed already.
 */
static int privileged_calls_fail(void)
{
	static const char too_long[128];
	int bad = 0;
	if (priv_is_root())
		return 1;
	bad |= denied(setuid(0), "setuid(0)");
	bad |= denied(seteuid(0), "seteuid(0)");
	bad |= denied(setgroups(0, NULL), "setgroups()");
	bad |= denied(chroot("/"), "chroot()");
	bad |= denied(mount("none", "/", "no-such-fs", 0, NULL), "mount()");
	bad |= denied(sethostname(too_long, sizeof(too_long)), "sethostname()");
	bad |= denied(socket(AF_PACKET, SOCK_RAW, 0), "packet socket");
	bad |= denied(unshare(CLONE_NEWNET), "unshare(CLONE_NEWNET)");
	return bad;
}

static atomic_bool stop;

static void *idle(void *arg)
{
	int *bad = arg; /* NULL: the thread only exists */
	if (bad != NULL)
		*bad = privileged_calls_fail();
	while (!atomic_load(&stop))
		usleep(1000);
	return NULL;
}

static int drop_to_65534(void)
{
	struct ds_err err = { 0 };
	gid_t groups[] = { 4, 27 };
	if (setgroups(2, groups) != 0) /* so that there is something to lose */
		return 1;
	if (priv_drop("65534", PRIV_SERVE, &err) != 0)
		return complain(&err);
	return 0;
}

static int case_threads(void)
{
	pthread_t t[3];
	int bad[3] = { 1, 1, 1 };
	struct ds_err err = { 0 };
	if (drop_to_65534() != 0)
		return 1;
	for (int i = 0; i < 3; i++)
		if (pthread_create(&t[i], NULL, idle, &bad[i]) != 0)
			return 1;
	int rc = all_threads_are(65534, 4);
	if (priv_verify(&err) != 0)
		rc = complain(&err);
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		rc |= bad[i];
	}
	return rc | privileged_calls_fail();
}

static int rank(void)
{
	return all_threads_are(65534, 1) | privileged_calls_fail();
}

static int case_forked_rank(void)
{
	return drop_to_65534() != 0 || !child_ok(rank);
}

/* A set-uid program must not bring root back. */
static int case_exec(void)
{
	char self[64];
	if (drop_to_65534() != 0)
		return 1;
	snprintf(self, sizeof(self), "test \"$(su -c id 2>/dev/null </dev/null)\" = ''");
	return system(self) == 0 ? 0 : 1; /* NOLINT(cert-env33-c) */
}

static int case_fallback(void)
{
	struct ds_err err = { 0 };
	if (priv_drop(NULL, PRIV_OTHER, &err) != 0)
		return complain(&err);
	return all_threads_are(PRIV_NOBODY, 1);
}

static int case_serve_needs_account(void)
{
	struct ds_err err = { 0 };
	if (priv_drop(NULL, PRIV_SERVE, &err) == 0 || err.kind != DS_ERR_USAGE)
		return 1;
	return strstr(err.fix, "--user") == NULL || getuid() != 0;
}

static int case_root_is_no_user(void)
{
	struct ds_err err = { 0 };
	if (priv_drop("0", PRIV_SERVE, &err) == 0 || err.kind != DS_ERR_USAGE)
		return 1;
	ds_err_clear(&err);
	return priv_drop("root", PRIV_OTHER, &err) == 0 || err.kind != DS_ERR_USAGE;
}

static int case_threads_before(void)
{
	pthread_t t;
	struct ds_err err = { 0 };
	if (pthread_create(&t, NULL, idle, NULL) != 0)
		return 1;
	int rc = priv_drop("65534", PRIV_SERVE, &err) == 0 || err.kind != DS_ERR_BUG;
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	return rc;
}

/* Not root: the identity stays, and another one is refused. */
static int case_not_root(void)
{
	struct ds_err err = { 0 };
	if (setgroups(0, NULL) != 0 || setresgid(4242, 4242, 4242) != 0 ||
	    setresuid(4242, 4242, 4242) != 0)
		return 1;
	if (priv_drop("65534", PRIV_SERVE, &err) == 0 || err.kind != DS_ERR_PERM)
		return 1;
	ds_err_clear(&err);
	if (priv_drop(NULL, PRIV_SERVE, &err) != 0)
		return complain(&err);
	return getuid() != 4242 || privileged_calls_fail();
}

static int case_memlock(void)
{
	struct rlimit before, after;
	if (getrlimit(RLIMIT_MEMLOCK, &before) != 0 || drop_to_65534() != 0 ||
	    getrlimit(RLIMIT_MEMLOCK, &after) != 0)
		return 1;
	/* As far as it goes: without CAP_SYS_RESOURCE that is the old hard limit. */
	return after.rlim_cur != after.rlim_max || after.rlim_max < before.rlim_max;
}

static int refused(const char *path, enum ds_err_kind kind)
{
	struct ds_buf b = { 0 };
	struct ds_err err = { 0 };
	int rc = priv_read(path, &b, &err) == 0 || err.kind != kind;
	ds_buf_fini(&b);
	return rc;
}

static int make_file(const char *path, mode_t mode, uid_t owner, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return 1;
	int bad = ftruncate(fd, (off_t)len) != 0 || fchmod(fd, mode) != 0 ||
		  fchown(fd, owner, 0) != 0;
	close(fd);
	return bad;
}

static int case_read_as_root(void)
{
	struct ds_buf b = { 0 };
	int bad = make_file("good", 0640, 0, 32) | make_file("theirs", 0644, 4242, 32) |
		  make_file("open", 0646, 0, 32) | make_file("big", 0640, 0, PRIV_FILE_BYTES + 1) |
		  symlink("good", "link") | mkfifo("fifo", 0600);
	struct ds_err err = { 0 };
	if (priv_read("good", &b, &err) != 0)
		bad |= complain(&err);
	bad |= b.len != 32;
	ds_buf_fini(&b);
	bad |= refused("theirs", DS_ERR_PERM) | refused("open", DS_ERR_PERM);
	bad |= refused("link", DS_ERR_HOST) | refused("fifo", DS_ERR_INPUT);
	return bad | refused("big", DS_ERR_INPUT) | refused("absent", DS_ERR_HOST);
}

int main(void)
{
	if (geteuid() != 0) {
		printf("skip privilege drop: needs root\n");
		return 77;
	}
	/* Whatever a failing case does stays in here; where that is not allowed, it is as above. */
	if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET) != 0)
		perror("priv_drop: no namespaces of its own");
	char dir[] = "/tmp/priv-drop.XXXXXX";
	if (mkdtemp(dir) == NULL || chdir(dir) != 0) {
		perror("priv_drop: scratch folder");
		return 1;
	}
	say(child_ok(case_threads), "every thread: ids, groups, sets, calls fail with EPERM");
	say(child_ok(case_forked_rank), "a forked rank inherits the drop");
	say(child_ok(case_exec), "a set-uid program does not bring root back");
	if (getpwnam(PRIV_ACCOUNT) == NULL) {
		say(child_ok(case_fallback), "without the account commands become uid 65534");
		say(child_ok(case_serve_needs_account), "serve refuses for want of the account");
	} else {
		printf("skip fallback to uid 65534: this machine has the account\n");
	}
	say(child_ok(case_root_is_no_user), "--user 0 and --user root are refused");
	say(child_ok(case_threads_before), "a drop with threads running is refused");
	say(child_ok(case_not_root), "not root: runs as it is, no other user, calls fail");
	say(child_ok(case_memlock), "the locked-memory limit is as high as it goes");
	say(child_ok(case_read_as_root), "root reads only root's own regular small files");
	static const char *const files[] = { "good", "theirs", "open", "big", "link", "fifo" };
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		unlink(files[i]);
	if (chdir("/") != 0 || rmdir(dir) != 0)
		failed = 1;
	return failed;
}
