/*
 * apply_kill.c - test program: apply and undo ended by SIGKILL at every boundary between intent,
 * system call and record; and spoiled by a full disk and by a want of memory. After each, `undo` or another apply must reach the
 * right state, judged by the kernel's own view of links, addresses, routes and sysctls.
 *
 * Works in a network and mount namespace of its own, in a directory of its own. Needs root and
 * iproute2; exits 77 otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "caps.h"
#include "cmd.h"
#include "journal.h"

/* ------------------------------- the boundary ------------------------------- */

static int kill_at;	       /* which test point kills; 0 = none */
static const char *kill_where; /* or the first one of this name */
static int points;
static bool count_at_settle;
static int count_fd = -1; /* where a counting run tells its allocations */
static long n_allocs;	  /* so far */

/* Takes the place of the product's empty one. */
void prep_test_point(const char *where)
{
	if (count_at_settle && strcmp(where, "settle") == 0)
		dprintf(count_fd, "%ld\n", n_allocs);
	if (++points == kill_at || (kill_where != NULL && strcmp(where, kill_where) == 0))
		raise(SIGKILL);
}

/* ------------------------------- the allocator -------------------------------
 * glibc's under its other names, so that one chosen allocation of a command can fail; a sanitizer
 * brings its own, and then that test is left out. */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_ALLOCATOR 0
#else
#define OWN_ALLOCATOR 1
#endif

static long fail_at; /* which allocation fails; 0 = none */

#if OWN_ALLOCATOR
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool fails(void)
{
	if (++n_allocs != fail_at)
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}
#endif

/* ------------------------------- a node ------------------------------- */

static char dir[] = "/tmp/ds-apply-kill-XXXXXX";
static char root[64], conf[64];

static int sh(const char *command)
{
	int rc = system(command); /* NOLINT(cert-env33-c): a test's own fixed commands */
	if (rc != 0)
		fprintf(stderr, "%s: status %d\n", command, rc);
	return rc;
}

/* Rail 0 is up with a kernel-made link-local and somebody's old addresses and routes, one of them
 * as a network manager adds it, apart from its address; rail 1 was up once. */
static int make_node(void)
{
	return sh(
		"set -e; ip link set lo up;"
		"for i in enp1s0f0np0 enP2p1s0f0np0 enP7s7; do"
		" ip link add $i type veth peer name x${i%np0};"
		" for s in accept_dad dad_transmits; do echo 0 >/proc/sys/net/ipv6/conf/$i/$s; done;"
		" ip link set x${i%np0} up; ip link set $i up; done;"
		"ip link set enP2p1s0f0np0 down;"
		"ip addr add 10.99.0.1/24 brd + dev enp1s0f0np0 label enp1s0f0np0:old;"
		"ip addr add 10.98.0.1/24 dev enp1s0f0np0 noprefixroute;"
		"ip addr add 10.99.0.2/24 dev enp1s0f0np0;"
		"ip route add 10.98.0.0/24 dev enp1s0f0np0 proto kernel src 10.98.0.1 metric 101;"
		"ip route add 10.97.0.0/16 via 10.99.0.254 src 10.99.0.2 metric 77;"
		"ip route add 10.96.0.1 dev enp1s0f0np0 proto static table 200;"
		"ip addr add 192.0.2.1/24 dev enP7s7; ip route add default via 192.0.2.2");
}

/*
 * The far ends live here too (one namespace is enough for states), and carrier goes up a moment
 * after the links do: lines about far ends and carrier are left out.
 */
