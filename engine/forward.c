/*
 * forward.c - one run through the model, in the order of model.md 4.1, and its working memory.
 */
#include <openssl/evp.h>
#include <string.h>

#include "forward.h"

/* ------------------------------------------------------------------ working memory */

static float *floats(struct eng_arena *a, size_t n)
{
	return eng_arena_take(a, n * sizeof(float));
}

static void act(struct eng_arena *a, struct kern_act *x, size_t rows, uint32_t width)
{
	x->n = (uint32_t)rows;
	x->width = width;
	x->q = floats(a, rows * width);
	x->scale = floats(a, rows * ((width + KERN_BLOCK - 1) / KERN_BLOCK));
}

static void layout_attention(const struct eng *e, struct eng_work *w, struct eng_arena *a)
{
	const struct eng_conf *c = e->conf;
	const struct eng_shard *s = eng_own(e);
	size_t n = w->rows, heads = s->head_end - s->head0;
	uint32_t groups = s->group_end - s->group0;

	w->qr = floats(a, n * c->q_rank);
	w->q = floats(a, n * heads * c->head_dim);
	w->heads = floats(a, n * heads * c->head_dim);
	w->win = floats(a, n * c->head_dim);
	w->grouped = floats(a, n * groups * c->o_rank);
	act(a, &w->act_head, n, c->n_heads / c->o_groups * c->head_dim);
	act(a, &w->act_group, n, groups * c->o_rank);
	w->kv = floats(a, (n + 1) * c->head_dim);
	w->score = floats(a, (n + 1) * c->head_dim);
	w->latent = floats(a, (n + 1) * c->head_dim);
	w->key = floats(a, (n + 1) * c->index_dim);
	w->entry_pos = eng_arena_take(a, (n + 1) * sizeof(*w->entry_pos));
	act(a, &w->act_latent, n + 1, c->head_dim);
	w->iq = floats(a, n * c->index_heads * c->index_dim);
	w->iw = floats(a, n * c->index_heads);
	w->visible = eng_arena_take(a, n * sizeof(*w->visible));
	w->sel = eng_arena_take(a, n * c->index_topk * sizeof(*w->sel));
	w->blocks = eng_arena_take(a, n * c->cand_blocks * sizeof(*w->blocks));
	w->index_scratch = floats(a, kern_index_scratch(w->rows, c->index_topk, c->cand_blocks));
}

static void layout_engram(const struct eng *e, struct eng_work *w, struct eng_arena *a)
{
	const struct eng_conf *c = e->conf;
	size_t n = w->rows, cols = e->engram.cols;
	size_t row = c->engram_dim + c->engram_dim / KERN_BLOCK;

	if (c->n_engram == 0)
		return;
	w->row_ids = eng_arena_take(a, n * cols * sizeof(*w->row_ids));
	for (uint32_t r = 0; r < e->world; r++)
		w->rows_of[r] =
			eng_arena_take(a, n * row * (e->shard[r].col_end - e->shard[r].col0));
	w->looked = floats(a, n * cols * c->engram_dim);
	act(a, &w->act_looked, n, (uint32_t)cols * c->engram_dim);
	w->ekv = floats(a, n * (c->copies + 1) * c->dim);
}

static void layout(const struct eng *e, struct eng_work *w, struct eng_arena *a)
{
	const struct eng_conf *c = e->conf;
	const struct eng_shard *s = eng_own(e);
	size_t n = w->rows;

	w->pos = eng_arena_take(a, n * sizeof(*w->pos));
	w->x = floats(a, n * c->copies * c->dim);
	w->mix = floats(a, n * c->copies);
	w->pre = floats(a, n * c->copies);
	w->post = floats(a, n * c->copies);
	w->comb = floats(a, n * c->copies * c->copies);
	w->u = floats(a, n * c->dim);
	w->y = floats(a, n * c->dim);
	for (uint32_t i = 0; i < s->leaf_end - s->leaf0; i++)
		w->part[i] = floats(a, n * c->dim);
	for (uint32_t r = 0; r < e->world && e->world > 1; r++)
		w->peer[r] = floats(a, n * c->dim);
	act(a, &w->act_u, n, c->dim);
	act(a, &w->act_plain, n, c->dim);
	act(a, &w->act_qr, n, c->q_rank);
	layout_attention(e, w, a);
	w->router = floats(a, n * c->n_experts);
	w->ids = eng_arena_take(a, n * c->topk * sizeof(*w->ids));
	w->gain = floats(a, n * c->topk);
	w->moe_scratch = floats(a, kern_moe_scratch(w->rows, s->inner_end - s->inner0));
	layout_engram(e, w, a);
	w->logits = floats(a, s->vocab_end - s->vocab0);
}

int eng_work_init(struct eng *e, uint32_t rows, struct ds_err *err)
{
	struct eng_work *w = &e->work;
	struct eng_arena a = { 0 };

	memset(w, 0, sizeof(*w));
	w->rows = rows;
	layout(e, w, &a);
	w->bytes = a.used;
	w->mem = kern_alloc(a.used, "the working memory of a run", err);
	if (w->mem == NULL)
		return -1;
	a = (struct eng_arena){ .base = w->mem };
	layout(e, w, &a);
	return 0;
}

void eng_work_fini(struct eng_work *w)
{
	kern_free(w->mem);
	memset(w, 0, sizeof(*w));
}

/* ------------------------------------------------------------------ the run */

