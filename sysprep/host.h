/*
 * host.h - the observed host: what sysfs, procfs and rtnetlink said, as plain structs.
 *
 * Filled by probe.c through the one accessor (access.h), so that live and recorded hosts look
 * the same. Unknown is not zero: each optional fact has a `have` bit or a -1.
 */
#ifndef PREP_HOST_H
#define PREP_HOST_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"

#define PREP_LINKS_MAX \
	4096 /* what a host full of containers may have, and no more memory than that */
#define PREP_ADDRS_MAX	16384
#define PREP_ROUTES_MAX 65536

/* Per-interface sysctls that we set (design.md 3.4). */
enum prep_sysctl {
	PREP_SC_ARP_IGNORE,    /* ipv4, 1 */
	PREP_SC_ARP_ANNOUNCE,  /* ipv4, 2 */
	PREP_SC_RP_FILTER,     /* ipv4, 2 */
	PREP_SC_ARP_FILTER,    /* ipv4, 0 */
	PREP_SC_ADDR_GEN_MODE, /* ipv6, 1 */
	PREP_SC_ACCEPT_RA,     /* ipv6, 0 */
	PREP_SC_N,
};
extern const struct prep_sysctl_row {
	const char *family, *key; /* "ipv4", "arp_ignore": /proc/sys/net/FAMILY/conf/IF/KEY */
	int want;
} prep_sysctls[PREP_SC_N];

enum prep_identified {
	PREP_ID_NONE,
	PREP_ID_PCI,
	PREP_ID_NAME
};

struct prep_link {
	int ifindex;
	char name[IFNAMSIZ];
	char kind[16];	/* "veth", "" = hardware */
	uint32_t flags; /* IFF_* */
	int carrier;	/* 1, 0, -1 = cannot be read (administratively down) */
	int master;	/* ifindex of the bridge or bond it belongs to; 0 = none */
	int lower;	/* ifindex of the link it is made on (VLAN, macvlan); 0 = none */
	uint32_t mtu, min_mtu, max_mtu; /* 0 = unknown */
	int sysctl[PREP_SC_N];		/* value; -1 = unknown or not there */
	/* Fabric facts; rail -1 = not a rail */
	enum prep_identified identified;
	int rail, cage;
	char pci[24], ibdev[64]; /* "" = none or unknown */
	char port_name[16];	 /* phys_port_name */
};

struct prep_addr {
	int ifindex;
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t prefix;
	uint8_t scope;
	uint32_t flags; /* IFA_F_* */
	uint8_t proto;	/* IFA_PROTO, 0 = unknown */
	union {
		struct in_addr v4;
		struct in6_addr v6;
	} local;
};

/* Unicast routes outside the local table; of IPv6 the default routes only. */
struct prep_route {
	uint32_t table;
	uint8_t family, dst_len, scope, protocol, type;
	int oif;			      /* 0 = none; of a multipath route the first hop's */
	struct in_addr dst, gateway, prefsrc; /* IPv4 only; zero = none */
	uint32_t metric;
};

struct prep_host {
	char node[64]; /* label: host name, or the capture's */
	char boot_id[40];
	uint64_t netns;	    /* inode of the network namespace; 0 = unknown */
	bool initial_netns; /* the host's first network namespace */
	bool have_netlink;
	uint32_t n_function; /* fabric functions on the PCI bus, in whatever namespace */
	uint32_t n_link, n_addr, n_route;
	struct prep_link *link; /* owned: prep_host_fini() */
	struct prep_addr *addr;
	struct prep_route *route;
};

struct prep_access;
/** prep_host_read() - observe through @a. Return: 0; -1 DS_ERR_HOST, @h then empty. */
int prep_host_read(struct prep_access *a, struct prep_host *h, struct ds_err *err);
void prep_host_fini(struct prep_host *h);

const struct prep_link *prep_host_link(const struct prep_host *h, const char *name);
const struct prep_link *prep_host_ifindex(const struct prep_host *h, int ifindex);
/** prep_host_rail() - the function of (cage, rail); NULL = not there. */
const struct prep_link *prep_host_rail(const struct prep_host *h, int cage, int rail);

/** prep_host_default_link() - the interface of the best default route, IPv4 first; NULL = none. */
const struct prep_link *prep_host_default_link(const struct prep_host *h);
/**
 * prep_host_identify() - fill the fabric facts of every link (design.md 3.1 "Which interfaces are
 * rails") from what is in @h already: links' `pci` where it is a fabric function, names, n_function
 * and initial_netns. Pure; prep_host_read() calls it, and tests do.
 */
void prep_host_identify(struct prep_host *h);

#endif
