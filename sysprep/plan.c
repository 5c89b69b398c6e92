/*
 * plan.c - desired minus observed gives operations. A pure function: no I/O, no clock, no state.
 *
 * The parts, in order: which cage and which functions are the rails (topology), what of the host
 * stands against the config (conflicts), and the list of operations. Anything that would have to
 * be guessed is refused with the line to write.
 */
#include "plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/if_addr.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "json.h"
#include "ops.h"

#define IPV6_MIN_MTU 1280 /* RFC 8200, section 5 */

/* ----------------------------- refusals ----------------------------- */

/* A conflict between config and host: names file and line, or the default that applied. */
static int refuse(const struct prep_conf *c, unsigned int line, const char *key, struct ds_err *err,
		  const char *why, ...) __attribute__((format(printf, 5, 6)));

static int refuse(const struct prep_conf *c, unsigned int line, const char *key, struct ds_err *err,
		  const char *why, ...)
{
	char obj[300], text[256];
	if (line != 0)
		snprintf(obj, sizeof(obj), "%s line %u (%s)", c->file, line, key);
	else
		snprintf(obj, sizeof(obj), "%s (%s, not given there)", c->file, key);
	va_list ap;
	va_start(ap, why);
	vsnprintf(text, sizeof(text), why, ap);
	va_end(ap);
	ds_err_set(err, DS_ERR_USAGE, 0, obj, "plan");
	return ds_err_why(err, "%s", text);
}

/* ----------------------------- topology ----------------------------- */

static const struct edge {
	int shape, a, b;
} edges[] = {
	/* clang-format off */
	{ PREP_PAIR, 1, 2 },
	{ PREP_TRIANGLE, 1, 2 }, { PREP_TRIANGLE, 1, 3 }, { PREP_TRIANGLE, 2, 3 },
	{ PREP_RING, 1, 2 }, { PREP_RING, 1, 4 }, { PREP_RING, 2, 3 }, { PREP_RING, 3, 4 },
	{ PREP_SWITCH, 0, 0 },
	/* clang-format on */
};
#define N_EDGES (sizeof(edges) / sizeof(edges[0]))

static const char *carrier_word(const struct prep_link *l)
{
	return l->carrier > 0 ? "carrier" : l->carrier == 0 ? "no carrier" : "down";
}

/* "cage 0: enp1s0f0np0 carrier, enP2p1s0f0np0 down; cage 1: ..." */
static void cage_states(const struct prep_host *h, char *buf, size_t size)
{
	size_t n = 0;
	buf[0] = '\0';
	for (int cage = 0; cage < 2; cage++) {
		bool any = false;
		for (int rail = 0; rail < 2; rail++) {
			const struct prep_link *l = prep_host_rail(h, cage, rail);
			if (l == NULL || n >= size)
				continue;
			if (any)
				n += (size_t)snprintf(buf + n, size - n, ", ");
			else
				n += (size_t)snprintf(buf + n, size - n,
						      "%scage %d: ", n > 0 ? "; " : "", cage);
			any = true;
			if (n < size)
				n += (size_t)snprintf(buf + n, size - n, "%s %s", l->name,
						      carrier_word(l));
		}
	}
}

struct cages {
	int present, carrier, down;	    /* how many cages */
	int first, with_carrier, with_down; /* the (last seen) cage of each kind */
};

static struct cages look_at_cages(const struct prep_host *h)
{
	struct cages c = { 0 };
	for (int cage = 0; cage < 2; cage++) {
		bool present = false, carrier = false, down = false;
		for (int rail = 0; rail < 2; rail++) {
			const struct prep_link *l = prep_host_rail(h, cage, rail);
			present |= l != NULL;
			carrier |= l != NULL && l->carrier > 0;
			down |= l != NULL && l->carrier < 0;
		}
		c.present += present;
		c.carrier += carrier;
		c.down += down;
		c.first = present ? cage : c.first;
		c.with_carrier = carrier ? cage : c.with_carrier;
		c.with_down = down ? cage : c.with_down;
	}
	return c;
}

