/*
 * ffn.c - the mixture-of-experts sublayer, and the Engram injection before a layer.
 */
#include <string.h>

#include "forward.h"

int eng_experts(struct eng *e, uint32_t l, uint32_t n, struct ds_err *err)
{
	const struct eng_conf *c = e->conf;
	const struct eng_layer *o = &e->w.layer[l];
	const struct eng_shard *s = eng_own(e);
	const struct kern_ops *k = e->ops;
	struct eng_work *w = &e->work;

	k->act_plain(&e->ctx, w->u, c->dim, n, c->dim, &w->act_plain);
	k->linear(&e->ctx, o->gate, &w->act_plain, 0, c->dim, w->router, c->n_experts, false);
	k->route(&e->ctx, w->router, o->gate_bias, n, c->n_experts, c->topk, c->route_scale, w->ids,
		 w->gain);
	k->act_q8(&e->ctx, w->u, n, c->dim, &w->act_u);
	if (s->n_leaf > 0)
		k->moe(&e->ctx, &(struct kern_moe_args){
					.n = n,
					.dim = c->dim,
					.topk = c->topk,
					.n_leaf = s->n_leaf,
					.leaf_at = s->leaf_inner,
					.w1 = (const struct kern_weight *const *)o->w1,
					.w3 = (const struct kern_weight *const *)o->w3,
					.w2 = (const struct kern_weight *const *)o->w2,
					.s1 = o->s1,
					.s3 = o->s3,
					.s2 = o->s2,
					.limit = c->limit,
					.u = &w->act_u,
					.ids = w->ids,
					.weight = w->gain,
					.out = w->part,
					.scratch = w->moe_scratch,
				});
	return eng_reduce(e, c->inner / KERN_BLOCK, (int32_t)(2 * l + 1), n, err);
}

/* ------------------------------------------------------------------ Engram (4.11) */

static size_t row_bytes(const struct eng_conf *c)
{
	return c->engram_dim + c->engram_dim / KERN_BLOCK;
}

/* Rows of this rank's columns as stored, [n, columns, E4M3 codes then E8M0 scales]. */
static void read_rows(struct eng *e, const struct eng_layer *o, uint32_t p0, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	const struct eng_shard *s = eng_own(e);
	struct eng_work *w = &e->work;
	uint32_t n_scale = c->engram_dim / KERN_BLOCK;
	uint8_t *at = w->rows_of[e->rank];

	for (uint32_t i = 0; i < n; i++) {
		uint32_t seen = p0 + i + 1;
		uint32_t m = seen < c->engram_orders ? seen : c->engram_orders;
		uint64_t *ids = w->row_ids + (size_t)i * e->engram.cols;

		engram_rows(&e->engram, (uint32_t)o->engram, e->seq.tokens + seen - m, m, ids);
		for (uint32_t col = s->col0; col < s->col_end; col++) {
			uint64_t row = ids[col] - o->table_row0;

			memcpy(at, o->table + row * c->engram_dim, c->engram_dim);
			memcpy(at + c->engram_dim, o->table_scale + row * n_scale, n_scale);
			at += row_bytes(c);
		}
	}
}

static int exchange_rows(struct eng *e, uint32_t n, struct ds_err *err)
{
	void *recv[TP_WORLD_MAX] = { NULL };
	size_t len[TP_WORLD_MAX] = { 0 };

	for (uint32_t r = 0; r < e->world; r++) {
		recv[r] = e->work.rows_of[r];
		len[r] = n * row_bytes(e->conf) * (e->shard[r].col_end - e->shard[r].col0);
	}
	size_t own = len[e->rank];

	len[e->rank] = 0;
	return tp_exchange(e->tp, TP_ENGRAM, recv[e->rank], own, recv, len, err);
}

/* Stored rows of all ranks -> work.looked. Code times scale is exact. */
static void decode_rows(struct eng *e, uint32_t n)
{
	const struct eng_conf *c = e->conf;

	for (uint32_t r = 0; r < e->world; r++) {
		const struct eng_shard *s = &e->shard[r];
		const uint8_t *at = e->work.rows_of[r];

		for (uint32_t i = 0; i < n; i++) {
			float *out = e->work.looked +
				     ((size_t)i * e->engram.cols + s->col0) * c->engram_dim;

			for (uint32_t col = s->col0; col < s->col_end; col++) {
				for (uint32_t d = 0; d < c->engram_dim; d++)
					*out++ = kern_e4m3_to_f32(at[d]) *
						 kern_e8m0_to_f32(
							 at[c->engram_dim + d / KERN_BLOCK]);
				at += row_bytes(c);
			}
		}
	}
}

int eng_inject(struct eng *e, uint32_t l, uint32_t p0, uint32_t n, struct ds_err *err)
{
	const struct eng_conf *c = e->conf;
	const struct eng_layer *o = &e->w.layer[l];
	const struct kern_ops *k = e->ops;
	struct eng_work *w = &e->work;
	uint32_t width = e->engram.cols * c->engram_dim;
	uint32_t kv_width = (c->copies + 1) * c->dim;

	read_rows(e, o, p0, n);
	if (e->world > 1 && exchange_rows(e, n, err) != 0)
		return -1;
	decode_rows(e, n);
	k->act_q8(&e->ctx, w->looked, n, width, &w->act_looked);
	k->linear(&e->ctx, o->engram_wkv, &w->act_looked, 0, width, w->ekv, kv_width, true);
	k->engram_gate(&e->ctx, w->x, w->ekv, o->engram_qk, NULL, c->norm_eps, n, c->copies,
		       c->dim);
	return 0;
}
