/*
 * channel_avx512.h - 32 floats in two 512-bit registers (AVX-512 F, BW, VL, DQ).
 */
#include <immintrin.h>

#define CH_BLOCKS 4
#define CH_ROWS	  8

struct channel {
	__m512 a, b; /* outputs 0..15, 16..31 */
};

/* Widening instructions keep the order. */
static inline uint32_t ch_place(enum kern_fmt fmt, uint32_t o)
{
	(void)fmt;
	return o;
}

CH_INLINE struct channel ch_load(const float *v)
{
	return (struct channel){ _mm512_load_ps(v), _mm512_load_ps(v + 16) };
}

CH_INLINE void ch_store(float *v, struct channel c)
{
	_mm512_store_ps(v, c.a);
	_mm512_store_ps(v + 16, c.b);
}

CH_INLINE struct channel ch_all(float v)
{
	__m512 s = _mm512_set1_ps(v);

	return (struct channel){ s, s };
}

CH_INLINE struct channel ch_mul(struct channel c, float x)
{
	__m512 s = _mm512_set1_ps(x);

	return (struct channel){ _mm512_mul_ps(c.a, s), _mm512_mul_ps(c.b, s) };
}

CH_INLINE struct channel ch_fma(struct channel c, float x, struct channel acc)
{
	__m512 s = _mm512_set1_ps(x);

	return (struct channel){ _mm512_fmadd_ps(c.a, s, acc.a), _mm512_fmadd_ps(c.b, s, acc.b) };
}

CH_INLINE struct channel ch_fma_each(struct channel c, struct channel d, struct channel acc)
{
	return (struct channel){ _mm512_fmadd_ps(c.a, d.a, acc.a),
				 _mm512_fmadd_ps(c.b, d.b, acc.b) };
}

CH_INLINE struct channel ch_f32(const uint8_t *at)
{
	return ch_load((const float *)(const void *)at);
}

CH_INLINE __m512 ch_from_bf16(const uint8_t *at)
{
	__m256i words = _mm256_load_si256((const __m256i *)at);

	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

CH_INLINE struct channel ch_bf16(const uint8_t *at)
{
	return (struct channel){ ch_from_bf16(at), ch_from_bf16(at + 32) };
}

/* The code moved to the top of a word is fp16 but for one exponent bit. */
CH_INLINE struct channel ch_fp8(const uint8_t *at)
{
	__m256i code = _mm256_load_si256((const __m256i *)at);
	__m512i word = _mm512_slli_epi16(_mm512_cvtepu8_epi16(code), 8);

	word = _mm512_and_si512(_mm512_srai_epi16(word, 1), _mm512_set1_epi16((short)0xbfff));
	return (struct channel){ _mm512_cvtph_ps(_mm512_castsi512_si256(word)),
				 _mm512_cvtph_ps(_mm512_extracti64x4_epi64(word, 1)) };
}

/* The low four bits of every lane choose among the sixteen values of E2M1. */
CH_INLINE __m512 ch_from_e2m1(__m512i lanes)
{
	const __m512 value = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
					    -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);

	return _mm512_permutexvar_ps(lanes, value);
}

CH_INLINE struct channel ch_fp4(const uint8_t *at, bool high)
{
	__m512i a = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)at));
	__m512i b = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)at + 1));

	if (high) {
		a = _mm512_srli_epi32(a, 4);
		b = _mm512_srli_epi32(b, 4);
	}
	return (struct channel){ ch_from_e2m1(a), ch_from_e2m1(b) };
}

CH_INLINE __m512 ch_sixteen_scales(const uint8_t *at)
{
	__m128i bytes = _mm_loadu_si128((const __m128i *)at);

	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23));
}

CH_INLINE struct channel ch_scales(const uint8_t *at)
{
	return (struct channel){ ch_sixteen_scales(at), ch_sixteen_scales(at + 16) };
}