static int no_rails(const struct prep_conf *c, const struct prep_host *h, struct ds_err *err)
{
	ds_err_set(err, DS_ERR_USAGE, 0, c->file, "plan");
	if (h->n_function > 0) {
		ds_err_why(
			err,
			"%u fabric functions (15b3:1021) are on the PCI bus, but none has an interface in this network namespace",
			h->n_function);
		return ds_err_fix(
			err, "look for the driver and the interfaces: lspci -nnk -d 15b3:1021");
	}
	ds_err_why(
		err,
		"this host has no fabric interface: no PCI function 15b3:1021, and no interface with a Spark's name");
	return ds_err_fix(
		err,
		"seat the cable and reboot with it in; without a cable the adapter is powered down");
}

/* Which cage a pair or a switch uses (design.md 3.2). */
static int choose_cage(const struct prep_conf *c, const struct prep_host *h, int *cage,
		       struct ds_err *err)
{
	struct cages s = look_at_cages(h);
	if (s.present == 0)
		return no_rails(c, h, err);
	if (c->cage >= 0)
		*cage = (int)c->cage;
	else if (s.carrier == 1)
		*cage = s.with_carrier;
	else if (s.carrier == 0 && s.down == 1)
		*cage = s.with_down;
	else if (s.carrier == 0 && s.present == 1)
		*cage = s.first;
	else {
		char states[200];
		cage_states(h, states, sizeof(states));
		refuse(c, c->line_cage, "cage = auto", err, "%s: %s",
		       s.carrier > 1 ? "both cages have carrier"
				     : "no cage has carrier, and either may be meant",
		       states);
		return ds_err_fix(
			err, "write the cage with the cable in [cluster]: cage = 0 or cage = 1");
	}
	return 0;
}

/* The /24 of (edge, rail): its network, host order. @index: edge-major, rail-minor. */
static uint32_t subnet(const struct prep_conf *c, int index)
{
	return ntohl(c->subnets.s_addr) + ((uint32_t)index << 8);
}

static struct in_addr address(const struct prep_conf *c, int index, int node)
{
	return (struct in_addr){ htonl(subnet(c, index) + (uint32_t)node) };
}

static int add_rail(const struct prep_conf *c, const struct prep_host *h, const struct edge *e,
		    int index, int cage, int rail, struct prep_plan *p, struct ds_err *err)
{
	const struct prep_link *l = prep_host_rail(h, cage, rail);
	if (l == NULL) {
		char states[200];
		cage_states(h, states, sizeof(states));
		refuse(c, c->line_cage, "cage", err, "cage %d has no function of rail %d here: %s",
		       cage, rail, states);
		return ds_err_fix(err, "compare with: lspci -nnk -d 15b3:1021");
	}
	for (uint32_t i = 0; i < h->n_link; i++) {
		const struct prep_link *o = &h->link[i];
		if (o == l || o->identified == PREP_ID_NONE || o->cage != cage || o->rail != rail)
			continue;
		return refuse(c, c->line_cage, "cage", err,
			      "both %s and %s look like rail %d of cage %d; this is no Spark",
			      l->name, o->name, rail, cage);
	}
	struct prep_rail *r = &p->rail[p->n_rail++];
	*r = (struct prep_rail){ .rail = rail, .cage = cage, .prefix = 24 };
	strcpy(r->ifname, l->name);
	r->addr = address(c, index, (int)c->node);
	if (e->shape == PREP_SWITCH)
		strcpy(r->edge, "switch");
	else
		snprintf(r->edge, sizeof(r->edge), "%d-%d", e->a, e->b);
	for (int node = 1; node <= c->nodes; node++) {
		bool far = e->shape == PREP_SWITCH || node == e->a || node == e->b;
		if (!far || node == c->node)
			continue;
		r->peer[r->n_peer].node = node;
		r->peer[r->n_peer++].addr = address(c, index, node);
	}
	return 0;
}

