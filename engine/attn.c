/*
 * attn.c - the attention sublayer: queries, window, compressor, indexer, heads, output projection.
 *
 * The order of the text (model.md 4.6) is the order of the code. What a source layer computes
 * (entries, index keys, the selection, the candidates) stays where the layers above look for it:
 * in the caches of that layer, and in work.sel and work.blocks.
 */
#include <math.h>
#include <string.h>

#include "forward.h"

/* 4.6.1: normed query latent, rotated queries, this layer's window latents into their ring. */
static void project(struct eng *e, const struct eng_layer *o, uint32_t l, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	const struct kern_ops *k = e->ops;
	const struct kern_rope *rope = &e->rope[c->ratio[l] > 0];
	const struct eng_shard *s = eng_own(e);
	uint32_t heads = s->head_end - s->head0;
	struct eng_work *w = &e->work;

	k->act_q8(&e->ctx, w->u, n, c->dim, &w->act_u);
	k->linear(&e->ctx, o->wq_a, &w->act_u, 0, c->dim, w->qr, c->q_rank, true);
	k->rms_norm(&e->ctx, w->qr, o->q_norm, c->norm_eps, n, c->q_rank, w->qr);
	k->act_q8(&e->ctx, w->qr, n, c->q_rank, &w->act_qr);
	k->linear(&e->ctx, o->wq_b, &w->act_qr, 0, c->q_rank, w->q, (size_t)heads * c->head_dim,
		  true);
	k->rope(&e->ctx, rope, w->q, n, heads, c->head_dim, w->pos, false);

	k->linear(&e->ctx, o->wkv, &w->act_u, 0, c->dim, w->win, c->head_dim, true);
	k->rms_norm(&e->ctx, w->win, o->kv_norm, c->norm_eps, n, c->head_dim, w->win);
	k->rope(&e->ctx, rope, w->win, n, 1, c->head_dim, w->pos, false);
	k->row_put(&e->ctx, &e->seq.window[l], w->pos[0], w->win, n);
}

/* A half group waits for its second token: kv and score of the run's last tokens, by position. */
static void keep_halves(struct eng *e, uint32_t l, uint32_t n)
{
	struct eng_work *w = &e->work;
	uint32_t width = e->conf->head_dim;
	uint32_t keep = n < ENG_HALF_RING ? n : ENG_HALF_RING;

	for (uint32_t i = n - keep; i < n; i++) {
		size_t at = (size_t)(w->pos[i] % ENG_HALF_RING) * width;

		memcpy(e->seq.half_kv[l] + at, w->kv + (size_t)(1 + i) * width,
		       width * sizeof(float));
		memcpy(e->seq.half_score[l] + at, w->score + (size_t)(1 + i) * width,
		       width * sizeof(float));
	}
}

/* Ratio 2: groups whose last token is in this run -> work.latent, not yet normed. */
static void pool_groups(struct eng *e, const struct eng_layer *o, uint32_t l, uint32_t n,
			uint32_t n_entry)
{
	const struct kern_ops *k = e->ops;
	struct eng_work *w = &e->work;
	uint32_t width = e->conf->head_dim, odd = w->pos[0] % 2;

	k->linear(&e->ctx, o->comp_kv, &w->act_plain, 0, e->conf->dim, w->kv + width, width, false);
	k->linear(&e->ctx, o->comp_gate, &w->act_plain, 0, e->conf->dim, w->score + width, width,
		  false);
	if (odd) {
		size_t at = (size_t)((w->pos[0] - 1) % ENG_HALF_RING) * width;

		memcpy(w->kv, e->seq.half_kv[l] + at, width * sizeof(float));
		memcpy(w->score, e->seq.half_score[l] + at, width * sizeof(float));
	}
	keep_halves(e, l, n);
	size_t first = odd ? 0 : width;

	if (n_entry > 0)
		k->pool2(&e->ctx, w->kv + first, w->score + first, n_entry, width, w->latent);
}

/* 4.6.2: entries completed in this run -> index keys, then compressed KV. */
static void compress(struct eng *e, const struct eng_layer *o, uint32_t l, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	const struct kern_ops *k = e->ops;
	struct eng_work *w = &e->work;
	uint32_t ratio = c->ratio[l], first = w->pos[0] / ratio;
	uint32_t m = (w->pos[0] + n) / ratio - first;

	if (ratio == 1)
		k->linear(&e->ctx, o->comp_kv, &w->act_plain, 0, c->dim, w->latent, c->head_dim,
			  true);
	else
		pool_groups(e, o, l, n, m);
	if (m == 0)
		return;
	for (uint32_t j = 0; j < m; j++)
		w->entry_pos[j] = (first + j) * ratio;
	k->rms_norm(&e->ctx, w->latent, o->comp_norm, c->norm_eps, m, c->head_dim, w->latent);

	k->act_plain(&e->ctx, w->latent, c->head_dim, m, c->head_dim, &w->act_latent);
	k->linear(&e->ctx, o->index_wk, &w->act_latent, 0, c->head_dim, w->key, c->index_dim, true);
	k->rms_norm(&e->ctx, w->key, o->index_k_norm, c->norm_eps, m, c->index_dim, w->key);
	k->rope(&e->ctx, &e->rope[1], w->key, m, 1, c->index_dim, w->entry_pos, false);
	k->row_put(&e->ctx, &e->seq.keys[l], first, w->key, m);

	k->rope(&e->ctx, &e->rope[1], w->latent, m, 1, c->head_dim, w->entry_pos, false);
	k->row_put(&e->ctx, &e->seq.comp[l], first, w->latent, m);
}

