/*
 * hostreport.h - /run/dsprep/host.json as the engine believes it: untrusted input, checked.
 *
 * Written by `dsprep apply` (design.md 3.6). The engine uses it to name the paths to each peer.
 */
#ifndef ENG_HOSTREPORT_H
#define ENG_HOSTREPORT_H

#include <netinet/in.h>
#include <stdint.h>

#include "err.h"

#define HR_RAILS_MAX 16
#define HR_PEERS_MAX 15
#define HR_BYTES_MAX (64 * 1024)

struct hr_peer {
	uint32_t node;
	struct in_addr ipv4;
};

struct hr_rail {
	uint32_t rail, cage;
	char edge[16], netdev[16], ibdev[64]; /* "" = unknown */
	struct in_addr ipv4;
	uint32_t prefix, mtu;
	uint32_t n_peer;
	struct hr_peer peer[HR_PEERS_MAX];
};

struct host_report {
	uint32_t generation, node, nodes;
	char shape[16], release[64];
	uint32_t n_rail;
	struct hr_rail rail[HR_RAILS_MAX];
};

/** host_report_parse() - @text [len] from @file. Return: 0; -1 with DS_ERR_INPUT naming the field. */
int host_report_parse(const char *file, const char *text, size_t len, struct host_report *r,
		      struct ds_err *err);
/** host_report_read() - the same from a file. An absent file is DS_ERR_HOST with sys = ENOENT. */
int host_report_read(const char *file, struct host_report *r, struct ds_err *err);

#endif