/* In a circle the cable to the next node leaves cage 0 and enters the next one's cage 1. */
static int cage_of(const struct prep_conf *c, const struct edge *e, int chosen)
{
	if (e->shape == PREP_PAIR || e->shape == PREP_SWITCH)
		return chosen;
	int64_t other = e->a == c->node ? e->b : e->a;
	return other == c->node % c->nodes + 1 ? 0 : 1;
}

static int make_rails(const struct prep_conf *c, const struct prep_host *h, struct prep_plan *p,
		      int *n_subnet, struct ds_err *err)
{
	int cage = 0;
	bool circle = c->shape == PREP_TRIANGLE || c->shape == PREP_RING;
	if (circle && look_at_cages(h).present == 0)
		return no_rails(c, h, err);
	if (!circle && choose_cage(c, h, &cage, err) != 0)
		return -1;
	int index = 0;
	for (size_t i = 0; i < N_EDGES; i++) {
		const struct edge *e = &edges[i];
		if (e->shape != c->shape)
			continue;
		bool ours = e->shape == PREP_SWITCH || e->a == c->node || e->b == c->node;
		for (int rail = 0; rail < 2; rail++, index++)
			if (ours &&
			    add_rail(c, h, e, index, cage_of(c, e, cage), rail, p, err) != 0)
				return -1;
	}
	*n_subnet = index;
	return 0;
}

/* ----------------------------- conflicts ----------------------------- */

static bool is_rail(const struct prep_plan *p, const struct prep_host *h, int ifindex)
{
	const struct prep_link *l = prep_host_ifindex(h, ifindex);
	for (int i = 0; l != NULL && i < p->n_rail; i++)
		if (strcmp(p->rail[i].ifname, l->name) == 0)
			return true;
	return false;
}

bool prep_nets_overlap(struct in_addr a, unsigned int a_len, struct in_addr b, unsigned int b_len)
{
	unsigned int len = a_len < b_len ? a_len : b_len;
	uint32_t mask = len == 0 ? 0 : 0xffffffffu << (32 - len);
	return ((ntohl(a.s_addr) ^ ntohl(b.s_addr)) & mask) == 0;
}

bool prep_conf_overlaps(const struct prep_conf *c, struct in_addr net, unsigned int len)
{
	int n = 0;
	for (size_t i = 0; i < N_EDGES; i++)
		n += edges[i].shape == c->shape ? 2 : 0;
	for (int i = 0; i < n; i++)
		if (prep_nets_overlap((struct in_addr){ htonl(subnet(c, i)) }, 24, net, len))
			return true;
	return false;
}

static int overlap(const struct prep_conf *c, struct in_addr net, const char *with,
		   struct in_addr other, unsigned int len, const char *ifname, struct ds_err *err)
{
	char a[INET_ADDRSTRLEN], b[INET_ADDRSTRLEN];
	inet_ntop(AF_INET, &net, a, sizeof(a));
	inet_ntop(AF_INET, &other, b, sizeof(b));
	refuse(c, c->line_subnets, "subnets", err, "%s/24 overlaps the %s %s/%u of %s", a, with, b,
	       len, ifname);
	return ds_err_fix(
		err,
		"choose a network that is free on every node, and write it in [cluster]: subnets = A.B.0.0/16");
}

