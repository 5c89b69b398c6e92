/*
 * channel_scalar.h - 32 floats in memory, plain C: for processors without one of the other layers.
 */
#include "../kern_math.h"

#define CH_BLOCKS 1
#define CH_ROWS	  1

struct channel {
	float v[32];
};

static inline uint32_t ch_place(enum kern_fmt fmt, uint32_t o)
{
	(void)fmt;
	return o;
}

CH_INLINE struct channel ch_load(const float *v)
{
	struct channel c;

	memcpy(c.v, v, sizeof(c.v));
	return c;
}

CH_INLINE void ch_store(float *v, struct channel c)
{
	memcpy(v, c.v, sizeof(c.v));
}

CH_INLINE struct channel ch_all(float v)
{
	struct channel c;

	for (int o = 0; o < 32; o++)
		c.v[o] = v;
	return c;
}

CH_INLINE struct channel ch_mul(struct channel c, float x)
{
	for (int o = 0; o < 32; o++)
		c.v[o] *= x;
	return c;
}

CH_INLINE struct channel ch_fma(struct channel c, float x, struct channel acc)
{
	for (int o = 0; o < 32; o++)
		acc.v[o] = kern_fma(c.v[o], x, acc.v[o]);
	return acc;
}

CH_INLINE struct channel ch_fma_each(struct channel c, struct channel d, struct channel acc)
{
	for (int o = 0; o < 32; o++)
		acc.v[o] = kern_fma(c.v[o], d.v[o], acc.v[o]);
	return acc;
}

CH_INLINE struct channel ch_f32(const uint8_t *at)
{
	return ch_load((const float *)(const void *)at);
}

CH_INLINE struct channel ch_bf16(const uint8_t *at)
{
	struct channel c;

	for (int o = 0; o < 32; o++) {
		uint16_t half;

		memcpy(&half, at + 2 * o, sizeof(half));
		c.v[o] = kern_from_bits((uint32_t)half << 16);
	}
	return c;
}

CH_INLINE struct channel ch_fp8(const uint8_t *at)
{
	struct channel c;

	for (int o = 0; o < 32; o++)
		c.v[o] = kern_e4m3(at[o]) * 0x1p-8f;
	return c;
}

CH_INLINE struct channel ch_fp4(const uint8_t *at, bool high)
{
	struct channel c;

	for (int o = 0; o < 32; o++)
		c.v[o] = kern_e2m1(high ? at[o] >> 4 : at[o] & 15);
	return c;
}

CH_INLINE struct channel ch_scales(const uint8_t *at)
{
	struct channel c;

	for (int o = 0; o < 32; o++)
		c.v[o] = kern_e8m0(at[o]);
	return c;
}
