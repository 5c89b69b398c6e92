/*
 * quant.c - rounding to bf16 and the three quantisers of model.md 3.3.
 */
#include <float.h>

#include "ref.h"

/* Largest magnitude of a group; NaN when it holds one. */
static float largest(const float *x, uint32_t size)
{
	float amax = 0.0f;

	for (uint32_t i = 0; i < size; i++) {
		float a = kern_abs(x[i]);

		if (a > amax || a != a)
			amax = a;
	}
	return amax;
}

/* The scale byte of a group, without the case of a NaN or an infinity. */
static uint8_t scale_byte(enum kern_quant kind, float amax)
{
	switch (kind) {
	case KERN_Q8:
		return kern_pow2ceil((amax > 1e-4f ? amax : 1e-4f) * (1.0f / 448));
	case KERN_Q4IDX:
		return kern_pow2ceil((amax > 0x1.8p-124f ? amax : 0x1.8p-124f) * (1.0f / 6));
	case KERN_Q4KV:
		break;
	}
	return kern_to_e4m3((amax > 0x1.8p-7f ? amax : 0x1.8p-7f) / 6.0f);
}

static float scale_value(enum kern_quant kind, uint8_t byte)
{
	return kind == KERN_Q4KV ? kern_e4m3(byte) : kern_e8m0(byte);
}

uint8_t ref_quantise(enum kern_quant kind, const float *x, uint32_t size, uint8_t *code)
{
	float amax = largest(x, size), s;
	uint8_t byte;

	if (!(amax <= FLT_MAX)) {
		memset(code, 0, size);
		return kind == KERN_Q4KV ? 0x7f : 255;
	}
	byte = scale_byte(kind, amax);
	s = scale_value(kind, byte);
	for (uint32_t i = 0; i < size; i++)
		code[i] = kind == KERN_Q8 ? kern_to_e4m3(x[i] / s) : kern_to_e2m1(x[i] / s);
	return byte;
}

void ref_round(struct kern_ctx *ctx, float *x, size_t len)
{
	if (ctx->numerics == KERN_EXACT)
		return;
	for (size_t i = 0; i < len; i++)
		x[i] = kern_bf16_round(x[i]);
}

void ref_qdq(struct kern_ctx *ctx, enum kern_quant kind, float *x, uint32_t n, uint32_t width)
{
	uint32_t group = ref_group(kind);

	assert(width % group == 0);
	if (ctx->numerics == KERN_EXACT)
		return;
	for (size_t at = 0; at < (size_t)n * width; at += group) {
		uint8_t code[32];
		float s = scale_value(kind, ref_quantise(kind, x + at, group, code));

		for (uint32_t i = 0; i < group; i++)
			x[at + i] = kern_canon(
				(kind == KERN_Q8 ? kern_e4m3(code[i]) : kern_e2m1(code[i])) * s);
	}
}

/* ------------------------------------------------------------------ activations of linears */

struct act_job {
	const float *x;
	struct kern_act *a;
};

static void act_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct act_job *job = arg;
	uint32_t width = job->a->width, blocks = (width + 31) / 32;

	(void)part;
	for (uint32_t i = first; i < end; i++)
		for (uint32_t b = 0; b < blocks; b++) {
			uint32_t size = width - b * 32 < 32 ? width - b * 32 : 32;
			size_t at = (size_t)i * width + b * 32;
			uint8_t code[32];

			job->a->scale[(size_t)i * blocks + b] =
				kern_e8m0(ref_quantise(KERN_Q8, job->x + at, size, code));
			for (uint32_t k = 0; k < size; k++)
				job->a->q[at + k] = kern_e4m3(code[k]);
		}
}

void ref_act_q8(struct kern_ctx *ctx, const float *x, uint32_t n, uint32_t width,
		struct kern_act *a)
{
	struct act_job job = { .x = x, .a = a };

	if (ctx->numerics == KERN_EXACT) {
		ref_act_plain(ctx, x, width, n, width, a);
		return;
	}
	a->n = n;
	a->width = width;
	kern_parallel(ctx->pool, n, (uint64_t)width * 8, act_rows, &job);
}

void ref_act_plain(struct kern_ctx *ctx, const float *x, size_t stride, uint32_t n, uint32_t width,
		   struct kern_act *a)
{
	size_t blocks = (width + 31) / 32;

	(void)ctx;
	a->n = n;
	a->width = width;
	for (uint32_t i = 0; i < n; i++)
		memcpy(a->q + (size_t)i * width, x + i * stride, width * sizeof(*x));
	for (size_t i = 0; i < n * blocks; i++)
		a->scale[i] = 1.0f;
}

void ref_linear(struct kern_ctx *ctx, const struct kern_weight *w, const struct kern_act *a,
		uint32_t k0, uint32_t k1, float *y, size_t stride, bool round)
{
	struct ref_linear_job job = {
		.w = w,
		.q = a->q,
		.q_stride = a->width,
		.scale = a->scale,
		.scale_stride = (a->width + 31) / 32,
		.n = a->n,
		.k0 = k0,
		.k1 = k1,
		.y = y,
		.stride = stride,
		.store = round && ctx->numerics == KERN_NATIVE ? REF_ROUND : REF_SET,
	};

	assert(k0 % 32 == 0 && (k1 % 32 == 0 || k1 == w->cols) && k1 <= w->cols);
	assert(a->width == k1 - k0 && stride >= w->rows);
	ref_linear_run(ctx, &job);
}

bool ref_finite(struct kern_ctx *ctx, const float *x, size_t len)
{
	uint32_t bad = 0;

	(void)ctx;
	for (size_t i = 0; i < len; i++)
		bad |= (kern_bits(x[i]) & 0x7f800000) == 0x7f800000;
	return bad == 0;
}
