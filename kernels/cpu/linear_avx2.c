/*
 * linear_avx2.c - linears for processors with AVX2, FMA and half-precision conversion.
 *
 * The canonical order (ref/linear.c) leaves one freedom: outputs are independent. So a weight is
 * re-laid once, at load, in panels of 32 outputs; within a panel the blocks of 32 channels follow
 * each other, within a block its channels, and a channel's 32 codes lie together, so that one pass
 * reads a panel from front to back and eight outputs share an instruction:
 *
 *   data  [panel][block][32 channels][32 outputs]    FP4: two channels to a byte, the lower low
 *   scale FP8 [panel][block], FP4 [panel][block][32 outputs]
 *
 * Tails are padded with zeros, which are never stored. Codes become floats exactly: E4M3 through
 * fp16 (its value times 2^-8, subnormals included, without assists), E2M1 by looking up the two
 * bytes of its bf16, bf16 by shifting. Where a unit yields outputs out of order, the codes are laid
 * out in the order that puts them right (place()).
 *
 * One row runs through the fused loops below. Several rows share a decoded block of floats. Values
 * the fast decoders cannot carry (a NaN code, a NaN or subnormal scale, an activation too large to
 * take the 2^8 of the fp16 detour) go through the plain decoder: same operations, same bits.
 */
#if defined(__x86_64__)

#include <errno.h>
#include <immintrin.h>
#include <stdlib.h>

#include "err.h"
#include "linear_avx2.h"

#define PANEL	    32		 /* outputs of a panel; the rows of an FP8 scale tile */
#define BLOCK_CODES (32 * PANEL) /* elements of one block of a panel */
#define ROWS	    16		 /* rows that share a decoded block */

static size_t block_bytes(enum kern_fmt fmt)
{
	switch (fmt) {
	case KERN_F32:
		return BLOCK_CODES * 4;
	case KERN_BF16:
		return BLOCK_CODES * 2;
	case KERN_FP8:
		return BLOCK_CODES;
	case KERN_FP4:
		break;
	}
	return BLOCK_CODES / 2;
}

/* Where output @o (0..31) of a channel lies among the 32, see the unpack instructions below. */
static uint32_t place(enum kern_fmt fmt, uint32_t o)
{
	uint32_t vector = o / 8, lane = o % 8;

	if (fmt == KERN_BF16) /* even words give one vector of eight, odd words the next */
		return vector / 2 * 16 + 2 * lane + vector % 2;
	if (fmt == KERN_FP4) /* the same after unpacking bytes within halves of 16 */
		return lane / 4 * 16 + vector / 2 * 8 + 2 * (lane % 4) + vector % 2;
	return o;
}

/* ------------------------------------------------------------------ laying out */

static void put_code(enum kern_fmt fmt, const uint8_t *row, uint32_t k, uint8_t *block, uint32_t c,
		     uint32_t at)
{
	uint8_t code;

	switch (fmt) {
	case KERN_F32:
		memcpy(block + ((size_t)c * PANEL + at) * 4, row + (size_t)k * 4, 4);
		break;
	case KERN_BF16:
		memcpy(block + ((size_t)c * PANEL + at) * 2, row + (size_t)k * 2, 2);
		break;
	case KERN_FP8:
		block[c * PANEL + at] = row[k];
		break;
	case KERN_FP4:
		code = k % 2 == 0 ? row[k / 2] & 15 : row[k / 2] >> 4;
		block[c / 2 * PANEL + at] |= (uint8_t)(code << (c % 2 * 4));
		break;
	}
}

static void put_panel(const struct kern_matrix *m, struct kern_weight *w, uint32_t panel)
{
	uint32_t blocks = (m->cols + 31) / 32, first = panel * PANEL;
	uint32_t n = m->rows - first < PANEL ? m->rows - first : PANEL;

	assert(w->scale != NULL || (m->fmt != KERN_FP8 && m->fmt != KERN_FP4));
	for (uint32_t o = 0; o < n; o++) {
		const uint8_t *row = (const uint8_t *)m->data + (first + o) * m->stride;
		uint32_t at = place(m->fmt, o);

		for (uint32_t k = 0; k < m->cols; k++) {
			size_t block = (size_t)panel * blocks + k / 32;

			put_code(m->fmt, row, k, w->data + block * w->stride, k % 32, at);
			w->odd = w->odd || (m->fmt == KERN_FP8 && (row[k] & 0x7f) == 0x7f);
		}
		for (uint32_t b = 0; b < blocks && m->fmt == KERN_FP4; b++) {
			uint8_t s = m->scale[(first + o) * m->scale_stride + b];

			w->scale[((size_t)panel * blocks + b) * PANEL + o] = s;
			w->odd = w->odd || s == 0 || s == 255;
		}
	}
	if (m->fmt == KERN_FP8)
		memcpy(w->scale + (size_t)panel * blocks, m->scale + panel * m->scale_stride,
		       blocks);
}

