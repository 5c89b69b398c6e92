/*
 * ops.c - the closed table of operations and their argument checks.
 *
 * It owns every system call of dsprep that changes the host's network, and the report file. It
 * keeps no history: the journal's owner calls it step by step. Changes go out on a socket that is
 * opened inside the raised section, because the kernel also asks what its opener was allowed to.
 */
#include "ops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/magic.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "caps.h"
#include "file.h"
#include "report.h"
#include "routes.h"
#include "state.h"

/* Of linux/if_addr.h, in headers since Linux 5.18, which is also the oldest kernel we act on. */
#define IFA_PROTO_ATTR 11
#ifndef IFAPROT_KERNEL_LL
#define IFAPROT_KERNEL_LL 3
#endif

#define LINKLOCALS_MAX 64
#define DAD_WAIT_MS    4000
#define DAD_LOOK_MS    50

/* ------------------------------- looking ------------------------------- */

struct link_find {
	const struct prep_op *op;
	int named;	     /* index that the operation's name has now, 0 = none */
	bool found;	     /* the operation's index exists */
	char name[IFNAMSIZ]; /* its name now */
	unsigned int flags, mtu;
};

static void link_reset(void *arg)
{
	struct link_find *f = arg;
	*f = (struct link_find){ .op = f->op };
}

static int on_link(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	struct link_find *f = arg;
	(void)err;
	if (n->nlmsg_type != RTM_NEWLINK || nlmsg_datalen(n) < (int)sizeof(struct ifinfomsg))
		return 0;
	const struct ifinfomsg *i = nlmsg_data(n);
	const struct nlattr *attrs = nlmsg_attrdata(n, sizeof(*i));
	int len = nlmsg_attrlen(n, sizeof(*i));
	const struct nlattr *name = nla_find(attrs, len, IFLA_IFNAME);
	const struct nlattr *mtu = nla_find(attrs, len, IFLA_MTU);
	if (name == NULL || nla_len(name) < 1)
		return 0;
	if (strncmp(nla_data(name), f->op->ifname, (size_t)nla_len(name)) == 0)
		f->named = i->ifi_index;
	if (i->ifi_index != f->op->ifindex)
		return 0;
	f->found = true;
	f->flags = i->ifi_flags;
	snprintf(f->name, sizeof(f->name), "%.*s", nla_len(name), (const char *)nla_data(name));
	if (mtu != NULL && nla_len(mtu) >= 4)
		f->mtu = nla_get_u32(mtu);
	return 0;
}

static int find_link(struct prep_op_ctx *x, const struct prep_op *op, struct link_find *f,
		     struct ds_err *err)
{
	struct ifinfomsg req = { .ifi_family = AF_UNSPEC };
	*f = (struct link_find){ .op = op };
	return prep_nl_dump(&x->nl, RTM_GETLINK, &req, sizeof(req), link_reset, on_link, f, err);
}

/* The interface as an operation means it. Return: 1 it is there; 0 with @s filled; -1. */
static int here(struct prep_op_ctx *x, const struct prep_op *op, struct link_find *f,
		struct prep_op_state *s, struct ds_err *err)
{
	if (find_link(x, op, f, err) != 0)
		return -1;
	if (f->found && f->named == op->ifindex)
		return 1;
	s->now = f->found ? PREP_NOW_OTHER : PREP_NOW_GONE;
	if (f->found)
		snprintf(s->detail, sizeof(s->detail), "the interface is now called %s", f->name);
	else if (f->named != 0)
		snprintf(s->detail, sizeof(s->detail), "another interface has that name now");
	else
		snprintf(s->detail, sizeof(s->detail), "the interface is gone");
	return 0;
}

struct addr_find {
	const struct prep_op *op;
	bool exact;	   /* address and prefix */
	bool other;	   /* the address with another prefix */
	struct prep_op as; /* the exact one, in the fields of an address to restore */
	/* All IPv6 link-local addresses that the kernel made, for addr_gen_mode. */
	int n_ll;
	struct in6_addr ll[LINKLOCALS_MAX];
};

static void addr_reset(void *arg)
{
	struct addr_find *f = arg;
	*f = (struct addr_find){ .op = f->op };
}

/* Copies attribute @type into @to if it is there in full; else leaves @to as it is. */
static void keep_attr(const struct nlattr *attrs, int len, int type, void *to, size_t size)
{
	const struct nlattr *a = nla_find(attrs, len, type);
	if (a != NULL && nla_len(a) >= (int)size)
		memcpy(to, nla_data(a), size);
}

