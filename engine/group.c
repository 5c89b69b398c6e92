/*
 * group.c - this rank's place among the others.
 */
#include "group.h"

#include <errno.h>
#include <string.h>

#include "hostreport.h"
#include "log.h"
#include "tp_paths.h"

static int fill_paths(struct group *g, const struct eng_settings *s, struct ds_err *err)
{
	const char *addr[TP_WORLD_MAX];
	struct host_report hr;
	const struct host_report *have = &hr;
	struct ds_err absent = { 0 };
	for (uint32_t r = 0; r < TP_WORLD_MAX; r++)
		addr[r] = s->addr[r];
	if (host_report_read(s->host_report, &hr, &absent) != 0) {
		if (absent.sys != ENOENT) {
			*err = absent;
			return -1;
		}
		ds_log(DS_LOG_INFO, "group",
		       "no host report at %s: one path, between the rank.N addresses",
		       s->host_report);
		have = NULL;
	}
	return tp_paths_fill(&g->tc, addr, have, err);
}

int group_init(struct group *g, const struct eng_settings *s, const struct eng_conf *conf,
	       const uint8_t *secret, struct ds_err *err)
{
	*g = (struct group){ .tc = { .rank = (uint32_t)s->rank,
				     .world = (uint32_t)s->world,
				     .listen_fd = -1,
				     .path_listen_fd = -1,
				     .connect_ms = GROUP_TRY_MS } };
	if (fill_paths(g, s, err) != 0)
		return -1;
	const struct eng_open_args shared = { .conf = conf,
					      .kernels = s->kernels[0] != '\0' ? s->kernels : NULL,
					      .numerics = (enum kern_numerics)s->numerics,
					      .world = g->tc.world,
					      .leaves = KERN_LEAVES_MAX,
					      .max_ctx = (uint32_t)s->context,
					      .prefill_chunk = (uint32_t)s->prefill_chunk };

	if (eng_state_text(&shared, g->tc.state, sizeof(g->tc.state), err) != 0)
		return -1;
	memcpy(g->tc.secret, secret, sizeof(g->tc.secret));
	return 0;
}

int group_form(struct group *g, struct ds_err *err)
{
	g->tp = tp_open(&g->tc, err);
	if (g->tp == NULL)
		return -1;
	g->watch = pathwatch_start(g->tp, err);
	if (g->watch != NULL)
		return 0;
	group_leave(g);
	return -1;
}

void group_leave(struct group *g)
{
	pathwatch_stop(g->watch);
	g->watch = NULL;
	tp_close(g->tp);
	g->tp = NULL;
}

void group_fini(struct group *g)
{
	group_leave(g);
	explicit_bzero(&g->tc, sizeof(g->tc));
}
