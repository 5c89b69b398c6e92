/*
 * profile.c - time, bytes and multiply-adds of every operation.
 *
 * The measuring set is the inner one's table with each operation replaced by one that looks at the
 * clock, calls the inner one and adds up. Bytes are what the operation cannot do without: stored weights
 * once a call, cache rows once a row, activations in and out.
 */
#include "profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "ref/ref.h"
#include "roof.h"

#define ROOF_BYTES (UINT64_C(256) << 20)

enum row {
	ROW_LINEAR_F32, /* the four formats in the order of enum kern_fmt */
	ROW_LINEAR_BF16,
	ROW_LINEAR_FP8,
	ROW_LINEAR_FP4,
	ROW_MOE,
	ROW_ATTENTION,
	ROW_INDEX,
	ROW_HC_PREDICT,
	ROW_HC_MIX,
	ROW_HC_UPDATE,
	ROW_NORM,
	ROW_ROPE,
	ROW_ACT,
	ROW_ROUND,
	ROW_QDQ,
	ROW_CACHE,
	ROW_POOL,
	ROW_ROUTE,
	ROW_ENGRAM,
	ROW_FINITE,
	ROWS
};

static const char *const row_names[ROWS] = {
	"linear fp32", "linear bf16",  "linear fp8",	"linear fp4",  "experts",
	"attention",   "index select", "hyper predict", "hyper mix",   "hyper update",
	"norm",	       "rotary",       "activations",	"round",       "quantise",
	"cache rows",  "compressor",   "route",		"engram gate", "finite",
};

struct kern_profile {
	struct kern_ops ops;
	const struct kern_ops *inner;
	struct {
		uint64_t calls;
		double seconds, bytes, fma;
	} row[ROWS];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void count(struct kern_ctx *ctx, enum row r, double since, double bytes, double fma)
{
	struct kern_profile *p = ctx->profile;

	p->row[r].seconds += now() - since;
	p->row[r].calls++;
	p->row[r].bytes += bytes;
	p->row[r].fma += fma;
}

/* Calls the inner operation and adds it up; the last two are its bytes and multiply-adds. */
#define MEASURED(ctx, row, call, bytes, fma)                                \
	do {                                                                \
		double since = now();                                       \
		(ctx)->profile->inner->call;                                \
		count((ctx), (row), since, (double)(bytes), (double)(fma)); \
	} while (0)

static void act_q8(struct kern_ctx *ctx, const float *x, uint32_t n, uint32_t width,
		   struct kern_act *a)
{
	MEASURED(ctx, ROW_ACT, act_q8(ctx, x, n, width, a), 8.0 * n * width, 0);
}

static void act_plain(struct kern_ctx *ctx, const float *x, size_t stride, uint32_t n,
		      uint32_t width, struct kern_act *a)
{
	MEASURED(ctx, ROW_ACT, act_plain(ctx, x, stride, n, width, a), 8.0 * n * width, 0);
}

/* Bytes of channels [k0, k1) of a weight. */
static double weight_part(const struct kern_weight *w, uint32_t k0, uint32_t k1)
{
	return (double)w->bytes * (k1 - k0) / w->cols;
}

static void linear(struct kern_ctx *ctx, const struct kern_weight *w, const struct kern_act *a,
		   uint32_t k0, uint32_t k1, float *y, size_t stride, bool round)
{
	MEASURED(ctx, (enum row)(ROW_LINEAR_F32 + w->fmt),
		 linear(ctx, w, a, k0, k1, y, stride, round), weight_part(w, k0, k1),
		 (double)a->n * w->rows * (k1 - k0));
}

static void round_op(struct kern_ctx *ctx, float *x, size_t len)
{
	MEASURED(ctx, ROW_ROUND, round(ctx, x, len), 8.0 * (double)len, 0);
}

static void qdq(struct kern_ctx *ctx, enum kern_quant kind, float *x, uint32_t n, uint32_t width)
{
	MEASURED(ctx, ROW_QDQ, qdq(ctx, kind, x, n, width), 8.0 * n * width, 0);
}

static void rms_norm(struct kern_ctx *ctx, const float *x, const float *gain, float eps, uint32_t n,
		     uint32_t width, float *y)
{
	MEASURED(ctx, ROW_NORM, rms_norm(ctx, x, gain, eps, n, width, y), 8.0 * n * width,
		 2.0 * n * width);
}

static void rope(struct kern_ctx *ctx, const struct kern_rope *r, float *x, uint32_t n,
		 uint32_t heads, uint32_t width, const uint32_t *pos, bool inverse)
{
	double turned = (double)n * heads * r->dim;

	MEASURED(ctx, ROW_ROPE, rope(ctx, r, x, n, heads, width, pos, inverse), 8.0 * turned,
		 2.0 * turned);
}

static void hc_predict(struct kern_ctx *ctx, const struct kern_hc *w, const float *x, uint32_t n,
		       float *pre, float *post, float *comb)
{
	double outs = (2.0 + w->copies) * w->copies, in = (double)w->copies * w->dim;

	MEASURED(ctx, ROW_HC_PREDICT, hc_predict(ctx, w, x, n, pre, post, comb),
		 4.0 * (n * in + outs * in), n * outs * in);
}

static void hc_mix(struct kern_ctx *ctx, const float *mix, const float *x, uint32_t n,
		   uint32_t copies, uint32_t dim, float *y)
{
	double in = (double)n * copies * dim;

	MEASURED(ctx, ROW_HC_MIX, hc_mix(ctx, mix, x, n, copies, dim, y),
		 4.0 * (in + (double)n * dim), in);
}

static void hc_update(struct kern_ctx *ctx, float *x, const float *y, const float *post,
		      const float *comb, uint32_t n, uint32_t copies, uint32_t dim)
{
	double in = (double)n * copies * dim;

	MEASURED(ctx, ROW_HC_UPDATE, hc_update(ctx, x, y, post, comb, n, copies, dim),
		 4.0 * (2 * in + (double)n * dim), in * (copies + 1));
}

static void row_put(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first,
		    const float *x, uint32_t n)
{
	MEASURED(ctx, ROW_CACHE, row_put(ctx, c, first, x, n),
		 n * (4.0 * c->width + (double)kern_row_bytes(c->fmt, c->width)), 0);
}

static void row_get(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first, uint32_t n,
		    float *x)
{
	MEASURED(ctx, ROW_CACHE, row_get(ctx, c, first, n, x),
		 n * (4.0 * c->width + (double)kern_row_bytes(c->fmt, c->width)), 0);
}

static void attention(struct kern_ctx *ctx, const struct kern_attn_args *a)
{
	double slots = 0, bytes = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		uint32_t near = a->pos[i] + 1 < a->window ? a->pos[i] + 1 : a->window, far = 0;

		while (far < a->n_sel && a->sel[(size_t)i * a->n_sel + far] >= 0)
			far++;
		slots += near + far;
		bytes += near * (double)kern_row_bytes(a->win->fmt, a->width);
		if (a->comp != NULL)
			bytes += far * (double)kern_row_bytes(a->comp->fmt, a->width);
	}
	MEASURED(ctx, ROW_ATTENTION, attention(ctx, a), bytes, 2.0 * slots * a->heads * a->width);
}