struct kern_weight *avx2_weight_prepare(const struct kern_matrix *m, struct ds_err *err)
{
	size_t blocks = (m->cols + 31) / 32, panels = (m->rows + PANEL - 1) / PANEL;
	size_t data_bytes = panels * blocks * block_bytes(m->fmt);
	size_t scale_bytes = m->fmt == KERN_FP8	  ? panels * blocks
			     : m->fmt == KERN_FP4 ? panels * blocks * PANEL
						  : 0;
	struct kern_weight *w = calloc(1, sizeof(*w));

	assert(m->fmt != KERN_FP4 || m->cols % 32 == 0);
	if (w == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "weight", "allocate");
		return NULL;
	}
	*w = (struct kern_weight){ .fmt = m->fmt,
				   .rows = m->rows,
				   .cols = m->cols,
				   .bytes = sizeof(*w) + data_bytes + scale_bytes,
				   .stride = block_bytes(m->fmt) };
	if ((w->data = kern_alloc(data_bytes, "weight", err)) == NULL)
		goto free_weight;
	if (scale_bytes > 0 && (w->scale = kern_alloc(scale_bytes, "weight", err)) == NULL)
		goto free_weight;
	for (uint32_t panel = 0; panel < panels; panel++)
		put_panel(m, w, panel);
	return w;
free_weight:
	avx2_weight_free(w);
	return NULL;
}

void avx2_weight_free(struct kern_weight *w)
{
	if (w == NULL)
		return;
	kern_free(w->data);
	kern_free(w->scale);
	free(w);
}

size_t avx2_weight_bytes(const struct kern_weight *w)
{
	return w->bytes;
}

/* ------------------------------------------------------------------ decoding */

/*
 * The 32 floats of one channel: outputs 0..7 in a, 8..15 in b, 16..23 in c, 24..31 in d. Named
 * members and no loops over them, because an array would be kept in memory, not in registers.
 */
struct channel {
	__m256 a, b, c, d;
};

/* Sixteen fp16 words, eight for each of two vectors. */
static inline void from_half(__m256i words, __m256 *low, __m256 *high)
{
	*low = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
	*high = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
}

/* E4M3 codes times 2^-8: the code moved to the top of a word is fp16 but for one exponent bit. */
static inline struct channel read_fp8(const uint8_t *at)
{
	const __m256i keep = _mm256_set1_epi16((short)0xbfff);
	__m256i code = _mm256_load_si256((const __m256i *)at);
	__m256i low = _mm256_unpacklo_epi8(_mm256_setzero_si256(), code);
	__m256i high = _mm256_unpackhi_epi8(_mm256_setzero_si256(), code);
	struct channel c;

	from_half(_mm256_and_si256(_mm256_srai_epi16(low, 1), keep), &c.a, &c.c);
	from_half(_mm256_and_si256(_mm256_srai_epi16(high, 1), keep), &c.b, &c.d);
	return c;
}

/* Sixteen bf16 words: the even ones, then the odd ones. */
static inline void from_bf16(__m256i words, __m256 *even, __m256 *odd)
{
	*even = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
	*odd = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)));
}

static inline struct channel read_bf16(const uint8_t *at)
{
	struct channel c;

	from_bf16(_mm256_load_si256((const __m256i *)at), &c.a, &c.b);
	from_bf16(_mm256_load_si256((const __m256i *)at + 1), &c.c, &c.d);
	return c;
}

static inline struct channel read_f32(const uint8_t *at)
{
	const float *v = (const float *)(const void *)at;

	return (struct channel){ _mm256_load_ps(v), _mm256_load_ps(v + 8), _mm256_load_ps(v + 16),
				 _mm256_load_ps(v + 24) };
}

