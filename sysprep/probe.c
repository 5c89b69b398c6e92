/*
 * probe.c - observes the host: rtnetlink for links, addresses and routes, /proc/sys for the
 * interfaces' sysctls, sysfs for PCI and RDMA facts. It changes nothing and decides nothing.
 *
 * Everything about an interface comes from rtnetlink, not from /sys/class/net: a sysfs mount shows
 * the network namespace it was made in, which need not be the one this process is in.
 */
#include "host.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "nl.h"

#define FABRIC_VENDOR "0x15b3"
#define FABRIC_DEVICE "0x1021"

struct probe {
	struct prep_access *access;
	struct prep_host *host;
	uint32_t cap_link, cap_addr, cap_route;
	uint8_t route_family;
	uint32_t first_route; /* of this dump; the one before stays */
};

/*
 * Room for one more element of an array that grows; zeroed. @array: address of the array's pointer,
 * copied in and out because its type differs from call to call.
 */
static void *grow(void *array, uint32_t *n, uint32_t *cap, size_t size, uint32_t max,
		  const char *what, struct ds_err *err)
{
	char *base;
	memcpy(&base, array, sizeof(base));
	if (*n == max) {
		ds_err_set(err, DS_ERR_HOST, E2BIG, what, "observe the network");
		ds_err_why(err, "more than %u", max);
		return NULL;
	}
	if (*n == *cap) {
		uint32_t more = *cap == 0 ? 16 : *cap * 2;
		base = realloc(base, more * size);
		if (base == NULL) {
			ds_err_set(err, DS_ERR_NOMEM, ENOMEM, what, "observe the network");
			return NULL;
		}
		memcpy(array, &base, sizeof(base));
		*cap = more;
	}
	char *slot = base + (size_t)*n * size;
	memset(slot, 0, size);
	++*n;
	return slot;
}

/* ----------------------------- PCI ----------------------------- */

static bool is_fabric_function(struct prep_access *a, const char *bdf)
{
	char path[128], vendor[16], device[16];
	/* The name comes from the kernel, but it becomes a path: hold it to its alphabet. */
	if (bdf[strspn(bdf, "0123456789abcdefABCDEF:.")] != '\0' || bdf[0] == '.')
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", bdf);
	if (prep_read_line(a, path, vendor, sizeof(vendor)) != 0 ||
	    strcmp(vendor, FABRIC_VENDOR) != 0)
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/device", bdf);
	return prep_read_line(a, path, device, sizeof(device)) == 0 &&
	       strcmp(device, FABRIC_DEVICE) == 0;
}

static int count_function(const char *name, void *arg)
{
	struct probe *p = arg;
	if (is_fabric_function(p->access, name))
		p->host->n_function++;
	return 0;
}

static int keep_first(const char *name, void *arg)
{
	struct prep_link *l = arg;
	if (l->ibdev[0] == '\0')
		snprintf(l->ibdev, sizeof(l->ibdev), "%s", name);
	return 0;
}

static void read_ibdev(struct prep_access *a, struct prep_link *l)
{
	char path[128];
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/infiniband", l->pci);
	/* Not there means no RDMA driver on it: the empty name says so. */
	(void)prep_list(a, path, keep_first, l);
}

/* ----------------------------- links ----------------------------- */

static void copy_str(char *dst, size_t size, const struct nlattr *a)
{
	if (a != NULL)
		nla_strlcpy(dst, a, size);
}

static uint32_t get_u32(const struct nlattr *a)
{
	return a != NULL ? nla_get_u32(a) : 0;
}

static void reset_links(void *arg)
{
	((struct probe *)arg)->host->n_link = 0;
}

static struct nla_policy link_policy[IFLA_MAX + 1] = {
	[IFLA_IFNAME] = { .type = NLA_STRING, .maxlen = IFNAMSIZ },
	[IFLA_MTU] = { .type = NLA_U32 },
	[IFLA_MIN_MTU] = { .type = NLA_U32 },
	[IFLA_MAX_MTU] = { .type = NLA_U32 },
	[IFLA_MASTER] = { .type = NLA_U32 },
	[IFLA_LINK] = { .type = NLA_U32 },
	[IFLA_CARRIER] = { .type = NLA_U8 },
	[IFLA_LINKINFO] = { .type = NLA_NESTED },
	[IFLA_PHYS_PORT_NAME] = { .type = NLA_STRING },
	[IFLA_PARENT_DEV_NAME] = { .type = NLA_STRING },
	[IFLA_PARENT_DEV_BUS_NAME] = { .type = NLA_STRING },
};

