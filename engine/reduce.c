/*
 * reduce.c - the sum over leaves that every row-parallel product ends in (design.md 4.3).
 *
 * A rank adds its own leaves, sends one fp32 partial, and finishes the same tree over all partials
 * as everyone else: (l0 + l1) + (l2 + l3) or (l0 + l1) + l2, whatever the world. Nothing is rounded
 * before the total is complete.
 */
#include <string.h>

#include "forward.h"

uint32_t eng_leaves_used(const struct eng *e, uint32_t rank, uint32_t units)
{
	const struct eng_shard *s = &e->shard[rank];
	uint32_t used = 0;

	for (uint32_t leaf = s->leaf0; leaf < s->leaf_end; leaf++) {
		uint32_t first, end;

		kern_leaf_range(units, e->leaves, leaf, &first, &end);
		used += first < end;
	}
	return used;
}

/* Own leaves in @part -> their sum in part[0]. False when this rank has none. */
static bool sum_own(struct eng *e, uint32_t used, size_t len)
{
	const struct eng_shard *s = eng_own(e);
	const float *leaf[KERN_LEAVES_MAX] = { NULL };
	float *const *part = e->work.part;

	for (uint32_t i = 0; i < used; i++)
		leaf[i] = part[i];
	if (e->reassociate && e->world == 1) { /* ((l0 + l1) + l2) + l3: what the order forbids */
		for (uint32_t i = 1; i < used; i++)
			for (size_t k = 0; k < len; k++)
				part[0][k] += part[i][k];
		return used > 0;
	}
	if (s->leaf_end - s->leaf0 > 1)
		kern_leaf_sum(s->leaf_end - s->leaf0, leaf, len, part[0]);
	return used > 0;
}

int eng_reduce(struct eng *e, uint32_t units, int32_t stage, uint32_t n, struct ds_err *err)
{
	struct eng_work *w = &e->work;
	size_t len = (size_t)n * e->conf->dim;
	bool any = sum_own(e, eng_leaves_used(e, e->rank, units), len);

	if (e->bad.stage < 0 && any && !e->ops->finite(&e->ctx, w->part[0], len))
		e->bad = (struct eng_bad){ .stage = stage, .own = true };
	if (e->world == 1) {
		memcpy(w->y, w->part[0], len * sizeof(float));
	} else {
		void *recv[TP_WORLD_MAX] = { NULL };
		size_t recv_len[TP_WORLD_MAX] = { 0 };
		const float *sum[KERN_LEAVES_MAX] = { NULL };

		for (uint32_t r = 0; r < e->world; r++) {
			bool sends = eng_leaves_used(e, r, units) > 0;

			recv[r] = w->peer[r];
			recv_len[r] = sends ? len * sizeof(float) : 0;
			if (sends)
				sum[r] = r == e->rank ? w->part[0] : w->peer[r];
		}
		recv_len[e->rank] = 0;
		if (tp_exchange(e->tp, TP_REDUCE, w->part[0], any ? len * sizeof(float) : 0, recv,
				recv_len, err) != 0)
			return -1;
		kern_leaf_sum(e->world, sum, len, w->y);
	}
	e->ops->round(&e->ctx, w->y, len);
	return 0;
}
