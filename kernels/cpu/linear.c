/*
 * linear.c - the linears of every set but the reference, built once per set by set.c.
 *
 * The canonical order (ref/linear.c) leaves one freedom: outputs are independent. So a weight is
 * re-laid once, at load, in panels of 32 outputs; within a panel the blocks of 32 channels follow
 * each other, within a block its channels, and a channel's 32 codes lie together, so that one pass
 * reads a panel from front to back and neighbouring outputs share an instruction:
 *
 *   data  [panel][block][32 channels][32 outputs]    FP4: two channels to a byte, the lower low
 *   scale FP8 [panel][block], FP4 [panel][block][32 outputs]
 *
 * Tails are padded with zeros, which are never stored. Codes become floats exactly, by the set's
 * vector layer (channel.h), which also says in which order it wants a channel's codes (ch_place()).
 *
 * One row runs through fused loops, a few blocks side by side, because the sum of one block is a
 * single chain of fma. Several rows share a decoded block of floats. Values the fast decoders cannot
 * carry (a NaN code, a NaN or subnormal scale, an activation too large to take the 2^8 of the fp16
 * detour) go through the plain decoder: same operations, same bits.
 */
#include <errno.h>
#include <stdlib.h>

#include "../ref/ref.h"
#include "channel.h"
#include "err.h"

#define PANEL	    32		 /* outputs of a panel; the rows of an FP8 scale tile */
#define BLOCK_CODES (32 * PANEL) /* elements of one block of a panel */
#define TILE	    48		 /* rows that share a decoded block; a multiple of every CH_ROWS */

static size_t block_bytes(enum kern_fmt fmt)
{
	switch (fmt) {
	case KERN_F32:
		return BLOCK_CODES * 4;
	case KERN_BF16:
		return BLOCK_CODES * 2;
	case KERN_FP8:
		return BLOCK_CODES;
	case KERN_FP4:
		break;
	}
	return BLOCK_CODES / 2;
}

/* ------------------------------------------------------------------ laying out */

static void put_code(enum kern_fmt fmt, const uint8_t *row, uint32_t k, uint8_t *block, uint32_t c,
		     uint32_t at)
{
	uint8_t code;

	switch (fmt) {
	case KERN_F32:
		memcpy(block + ((size_t)c * PANEL + at) * 4, row + (size_t)k * 4, 4);
		break;
	case KERN_BF16:
		memcpy(block + ((size_t)c * PANEL + at) * 2, row + (size_t)k * 2, 2);
		break;
	case KERN_FP8:
		block[c * PANEL + at] = row[k];
		break;
	case KERN_FP4:
		code = k % 2 == 0 ? row[k / 2] & 15 : row[k / 2] >> 4;
		block[c / 2 * PANEL + at] |= (uint8_t)(code << (c % 2 * 4));
		break;
	}
}

static void put_panel(const struct kern_matrix *m, struct kern_weight *w, uint32_t panel)
{
	uint32_t blocks = (m->cols + 31) / 32, first = panel * PANEL;
	uint32_t n = m->rows - first < PANEL ? m->rows - first : PANEL;

	assert(w->scale != NULL || (m->fmt != KERN_FP8 && m->fmt != KERN_FP4));
	for (uint32_t o = 0; o < n; o++) {
		const uint8_t *row = (const uint8_t *)m->data + (first + o) * m->stride;
		uint32_t at = ch_place(m->fmt, o);

		for (uint32_t k = 0; k < m->cols; k++) {
			size_t block = (size_t)panel * blocks + k / 32;

			put_code(m->fmt, row, k, w->data + block * w->stride, k % 32, at);
			w->odd = w->odd || (m->fmt == KERN_FP8 && (row[k] & 0x7f) == 0x7f);
		}
		for (uint32_t b = 0; b < blocks && m->fmt == KERN_FP4; b++) {
			uint8_t s = m->scale[(first + o) * m->scale_stride + b];

			w->scale[((size_t)panel * blocks + b) * PANEL + o] = s;
			w->odd = w->odd || s == 0 || s == 255;
		}
	}
	if (m->fmt == KERN_FP8)
		memcpy(w->scale + (size_t)panel * blocks, m->scale + panel * m->scale_stride,
		       blocks);
}

