/*
 * check_net.c - checks of link, addresses and MTU of the fabric interfaces.
 *
 * With a plan the rails of the plan are judged, else the cages that are in use: with carrier, or
 * with addresses on their functions.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checks.h"

#define FROM_LINK "rtnetlink link"
#define FROM_ADDR "rtnetlink address"

/* ----------------------------- helpers ----------------------------- */

static bool is_fabric(const struct prep_link *l)
{
	return l != NULL && l->identified != PREP_ID_NONE;
}

/* A node without fabric interfaces: says so for @check. Return: whether it is one. */
static bool no_fabric(struct prep_doctor *d, const struct prep_check *check)
{
	for (uint32_t i = 0; i < d->host->n_link; i++)
		if (is_fabric(&d->host->link[i]))
			return false;
	prep_say(d, check, PREP_V_NOT_APPLICABLE, "node", "%s",
		 d->host->n_function > 0
			 ? "no fabric function has an interface in this network namespace"
			 : "this host has no fabric interface");
	return true;
}

static bool cage_has_carrier(const struct prep_host *h, int cage)
{
	for (int rail = 0; rail < 2; rail++) {
		const struct prep_link *l = prep_host_rail(h, cage, rail);
		if (l != NULL && l->carrier > 0)
			return true;
	}
	return false;
}

static int n_ipv4(const struct prep_host *h, int ifindex)
{
	int n = 0;
	for (uint32_t i = 0; i < h->n_addr; i++)
		n += h->addr[i].family == AF_INET && h->addr[i].ifindex == ifindex;
	return n;
}

static bool cage_has_address(const struct prep_host *h, int cage)
{
	for (int rail = 0; rail < 2; rail++) {
		const struct prep_link *l = prep_host_rail(h, cage, rail);
		if (l != NULL && n_ipv4(h, l->ifindex) > 0)
			return true;
	}
	return false;
}

static const struct prep_rail *planned(const struct prep_doctor *d, const struct prep_link *l)
{
	for (int i = 0; d->plan != NULL && i < d->plan->n_rail; i++)
		if (strcmp(d->plan->rail[i].ifname, l->name) == 0)
			return &d->plan->rail[i];
	return NULL;
}

static bool plan_uses_cage(const struct prep_doctor *d, int cage)
{
	for (int i = 0; i < d->plan->n_rail; i++)
		if (d->plan->rail[i].cage == cage)
			return true;
	return false;
}

/* Whether the plan has an operation of @kind for this interface: then apply would fix it. */
static bool apply_does(const struct prep_doctor *d, const char *ifname, enum prep_op_kind kind)
{
	for (int i = 0; d->plan != NULL && i < d->plan->n_op; i++)
		if (d->plan->op[i].kind == kind && strcmp(d->plan->op[i].ifname, ifname) == 0)
			return true;
	return false;
}

/* The way to addresses that are right, when apply cannot be asked yet. */
static void need_config(const struct prep_doctor *d, struct prep_verdict *v)
{
	if (v->fixed_by_apply)
		return;
	if (d->conf == NULL)
		snprintf(v->remedy[0], sizeof(v->remedy[0]),
			 "write a config (dsprep plan shows one), then: sudo dsprep apply");
	else if (d->plan == NULL)
		snprintf(v->remedy[0], sizeof(v->remedy[0]),
			 "correct the config first; dsprep plan says what stands against it");
}

/* Private and link-local addresses are shown; a public one only by its length (personal data). */
static const char *show_addr(const struct prep_addr *a, char *buf, size_t size)
{
	uint32_t v = ntohl(a->local.v4.s_addr);
	bool show = v >> 24 == 10 || v >> 20 == 0xac1 || v >> 16 == 0xc0a8 || v >> 16 == 0xa9fe ||
		    v >> 22 == 0x191 || v >> 24 == 127;
	char text[INET_ADDRSTRLEN] = "";
	if (show)
		inet_ntop(AF_INET, &a->local.v4, text, sizeof(text));
	snprintf(buf, size, "%s/%u", show ? text : "(public address)", a->prefix);
	return buf;
}

