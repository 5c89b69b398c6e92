/*
 * test_kern_sets.c - the promises that make two ranks agree: every kernel set gives the bits of the
 * reference, a row's bits do not depend on its neighbours or on their number, and not on threads.
 *
 * Inputs are rows of several characters: ordinary numbers, subnormals, zeros of both signs, huge
 * ones, and rows with a NaN or an infinity in them. Each operation runs on all 513 rows at once with
 * the reference on one thread; then with every set, on one and on three threads, at once again, and
 * the first 64 rows in pieces of 1, 2, 3, 8, 9 and 64; results are compared with memcmp.
 *
 * KERN_BITS in the environment prints a checksum of every result of the reference: two processors
 * must print the same (tests/cli/arm64.sh).
 */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "file.h"
#include "kern_math.h"
#include "kernels.h"

#define ROWS  513
#define FEW   64   /* of them, in pieces */
#define WIDTH 2048 /* floats of input per row */

static const uint32_t pieces[] = { 1, 2, 3, 8, 9, FEW, ROWS };

static uint64_t seed;

static uint32_t draw(void)
{
	uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* -1..1 */
static float draw_unit(void)
{
	return (float)(int32_t)draw() * 0x1p-31f;
}

/* A number fit for row @row: its character repeats every eight rows. */
static float draw_for(uint32_t row)
{
	static const float special[] = { 0.0f,	 -0.0f, 1.0f,	   -1.0f,
					 448.0f, 6.0f,	0x1p-149f, -0x1p-149f };

	switch (row % 8) {
	case 1:
		return kern_from_bits(draw() & UINT32_C(0x807fffff)); /* subnormal */
	case 2:
		return special[draw() % 8];
	case 3:
		return draw_unit() * 0x1p125f;
	case 4:
		return draw() % 97 == 0 ? NAN : draw_unit();
	case 5:
		return draw() % 97 == 0 ? INFINITY : draw_unit() * 0x1p119f;
	case 6:
		return draw_unit() * exp2f((float)(draw() % 60) - 30.0f);
	default:
		return draw_unit() * 3.0f;
	}
}

static float *buffer(size_t n)
{
	float *p = kern_alloc(n * sizeof(float), "test", NULL);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	return p;
}

/* ------------------------------------------------------------------ operations under test */

struct job {
	const struct kern_ops *ops;
	struct kern_ctx *ctx;
	const float *x;		/* [ROWS, WIDTH] */
	const struct matrix *w; /* linears only */
};

/* Runs rows [first, first + n) and writes their results to out, [n, out_width]. */
typedef void op_run(const struct job *j, uint32_t first, uint32_t n, float *out);

/* The first @width floats of rows from @first, without gaps. */
static float *input(const struct job *j, uint32_t first, uint32_t n, uint32_t width)
{
	float *p = buffer((size_t)n * width);

	for (uint32_t i = 0; i < n; i++)
		memcpy(p + (size_t)i * width, j->x + (size_t)(first + i) * WIDTH,
		       width * sizeof(float));
	return p;
}

static void run_act(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *x = input(j, first, n, 80), *q = buffer((size_t)n * 80), *s = buffer((size_t)n * 3);
	struct kern_act a = { .q = q, .scale = s };

	j->ops->act_q8(j->ctx, x, n, 80, &a);
	CU_ASSERT(a.n == n && a.width == 80);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(out + (size_t)i * 83, q + (size_t)i * 80, 80 * sizeof(float));
		memcpy(out + (size_t)i * 83 + 80, s + (size_t)i * 3, 3 * sizeof(float));
	}
	kern_free(x);
	kern_free(q);
	kern_free(s);
}

static void run_plain(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *s = buffer((size_t)n * 3);
	struct kern_act a = { .q = out, .scale = s };

	j->ops->act_plain(j->ctx, j->x + (size_t)first * WIDTH, WIDTH, n, 80, &a);
	for (uint32_t i = 0; i < n * 3; i++)
		CU_ASSERT_EQUAL(s[i], 1.0f);
	kern_free(s);
}

static void run_round(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *x = input(j, first, n, 64);

	j->ops->round(j->ctx, x, (size_t)n * 64);
	memcpy(out, x, (size_t)n * 64 * sizeof(float));
	kern_free(x);
}

static void run_qdq(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	static const enum kern_quant kinds[] = { KERN_Q8, KERN_Q4IDX, KERN_Q4KV };

	for (size_t k = 0; k < 3; k++) {
		float *x = input(j, first, n, 64);

		j->ops->qdq(j->ctx, kinds[k], x, n, 64);
		for (uint32_t i = 0; i < n; i++)
			memcpy(out + (size_t)i * 192 + k * 64, x + (size_t)i * 64,
			       64 * sizeof(float));
		kern_free(x);
	}
}