/* 4.6.3 to 4.6.5: which entries each query of this run attends to, until the next index source. */
static void choose(struct eng *e, const struct eng_layer *o, uint32_t l, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	const struct kern_ops *k = e->ops;
	struct eng_work *w = &e->work;
	float factor = (float)(1.0 / sqrt((double)c->index_dim * c->index_heads));
	bool publish = c->cand_layer == (int32_t)l;
	bool consume = c->cand_layer >= 0 && c->cand_layer < (int32_t)l;

	k->linear(&e->ctx, o->index_wq, &w->act_qr, 0, c->q_rank, w->iq,
		  (size_t)c->index_heads * c->index_dim, true);
	k->rope(&e->ctx, &e->rope[1], w->iq, n, c->index_heads, c->index_dim, w->pos, false);
	k->qdq(&e->ctx, KERN_Q4IDX, w->iq, n, c->index_heads * c->index_dim);
	k->linear(&e->ctx, o->index_weights, &w->act_plain, 0, c->dim, w->iw, c->index_heads, true);
	for (size_t i = 0; i < (size_t)n * c->index_heads; i++)
		w->iw[i] *= factor;
	for (uint32_t i = 0; i < n; i++)
		w->visible[i] = (w->pos[i] + 1) / c->ratio[l];
	k->index_select(&e->ctx, &(struct kern_index_args){
					 .n = n,
					 .heads = c->index_heads,
					 .dim = c->index_dim,
					 .topk = c->index_topk,
					 .q = w->iq,
					 .weight = w->iw,
					 .keys = &e->seq.keys[c->kv_source[l]],
					 .visible = w->visible,
					 .blocks_in = consume ? w->blocks : NULL,
					 .blocks_out = publish ? w->blocks : NULL,
					 .n_blocks = c->cand_blocks,
					 .block_size = c->cand_size,
					 .sel = w->sel,
					 .scratch = w->index_scratch,
				 });
}

/* Grouped output projection, leaf by leaf: work.heads -> fp32 partials in work.part. */
static void output(struct eng *e, const struct eng_layer *o, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	const struct eng_shard *s = eng_own(e);
	const struct kern_ops *k = e->ops;
	struct eng_work *w = &e->work;
	uint32_t group_width = c->n_heads / c->o_groups * c->head_dim, part = 0;
	size_t stride = (size_t)(s->head_end - s->head0) * c->head_dim;

	for (uint32_t leaf = s->leaf0; leaf < s->leaf_end; leaf++) {
		uint32_t first, end;

		kern_leaf_range(c->o_groups, e->leaves, leaf, &first, &end);
		if (first == end)
			continue;
		uint32_t width = (end - first) * c->o_rank;
		uint32_t k0 = (first - s->group0) * c->o_rank;

		for (uint32_t g = first; g < end; g++) {
			const float *in = w->heads + (size_t)(g - s->group0) * group_width;

			k->act_plain(&e->ctx, in, stride, n, group_width, &w->act_head);
			k->linear(&e->ctx, o->wo_a[g - s->group0], &w->act_head, 0, group_width,
				  w->grouped + (size_t)(g - first) * c->o_rank, width, true);
		}
		k->act_q8(&e->ctx, w->grouped, n, width, &w->act_group);
		k->linear(&e->ctx, o->wo_b, &w->act_group, k0, k0 + width, w->part[part++], c->dim,
			  false);
	}
}

int eng_attention(struct eng *e, uint32_t l, uint32_t n, struct ds_err *err)
{
	const struct eng_conf *c = e->conf;
	const struct eng_layer *o = &e->w.layer[l];
	const struct eng_shard *s = eng_own(e);
	uint32_t heads = s->head_end - s->head0;
	bool sparse = c->ratio[l] > 0;
	struct eng_work *w = &e->work;

	project(e, o, l, n);
	if (o->comp_kv != NULL || o->index_wq != NULL)
		e->ops->act_plain(&e->ctx, w->u, c->dim, n, c->dim, &w->act_plain);
	if (o->comp_kv != NULL)
		compress(e, o, l, n);
	if (o->index_wq != NULL)
		choose(e, o, l, n);
	e->ops->attention(&e->ctx, &(struct kern_attn_args){
					   .n = n,
					   .heads = heads,
					   .width = c->head_dim,
					   .window = c->window,
					   .q = w->q,
					   .pos = w->pos,
					   .win = &e->seq.window[l],
					   .comp = sparse ? &e->seq.comp[c->kv_source[l]] : NULL,
					   .sel = sparse ? w->sel : NULL,
					   .n_sel = sparse ? c->index_topk : 0,
					   .sink = o->sink,
					   .out = w->heads,
				   });
	e->ops->rope(&e->ctx, &e->rope[sparse], w->heads, n, heads, c->head_dim, w->pos, true);
	output(e, o, n);
	return eng_reduce(e, c->o_groups, (int32_t)(2 * l), n, err);
}
