/*
 * plan.h - from (config, observed host) to a list of operations: a pure function, no I/O.
 *
 * The plan that is shown is the plan that runs. Its operations are rows of the closed table in
 * ops.h; each holds what it needs to act, to verify and to undo.
 *
 * A rail ends with exactly one IPv4 address: any other one there is removed by an operation that
 * the plan shows, so that nothing shares the GID table with ours, and undo brings it back. IPv6
 * addresses stay, but for the link-local one that the kernel made. A rail that carries a default
 * route, or belongs to a bridge or bond, is refused instead.
 */
#ifndef PREP_PLAN_H
#define PREP_PLAN_H

#include "conf.h"
#include "host.h"

/* Kinds are written to journals: numbered, never reused. */
enum prep_op_kind {
	PREP_OP_LINK_UP = 1,	 /* set IFF_UP */
	PREP_OP_LINK_MTU = 2,	 /* value: bytes */
	PREP_OP_ADDR_ADD = 3,	 /* addr/prefix on the interface, IPv4 */
	PREP_OP_ADDR_DEL = 4,	 /* remove addr/prefix, IPv4 or a kernel-made IPv6 link-local */
	PREP_OP_SYSCTL = 5,	 /* sysctl key, value */
	PREP_OP_HOST_REPORT = 6, /* write /run/dsprep/host.json */
};

#define PREP_OP_ROUTES_MAX 16

/* An IPv4 route that goes with an address and is restored with it. */
struct prep_op_route {
	uint32_t table, metric;
	bool onlink;
	uint8_t dst_len, scope, protocol, tos;
	struct in_addr dst, gateway, prefsrc; /* zero = none */
};

struct prep_op {
	enum prep_op_kind kind;
	char ifname[IFNAMSIZ]; /* "" for the host report */
	int ifindex;	       /* as observed; re-resolved before acting */
	int sysctl;	       /* enum prep_sysctl */
	int64_t value, old;    /* new and observed value: MTU, sysctl, link flag */
	uint8_t family, prefix;
	struct in6_addr addr; /* IPv4 in the first four bytes */
	uint32_t addr_flags;  /* IFA_F_* of an address to restore on undo */
	uint8_t addr_scope;
	/* The rest of an address to restore; ops.c looks it up just before removing. */
	uint8_t addr_proto;		    /* IFA_PROTO */
	uint32_t addr_metric;		    /* IFA_RT_PRIORITY, 0 = default */
	uint32_t addr_lft[2];		    /* seconds preferred and valid; UINT32_MAX = for ever */
	struct in_addr addr_peer, addr_brd; /* IPv4; zero = none */
	char addr_label[IFNAMSIZ];	    /* IPv4; "" = the interface's name */
	int n_route;
	struct prep_op_route route[PREP_OP_ROUTES_MAX];
};

/* One rail of this node as it should be. */
struct prep_rail {
	int rail, cage;
	char edge[16]; /* "1-2"; a switch: "switch" */
	char ifname[IFNAMSIZ];
	struct in_addr addr; /* this node's */
	uint8_t prefix;	     /* 24 */
	int n_peer;
	struct {
		int node;
		struct in_addr addr;
	} peer[PREP_NODES_MAX];
};

#define PREP_RAILS_MAX 8
#define PREP_OPS_MAX   512

struct prep_plan {
	int n_rail;
	struct prep_rail rail[PREP_RAILS_MAX];
	int n_op;
	struct prep_op *op; /* owned: prep_plan_fini(); in the order they run */
	char management[IFNAMSIZ];
	bool changes_network; /* any operation but the host report */
};

/**
 * prep_plan_make() - @c, @h borrowed.
 * Deterministic: same inputs, same bytes. An empty plan (n_op 0) means nothing to do.
 * @report_current: whether host.json already says what this plan would write (or need not exist)
 * Return: 0; -1 DS_ERR_USAGE for a conflict between config and host (overlapping subnet, unknown
 * interface, ambiguous cage) naming file and line and the line to write.
 */
int prep_plan_make(const struct prep_conf *c, const struct prep_host *h, bool report_current,
		   struct prep_plan *p, struct ds_err *err);
void prep_plan_fini(struct prep_plan *p);

/** prep_plan_print() - the diff for people: one line per operation, observed -> wanted. */
void prep_plan_print(const struct prep_plan *p, const struct prep_host *h, bool color,
		     struct ds_buf *out);
/** prep_plan_json() - {"format":1,"rails":[...],"operations":[...]}. */
void prep_plan_json(const struct prep_plan *p, const struct prep_host *h, struct ds_buf *out);

/** prep_nets_overlap() - whether two IPv4 networks, given as any address and a length, share one. */
bool prep_nets_overlap(struct in_addr a, unsigned int a_len, struct in_addr b, unsigned int b_len);

/** prep_conf_overlaps() - whether a network shares an address with any /24 that @c's shape needs. */
bool prep_conf_overlaps(const struct prep_conf *c, struct in_addr net, unsigned int len);

/** prep_op_text() - "set mtu 9000 on enp1s0f0np0 (was 1500)" into @buf. Return: @buf. */
char *prep_op_text(const struct prep_op *op, char *buf, size_t size);

#endif
