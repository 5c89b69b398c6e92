/*
 * test_kern_values.c - operations against what model.md says of them, written a second time and as
 * plainly as possible: in double where rounding may differ, step by step where the bits are defined.
 */
#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

#include "err.h"
#include "kern_math.h"
#include "kernels.h"

static uint32_t state;

/* -1..1, sixteen bits */
static float draw(void)
{
	state = state * 1664525 + 1013904223;
	return (float)((int)(state >> 16) - 32768) * 0x1p-15f;
}

static void fill(float *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = draw();
}

/* ------------------------------------------------------------------ mixture of experts (4.7) */

#define DIM	64
#define INNER	96
#define EXPERTS 3
#define ROWS	5
#define LIMIT	0.75f /* small, so that every clamp is met */

struct experts {
	const struct kern_ops *ops;
	struct kern_ctx *ctx;
	struct kern_weight *w[3][EXPERTS + 1]; /* w1, w3, w2; the last is shared */
};

static void experts_make(struct experts *x)
{
	float data[DIM * INNER];
	struct kern_matrix m = { .fmt = KERN_F32, .data = data };

	for (int which = 0; which < 3; which++)
		for (int e = 0; e <= EXPERTS; e++) {
			fill(data, DIM * INNER);
			m.rows = which == 2 ? DIM : INNER;
			m.cols = which == 2 ? INNER : DIM;
			m.stride = m.cols * sizeof(float);
			x->w[which][e] = x->ops->weight_prepare(&m, NULL);
			CU_ASSERT_PTR_NOT_NULL_FATAL(x->w[which][e]);
		}
}

static void experts_free(struct experts *x)
{
	for (int which = 0; which < 3; which++)
		for (int e = 0; e <= EXPERTS; e++)
			x->ops->weight_free(x->w[which][e]);
}

/* One expert alone: y [DIM] = w2 Q8(t) over inner channels [k0, k1), not rounded. */
static void expert_alone(const struct experts *x, int e, const float *u, float weight, uint32_t k0,
			 uint32_t k1, float *y)
{
	_Alignas(64) float q[INNER], s[INNER / 32], a[INNER], b[INNER];
	struct kern_act act = { .q = q, .scale = s };
	bool native = x->ctx->numerics == KERN_NATIVE;

	x->ops->act_q8(x->ctx, u, 1, DIM, &act);
	x->ops->linear(x->ctx, x->w[0][e], &act, 0, DIM, a, INNER, true);
	x->ops->linear(x->ctx, x->w[1][e], &act, 0, DIM, b, INNER, true);
	for (int i = 0; i < INNER; i++) {
		float g = a[i] > LIMIT ? LIMIT : a[i]; /* from above only */
		float up = b[i] > LIMIT ? LIMIT : b[i] < -LIMIT ? -LIMIT : b[i];
		float t = weight * (g * kern_sigmoid(g)) * up;

		a[i] = native ? kern_bf16_round(t) : t;
	}
	x->ops->act_q8(x->ctx, a + k0, 1, k1 - k0, &act);
	x->ops->linear(x->ctx, x->w[2][e], &act, k0, k1, y, DIM, false);
}

