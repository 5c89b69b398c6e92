/*
 * kernels.h - the operator contract between the engine and its arithmetic.
 *
 * A *set* is one implementation of all operations: "ref" (slow, obvious; defines the bits), or
 * "scalar", "avx2", "avx512", "neon" (the same bits, faster). kern_open() chooses. All sets of the CPU family give the
 * same bits for the same input, at any row count and any number of threads: a row never depends on
 * its neighbours (row invariance).
 *
 * Conventions of every operation here
 *   Shapes are row-major, outermost first; n is the number of rows (tokens of a run).
 *   Activations are fp32 arrays. With KERN_NATIVE each value that the model keeps in bf16 is an
 *   exact bf16 number in them (rounded once, to nearest even, where the text says "rounded");
 *   with KERN_EXACT nothing is rounded or quantised.
 *   Buffers are the caller's and 64-byte aligned (kern_alloc()); operations borrow them until they
 *   return, and never allocate. Outputs may not overlap inputs unless the comment says so.
 *   Operations do not fail: shapes are asserted, values may be anything (NaN goes through).
 *   Threads: one caller per kern_ctx at a time; weights are read-only and shared.
 *
 * Canonical order (design: "numbers that must be identical"). Dot products of linears: k ascending;
 * inside a block of 32 `acc = fma(w, x, acc)` from zero, then `sum = fma(acc, scale, sum)` per
 * block, scale = fp32(s_w * s_x). Sums over one long vector: 16 lanes, lane j takes elements
 * j mod 16, then the tree 8-4-2-1. fma only by name; exp, log1p, sin, cos are our own (kern_math.h).
 */
#ifndef KERNELS_H
#define KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ds_err;

enum kern_numerics {
	KERN_NATIVE, /* the model's own arithmetic: bf16 between operations, Q8/Q4 quantisers */
	KERN_EXACT,  /* fp32 throughout, weights dequantised, no quantisation */
};

#define KERN_BLOCK	32 /* k-block of every linear */
#define KERN_LEAVES_MAX 4  /* leaves of a row-parallel sum, see kern_leaf_range() */

/* ------------------------------------------------------------------ context and memory */

struct kern_ctx {
	enum kern_numerics numerics;
	struct kern_pool *pool; /* threads of this rank; NULL = the calling thread alone */
	struct kern_profile
		*profile; /* of the measuring set (profile.h); others do not look at it */
};

/** kern_pool_open() - @n_threads workers including the caller, 1..256. Returns owned; NULL with @err. */
struct kern_pool *kern_pool_open(unsigned int n_threads, struct ds_err *err);
void kern_pool_close(struct kern_pool *pool);
unsigned int kern_pool_threads(const struct kern_pool *pool); /* NULL is 1 */

/** kern_alloc() - zeroed, 64-byte aligned; NULL with DS_ERR_NOMEM naming @what. Free with kern_free(). */
void *kern_alloc(size_t bytes, const char *what, struct ds_err *err);
void kern_free(void *p);

/* ------------------------------------------------------------------ weights */

enum kern_fmt {
	KERN_F32,  /* float */
	KERN_BF16, /* uint16_t */
	KERN_FP8,  /* E4M3 bytes; E8M0 scale per 32 x 32 tile, [ceil(rows/32), ceil(cols/32)] */
	KERN_FP4,  /* two E2M1 codes per byte, element 2k low; E8M0 scale [rows, cols/32] */
};

/* A matrix as the checkpoint stores it, or a rectangle of one: y = W x, rows = outputs. Borrowed. */
struct kern_matrix {
	enum kern_fmt fmt;
	uint32_t rows, cols; /* logical elements */
	const void *data;
	size_t stride;	      /* bytes from row to row of data */
	const uint8_t *scale; /* FP8: scale of tile row 0, so a rectangle starts at row % 32 == 0 */
	size_t scale_stride;  /* bytes from row to row of scale */
};

/* A weight in the layout of one set. Opaque; made once at load. */
struct kern_weight;

/* A quantised or plain activation, ready for linears. The CPU sets keep codes as floats. */
struct kern_act {
	uint32_t n, width; /* rows, channels */
	float *q;	   /* [n, width]: value / scale (Q8 in native), or the value itself */
	float *scale;	   /* [n, ceil(width / 32)]: 1 where not quantised */
};