static int take_link(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	struct probe *p = arg;
	struct nlattr *tb[IFLA_MAX + 1];
	if (n->nlmsg_type != RTM_NEWLINK)
		return 0;
	struct ifinfomsg ifi;
	if (nlmsg_parse((struct nlmsghdr *)n, sizeof(ifi), tb, IFLA_MAX, link_policy) < 0 ||
	    tb[IFLA_IFNAME] == NULL) {
		ds_err_set(err, DS_ERR_HOST, EBADMSG, "rtnetlink", "read a link");
		return -1;
	}
	memcpy(&ifi, NLMSG_DATA(n), sizeof(ifi));
	struct prep_host *h = p->host;
	struct prep_link *l =
		grow(&h->link, &h->n_link, &p->cap_link, sizeof(*l), PREP_LINKS_MAX, "links", err);
	if (l == NULL)
		return -1;
	l->ifindex = ifi.ifi_index;
	l->flags = ifi.ifi_flags;
	copy_str(l->name, sizeof(l->name), tb[IFLA_IFNAME]);
	l->mtu = get_u32(tb[IFLA_MTU]);
	l->min_mtu = get_u32(tb[IFLA_MIN_MTU]);
	l->max_mtu = get_u32(tb[IFLA_MAX_MTU]);
	l->master = (int)get_u32(tb[IFLA_MASTER]);
	struct nlattr *info[IFLA_INFO_MAX + 1];
	if (tb[IFLA_LINKINFO] != NULL &&
	    nla_parse_nested(info, IFLA_INFO_MAX, tb[IFLA_LINKINFO], NULL) == 0)
		copy_str(l->kind, sizeof(l->kind), info[IFLA_INFO_KIND]);
	/* A veth's "link" is its peer, and an index of another namespace means nothing here. */
	if (strcmp(l->kind, "veth") != 0 && tb[IFLA_LINK_NETNSID] == NULL)
		l->lower = (int)get_u32(tb[IFLA_LINK]);
	if (l->lower == l->ifindex)
		l->lower = 0;
	l->carrier = -1;
	/* A link that is down reports "no carrier" whatever hangs on it. */
	if ((l->flags & IFF_UP) && tb[IFLA_CARRIER] != NULL)
		l->carrier = nla_get_u8(tb[IFLA_CARRIER]) != 0;
	copy_str(l->port_name, sizeof(l->port_name), tb[IFLA_PHYS_PORT_NAME]);
	if (tb[IFLA_PARENT_DEV_BUS_NAME] != NULL &&
	    nla_strcmp(tb[IFLA_PARENT_DEV_BUS_NAME], "pci") == 0)
		copy_str(l->pci, sizeof(l->pci), tb[IFLA_PARENT_DEV_NAME]);
	for (int i = 0; i < PREP_SC_N; i++)
		l->sysctl[i] = -1;
	return 0;
}

/* ----------------------------- addresses ----------------------------- */

static void reset_addrs(void *arg)
{
	((struct probe *)arg)->host->n_addr = 0;
}