/* Leaf partials of the operation are (first + second) + shared, in routing order, bit by bit. */
static void moe(const struct kern_ops *ops, enum kern_numerics numerics)
{
	static const uint32_t leaf_at[] = { 0, 32, INNER };
	static const int32_t ids[ROWS * 2] = { 0, 1, 1, 0, 2, 0, 0, 2, 1, 2 };
	_Alignas(64) float u[ROWS * DIM], q[ROWS * DIM], s[ROWS * 2], weight[ROWS * 2];
	_Alignas(64) float out[2][ROWS * DIM], part[3][DIM], scratch[ROWS * 200];
	struct kern_ctx ctx = { .numerics = numerics };
	struct experts x = { .ops = ops, .ctx = &ctx };
	struct kern_act act = { .q = q, .scale = s };
	float *const outs[2] = { out[0], out[1] };
	struct kern_moe_args m = { .n = ROWS,
				   .dim = DIM,
				   .topk = 2,
				   .n_leaf = 2,
				   .leaf_at = leaf_at,
				   .limit = LIMIT,
				   .u = &act,
				   .ids = ids,
				   .weight = weight,
				   .out = outs,
				   .scratch = scratch };

	CU_ASSERT_FATAL(kern_moe_scratch(ROWS, INNER) <= sizeof(scratch) / sizeof(scratch[0]));
	experts_make(&x);
	m.w1 = (const struct kern_weight *const *)x.w[0];
	m.w3 = (const struct kern_weight *const *)x.w[1];
	m.w2 = (const struct kern_weight *const *)x.w[2];
	m.s1 = x.w[0][EXPERTS];
	m.s3 = x.w[1][EXPERTS];
	m.s2 = x.w[2][EXPERTS];
	fill(u, ROWS * DIM);
	fill(weight, (size_t)ROWS * 2);
	ops->round(&ctx, u, ROWS * DIM);
	ops->act_q8(&ctx, u, ROWS, DIM, &act);
	ops->moe(&ctx, &m);
	for (size_t i = 0; i < ROWS; i++)
		for (int leaf = 0; leaf < 2; leaf++) {
			uint32_t k0 = leaf_at[leaf], k1 = leaf_at[leaf + 1];

			expert_alone(&x, ids[2 * i], u + i * DIM, weight[2 * i], k0, k1, part[0]);
			expert_alone(&x, ids[2 * i + 1], u + i * DIM, weight[2 * i + 1], k0, k1,
				     part[1]);
			expert_alone(&x, EXPERTS, u + i * DIM, 1.0f, k0, k1, part[2]);
			for (size_t d = 0; d < DIM; d++)
				CU_ASSERT_EQUAL(out[leaf][i * DIM + d],
						(part[0][d] + part[1][d]) + part[2][d]);
		}
	experts_free(&x);
}

static void test_moe(void)
{
	for (const char *const *set = kern_sets(); *set != NULL; set++) {
		const struct kern_ops *ops = kern_open(*set, NULL);

		state = 3;
		if (ops == NULL)
			continue;
		moe(ops, KERN_NATIVE);
		moe(ops, KERN_EXACT);
	}
}

/* ------------------------------------------------------------------ streams, in double */

#define C 3
#define D 40

/* 4.3: comb[i][j] takes copy i to copy j; the mix is a weighted sum of the copies. */
static void test_hc(void)
{
	const struct kern_ops *ops = kern_open(NULL, NULL);
	struct kern_ctx ctx = { .numerics = KERN_EXACT };
	float x[C * D], old[C * D], y[D], post[C], comb[C * C], mix[C], mixed[D];

	state = 4;
	fill(x, (size_t)C * D);
	fill(y, D);
	fill(post, C);
	fill(comb, (size_t)C * C);
	fill(mix, C);
	memcpy(old, x, sizeof(x));
	ops->hc_mix(&ctx, mix, x, 1, C, D, mixed);
	ops->hc_update(&ctx, x, y, post, comb, 1, C, D);
	for (size_t d = 0; d < D; d++) {
		double sum = 0.0;

		for (size_t j = 0; j < C; j++) {
			double v = (double)post[j] * y[d];

			for (size_t i = 0; i < C; i++)
				v += (double)comb[i * C + j] * old[i * D + d];
			CU_ASSERT_DOUBLE_EQUAL(x[j * D + d], v, 1e-6);
			sum += (double)mix[j] * old[j * D + d];
		}
		CU_ASSERT_DOUBLE_EQUAL(mixed[d], sum, 1e-6);
	}
}

static double mean_square(const float *v)
{
	double sum = 0.0;

	for (int d = 0; d < D; d++)
		sum += (double)v[d] * v[d];
	return sum / D;
}