static void pool2(struct kern_ctx *ctx, const float *kv, const float *score, uint32_t n,
		  uint32_t width, float *y)
{
	MEASURED(ctx, ROW_POOL, pool2(ctx, kv, score, n, width, y), 20.0 * n * width,
		 2.0 * n * width);
}

static void index_select(struct kern_ctx *ctx, const struct kern_index_args *a)
{
	double entries = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		double few = (double)a->n_blocks * a->block_size;

		entries += a->blocks_in != NULL && few < a->visible[i] ? few : a->visible[i];
	}
	MEASURED(ctx, ROW_INDEX, index_select(ctx, a),
		 entries * (double)kern_row_bytes(a->keys->fmt, a->dim),
		 entries * a->heads * a->dim);
}

static void route(struct kern_ctx *ctx, const float *logits, const float *bias, uint32_t n,
		  uint32_t experts, uint32_t topk, float scale, int32_t *ids, float *weight)
{
	MEASURED(ctx, ROW_ROUTE, route(ctx, logits, bias, n, experts, topk, scale, ids, weight),
		 4.0 * n * experts, 0);
}

/* Stored bytes of the experts that some row chose; each is counted once. */
static double chosen_bytes(const struct kern_moe_args *a)
{
	double bytes = (double)(a->s1->bytes + a->s2->bytes + a->s3->bytes);

	for (size_t i = 0; i < (size_t)a->n * a->topk; i++) {
		bool seen = false;

		for (size_t j = 0; j < i && !seen; j++)
			seen = a->ids[j] == a->ids[i];
		if (!seen)
			bytes += (double)(a->w1[a->ids[i]]->bytes + a->w2[a->ids[i]]->bytes +
					  a->w3[a->ids[i]]->bytes);
	}
	return bytes;
}