static int take_addr(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	struct probe *p = arg;
	struct prep_host *h = p->host;
	struct nlattr *tb[IFA_MAX + 1];
	struct ifaddrmsg ifa;
	if (n->nlmsg_type != RTM_NEWADDR)
		return 0;
	if (nlmsg_parse((struct nlmsghdr *)n, sizeof(ifa), tb, IFA_MAX, NULL) < 0)
		return ds_err_set(err, DS_ERR_HOST, EBADMSG, "rtnetlink", "read an address");
	memcpy(&ifa, NLMSG_DATA(n), sizeof(ifa));
	const struct nlattr *local = tb[IFA_LOCAL] != NULL ? tb[IFA_LOCAL] : tb[IFA_ADDRESS];
	int len = ifa.ifa_family == AF_INET ? 4 : ifa.ifa_family == AF_INET6 ? 16 : -1;
	if (local == NULL || nla_len(local) != len)
		return 0; /* not an address of the families we know */
	struct prep_addr *a = grow(&h->addr, &h->n_addr, &p->cap_addr, sizeof(*a), PREP_ADDRS_MAX,
				   "addresses", err);
	if (a == NULL)
		return -1;
	a->ifindex = (int)ifa.ifa_index;
	a->family = ifa.ifa_family;
	a->prefix = ifa.ifa_prefixlen;
	a->scope = ifa.ifa_scope;
	a->flags = ifa.ifa_flags;
	if (tb[IFA_FLAGS] != NULL && nla_len(tb[IFA_FLAGS]) == 4)
		a->flags = nla_get_u32(tb[IFA_FLAGS]);
	if (tb[IFA_PROTO] != NULL && nla_len(tb[IFA_PROTO]) >= 1)
		a->proto = nla_get_u8(tb[IFA_PROTO]);
	memcpy(&a->local, nla_data(local), (size_t)len);
	return 0;
}

/* ----------------------------- routes ----------------------------- */

static void reset_routes(void *arg)
{
	struct probe *p = arg;
	p->host->n_route = p->first_route;
}

static struct in_addr get_v4(const struct nlattr *a)
{
	struct in_addr in = { 0 };
	if (a != NULL && nla_len(a) == 4)
		memcpy(&in, nla_data(a), 4);
	return in;
}

static int first_hop(const struct nlattr *multipath)
{
	struct rtnexthop hop;
	if (multipath == NULL || nla_len(multipath) < (int)sizeof(hop))
		return 0;
	memcpy(&hop, nla_data(multipath), sizeof(hop));
	return hop.rtnh_ifindex;
}

static int take_route(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	struct probe *p = arg;
	struct prep_host *h = p->host;
	struct nlattr *tb[RTA_MAX + 1];
	struct rtmsg rtm;
	if (n->nlmsg_type != RTM_NEWROUTE)
		return 0;
	if (nlmsg_parse((struct nlmsghdr *)n, sizeof(rtm), tb, RTA_MAX, NULL) < 0)
		return ds_err_set(err, DS_ERR_HOST, EBADMSG, "rtnetlink", "read a route");
	memcpy(&rtm, NLMSG_DATA(n), sizeof(rtm));
	uint32_t table = rtm.rtm_table;
	if (tb[RTA_TABLE] != NULL && nla_len(tb[RTA_TABLE]) == 4)
		table = nla_get_u32(tb[RTA_TABLE]);
	bool keep = rtm.rtm_type == RTN_UNICAST && table != RT_TABLE_LOCAL &&
		    !(rtm.rtm_flags & RTM_F_CLONED) && rtm.rtm_family == p->route_family &&
		    (rtm.rtm_family == AF_INET || rtm.rtm_dst_len == 0);
	if (!keep)
		return 0;
	struct prep_route *r = grow(&h->route, &h->n_route, &p->cap_route, sizeof(*r),
				    PREP_ROUTES_MAX, "routes", err);
	if (r == NULL)
		return -1;
	r->table = table;
	r->family = rtm.rtm_family;
	r->dst_len = rtm.rtm_dst_len;
	r->scope = rtm.rtm_scope;
	r->protocol = rtm.rtm_protocol;
	r->type = rtm.rtm_type;
	r->oif = tb[RTA_OIF] != NULL && nla_len(tb[RTA_OIF]) == 4 ? (int)nla_get_u32(tb[RTA_OIF])
								  : first_hop(tb[RTA_MULTIPATH]);
	r->dst = get_v4(tb[RTA_DST]);
	r->gateway = get_v4(tb[RTA_GATEWAY]);
	r->prefsrc = get_v4(tb[RTA_PREFSRC]);
	if (tb[RTA_PRIORITY] != NULL && nla_len(tb[RTA_PRIORITY]) == 4)
		r->metric = nla_get_u32(tb[RTA_PRIORITY]);
	return 0;
}

