/*
 * channel_avx2.h - 32 floats in four 256-bit registers (AVX2, FMA, half-precision conversion).
 */
#include <immintrin.h>

#define CH_BLOCKS 2
#define CH_ROWS	  3

/* Outputs 0..7, 8..15, 16..23, 24..31. Named members: an array would be kept in memory. */
struct channel {
	__m256 a, b, c, d;
};

/* Where an unpacking instruction yields outputs out of order, the codes lie so that it is right. */
static inline uint32_t ch_place(enum kern_fmt fmt, uint32_t o)
{
	uint32_t vector = o / 8, lane = o % 8;

	if (fmt == KERN_BF16) /* even words give one vector of eight, odd words the next */
		return vector / 2 * 16 + 2 * lane + vector % 2;
	if (fmt == KERN_FP4) /* the same after unpacking bytes within halves of 16 */
		return lane / 4 * 16 + vector / 2 * 8 + 2 * (lane % 4) + vector % 2;
	return o;
}

CH_INLINE struct channel ch_load(const float *v)
{
	return (struct channel){ _mm256_load_ps(v), _mm256_load_ps(v + 8), _mm256_load_ps(v + 16),
				 _mm256_load_ps(v + 24) };
}

CH_INLINE void ch_store(float *v, struct channel c)
{
	_mm256_store_ps(v, c.a);
	_mm256_store_ps(v + 8, c.b);
	_mm256_store_ps(v + 16, c.c);
	_mm256_store_ps(v + 24, c.d);
}

CH_INLINE struct channel ch_all(float v)
{
	__m256 s = _mm256_set1_ps(v);

	return (struct channel){ s, s, s, s };
}

CH_INLINE struct channel ch_mul(struct channel c, float x)
{
	__m256 s = _mm256_set1_ps(x);

	return (struct channel){ _mm256_mul_ps(c.a, s), _mm256_mul_ps(c.b, s),
				 _mm256_mul_ps(c.c, s), _mm256_mul_ps(c.d, s) };
}

CH_INLINE struct channel ch_fma(struct channel c, float x, struct channel acc)
{
	__m256 s = _mm256_set1_ps(x);

	return (struct channel){ _mm256_fmadd_ps(c.a, s, acc.a), _mm256_fmadd_ps(c.b, s, acc.b),
				 _mm256_fmadd_ps(c.c, s, acc.c), _mm256_fmadd_ps(c.d, s, acc.d) };
}

CH_INLINE struct channel ch_fma_each(struct channel c, struct channel d, struct channel acc)
{
	return (struct channel){ _mm256_fmadd_ps(c.a, d.a, acc.a), _mm256_fmadd_ps(c.b, d.b, acc.b),
				 _mm256_fmadd_ps(c.c, d.c, acc.c),
				 _mm256_fmadd_ps(c.d, d.d, acc.d) };
}

CH_INLINE struct channel ch_f32(const uint8_t *at)
{
	return ch_load((const float *)(const void *)at);
}

/* Sixteen bf16 words: the even ones, then the odd ones. */
CH_INLINE void ch_from_bf16(__m256i words, __m256 *even, __m256 *odd)
{
	*even = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
	*odd = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)));
}

CH_INLINE struct channel ch_bf16(const uint8_t *at)
{
	struct channel c;

	ch_from_bf16(_mm256_load_si256((const __m256i *)at), &c.a, &c.b);
	ch_from_bf16(_mm256_load_si256((const __m256i *)at + 1), &c.c, &c.d);
	return c;
}

/* Sixteen fp16 words, eight for each of two vectors. */
CH_INLINE void ch_from_half(__m256i words, __m256 *low, __m256 *high)
{
	*low = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
	*high = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
}

/* The code moved to the top of a word is fp16 but for one exponent bit. */
CH_INLINE struct channel ch_fp8(const uint8_t *at)
{
	const __m256i keep = _mm256_set1_epi16((short)0xbfff);
	__m256i code = _mm256_load_si256((const __m256i *)at);
	__m256i low = _mm256_unpacklo_epi8(_mm256_setzero_si256(), code);
	__m256i high = _mm256_unpackhi_epi8(_mm256_setzero_si256(), code);
	struct channel c;

	ch_from_half(_mm256_and_si256(_mm256_srai_epi16(low, 1), keep), &c.a, &c.c);
	ch_from_half(_mm256_and_si256(_mm256_srai_epi16(high, 1), keep), &c.b, &c.d);
	return c;
}

/* E2M1 codes, one a byte: the upper and lower byte of 0, .5, 1, 1.5, 2, 3, 4, 6 in bf16, then -. */
CH_INLINE struct channel ch_from_e2m1(__m256i code)
{
	const __m256i upper = _mm256_broadcastsi128_si256(_mm_setr_epi8(
		0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xbf, (char)0xbf,
		(char)0xbf, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0));
	const __m256i lower = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0, 0, 0,
			      (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0));
	__m256i up = _mm256_shuffle_epi8(upper, code), low = _mm256_shuffle_epi8(lower, code);
	struct channel c;

	ch_from_bf16(_mm256_unpacklo_epi8(low, up), &c.a, &c.b);
	ch_from_bf16(_mm256_unpackhi_epi8(low, up), &c.c, &c.d);
	return c;
}

CH_INLINE struct channel ch_fp4(const uint8_t *at, bool high)
{
	__m256i pair = _mm256_load_si256((const __m256i *)at);

	if (high)
		pair = _mm256_srli_epi16(pair, 4);
	return ch_from_e2m1(_mm256_and_si256(pair, _mm256_set1_epi8(15)));
}

CH_INLINE __m256 ch_eight_scales(const uint8_t *at)
{
	__m128i bytes = _mm_loadl_epi64((const __m128i *)at);

	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
}

CH_INLINE struct channel ch_scales(const uint8_t *at)
{
	return (struct channel){ ch_eight_scales(at), ch_eight_scales(at + 8),
				 ch_eight_scales(at + 16), ch_eight_scales(at + 24) };
}