/* Every /24 of the shape must be free, also those between other nodes: they share our LAN. */
static int check_subnet(const struct prep_conf *c, const struct prep_host *h,
			const struct prep_plan *p, int index, struct ds_err *err)
{
	struct in_addr net = { htonl(subnet(c, index)) };
	for (uint32_t i = 0; i < h->n_addr; i++) {
		const struct prep_addr *a = &h->addr[i];
		const struct prep_link *l = prep_host_ifindex(h, a->ifindex);
		if (a->family != AF_INET || l == NULL || is_rail(p, h, a->ifindex) ||
		    !prep_nets_overlap(net, 24, a->local.v4, a->prefix))
			continue;
		return overlap(c, net, "address", a->local.v4, a->prefix, l->name, err);
	}
	for (uint32_t i = 0; i < h->n_route; i++) {
		const struct prep_route *r = &h->route[i];
		const struct prep_link *l = prep_host_ifindex(h, r->oif);
		/* Shorter than any `subnets`: a default route in pieces, as VPNs write it. */
		if (r->family != AF_INET || r->dst_len < 8 || is_rail(p, h, r->oif) ||
		    !prep_nets_overlap(net, 24, r->dst, r->dst_len))
			continue;
		return overlap(c, net, "route", r->dst, r->dst_len, l != NULL ? l->name : "?", err);
	}
	return 0;
}

/* A VLAN or macvlan on a rail, however many levels up. */
static bool stands_on_rail(const struct prep_plan *p, const struct prep_host *h,
			   const struct prep_link *l)
{
	for (int depth = 0; l != NULL && l->lower != 0 && depth < 8; depth++) {
		if (is_rail(p, h, l->lower))
			return true;
		l = prep_host_ifindex(h, l->lower);
	}
	return false;
}

static int check_management(const struct prep_conf *c, const struct prep_host *h,
			    const struct prep_plan *p, struct ds_err *err)
{
	const struct prep_link *l = prep_host_link(h, c->management);
	if (l == NULL) {
		refuse(c, c->line_management, "management", err, "no interface is called %s",
		       c->management);
		const struct prep_link *d = prep_host_default_link(h);
		if (d != NULL && !is_rail(p, h, d->ifindex))
			ds_err_fix(err, "the default route leaves by %s: management = %s", d->name,
				   d->name);
		return -1;
	}
	if (l->flags & IFF_LOOPBACK)
		return refuse(c, c->line_management, "management", err,
			      "%s is the loopback interface; nobody reaches this host by it",
			      c->management);
	if (stands_on_rail(p, h, l)) {
		refuse(c, c->line_management, "management", err,
		       "%s is made on a rail of this plan, and changes with it", c->management);
		return ds_err_fix(err, "name an interface outside the fabric");
	}
	if (!is_rail(p, h, l->ifindex))
		return 0;
	refuse(c, c->line_management, "management", err,
	       "%s is a rail of this plan, and management must not be touched", c->management);
	return ds_err_fix(err, "name the interface of your login and default route");
}

static int check_rail(const struct prep_conf *c, const struct prep_host *h,
		      const struct prep_rail *r, struct ds_err *err)
{
	const struct prep_link *l = prep_host_link(h, r->ifname);
	if (l->master != 0) {
		const struct prep_link *m = prep_host_ifindex(h, l->master);
		ds_err_set(err, DS_ERR_USAGE, 0, l->name, "plan");
		ds_err_why(err, "it belongs to the bridge or bond %s", m != NULL ? m->name : "?");
		return ds_err_fix(err, "take it out first: ip link set %s nomaster", l->name);
	}
	if (l->max_mtu != 0 && c->mtu > l->max_mtu)
		return refuse(c, c->line_mtu, "mtu", err,
			      "mtu = %" PRId64 " bytes, but %s takes at most %u", c->mtu, l->name,
			      l->max_mtu);
	/* With its MTU IPv6 would come, with sysctls and an address that this plan cannot know. */
	if (l->mtu < IPV6_MIN_MTU && l->sysctl[PREP_SC_ADDR_GEN_MODE] < 0) {
		ds_err_set(err, DS_ERR_USAGE, 0, l->name, "plan");
		ds_err_why(err, "its mtu is %u, so small that the kernel keeps IPv6 off it",
			   l->mtu);
		return ds_err_fix(err, "ip link set %s mtu 1500", l->name);
	}
	for (uint32_t i = 0; i < h->n_route; i++) {
		if (h->route[i].dst_len != 0 || h->route[i].oif != l->ifindex)
			continue;
		ds_err_set(err, DS_ERR_USAGE, 0, l->name, "plan");
		ds_err_why(err,
			   "a default route leaves by this rail; changing it could cut you off");
		return ds_err_fix(err, "see: ip %s route show default dev %s",
				  h->route[i].family == AF_INET6 ? "-6" : "-4", l->name);
	}
	return 0;
}