static void run_norm(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *x = input(j, first, n, 1000), gain[1000];

	for (int i = 0; i < 1000; i++)
		gain[i] = 1.0f + (float)i * 0x1p-9f;
	j->ops->rms_norm(j->ctx, x, gain, 1e-20f, n, 1000, out);
	j->ops->rms_norm(j->ctx, x, gain, 1e-20f, n, 1000, x); /* in place */
	CU_ASSERT_EQUAL(memcmp(x, out, (size_t)n * 1000 * sizeof(float)), 0);
	kern_free(x);
}

static void run_rope(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	struct kern_rope r;
	uint32_t pos[ROWS];
	float *x = input(j, first, n, 5 * 64);

	kern_rope_init(&r, 32, 160000.0, true, 16.0, 32.0, 1.0, 65536.0);
	for (uint32_t i = 0; i < n; i++)
		pos[i] = (first + i) * 16381;
	j->ops->rope(j->ctx, &r, x, n, 5, 64, pos, false);
	memcpy(out, x, (size_t)n * 320 * sizeof(float));
	j->ops->rope(j->ctx, &r, x, n, 5, 64, pos, true);
	for (uint32_t i = 0; i < n * 320; i++)
		if (i % 64 < 32) /* channels that do not rotate */
			CU_ASSERT_EQUAL(kern_bits(x[i]), kern_bits(out[i]));
	kern_free(x);
}

/* Mixing weights out of the tail of a row. */
static void small(const struct job *j, uint32_t first, uint32_t n, uint32_t at, uint32_t width,
		  float *v)
{
	for (uint32_t i = 0; i < n; i++)
		memcpy(v + (size_t)i * width, j->x + (size_t)(first + i) * WIDTH + at,
		       width * sizeof(float));
}

static void run_hc(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *x = input(j, first, n, 4 * 100), *y = input(j, first, n, 100);
	float *fn = buffer((size_t)24 * 400), base[24], scale[3] = { 0.5f, 0.7f, 0.9f };
	float pre[ROWS * 4], post[ROWS * 4], comb[ROWS * 16], mix[ROWS * 4];
	float *mixed = buffer((size_t)n * 100);
	struct kern_hc w = { .copies = 4,
			     .dim = 100,
			     .iters = 20,
			     .eps = 1e-6f,
			     .norm_eps = 1e-20f,
			     .fn = fn,
			     .base = base,
			     .scale = scale };

	for (uint32_t i = 0; i < 24 * 400; i++)
		fn[i] = (float)(i * 2654435761U >> 20) * 0x1p-14f - 0.125f;
	for (int i = 0; i < 24; i++)
		base[i] = (float)i * 0.03125f - 0.25f;
	j->ops->hc_predict(j->ctx, &w, x, n, pre, post, comb);
	small(j, first, n, 500, 4, mix);
	j->ops->hc_mix(j->ctx, mix, x, n, 4, 100, mixed);
	j->ops->hc_update(j->ctx, x, y, post, comb, n, 4, 100);
	for (uint32_t i = 0; i < n; i++) {
		float *o = out + (size_t)i * 524;

		memcpy(o, pre + (size_t)i * 4, 4 * sizeof(float));
		memcpy(o + 4, post + (size_t)i * 4, 4 * sizeof(float));
		memcpy(o + 8, comb + (size_t)i * 16, 16 * sizeof(float));
		memcpy(o + 24, mixed + (size_t)i * 100, 100 * sizeof(float));
		memcpy(o + 124, x + (size_t)i * 400, 400 * sizeof(float));
	}
	kern_free(x);
	kern_free(y);
	kern_free(fn);
	kern_free(mixed);
}

/* A ring of ten rows: what is read back is what was stored last. */
static void run_rows(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	static const enum kern_row_fmt fmts[] = { KERN_ROW_F32, KERN_ROW_Q8, KERN_ROW_Q4KV,
						  KERN_ROW_Q4IDX };
	bool exact = j->ctx->numerics == KERN_EXACT;

	for (size_t f = 0; f < 4; f++)
		for (uint32_t i = 0; i < n; i++) {
			struct kern_cache c = { .fmt = exact ? KERN_ROW_F32 : fmts[f],
						.width = 96,
						.ring = 10,
						.data = (uint8_t *)buffer(10 * 96) };

			j->ops->row_put(j->ctx, &c, first + i, j->x + (size_t)(first + i) * WIDTH,
					1);
			j->ops->row_get(j->ctx, &c, first + i, 1, out + (size_t)i * 384 + f * 96);
			kern_free(c.data);
		}
}