struct kern_weight *ref_weight_prepare(const struct kern_matrix *m, struct ds_err *err)
{
	size_t blocks = (m->cols + 31) / 32, panels = (m->rows + PANEL - 1) / PANEL;
	size_t data_bytes = panels * blocks * block_bytes(m->fmt);
	size_t scale_bytes = m->fmt == KERN_FP8	  ? panels * blocks
			     : m->fmt == KERN_FP4 ? panels * blocks * PANEL
						  : 0;
	struct kern_weight *w = calloc(1, sizeof(*w));

	assert(m->fmt != KERN_FP4 || m->cols % 32 == 0);
	if (w == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "weight", "allocate");
		return NULL;
	}
	*w = (struct kern_weight){ .fmt = m->fmt,
				   .rows = m->rows,
				   .cols = m->cols,
				   .bytes = sizeof(*w) + data_bytes + scale_bytes,
				   .stride = block_bytes(m->fmt) };
	if ((w->data = kern_alloc(data_bytes, "weight", err)) == NULL)
		goto free_weight;
	if (scale_bytes > 0 && (w->scale = kern_alloc(scale_bytes, "weight", err)) == NULL)
		goto free_weight;
	for (uint32_t panel = 0; panel < panels; panel++)
		put_panel(m, w, panel);
	return w;
free_weight:
	ref_weight_free(w);
	return NULL;
}

void ref_weight_free(struct kern_weight *w)
{
	if (w == NULL)
		return;
	kern_free(w->data);
	kern_free(w->scale);
	free(w);
}

size_t ref_weight_bytes(const struct kern_weight *w)
{
	return w->bytes;
}

/* ------------------------------------------------------------------ decoding */

/* The scales of a block; FP4: none of them 0 or 255, whose floats are not exponents alone. */
CH_INLINE struct channel read_scales(enum kern_fmt fmt, const struct kern_weight *w, size_t block)
{
	if (fmt == KERN_FP4)
		return ch_scales(w->scale + block * PANEL);
	return ch_all(fmt == KERN_FP8 ? kern_e8m0(w->scale[block]) : 1.0f);
}

/* Codes of any kind, one by one: [32 channels][32 outputs] and the scales of the outputs. */
static void decode_plain(const struct kern_weight *w, size_t block, float *v, float *scale)
{
	const uint8_t *data = w->data + block * w->stride;

	for (uint32_t c = 0; c < 32; c++)
		for (uint32_t o = 0; o < PANEL; o++) {
			uint32_t at = ch_place(w->fmt, o);
			uint8_t byte =
				data[w->fmt == KERN_FP4 ? c / 2 * PANEL + at : c * PANEL + at];

			v[c * PANEL + o] = w->fmt == KERN_FP8
						   ? kern_e4m3(byte)
						   : kern_e2m1(c % 2 == 0 ? byte & 15 : byte >> 4);
		}
	for (uint32_t o = 0; o < PANEL; o++)
		scale[o] = kern_e8m0(w->scale[w->fmt == KERN_FP8 ? block : block * PANEL + o]);
}

/* Channel @k of a block as it is stored, FP8 times 2^-8. */
CH_INLINE struct channel read_channel(enum kern_fmt fmt, const uint8_t *data, uint32_t k)
{
	switch (fmt) {
	case KERN_F32:
		return ch_f32(data + (size_t)k * PANEL * 4);
	case KERN_BF16:
		return ch_bf16(data + (size_t)k * PANEL * 2);
	case KERN_FP8:
		return ch_fp8(data + (size_t)k * PANEL);
	case KERN_FP4:
		break;
	}
	return ch_fp4(data + (size_t)k / 2 * PANEL, k % 2 != 0);
}

/* The same by the vector layer's decoders; every format. */
static void decode_fast(const struct kern_weight *w, size_t block, float *v, float *scale)
{
	const uint8_t *data = w->data + block * w->stride;

	for (uint32_t k = 0; k < 32; k++) {
		struct channel c = read_channel(w->fmt, data, k);

		ch_store(v + (size_t)k * PANEL, w->fmt == KERN_FP8 ? ch_mul(c, 0x1p8f) : c);
	}
	ch_store(scale, read_scales(w->fmt, w, block));
}

/* ------------------------------------------------------------------ sums */

static void store(enum ref_store how, const float *sum, uint32_t n, float *y)
{
	for (uint32_t o = 0; o < n; o++)
		switch (how) {
		case REF_SET:
			y[o] = kern_canon(sum[o]);
			break;
		case REF_ROUND:
			y[o] = kern_bf16_round(sum[o]);
			break;
		case REF_ADD:
			y[o] = kern_canon(y[o] + sum[o]);
			break;
		}
}