static int check_conflicts(const struct prep_conf *c, const struct prep_host *h,
			   const struct prep_plan *p, int n_subnet, struct ds_err *err)
{
	if (check_management(c, h, p, err) != 0)
		return -1;
	for (int i = 0; i < p->n_rail; i++)
		if (check_rail(c, h, &p->rail[i], err) != 0)
			return -1;
	for (int i = 0; i < n_subnet; i++)
		if (check_subnet(c, h, p, i, err) != 0)
			return -1;
	return 0;
}

/* ----------------------------- operations -----------------------------
 * Phase by phase over all rails, and the phases in this order, because the RDMA device fills its
 * GID table from what happens to the interface (host.md 3.5): each further address takes the next
 * free pair of slots behind the default GID. So the kernel must have no reason to make an IPv6
 * address when the link comes up (sysctls first), what it or somebody else made goes before ours
 * comes, and the IPv4 address is the first to be added: its RoCE v2 entry then lands at 3, on every
 * function alike. The ARP keys, too, must hold before an address can be asked for on the shared
 * wire. MTU before up: no resizing under traffic. The address comes last, on a link that is up, so
 * that its network's route appears with it and can be verified. */

static struct prep_op *add_op(struct prep_plan *p, enum prep_op_kind kind,
			      const struct prep_link *l)
{
	if (p->n_op == PREP_OPS_MAX)
		return NULL;
	struct prep_op *op = &p->op[p->n_op++];
	*op = (struct prep_op){ .kind = kind };
	if (l != NULL) {
		strcpy(op->ifname, l->name);
		op->ifindex = l->ifindex;
		p->changes_network = true;
	}
	return op;
}

typedef bool phase_fn(const struct prep_conf *c, const struct prep_host *h,
		      const struct prep_rail *r, const struct prep_link *l, struct prep_plan *p);

static bool phase_sysctls(const struct prep_conf *c, const struct prep_host *h,
			  const struct prep_rail *r, const struct prep_link *l, struct prep_plan *p)
{
	(void)c;
	(void)h;
	(void)r;
	for (int i = 0; i < PREP_SC_N; i++) {
		/* Unknown: IPv6 is off, so there is nothing that the key could do. */
		if (l->sysctl[i] < 0 || l->sysctl[i] == prep_sysctls[i].want)
			continue;
		struct prep_op *op = add_op(p, PREP_OP_SYSCTL, l);
		if (op == NULL)
			return false;
		op->sysctl = i;
		op->value = prep_sysctls[i].want;
		op->old = l->sysctl[i];
	}
	return true;
}

static bool phase_mtu(const struct prep_conf *c, const struct prep_host *h,
		      const struct prep_rail *r, const struct prep_link *l, struct prep_plan *p)
{
	(void)h;
	(void)r;
	if (l->mtu == c->mtu)
		return true;
	struct prep_op *op = add_op(p, PREP_OP_LINK_MTU, l);
	if (op == NULL)
		return false;
	op->value = c->mtu;
	op->old = l->mtu;
	return true;
}

static bool kernel_made(const struct prep_addr *a)
{
	return a->family == AF_INET6 && a->proto == IFAPROT_KERNEL_LL &&
	       IN6_IS_ADDR_LINKLOCAL(&a->local.v6);
}

/* Whether the network of @r is reached by @l. The kernel makes that route with the address, once the
 * link is up; somebody may have deleted it since, or told the kernel not to. */
