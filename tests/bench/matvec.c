/*
 * matvec.c - how close the one-row linears come to the memory's read bandwidth.
 *
 * A decode step reads every weight once and does two operations with it, so the fraction of the
 * read bandwidth is the whole story. Denominator: the best of five sums over 1 GiB with the widest
 * loads of this processor, on the same threads in the same run. Numerator: stored bytes of the
 * weights, best of five passes over matrices that together exceed four times the last-level cache,
 * a different one each call. Widths are the real model's. Usage: matvec [KERNEL-SET]
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "err.h"
#include "kernels.h"
#include "pool.h"

#define SUM_BYTES (UINT64_C(1) << 30)
#define PASSES	  5
#define MOST	  512 /* matrices of one shape */

typedef uint64_t sum_fn(const uint8_t *p, uint64_t bytes);

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ------------------------------------------------------------------ read bandwidth */

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
#endif

static sum_fn *widest(int *bits)
{
#if defined(__x86_64__)
	*bits = 512;
	if (__builtin_cpu_supports("avx512f"))
		return sum_512;
	*bits = 256;
	if (__builtin_cpu_supports("avx2"))
		return sum_256;
#endif
	*bits = 64;
	return sum_plain;
}

/* Items are chunks of 64 KiB. */
static void sum_task(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	struct sum_job *job = arg;

	job->total[(size_t)part * 8] +=
		job->sum(job->data + ((uint64_t)first << 16), (uint64_t)(end - first) << 16);
}

/* Bytes per second of the best of five sums; 0 when the memory is not there. */
static double read_bandwidth(struct kern_pool *pool, int *bits)
{
	struct sum_job *job = calloc(1, sizeof(*job));
	uint8_t *data = kern_alloc(SUM_BYTES, "bandwidth", NULL);
	double best = 0.0;
	uint64_t total = 0;

	if (job == NULL || data == NULL)
		goto out;
	job->sum = widest(bits);
	job->data = data;
	data[0] = 1; /* kern_alloc() has touched every page; now the sum is known */
	for (int pass = 0; pass < PASSES; pass++) {
		double t = now();

		kern_parallel(pool, (uint32_t)(SUM_BYTES >> 16), 1 << 16, sum_task, job);
		t = (double)SUM_BYTES / (now() - t);
		best = t > best ? t : best;
	}
	for (int i = 0; i < KERN_THREADS_MAX; i++)
		total += job->total[(size_t)i * 8];
out:
	kern_free(data);
	free(job);
	return total == PASSES ? best : 0.0;
}

/* ------------------------------------------------------------------ linears */

struct shape {
	const char *name;
	enum kern_fmt fmt;
	uint32_t cols, rows;
};

static uint64_t state = 1;

static uint32_t draw(void)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(state >> 32);
}

/* A weight of random codes (no NaN) with scales of a trained model's size; NULL without memory. */
static struct kern_weight *weight(const struct kern_ops *ops, const struct shape *s)
{
	size_t stride = s->fmt == KERN_FP8 ? s->cols : s->cols / 2, blocks = s->cols / 32;
	size_t scale_rows = s->fmt == KERN_FP8 ? (s->rows + 31) / 32 : s->rows;
	uint8_t *data = kern_alloc(s->rows * stride, "codes", NULL);
	uint8_t *scale = kern_alloc(scale_rows * blocks, "scales", NULL);
	struct kern_matrix m = { .fmt = s->fmt,
				 .rows = s->rows,
				 .cols = s->cols,
				 .data = data,
				 .stride = stride,
				 .scale = scale,
				 .scale_stride = blocks };
	struct kern_weight *w = NULL;

	if (data != NULL && scale != NULL) {
		for (size_t i = 0; i < s->rows * stride; i += 4) {
			uint32_t v = draw() & UINT32_C(0xbfbfbfbf); /* no NaN codes */

			memcpy(data + i, &v, 4);
		}
		for (size_t i = 0; i < scale_rows * blocks; i++)
			scale[i] = (uint8_t)(118 + draw() % 4);
		w = ops->weight_prepare(&m, NULL);
	}
	kern_free(data);
	kern_free(scale);
	return w;
}

/*
 * The last-level cache that one processor can reach. The kernel knows; sysconf() adds up all of
 * them on some machines, which would only make the matrices more.
 */
static size_t cache_bytes(void)
{
	long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
	FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
	char line[32] = "";
	long kib = 0;

	if (f != NULL) {
		if (fgets(line, sizeof(line), f) != NULL)
			kib = strtol(line, NULL, 10);
		fclose(f);
	}
	if (kib > 0)
		return (size_t)kib << 10;
	return l3 > 0 ? (size_t)l3 : l2 > 0 ? (size_t)l2 : (size_t)32 << 20;
}

