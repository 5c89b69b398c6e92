/*
 * nl.c - one rtnetlink socket: opens it with the options that make the kernel say why, runs dumps
 * to a consistent end, and turns acknowledgements into the error object. It knows no attributes.
 */
#include "nl.h"

#include <errno.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define NL_RECV_BYTES	  65536 /* a link with all its attributes is a few kB */
#define NL_DUMP_TRIES_MAX 10

void prep_nl_close(struct prep_nl *nl)
{
	if (nl->sk != NULL)
		nl_socket_free(nl->sk);
	*nl = (struct prep_nl){ 0 };
}

static int set_option(int fd, int option, const char *name, struct ds_err *err)
{
	int one = 1;
	if (setsockopt(fd, SOL_NETLINK, option, &one, sizeof(one)) != 0)
		return ds_err_set(err, DS_ERR_HOST, errno, name, "set netlink socket option");
	return 0;
}

int prep_nl_open(struct prep_nl *nl, struct ds_err *err)
{
	*nl = (struct prep_nl){ .sk = nl_socket_alloc() };
	if (nl->sk == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "rtnetlink", "open");
	int rc = nl_connect(nl->sk, NETLINK_ROUTE);
	if (rc < 0) {
		ds_err_set(err, DS_ERR_HOST, 0, "rtnetlink", "open");
		ds_err_why(err, "%s", nl_geterror(rc));
		goto close;
	}
	int fd = nl_socket_get_fd(nl->sk);
	if (set_option(fd, NETLINK_EXT_ACK, "NETLINK_EXT_ACK", err) != 0 ||
	    set_option(fd, NETLINK_CAP_ACK, "NETLINK_CAP_ACK", err) != 0 ||
	    set_option(fd, NETLINK_GET_STRICT_CHK, "NETLINK_GET_STRICT_CHK", err) != 0)
		goto close;
	nl_socket_set_msg_buf_size(nl->sk, NL_RECV_BYTES);
	return 0;
close:
	prep_nl_close(nl);
	return -1;
}

/* ----------------------------- answers -----------------------------
 * libnl stops reading at the first callback that says so and would leave the rest of a dump in the
 * socket. So callbacks never stop early: they remember the first failure and let the rest pass. */
struct answer {
	struct prep_nl *nl;
	int kernel_errno; /* from an error message or a DONE with a code */
	bool interrupted;
	int (*fn)(const struct nlmsghdr *n, void *arg, struct ds_err *err);
	void *arg;
	struct ds_err *err;
	bool failed; /* fn said no; err is filled */
};

static void keep_extack(struct prep_nl *nl, const struct nlattr *attrs, int len)
{
	const struct nlattr *msg = nla_find(attrs, len, NLMSGERR_ATTR_MSG);
	if (msg == NULL)
		return;
	int n = nla_len(msg);
	snprintf(nl->extack, sizeof(nl->extack), "%.*s", n, (const char *)nla_data(msg));
}

static int on_error(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg)
{
	struct answer *a = arg;
	(void)from;
	a->kernel_errno = -e->error;
	const struct nlmsghdr *outer =
		(const struct nlmsghdr *)(const void *)((const char *)e - NLMSG_HDRLEN);
	/* Behind the error: the request's header, its payload unless capped, then attributes. */
	size_t skip = sizeof(*e);
	if (!(outer->nlmsg_flags & NLM_F_CAPPED) && e->msg.nlmsg_len > NLMSG_HDRLEN)
		skip += NLMSG_ALIGN(e->msg.nlmsg_len) - NLMSG_HDRLEN;
	size_t have = outer->nlmsg_len > NLMSG_HDRLEN ? outer->nlmsg_len - NLMSG_HDRLEN : 0;
	if ((outer->nlmsg_flags & NLM_F_ACK_TLVS) && have > skip)
		keep_extack(a->nl, (const struct nlattr *)(const void *)((const char *)e + skip),
			    (int)(have - skip));
	return NL_STOP;
}

static int on_finish(struct nl_msg *msg, void *arg)
{
	struct answer *a = arg;
	const struct nlmsghdr *n = nlmsg_hdr(msg);
	int code = 0;
	if (nlmsg_datalen(n) >= (int)sizeof(code))
		memcpy(&code, nlmsg_data(n), sizeof(code));
	if (code < 0) {
		a->kernel_errno = -code;
		if (n->nlmsg_flags & NLM_F_ACK_TLVS)
			keep_extack(a->nl,
				    (const struct nlattr *)(const void *)((char *)nlmsg_data(n) +
									  sizeof(code)),
				    nlmsg_datalen(n) - (int)sizeof(code));
	}
	return NL_OK;
}

static int on_interrupted(struct nl_msg *msg, void *arg)
{
	(void)msg;
	((struct answer *)arg)->interrupted = true;
	return NL_OK;
}