static void moe(struct kern_ctx *ctx, const struct kern_moe_args *a)
{
	MEASURED(ctx, ROW_MOE, moe(ctx, a), chosen_bytes(a),
		 3.0 * a->n * (a->topk + 1.0) * a->s1->rows * a->dim);
}

static void engram_gate(struct kern_ctx *ctx, float *x, const float *kv, const float *qk,
			const bool *dead, float eps, uint32_t n, uint32_t copies, uint32_t dim)
{
	double in = (double)n * copies * dim;

	MEASURED(ctx, ROW_ENGRAM, engram_gate(ctx, x, kv, qk, dead, eps, n, copies, dim),
		 4.0 * (3 * in + (double)n * dim), 4 * in);
}

static bool finite_op(struct kern_ctx *ctx, const float *x, size_t len)
{
	double since = now();
	bool good = ctx->profile->inner->finite(ctx, x, len);

	count(ctx, ROW_FINITE, since, 4.0 * (double)len, 0);
	return good;
}

struct kern_profile *kern_profile_open(const struct kern_ops *ops, struct ds_err *err)
{
	struct kern_profile *p = calloc(1, sizeof(*p));

	if (p == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "profile", "allocate");
		return NULL;
	}
	p->inner = ops;
	p->ops = *ops; /* weights belong to the inner set */
	p->ops.act_q8 = act_q8;
	p->ops.act_plain = act_plain;
	p->ops.linear = linear;
	p->ops.round = round_op;
	p->ops.qdq = qdq;
	p->ops.rms_norm = rms_norm;
	p->ops.rope = rope;
	p->ops.hc_predict = hc_predict;
	p->ops.hc_mix = hc_mix;
	p->ops.hc_update = hc_update;
	p->ops.row_put = row_put;
	p->ops.row_get = row_get;
	p->ops.attention = attention;
	p->ops.pool2 = pool2;
	p->ops.index_select = index_select;
	p->ops.route = route;
	p->ops.moe = moe;
	p->ops.engram_gate = engram_gate;
	p->ops.finite = finite_op;
	return p;
}

void kern_profile_close(struct kern_profile *p)
{
	free(p);
}

const struct kern_ops *kern_profile_ops(const struct kern_profile *p)
{
	return &p->ops;
}

void kern_profile_reset(struct kern_profile *p)
{
	memset(p->row, 0, sizeof(p->row));
}

/* ------------------------------------------------------------------ the table */

static void print_row(const struct kern_profile *p, enum row r, double wall, double read,
		      double fma, FILE *f)
{
	double s = p->row[r].seconds, bytes = p->row[r].bytes / s, adds = p->row[r].fma / s;

	fprintf(f, "%-16s %8llu %10.2f %6.1f%% %9.2f %6.1f%% %9.2f %6.1f%%\n", row_names[r],
		(unsigned long long)p->row[r].calls, s * 1e3, 100 * s / wall, bytes * 1e-9,
		100 * bytes / read, adds * 1e-9, 100 * adds / fma);
}

void kern_profile_print(struct kern_profile *p, const char *title, double wall_ms,
			struct kern_pool *pool, FILE *f)
{
	double read = kern_roof_read(pool, ROOF_BYTES, 3), fma = kern_roof_fma(pool);
	double wall = wall_ms / 1e3, left = wall;
	bool done[ROWS] = { false };

	fprintf(f, "%s, kernels %s: %.2f ms; this machine reads %.1f GB/s and does %.1f Gfma/s\n",
		title, p->ops.name, wall_ms, read * 1e-9, fma * 1e-9);
	fprintf(f, "%-16s %8s %10s %7s %9s %7s %9s %7s\n", "operation", "calls", "ms", "share",
		"GB/s", "of read", "Gfma/s", "of fma");
	for (;;) { /* the longest first */
		int most = -1;

		for (int r = 0; r < ROWS; r++)
			if (!done[r] && p->row[r].calls > 0 &&
			    (most < 0 || p->row[r].seconds > p->row[most].seconds))
				most = r;
		if (most < 0)
			break;
		done[most] = true;
		left -= p->row[most].seconds;
		print_row(p, (enum row)most, wall, read, fma, f);
	}
	fprintf(f, "%-16s %8s %10.2f %6.1f%%\n", "between them", "", left * 1e3, 100 * left / wall);
}
