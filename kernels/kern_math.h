/*
 * kern_math.h - the elementary arithmetic below every set of the CPU family.
 *
 * Bits must not depend on the processor, the compiler or the C library's version, so nothing here
 * calls libm's exp, log or sin: each function is a fixed chain of IEEE operations, with fused
 * multiply-add only where it is written as kern_fma(). fmaf() itself is correctly rounded
 * everywhere (one instruction where the file is built for a processor that has it). All of it is
 * static inline: a file built for AVX2 must not lend its copy to a file that is not.
 *
 * NaN: which payload survives an operation differs between instructions, so results that leave an
 * operation go through kern_canon() or kern_bf16_round(), which know one NaN only.
 */
#ifndef KERN_MATH_H
#define KERN_MATH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KERN_NAN_BITS UINT32_C(0x7fc00000)

static inline uint32_t kern_bits(float v)
{
	uint32_t u;

	memcpy(&u, &v, sizeof(u));
	return u;
}

static inline float kern_from_bits(uint32_t u)
{
	float v;

	memcpy(&v, &u, sizeof(v));
	return v;
}

static inline float kern_fma(float a, float b, float c)
{
	return fmaf(a, b, c);
}

static inline float kern_abs(float v)
{
	return kern_from_bits(kern_bits(v) & UINT32_C(0x7fffffff));
}

/* The one NaN for every NaN; other values as they are. */
static inline float kern_canon(float v)
{
	return v == v ? v : kern_from_bits(KERN_NAN_BITS);
}

/* Nearest bf16 as a float, ties to even (model.md 0.2). */
static inline float kern_bf16_round(float v)
{
	uint32_t u = kern_bits(v);

	if (v != v)
		return kern_from_bits(KERN_NAN_BITS);
	return kern_from_bits((u + 0x7fff + ((u >> 16) & 1)) & UINT32_C(0xffff0000));
}

/* ------------------------------------------------------------------ small formats (model.md 3.1) */

/* 2^(byte - 127): byte 0 is the subnormal 2^-127, byte 255 is NaN. */
static inline float kern_e8m0(uint8_t byte)
{
	if (byte == 0)
		return kern_from_bits(UINT32_C(0x00400000));
	return kern_from_bits(byte == 255 ? KERN_NAN_BITS : (uint32_t)byte << 23);
}

/* pow2ceil (3.2) as the E8M0 byte: the exponent field, plus one unless the mantissa is zero. */
static inline uint8_t kern_pow2ceil(float t)
{
	uint32_t u = kern_bits(t) & UINT32_C(0x7fffffff);
	uint32_t byte = (u >> 23) + ((u & 0x7fffff) != 0);

	return (uint8_t)(byte > 255 ? 255 : byte);
}

/* E4M3 byte to float: 8 + m (m when subnormal) units of 2^(e - 10), exact; no infinity. */
static inline float kern_e4m3(uint8_t code)
{
	uint32_t e = code >> 3 & 15, units = (code & 7) + (e != 0 ? 8 : 0);
	float unit = kern_from_bits(((e != 0 ? e : 1) + 117) << 23);
	float v =
		kern_from_bits(kern_bits((float)(int)units * unit) | (uint32_t)(code & 0x80) << 24);

	return (code & 0x7f) == 0x7f ? kern_from_bits(KERN_NAN_BITS) : v;
}

/* Nearest E4M3 byte, ties to even, saturating at 448; NaN to 0x7f. */
static inline uint8_t kern_to_e4m3(float v)
{
	uint32_t u = kern_bits(v), sign = (u >> 24) & 0x80;
	float a = kern_abs(v);

	if (v != v)
		return 0x7f;
	if (a >= 448.0f)
		return (uint8_t)(sign | 0x7e);
	if (a < 0x1p-6f) /* at 2^14 one fp32 step is 2^-9: the sum rounds to that grid */
		return (uint8_t)(sign | (kern_bits(a + 0x1p14f) & 0xf));
	u &= UINT32_C(0x7fffffff);
	u += 0x7ffff + ((u >> 20) & 1);
	return (uint8_t)(sign | ((u >> 20) - (UINT32_C(120) << 3)));
}

/* E2M1 code (bit 3 is the sign) to float. */
static inline float kern_e2m1(uint8_t code)
{
	static const float value[16] = { 0.0f,	0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
					 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f };

	return value[code & 15];
}

/* Nearest E2M1 code, ties to the even code, saturating at 6. A NaN has no code: callers mark the scale. */
static inline uint8_t kern_to_e2m1(float v)
{
	float a = kern_abs(v);
	uint8_t code = (uint8_t)((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) +
				 (a > 2.5f) + (a >= 3.5f) + (a > 5.0f));

	return (uint8_t)(code | (kern_bits(v) >> 31 << 3));
}

/* ------------------------------------------------------------------ functions */

/*
 * exp(x): x = n ln2 + r with |r| <= ln2 / 2, Taylor to the seventh power (the next term is below
 * 2^-27 of the result), then two exact scalings, so that a subnormal result is rounded once.
 */
static inline float kern_exp(float x)
{
	const float magic = 0x1.8p23f; /* adding it rounds to an integer, kept in the low bits */
	float t, n, r, p;
	int32_t i, half;

	if (!(x < 89.0f))
		return x == x ? INFINITY : x;
	if (x < -104.0f)
		return 0.0f;
	t = kern_fma(x, 0x1.715476p+0f, magic);
	n = t - magic;
	r = kern_fma(n, -0x1.62e43p-1f, x); /* ln 2 in two parts */
	r = kern_fma(n, 0x1.05c61p-29f, r);
	p = 1.0f / 5040;
	p = kern_fma(p, r, 1.0f / 720);
	p = kern_fma(p, r, 1.0f / 120);
	p = kern_fma(p, r, 1.0f / 24);
	p = kern_fma(p, r, 1.0f / 6);
	p = kern_fma(p, r, 0.5f);
	p = kern_fma(p, r * r, r) + 1.0f;
	i = (int32_t)(kern_bits(t) - kern_bits(magic));
	half = i / 2;
	p *= kern_from_bits((uint32_t)(half + 127) << 23);
	return p * kern_from_bits((uint32_t)(i - half + 127) << 23);
}