/* E2M1 codes, one a byte: the upper and lower byte of 0, .5, 1, 1.5, 2, 3, 4, 6 in bf16, then -. */
static inline struct channel from_e2m1(__m256i code)
{
	const __m256i upper = _mm256_broadcastsi128_si256(_mm_setr_epi8(
		0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xbf, (char)0xbf,
		(char)0xbf, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0));
	const __m256i lower = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0, 0, 0,
			      (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0));
	__m256i up = _mm256_shuffle_epi8(upper, code), low = _mm256_shuffle_epi8(lower, code);
	struct channel c;

	from_bf16(_mm256_unpacklo_epi8(low, up), &c.a, &c.b);
	from_bf16(_mm256_unpackhi_epi8(low, up), &c.c, &c.d);
	return c;
}

/* Two channels. */
static inline void read_fp4(const uint8_t *at, struct channel *first, struct channel *second)
{
	const __m256i nibble = _mm256_set1_epi8(15);
	__m256i pair = _mm256_load_si256((const __m256i *)at);

	*first = from_e2m1(_mm256_and_si256(pair, nibble));
	*second = from_e2m1(_mm256_and_si256(_mm256_srli_epi16(pair, 4), nibble));
}

/* E8M0 scales of eight outputs. */
static inline __m256 eight_scales(const uint8_t *at)
{
	__m128i bytes = _mm_loadl_epi64((const __m128i *)at);

	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
}

static inline struct channel all(float v)
{
	__m256 s = _mm256_set1_ps(v);

	return (struct channel){ s, s, s, s };
}

/* The scales of a block; FP4: none of them 0 or 255, whose floats are not exponents alone. */
static inline struct channel read_scales(enum kern_fmt fmt, const struct kern_weight *w,
					 size_t block)
{
	const uint8_t *at = w->scale + block * PANEL;

	if (fmt == KERN_FP4)
		return (struct channel){ eight_scales(at), eight_scales(at + 8),
					 eight_scales(at + 16), eight_scales(at + 24) };
	return all(fmt == KERN_FP8 ? kern_e8m0(w->scale[block]) : 1.0f);
}

/* c times one number. */
static inline struct channel times(struct channel c, __m256 x)
{
	return (struct channel){ _mm256_mul_ps(c.a, x), _mm256_mul_ps(c.b, x),
				 _mm256_mul_ps(c.c, x), _mm256_mul_ps(c.d, x) };
}

/* Codes of any kind, one by one: [32 channels][32 outputs] and the scales of the outputs. */
static void decode_plain(const struct kern_weight *w, size_t block, float *v, float *scale)
{
	const uint8_t *data = w->data + block * w->stride;

	for (uint32_t c = 0; c < 32; c++)
		for (uint32_t o = 0; o < PANEL; o++) {
			uint32_t at = place(w->fmt, o);
			uint8_t byte =
				data[w->fmt == KERN_FP4 ? c / 2 * PANEL + at : c * PANEL + at];

			v[c * PANEL + o] = w->fmt == KERN_FP8
						   ? kern_e4m3(byte)
						   : kern_e2m1(c % 2 == 0 ? byte & 15 : byte >> 4);
		}
	for (uint32_t o = 0; o < PANEL; o++)
		scale[o] = kern_e8m0(w->scale[w->fmt == KERN_FP8 ? block : block * PANEL + o]);
}

static inline void write_channel(float *v, const struct channel *c)
{
	_mm256_store_ps(v, c->a);
	_mm256_store_ps(v + 8, c->b);
	_mm256_store_ps(v + 16, c->c);
	_mm256_store_ps(v + 24, c->d);
}

/* The same by the fast decoders; every format. */
static void decode_fast(const struct kern_weight *w, size_t block, float *v, float *scale)
{
	const uint8_t *data = w->data + block * w->stride;
	const __m256 undo = _mm256_set1_ps(0x1p8f);
	struct channel c, d;

	for (uint32_t k = 0; k < 32; k++, v += PANEL) {
		switch (w->fmt) {
		case KERN_F32:
			c = read_f32(data + (size_t)k * PANEL * 4);
			break;
		case KERN_BF16:
			c = read_bf16(data + (size_t)k * PANEL * 2);
			break;
		case KERN_FP8:
			c = read_fp8(data + (size_t)k * PANEL);
			c = times(c, undo);
			break;
		case KERN_FP4:
			read_fp4(data + (size_t)k / 2 * PANEL, &c, &d);
			write_channel(v, &c);
			c = d;
			v += PANEL;
			k++;
			break;
		}
		write_channel(v, &c);
	}
	c = read_scales(w->fmt, w, block);
	write_channel(scale, &c);
}

