/*
 * linears.c - how close the linears come to what the machine can do: one row to the read bandwidth,
 * 64 rows to the rate of multiply-adds.
 *
 * A decode step reads every weight once and does one multiply-add with it, so the fraction of the
 * read bandwidth is the whole story; a prefill uses a weight once per row, so there it is the fraction of
 * the multiply-adds. Both denominators are measured in the same run (roof.h). Read bandwidth: the best of five sums over 1 GiB with the widest
 * loads of this processor. Numerator: stored bytes of the
 * weights, best of five passes over matrices that together exceed four times the last-level cache,
 * a different one each call. Widths are the real model's. Usage: linears [KERNEL-SET]
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "kernels.h"
#include "pool.h"
#include "roof.h"

#define SUM_BYTES (UINT64_C(1) << 30)
#define PASSES	  5
#define MOST	  512 /* matrices of one shape */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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

/* Seconds of the best pass over all matrices with @rows rows; 0 without memory. */
static double measure(const struct kern_ops *ops, struct kern_ctx *ctx, const struct shape *s,
		      uint32_t rows, size_t *bytes, int *n)
{
	struct kern_weight *w[MOST] = { NULL };
	float *q = kern_alloc((size_t)rows * s->cols * 4, "x", NULL);
	float *scale = kern_alloc((size_t)rows * s->cols / 32 * 4, "x", NULL);
	float *y = kern_alloc((size_t)rows * s->rows * 4, "y", NULL);
	struct kern_act a = { .n = rows, .width = s->cols, .q = q, .scale = scale };
	double best = 0.0;

	*bytes = 0;
	*n = 0;
	if (q == NULL || scale == NULL || y == NULL)
		goto out;
	for (uint32_t k = 0; k < rows * s->cols; k++)
		q[k] = (float)(int)(draw() % 15) - 7.0f;
	for (uint32_t k = 0; k < rows * s->cols / 32; k++)
		scale[k] = 0x1p-6f;
	/* Many rows stay with one matrix until they are through: it need not come from memory. */
	while (*n < 1 || (rows == 1 && (*n < 2 || (*bytes <= 4 * cache_bytes() && *n < MOST)))) {
		if ((w[*n] = weight(ops, s)) == NULL)
			goto out;
		*bytes += ops->weight_bytes(w[(*n)++]);
	}
	for (int pass = 0; pass < PASSES; pass++) {
		double t = now();

		for (int i = 0; i < *n; i++)
			ops->linear(ctx, w[i], &a, 0, s->cols, y, s->rows, true);
		t = now() - t;
		best = best == 0.0 || t < best ? t : best;
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

static const struct shape shapes[] = {
	{ "fp8 5120 to 2304", KERN_FP8, 5120, 2304 },
	{ "fp8 2304 to 5120", KERN_FP8, 2304, 5120 },
	{ "fp8 5120 to 32768", KERN_FP8, 5120, 32768 },
	{ "fp4 5120 to 2304", KERN_FP4, 5120, 2304 },
	{ "fp4 2304 to 5120", KERN_FP4, 2304, 5120 },
	{ "fp4 5120 to 32768", KERN_FP4, 5120, 32768 },
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Shares of the roof, or 0 without memory for one. */
static bool run_shapes(const struct kern_ops *ops, struct kern_ctx *ctx, uint32_t rows, double roof,
		       double share[SHAPES])
{
	printf("%-20s %9s %9s %9s\n", rows == 1 ? "one row" : "64 rows", "matrices",
	       rows == 1 ? "GB/s" : "Gfma/s", rows == 1 ? "of read" : "of fma");
	for (size_t i = 0; i < SHAPES; i++) {
		const struct shape *s = &shapes[i];
		size_t bytes;
		int n;
		double seconds = measure(ops, ctx, s, rows, &bytes, &n);
		double work = rows == 1 ? (double)bytes : (double)rows * s->rows * s->cols * n;

		if (seconds == 0.0) {
			fprintf(stderr, "linears: no memory for %s\n", s->name);
			return false;
		}
		share[i] = work / seconds / roof;
		printf("%-20s %2d x %3.0fM %9.1f %8.0f%%\n", s->name, n, (double)bytes / n * 1e-6,
		       work / seconds * 1e-9, 100.0 * share[i]);
	}
	return true;
}

int main(int argc, char **argv)
{
	double one[SHAPES], many[SHAPES], read, fma;
	struct ds_err err = { 0 };
	const struct kern_ops *ops = kern_open(argc > 1 ? argv[1] : NULL, &err);
	struct kern_pool *pool = ops == NULL ? NULL : kern_pool_open(processors(), &err);
	struct kern_ctx ctx = { .numerics = KERN_NATIVE, .pool = pool };

	if (pool == NULL) {
		ds_err_print(stderr, "linears", &err);
		return ds_err_exit_code(&err);
	}
	if ((read = kern_roof_read(pool, SUM_BYTES, PASSES)) == 0.0) {
		fprintf(stderr, "linears: no memory for a sum over 1 GiB\n");
		return 1;
	}
	fma = kern_roof_fma(pool);
	printf("kernels %s, %u threads, read bandwidth %.1f GB/s, %.1f Gfma/s (%d bits wide)\n",
	       ops->name, processors(), read * 1e-9, fma * 1e-9, kern_roof_bits());
	if (!run_shapes(ops, &ctx, 1, read, one) || !run_shapes(ops, &ctx, 64, fma, many))
		return 1;
	printf("{\"bench\":\"linears\",\"kernels\":\"%s\",\"threads\":%u,\"read_gb_s\":%.2f,\"gfma_s\":%.2f",
	       ops->name, processors(), read * 1e-9, fma * 1e-9);
	for (size_t i = 0; i < SHAPES; i++)
		printf(",\"%s_%u_%u\":%.3f,\"%s_%u_%u_rows64\":%.3f",
		       shapes[i].fmt == KERN_FP8 ? "fp8" : "fp4", shapes[i].cols, shapes[i].rows,
		       one[i], shapes[i].fmt == KERN_FP8 ? "fp8" : "fp4", shapes[i].cols,
		       shapes[i].rows, many[i]);
	printf("}\n");
	kern_pool_close(pool);
	return 0;
}
