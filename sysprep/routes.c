/*
 * routes.c - remembers and restores the IPv4 routes that go together with an address.
 */
#include "routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* One route as the kernel tells it. */
struct seen {
	struct prep_op_route r;
	int oif;
	bool beyond_us; /* has attributes that we could not restore */
};

static void get(const struct nlattr *attrs, int len, int type, void *to)
{
	const struct nlattr *a = nla_find(attrs, len, type);
	if (a != NULL && nla_len(a) >= 4)
		memcpy(to, nla_data(a), 4);
}

/* Return: whether @n is a unicast IPv4 route that somebody configured. */
static bool read_route(const struct nlmsghdr *n, struct seen *s)
{
	static const int beyond[] = { RTA_MULTIPATH, RTA_METRICS, RTA_VIA,
				      RTA_ENCAP,     RTA_NH_ID,	  RTA_FLOW };
	if (n->nlmsg_type != RTM_NEWROUTE || nlmsg_datalen(n) < (int)sizeof(struct rtmsg))
		return false;
	const struct rtmsg *m = nlmsg_data(n);
	const struct nlattr *attrs = nlmsg_attrdata(n, sizeof(*m));
	int len = nlmsg_attrlen(n, sizeof(*m));
	*s = (struct seen){ .r = { .table = m->rtm_table,
				   .onlink = (m->rtm_flags & RTNH_F_ONLINK) != 0,
				   .dst_len = m->rtm_dst_len,
				   .scope = m->rtm_scope,
				   .protocol = m->rtm_protocol,
				   .tos = m->rtm_tos } };
	get(attrs, len, RTA_TABLE, &s->r.table);
	get(attrs, len, RTA_OIF, &s->oif);
	get(attrs, len, RTA_PRIORITY, &s->r.metric);
	get(attrs, len, RTA_DST, &s->r.dst);
	get(attrs, len, RTA_GATEWAY, &s->r.gateway);
	get(attrs, len, RTA_PREFSRC, &s->r.prefsrc);
	for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
		s->beyond_us |= nla_find(attrs, len, beyond[i]) != NULL;
	/* Of several next hops any may be ours. */
	const struct nlattr *hops = nla_find(attrs, len, RTA_MULTIPATH);
	for (const struct rtnexthop *h = hops != NULL ? nla_data(hops) : NULL;
	     h != NULL &&
	     RTNH_OK(h, nla_len(hops) - ((const char *)h - (const char *)nla_data(hops)));
	     h = RTNH_NEXT(h))
		s->oif = s->oif != 0 ? s->oif : h->rtnh_ifindex;
	return m->rtm_family == AF_INET && m->rtm_type == RTN_UNICAST &&
	       s->r.table != RT_TABLE_LOCAL && !(m->rtm_flags & RTM_F_CLONED);
}

static int dump(struct prep_nl *nl, void (*reset)(void *arg),
		int (*fn)(const struct nlmsghdr *n, void *arg, struct ds_err *err), void *arg,
		struct ds_err *err)
{
	struct rtmsg req = { .rtm_family = AF_INET };
	return prep_nl_dump(nl, RTM_GETROUTE, &req, sizeof(req), reset, fn, arg, err);
}

static void forget(void *arg)
{
	((struct prep_op *)arg)->n_route = 0;
}

static int keep_one(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	struct prep_op *op = arg;
	struct seen s;
	if (!read_route(n, &s) || s.oif != op->ifindex)
		return 0;
	if (!s.beyond_us && op->n_route < PREP_OP_ROUTES_MAX) {
		op->route[op->n_route++] = s.r;
		return 0;
	}
	char dst[INET_ADDRSTRLEN];
	ds_err_set(err, DS_ERR_HOST, 0, op->ifname, "remove an address");
	ds_err_why(err, "the route to %s/%u would go with it, and undo could not restore it",
		   inet_ntop(AF_INET, &s.r.dst, dst, sizeof(dst)), s.r.dst_len);
	return ds_err_fix(err, "take it away first: ip route del %s/%u dev %s", dst, s.r.dst_len,
			  op->ifname);
}