/* Row i looks back from position 40 + i over a window of 24 and over some of 64 entries. */
static void run_attention(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	bool exact = j->ctx->numerics == KERN_EXACT;
	struct kern_cache win = { .fmt = exact ? KERN_ROW_F32 : KERN_ROW_Q8,
				  .width = 64,
				  .ring = 128 };
	struct kern_cache comp = { .fmt = exact ? KERN_ROW_F32 : KERN_ROW_Q4KV,
				   .width = 64,
				   .ring = 64 };
	uint32_t pos[ROWS];
	int32_t sel[ROWS * 80];
	float sink[7], *q = input(j, first, n, 7 * 64);
	struct kern_attn_args a = { .n = n,
				    .heads = 7,
				    .width = 64,
				    .window = 24,
				    .q = q,
				    .pos = pos,
				    .win = &win,
				    .comp = &comp,
				    .sel = sel,
				    .n_sel = 80,
				    .sink = sink,
				    .out = out };

	win.data = (uint8_t *)buffer((size_t)128 * 64);
	comp.data = (uint8_t *)buffer((size_t)64 * 64);
	for (uint32_t e = 0; e < 128;
	     e++) /* keys: ordinary numbers, so that rows stay comparable */
		j->ops->row_put(j->ctx, &win, e, j->x + (size_t)(e % 8) * 8 * WIDTH + (size_t)8 * e,
				1);
	for (uint32_t e = 0; e < 64; e++)
		j->ops->row_put(j->ctx, &comp, e,
				j->x + (size_t)(e % 8) * 8 * WIDTH + (size_t)9 * e, 1);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t have = (first + i) % 61;

		pos[i] = first + i < 40 ? first + i : 60 + first + i;
		for (uint32_t k = 0; k < 80; k++)
			sel[i * 80 + k] = k < have ? (int32_t)k : -1;
	}
	for (int h = 0; h < 7; h++)
		sink[h] = (float)h * 3.0f - 9.0f;
	j->ops->attention(j->ctx, &a);
	kern_free(win.data);
	kern_free(comp.data);
	kern_free(q);
}

static void run_pool2(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *kv = input(j, first, n, 256), *score = buffer((size_t)n * 256);

	small(j, first, n, 700, 256, score);
	j->ops->pool2(j->ctx, kv, score, n, 128, out);
	kern_free(kv);
	kern_free(score);
}

static void run_index(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	bool exact = j->ctx->numerics == KERN_EXACT;
	struct kern_cache keys = { .fmt = exact ? KERN_ROW_F32 : KERN_ROW_Q4IDX,
				   .width = 32,
				   .ring = 200,
				   .data = (uint8_t *)buffer((size_t)200 * 32) };
	uint32_t visible[ROWS];
	float weight[ROWS * 4], *q = input(j, first, n, 4 * 32);
	int32_t *sel = (int32_t *)buffer((size_t)n * 20),
		*blocks = (int32_t *)buffer((size_t)n * 9);
	struct kern_index_args a = { .n = n,
				     .heads = 4,
				     .dim = 32,
				     .topk = 20,
				     .q = q,
				     .weight = weight,
				     .keys = &keys,
				     .visible = visible,
				     .blocks_out = blocks,
				     .n_blocks = 9,
				     .block_size = 4,
				     .sel = sel,
				     .scratch = buffer(kern_index_scratch(n, 20, 9)) };

	for (uint32_t e = 0; e < 200; e++)
		j->ops->row_put(j->ctx, &keys, e,
				j->x + (size_t)(e % 8) * 8 * WIDTH + (size_t)8 * e, 1);
	for (uint32_t i = 0; i < n; i++)
		visible[i] = (first + i) * 3;
	small(j, first, n, 900, 4, weight);
	j->ops->index_select(j->ctx, &a);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(out + (size_t)i * 49, sel + (size_t)i * 20, 80);
		memcpy(out + (size_t)i * 49 + 20, blocks + (size_t)i * 9, 36);
	}
	a.blocks_in = blocks;
	a.blocks_out = NULL;
	j->ops->index_select(j->ctx, &a);
	for (uint32_t i = 0; i < n; i++)
		memcpy(out + (size_t)i * 49 + 29, sel + (size_t)i * 20, 80);
	kern_free(keys.data);
	kern_free(q);
	kern_free(sel);
	kern_free(blocks);
	kern_free(a.scratch);
}

static void run_route(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *logits = input(j, first, n, 48), bias[48], weight[ROWS * 6];
	int32_t ids[ROWS * 6];

	for (int i = 0; i < 48; i++)
		bias[i] = (float)(i % 5) * 0.25f;
	j->ops->route(j->ctx, logits, bias, n, 48, 6, 1.5f, ids, weight);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(out + (size_t)i * 12, ids + (size_t)i * 6, 24);
		memcpy(out + (size_t)i * 12 + 6, weight + (size_t)i * 6, 24);
	}
	kern_free(logits);
}

static void run_engram(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	float *x = input(j, first, n, 3 * 70), *kv = buffer((size_t)n * 280), qk[210];
	bool dead[ROWS];

	small(j, first, n, 400, 280, kv);
	for (int i = 0; i < 210; i++)
		qk[i] = (float)(i % 11) * 0.25f - 1.0f;
	for (uint32_t i = 0; i < n; i++)
		dead[i] = (first + i) % 5 == 3;
	j->ops->engram_gate(j->ctx, x, kv, qk, dead, 1e-20f, n, 3, 70);
	memcpy(out, x, (size_t)n * 210 * sizeof(float));
	kern_free(x);
	kern_free(kv);
}

static void run_finite(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = j->ops->finite(j->ctx, j->x + (size_t)(first + i) * WIDTH, 300) ? 1.0f
											 : 0.0f;
}

