/*
 * roof.c - read bandwidth and multiply-add rate of this processor, whatever set is in use.
 */
#include "roof.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "pool.h"

#define FMA_ROUNDS 200000 /* of twelve chains: well below a tenth of a second */
#define FMA_PASSES 5
#define CHAINS	   12

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ------------------------------------------------------------------ reading */

typedef uint64_t sum_fn(const uint8_t *p, uint64_t bytes);

struct sum_job {
	sum_fn *sum;
	const uint8_t *data;
	uint64_t total[KERN_THREADS_MAX * 8]; /* one cache line a thread: the sums must be used */
};

static uint64_t sum_plain(const uint8_t *p, uint64_t bytes)
{
	uint64_t s[4] = { 0 };

	for (uint64_t i = 0; i < bytes; i += 32)
		for (int j = 0; j < 4; j++) {
			uint64_t v;

			memcpy(&v, p + i + (size_t)8 * j, 8);
			s[j] += v;
		}
	return s[0] + s[1] + s[2] + s[3];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t sum_256(const uint8_t *p, uint64_t bytes)
{
	__m256i s[4] = { _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
			 _mm256_setzero_si256() };
	uint64_t v[4];

	for (uint64_t i = 0; i < bytes; i += 128)
		for (int j = 0; j < 4; j++)
			s[j] = _mm256_add_epi64(s[j],
						_mm256_load_si256((const __m256i *)(p + i) + j));
	s[0] = _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3]));
	_mm256_storeu_si256((__m256i *)v, s[0]);
	return v[0] + v[1] + v[2] + v[3];
}

__attribute__((target("avx512f"))) static uint64_t sum_512(const uint8_t *p, uint64_t bytes)
{
	__m512i s[4] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
			 _mm512_setzero_si512() };

	for (uint64_t i = 0; i < bytes; i += 256)
		for (int j = 0; j < 4; j++)
			s[j] = _mm512_add_epi64(s[j],
						_mm512_load_si512((const __m512i *)(p + i) + j));
	s[0] = _mm512_add_epi64(_mm512_add_epi64(s[0], s[1]), _mm512_add_epi64(s[2], s[3]));
	return (uint64_t)_mm512_reduce_add_epi64(s[0]);
}
#elif defined(__aarch64__)
static uint64_t sum_128(const uint8_t *p, uint64_t bytes)
{
	uint64x2_t s[4] = { vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0) };

	for (uint64_t i = 0; i < bytes; i += 64)
		for (size_t j = 0; j < 4; j++)
			s[j] = vaddq_u64(s[j], vreinterpretq_u64_u8(vld1q_u8(p + i + 16 * j)));
	return vaddvq_u64(vaddq_u64(vaddq_u64(s[0], s[1]), vaddq_u64(s[2], s[3])));
}
#endif

int kern_roof_bits(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return 512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return 256;
	return 64;
#elif defined(__aarch64__)
	return 128;
#else
	return 64;
#endif
}

static sum_fn *widest_sum(void)
{
	switch (kern_roof_bits()) {
#if defined(__x86_64__)
	case 512:
		return sum_512;
	case 256:
		return sum_256;
#elif defined(__aarch64__)
	case 128:
		return sum_128;
#endif
	default:
		return sum_plain;
	}
}

/* Items are chunks of 64 KiB. */
static void sum_task(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	struct sum_job *job = arg;

	job->total[(size_t)part * 8] +=
		job->sum(job->data + ((uint64_t)first << 16), (uint64_t)(end - first) << 16);
}