static char *snapshot_by(const char *order)
{
	static const char look[] =
		"(for i in enp1s0f0np0 enP2p1s0f0np0 enP7s7; do"
		" ip -d -o link show $i | sed 's/ qdisc [a-z]*//;s/state [A-Z]*//;s/NO-CARRIER,//;s/,LOWER_UP//;s/M-DOWN//';"
		" ip -o addr show dev $i;"
		" ip route show table all dev $i | sed 's/ linkdown//' | sort;"
		" ip -6 route show table all dev $i | sed 's/ linkdown//' | sort;"
		" grep -r . /proc/sys/net/ipv4/conf/$i /proc/sys/net/ipv6/conf/$i 2>/dev/null | grep -v stable_secret | sort; done) | %s";
	char command[1024];
	snprintf(command, sizeof(command), look, order);
	struct ds_buf b = { 0 };
	char part[4096];
	FILE *f = popen(command, "re"); /* NOLINT(cert-env33-c) */
	size_t n;
	while (f != NULL && (n = fread(part, 1, sizeof(part), f)) > 0)
		ds_buf_put(&b, part, n);
	if (f != NULL)
		pclose(f);
	return ds_buf_take(&b);
}

static char *snapshot(void)
{
	return snapshot_by("cat");
}

static bool same_by(const char *order, const char *want, const char *what)
{
	char *now = snapshot_by(order);
	bool ok = now != NULL && strcmp(now, want) == 0;
	if (!ok) {
		fprintf(stderr, "%s: the state differs\n", what);
		size_t i = 0;
		while (now != NULL && now[i] != '\0' && now[i] == want[i])
			i++;
		while (now != NULL && i > 0 && now[i - 1] != '\n')
			i--;
		fprintf(stderr, "  want: %.*s\n", (int)strcspn(want + i, "\n"), want + i);
		if (now != NULL)
			fprintf(stderr, "  have: %.*s\n", (int)strcspn(now + i, "\n"), now + i);
	}
	free(now);
	return ok;
}

static bool same(const char *want, const char *what)
{
	return same_by("cat", want, what);
}

/* ------------------------------- one run ------------------------------- */

struct run {
	int at;		   /* kill at this test point, 0 = none */
	const char *where; /* or at the first of this name */
	long fail;	   /* this allocation fails, 0 = none */
	bool count;	   /* tell the number of allocations */
};

/* Runs a command in a child, as main() would. Return: exit status; -9 killed; -1 otherwise. */
static int run(const char *command, struct run r)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct prep_opts o = { .conf = conf, .root = root };
		struct ds_err err = { 0 };
		char name[16], yes[] = "--yes";
		bool apply = strcmp(command, "apply") == 0;
		char *argv[] = { name, apply ? yes : NULL, NULL };
		int null = open("/dev/null", O_RDWR | O_CLOEXEC),
		    log = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		snprintf(name, sizeof(name), "%s", command);
		dup2(null, STDIN_FILENO);
		dup2(log, STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		kill_at = r.at;
		kill_where = r.where;
		count_at_settle = r.count && apply;
		if (prep_caps_begin(&err) != 0)
			_exit(99);
		optind = 0;
		n_allocs = 0;
		fail_at = r.fail;
		int rc = apply ? cmd_apply(&o, 2, argv) : cmd_undo(&o, 1, argv);
		if (r.count && !apply)
			dprintf(count_fd, "%ld\n", n_allocs);
		_exit(rc);
	}
	int st;
	if (pid < 0 || waitpid(pid, &st, 0) != pid)
		return -1;
	return WIFEXITED(st) ? WEXITSTATUS(st) : WIFSIGNALED(st) ? -WTERMSIG(st) : -1;
}

static void show_log(void)
{
	(void)sh("sed 's/^/  | /' log >&2");
}

static bool expect(const char *command, int want)
{
	int rc = run(command, (struct run){ 0 });
	if (rc == want)
		return true;
	fprintf(stderr, "%s: exit %d, wanted %d\n", command, rc, want);
	show_log();
	return false;
}

static bool no_report(void)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/run/dsprep/host.json", root);
	if (access(path, F_OK) != 0)
		return true;
	fprintf(stderr, "host.json is still there\n");
	return false;
}

/* ------------------------------- the tests ------------------------------- */

static char *before, *after;
static int n_boundaries;

static bool test_plain(void)
{
	if (!expect("apply", 0))
		return false;
	after = snapshot();
	return after != NULL && strcmp(after, before) != 0 && expect("apply", 0) &&
	       same(after, "second apply") && expect("undo", 0) && same(before, "undo") &&
	       no_report() && expect("undo", 0);
}