static int read_routes(struct prep_nl *nl, struct probe *p, uint8_t family, struct ds_err *err)
{
	struct rtmsg ask = { .rtm_family = family };
	p->route_family = family;
	p->first_route = p->host->n_route;
	return prep_nl_dump(nl, RTM_GETROUTE, &ask, sizeof(ask), reset_routes, take_route, p, err);
}

static int read_netlink(struct probe *p, struct ds_err *err)
{
	struct prep_nl nl;
	struct ifinfomsg links = { .ifi_family = AF_UNSPEC };
	struct ifaddrmsg addrs = { .ifa_family = AF_UNSPEC };
	if (prep_nl_open(&nl, err) != 0)
		return -1;
	int rc = prep_nl_dump(&nl, RTM_GETLINK, &links, sizeof(links), reset_links, take_link, p,
			      err);
	if (rc == 0)
		rc = prep_nl_dump(&nl, RTM_GETADDR, &addrs, sizeof(addrs), reset_addrs, take_addr,
				  p, err);
	if (rc == 0)
		rc = read_routes(&nl, p, AF_INET, err);
	if (rc == 0)
		rc = read_routes(&nl, p, AF_INET6, err);
	prep_nl_close(&nl);
	p->host->have_netlink = rc == 0;
	return rc;
}

/* ----------------------------- the rest ----------------------------- */

static void read_sysctls(struct prep_access *a, struct prep_link *l)
{
	for (int i = 0; i < PREP_SC_N; i++) {
		char path[128], text[32], *end;
		snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", prep_sysctls[i].family,
			 l->name, prep_sysctls[i].key);
		if (prep_read_line(a, path, text, sizeof(text)) != 0)
			continue; /* IPv6 may be off: stays -1 */
		errno = 0;
		long v = strtol(text, &end, 10);
		if (end != text && *end == '\0' && errno == 0 && v >= 0 && v <= INT32_MAX)
			l->sysctl[i] = (int)v;
	}
}

static void read_node(struct prep_access *a, struct prep_host *h)
{
	char target[64];
	(void)prep_read_line(a, "/proc/sys/kernel/hostname", h->node, sizeof(h->node));
	(void)prep_read_line(a, "/proc/sys/kernel/random/boot_id", h->boot_id, sizeof(h->boot_id));
	if (prep_link_target(a, "/proc/self/ns/net", target, sizeof(target)) == 0 &&
	    strncmp(target, "net:[", 5) == 0)
		h->netns = strtoull(target + 5, NULL, 10);
	/* The kernel registers this table in its first network namespace only (net_core_table of
	 * net/core/sysctl_net_core.c), and anybody may look; /proc/1/ns needs privilege, and in a
	 * container is some other namespace. */
	h->initial_netns =
		prep_read_line(a, "/proc/sys/net/core/netdev_budget", target, sizeof(target)) == 0;
}

int prep_host_read(struct prep_access *a, struct prep_host *h, struct ds_err *err)
{
	*h = (struct prep_host){ 0 };
	struct probe p = { .access = a, .host = h };
	read_node(a, h);
	if (read_netlink(&p, err) != 0) {
		prep_host_fini(h);
		return -1;
	}
	/* No PCI bus at all (a virtual machine, a container) is no function. */
	(void)prep_list(a, "/sys/bus/pci/devices", count_function, &p);
	for (uint32_t i = 0; i < h->n_link; i++) {
		struct prep_link *l = &h->link[i];
		if (l->pci[0] != '\0' && !is_fabric_function(a, l->pci))
			l->pci[0] = '\0';
		if (l->pci[0] != '\0')
			read_ibdev(a, l);
	}
	prep_host_identify(h);
	for (uint32_t i = 0; i < h->n_link; i++)
		if (h->link[i].identified != PREP_ID_NONE)
			read_sysctls(a, &h->link[i]);
	int rc = prep_access_short(a);
	if (rc == 0)
		return 0;
	/* A function that could not be looked at must not pass for none. */
	prep_host_fini(h);
	return ds_err_set(err, rc == ENOMEM ? DS_ERR_NOMEM : DS_ERR_HOST, rc, NULL,
			  "observe this host");
}