/* All that makes an address what it is, so that undo can add the very same again. */
static void keep_addr(struct prep_op *op, const struct ifaddrmsg *a, const struct nlattr *attrs,
		      int len)
{
	struct ifa_cacheinfo life = { .ifa_prefered = UINT32_MAX, .ifa_valid = UINT32_MAX };
	op->addr_scope = a->ifa_scope;
	op->addr_flags = a->ifa_flags;
	keep_attr(attrs, len, IFA_FLAGS, &op->addr_flags, sizeof(op->addr_flags));
	keep_attr(attrs, len, IFA_PROTO_ATTR, &op->addr_proto, sizeof(op->addr_proto));
	keep_attr(attrs, len, IFA_RT_PRIORITY, &op->addr_metric, sizeof(op->addr_metric));
	keep_attr(attrs, len, IFA_CACHEINFO, &life, sizeof(life));
	op->addr_lft[0] = life.ifa_prefered;
	op->addr_lft[1] = life.ifa_valid;
	if (a->ifa_family != AF_INET)
		return;
	keep_attr(attrs, len, IFA_ADDRESS, &op->addr_peer, sizeof(op->addr_peer));
	keep_attr(attrs, len, IFA_BROADCAST, &op->addr_brd, sizeof(op->addr_brd));
	const struct nlattr *label = nla_find(attrs, len, IFA_LABEL);
	if (label != NULL)
		snprintf(op->addr_label, sizeof(op->addr_label), "%.*s", nla_len(label),
			 (const char *)nla_data(label));
}

static int on_addr(const struct nlmsghdr *n, void *arg, struct ds_err *err)
{
	struct addr_find *f = arg;
	(void)err;
	if (n->nlmsg_type != RTM_NEWADDR || nlmsg_datalen(n) < (int)sizeof(struct ifaddrmsg))
		return 0;
	const struct ifaddrmsg *a = nlmsg_data(n);
	if ((int)a->ifa_index != f->op->ifindex)
		return 0;
	const struct nlattr *attrs = nlmsg_attrdata(n, sizeof(*a));
	int len = nlmsg_attrlen(n, sizeof(*a));
	const struct nlattr *local = nla_find(attrs, len, IFA_LOCAL);
	if (local == NULL)
		local = nla_find(attrs, len, IFA_ADDRESS);
	int bytes = a->ifa_family == AF_INET ? 4 : 16;
	if (local == NULL || nla_len(local) < bytes)
		return 0;
	uint8_t proto = 0;
	keep_attr(attrs, len, IFA_PROTO_ATTR, &proto, sizeof(proto));
	if (a->ifa_family == AF_INET6 && proto == IFAPROT_KERNEL_LL && f->n_ll < LINKLOCALS_MAX)
		memcpy(&f->ll[f->n_ll++], nla_data(local), 16);
	if (a->ifa_family != f->op->family ||
	    memcmp(nla_data(local), &f->op->addr, (size_t)bytes) != 0)
		return 0;
	if (a->ifa_prefixlen != f->op->prefix) {
		f->other = true;
		return 0;
	}
	f->exact = true;
	f->as = *f->op;
	keep_addr(&f->as, a, attrs, len);
	return 0;
}

static int find_addr(struct prep_op_ctx *x, const struct prep_op *op, int family,
		     struct addr_find *f, struct ds_err *err)
{
	struct ifaddrmsg req = { .ifa_family = (unsigned char)family,
				 .ifa_index = (unsigned int)op->ifindex };
	*f = (struct addr_find){ .op = op };
	return prep_nl_dump(&x->nl, RTM_GETADDR, &req, sizeof(req), addr_reset, on_addr, f, err);
}

static void compare(struct prep_op_state *s, const struct prep_op *op, int64_t seen,
		    const char *what)
{
	s->now = seen == op->value ? PREP_NOW_NEW : seen == op->old ? PREP_NOW_OLD : PREP_NOW_OTHER;
	snprintf(s->detail, sizeof(s->detail), "%s is %lld", what, (long long)seen);
}

/* ------------------------------- changing ------------------------------- */

static int send_change(const struct prep_op *op, struct nl_msg *msg, const char *what,
		       struct ds_err *err)
{
	struct prep_nl nl;
	if (prep_nl_open(&nl, err) != 0)
		return -1;
	int rc = prep_nl_change(&nl, msg, op->ifname, what, err);
	prep_nl_close(&nl);
	return rc;
}

/* RTM_NEWLINK with @i and, if @mtu is not 0, IFLA_MTU. */
static int change_link(const struct prep_op *op, struct ifinfomsg i, uint32_t mtu, const char *what,
		       struct ds_err *err)
{
	struct nl_msg *msg = nlmsg_alloc_simple(RTM_NEWLINK, 0);
	int rc = -1;
	i.ifi_index = op->ifindex;
	if (msg == NULL || nlmsg_append(msg, &i, sizeof(i), NLMSG_ALIGNTO) < 0 ||
	    (mtu != 0 && nla_put_u32(msg, IFLA_MTU, mtu) < 0))
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, op->ifname, "%s", what);
	else
		rc = send_change(op, msg, what, err);
	nlmsg_free(msg);
	return rc;
}