/* ------------------------------------------------------------------ caches */

/* How a row of a cache is stored. In KERN_EXACT every cache is KERN_ROW_F32. */
enum kern_row_fmt {
	KERN_ROW_F32,	/* width floats */
	KERN_ROW_Q8,	/* window KV: width E4M3 codes, then width/32 E8M0 scales */
	KERN_ROW_Q4KV,	/* compressed KV: width/2 bytes of E2M1 pairs, then width/16 E4M3 scales */
	KERN_ROW_Q4IDX, /* index keys: width/2 bytes of E2M1 pairs, then width/32 E8M0 scales */
};

/** kern_row_bytes() - stored bytes of one row; a multiple of 4 for every width that is one of 32. */
size_t kern_row_bytes(enum kern_row_fmt fmt, uint32_t width);

/* Rows of one cache. Entry e lies at data + (e % ring) * row bytes (ring = capacity if it never wraps). */
struct kern_cache {
	enum kern_row_fmt fmt;
	uint32_t width;
	uint64_t ring; /* rows */
	uint8_t *data;
};

/* ------------------------------------------------------------------ rotary tables */

struct kern_rope {
	uint32_t dim;	 /* rotated channels, even; the LAST dim channels of a vector */
	float freq[128]; /* [dim / 2] */
};

/**
 * kern_rope_init() - frequencies of model.md 4.5.
 * @base: 10000 or 160000; @yarn: apply YaRN with the four constants below
 * Power correctly rounded to fp32, reciprocal and products in fp32.
 */
void kern_rope_init(struct kern_rope *r, uint32_t dim, double base, bool yarn, double factor,
		    double beta_fast, double beta_slow, double original);

/* ------------------------------------------------------------------ arguments of the big operations */

/* Hyper-connection predictor of one sublayer; C copies, D channels. */
struct kern_hc {
	uint32_t copies, dim, iters; /* iters: hc_sinkhorn_iters */
	float eps, norm_eps;	     /* hc_eps; rms_norm_eps */
	const float *fn;	     /* [(2 + C) * C, C * D] */
	const float *base;	     /* [(2 + C) * C] */
	const float *scale;	     /* [3] */
};

struct kern_attn_args {
	uint32_t n, heads, width, window; /* window = sliding_window slots */
	const float *q;			  /* [n, heads, width], rotated, rounded */
	const uint32_t *pos;		  /* [n] absolute positions, ascending */
	const struct kern_cache *win;  /* holds positions max(0, pos-window+1)..pos of every row */
	const struct kern_cache *comp; /* compressed KV; NULL for ratio 0 */
	const int32_t *sel;	       /* [n, n_sel] entries ascending, -1 = none (at the end) */
	uint32_t n_sel;		       /* 0 with comp NULL */
	const float *sink;	       /* [heads] */
	float *out;		       /* [n, heads, width], rounded, before the inverse rotation */
};

struct kern_index_args {
	uint32_t n, heads, dim, topk;
	const float *q;	     /* [n, heads, dim] rotated; after Q4idx in native */
	const float *weight; /* [n, heads], factor dim^-0.5 heads^-0.5 included */
	const struct kern_cache *keys;
	const uint32_t *visible; /* [n] L(p): entries 0..L-1 may be chosen */
	const int32_t *
		blocks_in; /* [n, n_blocks] kept blocks, ascending, -1 padded; NULL = all entries */
	int32_t *blocks_out; /* [n, n_blocks] publish candidates (4.6.5); NULL = do not */
	uint32_t n_blocks, block_size;
	int32_t *sel;	/* out [n, topk]: ascending, -1 padded at the end; ties: lower entry */
	float *scratch; /* kern_index_scratch() floats */
};

/** kern_index_scratch() - floats of scratch for @n rows; independent of the prefix length. */
size_t kern_index_scratch(uint32_t n, uint32_t topk, uint32_t n_blocks);