static void addr_evidence(struct prep_verdict *v, const struct prep_link *l,
			  const struct prep_addr *a)
{
	char text[48];
	prep_evidence(v, l->name, FROM_ADDR, "%s", show_addr(a, text, sizeof(text)));
}

/* ----------------------------- no-carrier ----------------------------- */

static void judge_carrier(struct prep_doctor *d, const struct prep_check *check,
			  const struct prep_link *l)
{
	if (l->carrier > 0) {
		prep_say(d, check, PREP_V_PASS, l->name, "carrier, cage %d", l->cage);
		return;
	}
	bool down = l->carrier < 0;
	struct prep_verdict *v = prep_say(
		d, check, PREP_V_FINDING, l->name,
		down ? "administratively down, cage %d" : "up without carrier, cage %d", l->cage);
	prep_evidence(v, "flags", FROM_LINK, "%s", l->flags & IFF_UP ? "UP" : "not UP");
	if (!down)
		prep_evidence(v, "carrier", FROM_LINK, "0");
	v->fixed_by_apply = down && apply_does(d, l->name, PREP_OP_LINK_UP);
	if (!down)
		snprintf(v->remedy[0], sizeof(v->remedy[0]),
			 "push the plug of cage %d in until the latch clicks, at both ends",
			 l->cage);
	else
		need_config(d, v);
	bool other = cage_has_carrier(d->host, 1 - l->cage) &&
		     (d->plan == NULL || !plan_uses_cage(d, 1 - l->cage));
	if (other)
		snprintf(v->remedy[1], sizeof(v->remedy[1]),
			 "cage %d has carrier: move the plug, or write cage = %d", 1 - l->cage,
			 1 - l->cage);
}

static bool wants_plan_rails(const struct prep_doctor *d, bool any_carrier)
{
	if (d->plan == NULL)
		return false;
	bool chosen = d->conf->cage >= 0 || d->conf->shape == PREP_TRIANGLE ||
		      d->conf->shape == PREP_RING;
	return chosen || any_carrier;
}

void prep_check_carrier(struct prep_doctor *d, const struct prep_check *check)
{
	if (no_fabric(d, check))
		return;
	const struct prep_host *h = d->host;
	bool any_carrier = cage_has_carrier(h, 0) || cage_has_carrier(h, 1);
	bool any_address = cage_has_address(h, 0) || cage_has_address(h, 1);
	bool by_plan = wants_plan_rails(d, any_carrier);
	/* Nothing is cabled, addressed or chosen: one word for the node instead of four. */
	if (!by_plan && !any_carrier && !any_address) {
		struct prep_verdict *v = prep_say(d, check, PREP_V_FINDING, "node",
						  "no cage has carrier, and none has an address");
		v->severity = d->conf != NULL ? PREP_SEV_ERROR : PREP_SEV_INFO;
		for (int i = 0; d->plan != NULL && i < d->plan->n_rail; i++)
			v->fixed_by_apply |=
				apply_does(d, d->plan->rail[i].ifname, PREP_OP_LINK_UP);
		if (d->conf != NULL && !v->fixed_by_apply)
			snprintf(v->remedy[0], sizeof(v->remedy[0]),
				 "seat the cable in one cage until the latch clicks, at both ends");
		return;
	}
	for (uint32_t i = 0; i < h->n_link; i++) {
		const struct prep_link *l = &h->link[i];
		if (!is_fabric(l))
			continue;
		bool used = by_plan	  ? planned(d, l) != NULL
			    : any_carrier ? cage_has_carrier(h, l->cage)
					  : cage_has_address(h, l->cage);
		if (used)
			judge_carrier(d, check, l);
	}
}

/* ----------------------------- twin-unaddressed ----------------------------- */

static bool has_planned(const struct prep_host *h, const struct prep_link *l,
			const struct prep_rail *r)
{
	for (uint32_t i = 0; i < h->n_addr; i++)
		if (h->addr[i].ifindex == l->ifindex && h->addr[i].family == AF_INET &&
		    h->addr[i].local.v4.s_addr == r->addr.s_addr && h->addr[i].prefix == r->prefix)
			return true;
	return false;
}