/* What an address is, beside itself and its prefix; a removal needs none of it. */
static int put_addr_rest(struct nl_msg *msg, const struct prep_op *op)
{
	uint32_t flags = op->addr_flags & (IFA_F_NOPREFIXROUTE | IFA_F_NODAD);
	struct ifa_cacheinfo life = { .ifa_prefered = op->addr_lft[0],
				      .ifa_valid = op->addr_lft[1] };
	int rc = 0;
	if (flags != 0)
		rc |= nla_put_u32(msg, IFA_FLAGS, flags);
	if (op->addr_proto != 0)
		rc |= nla_put_u8(msg, IFA_PROTO_ATTR, op->addr_proto);
	if (op->addr_metric != 0)
		rc |= nla_put_u32(msg, IFA_RT_PRIORITY, op->addr_metric);
	if (op->addr_lft[1] != 0 && op->addr_lft[1] != UINT32_MAX)
		rc |= nla_put(msg, IFA_CACHEINFO, sizeof(life), &life);
	if (op->addr_brd.s_addr != 0)
		rc |= nla_put(msg, IFA_BROADCAST, sizeof(op->addr_brd), &op->addr_brd);
	if (op->addr_label[0] != '\0')
		rc |= nla_put_string(msg, IFA_LABEL, op->addr_label);
	return rc;
}

/* @type: RTM_NEWADDR or RTM_DELADDR of the operation's address. */
static int change_addr(const struct prep_op *op, int type, const char *what, struct ds_err *err)
{
	bool add = type == RTM_NEWADDR;
	int bytes = op->family == AF_INET ? 4 : 16;
	const void *peer = op->addr_peer.s_addr != 0 ? (const void *)&op->addr_peer : &op->addr;
	struct ifaddrmsg a = { .ifa_family = op->family,
			       .ifa_prefixlen = op->prefix,
			       .ifa_scope = op->addr_scope,
			       .ifa_index = (unsigned int)op->ifindex };
	struct nl_msg *msg = nlmsg_alloc_simple(type, add ? NLM_F_CREATE | NLM_F_EXCL : 0);
	int rc = -1;
	if (msg == NULL || nlmsg_append(msg, &a, sizeof(a), NLMSG_ALIGNTO) < 0 ||
	    nla_put(msg, IFA_LOCAL, bytes, &op->addr) < 0 ||
	    nla_put(msg, IFA_ADDRESS, bytes, peer) < 0 || (add && put_addr_rest(msg, op) < 0))
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, op->ifname, "%s", what);
	else
		rc = send_change(op, msg, what, err);
	nlmsg_free(msg);
	return rc;
}

static const char *addr_text(const struct prep_op *op, char *buf, size_t size)
{
	char a[INET6_ADDRSTRLEN];
	inet_ntop(op->family, &op->addr, a, sizeof(a));
	snprintf(buf, size, "%s/%u", a, op->prefix);
	return buf;
}

/* ------------------------------- link up ------------------------------- */

static int up_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
		      struct ds_err *err)
{
	struct link_find f;
	int rc = here(x, op, &f, s, err);
	if (rc != 1)
		return rc;
	s->now = f.flags & IFF_UP ? PREP_NOW_NEW : PREP_NOW_OLD;
	snprintf(s->detail, sizeof(s->detail), "the link is %s", f.flags & IFF_UP ? "up" : "down");
	return 0;
}

static int up_act(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)x;
	return change_link(op, (struct ifinfomsg){ .ifi_flags = IFF_UP, .ifi_change = IFF_UP }, 0,
			   "set link up", err);
}

static int up_back(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)x;
	return change_link(op, (struct ifinfomsg){ .ifi_change = IFF_UP }, 0, "set link down", err);
}

/* ------------------------------- MTU ------------------------------- */

static int mtu_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
		       struct ds_err *err)
{
	struct link_find f;
	int rc = here(x, op, &f, s, err);
	if (rc != 1)
		return rc;
	compare(s, op, f.mtu, "mtu");
	return 0;
}

static int mtu_set(const struct prep_op *op, int64_t mtu, struct ds_err *err)
{
	char what[48];
	snprintf(what, sizeof(what), "set link mtu %lld", (long long)mtu);
	int rc = change_link(op, (struct ifinfomsg){ 0 }, (uint32_t)mtu, what, err);
	if (rc != 0 && err->sys == EINVAL)
		ds_err_fix(err, "compare maxmtu in: ip -d link show %s", op->ifname);
	return rc;
}