/* ------------------------------------------------------------------ linears */

/* A stored matrix of random codes, and what the sets made of it. */
struct matrix {
	struct kern_matrix m;
	uint32_t k0, k1;
	bool round;
};

static size_t stored_bytes(enum kern_fmt fmt, uint32_t cols)
{
	return fmt == KERN_F32	  ? (size_t)cols * 4
	       : fmt == KERN_BF16 ? (size_t)cols * 2
	       : fmt == KERN_FP8  ? cols
				  : cols / 2;
}

/*
 * Random codes with a gap between rows. @wild: NaN codes, scales 2^-127 and NaN, subnormal and
 * non-finite elements; otherwise numbers of ordinary size.
 */
static void matrix_fill(struct kern_matrix *m, enum kern_fmt fmt, uint32_t rows, uint32_t cols,
			bool wild)
{
	size_t stride = stored_bytes(fmt, cols) + 8, blocks = (cols + 31) / 32;
	size_t scale_rows = fmt == KERN_FP8 ? (rows + 31) / 32 : rows;
	uint8_t *data = (uint8_t *)buffer(rows * stride / 4 + 1);
	uint8_t *scale = (uint8_t *)buffer(scale_rows * (blocks + 3) / 4 + 1);

	*m = (struct kern_matrix){ .fmt = fmt,
				   .rows = rows,
				   .cols = cols,
				   .data = data,
				   .stride = stride,
				   .scale = scale,
				   .scale_stride = blocks + 3 };
	for (size_t r = 0; r < rows; r++)
		for (uint32_t k = 0; k < cols; k++) {
			float v = wild ? draw_for(draw()) : draw_unit();
			uint16_t half = kern_f32_to_bf16(v);
			uint8_t *row = data + r * stride, code = (uint8_t)draw();

			if (fmt == KERN_F32)
				memcpy(row + (size_t)k * 4, &v, 4);
			else if (fmt == KERN_BF16)
				memcpy(row + (size_t)k * 2, &half, 2);
			else if (fmt == KERN_FP8)
				row[k] = !wild && (code & 0x7f) == 0x7f ? 0x08 : code;
			else
				row[k / 2] = code;
		}
	for (size_t i = 0; i < scale_rows * (blocks + 3); i++)
		scale[i] = wild ? (uint8_t)(draw() % 16 == 0 ? 0 : draw())
				: (uint8_t)(117 + draw() % 10);
}

static void matrix_free(struct kern_matrix *m)
{
	kern_free((void *)(uintptr_t)m->data);
	kern_free((void *)(uintptr_t)m->scale);
}

static void run_linear(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	uint32_t width = j->w->k1 - j->w->k0, blocks = (width + 31) / 32;
	struct kern_weight *w = j->ops->weight_prepare(&j->w->m, NULL);
	float *q = input(j, first, n, width), *s = buffer((size_t)n * blocks);
	float *y = buffer((size_t)n * (j->w->m.rows + 5));
	struct kern_act a = { .n = n, .width = width, .q = q, .scale = s };

	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT(j->ops->weight_bytes(w) >=
		  stored_bytes(j->w->m.fmt, j->w->m.cols) * j->w->m.rows);
	for (uint32_t i = 0; i < n * blocks; i++)
		s[i] = (first + i / blocks) % 8 == 6
			       ? kern_e8m0_to_f32((uint8_t)((first + i / blocks) * 37 + i % blocks))
			       : 0x1p-4f;
	j->ops->linear(j->ctx, w, &a, j->w->k0, j->w->k1, y, j->w->m.rows + 5, j->w->round);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(out + (size_t)i * j->w->m.rows, y + (size_t)i * (j->w->m.rows + 5),
		       j->w->m.rows * sizeof(float));
		for (int k = 0; k < 5; k++) /* nothing behind the last output */
			CU_ASSERT_EQUAL(
				y[(size_t)i * (j->w->m.rows + 5) + j->w->m.rows + (size_t)k], 0.0f);
	}
	j->ops->weight_free(w);
	kern_free(q);
	kern_free(s);
	kern_free(y);
}

/* ------------------------------------------------------------------ mixture of experts */

#define EXPERTS 5
#define INNER	288

/* One rank's share: inner channels [from, to), cut at @leaf_at. */
struct share {
	uint32_t from, to, n_leaf, leaf_at[KERN_LEAVES_MAX + 1];
};

static struct kern_matrix stored[3][EXPERTS + 1]; /* w1, w3, w2; the last one is shared */

static void experts_fill(void)
{
	for (size_t e = 0; e <= EXPERTS; e++) {
		enum kern_fmt fmt = e == EXPERTS ? KERN_FP8 : KERN_FP4;

		matrix_fill(&stored[0][e], fmt, INNER, 96, false);
		matrix_fill(&stored[1][e], fmt, INNER, 96, false);
		matrix_fill(&stored[2][e], fmt, 96, INNER, false);
	}
}

