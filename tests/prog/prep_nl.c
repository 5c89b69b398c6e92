/*
 * prep_nl.c - the rtnetlink socket against the real kernel, in a network namespace of its own: the
 * kernel's words arrive in the error object, from refused changes and refused dumps alike; a namespace
 * is told from the first one; what is observed is what was made.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/msg.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "access.h"
#include "host.h"
#include "nl.h"

static int bad;

static void report(bool fine, const char *name, const struct ds_err *err)
{
	printf("%s %s\n", fine ? "ok" : "not ok", name);
	if (!fine && err != NULL)
		printf("   %s on %s: %s\n", err->what, err->obj, err->why);
	bad |= !fine;
}

static int count(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	(void)err;
	*(int *)arg += n->nlmsg_type == RTM_NEWLINK;
	return 0;
}

static int refuse_all(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	(void)n;
	++*(int *)arg;
	return ds_err_set(err, DS_ERR_BUG, 0, "test", "stop");
}

static void dumps(struct prep_nl *nl)
{
	struct ds_err err = { 0 };
	struct ifinfomsg ask = { .ifi_family = AF_UNSPEC }, wrong = { .ifi_change = 1 };
	int n = 0;
	int rc = prep_nl_dump(nl, RTM_GETLINK, &ask, sizeof(ask), NULL, count, &n, &err);
	report(rc == 0 && n >= 1, "a dump of links", &err);
	n = 0;
	rc = prep_nl_dump(nl, RTM_GETLINK, &ask, sizeof(ask), NULL, refuse_all, &n, &err);
	report(rc == -1 && n == 1 && err.kind == DS_ERR_BUG, "a callback's error ends a dump once",
	       &err);
	rc = prep_nl_dump(nl, RTM_GETLINK, &wrong, sizeof(wrong), NULL, count, &n, &err);
	report(rc == -1 && err.sys == EINVAL && strstr(err.why, "(kernel: Invalid") != NULL,
	       "a refused dump has the kernel's words", &err);
	n = 0;
	rc = prep_nl_dump(nl, RTM_GETLINK, &ask, sizeof(ask), NULL, count, &n, &err);
	report(rc == 0 && n >= 1, "and the next dump works", &err);
}

/* A route to 10.0.0.1/24, whose host bit the kernel refuses; /32 it takes. */
static int add_route(struct prep_nl *nl, unsigned char len, struct ds_err *err)
{
	struct rtmsg rtm = { .rtm_family = AF_INET,
			     .rtm_dst_len = len,
			     .rtm_table = RT_TABLE_MAIN,
			     .rtm_protocol = RTPROT_STATIC,
			     .rtm_scope = RT_SCOPE_LINK,
			     .rtm_type = RTN_UNICAST };
	uint32_t dst = htonl(0x0a000001), oif = 1;
	struct nl_msg *m = nlmsg_alloc_simple(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
	if (m == NULL || nlmsg_append(m, &rtm, sizeof(rtm), NLMSG_ALIGNTO) < 0 ||
	    nla_put(m, RTA_DST, sizeof(dst), &dst) < 0 ||
	    nla_put(m, RTA_OIF, sizeof(oif), &oif) < 0)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "test", "make a message");
	int rc = prep_nl_change(nl, m, "lo", "add a route", err);
	nlmsg_free(m);
	return rc;
}

static int up_lo(struct prep_nl *nl, struct ds_err *err)
{
	struct ifinfomsg ifi = { .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	struct nl_msg *m = nlmsg_alloc_simple(RTM_NEWLINK, 0);
	if (m == NULL || nlmsg_append(m, &ifi, sizeof(ifi), NLMSG_ALIGNTO) < 0)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "test", "make a message");
	int rc = prep_nl_change(nl, m, "lo", "bring up", err);
	nlmsg_free(m);
	return rc;
}

static void changes(struct prep_nl *nl)
{
	struct ds_err err = { 0 };
	report(up_lo(nl, &err) == 0, "a change that the kernel takes", &err);
	int rc = add_route(nl, 24, &err);
	report(rc == -1 && err.sys == EINVAL && err.kind == DS_ERR_HOST &&
		       strcmp(err.obj, "lo") == 0 &&
		       strstr(err.why, "(kernel: Invalid prefix") != NULL,
	       "a refused change has the kernel's words", &err);
	report(add_route(nl, 32, &err) == 0, "and the next change works", &err);
	rc = add_route(nl, 32, &err);
	report(rc == -1 && err.sys == EEXIST, "what exists is told by its errno", &err);
}

static void observed(void)
{
	struct prep_host h;
	struct ds_err err = { 0 };
	struct prep_access *a = prep_access_live(NULL, &err);
	if (a == NULL || prep_host_read(a, &h, &err) != 0) {
		report(false, "observe the namespace", &err);
		return;
	}
	const struct prep_link *lo = prep_host_link(&h, "lo");
	report(lo != NULL && lo->ifindex == 1 && (lo->flags & IFF_UP) && lo->carrier == 1 &&
		       lo->identified == PREP_ID_NONE,
	       "lo is observed as it is", NULL);
	bool route = false;
	for (uint32_t i = 0; i < h.n_route; i++)
		route |= h.route[i].dst_len == 32 && ntohl(h.route[i].dst.s_addr) == 0x0a000001 &&
			 h.route[i].oif == 1 && h.route[i].table == RT_TABLE_MAIN;
	report(route, "the route too", NULL);
	report(!h.initial_netns, "a new namespace is not the first one", NULL);
	report(h.netns != 0 && h.boot_id[0] != '\0', "namespace and boot have their numbers", NULL);
	prep_host_fini(&h);
	prep_access_close(a);
}

int main(void)
{
	struct prep_nl nl = { 0 };
	struct ds_err err = { 0 };
	if (unshare(CLONE_NEWNET) != 0) {
		printf("skip rtnetlink against the kernel: no network namespace here, %s\n",
		       strerror(errno));
		return 77;
	}
	if (prep_nl_open(&nl, &err) != 0) {
		report(false, "open", &err);
		return 1;
	}
	dumps(&nl);
	changes(&nl);
	prep_nl_close(&nl);
	prep_nl_close(&nl);
	report(nl.sk == NULL, "closing twice is fine", NULL);
	observed();
	/* Without power the kernel says EPERM, which is a matter of privilege. */
	if (prep_nl_open(&nl, &err) == 0 && setresuid(65534, 65534, 65534) == 0) {
		int rc = add_route(&nl, 32, &err);
		report(rc == -1 && err.kind == DS_ERR_PERM && err.sys == EPERM,
		       "without privilege it is a matter of privilege", &err);
	}
	prep_nl_close(&nl);
	return bad;
}