/* 4.11.4, the second row dead. */
static void test_engram(void)
{
	static const bool dead[2] = { false, true };
	const struct kern_ops *ops = kern_open(NULL, NULL);
	struct kern_ctx ctx = { .numerics = KERN_EXACT };
	float x[2 * C * D], old[2 * C * D], kv[2 * (C + 1) * D], qk[C * D];

	state = 5;
	fill(x, (size_t)2 * C * D);
	fill(kv, (size_t)2 * (C + 1) * D);
	fill(qk, (size_t)C * D);
	memcpy(old, x, sizeof(x));
	ops->engram_gate(&ctx, x, kv, qk, dead, 1e-20f, 2, C, D);
	for (size_t c = 0; c < C; c++) {
		const float *key = kv + c * D, *s = old + c * D;
		double dot = 0.0, gate;

		for (size_t d = 0; d < D; d++)
			dot += (double)s[d] * qk[c * D + d] * key[d];
		dot /= sqrt(mean_square(s)) * sqrt(mean_square(key)) * sqrt(D);
		gate = 1.0 / (1.0 + exp(-copysign(sqrt(fmax(fabs(dot), 1e-6)), dot)));
		for (size_t d = 0; d < D; d++)
			CU_ASSERT_DOUBLE_EQUAL(x[c * D + d], s[d] + gate * kv[(size_t)C * D + d],
					       2e-6);
	}
	CU_ASSERT_EQUAL(
		memcmp(x + (size_t)C * D, old + (size_t)C * D, (size_t)C * D * sizeof(float)), 0);
}

/* 4.6.2 and 4.4. */
static void test_pool_norm(void)
{
	const struct kern_ops *ops = kern_open(NULL, NULL);
	struct kern_ctx ctx = { .numerics = KERN_EXACT };
	float kv[2 * D], score[2 * D], y[D], gain[D], norm[D];
	double r;

	state = 6;
	fill(kv, (size_t)2 * D);
	fill(score, (size_t)2 * D);
	fill(gain, D);
	for (int d = 0; d < 2 * D; d++)
		score[d] *= 30.0f;
	ops->pool2(&ctx, kv, score, 1, D, y);
	ops->rms_norm(&ctx, y, gain, 1e-3f, 1, D, norm);
	r = 1.0 / sqrt(mean_square(y) + 1e-3);
	for (int d = 0; d < D; d++) {
		double a = 1.0 / (1.0 + exp((double)score[D + d] - score[d]));

		CU_ASSERT_DOUBLE_EQUAL(y[d], a * kv[d] + (1.0 - a) * kv[D + d], 1e-6);
		CU_ASSERT_DOUBLE_EQUAL(norm[d], gain[d] * y[d] * r, 2e-6);
	}
}

/* A window is the same as its positions listed as entries; holes move nothing. */
static void test_window(void)
{
	const struct kern_ops *ops = kern_open(NULL, NULL);
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };
	_Alignas(64) float keys[100 * 32], q[2 * 32], one[2 * 32], two[2 * 32];
	float sink[2] = { 0.5f, -2.0f };
	int32_t sel[64];
	struct kern_cache c = {
		.fmt = KERN_ROW_F32, .width = 32, .ring = 100, .data = (uint8_t *)keys
	};

	state = 7;
	fill(keys, (size_t)100 * 32);
	fill(q, (size_t)2 * 32);
	for (uint32_t pos = 0; pos < 200; pos += 7) {
		struct kern_attn_args a = { .n = 1,
					    .heads = 2,
					    .width = 32,
					    .window = 64,
					    .q = q,
					    .pos = &pos,
					    .win = &c,
					    .sink = sink,
					    .out = one };

		ops->attention(&ctx, &a);
		for (uint32_t s = 0; s < 64; s++) {
			uint32_t p = (pos >= 64 ? pos - 63 : 0) + s;

			sel[s] = p > pos ? -1 : (int32_t)(p % 100); /* a ring of 100 rows */
		}
		a.window = 0;
		a.comp = &c;
		a.sel = sel;
		a.n_sel = 64;
		a.out = two;
		ops->attention(&ctx, &a);
		CU_ASSERT(memcmp((void *)one, (void *)two, sizeof(one)) == 0);
	}
}

static CU_TestInfo kern_values_tests[] = {
	{ "leaf partials of the experts are added in routing order, the shared one last",
	  test_moe },
	{ "hyper-connections: which copy goes where", test_hc },
	{ "the Engram gate, and a row that gets none", test_engram },
	{ "pooling of two tokens, normalisation", test_pool_norm },
	{ "window slots are the positions up to the query's, ring included", test_window },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo kern_values_suite = { .pName = "kernels/values", .pTests = kern_values_tests };
