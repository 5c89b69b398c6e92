/*
 * ref.h - what the files of the reference set share.
 *
 * The reference defines the bits of every CPU set, so it is written to be read beside model.md:
 * one operation or family per file, section numbers in the comments, loops in the canonical order
 * of design 4.3. kernels/cpu/ compiles these same files again for newer processors and replaces
 * only the linears; a file here must therefore keep its arithmetic to kern_math.h.
 */
#ifndef KERN_REF_H
#define KERN_REF_H

#include <assert.h>

#include "kern_math.h"
#include "kernels.h"
#include "pool.h"
#include "sets.h"

#define REF_WIDTH_MAX  512 /* channels of a cache row or an attention head */
#define REF_COPIES_MAX 8   /* hyper-connection copies */

/* A prepared weight. Every set uses this struct; what data and scale look like is the set's affair. */
struct kern_weight {
	enum kern_fmt fmt;
	uint32_t rows, cols;
	size_t bytes;  /* memory of all of it */
	bool odd;      /* FP8 with a NaN code somewhere: not for the fast decoders */
	uint8_t *data; /* ref: rows as stored, without gaps */
	size_t stride;
	uint8_t *scale; /* ref: as stored, without gaps; NULL for F32 and BF16 */
	size_t scale_stride;
};

/* What a linear does with a finished dot product. */
enum ref_store {
	REF_SET,   /* y = v */
	REF_ROUND, /* y = bf16(v) */
	REF_ADD,   /* y = y + v */
};

/* One linear, or the part of one that a mixture of experts needs: some rows, some channels. */
struct ref_linear_job {
	const struct kern_weight *w;
	const float *q; /* first channel is k0 */
	size_t q_stride;
	const float *scale; /* first block is k0 / 32 */
	size_t scale_stride;
	const uint32_t *rows; /* [n] rows of q, scale and y; NULL = 0..n-1 */
	uint32_t n, k0, k1;
	float *y;
	size_t stride;
	enum ref_store store;
};

void ref_linear_run(struct kern_ctx *ctx, const struct ref_linear_job *job);

struct kern_weight *ref_weight_prepare(const struct kern_matrix *m, struct ds_err *err);
void ref_weight_free(struct kern_weight *w);
size_t ref_weight_bytes(const struct kern_weight *w);

void ref_act_q8(struct kern_ctx *ctx, const float *x, uint32_t n, uint32_t width,
		struct kern_act *a);
void ref_act_plain(struct kern_ctx *ctx, const float *x, size_t stride, uint32_t n, uint32_t width,
		   struct kern_act *a);
void ref_linear(struct kern_ctx *ctx, const struct kern_weight *w, const struct kern_act *a,
		uint32_t k0, uint32_t k1, float *y, size_t stride, bool round);
void ref_round(struct kern_ctx *ctx, float *x, size_t len);
void ref_qdq(struct kern_ctx *ctx, enum kern_quant kind, float *x, uint32_t n, uint32_t width);
void ref_rms_norm(struct kern_ctx *ctx, const float *x, const float *gain, float eps, uint32_t n,
		  uint32_t width, float *y);
void ref_rope(struct kern_ctx *ctx, const struct kern_rope *r, float *x, uint32_t n, uint32_t heads,
	      uint32_t width, const uint32_t *pos, bool inverse);
void ref_hc_predict(struct kern_ctx *ctx, const struct kern_hc *w, const float *x, uint32_t n,
		    float *pre, float *post, float *comb);
void ref_hc_mix(struct kern_ctx *ctx, const float *mix, const float *x, uint32_t n, uint32_t copies,
		uint32_t dim, float *y);
void ref_hc_update(struct kern_ctx *ctx, float *x, const float *y, const float *post,
		   const float *comb, uint32_t n, uint32_t copies, uint32_t dim);
void ref_row_put(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first, const float *x,
		 uint32_t n);
void ref_row_get(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first, uint32_t n,
		 float *x);
void ref_attention(struct kern_ctx *ctx, const struct kern_attn_args *a);
void ref_pool2(struct kern_ctx *ctx, const float *kv, const float *score, uint32_t n,
	       uint32_t width, float *y);
void ref_index_select(struct kern_ctx *ctx, const struct kern_index_args *a);
void ref_route(struct kern_ctx *ctx, const float *logits, const float *bias, uint32_t n,
	       uint32_t experts, uint32_t topk, float scale, int32_t *ids, float *weight);
void ref_moe(struct kern_ctx *ctx, const struct kern_moe_args *a);
void ref_engram_gate(struct kern_ctx *ctx, float *x, const float *kv, const float *qk,
		     const bool *dead, float eps, uint32_t n, uint32_t copies, uint32_t dim);
bool ref_finite(struct kern_ctx *ctx, const float *x, size_t len);

/**
 * ref_quantise() - one group by the rules of model.md 3.3.
 * @x: [size]; size is 32, for KERN_Q4KV 16; the last group of a Q8 row may be shorter
 * @code:  [size] E4M3 bytes or E2M1 codes, one a byte
 * Return: the stored scale byte (E8M0, for KERN_Q4KV E4M3). A group that holds a NaN or an infinity
 * gets the NaN scale, so that all of it reads back as NaN.
 */
uint8_t ref_quantise(enum kern_quant kind, const float *x, uint32_t size, uint8_t *code);

/** ref_group() - channels that share a scale. */
static inline uint32_t ref_group(enum kern_quant kind)
{
	return kind == KERN_Q4KV ? 16 : 32;
}

/** ref_row_read() - entry @e of @c as floats, [width]. */
void ref_row_read(const struct kern_cache *c, uint64_t e, float *x);

/** ref_keep() - a value that leaves an operation: rounded to bf16 in native. */
static inline float ref_keep(const struct kern_ctx *ctx, float v)
{
	return ctx->numerics == KERN_NATIVE ? kern_bf16_round(v) : kern_canon(v);
}

#endif