static void judge_address(struct prep_doctor *d, const struct prep_check *check,
			  const struct prep_link *l)
{
	const struct prep_rail *r = planned(d, l);
	int n = n_ipv4(d->host, l->ifindex);
	char want[INET_ADDRSTRLEN];
	struct prep_verdict *v;
	if (r != NULL)
		inet_ntop(AF_INET, &r->addr, want, sizeof(want));
	bool there = r != NULL && has_planned(d->host, l, r);
	bool anew = there && apply_does(d, l->name, PREP_OP_ADDR_ADD);
	if (n == 1 && (l->flags & IFF_UP) && (r == NULL || (there && !anew))) {
		prep_say(d, check, PREP_V_PASS, l->name, "one IPv4 address, cage %d", l->cage);
		return;
	}
	if (!(l->flags & IFF_UP))
		v = prep_say(d, check, PREP_V_FINDING, l->name,
			     "cage %d has carrier, but this twin is down", l->cage);
	else if (n != 1)
		v = prep_say(d, check, PREP_V_FINDING, l->name,
			     "%d IPv4 addresses where cage %d needs exactly one per twin", n,
			     l->cage);
	else if (anew)
		v = prep_say(d, check, PREP_V_FINDING, l->name,
			     "its address is the planned one, but temporary or without its route");
	else
		v = prep_say(d, check, PREP_V_FINDING, l->name,
			     "its IPv4 address is not the planned %s/%u", want, r->prefix);
	prep_evidence(v, "IPv4 addresses", FROM_ADDR, "%d", n);
	for (uint32_t i = 0; i < d->host->n_addr; i++)
		if (d->host->addr[i].ifindex == l->ifindex && d->host->addr[i].family == AF_INET)
			addr_evidence(v, l, &d->host->addr[i]);
	v->fixed_by_apply = apply_does(d, l->name, PREP_OP_ADDR_ADD) ||
			    apply_does(d, l->name, PREP_OP_ADDR_DEL) ||
			    apply_does(d, l->name, PREP_OP_LINK_UP);
	need_config(d, v);
}

void prep_check_unaddressed(struct prep_doctor *d, const struct prep_check *check)
{
	if (no_fabric(d, check))
		return;
	bool any = false;
	for (int cage = 0; cage < 2; cage++) {
		/* A second cable that the plan does not use needs no addresses. */
		if (!cage_has_carrier(d->host, cage) ||
		    (d->plan != NULL && !plan_uses_cage(d, cage)))
			continue;
		any = true;
		for (int rail = 0; rail < 2; rail++) {
			const struct prep_link *l = prep_host_rail(d->host, cage, rail);
			if (l != NULL) {
				judge_address(d, check, l);
				continue;
			}
			char subject[16];
			snprintf(subject, sizeof(subject), "cage %d", cage);
			struct prep_verdict *v = prep_say(
				d, check, PREP_V_FINDING, subject,
				"it has carrier, but no interface on rail %d is there", rail);
			snprintf(v->remedy[0], sizeof(v->remedy[0]),
				 "look for the driver: lspci -nnk -d 15b3:1021");
		}
	}
	if (!any)
		prep_say(d, check, PREP_V_NOT_APPLICABLE, "node",
			 "no cage that is used has carrier");
}

/* ----------------------------- twins-one-subnet ----------------------------- */

static bool is_link_local(const struct prep_addr *a)
{
	return a->family == AF_INET && ntohl(a->local.v4.s_addr) >> 16 == 0xa9fe;
}

static void judge_pair(struct prep_doctor *d, const struct prep_check *check,
		       const struct prep_addr *a, const struct prep_addr *b)
{
	const struct prep_link *la = prep_host_ifindex(d->host, a->ifindex);
	const struct prep_link *lb = prep_host_ifindex(d->host, b->ifindex);
	struct prep_verdict *v = prep_say(d, check, PREP_V_FINDING, la->name,
					  "its network overlaps that of %s", lb->name);
	addr_evidence(v, la, a);
	addr_evidence(v, lb, b);
	if (a->local.v4.s_addr == b->local.v4.s_addr)
		v->follows_from = "address-duplicate";
	else if (is_link_local(a) && is_link_local(b))
		v->follows_from = "link-local-only";
	v->fixed_by_apply = apply_does(d, la->name, PREP_OP_ADDR_DEL) ||
			    apply_does(d, lb->name, PREP_OP_ADDR_DEL);
	need_config(d, v);
}