int prep_routes_keep(struct prep_nl *nl, struct prep_op *op, struct ds_err *err)
{
	return dump(nl, forget, keep_one, op, err);
}

struct search {
	const struct prep_op *op;
	bool there[PREP_OP_ROUTES_MAX];
};

static void search_again(void *arg)
{
	struct search *s = arg;
	*s = (struct search){ .op = s->op };
}

/* What makes two routes the same place in the table, whoever wrote them. */
static int search_one(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	struct search *s = arg;
	struct seen x;
	(void)err;
	if (!read_route(n, &x))
		return 0;
	for (int i = 0; i < s->op->n_route; i++) {
		const struct prep_op_route *r = &s->op->route[i];
		s->there[i] |= r->table == x.r.table && r->metric == x.r.metric &&
			       r->tos == x.r.tos && r->dst_len == x.r.dst_len &&
			       r->dst.s_addr == x.r.dst.s_addr;
	}
	return 0;
}

int prep_routes_missing(struct prep_nl *nl, const struct prep_op *op, struct ds_err *err)
{
	struct search s = { .op = op };
	int n = 0;
	if (op->n_route == 0)
		return 0;
	if (dump(nl, search_again, search_one, &s, err) != 0)
		return -1;
	for (int i = 0; i < op->n_route; i++)
		n += !s.there[i];
	return n;
}

static int add_route(struct prep_nl *power, const struct prep_op *op, const struct prep_op_route *r,
		     struct ds_err *err)
{
	struct rtmsg m = { .rtm_family = AF_INET,
			   .rtm_dst_len = r->dst_len,
			   .rtm_tos = r->tos,
			   .rtm_protocol = r->protocol,
			   .rtm_scope = r->scope,
			   .rtm_type = RTN_UNICAST,
			   .rtm_flags = r->onlink ? RTNH_F_ONLINK : 0 };
	char dst[INET_ADDRSTRLEN], what[64];
	snprintf(what, sizeof(what), "restore route %s/%u",
		 inet_ntop(AF_INET, &r->dst, dst, sizeof(dst)), r->dst_len);
	struct nl_msg *msg = nlmsg_alloc_simple(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
	int rc = -1;
	if (msg == NULL || nlmsg_append(msg, &m, sizeof(m), NLMSG_ALIGNTO) < 0 ||
	    nla_put_u32(msg, RTA_TABLE, r->table) < 0 ||
	    nla_put_u32(msg, RTA_OIF, (uint32_t)op->ifindex) < 0 ||
	    (r->dst_len != 0 && nla_put(msg, RTA_DST, 4, &r->dst) < 0) ||
	    (r->gateway.s_addr != 0 && nla_put(msg, RTA_GATEWAY, 4, &r->gateway) < 0) ||
	    (r->prefsrc.s_addr != 0 && nla_put(msg, RTA_PREFSRC, 4, &r->prefsrc) < 0) ||
	    (r->metric != 0 && nla_put_u32(msg, RTA_PRIORITY, r->metric) < 0))
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, op->ifname, "%s", what);
	else
		rc = prep_nl_change(power, msg, op->ifname, what, err);
	nlmsg_free(msg);
	return rc;
}

int prep_routes_restore(struct prep_nl *nl, struct prep_nl *power, const struct prep_op *op,
			struct ds_err *err)
{
	struct search s = { .op = op };
	if (op->n_route == 0)
		return 0;
	if (dump(nl, search_again, search_one, &s, err) != 0)
		return -1;
	/* A gateway must be reachable when its route is added. */
	for (int with_gateway = 0; with_gateway < 2; with_gateway++)
		for (int i = 0; i < op->n_route; i++)
			if (!s.there[i] && (op->route[i].gateway.s_addr != 0) == with_gateway &&
			    add_route(power, op, &op->route[i], err) != 0)
				return -1;
	return 0;
}