/* Kill at point N, for every N until one run passes all of them; then undo, every sixth time
 * another apply (which watches for a second) and undo. */
static bool test_apply_killed(void)
{
	for (int n = 1; n < 1000; n++) {
		int rc = run("apply", (struct run){ .at = n });
		if (rc == 0) {
			n_boundaries = n - 1;
			return n > 50 && expect("undo", 0) && same(before, "undo at the end");
		}
		bool ok = rc == -SIGKILL;
		if (!ok)
			show_log();
		if (ok && n % 6 == 0)
			ok = expect("apply", 0) && same(after, "apply after a kill");
		ok = ok && expect("undo", 0) && same(before, "undo after a kill") && no_report();
		if (!ok) {
			fprintf(stderr, "killed at boundary %d\n", n);
			return false;
		}
	}
	return false;
}

/* The same for undo, of an apply that was complete but for its watch. */
static bool test_undo_killed(void)
{
	for (int n = 1; n < 1000; n++) {
		if (run("apply", (struct run){ .where = "settle" }) != -SIGKILL)
			return false;
		int rc = run("undo", (struct run){ .at = n });
		if (rc == 0)
			return n > 30 && same(before, "undo at the end");
		bool ok = rc == -SIGKILL && expect("undo", 0) && same(before, "undo after a kill");
		if (!ok || !no_report()) {
			fprintf(stderr, "undo killed at boundary %d\n", n);
			return false;
		}
	}
	return false;
}

/* A kill while a killed apply is being put back by the next one. */
static bool test_recovery_killed(void)
{
	for (int n = 1; n < 60; n += 7) {
		if (run("apply", (struct run){ .where = "settle" }) != -SIGKILL ||
		    run("apply", (struct run){ .at = n }) != -SIGKILL || !expect("undo", 0) ||
		    !same(before, "undo after two kills")) {
			fprintf(stderr, "recovery killed at boundary %d\n", n);
			return false;
		}
	}
	return true;
}

/* The file system of the journal has 0, 1 or 2 pages left: it is full at once, amid the steps, or
 * at the commit. Nothing half-applied stays. */
static bool test_full_disk(void)
{
	char command[256];
	snprintf(command, sizeof(command),
		 "mkdir -p %s/var && mount -t tmpfs -o size=64k ds %s/var", root, root);
	bool ok = sh(command) == 0;
	for (int left = 0; ok && left <= 2; left++) {
		snprintf(
			command, sizeof(command),
			"head -c 1000000 /dev/zero >%s/var/fill 2>/dev/null; truncate -s -%d %s/var/fill",
			root, left * 4096 + 1, root);
		ok = sh(command) == 0;
		int rc = run("apply", (struct run){ 0 });
		if (rc != 1)
			show_log();
		ok = ok && rc == 1 && same(before, "apply on a full disk") && no_report();
		snprintf(command, sizeof(command), "rm %s/var/fill", root);
		ok = ok && sh(command) == 0 && expect("undo", 0) && same(before, "undo afterwards");
	}
	ok = ok && expect("apply", 0) && same(after, "apply with space again") &&
	     expect("undo", 0) && same(before, "undo at the end");
	snprintf(command, sizeof(command), "umount %s/var", root);
	return sh(command) == 0 && ok;
}

/* No history: reading that of all the tests before would be most of what a command allocates. */
static bool forget(void)
{
	char command[192];
	snprintf(command, sizeof(command), "rm -rf %s/var %s/run", root, root);
	return sh(command) == 0;
}

/* How many allocations a command makes that ends well: apply up to its watch, undo in all. */
static long count_allocs(const char *command)
{
	int fd[2];
	char text[32] = "";
	if (pipe(fd) != 0)
		return -1;
	count_fd = fd[1];
	int rc = run(command, (struct run){ .count = true });
	close(fd[1]);
	ssize_t n = read(fd[0], text, sizeof(text) - 1);
	close(fd[0]);
	return rc == 0 && n > 0 ? strtol(text, NULL, 10) : -1;
}