struct kern_moe_args {
	uint32_t n, dim, topk;
	uint32_t n_leaf; /* leaves of this rank, 1..KERN_LEAVES_MAX; empty ones do not count */
	const uint32_t *
		leaf_at; /* [n_leaf + 1] first inner channel of each leaf, relative to this rank's */
	const struct kern_weight *const *w1,
		*const *w3;		     /* [experts] inner x dim; NULL entries never chosen */
	const struct kern_weight *const *w2; /* [experts] dim x inner (this rank's columns) */
	const struct kern_weight *s1, *s3, *s2; /* shared expert, same cut */
	float limit;				/* swiglu_limit */
	const struct kern_act *u;		/* [n, dim], Q8 in native */
	const int32_t *ids;			/* [n, topk] in routing order */
	const float *weight;			/* [n, topk] */
	float *const *out; /* [n_leaf] of [n, dim] fp32 partials, not rounded */
	float *scratch;	   /* kern_moe_scratch() floats */
};

/** kern_moe_scratch() - floats of scratch for @n rows and @inner channels of this rank. */
size_t kern_moe_scratch(uint32_t n, uint32_t inner);

/* ------------------------------------------------------------------ leaves and the canonical sum */

/**
 * kern_leaf_range() - units [*first, *end) of leaf @leaf when @units are cut into @leaves leaves:
 * contiguous, as even as possible, earlier ones larger; empty at the end when units < leaves.
 */
void kern_leaf_range(uint32_t units, uint32_t leaves, uint32_t leaf, uint32_t *first,
		     uint32_t *end);

/**
 * kern_leaf_sum() - the canonical tree over up to four partial vectors, in fp32.
 * @class_: leaves of the class, 4: (p0 + p1) + (p2 + p3); 3: (p0 + p1) + p2; also used for the
 *          two halves of class 4 (class_ = 2: p0 + p1)
 * @part:   [class_] vectors of @len, NULL = empty leaf: skipped, not added as zero
 * @out:    [len]; may be one of the parts. All NULL gives zeros.
 */
void kern_leaf_sum(uint32_t class_, const float *const *part, size_t len, float *out);

/* ------------------------------------------------------------------ the table */

enum kern_quant {
	KERN_Q8,
	KERN_Q4IDX,
	KERN_Q4KV
};

struct kern_ops {
	const char *name; /* "ref", "avx2", ... */

	/**
	 * weight_prepare() - lay a stored matrix out for this set. Copies; @m may go afterwards.
	 * Returns owned (weight_free()); NULL with DS_ERR_NOMEM.
	 */
	struct kern_weight *(*weight_prepare)(const struct kern_matrix *m, struct ds_err *err);
	void (*weight_free)(struct kern_weight *w);
	size_t (*weight_bytes)(const struct kern_weight *w); /* memory it occupies */

	/** act_q8() - Q8 of x [n, width] into @a (native); plain copy with scale 1 (exact). */
	void (*act_q8)(struct kern_ctx *ctx, const float *x, uint32_t n, uint32_t width,
		       struct kern_act *a);
	/** act_plain() - the values themselves, scale 1, in both numerics; @x rows are @stride floats apart. */
	void (*act_plain)(struct kern_ctx *ctx, const float *x, size_t stride, uint32_t n,
			  uint32_t width, struct kern_act *a);

	/**
	 * linear() - y[i, o] = sum over k in [k0, k1) of W[o, k] x[i, k], canonical order.
	 * @k0, @k1: multiples of 32 (k1 may be cols); @a holds exactly k1 - k0 channels
	 * @stride:  floats from row to row of @y; @round: round to bf16 in native
	 */
	void (*linear)(struct kern_ctx *ctx, const struct kern_weight *w, const struct kern_act *a,
		       uint32_t k0, uint32_t k1, float *y, size_t stride, bool round);

	/** round() - to bf16 in native, in place; nothing in exact. */
	void (*round)(struct kern_ctx *ctx, float *x, size_t len);
	/** qdq() - quantise and dequantise [n, width] in place (native); nothing in exact. */
	void (*qdq)(struct kern_ctx *ctx, enum kern_quant kind, float *x, uint32_t n,
		    uint32_t width);

