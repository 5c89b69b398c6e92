/*
 * attn.c - attention over window and compressed latents (model.md 4.6.6), and the pooling of two
 * tokens into one compressed latent (4.6.2).
 *
 * Keys are one list of slots (design 4.3): `window` slots for the positions up to the query's, a
 * hole where there is none, then the selected entries ascending. The running maximum moves once
 * per block of 64 slots counted from slot 0, so what a row gives does not depend on the run.
 */
#include "ref.h"

#define BLOCK 64

struct attn_job {
	const struct kern_ctx *ctx;
	const struct kern_attn_args *a;
	float scale;
};

/* The running state of one head of one row. */
struct head {
	float top, total;
	float *out; /* [width] */
};

/* Read the keys of one block of slots of row @i. Return: bit s is set where slot s holds a key. */
static uint64_t read_slots(const struct kern_attn_args *a, uint32_t i, uint32_t block, float *key)
{
	uint32_t pos = a->pos[i], first = pos + 1 > a->window ? pos + 1 - a->window : 0;
	uint64_t full = 0;

	for (uint32_t s = 0; s < BLOCK; s++) {
		uint32_t slot = block * BLOCK + s;

		if (slot < a->window) {
			if (first + slot > pos)
				continue;
			ref_row_read(a->win, first + slot, key + (size_t)s * a->width);
		} else {
			uint32_t at = slot - a->window;

			if (at >= a->n_sel || a->sel[(size_t)i * a->n_sel + at] < 0)
				continue;
			ref_row_read(a->comp, (uint64_t)a->sel[(size_t)i * a->n_sel + at],
				     key + (size_t)s * a->width);
		}
		full |= UINT64_C(1) << s;
	}
	return full;
}

/* One block of slots for one head: scores, the new maximum, then the sums scaled to it. */
static void add_block(const struct attn_job *job, const float *q, const float *key, uint64_t full,
		      struct head *h)
{
	uint32_t width = job->a->width;
	float z[BLOCK], e[BLOCK], lane[16] = { 0 }, top = h->top, shrink;

	for (uint32_t s = 0; s < BLOCK; s++) {
		if ((full >> s & 1) == 0)
			continue;
		z[s] = kern_block_dot(q, key + (size_t)s * width, width) * job->scale;
		top = z[s] > top ? z[s] : top;
	}
	shrink = kern_exp(h->top - top);
	for (uint32_t s = 0; s < BLOCK; s++) {
		e[s] = (full >> s & 1) != 0 ? kern_exp(z[s] - top) : 0.0f;
		lane[s % 16] += e[s];
	}
	h->total = kern_fma(h->total, shrink, kern_tree(lane));
	h->top = top;
	for (uint32_t d = 0; d < width; d++)
		h->out[d] *= shrink;
	for (uint32_t s = 0; s < BLOCK; s++) {
		float p = job->ctx->numerics == KERN_NATIVE ? kern_bf16_round(e[s]) : e[s];
		const float *k = key + (size_t)s * width;

		if ((full >> s & 1) != 0)
			for (uint32_t d = 0; d < width; d++)
				h->out[d] = kern_fma(p, k[d], h->out[d]);
	}
}

/* Heads [h0, h1) of row @i. Several heads share the keys once they are read. */
static void attend_row(const struct attn_job *job, uint32_t i, uint32_t h0, uint32_t h1)
{
	const struct kern_attn_args *a = job->a;
	uint32_t slots = a->window + a->n_sel;
	float key[BLOCK * REF_WIDTH_MAX];
	struct head head[64];

	for (uint32_t h = h0; h < h1; h++) {
		size_t at = ((size_t)i * a->heads + h) * a->width;

		head[h - h0] = (struct head){ .top = -INFINITY, .out = a->out + at };
		memset(a->out + at, 0, a->width * sizeof(float));
	}
	for (uint32_t block = 0; block * BLOCK < slots; block++) {
		uint64_t full = read_slots(a, i, block, key);

		for (uint32_t h = h0; full != 0 && h < h1; h++)
			add_block(job, a->q + ((size_t)i * a->heads + h) * a->width, key, full,
				  &head[h - h0]);
	}
	for (uint32_t h = h0; h < h1; h++) {
		struct head *s = &head[h - h0];

		s->total += kern_exp(a->sink[h] - s->top);
		for (uint32_t d = 0; d < a->width; d++)
			s->out[d] = ref_keep(job->ctx, s->out[d] / s->total);
	}
}

/* Items are (row, head) pairs in row-major order; a range is cut at rows and at 64 heads. */
static void attend(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct attn_job *job = arg;
	uint32_t heads = job->a->heads;

	(void)part;
	while (first < end) {
		uint32_t i = first / heads, h0 = first % heads, h1 = heads;

		if (h1 - h0 > end - first)
			h1 = h0 + (end - first);
		if (h1 - h0 > 64)
			h1 = h0 + 64;
		attend_row(job, i, h0, h1);
		first += h1 - h0;
	}
}

void ref_attention(struct kern_ctx *ctx, const struct kern_attn_args *a)
{
	struct attn_job job = { .ctx = ctx,
				.a = a,
				.scale = (float)(1.0 / sqrt((double)a->width)) };

	assert(a->width <= REF_WIDTH_MAX && a->win->width == a->width);
	assert(a->comp == NULL ? a->n_sel == 0 : a->comp->width == a->width);
	kern_parallel(ctx->pool, a->n * a->heads, (uint64_t)(a->window + a->n_sel) * a->width * 3,
		      attend, &job);
}

/* Softmax over two scores per channel, then the weighted sum of the two (4.6.2). */
void ref_pool2(struct kern_ctx *ctx, const float *kv, const float *score, uint32_t n,
	       uint32_t width, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t d = 0; d < width; d++) {
			size_t at = (size_t)i * 2 * width + d;
			float s0 = score[at], s1 = score[at + width], top = s0 > s1 ? s0 : s1;
			float e0 = kern_exp(s0 - top), e1 = kern_exp(s1 - top), sum = e0 + e1;
			float v = kern_fma(kv[at + width], e1 / sum, kv[at] * (e0 / sum));

			y[(size_t)i * width + d] = ref_keep(ctx, v);
		}
}