static int mtu_act(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)x;
	return mtu_set(op, op->value, err);
}

static int mtu_back(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)x;
	return mtu_set(op, op->old, err);
}

/* ------------------------------- addresses ------------------------------- */

/* @have: state when the exact address is there, @lack: when it is not. */
static int addr_observe(struct prep_op_ctx *x, const struct prep_op *op, enum prep_op_now have,
			enum prep_op_now lack, struct prep_op_state *s, struct addr_find *a,
			struct ds_err *err)
{
	struct link_find f;
	int rc = here(x, op, &f, s, err);
	if (rc != 1)
		return rc;
	if (find_addr(x, op, op->family, a, err) != 0)
		return -1;
	char text[64];
	addr_text(op, text, sizeof(text));
	s->now = a->exact ? have : lack;
	snprintf(s->detail, sizeof(s->detail), "%s is %sthere", text, a->exact ? "" : "not ");
	return 0;
}

static int add_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
		       struct ds_err *err)
{
	struct addr_find a = { 0 };
	if (addr_observe(x, op, PREP_NOW_NEW, PREP_NOW_OLD, s, &a, err) != 0)
		return -1;
	char text[64];
	addr_text(op, text, sizeof(text));
	bool foreign = a.exact && a.as.addr_proto != PREP_IFA_PROTO;
	if (!foreign && !a.other)
		return 0;
	s->now = PREP_NOW_OTHER;
	snprintf(s->detail, sizeof(s->detail), "%s %s", text,
		 foreign ? "was added by somebody else" : "is there with another prefix");
	return 0;
}

static int add_act(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)x;
	char text[64], what[80];
	struct prep_op ours = *op;
	ours.addr_proto = PREP_IFA_PROTO;
	snprintf(what, sizeof(what), "add address %s", addr_text(op, text, sizeof(text)));
	return change_addr(&ours, RTM_NEWADDR, what, err);
}

static int addr_remove(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)x;
	char text[64], what[80];
	snprintf(what, sizeof(what), "remove address %s", addr_text(op, text, sizeof(text)));
	return change_addr(op, RTM_DELADDR, what, err);
}

/* The routes that went with the address belong to the state before. */
static int del_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
		       struct ds_err *err)
{
	struct addr_find a = { 0 };
	if (addr_observe(x, op, PREP_NOW_OLD, PREP_NOW_NEW, s, &a, err) != 0)
		return -1;
	int missing = s->now == PREP_NOW_OLD ? prep_routes_missing(&x->nl, op, err) : 0;
	if (missing > 0) {
		s->now = PREP_NOW_NEW;
		snprintf(s->detail, sizeof(s->detail), "%d of its routes are not there", missing);
	}
	return missing < 0 ? -1 : 0;
}

static int del_back(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	char text[64], what[80];
	struct addr_find a;
	struct prep_nl power;
	snprintf(what, sizeof(what), "restore address %s", addr_text(op, text, sizeof(text)));
	if (find_addr(x, op, op->family, &a, err) != 0 ||
	    (!a.exact && change_addr(op, RTM_NEWADDR, what, err) != 0))
		return -1;
	if (op->n_route == 0)
		return 0;
	if (prep_nl_open(&power, err) != 0)
		return -1;
	int rc = prep_routes_restore(&x->nl, &power, op, err);
	prep_nl_close(&power);
	return rc;
}

/* ------------------------------- sysctl ------------------------------- */

static const char *sysctl_path(const struct prep_op *op, char *buf, size_t size)
{
	const struct prep_sysctl_row *r = &prep_sysctls[op->sysctl];
	snprintf(buf, size, "/proc/sys/net/%s/conf/%s/%s", r->family, op->ifname, r->key);
	return buf;
}

static int sysctl_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
			  struct ds_err *err)
{
	struct link_find f;
	int rc = here(x, op, &f, s, err);
	if (rc != 1)
		return rc;
	char path[128], text[32];
	int e = prep_read_line(x->access, sysctl_path(op, path, sizeof(path)), text, sizeof(text));
	if (e == ENOENT) {
		s->now = PREP_NOW_GONE;
		snprintf(s->detail, sizeof(s->detail), "the kernel has no such setting now");
		return 0;
	}
	char *end;
	errno = e;
	long v = e == 0 ? strtol(text, &end, 10) : 0;
	if (e != 0 || end == text || *end != '\0')
		return ds_err_set(err, DS_ERR_HOST, e, path, "read sysctl");
	compare(s, op, v, prep_sysctls[op->sysctl].key);
	return 0;
}