static bool has_route(const struct prep_host *h, const struct prep_rail *r,
		      const struct prep_link *l)
{
	for (uint32_t i = 0; i < h->n_route; i++) {
		const struct prep_route *o = &h->route[i];
		if (o->family == AF_INET && o->oif == l->ifindex && o->dst_len == r->prefix &&
		    prep_nets_overlap(o->dst, o->dst_len, r->addr, r->prefix))
			return true;
	}
	return !(l->flags & IFF_UP);
}

/* Ours, permanent, with its route, and not a secondary that leaves together with a foreign primary.
 * An address that lacks any of this is removed and added anew. */
static bool is_ours(const struct prep_host *h, const struct prep_addr *a, const struct prep_rail *r,
		    const struct prep_link *l)
{
	return a->family == AF_INET && has_route(h, r, l) && a->local.v4.s_addr == r->addr.s_addr &&
	       a->prefix == r->prefix && (a->flags & IFA_F_PERMANENT) &&
	       !(a->flags & IFA_F_SECONDARY);
}

static bool remove_addr(const struct prep_addr *a, const struct prep_link *l, struct prep_plan *p)
{
	struct prep_op *op = add_op(p, PREP_OP_ADDR_DEL, l);
	if (op == NULL)
		return false;
	op->family = a->family;
	op->prefix = a->prefix;
	op->addr_flags = a->flags;
	op->addr_scope = a->scope;
	memcpy(&op->addr, &a->local, a->family == AF_INET ? 4 : 16);
	return true;
}

/* From the last to the first, so that undo, which runs backwards, adds them in the order they had;
 * secondaries before all, as the kernel takes them away with their primary. */
static bool phase_addr_del(const struct prep_conf *c, const struct prep_host *h,
			   const struct prep_rail *r, const struct prep_link *l,
			   struct prep_plan *p)
{
	(void)c;
	for (int secondary = 1; secondary >= 0; secondary--) {
		for (uint32_t i = h->n_addr; i-- > 0;) {
			const struct prep_addr *a = &h->addr[i];
			bool foreign =
				a->ifindex == l->ifindex &&
				(kernel_made(a) || (a->family == AF_INET && !is_ours(h, a, r, l)));
			bool is_secondary = a->family == AF_INET && (a->flags & IFA_F_SECONDARY);
			if (foreign && is_secondary == (secondary == 1) && !remove_addr(a, l, p))
				return false;
		}
	}
	return true;
}

static bool phase_up(const struct prep_conf *c, const struct prep_host *h,
		     const struct prep_rail *r, const struct prep_link *l, struct prep_plan *p)
{
	(void)c;
	(void)h;
	(void)r;
	if (l->flags & IFF_UP)
		return true;
	struct prep_op *op = add_op(p, PREP_OP_LINK_UP, l);
	if (op == NULL)
		return false;
	op->value = 1;
	return true;
}

static bool phase_addr_add(const struct prep_conf *c, const struct prep_host *h,
			   const struct prep_rail *r, const struct prep_link *l,
			   struct prep_plan *p)
{
	(void)c;
	for (uint32_t i = 0; i < h->n_addr; i++)
		if (h->addr[i].ifindex == l->ifindex && is_ours(h, &h->addr[i], r, l))
			return true;
	struct prep_op *op = add_op(p, PREP_OP_ADDR_ADD, l);
	if (op == NULL)
		return false;
	op->family = AF_INET;
	op->prefix = r->prefix;
	memcpy(&op->addr, &r->addr, sizeof(r->addr));
	return true;
}

static int make_ops(const struct prep_conf *c, const struct prep_host *h, bool report_current,
		    struct prep_plan *p, struct ds_err *err)
{
	static phase_fn *const phases[] = { phase_sysctls, phase_mtu, phase_addr_del, phase_up,
					    phase_addr_add };
	bool ok = true;
	for (size_t i = 0; ok && i < sizeof(phases) / sizeof(phases[0]); i++)
		for (int r = 0; ok && r < p->n_rail; r++)
			ok = phases[i](c, h, &p->rail[r], prep_host_link(h, p->rail[r].ifname), p);
	if (ok && (p->changes_network || !report_current))
		ok = add_op(p, PREP_OP_HOST_REPORT, NULL) != NULL;
	if (ok)
		return 0;
	ds_err_set(err, DS_ERR_HOST, E2BIG, NULL, "plan");
	return ds_err_why(err, "more than %d operations", PREP_OPS_MAX);
}

