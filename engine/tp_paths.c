/*
 * tp_paths.c - from "rank.N = HOST:PORT" and the host report to peers and paths.
 */
#include "tp_paths.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad_addr(uint32_t rank, const char *text, struct ds_err *err, const char *why)
{
	ds_err_set(err, DS_ERR_USAGE, 0, text, "rank.%u", rank);
	ds_err_why(err, "%s", why);
	return ds_err_fix(err, "write rank.%u = HOST:PORT with an IPv4 address", rank);
}

static int parse_addr(uint32_t rank, const char *text, struct sockaddr_in *sa, struct ds_err *err)
{
	char host[256];
	const char *colon = strrchr(text, ':');
	size_t n = colon != NULL ? (size_t)(colon - text) : strlen(text);
	unsigned long port = TP_PORT_BASE + rank;
	if (n == 0 || n >= sizeof(host) || memchr(text, ':', n) != NULL)
		return bad_addr(rank, text, err, "this is not HOST:PORT");
	memcpy(host, text, n);
	host[n] = '\0';
	if (colon != NULL) {
		size_t digits = strspn(colon + 1, "0123456789");
		port = strtoul(colon + 1, NULL, 10);
		if (digits == 0 || digits > 5 || colon[1 + digits] != '\0' || port < 1 ||
		    port > 65535)
			return bad_addr(rank, text, err, "the port is not 1 to 65535");
	}
	*sa = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	if (inet_pton(AF_INET, host, &sa->sin_addr) != 1) {
		struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
		struct addrinfo *ai = NULL;
		int rc = getaddrinfo(host, NULL, &hints, &ai);
		if (rc != 0)
			return bad_addr(rank, text, err, gai_strerror(rc));
		sa->sin_addr = ((const struct sockaddr_in *)(const void *)ai->ai_addr)->sin_addr;
		freeaddrinfo(ai);
	}
	if (sa->sin_addr.s_addr == INADDR_ANY)
		return bad_addr(rank, text, err, "other ranks cannot reach this address");
	return 0;
}

static bool is_loopback(const struct sockaddr_in *sa)
{
	return ntohl(sa->sin_addr.s_addr) >> 24 == 127;
}

static uint32_t node_of(const struct host_report *hr, uint32_t rank, struct in_addr a)
{
	for (uint32_t i = 0; i < hr->n_rail; i++) {
		const struct hr_rail *rl = &hr->rail[i];
		if (rl->ipv4.s_addr == a.s_addr)
			return hr->node;
		for (uint32_t k = 0; k < rl->n_peer; k++)
			if (rl->peer[k].ipv4.s_addr == a.s_addr)
				return rl->peer[k].node;
	}
	return rank + 1;
}

static void rank_path(const struct sockaddr_in *to, struct tp_peer_conf *p)
{
	struct tp_path_conf *pc = &p->path[0];
	*pc = (struct tp_path_conf){ .name = "rank", .remote = to->sin_addr };
	p->n_path = 1;
}

static bool has_path(const struct tp_peer_conf *p, const char *name)
{
	for (uint32_t i = 0; i < p->n_path; i++)
		if (strcmp(p->path[i].name, name) == 0)
			return true;
	return false;
}

/* Both ends must name a path alike: by its rail. Two nodes share at most one edge. */
static void rail_paths(const struct host_report *hr, uint32_t node, struct tp_peer_conf *p)
{
	for (uint32_t rail = 0; rail < 2; rail++)
		for (uint32_t i = 0; i < hr->n_rail && p->n_path < TP_PATHS_MAX; i++) {
			const struct hr_rail *rl = &hr->rail[i];
			struct tp_path_conf *pc = &p->path[p->n_path];
			char name[sizeof(pc->name)];
			snprintf(name, sizeof(name), "rail%u", rl->rail);
			if (rl->rail != rail || rl->ipv4.s_addr == 0 || has_path(p, name))
				continue;
			for (uint32_t k = 0; k < rl->n_peer; k++) {
				if (rl->peer[k].node != node || rl->peer[k].ipv4.s_addr == 0)
					continue;
				*pc = (struct tp_path_conf){ .local = rl->ipv4,
							     .remote = rl->peer[k].ipv4 };
				memcpy(pc->name, name, sizeof(name));
				memcpy(pc->netdev, rl->netdev, sizeof(rl->netdev));
				p->n_path++;
				break;
			}
		}
}

/* Nodes of all ranks; refuses what cannot be: two ranks on one node, or this rank elsewhere. */
static int place_ranks(const struct tp_conf *c, const struct host_report *hr, uint32_t *node,
		       struct ds_err *err)
{
	for (uint32_t r = 0; r < c->world; r++) {
		node[r] = node_of(hr, r, c->peer[r].addr.sin_addr);
		for (uint32_t o = 0; o < r; o++) {
			if (node[o] != node[r])
				continue;
			ds_err_set(err, DS_ERR_USAGE, 0, NULL, "rank.%u and rank.%u", o, r);
			ds_err_why(err, "both ranks would run on node %u", node[r]);
			return ds_err_fix(err, "give rank.N the rail addresses of their nodes");
		}
	}
	if (node[c->rank] == hr->node)
		return 0;
	ds_err_set(err, DS_ERR_USAGE, 0, NULL, "rank.%u", c->rank);
	ds_err_why(err, "rank %u belongs on node %u, this is node %u", c->rank, node[c->rank],
		   hr->node);
	return ds_err_fix(err, "start rank %u here, or give rank.N the rail addresses",
			  hr->node - 1);
}

int tp_paths_fill(struct tp_conf *c, const char *const *rank_addr, const struct host_report *hr,
		  struct ds_err *err)
{
	uint32_t node[TP_WORLD_MAX] = { 0 };
	bool rails = false;
	for (uint32_t r = 0; r < c->world; r++) {
		c->peer[r].n_path = 0;
		if (parse_addr(r, rank_addr[r], &c->peer[r].addr, err) != 0)
			return -1;
		for (uint32_t o = 0; o < r; o++)
			if (c->peer[o].addr.sin_addr.s_addr == c->peer[r].addr.sin_addr.s_addr &&
			    c->peer[o].addr.sin_port == c->peer[r].addr.sin_port)
				return bad_addr(r, rank_addr[r], err,
						"two ranks have this address");
	}
	if (is_loopback(&c->peer[c->rank].addr))
		hr = NULL; /* all ranks on this machine: its rails lead elsewhere */
	if (hr != NULL && place_ranks(c, hr, node, err) != 0)
		return -1;
	for (uint32_t r = 0; r < c->world; r++) {
		if (r == c->rank)
			continue;
		if (hr != NULL)
			rail_paths(hr, node[r], &c->peer[r]);
		rails = rails || c->peer[r].n_path > 0;
		if (c->peer[r].n_path == 0)
			rank_path(&c->peer[r].addr, &c->peer[r]);
	}
	for (uint32_t r = 0; r < c->world; r++)
		c->path_port[r] = rails ? (uint16_t)(TP_PORT_BASE + r)
					: ntohs(c->peer[r].addr.sin_port);
	return 0;
}