static void experts_free(void)
{
	for (int m = 0; m < 3; m++)
		for (size_t e = 0; e <= EXPERTS; e++)
			matrix_free(&stored[m][e]);
}

/* The rectangle of a stored matrix that a share holds. */
static struct kern_weight *cut(const struct job *j, int which, size_t e, const struct share *s)
{
	struct kern_matrix m = stored[which][e];

	if (which == 2) { /* columns */
		m.data = (const uint8_t *)m.data + stored_bytes(m.fmt, s->from);
		m.scale += s->from / 32;
		m.cols = s->to - s->from;
	} else { /* rows */
		m.data = (const uint8_t *)m.data + s->from * m.stride;
		m.scale += (m.fmt == KERN_FP8 ? s->from / 32 : s->from) * m.scale_stride;
		m.rows = s->to - s->from;
	}
	return j->ops->weight_prepare(&m, NULL);
}

/* Leaf partials of rows [first, first + n): out[leaf] is [n, 96]. */
static void moe_share(const struct job *j, const struct share *s, uint32_t first, uint32_t n,
		      float *const *out)
{
	struct kern_weight *w[3][EXPERTS + 1];
	float *x = input(j, first, n, 96), *q = buffer((size_t)n * 96), *sc = buffer((size_t)n * 3);
	struct kern_act u = { .q = q, .scale = sc };
	int32_t ids[ROWS * 2];
	float weight[ROWS * 2];
	struct kern_moe_args a = { .n = n,
				   .dim = 96,
				   .topk = 2,
				   .n_leaf = s->n_leaf,
				   .leaf_at = s->leaf_at,
				   .w1 = (const struct kern_weight *const *)w[0],
				   .w3 = (const struct kern_weight *const *)w[1],
				   .w2 = (const struct kern_weight *const *)w[2],
				   .limit = 10.0f,
				   .u = &u,
				   .ids = ids,
				   .weight = weight,
				   .out = out,
				   .scratch = buffer(kern_moe_scratch(n, s->to - s->from)) };

	for (int m = 0; m < 3; m++)
		for (size_t e = 0; e <= EXPERTS; e++)
			CU_ASSERT_PTR_NOT_NULL_FATAL(w[m][e] = cut(j, m, e, s));
	a.s1 = w[0][EXPERTS];
	a.s3 = w[1][EXPERTS];
	a.s2 = w[2][EXPERTS];
	for (uint32_t i = 0; i < n; i++) {
		ids[2 * i] = (int32_t)((first + i) * 3 % EXPERTS);
		ids[2 * i + 1] = (int32_t)(((first + i) * 3 + 1 + (first + i) % 4) % EXPERTS);
		weight[2 * i] = 0.875f;
		weight[2 * i + 1] = 0.625f;
	}
	j->ops->act_q8(j->ctx, x, n, 96, &u);
	j->ops->moe(j->ctx, &a);
	for (int m = 0; m < 3; m++)
		for (size_t e = 0; e <= EXPERTS; e++)
			j->ops->weight_free(w[m][e]);
	kern_free(x);
	kern_free(q);
	kern_free(sc);
	kern_free(a.scratch);
}

static void run_moe(const struct job *j, uint32_t first, uint32_t n, float *out)
{
	static const struct share all = { 0, INNER, 4, { 0, 96, 160, 224, INNER } };
	float *leaf[4], *sum = buffer((size_t)n * 96);

	for (int l = 0; l < 4; l++)
		leaf[l] = buffer((size_t)n * 96);
	moe_share(j, &all, first, n, leaf);
	kern_leaf_sum(4, (const float *const *)leaf, (size_t)n * 96, sum);
	for (uint32_t i = 0; i < n; i++) {
		for (size_t l = 0; l < 4; l++)
			memcpy(out + ((size_t)i * 5 + l) * 96, leaf[l] + (size_t)i * 96,
			       96 * sizeof(float));
		for (size_t d = 0; d < 96; d++)
			out[((size_t)i * 5 + 4) * 96 + d] = kern_canon(sum[(size_t)i * 96 + d]);
	}
	for (int l = 0; l < 4; l++)
		kern_free(leaf[l]);
	kern_free(sum);
}

/* ------------------------------------------------------------------ comparing */

static const struct op {
	const char *name;
	op_run *run;
	uint32_t width;
} ops_table[] = {
	{ "act_q8", run_act, 83 },
	{ "act_plain", run_plain, 80 },
	{ "round", run_round, 64 },
	{ "qdq", run_qdq, 192 },
	{ "rms_norm", run_norm, 1000 },
	{ "rope", run_rope, 320 },
	{ "hc", run_hc, 524 },
	{ "rows", run_rows, 384 },
	{ "attention", run_attention, 448 },
	{ "pool2", run_pool2, 128 },
	{ "index_select", run_index, 49 },
	{ "route", run_route, 12 },
	{ "moe", run_moe, 480 },
	{ "engram_gate", run_engram, 210 },
	{ "finite", run_finite, 1 },
};