void prep_check_one_subnet(struct prep_doctor *d, const struct prep_check *check)
{
	if (no_fabric(d, check))
		return;
	const struct prep_host *h = d->host;
	bool said[PREP_LINKS_MAX] = { false }, any = false;
	for (uint32_t i = 0; i < h->n_addr; i++) {
		const struct prep_link *l = prep_host_ifindex(h, h->addr[i].ifindex);
		/* One finding per interface: the second overlap has the same cure. */
		if (h->addr[i].family != AF_INET || !is_fabric(l) || said[l - h->link])
			continue;
		for (uint32_t k = i + 1; k < h->n_addr && !said[l - h->link]; k++) {
			const struct prep_addr *b = &h->addr[k];
			if (b->family != AF_INET || b->ifindex == l->ifindex ||
			    !is_fabric(prep_host_ifindex(h, b->ifindex)) ||
			    !prep_nets_overlap(h->addr[i].local.v4, h->addr[i].prefix, b->local.v4,
					       b->prefix))
				continue;
			judge_pair(d, check, &h->addr[i], b);
			said[l - h->link] = any = true;
		}
	}
	if (!any)
		prep_say(d, check, PREP_V_PASS, "node", "no two fabric interfaces share a network");
}

/* ----------------------------- link-local-only ----------------------------- */

void prep_check_link_local(struct prep_doctor *d, const struct prep_check *check)
{
	if (no_fabric(d, check))
		return;
	const struct prep_host *h = d->host;
	bool any = false;
	int last = 0; /* addresses of one interface stand together in a dump */
	for (uint32_t i = 0; i < h->n_addr; i++) {
		const struct prep_link *l = prep_host_ifindex(h, h->addr[i].ifindex);
		if (!is_fabric(l) || !is_link_local(&h->addr[i]) || l->ifindex == last)
			continue;
		struct prep_verdict *v =
			prep_say(d, check, PREP_V_FINDING, l->name,
				 "a link-local address, which another boot will change");
		addr_evidence(v, l, &h->addr[i]);
		v->fixed_by_apply = apply_does(d, l->name, PREP_OP_ADDR_DEL);
		need_config(d, v);
		any = true;
		last = l->ifindex;
	}
	if (!any)
		prep_say(d, check, PREP_V_PASS, "node",
			 "no fabric interface has an address in 169.254.0.0/16");
}

/* ----------------------------- address-duplicate ----------------------------- */

static void judge_overlap(struct prep_doctor *d, const struct prep_check *check,
			  const struct prep_addr *fabric, const struct prep_addr *other)
{
	const struct prep_link *l = prep_host_ifindex(d->host, fabric->ifindex);
	const struct prep_link *o = prep_host_ifindex(d->host, other->ifindex);
	bool same = fabric->local.v4.s_addr == other->local.v4.s_addr;
	struct prep_verdict *v = prep_say(
		d, check, PREP_V_FINDING, l->name,
		same ? "its address is also on %s" : "its network overlaps that of %s", o->name);
	addr_evidence(v, l, fabric);
	addr_evidence(v, o, other);
	v->fixed_by_apply = apply_does(d, l->name, PREP_OP_ADDR_DEL) ||
			    (is_fabric(o) && apply_does(d, o->name, PREP_OP_ADDR_DEL));
	if (!v->fixed_by_apply)
		snprintf(
			v->remedy[0], sizeof(v->remedy[0]),
			"choose other subnets in dsprep.conf, the same on every node, or renumber %s",
			o->name);
}

/* Overlap with an interface outside the fabric, or the very same address inside it. */
static bool clashes(const struct prep_host *h, const struct prep_addr *f, const struct prep_addr *o)
{
	const struct prep_link *l = prep_host_ifindex(h, o->ifindex);
	if (o->family != AF_INET || l == NULL || o->ifindex == f->ifindex)
		return false;
	if (is_fabric(l))
		return o < f && o->local.v4.s_addr == f->local.v4.s_addr;
	return prep_nets_overlap(f->local.v4, f->prefix, o->local.v4, o->prefix);
}