/* Embedding rows, four identical copies; the first sublayer takes copy 0 alone. */
static void embed(struct eng *e, const uint32_t *tokens, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	struct eng_work *w = &e->work;

	for (uint32_t i = 0; i < n; i++) {
		const uint16_t *row = e->w.embed + (size_t)tokens[i] * c->dim;
		float *x = w->x + (size_t)i * c->copies * c->dim;

		for (uint32_t d = 0; d < c->dim; d++)
			x[d] = kern_bf16_to_f32(row[d]);
		for (uint32_t copy = 1; copy < c->copies; copy++)
			memcpy(x + (size_t)copy * c->dim, x, c->dim * sizeof(float));
		for (uint32_t copy = 0; copy < c->copies; copy++)
			w->mix[(size_t)i * c->copies + copy] = copy == 0 ? 1.0f : 0.0f;
	}
}

/* Mix the copies with what the sublayer before predicted, and norm. */
static void sublayer_input(struct eng *e, const float *mix, const float *gain, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	struct eng_work *w = &e->work;

	e->ops->hc_mix(&e->ctx, mix, w->x, n, c->copies, c->dim, w->u);
	e->ops->rms_norm(&e->ctx, w->u, gain, c->norm_eps, n, c->dim, w->u);
}

static int layer(struct eng *e, uint32_t l, uint32_t p0, uint32_t n, struct ds_err *err)
{
	const struct eng_conf *c = e->conf;
	const struct eng_layer *o = &e->w.layer[l];
	const struct kern_ops *k = e->ops;
	struct eng_work *w = &e->work;
	float *predicted;

	if (o->engram >= 0 && eng_inject(e, l, p0, n, err) != 0)
		return -1;
	k->hc_predict(&e->ctx, &o->hc_attn, w->x, n, w->pre, w->post, w->comb);
	sublayer_input(e, w->mix, o->attn_norm, n);
	if (eng_attention(e, l, n, err) != 0)
		return -1;
	k->hc_update(&e->ctx, w->x, w->y, w->post, w->comb, n, c->copies, c->dim);

	/* The experts' input uses the mix that was predicted before attention; their own is next. */
	predicted = w->pre;
	w->pre = w->mix;
	w->mix = predicted;
	k->hc_predict(&e->ctx, &o->hc_ffn, w->x, n, w->pre, w->post, w->comb);
	sublayer_input(e, w->mix, o->ffn_norm, n);
	if (eng_experts(e, l, n, err) != 0)
		return -1;
	k->hc_update(&e->ctx, w->x, w->y, w->post, w->comb, n, c->copies, c->dim);
	predicted = w->pre;
	w->pre = w->mix;
	w->mix = predicted;

	if (e->bad.stage < 0 && !k->finite(&e->ctx, w->x, (size_t)n * c->copies * c->dim))
		e->bad = (struct eng_bad){ .stage = (int32_t)(2 * l + 1) };
	return 0;
}

static void hash_layer(struct eng *e, uint32_t l, uint32_t n)
{
	size_t bytes = sizeof(float) * e->conf->copies * e->conf->dim;

	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *row = (const uint8_t *)e->work.x + i * bytes;
		uint8_t *out = e->digests + ((size_t)i * e->conf->n_layers + l) * 32;

		if (EVP_Digest(row, bytes, out, NULL, EVP_sha256(), NULL) != 1)
			memset(out, 0, 32);
	}
}

static void print_hashes(struct eng *e, uint32_t n)
{
	const uint8_t *at = e->digests;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t l = 0; l < e->conf->n_layers; l++) {
			fprintf(e->hash_file, "%u %u ", e->work.pos[i], l);
			for (int b = 0; b < 32; b++)
				fprintf(e->hash_file, "%02x", *at++);
			fputc('\n', e->hash_file);
		}
}

/* Rows of the head that this rank holds, for the last token of the run. */
static void head(struct eng *e, uint32_t n)
{
	const struct eng_conf *c = e->conf;
	struct eng_work *w = &e->work;
	const float *mix = w->mix + (size_t)(n - 1) * c->copies;
	const float *x = w->x + (size_t)(n - 1) * c->copies * c->dim;
	uint32_t rows = eng_own(e)->vocab_end - eng_own(e)->vocab0;

	e->ops->hc_mix(&e->ctx, mix, x, 1, c->copies, c->dim, w->u);
	e->ops->rms_norm(&e->ctx, w->u, e->w.norm, c->norm_eps, 1, c->dim, w->u);
	e->ops->act_plain(&e->ctx, w->u, c->dim, 1, c->dim, &w->act_plain);
	if (rows > 0)
		e->ops->linear(&e->ctx, e->w.head, &w->act_plain, 0, c->dim, w->logits, rows,
			       false);
}

int eng_forward(struct eng *e, const uint32_t *tokens, uint32_t n, bool want_logits,
		struct ds_err *err)
{
	uint32_t p0 = e->seq.pos;

	e->bad.stage = -1;
	e->work.n = n;
	memcpy(e->seq.tokens + p0, tokens, n * sizeof(*tokens));
	for (uint32_t i = 0; i < n; i++)
		e->work.pos[i] = p0 + i;
	embed(e, tokens, n);
	for (uint32_t l = 0; l < e->conf->n_layers; l++) {
		if (layer(e, l, p0, n, err) != 0)
			return ds_err_context(err, "layer %u", l);
		if (e->digests != NULL)
			hash_layer(e, l, n);
		if (e->after_layer != NULL)
			e->after_layer(e, l, e->after_layer_arg);
	}
	if (want_logits)
		head(e, n);
	e->seq.pos = p0 + n;
	if (e->digests != NULL && e->hash_file != NULL)
		print_hashes(e, n);
	return 0;
}