/* ------------------------------------------------------------------ sums */

/* acc += c * x, 32 outputs. */
static inline void add(struct channel *acc, const struct channel *c, __m256 x)
{
	acc->a = _mm256_fmadd_ps(c->a, x, acc->a);
	acc->b = _mm256_fmadd_ps(c->b, x, acc->b);
	acc->c = _mm256_fmadd_ps(c->c, x, acc->c);
	acc->d = _mm256_fmadd_ps(c->d, x, acc->d);
}

/* sum += acc * scale, element by element. */
static inline void add_block(struct channel *sum, const struct channel *acc,
			     const struct channel *scale)
{
	sum->a = _mm256_fmadd_ps(acc->a, scale->a, sum->a);
	sum->b = _mm256_fmadd_ps(acc->b, scale->b, sum->b);
	sum->c = _mm256_fmadd_ps(acc->c, scale->c, sum->c);
	sum->d = _mm256_fmadd_ps(acc->d, scale->d, sum->d);
}

static void store(enum ref_store how, const float *sum, uint32_t n, float *y)
{
	for (uint32_t o = 0; o < n; o++)
		switch (how) {
		case REF_SET:
			y[o] = kern_canon(sum[o]);
			break;
		case REF_ROUND:
			y[o] = kern_bf16_round(sum[o]);
			break;
		case REF_ADD:
			y[o] = kern_canon(y[o] + sum[o]);
			break;
		}
}

/*
 * One block of one row against codes as they are stored. FP8: (w 2^-8) (x 2^8) is the same product,
 * rounded once in the fma.
 */
static inline __attribute__((always_inline)) struct channel
block_sum(enum kern_fmt fmt, const uint8_t *data, const float *x, uint32_t size)
{
	struct channel acc = all(0.0f), c, d;
	float scaled[32];

	for (uint32_t k = 0; fmt == KERN_FP8 && k < size; k++)
		scaled[k] = x[k] * 0x1p8f;
	for (uint32_t k = 0; k < size; k++)
		switch (fmt) {
		case KERN_F32:
			c = read_f32(data + (size_t)k * PANEL * 4);
			add(&acc, &c, _mm256_set1_ps(x[k]));
			break;
		case KERN_BF16:
			c = read_bf16(data + (size_t)k * PANEL * 2);
			add(&acc, &c, _mm256_set1_ps(x[k]));
			break;
		case KERN_FP8:
			c = read_fp8(data + (size_t)k * PANEL);
			add(&acc, &c, _mm256_set1_ps(scaled[k]));
			break;
		case KERN_FP4:
			read_fp4(data + (size_t)k / 2 * PANEL, &c, &d);
			add(&acc, &c, _mm256_set1_ps(x[k]));
			add(&acc, &d, _mm256_set1_ps(x[++k]));
			break;
		}
	return acc;
}

/* One row against one panel, codes decoded on the way. @fmt is a constant where this is called. */
static inline __attribute__((always_inline)) void
panel_one(enum kern_fmt fmt, const struct ref_linear_job *job, uint32_t panel, uint32_t row)
{
	const struct kern_weight *w = job->w;
	const float *x = job->q + row * job->q_stride;
	const float *s_x = job->scale + row * job->scale_stride;
	uint32_t n = w->rows - panel * PANEL < PANEL ? w->rows - panel * PANEL : PANEL;
	size_t block = (size_t)panel * ((w->cols + 31) / 32) + job->k0 / 32;
	struct channel sum = all(0.0f);
	float out[PANEL] __attribute__((aligned(32)));

	for (uint32_t k = job->k0; k < job->k1; k += 32, x += 32, s_x++, block++) {
		uint32_t size = job->k1 - k < 32 ? job->k1 - k : 32;
		struct channel acc = block_sum(fmt, w->data + block * w->stride, x, size);
		struct channel scale = times(read_scales(fmt, w, block), _mm256_set1_ps(*s_x));

		add_block(&sum, &acc, &scale);
	}
	write_channel(out, &sum);
	store(job->store, out, n, job->y + row * job->stride + (size_t)panel * PANEL);
}

static void one_row(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct ref_linear_job *job = arg;
	uint32_t row = job->rows == NULL ? 0 : job->rows[0];

	(void)part;
	for (uint32_t panel = first; panel < end; panel++)
		switch (job->w->fmt) {
		case KERN_F32:
			panel_one(KERN_F32, job, panel, row);
			break;
		case KERN_BF16:
			panel_one(KERN_BF16, job, panel, row);
			break;
		case KERN_FP8:
			panel_one(KERN_FP8, job, panel, row);
			break;
		case KERN_FP4:
			panel_one(KERN_FP4, job, panel, row);
			break;
		}
}