	/** rms_norm() - y = rms(x; gain) of model.md 0.2, rounded. @y may be @x. gain [width]. */
	void (*rms_norm)(struct kern_ctx *ctx, const float *x, const float *gain, float eps,
			 uint32_t n, uint32_t width, float *y);
	/** rope() - rotate the last dim channels of x [n, heads, width] by pos[i], in place, rounded. */
	void (*rope)(struct kern_ctx *ctx, const struct kern_rope *r, float *x, uint32_t n,
		     uint32_t heads, uint32_t width, const uint32_t *pos, bool inverse);

	/** hc_predict() - x [n, C, D] -> pre [n, C], post [n, C], comb [n, C from, C to] (4.3). */
	void (*hc_predict)(struct kern_ctx *ctx, const struct kern_hc *w, const float *x,
			   uint32_t n, float *pre, float *post, float *comb);
	/** hc_mix() - y [n, D] = sum_c mix[n, c] x[n, c, :], rounded. */
	void (*hc_mix)(struct kern_ctx *ctx, const float *mix, const float *x, uint32_t n,
		       uint32_t copies, uint32_t dim, float *y);
	/** hc_update() - x [n, C, D] = post * y + comb applied to x, rounded, in place. */
	void (*hc_update)(struct kern_ctx *ctx, float *x, const float *y, const float *post,
			  const float *comb, uint32_t n, uint32_t copies, uint32_t dim);

	/** row_put() - store x [n, width] as entries first..first+n-1 of @c (quantises as the format says). */
	void (*row_put)(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first,
			const float *x, uint32_t n);
	/** row_get() - read entries back as floats [n, width]; exact for every format. */
	void (*row_get)(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first,
			uint32_t n, float *x);

	/** attention() - model.md 4.6.6 in the canonical slot order of design 4.3. */
	void (*attention)(struct kern_ctx *ctx, const struct kern_attn_args *a);
	/** pool2() - kv, score [n, 2, width] fp32 -> latent [n, width] (4.6.2), rounded. */
	void (*pool2)(struct kern_ctx *ctx, const float *kv, const float *score, uint32_t n,
		      uint32_t width, float *y);
	/** index_select() - scores, candidates, top-k (4.6.4, 4.6.5). */
	void (*index_select)(struct kern_ctx *ctx, const struct kern_index_args *a);

	/**
	 * route() - model.md 4.7: logits [n, experts] fp32, bias [experts] -> ids, weights [n, topk], in
	 * routing order (descending biased score, lower id on ties). @scale: routed_scaling_factor
	 */
	void (*route)(struct kern_ctx *ctx, const float *logits, const float *bias, uint32_t n,
		      uint32_t experts, uint32_t topk, float scale, int32_t *ids, float *weight);
	/** moe() - routed and shared experts to leaf partials. */
	void (*moe)(struct kern_ctx *ctx, const struct kern_moe_args *a);

	/**
	 * engram_gate() - model.md 4.11.4: x [n, C, D] in place, rounded.
	 * @kv: [n, (C + 1) * D], keys of the copies then the value; @qk: [C, D] q_weight * k_weight
	 * @dead: [n] true = gate 0 (image positions); NULL = none
	 */
	void (*engram_gate)(struct kern_ctx *ctx, float *x, const float *kv, const float *qk,
			    const bool *dead, float eps, uint32_t n, uint32_t copies, uint32_t dim);

	/** finite() - whether all @len values are finite. */
	bool (*finite)(struct kern_ctx *ctx, const float *x, size_t len);
};

/**
 * kern_open() - the set called @name, or the best for this processor for NULL.
 * Returns view (static). NULL with DS_ERR_USAGE when it is unknown or this processor lacks it; the
 * message lists the sets that run here.
 */
const struct kern_ops *kern_open(const char *name, struct ds_err *err);

/** kern_sets() - names of all sets of this build, NULL-terminated; static. */
const char *const *kern_sets(void);

/* Stored formats to fp32, one value each; for loaders and tests. */
float kern_bf16_to_f32(uint16_t v);
uint16_t kern_f32_to_bf16(float v); /* nearest even; NaN stays NaN */
float kern_e4m3_to_f32(uint8_t v);
float kern_e8m0_to_f32(uint8_t v);
float kern_e2m1_to_f32(uint8_t code);

#ifdef __cplusplus
}
#endif
#endif