/* ------------------------------------------------------------------ one row */

/*
 * The sums of @n blocks that follow each other, of one row: each its own chain, from zero. @fmt and @n
 * are constants where this is called; @size is 32 unless @n is 1. FP8: (w 2^-8) (x 2^8) is the same
 * product, rounded once in the fma; @x has the 2^8 already.
 */
CH_INLINE void block_sums(enum kern_fmt fmt, uint32_t n, const uint8_t *data, size_t stride,
			  const float *x, uint32_t size, struct channel *acc)
{
#pragma GCC unroll 4
	for (uint32_t b = 0; b < n; b++)
		acc[b] = ch_all(0.0f);
	for (uint32_t k = 0; k + 1 < size; k += 2) /* by two: which nibble is then known */
#pragma GCC unroll 4
		for (uint32_t b = 0; b < n; b++) {
			const uint8_t *at = data + b * stride;

			acc[b] = ch_fma(read_channel(fmt, at, k), x[b * 32 + k], acc[b]);
			acc[b] = ch_fma(read_channel(fmt, at, k + 1), x[b * 32 + k + 1], acc[b]);
		}
	if (size % 2 != 0)
		acc[0] = ch_fma(read_channel(fmt, data, size - 1), x[size - 1], acc[0]);
}

/* Blocks [block, block + n) of one row added to *sum. */
CH_INLINE void add_blocks(enum kern_fmt fmt, uint32_t n, const struct kern_weight *w, size_t block,
			  const float *x, const float *s_x, uint32_t size, struct channel *sum)
{
	struct channel acc[CH_BLOCKS];
	float scaled[32 * CH_BLOCKS];

	if (fmt == KERN_FP8) {
		for (uint32_t k = 0; k < (n - 1) * 32 + size; k++)
			scaled[k] = x[k] * 0x1p8f;
		x = scaled;
	}
	block_sums(fmt, n, w->data + block * w->stride, w->stride, x, size, acc);
#pragma GCC unroll 4
	for (uint32_t b = 0; b < n; b++)
		*sum = ch_fma_each(acc[b], ch_mul(read_scales(fmt, w, block + b), s_x[b]), *sum);
}

/* One row against one panel, codes decoded on the way. @fmt is a constant where this is called. */
CH_INLINE void panel_one(enum kern_fmt fmt, const struct ref_linear_job *job, uint32_t panel,
			 uint32_t row)
{
	const struct kern_weight *w = job->w;
	const float *x = job->q + row * job->q_stride;
	const float *s_x = job->scale + row * job->scale_stride;
	uint32_t n = w->rows - panel * PANEL < PANEL ? w->rows - panel * PANEL : PANEL;
	uint32_t left = job->k1 - job->k0;
	size_t block = (size_t)panel * ((w->cols + 31) / 32) + job->k0 / 32;
	struct channel sum = ch_all(0.0f);
	float out[PANEL] __attribute__((aligned(64)));

	for (; left >= 32 * CH_BLOCKS; left -= 32 * CH_BLOCKS) {
		add_blocks(fmt, CH_BLOCKS, w, block, x, s_x, 32, &sum);
		x += 32 * CH_BLOCKS;
		s_x += CH_BLOCKS;
		block += CH_BLOCKS;
	}
	for (; left > 0; x += 32, s_x++, block++) {
		uint32_t size = left < 32 ? left : 32;

		add_blocks(fmt, 1, w, block, x, s_x, size, &sum);
		left -= size;
	}
	ch_store(out, sum);
	store(job->store, out, n, job->y + row * job->stride + (size_t)panel * PANEL);
}

static void one_row(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct ref_linear_job *job = arg;
	uint32_t row = job->rows == NULL ? 0 : job->rows[0];

	(void)part;
	for (uint32_t panel = first; panel < end; panel++)
		switch (job->w->fmt) {
		case KERN_F32:
			panel_one(KERN_F32, job, panel, row);
			break;
		case KERN_BF16:
			panel_one(KERN_BF16, job, panel, row);
			break;
		case KERN_FP8:
			panel_one(KERN_FP8, job, panel, row);
			break;
		case KERN_FP4:
			panel_one(KERN_FP4, job, panel, row);
			break;
		}
}

/* ------------------------------------------------------------------ many rows */