static float *input_rows(void)
{
	float *x = buffer((size_t)ROWS * WIDTH);

	seed = 1;
	for (uint32_t i = 0; i < ROWS * WIDTH; i++)
		x[i] = draw_for(i / WIDTH);
	return x;
}

/* First row and column where two results differ, printed. */
static void report(const struct op *op, const char *set, uint32_t piece, unsigned int threads,
		   const float *got, const float *want)
{
	uint32_t i = 0;

	while (kern_bits(got[i]) == kern_bits(want[i]))
		i++;
	printf("   %s, %s, %u rows at once, %u threads: row %u element %u is %08x, want %08x\n",
	       op->name, set, piece, threads, i / op->width, i % op->width, kern_bits(got[i]),
	       kern_bits(want[i]));
}

/* @op with one set, @piece rows at once, against @want. */
static void compare_pieces(const struct op *op, const struct job *j, uint32_t piece,
			   const float *want, float *got)
{
	uint32_t rows = piece <= FEW ? FEW : ROWS;

	memset(got, 0x55, (size_t)rows * op->width * sizeof(float));
	for (uint32_t first = 0; first < rows; first += piece)
		op->run(j, first, rows - first < piece ? rows - first : piece,
			got + (size_t)first * op->width);
	if (memcmp(got, want, (size_t)rows * op->width * sizeof(float)) == 0)
		return;
	CU_FAIL("bits differ");
	report(op, j->ops->name, piece, kern_pool_threads(j->ctx->pool), got, want);
}

/* @op in every way against the reference in one go; @many: also all ROWS at once. */
static void compare(const struct op *op, struct job j, struct kern_pool *pool, bool many)
{
	uint32_t rows = many ? ROWS : FEW;
	size_t len = (size_t)rows * op->width;
	float *want = buffer(len), *got = buffer(len);

	j.ops = kern_open("ref", NULL);
	j.ctx->pool = NULL;
	op->run(&j, 0, rows, want);
	if (getenv("KERN_BITS") != NULL)
		printf("bits %s %s %08x\n", op->name,
		       j.ctx->numerics == KERN_EXACT ? "exact" : "native",
		       ds_crc32c(0, want, len * sizeof(float)));
	for (const char *const *set = kern_sets(); *set != NULL; set++)
		for (size_t p = 0; p < 2 * sizeof(pieces) / sizeof(pieces[0]); p++) {
			if ((j.ops = kern_open(*set, NULL)) == NULL || pieces[p / 2] > rows)
				continue;
			j.ctx->pool = p % 2 == 0 ? NULL : pool;
			compare_pieces(op, &j, pieces[p / 2], want, got);
		}
	kern_free(want);
	kern_free(got);
}

static void test_operations(void)
{
	struct kern_pool *pool = kern_pool_open(3, NULL);
	float *x = input_rows();

	CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
	experts_fill();
	for (int exact = 0; exact < 2; exact++)
		for (size_t i = 0; i < sizeof(ops_table) / sizeof(ops_table[0]); i++) {
			struct kern_ctx ctx = { .numerics = exact ? KERN_EXACT : KERN_NATIVE };
			struct job j = { .ctx = &ctx, .x = x };

			compare(&ops_table[i], j, pool, !exact);
		}
	experts_free();
	kern_free(x);
	kern_pool_close(pool);
}

/* Tails of every kind: outputs and channels that fill no panel and no block, ranges of channels. */
static void test_linears(void)
{
	static const struct {
		uint32_t rows, cols, k0, k1;
	} shapes[] = {
		{ 1, 32, 0, 32 },     { 31, 64, 0, 64 }, { 33, 96, 32, 96 }, { 40, 256, 64, 192 },
		{ 129, 160, 0, 160 }, { 64, 72, 0, 72 }, { 7, 5, 0, 5 },     { 48, 136, 96, 136 },
	};
	struct kern_pool *pool = kern_pool_open(3, NULL);
	float *x = input_rows();

	CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
	for (int c = 0; c < 4 * 8 * 2; c++) {
		enum kern_fmt fmt = (enum kern_fmt)(c % 4);
		struct kern_ctx ctx = { .numerics = c % 3 == 0 ? KERN_EXACT : KERN_NATIVE };
		struct matrix w = { .k0 = shapes[c / 4 % 8].k0,
				    .k1 = shapes[c / 4 % 8].k1,
				    .round = c % 5 < 3 };
		struct job j = { .ctx = &ctx, .x = x, .w = &w };
		char name[64];
		struct op op = { .name = name, .run = run_linear, .width = shapes[c / 4 % 8].rows };

		if (fmt == KERN_FP4 && shapes[c / 4 % 8].cols % 32 != 0)
			continue;
		snprintf(name, sizeof(name), "linear format %d, %u x %u, channels %u to %u", fmt,
			 op.width, shapes[c / 4 % 8].cols, w.k0, w.k1);
		matrix_fill(&w.m, fmt, op.width, shapes[c / 4 % 8].cols, c >= 32);
		compare(&op, j, pool, c < 4);
		matrix_free(&w.m);
	}
	kern_free(x);
	kern_pool_close(pool);
}