/*
 * log1p(y) for 0 <= y <= 1 (softplus needs no other): 1 + y = 2^e (1 + f) with f in [-1/4, 1/2],
 * s = f / (2 + f), log(1 + f) = 2 atanh(s) = f - (f^2/2 - s (f^2/2 + R)), R = 2/3 s^2 + 2/5 s^4 ...
 */
static inline float kern_log1p(float y)
{
	float e = y > 0.5f ? 1.0f : 0.0f;
	float f = e != 0.0f ? (y - 1.0f) * 0.5f : y; /* exact: y is within a factor of 2 of 1 */
	float s = f / (2.0f + f), z = s * s, h = 0.5f * f * f, r;

	r = 2.0f / 13;
	r = kern_fma(r, z, 2.0f / 11);
	r = kern_fma(r, z, 2.0f / 9);
	r = kern_fma(r, z, 2.0f / 7);
	r = kern_fma(r, z, 2.0f / 5);
	r = kern_fma(r, z, 2.0f / 3);
	r = r * z;
	r = h - kern_fma(s, h + r, e * -0x1.05c61p-29f);
	return kern_fma(e, 0x1.62e43p-1f, f - r);
}

static inline float kern_sigmoid(float x)
{
	return 1.0f / (1.0f + kern_exp(-x));
}

/* log(1 + exp(x)); x itself above 20, as the model does (model.md 4.7). */
static inline float kern_softplus(float x)
{
	if (x > 20.0f)
		return x;
	return (x > 0.0f ? x : 0.0f) + kern_log1p(kern_exp(-kern_abs(x)));
}

/*
 * Sine and cosine of an angle up to 2^21 in double. The multiple of pi/2 is taken off in three
 * parts, of which the first two have 33 bits, so that their products with the 21-bit count are
 * exact; Taylor below pi/4 is good to 2^-58. Rounded to fp32 once, by the caller.
 */
static inline void kern_sincos(double x, double *sine, double *cosine)
{
	double n = (x * 0x1.45f306dc9c883p-1 + 0x1.8p52) - 0x1.8p52;
	double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
	double z = r * r, s, c, swap;

	s = 1.0 / 355687428096000.0;
	s = 1.0 / 1307674368000.0 - z * s;
	s = 1.0 / 6227020800.0 - z * s;
	s = 1.0 / 39916800.0 - z * s;
	s = 1.0 / 362880.0 - z * s;
	s = 1.0 / 5040.0 - z * s;
	s = 1.0 / 120.0 - z * s;
	s = 1.0 / 6.0 - z * s;
	s = r - r * z * s;
	c = 1.0 / 20922789888000.0;
	c = 1.0 / 87178291200.0 - z * c;
	c = 1.0 / 479001600.0 - z * c;
	c = 1.0 / 3628800.0 - z * c;
	c = 1.0 / 40320.0 - z * c;
	c = 1.0 / 720.0 - z * c;
	c = 1.0 / 24.0 - z * c;
	c = 0.5 - z * c;
	c = 1.0 - z * c;
	if (((int64_t)n & 1) != 0) {
		swap = s;
		s = c;
		c = -swap;
	}
	if (((int64_t)n & 2) != 0) {
		s = -s;
		c = -c;
	}
	*sine = s;
	*cosine = c;
}

/* ------------------------------------------------------------------ canonical sums (design 4.3) */

/* The tree 8-4-2-1 over sixteen lanes; the lanes are used up. */
static inline float kern_tree(float lane[16])
{
	for (int w = 8; w > 0; w /= 2)
		for (int j = 0; j < w; j++)
			lane[j] += lane[j + w];
	return lane[0];
}

/* Sum of a[i] * b[i] over one long vector: element i belongs to lane i mod 16. */
static inline float kern_lane_dot(const float *a, const float *b, size_t len)
{
	float lane[16] = { 0 };
	size_t i = 0;

	for (; i + 16 <= len; i += 16)
		for (int j = 0; j < 16; j++)
			lane[j] = kern_fma(a[i + j], b[i + j], lane[j]);
	for (; i < len; i++)
		lane[i % 16] = kern_fma(a[i], b[i], lane[i % 16]);
	return kern_tree(lane);
}

/*
 * Dot products of @q with sixteen keys, as bf16 linears: k ascending, blocks of 32 from zero, added
 * with scale 1. Keys lie side by side, channel d of key j at key[d * 16 + j]: each sum is a chain of
 * its own, and sixteen chains keep a processor busy that one would leave waiting.
 */
static inline void kern_dot16(const float *q, const float *key, size_t width, float sum[16])
{
	float total[16] = { 0 };

	for (size_t k = 0; k < width; k += 32) {
		size_t end = width - k < 32 ? width : k + 32;
		float acc[16] = { 0 };

		for (size_t d = k; d < end; d++)
			for (int j = 0; j < 16; j++)
				acc[j] = kern_fma(q[d], key[d * 16 + j], acc[j]);
		for (int j = 0; j < 16; j++)
			total[j] += acc[j];
	}
	memcpy(sum, total, sizeof(total));
}

#endif
