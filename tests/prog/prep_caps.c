/*
 * prep_caps.c - test program: what power dsprep has, and when. Each part runs in a child with a
 * network namespace of its own, where setting the loopback up is the privileged call.
 *
 * Needs root with CAP_SYS_ADMIN (for the namespace); exits 77 otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/msg.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/wait.h>
#include <unistd.h>

#include "caps.h"
#include "nl.h"

/* A line of /proc/self/status: "CapEff:\t..." Return: its value as a hexadecimal number. */
static unsigned long long status_of(const char *key)
{
	char line[256];
	unsigned long long v = ~0ULL;
	FILE *f = fopen("/proc/self/status", "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
			v = strtoull(line + strlen(key) + 1, NULL, 16);
	if (f != NULL)
		fclose(f);
	return v;
}

/* The privileged call, on a socket of its own. Return: 0, or the kernel's errno. */
static int set_loopback_up(void)
{
	struct prep_nl nl;
	struct ds_err err = { 0 };
	struct ifinfomsg i = { .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	if (prep_nl_open(&nl, &err) != 0)
		return EIO;
	struct nl_msg *msg = nlmsg_alloc_simple(RTM_NEWLINK, 0);
	int rc = EIO;
	if (msg != NULL && nlmsg_append(msg, &i, sizeof(i), NLMSG_ALIGNTO) == 0)
		rc = prep_nl_change(&nl, msg, "lo", "set link up", &err) == 0 ? 0 : err.sys;
	nlmsg_free(msg);
	prep_nl_close(&nl);
	return rc;
}

#define NEED(x)                                                         \
	do {                                                            \
		if (!(x)) {                                             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #x); \
			return 1;                                       \
		}                                                       \
	} while (0)

static int part_begin(void)
{
	struct ds_err err = { 0 };
	NEED(prep_caps_begin(&err) == 0);
	NEED(status_of("CapEff") == 0);
	NEED(status_of("NoNewPrivs") == 1);
	NEED(set_loopback_up() == EPERM);
	NEED(prep_caps_need_root("apply", &err) == 0);
	return 0;
}

static int part_raise(void)
{
	struct ds_err err = { 0 };
	NEED(prep_caps_begin(&err) == 0);
	NEED(prep_caps_raise(CAP_NET_ADMIN, &err) == 0);
	NEED(status_of("CapEff") == 1ULL << CAP_NET_ADMIN);
	NEED(set_loopback_up() == 0);
	prep_caps_lower();
	NEED(status_of("CapEff") == 0);
	NEED(set_loopback_up() == EPERM);
	NEED(prep_caps_raise(PREP_CAP_NONE, &err) == 0);
	NEED(status_of("CapEff") == 0);
	return 0;
}

static int part_drop(void)
{
	struct ds_err err = { 0 };
	NEED(prep_caps_begin(&err) == 0);
	NEED(prep_caps_drop(&err) == 0);
	NEED(status_of("CapEff") == 0 && status_of("CapPrm") == 0 && status_of("CapInh") == 0);
	NEED(status_of("CapBnd") == 0 && status_of("CapAmb") == 0);
	NEED(prep_caps_raise(CAP_NET_ADMIN, &err) == -1);
	NEED(err.kind == DS_ERR_PERM && strcmp(err.obj, "cap_net_admin") == 0);
	NEED(set_loopback_up() == EPERM);
	NEED(prep_caps_need_root("apply", &err) == -1 && err.kind == DS_ERR_PERM);
	return 0;
}

/* uid 0 gets capabilities back on exec, unless somebody saw to it. */
static int part_exec(void)
{
	struct ds_err err = { 0 };
	NEED(prep_caps_begin(&err) == 0);
	NEED(prep_caps_drop(&err) == 0);
	execl("/proc/self/exe", "prep_caps", "status", (char *)NULL);
	return 1;
}

static int part_user(void)
{
	struct ds_err err = { 0 };
	NEED(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	NEED(prep_caps_begin(&err) == 0);
	NEED(prep_caps_need_root("apply", &err) == -1);
	NEED(err.kind == DS_ERR_PERM && strstr(err.fix, "sudo dsprep apply") != NULL);
	NEED(ds_err_exit_code(&err) == 77);
	return 0;
}

/* Runs one part in a child. */
static bool part(int (*fn)(void), const char *text)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWNET) != 0 ? 2 : fn());
	int st = -1;
	bool ok = pid > 0 && waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0;
	printf("%s %s\n", ok ? "ok" : "not ok", text);
	fflush(stdout);
	return ok;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "status") == 0)
		return status_of("CapEff") == 0 && status_of("CapPrm") == 0 ? 0 : 1;
	pid_t pid = fork();
	if (pid == 0)
		_exit(geteuid() == 0 && unshare(CLONE_NEWNET) == 0 ? 0 : 1);
	int st = -1;
	if (pid < 0 || waitpid(pid, &st, 0) != pid || st != 0) {
		printf("needs root that may make a network namespace\n");
		return 77;
	}
	bool ok = part(part_begin, "reading and planning have an empty effective set");
	ok &= part(part_raise, "one capability is raised, works, and is gone again");
	ok &= part(part_drop, "a drop is for good: every set is empty, the privileged call fails");
	ok &= part(part_exec, "nothing comes back through exec");
	ok &= part(part_user, "without root it is refused, naming what to do");
	return ok ? 0 : 1;
}