static int sysctl_write(const struct prep_op *op, int64_t value, struct ds_err *err)
{
	char path[128], text[24];
	int len = snprintf(text, sizeof(text), "%lld\n", (long long)value);
	int fd = open(sysctl_path(op, path, sizeof(path)), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return ds_err_set(err, DS_ERR_HOST, errno, path, "open sysctl");
	struct statfs fs;
	int rc = -1;
	if (fstatfs(fd, &fs) != 0 || fs.f_type != PROC_SUPER_MAGIC) {
		ds_err_set(err, DS_ERR_HOST, 0, path, "write sysctl");
		ds_err_why(err, "/proc/sys is not the kernel's");
	} else if (write(fd, text, (size_t)len) != len) {
		ds_err_set(err, errno == EPERM || errno == EACCES ? DS_ERR_PERM : DS_ERR_HOST,
			   errno, path, "write sysctl %lld", (long long)value);
	} else {
		rc = 0;
	}
	close(fd);
	return rc;
}

static int sysctl_act(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)x;
	return sysctl_write(op, op->value, err);
}

/* Removes the kernel-made link-local addresses of @now that are not in @keep. */
static int remove_born(struct prep_op_ctx *x, const struct prep_op *op, const struct addr_find *now,
		       const struct addr_find *keep, struct ds_err *err)
{
	for (int i = 0; i < now->n_ll; i++) {
		bool known = false;
		for (int k = 0; k < keep->n_ll; k++)
			known |= memcmp(&now->ll[i], &keep->ll[k], 16) == 0;
		struct prep_op born = { .kind = PREP_OP_ADDR_DEL,
					.ifindex = op->ifindex,
					.family = AF_INET6,
					.prefix = 64,
					.addr = now->ll[i] };
		memcpy(born.ifname, op->ifname, sizeof(born.ifname));
		if (!known && addr_remove(x, &born, err) != 0)
			return -1;
	}
	return 0;
}

/*
 * Writing addr_gen_mode makes the kernel add a link-local address at once, even to a link that is
 * down. If there was none before our undo, there must be none after it.
 */
static int gen_mode_back(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	struct addr_find before, after;
	if (find_addr(x, op, AF_INET6, &before, err) != 0 || sysctl_write(op, op->old, err) != 0 ||
	    find_addr(x, op, AF_INET6, &after, err) != 0)
		return -1;
	return remove_born(x, op, &after, &before, err);
}

/*
 * An undo that ended between that write and that removal left the address. A link that is down has
 * none by itself, so there it is recognised.
 */
static int gen_mode_sweep(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	const struct addr_find none = { 0 };
	struct addr_find now;
	struct link_find f;
	if (find_link(x, op, &f, err) != 0 || find_addr(x, op, AF_INET6, &now, err) != 0)
		return -1;
	return f.flags & IFF_UP ? 0 : remove_born(x, op, &now, &none, err);
}

static int sysctl_back(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	if (op->sysctl == PREP_SC_ADDR_GEN_MODE)
		return gen_mode_back(x, op, err);
	return sysctl_write(op, op->old, err);
}

/* ------------------------------- host report ------------------------------- */

int64_t prep_op_report_digest(const char *text, size_t len)
{
	return (int64_t)len << 32 | ds_crc32c(0, text, len);
}

static int report_read(struct prep_op_ctx *x, struct ds_buf *b, int64_t *digest, struct ds_err *err)
{
	int fd = prep_state_run(x->access, err);
	if (fd < 0)
		return -1;
	struct ds_err e = { 0 };
	int rc = ds_file_read(fd, "host.json", O_NOFOLLOW, PREP_REPORT_BYTES_MAX, b, &e);
	close(fd);
	if (rc == 0) {
		*digest = prep_op_report_digest(b->data, b->len);
		return 0;
	}
	*digest = -1;
	if (e.sys == ENOENT)
		return 0;
	if (err != NULL)
		*err = e;
	return -1;
}

static int report_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
			  struct ds_err *err)
{
	struct ds_buf b = { 0 };
	int64_t digest;
	int rc = report_read(x, &b, &digest, err);
	ds_buf_fini(&b);
	if (rc != 0)
		return -1;
	s->now = digest == op->value ? PREP_NOW_NEW
		 : digest == op->old ? PREP_NOW_OLD
		 : digest == -1	     ? PREP_NOW_GONE
				     : PREP_NOW_OTHER;
	snprintf(s->detail, sizeof(s->detail), "%s %s", PREP_REPORT_FILE,
		 digest == -1 ? "is not there" : "has other content");
	return 0;
}

static void save_name(const struct prep_op_ctx *x, char *buf, size_t size)
{
	snprintf(buf, size, "host.json.%u", x->save_index);
}

static int report_act(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	(void)op;
	int fd = prep_state_run(x->access, err);
	if (fd < 0)
		return -1;
	int rc = ds_file_write(fd, "host.json", 0644, x->report->data, x->report->len, err);
	close(fd);
	return rc;
}