/* Two rows (or one twice) against a decoded block; their sums go on from @sum, [32] each. */
static void block_two(const float *v, const float *scale, const float *const x[2],
		      const float s_x[2], uint32_t size, float *const sum[2])
{
	struct channel acc0 = all(0.0f), acc1 = all(0.0f), c;

	for (uint32_t k = 0; k < size; k++) {
		c = read_f32((const uint8_t *)(v + (size_t)k * PANEL));
		add(&acc0, &c, _mm256_set1_ps(x[0][k]));
		add(&acc1, &c, _mm256_set1_ps(x[1][k]));
	}
	for (int r = 0; r < 2; r++) {
		struct channel s = times(read_f32((const uint8_t *)scale), _mm256_set1_ps(s_x[r]));

		c = read_f32((const uint8_t *)sum[r]);
		add_block(&c, r == 0 ? &acc0 : &acc1, &s);
		write_channel(sum[r], &c);
	}
}

/* Rows [first, first + n) of the job, at most ROWS, against one panel. */
static void panel_rows(const struct ref_linear_job *job, uint32_t panel, uint32_t first, uint32_t n)
{
	const struct kern_weight *w = job->w;
	uint32_t outs = w->rows - panel * PANEL < PANEL ? w->rows - panel * PANEL : PANEL;
	size_t block = (size_t)panel * ((w->cols + 31) / 32) + job->k0 / 32;
	float v[BLOCK_CODES] __attribute__((aligned(32)));
	float sum[ROWS + 1][PANEL] __attribute__((aligned(32))) = { { 0 } };
	float scale[PANEL] __attribute__((aligned(32)));
	size_t row[ROWS + 1];

	for (uint32_t i = 0; i < n; i++)
		row[i] = job->rows == NULL ? first + i : job->rows[first + i];
	row[n] = row[n - 1]; /* partner of an odd last row: its sum is not used */
	for (uint32_t k = job->k0; k < job->k1; k += 32, block++) {
		uint32_t size = job->k1 - k < 32 ? job->k1 - k : 32, at = k - job->k0;

		if (w->odd)
			decode_plain(w, block, v, scale);
		else
			decode_fast(w, block, v, scale);
		for (uint32_t i = 0; i < n; i += 2) {
			const float *x[2] = { job->q + row[i] * job->q_stride + at,
					      job->q + row[i + 1] * job->q_stride + at };
			float s_x[2] = { job->scale[row[i] * job->scale_stride + at / 32],
					 job->scale[row[i + 1] * job->scale_stride + at / 32] };
			float *const sums[2] = { sum[i], sum[i + 1] };

			block_two(v, scale, x, s_x, size, sums);
		}
	}
	for (uint32_t i = 0; i < n; i++)
		store(job->store, sum[i], outs,
		      job->y + row[i] * job->stride + (size_t)panel * PANEL);
}

static void many_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct ref_linear_job *job = arg;

	(void)part;
	for (uint32_t panel = first; panel < end; panel++)
		for (uint32_t i = 0; i < job->n; i += ROWS)
			panel_rows(job, panel, i, job->n - i < ROWS ? job->n - i : ROWS);
}

/* Whether an activation of the single row would not survive a factor of 2^8. */
static bool too_large(const struct ref_linear_job *job)
{
	size_t row = job->rows == NULL ? 0 : job->rows[0];
	uint32_t most = 0;

	for (uint32_t k = 0; k < job->k1 - job->k0; k++) {
		uint32_t u = kern_bits(job->q[row * job->q_stride + k]) & UINT32_C(0x7fffffff);

		most = u > most ? u : most;
	}
	return most >= UINT32_C(247) << 23; /* 2^120 */
}

void avx2_linear_run(struct kern_ctx *ctx, const struct ref_linear_job *job)
{
	struct ref_linear_job mine = *job;
	bool fused = job->n == 1 && !job->w->odd && (job->w->fmt != KERN_FP8 || !too_large(job));

	kern_parallel(ctx->pool, (job->w->rows + PANEL - 1) / PANEL,
		      (uint64_t)job->n * (job->k1 - job->k0) * PANEL / 8,
		      fused ? one_row : many_rows, &mine);
}

#endif
