/*
 * tp_paths.h - who is where, and by which paths: rank.N lines and host report to a tp_conf.
 */
#ifndef ENG_TP_PATHS_H
#define ENG_TP_PATHS_H

#include "hostreport.h"
#include "tp.h"

#define TP_PORT_BASE 8700 /* rank N is at TP_PORT_BASE + N unless rank.N says otherwise */

/**
 * tp_paths_fill() - fill in peer[] and path_port[] of @c, whose rank and world are set.
 * @rank_addr: [world] "HOST:PORT" or "HOST"; HOST is a numeric IPv4 address or a name
 * @hr: this node's host report; NULL = there is none
 *
 * Rank r runs on the node whose rail or peers[].ipv4 holds the address of rank.r; if none does, on
 * node r + 1. Paths to it are the rails that the report says lead to that node, named "rail0",
 * "rail1", port TP_PORT_BASE + listener's rank. Without a report, and between loopback addresses,
 * there is one path, "rank", between the rank.N addresses and at their ports.
 * May ask the resolver (blocks) if HOST is a name.
 * Return: 0; -1 with DS_ERR_USAGE naming the rank.N line, or the two nodes that contradict.
 */
int tp_paths_fill(struct tp_conf *c, const char *const *rank_addr, const struct host_report *hr,
		  struct ds_err *err);

#endif