/* One allocation fails, at a sample of places: no crash, and nothing half-applied. */
static bool test_no_memory(void)
{
	const int samples = 40;
	if (!forget())
		return false;
	long apply = count_allocs("apply"), undo = count_allocs("undo");
	if (apply < samples || undo < samples)
		return false;
	fprintf(stderr, "%ld allocations in apply, %ld in undo\n", apply, undo);
	for (int i = 0; i < samples; i++) {
		long n = 1 + i * apply / samples;
		int rc = run("apply", (struct run){ .fail = n });
		bool ok = rc == 0 || rc == 1;
		if (!ok)
			show_log();
		ok = ok && same(rc == 0 ? after : before, "apply without memory") &&
		     expect("undo", 0) && same(before, "undo after that") && no_report() &&
		     forget();
		if (!ok) {
			fprintf(stderr, "allocation %ld of apply failed, exit %d\n", n, rc);
			return false;
		}
	}
	/* A step of undo that fails is made up for by the next undo: then an address comes back
	 * behind those that were below it. */
	char *set = snapshot_by("sort");
	for (int i = 0; set != NULL && i < samples; i++) {
		long n = 1 + i * undo / samples;
		bool ok = run("apply", (struct run){ .where = "settle" }) == -SIGKILL;
		int rc = run("undo", (struct run){ .fail = n });
		ok = ok && (rc == 0 || rc == 1) && expect("undo", 0) &&
		     same_by("sort", set, "undo after undo without memory") && no_report() &&
		     forget();
		if (!ok) {
			fprintf(stderr, "allocation %ld of undo failed, exit %d\n", n, rc);
			free(set);
			return false;
		}
	}
	free(set);
	return set != NULL;
}

static bool test(bool (*fn)(void), const char *text)
{
	bool ok = fn();
	printf("%s %s\n", ok ? "ok" : "not ok", text);
	fflush(stdout);
	return ok;
}

/*
 * A network namespace, and a /sys that shows it. What is mounted on /sys must not spread: either /sys is a mount
 * to be made private, or / is; in a chroot / need not be one. Return: whether we may.
 */
static bool isolate(void)
{
	return geteuid() == 0 && unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
	       (mount("", "/sys", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ||
		mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) &&
	       mount("sysfs", "/sys", "sysfs", 0, NULL) == 0;
}

static bool write_conf(void)
{
	FILE *f = fopen(conf, "we");
	if (f == NULL)
		return false;
	fputs("[cluster]\nshape = pair\nnodes = 2\nnode = 1\nmanagement = enP7s7\n"
	      "[apply]\nsettle_s = 1\n",
	      f);
	return fclose(f) == 0 && mkdir(root, 0755) == 0;
}

int main(void)
{
	if (!isolate() || sh("ip -V >/dev/null") != 0) {
		printf("needs root that may make namespaces, and iproute2\n");
		return 77;
	}
	if (mkdtemp(dir) == NULL || chdir(dir) != 0)
		return 2;
	snprintf(root, sizeof(root), "%s/root", dir);
	snprintf(conf, sizeof(conf), "%s/dsprep.conf", dir);
	bool ok = write_conf() && make_node() == 0 && (before = snapshot()) != NULL;
	ok = ok && test(test_plain, "apply, apply again, undo, undo again");
	ok = ok && test(test_apply_killed, "apply killed at every boundary, then undo or apply");
	ok = ok && test(test_undo_killed, "undo killed at every boundary, then undo");
	ok = ok && test(test_recovery_killed, "killed again while a killed apply is put back");
	ok = ok && test(test_full_disk, "a full disk: nothing half-applied stays");
	if (OWN_ALLOCATOR)
		ok = ok && test(test_no_memory, "an allocation fails: nothing half-applied stays");
	fprintf(stderr, "%d boundaries in one apply\n", n_boundaries);
	char command[128];
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (chdir("/") != 0 || sh(command) != 0)
		ok = false;
	free(before);
	free(after);
	return ok ? 0 : 1;
}