/* A planned network that is taken already: plan refuses it, the doctor says it. */
static bool judge_refused(struct prep_doctor *d, const struct prep_check *check)
{
	if (d->plan != NULL || d->conf == NULL)
		return false;
	bool any = false;
	for (uint32_t i = 0; i < d->host->n_addr && !any; i++) {
		const struct prep_addr *a = &d->host->addr[i];
		const struct prep_link *l = prep_host_ifindex(d->host, a->ifindex);
		if (a->family != AF_INET || l == NULL || is_fabric(l) ||
		    !prep_conf_overlaps(d->conf, a->local.v4, a->prefix))
			continue;
		struct prep_verdict *v =
			prep_say(d, check, PREP_V_FINDING, l->name,
				 "its network overlaps the subnets of dsprep.conf");
		addr_evidence(v, l, a);
		snprintf(v->remedy[0], sizeof(v->remedy[0]),
			 "choose other subnets in dsprep.conf, the same on every node");
		any = true;
	}
	return any;
}

void prep_check_duplicate(struct prep_doctor *d, const struct prep_check *check)
{
	if (no_fabric(d, check))
		return;
	const struct prep_host *h = d->host;
	bool any = judge_refused(d, check);
	for (uint32_t i = 0; i < h->n_addr; i++) {
		if (h->addr[i].family != AF_INET ||
		    !is_fabric(prep_host_ifindex(h, h->addr[i].ifindex)))
			continue;
		for (uint32_t k = 0; k < h->n_addr; k++) {
			if (!clashes(h, &h->addr[i], &h->addr[k]))
				continue;
			judge_overlap(d, check, &h->addr[i], &h->addr[k]);
			any = true;
			break; /* one entry per interface */
		}
	}
	if (!any)
		prep_say(
			d, check, PREP_V_PASS, "node",
			"no fabric network overlaps another network of this host; other nodes were not asked");
}

/* ----------------------------- mtu-mismatch ----------------------------- */

static void judge_mtu(struct prep_doctor *d, const struct prep_check *check,
		      const struct prep_link *l, const struct prep_link *twin, int64_t want)
{
	if (l->mtu == want) {
		prep_say(d, check, PREP_V_PASS, l->name, "mtu %u", l->mtu);
		return;
	}
	struct prep_verdict *v;
	if (twin == NULL)
		v = prep_say(d, check, PREP_V_FINDING, l->name, "mtu %u, the config says %" PRId64,
			     l->mtu, want);
	else
		v = prep_say(d, check, PREP_V_FINDING, l->name, "mtu %u, its twin %s has %" PRId64,
			     l->mtu, twin->name, want);
	prep_evidence(v, "mtu", FROM_LINK, "%u", l->mtu);
	if (twin != NULL)
		prep_evidence(v, twin->name, FROM_LINK, "%u", twin->mtu);
	v->fixed_by_apply = apply_does(d, l->name, PREP_OP_LINK_MTU);
	need_config(d, v);
}

void prep_check_mtu(struct prep_doctor *d, const struct prep_check *check)
{
	if (no_fabric(d, check))
		return;
	const struct prep_host *h = d->host;
	bool any = false;
	for (int i = 0; d->plan != NULL && i < d->plan->n_rail; i++) {
		judge_mtu(d, check, prep_host_link(h, d->plan->rail[i].ifname), NULL, d->conf->mtu);
		any = true;
	}
	/* Without a plan the twins of a cage in use are held against each other. */
	for (int cage = 0; d->plan == NULL && cage < 2; cage++) {
		const struct prep_link *a = prep_host_rail(h, cage, 0);
		const struct prep_link *b = prep_host_rail(h, cage, 1);
		bool used = cage_has_carrier(h, cage) || cage_has_address(h, cage);
		if (!used || a == NULL || b == NULL)
			continue;
		judge_mtu(d, check, b, a, a->mtu);
		any = true;
	}
	if (!any)
		prep_say(d, check, PREP_V_NOT_APPLICABLE, "node",
			 "no cage with both twins is in use");
}