/* One row, so wide that the three threads really share it. */
static void test_wide(void)
{
	struct kern_pool *pool = kern_pool_open(3, NULL);
	float *x = input_rows(), *want = buffer(1200), *got = buffer(1200);

	CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
	for (int f = 0; f < 4; f++) {
		struct kern_ctx ctx = { .numerics = KERN_NATIVE };
		struct matrix w = { .k1 = 1024 };
		struct job j = { .ops = kern_open("ref", NULL), .ctx = &ctx, .x = x, .w = &w };

		matrix_fill(&w.m, (enum kern_fmt)f, 1200, 1024, false);
		run_linear(&j, 0, 1, want);
		for (const char *const *set = kern_sets(); *set != NULL; set++) {
			if ((j.ops = kern_open(*set, NULL)) == NULL)
				continue;
			ctx.pool = pool;
			run_linear(&j, 0, 1, got);
			CU_ASSERT_EQUAL(memcmp(got, want, 1200 * sizeof(float)), 0);
			ctx.pool = NULL;
			run_linear(&j, 0, 1, got);
			CU_ASSERT_EQUAL(memcmp(got, want, 1200 * sizeof(float)), 0);
		}
		matrix_free(&w.m);
	}
	kern_free(x);
	kern_free(want);
	kern_free(got);
	kern_pool_close(pool);
}

/* The stored element as a double, by the definitions of model.md 3.1. */
static double element(const struct kern_matrix *m, size_t r, size_t k)
{
	static const double e2m1[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
	const uint8_t *row = (const uint8_t *)m->data + r * m->stride;
	uint8_t code = m->fmt == KERN_FP4 ? row[k / 2] >> (k % 2 * 4) & 15 : row[k];
	double sign = code & (m->fmt == KERN_FP4 ? 8 : 128) ? -1.0 : 1.0, v;
	float f;

	if (m->fmt == KERN_F32) {
		memcpy(&f, row + k * 4, 4);
		return f;
	}
	if (m->fmt == KERN_BF16)
		return kern_bf16_to_f32((uint16_t)(row[2 * k] | row[2 * k + 1] << 8));
	if (m->fmt == KERN_FP4)
		return sign * e2m1[code & 7] *
		       ldexp(1.0, m->scale[r * m->scale_stride + k / 32] - 127);
	v = (code >> 3 & 15) == 0 ? ldexp(code & 7, -9)
				  : ldexp(8 + (code & 7), (code >> 3 & 15) - 10);
	return sign * v * ldexp(1.0, m->scale[r / 32 * m->scale_stride + k / 32] - 127);
}

/* Right at all: a plain sum in double, to what fp32 sums allow. */
static void test_value(void)
{
	for (int f = 0; f < 4; f++) {
		struct kern_ctx ctx = { .numerics = KERN_NATIVE };
		struct matrix w = { .k0 = 32, .k1 = 288 };
		float *x = buffer((size_t)3 * WIDTH), *y = buffer((size_t)3 * 70);
		struct job j = { .ops = kern_open(NULL, NULL), .ctx = &ctx, .x = x, .w = &w };

		seed = 7;
		for (uint32_t i = 0; i < 3 * WIDTH; i++)
			x[i] = draw_unit();
		matrix_fill(&w.m, (enum kern_fmt)f, 70, 288, false);
		run_linear(&j, 0, 3, y);
		for (size_t i = 0; i < 3; i++)
			for (size_t o = 0; o < 70; o++) {
				double sum = 0.0, size = 0.0;

				for (size_t k = 32; k < 288; k++) {
					double p = element(&w.m, o, k) * x[i * WIDTH + k - 32] *
						   0.0625;

					sum += p;
					size += fabs(p);
				}
				CU_ASSERT_DOUBLE_EQUAL(y[i * 70 + o], sum, 4e-6 * size);
			}
		matrix_free(&w.m);
		kern_free(x);
		kern_free(y);
	}
}

/* Two ranks with two leaves each compute what one rank computes with four. */
static void test_leaves(void)
{
	static const struct share all = { 0, INNER, 4, { 0, 96, 160, 224, INNER } };
	static const struct share low = { 0, 160, 2, { 0, 96, 160 } };
	static const struct share high = { 160, INNER, 2, { 0, 64, 128 } };
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };
	struct job j = { .ops = kern_open(NULL, NULL), .ctx = &ctx, .x = input_rows() };
	float *one[4], *two[4];

	experts_fill();
	for (int l = 0; l < 4; l++) {
		one[l] = buffer((size_t)9 * 96);
		two[l] = buffer((size_t)9 * 96);
	}
	moe_share(&j, &all, 0, 9, one);
	moe_share(&j, &low, 0, 9, two);
	moe_share(&j, &high, 0, 9, two + 2);
	for (int l = 0; l < 4; l++) {
		CU_ASSERT_EQUAL(memcmp(one[l], two[l], (size_t)9 * 96 * sizeof(float)), 0);
		CU_ASSERT_NOT_EQUAL(one[l][0], one[(l + 1) % 4][0]);
	}
	for (int l = 0; l < 4; l++) {
		kern_free(one[l]);
		kern_free(two[l]);
	}
	experts_free();
	kern_free((void *)(uintptr_t)j.x);
}

