/*
 * conf.h - /etc/dsprep.conf as numbers: one settings table, read once, bounds checked.
 */
#ifndef PREP_CONF_H
#define PREP_CONF_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "buf.h"
#include "ini.h"

#define PREP_NODES_MAX 16

enum prep_shape {
	PREP_PAIR,
	PREP_TRIANGLE,
	PREP_RING,
	PREP_SWITCH
};

struct prep_conf {
	char file[256];		/* where it was read from, for messages */
	int shape;		/* enum prep_shape */
	int64_t nodes, node;	/* node is 1-based */
	int64_t cage;		/* 0, 1, or -1 = auto */
	struct in_addr subnets; /* network address, host order is not used */
	uint32_t subnets_len;	/* prefix length, 8..23 */
	int64_t mtu;
	char management[IFNAMSIZ];
	int64_t settle_s;
	unsigned int line_management, line_subnets, line_cage, line_node,
		line_mtu; /* 0 = default */
};

/** prep_conf_table() - the settings rows, for --help, the man page check and the loader. */
const struct ds_setting *prep_conf_table(size_t *n);

/** prep_conf_parse() - @text [len] of @file. Return: 0; -1 DS_ERR_USAGE with file and line. */
int prep_conf_parse(const char *file, const char *text, size_t len, struct prep_conf *c,
		    struct ds_err *err);

/** prep_conf_print() - a complete dsprep.conf for these values, every key with a comment. */
void prep_conf_print(const struct prep_conf *c, struct ds_buf *out);

#endif
