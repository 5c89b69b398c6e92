/*
 * nl.h - one rtnetlink socket with the kernel's own words in our errors.
 *
 * Every socket has extended acknowledgements, capped acknowledgements and strict checking of dump
 * requests (host.md 4.1). A dump that the kernel marks as interrupted is repeated from its start.
 * The caller builds messages with libnl's nlmsg_* and nla_*; nothing here knows about links.
 */
#ifndef PREP_NL_H
#define PREP_NL_H

#include <linux/netlink.h>
#include <stddef.h>

#include "err.h"

struct nl_sock;
struct nl_msg;
struct prep_nl {
	struct nl_sock *sk; /* owned; NULL when closed */
	char extack[192];   /* the kernel's text for the last request, "" if there was none */
};

/** prep_nl_open() - connect to NETLINK_ROUTE. Threads: owner only. Return: 0; -1 DS_ERR_HOST. */
int prep_nl_open(struct prep_nl *nl, struct ds_err *err);
/** prep_nl_close() - safe on a zeroed or closed object. */
void prep_nl_close(struct prep_nl *nl);

/**
 * prep_nl_dump() - ask for all objects of a kind and hand each answer to @fn.
 * @type:  RTM_GETLINK, RTM_GETADDR, ...
 * @hdr:   the request's family header, @hdr_len bytes (struct ifinfomsg, ...); strict checking
 *         wants the exact one
 * @reset: called before each attempt, so that a repeated dump starts from nothing; may be NULL
 * @fn:    called once per message of the dump; non-zero stops reading its contents and makes the
 *         call fail with what @fn put into @err
 * Return: 0; -1 DS_ERR_HOST (also when ten dumps in a row were interrupted).
 */
int prep_nl_dump(struct prep_nl *nl, int type, const void *hdr, size_t hdr_len,
		 void (*reset)(void *arg),
		 int (*fn)(const struct nlmsghdr *n, void *arg, struct ds_err *err), void *arg,
		 struct ds_err *err);

/**
 * prep_nl_change() - send one change and wait for its acknowledgement.
 * @msg:  borrowed; NLM_F_REQUEST and NLM_F_ACK are added
 * @obj, @what: for the error: what = "set mtu 9000", obj = "enp1s0f0np0"
 * Return: 0; -1 with err->sys = the kernel's errno, kind DS_ERR_PERM for EPERM and EACCES, else
 * DS_ERR_HOST; `why` holds the errno's text and "(kernel: EXTACK)" when there is one.
 */
int prep_nl_change(struct prep_nl *nl, struct nl_msg *msg, const char *obj, const char *what,
		   struct ds_err *err);

#endif
