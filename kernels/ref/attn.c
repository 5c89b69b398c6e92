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

/* The keys of one block of slots; 0 in a hole. Scores want sixteen slots side by side. */
struct keys {
	uint64_t full;			     /* bit s is set where slot s holds a key */
	float row[BLOCK * REF_WIDTH_MAX];    /* [slot][channel] */
	float column[BLOCK * REF_WIDTH_MAX]; /* [slot / 16][channel][slot % 16] */
};

/* Read slot @slot of row @i. Return: whether it holds a key. */
static bool read_slot(const struct kern_attn_args *a, uint32_t i, uint32_t slot, float *key)
{
	uint32_t pos = a->pos[i], first = pos + 1 > a->window ? pos + 1 - a->window : 0;
	uint32_t at = slot - a->window;

	if (slot < a->window) {
		if (first + slot > pos)
			return false;
		ref_row_read(a->win, first + slot, key);
		return true;
	}
	if (at >= a->n_sel || a->sel[(size_t)i * a->n_sel + at] < 0)
		return false;
	ref_row_read(a->comp, (uint64_t)a->sel[(size_t)i * a->n_sel + at], key);
	return true;
}

static void read_block(const struct kern_attn_args *a, uint32_t i, uint32_t block, struct keys *k)
{
	size_t width = a->width;

	k->full = 0;
	for (uint32_t s = 0; s < BLOCK; s++) {
		float *row = k->row + s * width, *column = k->column + s / 16 * 16 * width + s % 16;

		if (read_slot(a, i, block * BLOCK + s, row))
			k->full |= UINT64_C(1) << s;
		else
			memset(row, 0, width * sizeof(*row));
		for (size_t d = 0; d < width; d++)
			column[d * 16] = row[d];
	}
}

/* One block of slots for one head: scores, the new maximum, then the sums scaled to it. */
static void add_block(const struct attn_job *job, const float *q, const struct keys *k,
		      struct head *h)
{
	size_t width = job->a->width;
	float z[BLOCK], e[BLOCK], lane[16] = { 0 }, top = h->top, shrink;

	for (uint32_t s = 0; s < BLOCK; s += 16)
		kern_dot16(q, k->column + s * width, width, z + s);
	for (uint32_t s = 0; s < BLOCK; s++) {
		z[s] *= job->scale;
		if ((k->full >> s & 1) != 0)
			top = z[s] > top ? z[s] : top;
	}
	shrink = kern_exp(h->top - top);
	for (uint32_t s = 0; s < BLOCK; s++) {
		e[s] = (k->full >> s & 1) != 0 ? kern_exp(z[s] - top) : 0.0f;
		lane[s % 16] += e[s];
		e[s] = job->ctx->numerics == KERN_NATIVE ? kern_bf16_round(e[s]) : e[s];
	}
	h->total = kern_fma(h->total, shrink, kern_tree(lane));
	h->top = top;
	for (size_t d = 0; d < width; d += 32) { /* widths of cache rows are multiples of 32 */
		float out[32];

		for (int j = 0; j < 32; j++)
			out[j] = h->out[d + j] * shrink;
		for (uint32_t s = 0; s < BLOCK; s++)
			if ((k->full >> s & 1) != 0)
				for (int j = 0; j < 32; j++)
					out[j] = kern_fma(e[s], k->row[s * width + d + j], out[j]);
		memcpy(h->out + d, out, sizeof(out));
	}
}

/* Heads [h0, h1) of row @i. Several heads share the keys once they are read. */
static void attend_row(const struct attn_job *job, uint32_t i, uint32_t h0, uint32_t h1)
{
	const struct kern_attn_args *a = job->a;
	uint32_t slots = a->window + a->n_sel;
	struct head head[64];
	struct keys keys;

	for (uint32_t h = h0; h < h1; h++) {
		size_t at = ((size_t)i * a->heads + h) * a->width;

		head[h - h0] = (struct head){ .top = -INFINITY, .out = a->out + at };
		memset(a->out + at, 0, a->width * sizeof(float));
	}
	for (uint32_t block = 0; block * BLOCK < slots; block++) {
		read_block(a, i, block, &keys);
		for (uint32_t h = h0; keys.full != 0 && h < h1; h++)
			add_block(job, a->q + ((size_t)i * a->heads + h) * a->width, &keys,
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

	assert(a->width % 32 == 0 && a->width <= REF_WIDTH_MAX && a->win->width == a->width);
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