/* Bytes per second of the best pass over all matrices; 0 without memory. */
static double measure(const struct kern_ops *ops, struct kern_ctx *ctx, const struct shape *s,
		      size_t *bytes, int *n)
{
	struct kern_weight *w[MOST] = { NULL };
	float *q = kern_alloc((size_t)s->cols * 4, "x", NULL);
	float *scale = kern_alloc((size_t)s->cols / 32 * 4, "x", NULL);
	float *y = kern_alloc((size_t)s->rows * 4, "y", NULL);
	struct kern_act a = { .n = 1, .width = s->cols, .q = q, .scale = scale };
	double best = 0.0;

	*bytes = 0;
	*n = 0;
	if (q == NULL || scale == NULL || y == NULL)
		goto out;
	for (uint32_t k = 0; k < s->cols; k++)
		q[k] = (float)(int)(draw() % 15) - 7.0f;
	for (uint32_t k = 0; k < s->cols / 32; k++)
		scale[k] = 0x1p-6f;
	while (*n < 2 || (*bytes <= 4 * cache_bytes() && *n < MOST)) {
		if ((w[*n] = weight(ops, s)) == NULL)
			goto out;
		*bytes += ops->weight_bytes(w[(*n)++]);
	}
	for (int pass = 0; pass < PASSES; pass++) {
		double t = now();

		for (int i = 0; i < *n; i++)
			ops->linear(ctx, w[i], &a, 0, s->cols, y, s->rows, true);
		t = (double)*bytes / (now() - t);
		best = t > best ? t : best;
	}
out:
	for (int i = 0; i < *n; i++)
		ops->weight_free(w[i]);
	kern_free(q);
	kern_free(scale);
	kern_free(y);
	return best;
}

static unsigned int processors(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	return (unsigned int)(n > KERN_THREADS_MAX ? KERN_THREADS_MAX : n);
}

int main(int argc, char **argv)
{
	static const struct shape shapes[] = {
		{ "fp8 5120 to 2304", KERN_FP8, 5120, 2304 },
		{ "fp8 2304 to 5120", KERN_FP8, 2304, 5120 },
		{ "fp8 5120 to 32768", KERN_FP8, 5120, 32768 },
		{ "fp4 5120 to 2304", KERN_FP4, 5120, 2304 },
		{ "fp4 2304 to 5120", KERN_FP4, 2304, 5120 },
		{ "fp4 5120 to 32768", KERN_FP4, 5120, 32768 },
	};
	const size_t n_shapes = sizeof(shapes) / sizeof(shapes[0]);
	double rate[sizeof(shapes) / sizeof(shapes[0])], read;
	struct ds_err err = { 0 };
	const struct kern_ops *ops = kern_open(argc > 1 ? argv[1] : NULL, &err);
	struct kern_pool *pool = ops == NULL ? NULL : kern_pool_open(processors(), &err);
	struct kern_ctx ctx = { .numerics = KERN_NATIVE, .pool = pool };
	int bits = 0, n;

	if (pool == NULL) {
		ds_err_print(stderr, "matvec", &err);
		return ds_err_exit_code(&err);
	}
	if ((read = read_bandwidth(pool, &bits)) == 0.0) {
		fprintf(stderr, "matvec: no memory for a sum over 1 GiB\n");
		return 1;
	}
	printf("kernels %s, %u threads, read bandwidth %.1f GB/s (%d-bit loads)\n", ops->name,
	       processors(), read * 1e-9, bits);
	printf("%-20s %9s %9s %9s\n", "one row", "matrices", "GB/s", "of read");
	for (size_t i = 0; i < n_shapes; i++) {
		size_t bytes;

		if ((rate[i] = measure(ops, &ctx, &shapes[i], &bytes, &n)) == 0.0) {
			fprintf(stderr, "matvec: no memory for %s\n", shapes[i].name);
			return 1;
		}
		printf("%-20s %2d x %3.0fM %9.1f %8.0f%%\n", shapes[i].name, n,
		       (double)bytes / n * 1e-6, rate[i] * 1e-9, 100.0 * rate[i] / read);
	}
	printf("{\"bench\":\"matvec\",\"kernels\":\"%s\",\"threads\":%u,\"read_gb_s\":%.2f",
	       ops->name, processors(), read * 1e-9);
	for (size_t i = 0; i < n_shapes; i++)
		printf(",\"%s_%u_%u\":%.3f", shapes[i].fmt == KERN_FP8 ? "fp8" : "fp4",
		       shapes[i].cols, shapes[i].rows, rate[i] / read);
	printf("}\n");
	kern_pool_close(pool);
	return 0;
}