int prep_plan_make(const struct prep_conf *c, const struct prep_host *h, bool report_current,
		   struct prep_plan *p, struct ds_err *err)
{
	int n_subnet = 0;
	*p = (struct prep_plan){ 0 };
	strcpy(p->management, c->management);
	p->op = calloc(PREP_OPS_MAX, sizeof(*p->op));
	if (p->op == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "plan");
	if (make_rails(c, h, p, &n_subnet, err) == 0 &&
	    check_conflicts(c, h, p, n_subnet, err) == 0 &&
	    make_ops(c, h, report_current, p, err) == 0)
		return 0;
	prep_plan_fini(p);
	return -1;
}

void prep_plan_fini(struct prep_plan *p)
{
	free(p->op);
	*p = (struct prep_plan){ 0 };
}

/* ----------------------------- showing ----------------------------- */

static char *addr_text(const struct prep_op *op, char *buf, size_t size)
{
	char a[INET6_ADDRSTRLEN] = "?";
	inet_ntop(op->family, &op->addr, a, sizeof(a));
	snprintf(buf, size, "%s/%u", a, op->prefix);
	return buf;
}

char *prep_op_text(const struct prep_op *op, char *buf, size_t size)
{
	char addr[INET6_ADDRSTRLEN + 8];
	switch (op->kind) {
	case PREP_OP_LINK_UP:
		snprintf(buf, size, "bring %s up (was down)", op->ifname);
		break;
	case PREP_OP_LINK_MTU:
		snprintf(buf, size, "set mtu %" PRId64 " on %s (was %" PRId64 ")", op->value,
			 op->ifname, op->old);
		break;
	case PREP_OP_ADDR_ADD:
		snprintf(buf, size, "add %s to %s", addr_text(op, addr, sizeof(addr)), op->ifname);
		break;
	case PREP_OP_ADDR_DEL:
		snprintf(buf, size, "remove %s from %s (%s)", addr_text(op, addr, sizeof(addr)),
			 op->ifname,
			 op->family == AF_INET6 ? "made by the kernel" : "not as planned");
		break;
	case PREP_OP_SYSCTL:
		snprintf(buf, size, "set %s %s = %" PRId64 " on %s (was %" PRId64 ")",
			 prep_sysctls[op->sysctl].family, prep_sysctls[op->sysctl].key, op->value,
			 op->ifname, op->old);
		break;
	case PREP_OP_HOST_REPORT:
		snprintf(buf, size, "write /run/dsprep/host.json");
		break;
	default:
		snprintf(buf, size, "unknown operation %d", op->kind);
	}
	return buf;
}

static const char *identified_word(const struct prep_host *h, const char *ifname)
{
	const struct prep_link *l = prep_host_link(h, ifname);
	return l == NULL || l->identified == PREP_ID_NONE ? NULL
	       : l->identified == PREP_ID_PCI		  ? "pci"
							  : "name";
}