static int report_restore(struct prep_op_ctx *x, const struct prep_op *op, int run_fd,
			  struct ds_err *err)
{
	char name[32];
	struct ds_buf b = { 0 };
	save_name(x, name, sizeof(name));
	int rc = ds_file_read(x->save_fd, name, O_NOFOLLOW, PREP_REPORT_BYTES_MAX, &b, err);
	if (rc == 0 && prep_op_report_digest(b.data, b.len) != op->old) {
		ds_err_set(err, DS_ERR_INPUT, 0, name, "restore %s", PREP_REPORT_FILE);
		rc = ds_err_why(err, "the copy in the journal is damaged");
		ds_err_fix(err, "remove %s by hand; the next apply writes it", PREP_REPORT_FILE);
	}
	if (rc == 0)
		rc = ds_file_write(run_fd, "host.json", 0644, b.data, b.len, err);
	ds_buf_fini(&b);
	return rc;
}

static int report_back(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	int fd = prep_state_run(x->access, err);
	if (fd < 0)
		return -1;
	int rc = 0;
	if (op->old != -1 && !x->stale_report)
		rc = report_restore(x, op, fd, err);
	else if ((unlinkat(fd, "host.json", 0) != 0 && errno != ENOENT) || fsync(fd) != 0)
		rc = ds_err_set(err, DS_ERR_HOST, errno, PREP_REPORT_FILE, "remove");
	close(fd);
	return rc;
}

/* Before the intent: digests of the new text and the old, and a copy of the old for undo. */
static int report_prepare(struct prep_op_ctx *x, struct prep_op *op, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	if (report_read(x, &b, &op->old, err) != 0) {
		ds_buf_fini(&b);
		return -1;
	}
	op->value = prep_op_report_digest(x->report->data, x->report->len);
	char name[32];
	save_name(x, name, sizeof(name));
	int rc = 0;
	if (op->old != -1)
		rc = ds_file_write(x->save_fd, name, 0600, b.data, b.len, err);
	ds_buf_fini(&b);
	return rc;
}

/* ------------------------------- the table ------------------------------- */

/* clang-format off */
static const struct prep_op_row rows[] = {
	{ PREP_OP_LINK_UP, "link-up", CAP_NET_ADMIN, up_observe, up_act, up_back,
	  "Set a rail's link administratively up. Undo sets it down again." },
	{ PREP_OP_LINK_MTU, "link-mtu", CAP_NET_ADMIN, mtu_observe, mtu_act, mtu_back,
	  "Set a rail's MTU. Undo sets the MTU that was observed before." },
	{ PREP_OP_ADDR_ADD, "address-add", CAP_NET_ADMIN, add_observe, add_act, addr_remove,
	  "Add the planned IPv4 address to a rail, marked with protocol 0xd5. "
	  "Undo removes it, and only if it carries that mark." },
	{ PREP_OP_ADDR_DEL, "address-remove", CAP_NET_ADMIN, del_observe, addr_remove, del_back,
	  "Remove from a rail an IPv4 address that is not the planned one, or the link-local address "
	  "that the kernel made, so that its GIDs keep their places. "
	  "Undo adds it again and waits until it is usable." },
	/* /proc/sys asks for the owner or CAP_NET_ADMIN; addr_gen_mode's undo may remove an address. */
	{ PREP_OP_SYSCTL, "sysctl", CAP_NET_ADMIN, sysctl_observe, sysctl_act, sysctl_back,
	  "Set one of a rail's own sysctls (never a global one). Undo writes the value from before." },
	{ PREP_OP_HOST_REPORT, "host-report", PREP_CAP_NONE, report_observe, report_act, report_back,
	  "Write /run/dsprep/host.json. Undo restores the one from before, or removes it." },
};
/* clang-format on */

const struct prep_op_row *prep_op_rows(size_t *n)
{
	*n = sizeof(rows) / sizeof(rows[0]);
	return rows;
}

const struct prep_op_row *prep_op_row(int kind)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((int)rows[i].kind == kind)
			return &rows[i];
	return NULL;
}

/* ------------------------------- argument checks ------------------------------- */

static int bad(struct ds_err *err, const char *obj, const char *why)
{
	ds_err_set(err, DS_ERR_INPUT, 0, obj, "check an operation");
	return ds_err_why(err, "%s", why);
}

/* A path and a message are built from it: what the kernel would not accept is not a name. A label
 * may hold a colon (@also). */
static bool good_ifname(const char *s, char also)
{
	if (memchr(s, '\0', IFNAMSIZ) == NULL || s[0] == '\0' || strcmp(s, ".") == 0 ||
	    strcmp(s, "..") == 0 || strcmp(s, "all") == 0 || strcmp(s, "default") == 0)
		return false;
	for (; *s != '\0'; s++)
		if (*s == '/' || (*s == ':' && also != ':') || *s <= ' ' || *s == 0x7f)
			return false;
	return true;
}

