/*
 * prep_conf.c - any bytes as dsprep.conf: a config or an error with a place. What is accepted must
 * read back from its printed form as the same config, and must plan, or be refused, on a full host.
 */
#include <stdlib.h>
#include <string.h>

#include "conf.h"
#include "plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct prep_link links[] = {
	{ .ifindex = 1, .name = "lo", .flags = IFF_UP, .carrier = 1, .mtu = 65535 },
	{ .ifindex = 2, .name = "enp1s0f0np0", .flags = IFF_UP, .carrier = 1, .mtu = 1500 },
	{ .ifindex = 3, .name = "enp1s0f1np1", .carrier = -1, .mtu = 9000 },
	{ .ifindex = 4, .name = "enP2p1s0f0np0", .flags = IFF_UP, .mtu = 9000, .max_mtu = 9978 },
	{ .ifindex = 5, .name = "enP2p1s0f1np1", .carrier = -1, .mtu = 1500 },
};
static struct prep_addr addrs[] = {
	{ .ifindex = 1, .family = AF_INET, .prefix = 8, .local.v4.s_addr = 0x0100007f },
	{ .ifindex = 2, .family = AF_INET, .prefix = 24, .local.v4.s_addr = 0x0100c80a },
};

static void plan_it(const struct prep_conf *c)
{
	struct prep_host h = { .n_link = 5, .n_addr = 2, .link = links, .addr = addrs };
	struct prep_plan p;
	struct ds_err err = { 0 };
	struct ds_buf out = { 0 };
	prep_host_identify(&h);
	if (prep_plan_make(c, &h, false, &p, &err) == 0) {
		prep_plan_print(&p, &h, true, &out);
		prep_plan_json(&p, &h, &out);
		prep_plan_fini(&p);
	} else if (err.kind != DS_ERR_USAGE || err.why[0] == '\0') {
		abort();
	}
	ds_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct prep_conf c, again;
	struct ds_err err = { 0 };
	struct ds_buf text = { 0 };
	char *copy = malloc(size); /* of exactly that size: one byte too far is a report */
	if (size > 0)
		memcpy(copy, data, size);
	if (prep_conf_parse("fuzz.conf", copy, size, &c, &err) == 0) {
		prep_conf_print(&c, &text);
		if (prep_conf_parse("fuzz.conf", text.data, text.len, &again, &err) != 0 ||
		    again.node != c.node || again.cage != c.cage || again.mtu != c.mtu ||
		    again.subnets.s_addr != c.subnets.s_addr || again.shape != c.shape ||
		    strcmp(again.management, c.management) != 0)
			abort();
		plan_it(&c);
	} else if (err.kind != DS_ERR_USAGE || err.obj[0] == '\0' || err.why[0] == '\0') {
		abort();
	}
	ds_buf_fini(&text);
	free(copy);
	return 0;
}