void prep_plan_print(const struct prep_plan *p, const struct prep_host *h, bool color,
		     struct ds_buf *out)
{
	char text[256], addr[INET_ADDRSTRLEN];
	for (int i = 0; i < p->n_rail; i++) {
		const struct prep_rail *r = &p->rail[i];
		const char *by = identified_word(h, r->ifname);
		inet_ntop(AF_INET, &r->addr, addr, sizeof(addr));
		ds_buf_printf(out, "  rail %d cage %d edge %s: %s %s/%u (identified by %s)\n",
			      r->rail, r->cage, r->edge, r->ifname, addr, r->prefix,
			      by != NULL ? by : "?");
	}
	ds_buf_printf(out, "  management %s stays untouched\n", p->management);
	for (int i = 0; i < p->n_op; i++) {
		const struct prep_op *op = &p->op[i];
		bool del = op->kind == PREP_OP_ADDR_DEL;
		bool add = op->kind == PREP_OP_ADDR_ADD || op->kind == PREP_OP_HOST_REPORT;
		const char *on = del ? "\033[31m" : add ? "\033[32m" : "\033[33m";
		ds_buf_printf(out, "%s%c %s%s\n", color ? on : "",
			      del   ? '-'
			      : add ? '+'
				    : '~',
			      prep_op_text(op, text, sizeof(text)), color ? "\033[0m" : "");
	}
	if (p->n_op == 0)
		ds_buf_puts(out, "nothing to do\n");
	else
		ds_buf_printf(out, "%d operation%s\n", p->n_op, p->n_op == 1 ? "" : "s");
}

static void json_op(struct ds_json *j, const struct prep_op *op)
{
	char text[256], addr[INET6_ADDRSTRLEN + 8];
	ds_json_object(j);
	ds_json_kstr(j, "op", prep_op_row(op->kind)->name);
	if (op->ifname[0] != '\0')
		ds_json_kstr(j, "netdev", op->ifname);
	if (op->kind == PREP_OP_ADDR_ADD || op->kind == PREP_OP_ADDR_DEL)
		ds_json_kstr(j, "address", addr_text(op, addr, sizeof(addr)));
	if (op->kind == PREP_OP_SYSCTL) {
		snprintf(text, sizeof(text), "%s.%s", prep_sysctls[op->sysctl].family,
			 prep_sysctls[op->sysctl].key);
		ds_json_kstr(j, "key", text);
	}
	if (op->kind == PREP_OP_SYSCTL || op->kind == PREP_OP_LINK_MTU) {
		ds_json_kint(j, "value", op->value);
		ds_json_kint(j, "old", op->old);
	}
	ds_json_kstr(j, "text", prep_op_text(op, text, sizeof(text)));
	ds_json_end(j);
}

static void json_rail(struct ds_json *j, const struct prep_rail *r, const struct prep_host *h)
{
	char addr[INET_ADDRSTRLEN], text[INET_ADDRSTRLEN + 4];
	ds_json_object(j);
	ds_json_kint(j, "rail", r->rail);
	ds_json_kint(j, "cage", r->cage);
	ds_json_kstr(j, "edge", r->edge);
	ds_json_kstr(j, "netdev", r->ifname);
	inet_ntop(AF_INET, &r->addr, addr, sizeof(addr));
	snprintf(text, sizeof(text), "%s/%u", addr, r->prefix);
	ds_json_kstr(j, "ipv4", text);
	ds_json_kstr(j, "identified_by", identified_word(h, r->ifname));
	ds_json_key(j, "peers");
	ds_json_array(j);
	for (int i = 0; i < r->n_peer; i++) {
		ds_json_object(j);
		ds_json_kint(j, "node", r->peer[i].node);
		inet_ntop(AF_INET, &r->peer[i].addr, addr, sizeof(addr));
		ds_json_kstr(j, "ipv4", addr);
		ds_json_end(j);
	}
	ds_json_end(j);
	ds_json_end(j);
}

void prep_plan_json(const struct prep_plan *p, const struct prep_host *h, struct ds_buf *out)
{
	struct ds_json j;
	ds_json_init(&j, out, 2);
	ds_json_object(&j);
	ds_json_kint(&j, "format", 1);
	ds_json_kstr(&j, "management", p->management);
	ds_json_key(&j, "rails");
	ds_json_array(&j);
	for (int i = 0; i < p->n_rail; i++)
		json_rail(&j, &p->rail[i], h);
	ds_json_end(&j);
	ds_json_key(&j, "operations");
	ds_json_array(&j);
	for (int i = 0; i < p->n_op; i++)
		json_op(&j, &p->op[i]);
	ds_json_end(&j);
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
}