static int check_addr(const struct prep_op *op, struct ds_err *err)
{
	if (op->n_route < 0 || op->n_route > PREP_OP_ROUTES_MAX)
		return bad(err, op->ifname, "number of routes");
	for (int i = 0; i < op->n_route; i++)
		if (op->route[i].dst_len > 32)
			return bad(err, op->ifname, "destination of a route");
	if (op->addr_label[0] != '\0' && !good_ifname(op->addr_label, ':'))
		return bad(err, op->ifname, "address label");
	uint32_t v4;
	memcpy(&v4, &op->addr, sizeof(v4));
	v4 = ntohl(v4);
	if (op->family == AF_INET) {
		if (op->prefix < 8 || op->prefix > 32)
			return bad(err, op->ifname, "IPv4 prefix outside 8..32");
		if (v4 >> 24 == 0 || v4 >> 24 == 127 || v4 >> 28 >= 0xe)
			return bad(err, op->ifname, "not a unicast IPv4 address");
		return 0;
	}
	if (op->family != AF_INET6 || op->kind != PREP_OP_ADDR_DEL)
		return bad(err, op->ifname, "address family");
	if (!IN6_IS_ADDR_LINKLOCAL(&op->addr) || op->prefix != 64)
		return bad(err, op->ifname, "not an IPv6 link-local address");
	return 0;
}

int prep_op_check(const struct prep_op *op, struct ds_err *err)
{
	if (prep_op_row((int)op->kind) == NULL)
		return bad(err, NULL, "unknown kind");
	if (op->kind == PREP_OP_HOST_REPORT)
		return 0;
	if (!good_ifname(op->ifname, '\0'))
		return bad(err, NULL, "interface name");
	if (op->ifindex <= 1)
		return bad(err, op->ifname, "interface index (1 is the loopback)");
	switch (op->kind) {
	case PREP_OP_LINK_MTU:
		if (op->value < 68 || op->value > 65535 || op->old < 68 || op->old > INT32_MAX)
			return bad(err, op->ifname, "MTU outside 68..65535");
		return 0;
	case PREP_OP_SYSCTL:
		if (op->sysctl < 0 || op->sysctl >= PREP_SC_N)
			return bad(err, op->ifname, "unknown sysctl");
		if (op->value < 0 || op->value > 255 || op->old < 0 || op->old > INT32_MAX)
			return bad(err, op->ifname, "sysctl value out of bounds");
		return 0;
	case PREP_OP_ADDR_ADD:
	case PREP_OP_ADDR_DEL:
		return check_addr(op, err);
	default:
		return 0;
	}
}

static int check_management(const struct prep_op_ctx *x, const struct prep_op *op,
			    struct ds_err *err)
{
	if (op->kind == PREP_OP_HOST_REPORT)
		return 0;
	if (strcmp(op->ifname, x->management) != 0 &&
	    (x->management_ifindex == 0 || op->ifindex != x->management_ifindex))
		return 0;
	return bad(err, op->ifname, "it is the management interface, which is never touched");
}

/* ------------------------------- running one ------------------------------- */

int prep_op_ctx_init(struct prep_op_ctx *x, struct prep_access *a, const char *management,
		     struct ds_err *err)
{
	*x = (struct prep_op_ctx){ .access = a, .save_fd = -1 };
	snprintf(x->management, sizeof(x->management), "%s", management);
	if (prep_nl_open(&x->nl, err) != 0)
		return -1;
	if (management[0] == '\0')
		return 0;
	struct prep_op op = { 0 };
	struct link_find f;
	memcpy(op.ifname, x->management, sizeof(op.ifname));
	if (find_link(x, &op, &f, err) != 0) {
		prep_nl_close(&x->nl);
		return -1;
	}
	x->management_ifindex = f.named;
	return 0;
}

void prep_op_ctx_fini(struct prep_op_ctx *x)
{
	prep_nl_close(&x->nl);
}

int prep_op_observe(struct prep_op_ctx *x, const struct prep_op *op, struct prep_op_state *s,
		    struct ds_err *err)
{
	*s = (struct prep_op_state){ 0 };
	if (prep_op_check(op, err) != 0)
		return -1;
	return prep_op_row((int)op->kind)->observe(x, op, s, err);
}