double kern_roof_read(struct kern_pool *pool, uint64_t bytes, int passes)
{
	struct sum_job *job = calloc(1, sizeof(*job));
	uint8_t *data = kern_alloc(bytes, "bandwidth", NULL);
	double best = 0.0;
	uint64_t total = 0;

	if (job == NULL || data == NULL)
		goto out;
	job->sum = widest_sum();
	job->data = data;
	data[0] = 1; /* kern_alloc() has touched every page; now the sum is known */
	for (int pass = 0; pass < passes; pass++) {
		double t = now();

		kern_parallel(pool, (uint32_t)(bytes >> 16), 1 << 16, sum_task, job);
		t = (double)bytes / (now() - t);
		best = t > best ? t : best;
	}
	for (int i = 0; i < KERN_THREADS_MAX; i++)
		total += job->total[(size_t)i * 8];
out:
	kern_free(data);
	free(job);
	return total == (uint64_t)passes ? best : 0.0;
}

/* ------------------------------------------------------------------ multiply-adds */

/*
 * Twelve chains hide the latency of every processor met so far. Their registers are the results of an
 * empty asm, so that no compiler can shorten them.
 */
#define CHAIN_EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define FMA_LOOP(type, reg, zero, fma)                 \
	do {                                           \
		type x = zero;                         \
		CHAIN_EACH(FMA_BEGIN_##reg)            \
		for (int i = 0; i < FMA_ROUNDS; i++) { \
			CHAIN_EACH(fma)                \
			CHAIN_EACH(FMA_USED_##reg)     \
		}                                      \
	} while (0)

#if defined(__x86_64__)
#define FMA_BEGIN_v(c) __typeof__(x) a##c = x;
#define FMA_USED_v(c)  __asm__ volatile("" : "+v"(a##c));
#define FMA_512(c)     a##c = _mm512_fmadd_ps(a##c, x, x);
#define FMA_BEGIN_x(c) __typeof__(x) a##c = x;
#define FMA_USED_x(c)  __asm__ volatile("" : "+x"(a##c));
#define FMA_256(c)     a##c = _mm256_fmadd_ps(a##c, x, x);

__attribute__((target("avx512f"))) static void fma_512(void)
{
	FMA_LOOP(__m512, v, _mm512_setzero_ps(), FMA_512);
}

__attribute__((target("avx2,fma"))) static void fma_256(void)
{
	FMA_LOOP(__m256, x, _mm256_setzero_ps(), FMA_256);
}
#elif defined(__aarch64__)
#define FMA_BEGIN_w(c) __typeof__(x) a##c = x;
#define FMA_USED_w(c)  __asm__ volatile("" : "+w"(a##c));
#define FMA_128(c)     a##c = vfmaq_f32(x, a##c, x);

static void fma_128(void)
{
	FMA_LOOP(float32x4_t, w, vdupq_n_f32(0.0f), FMA_128);
}
#endif

/* Without such an instruction: a product and a sum of plain floats. */
static void fma_plain(void)
{
	volatile float zero = 0.0f;
	float a[CHAINS] = { 0 }, x = zero;

	for (int i = 0; i < FMA_ROUNDS; i++)
		for (int c = 0; c < CHAINS; c++)
			a[c] = a[c] * x + x;
	for (int c = 0; c < CHAINS; c++)
		zero = a[c];
}

static void fma_task(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	(void)arg;
	(void)part;
	for (uint32_t i = first; i < end; i++)
		switch (kern_roof_bits()) {
#if defined(__x86_64__)
		case 512:
			fma_512();
			break;
		case 256:
			fma_256();
			break;
#elif defined(__aarch64__)
		case 128:
			fma_128();
			break;
#endif
		default:
			fma_plain();
			break;
		}
}

double kern_roof_fma(struct kern_pool *pool)
{
	uint32_t threads = kern_pool_threads(pool);
	int lanes = kern_roof_bits() == 64 ? 1 : kern_roof_bits() / 32;
	double best = 0.0;

	for (int pass = 0; pass < FMA_PASSES; pass++) {
		double t = now();

		kern_parallel(pool, threads, UINT64_C(1) << 20, fma_task, NULL);
		t = (double)threads * FMA_ROUNDS * CHAINS * lanes / (now() - t);
		best = t > best ? t : best;
	}
	return best;
}