/* A decoded block, and the rows whose sums go on with it. */
struct tile {
	float v[BLOCK_CODES] __attribute__((aligned(64)));
	float scale[PANEL] __attribute__((aligned(64)));
	float sum[TILE][PANEL] __attribute__((aligned(64)));
	const float *x[TILE];	/* of the first block */
	const float *s_x[TILE]; /* the same */
};

/* Rows [r, r + n) of a tile, channels [at, at + size); @n is a constant where this is called. */
CH_INLINE void tile_rows(struct tile *t, uint32_t n, uint32_t r, size_t at, uint32_t size)
{
	struct channel acc[CH_ROWS], c;
	const float *x[CH_ROWS];

#pragma GCC unroll 8
	for (uint32_t i = 0; i < n; i++) {
		x[i] = t->x[r + i] + at;
		acc[i] = ch_all(0.0f);
	}
	for (uint32_t k = 0; k < size; k++) {
		c = ch_load(t->v + (size_t)k * PANEL);
#pragma GCC unroll 8
		for (uint32_t i = 0; i < n; i++)
			acc[i] = ch_fma(c, x[i][k], acc[i]);
	}
	c = ch_load(t->scale);
#pragma GCC unroll 8
	for (uint32_t i = 0; i < n; i++)
		ch_store(t->sum[r + i], ch_fma_each(acc[i], ch_mul(c, t->s_x[r + i][at / 32]),
						    ch_load(t->sum[r + i])));
}

/* Rows [first, first + n) of the job, at most TILE, against one panel. */
static void panel_rows(const struct ref_linear_job *job, uint32_t panel, uint32_t first, uint32_t n)
{
	const struct kern_weight *w = job->w;
	uint32_t outs = w->rows - panel * PANEL < PANEL ? w->rows - panel * PANEL : PANEL;
	size_t block = (size_t)panel * ((w->cols + 31) / 32) + job->k0 / 32;
	struct tile t;

	memset(t.sum, 0, n * sizeof(t.sum[0]));
	for (uint32_t i = 0; i < n; i++) {
		size_t row = job->rows == NULL ? first + i : job->rows[first + i];

		t.x[i] = job->q + row * job->q_stride;
		t.s_x[i] = job->scale + row * job->scale_stride;
	}
	for (uint32_t k = job->k0; k < job->k1; k += 32, block++) {
		uint32_t size = job->k1 - k < 32 ? job->k1 - k : 32, i = 0;

		if (w->odd)
			decode_plain(w, block, t.v, t.scale);
		else
			decode_fast(w, block, t.v, t.scale);
		for (; i + CH_ROWS <= n; i += CH_ROWS)
			tile_rows(&t, CH_ROWS, i, k - job->k0, size);
		for (; i < n; i++)
			tile_rows(&t, 1, i, k - job->k0, size);
	}
	for (uint32_t i = 0; i < n; i++) {
		size_t row = job->rows == NULL ? first + i : job->rows[first + i];

		store(job->store, t.sum[i], outs,
		      job->y + row * job->stride + (size_t)panel * PANEL);
	}
}

static void many_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct ref_linear_job *job = arg;

	(void)part;
	for (uint32_t panel = first; panel < end; panel++)
		for (uint32_t i = 0; i < job->n; i += TILE)
			panel_rows(job, panel, i, job->n - i < TILE ? job->n - i : TILE);
}

/* ------------------------------------------------------------------ */

/* Whether an activation of the single row would not survive a factor of 2^8. */
static bool too_large(const struct ref_linear_job *job)
{
	size_t row = job->rows == NULL ? 0 : job->rows[0];
	uint32_t most = 0;

	for (uint32_t k = 0; k < job->k1 - job->k0; k++) {
		uint32_t u = kern_bits(job->q[row * job->q_stride + k]) & UINT32_C(0x7fffffff);

		most = u > most ? u : most;
	}
	return most >= UINT32_C(247) << 23; /* 2^120 */
}

void ref_linear_run(struct kern_ctx *ctx, const struct ref_linear_job *job)
{
	struct ref_linear_job mine = *job;
	bool fused = job->n == 1 && !job->w->odd && (job->w->fmt != KERN_FP8 || !too_large(job));

	kern_parallel(ctx->pool, (job->w->rows + PANEL - 1) / PANEL,
		      (uint64_t)job->n * (job->k1 - job->k0) * PANEL / 8,
		      fused ? one_row : many_rows, &mine);
}
