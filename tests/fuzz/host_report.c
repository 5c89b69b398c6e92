/*
 * host_report.c - any bytes as host report: refused by field, or paths come out of it that a
 * connection could use.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tp_paths.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void paths(const struct host_report *r, const char *a0, const char *a1)
{
	const char *addr[] = { a0, a1 };
	struct tp_conf c = { .world = 2 };
	struct ds_err err = { 0 };
	c.rank = r->node == 2;
	if (tp_paths_fill(&c, addr, r, &err) != 0)
		return;
	const struct tp_peer_conf *p = &c.peer[1 - c.rank];
	if (p->n_path < 1 || p->n_path > TP_PATHS_MAX)
		abort();
	for (uint32_t i = 0; i < p->n_path; i++)
		if (p->path[i].remote.s_addr == 0 || p->path[i].name[0] == '\0' ||
		    memchr(p->path[i].netdev, '\0', sizeof(p->path[i].netdev)) == NULL)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct host_report r;
	struct ds_err err = { 0 };
	char *text = malloc(size + (size == 0)); /* one byte too far is a report */
	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	int rc = host_report_parse("host.json", text, size, &r, &err);
	free(text);
	if (rc != 0) {
		if (err.kind != DS_ERR_INPUT || err.why[0] == '\0')
			abort();
		return 0;
	}
	if (r.node < 1 || r.node > r.nodes || r.n_rail > HR_RAILS_MAX)
		abort();
	paths(&r, "10.200.0.1", "10.200.0.2");
	paths(&r, "192.0.2.1", "192.0.2.2");
	return 0;
}