static int on_valid(struct nl_msg *msg, void *arg)
{
	struct answer *a = arg;
	/* Anybody may send to our port; only the kernel is port 0. */
	if (nlmsg_get_src(msg)->nl_pid != 0 || a->failed || a->fn == NULL)
		return NL_OK;
	if (a->fn(nlmsg_hdr(msg), a->arg, a->err) != 0)
		a->failed = true;
	return NL_OK;
}

static int on_ack(struct nl_msg *msg, void *arg)
{
	(void)msg;
	(void)arg;
	return NL_STOP;
}

/* Reads until the request is answered. @whole: until DONE; else until the acknowledgement. */
static int receive(struct answer *a, bool whole)
{
	struct nl_cb *cb = nl_cb_alloc(NL_CB_DEFAULT);
	if (cb == NULL)
		return -NLE_NOMEM;
	nl_cb_set(cb, NL_CB_VALID, NL_CB_CUSTOM, on_valid, a);
	nl_cb_set(cb, NL_CB_FINISH, NL_CB_CUSTOM, on_finish, a);
	nl_cb_set(cb, NL_CB_DUMP_INTR, NL_CB_CUSTOM, on_interrupted, a);
	if (!whole)
		nl_cb_set(cb, NL_CB_ACK, NL_CB_CUSTOM, on_ack, NULL);
	nl_cb_err(cb, NL_CB_CUSTOM, on_error, a);
	int rc = nl_recvmsgs(a->nl->sk, cb);
	nl_cb_put(cb);
	return rc;
}

static int refuse(const struct prep_nl *nl, int sys, const char *obj, const char *what,
		  struct ds_err *err)
{
	enum ds_err_kind kind = sys == EPERM || sys == EACCES ? DS_ERR_PERM : DS_ERR_HOST;
	ds_err_set(err, kind, sys, obj, "%s", what);
	if (err != NULL && nl->extack[0] != '\0') {
		size_t n = strlen(err->why);
		snprintf(err->why + n, sizeof(err->why) - n, " (kernel: %s)", nl->extack);
	}
	return -1;
}

static int dump_once(struct answer *a, int type, const void *hdr, size_t hdr_len,
		     struct ds_err *err)
{
	struct prep_nl *nl = a->nl;
	nl->extack[0] = '\0';
	/* libnl does not change what it is given; its prototype just lacks const. */
	union {
		const void *in;
		void *out;
	} h = { hdr };
	int rc = nl_send_simple(nl->sk, type, NLM_F_REQUEST | NLM_F_DUMP, h.out, hdr_len);
	if (rc >= 0)
		rc = receive(a, true);
	if (a->kernel_errno != 0)
		return refuse(nl, a->kernel_errno, "rtnetlink", "dump", err);
	if (rc < 0 && rc != -NLE_DUMP_INTR) {
		ds_err_set(err, DS_ERR_HOST, 0, "rtnetlink", "dump");
		return ds_err_why(err, "%s", nl_geterror(rc));
	}
	a->interrupted |= rc == -NLE_DUMP_INTR;
	return a->failed ? -1 : 0;
}

int prep_nl_dump(struct prep_nl *nl, int type, const void *hdr, size_t hdr_len,
		 void (*reset)(void *arg),
		 int (*fn)(const struct nlmsghdr *n, void *arg, struct ds_err *err), void *arg,
		 struct ds_err *err)
{
	for (int i = 0; i < NL_DUMP_TRIES_MAX; i++) {
		struct answer a = { .nl = nl, .fn = fn, .arg = arg, .err = err };
		if (reset != NULL)
			reset(arg);
		if (dump_once(&a, type, hdr, hdr_len, err) != 0)
			return -1;
		if (!a.interrupted)
			return 0;
	}
	ds_err_set(err, DS_ERR_HOST, EAGAIN, "rtnetlink", "dump");
	ds_err_why(err, "the network changed during each of %d readings", NL_DUMP_TRIES_MAX);
	return ds_err_fix(err, "find out what keeps changing it: ip monitor");
}

int prep_nl_change(struct prep_nl *nl, struct nl_msg *msg, const char *obj, const char *what,
		   struct ds_err *err)
{
	struct answer a = { .nl = nl, .err = err };
	nl->extack[0] = '\0';
	struct nlmsghdr *n = nlmsg_hdr(msg);
	n->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	int rc = nl_send_auto(nl->sk, msg);
	if (rc >= 0)
		rc = receive(&a, false);
	if (a.kernel_errno != 0)
		return refuse(nl, a.kernel_errno, obj, what, err);
	if (rc < 0) {
		ds_err_set(err, DS_ERR_HOST, 0, obj, "%s", what);
		return ds_err_why(err, "%s", nl_geterror(rc));
	}
	return 0;
}