int prep_op_prepare(struct prep_op_ctx *x, struct prep_op *op, struct ds_err *err)
{
	if (op->kind == PREP_OP_HOST_REPORT)
		return report_prepare(x, op, err);
	struct prep_op_state s;
	if (prep_op_observe(x, op, &s, err) != 0 || check_management(x, op, err) != 0)
		return -1;
	if (s.now != PREP_NOW_OLD) {
		ds_err_set(err, DS_ERR_HOST, 0, op->ifname, "run the plan");
		ds_err_why(err, "changed since it was observed: %s", s.detail);
		return ds_err_fix(err, "find out what else configures it, then run it again");
	}
	if (op->kind != PREP_OP_ADDR_DEL)
		return 0;
	struct addr_find a;
	if (find_addr(x, op, op->family, &a, err) != 0)
		return -1;
	*op = a.as;
	return x->keep_routes ? prep_routes_keep(&x->nl, op, err) : 0;
}

/* Checks again, next to the system call, then runs @fn with the row's capability. */
static int run(struct prep_op_ctx *x, const struct prep_op *op,
	       int (*fn)(struct prep_op_ctx *, const struct prep_op *, struct ds_err *), int cap,
	       struct ds_err *err)
{
	struct link_find f;
	struct prep_op_state s;
	if (prep_op_check(op, err) != 0 || check_management(x, op, err) != 0)
		return -1;
	int there = op->kind == PREP_OP_HOST_REPORT ? 1 : here(x, op, &f, &s, err);
	if (there < 0)
		return -1;
	if (there == 0) {
		ds_err_set(err, DS_ERR_HOST, 0, op->ifname, "run an operation");
		return ds_err_why(err, "%s", s.detail);
	}
	if (prep_caps_raise(cap, err) != 0)
		return -1;
	int rc = fn(x, op, err);
	prep_caps_lower();
	return rc;
}

int prep_op_do(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	const struct prep_op_row *r = prep_op_row((int)op->kind);
	return r == NULL ? prep_op_check(op, err) : run(x, op, r->act, r->cap, err);
}

static int expect(struct prep_op_ctx *x, const struct prep_op *op, enum prep_op_now want,
		  const char *what, struct ds_err *err)
{
	struct prep_op_state s;
	if (prep_op_observe(x, op, &s, err) != 0)
		return -1;
	if (s.now == want)
		return 0;
	char text[128];
	prep_op_text(op, text, sizeof(text));
	ds_err_set(err, DS_ERR_HOST, 0, op->ifname, "%s: %s", what, text);
	ds_err_why(err, "read back: %s", s.detail);
	return ds_err_fix(err, "find out what else configures it: ip monitor");
}

int prep_op_verify(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	return expect(x, op, PREP_NOW_NEW, "verify", err);
}

int prep_op_undo(struct prep_op_ctx *x, const struct prep_op *op, enum prep_undone *how,
		 struct prep_op_state *s, struct ds_err *err)
{
	if (prep_op_observe(x, op, s, err) != 0 || check_management(x, op, err) != 0)
		return -1;
	switch (s->now) {
	case PREP_NOW_OLD:
		*how = PREP_UNDONE_ALREADY;
		if (op->kind == PREP_OP_SYSCTL && op->sysctl == PREP_SC_ADDR_GEN_MODE)
			return run(x, op, gen_mode_sweep, CAP_NET_ADMIN, err);
		return 0;
	case PREP_NOW_GONE:
		*how = PREP_UNDONE_GONE;
		return 0;
	case PREP_NOW_OTHER:
		*how = PREP_UNDONE_LEFT;
		return 0;
	case PREP_NOW_NEW:
		break;
	}
	const struct prep_op_row *r = prep_op_row((int)op->kind);
	if (run(x, op, r->back, r->cap, err) != 0)
		return -1;
	*how = PREP_UNDONE_RESTORED;
	if (op->kind == PREP_OP_HOST_REPORT && x->stale_report)
		return 0; /* removed instead of restored: not as before, and meant so */
	return expect(x, op, PREP_NOW_OLD, "verify undo", err);
}

int prep_op_wait_usable(struct prep_op_ctx *x, const struct prep_op *op, struct ds_err *err)
{
	if (op->kind != PREP_OP_ADDR_DEL || op->family != AF_INET6 ||
	    (op->addr_flags & IFA_F_TENTATIVE))
		return 0;
	for (int i = 0; i < DAD_WAIT_MS / DAD_LOOK_MS; i++) {
		struct link_find f;
		struct addr_find a;
		if (find_link(x, op, &f, err) != 0 || find_addr(x, op, AF_INET6, &a, err) != 0)
			return -1;
		if (!a.exact || !(a.as.addr_flags & IFA_F_TENTATIVE) || !(f.flags & IFF_RUNNING))
			return 0;
		/* A signal may cut it short; the loop is bounded and looks again. */
		poll(NULL, 0, DAD_LOOK_MS);
	}
	return 0; /* still busy; the address is there, and that is what was asked for */
}
