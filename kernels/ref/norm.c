/*
 * norm.c - RMS normalisation (model.md 0.2, 4.4): bf16(g * (v * rsqrt(mean(v^2) + eps))).
 */
#include "ref.h"

struct norm_job {
	const struct kern_ctx *ctx;
	const float *x, *gain;
	float eps, *y;
	uint32_t width;
};

static void norm_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct norm_job *job = arg;

	(void)part;
	for (uint32_t i = first; i < end; i++) {
		const float *x = job->x + (size_t)i * job->width;
		float *y = job->y + (size_t)i * job->width;
		float mean = kern_lane_dot(x, x, job->width) / (float)job->width;
		float r = 1.0f / sqrtf(mean + job->eps);

		for (uint32_t d = 0; d < job->width; d++)
			y[d] = ref_keep(job->ctx, job->gain[d] * (x[d] * r));
	}
}

void ref_rms_norm(struct kern_ctx *ctx, const float *x, const float *gain, float eps, uint32_t n,
		  uint32_t width, float *y)
{
	struct norm_job job = {
		.ctx = ctx, .x = x, .gain = gain, .eps = eps, .y = y, .width = width
	};

	kern_parallel(ctx->pool, n, (uint64_t)width * 4, norm_rows, &job);
}
