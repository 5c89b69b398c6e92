/*
 * channel_neon.h - 32 floats in eight 128-bit registers (AArch64's Advanced SIMD, always there).
 */
#include <arm_neon.h>

#define CH_BLOCKS 2
#define CH_ROWS	  2

/* Outputs 4i..4i+3 each. Named members: an array would be kept in memory. */
struct channel {
	float32x4_t a, b, c, d, e, f, g, h;
};

/* Widening instructions keep the order. */
static inline uint32_t ch_place(enum kern_fmt fmt, uint32_t o)
{
	(void)fmt;
	return o;
}

CH_INLINE struct channel ch_load(const float *v)
{
	return (struct channel){ vld1q_f32(v),	    vld1q_f32(v + 4),  vld1q_f32(v + 8),
				 vld1q_f32(v + 12), vld1q_f32(v + 16), vld1q_f32(v + 20),
				 vld1q_f32(v + 24), vld1q_f32(v + 28) };
}

CH_INLINE void ch_store(float *v, struct channel c)
{
	vst1q_f32(v, c.a);
	vst1q_f32(v + 4, c.b);
	vst1q_f32(v + 8, c.c);
	vst1q_f32(v + 12, c.d);
	vst1q_f32(v + 16, c.e);
	vst1q_f32(v + 20, c.f);
	vst1q_f32(v + 24, c.g);
	vst1q_f32(v + 28, c.h);
}

CH_INLINE struct channel ch_all(float v)
{
	float32x4_t s = vdupq_n_f32(v);

	return (struct channel){ s, s, s, s, s, s, s, s };
}

CH_INLINE struct channel ch_mul(struct channel c, float x)
{
	return (struct channel){ vmulq_n_f32(c.a, x), vmulq_n_f32(c.b, x), vmulq_n_f32(c.c, x),
				 vmulq_n_f32(c.d, x), vmulq_n_f32(c.e, x), vmulq_n_f32(c.f, x),
				 vmulq_n_f32(c.g, x), vmulq_n_f32(c.h, x) };
}

CH_INLINE struct channel ch_fma_each(struct channel c, struct channel d, struct channel acc)
{
	return (struct channel){ vfmaq_f32(acc.a, c.a, d.a), vfmaq_f32(acc.b, c.b, d.b),
				 vfmaq_f32(acc.c, c.c, d.c), vfmaq_f32(acc.d, c.d, d.d),
				 vfmaq_f32(acc.e, c.e, d.e), vfmaq_f32(acc.f, c.f, d.f),
				 vfmaq_f32(acc.g, c.g, d.g), vfmaq_f32(acc.h, c.h, d.h) };
}

CH_INLINE struct channel ch_fma(struct channel c, float x, struct channel acc)
{
	return ch_fma_each(c, ch_all(x), acc);
}

CH_INLINE struct channel ch_f32(const uint8_t *at)
{
	return ch_load((const float *)(const void *)at);
}

/* Eight words to the upper halves of eight floats. */
#define CH_UPPER(words, low, high)                                           \
	(low) = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(words), 16)); \
	(high) = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(words), 16))

CH_INLINE struct channel ch_bf16(const uint8_t *at)
{
	const uint16_t *v = (const uint16_t *)(const void *)at;
	struct channel r;
	uint16x8_t w;

	w = vld1q_u16(v);
	CH_UPPER(w, r.a, r.b);
	w = vld1q_u16(v + 8);
	CH_UPPER(w, r.c, r.d);
	w = vld1q_u16(v + 16);
	CH_UPPER(w, r.e, r.f);
	w = vld1q_u16(v + 24);
	CH_UPPER(w, r.g, r.h);
	return r;
}

/* Eight codes: moved to the top of a word they are fp16 but for one exponent bit. */
CH_INLINE void ch_from_e4m3(uint8x8_t code, float32x4_t *low, float32x4_t *high)
{
	int16x8_t word = vshrq_n_s16(vreinterpretq_s16_u16(vshll_n_u8(code, 8)), 1);
	float16x8_t half =
		vreinterpretq_f16_s16(vandq_s16(word, vdupq_n_s16((int16_t)(uint16_t)0xbfff)));

	*low = vcvt_f32_f16(vget_low_f16(half));
	*high = vcvt_f32_f16(vget_high_f16(half));
}

CH_INLINE struct channel ch_fp8(const uint8_t *at)
{
	struct channel r;

	ch_from_e4m3(vld1_u8(at), &r.a, &r.b);
	ch_from_e4m3(vld1_u8(at + 8), &r.c, &r.d);
	ch_from_e4m3(vld1_u8(at + 16), &r.e, &r.f);
	ch_from_e4m3(vld1_u8(at + 24), &r.g, &r.h);
	return r;
}

/* Sixteen E2M1 codes, one a byte: the upper and lower byte of their bf16, put together. */
CH_INLINE void ch_from_e2m1(uint8x16_t code, float32x4_t *a, float32x4_t *b, float32x4_t *c,
			    float32x4_t *d)
{
	static const uint8_t upper[16] = { 0,	 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
					   0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0 };
	static const uint8_t lower[16] = { 0, 0, 0x80, 0xc0, 0, 0x40, 0x80, 0xc0,
					   0, 0, 0x80, 0xc0, 0, 0x40, 0x80, 0xc0 };
	uint8x16_t up = vqtbl1q_u8(vld1q_u8(upper), code);
	uint8x16_t low = vqtbl1q_u8(vld1q_u8(lower), code);
	uint16x8_t w;

	w = vreinterpretq_u16_u8(vzip1q_u8(low, up));
	CH_UPPER(w, *a, *b);
	w = vreinterpretq_u16_u8(vzip2q_u8(low, up));
	CH_UPPER(w, *c, *d);
}

CH_INLINE struct channel ch_fp4(const uint8_t *at, bool high)
{
	uint8x16_t p = vld1q_u8(at), q = vld1q_u8(at + 16);
	struct channel r;

	p = high ? vshrq_n_u8(p, 4) : vandq_u8(p, vdupq_n_u8(15));
	q = high ? vshrq_n_u8(q, 4) : vandq_u8(q, vdupq_n_u8(15));
	ch_from_e2m1(p, &r.a, &r.b, &r.c, &r.d);
	ch_from_e2m1(q, &r.e, &r.f, &r.g, &r.h);
	return r;
}

CH_INLINE void ch_eight_scales(const uint8_t *at, float32x4_t *low, float32x4_t *high)
{
	uint16x8_t w = vmovl_u8(vld1_u8(at));

	*low = vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(w)), 23));
	*high = vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_high_u16(w)), 23));
}

CH_INLINE struct channel ch_scales(const uint8_t *at)
{
	struct channel r;

	ch_eight_scales(at, &r.a, &r.b);
	ch_eight_scales(at + 8, &r.c, &r.d);
	ch_eight_scales(at + 16, &r.e, &r.f);
	ch_eight_scales(at + 24, &r.g, &r.h);
	return r;
}