static void test_leaf_ranges(void)
{
	static const struct {
		uint32_t units, leaves, first[5];
	} t[] = {
		{ 8, 4, { 0, 2, 4, 6, 8 } },	  { 8, 3, { 0, 3, 6, 8 } },
		{ 72, 4, { 0, 18, 36, 54, 72 } }, { 72, 3, { 0, 24, 48, 72 } },
		{ 5, 4, { 0, 2, 3, 4, 5 } },	  { 2, 4, { 0, 1, 2, 2, 2 } },
		{ 0, 4, { 0, 0, 0, 0, 0 } },
	};
	uint32_t first, end;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		for (uint32_t l = 0; l < t[i].leaves; l++) {
			kern_leaf_range(t[i].units, t[i].leaves, l, &first, &end);
			CU_ASSERT(first == t[i].first[l] && end == t[i].first[l + 1]);
		}
}

/* 2^24 + 1 is not a float: the place of the parentheses shows. */
static void test_leaf_sum(void)
{
	float big[] = { 0x1p24f }, one[] = { 1.0f }, minus[] = { -0x1p24f }, nought[] = { -0.0f },
	      y[1];

	kern_leaf_sum(4, (const float *const[]){ big, one, minus, one }, 1, y);
	CU_ASSERT_EQUAL(y[0], 1.0f); /* (2^24) + (-2^24 + 1) */
	kern_leaf_sum(3, (const float *const[]){ one, big, minus }, 1, y);
	CU_ASSERT_EQUAL(y[0], 0.0f);
	kern_leaf_sum(2, (const float *const[]){ big, minus }, 1, y);
	CU_ASSERT_EQUAL(y[0], 0.0f);
	kern_leaf_sum(4, (const float *const[]){ NULL, big, NULL, one }, 1, y);
	CU_ASSERT_EQUAL(y[0], 0x1p24f);
	kern_leaf_sum(4, (const float *const[]){ nought, NULL, NULL, NULL }, 1, y);
	CU_ASSERT(y[0] == 0.0f && signbit(y[0])); /* skipped, not added as zero */
	kern_leaf_sum(4, (const float *const[]){ NULL, NULL, NULL, NULL }, 1, y);
	CU_ASSERT(y[0] == 0.0f && !signbit(y[0]));
	kern_leaf_sum(4, (const float *const[]){ big, one, one, NULL }, 1, one);
	CU_ASSERT_EQUAL(one[0], 0x1p24f); /* out may be a part */
}

static void test_open(void)
{
	struct ds_err err = { 0 };
	char line[900];
	size_t n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(kern_open(NULL, &err));
	for (const char *const *set = kern_sets(); *set != NULL; set++, n++) {
		const struct kern_ops *ops = kern_open(*set, NULL);

		CU_ASSERT(ops == NULL || strcmp(ops->name, *set) == 0);
		if (ops == NULL)
			printf("skip kernel set %s: this processor lacks its instructions\n", *set);
	}
	CU_ASSERT(n >= 1);
	CU_ASSERT_STRING_EQUAL(kern_open("ref", &err)->name, "ref");
	CU_ASSERT_PTR_NULL(kern_open("abacus", &err));
	CU_ASSERT_EQUAL(err.kind, DS_ERR_USAGE);
	ds_err_line(&err, line, sizeof(line));
	CU_ASSERT_PTR_NOT_NULL(strstr(line, "abacus"));
	CU_ASSERT_PTR_NOT_NULL(strstr(line, "ref"));
	CU_ASSERT_PTR_NULL(kern_pool_open(0, &err));
	CU_ASSERT_PTR_NULL(kern_pool_open(257, &err));
	CU_ASSERT_EQUAL(err.kind, DS_ERR_USAGE);
	CU_ASSERT_EQUAL(kern_pool_threads(NULL), 1);
	CU_ASSERT_PTR_NULL(kern_alloc(SIZE_MAX - 10, "the moon", &err));
	CU_ASSERT(err.kind == DS_ERR_NOMEM && strcmp(err.obj, "the moon") == 0);
}

static CU_TestInfo kern_sets_tests[] = {
	{ "every operation: same bits in every set, any number of rows and threads",
	  test_operations },
	{ "every format of linear likewise, tails and wild values included", test_linears },
	{ "a wide linear of one row is the same on three threads", test_wide },
	{ "linears against a plain sum in double", test_value },
	{ "leaf partials do not depend on how many ranks compute them", test_leaves },
	{ "leaf ranges are even, earlier ones larger, empty at the end", test_leaf_ranges },
	{ "the canonical sum keeps its parentheses and skips empty leaves", test_leaf_sum },
	{ "sets and pools are refused by name and number", test_open },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo kern_sets_suite = { .pName = "kernels/sets", .pTests = kern_sets_tests };
