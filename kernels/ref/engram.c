/*
 * engram.c - the gate through which a looked-up value enters the stream (model.md 4.11.4).
 */
#include "ref.h"

struct engram_job {
	const struct kern_ctx *ctx;
	float *x;
	const float *kv, *qk;
	const bool *dead;
	float eps;
	uint32_t copies, dim;
};

static float rms_factor(const float *v, uint32_t dim, float eps)
{
	return 1.0f / sqrtf(kern_lane_dot(v, v, dim) / (float)dim + eps);
}

/* sigmoid of the signed square root of the similarity of one copy and its key. */
static float similarity(const struct engram_job *job, const float *x, const float *qk,
			const float *key)
{
	float lane[16] = { 0 }, dot, size;

	for (uint32_t d = 0; d < job->dim; d++)
		lane[d % 16] = kern_fma(x[d] * qk[d], key[d], lane[d % 16]);
	dot = kern_tree(lane) *
	      (rms_factor(x, job->dim, job->eps) * rms_factor(key, job->dim, job->eps)) *
	      (float)(1.0 / sqrt((double)job->dim));
	size = kern_abs(dot);
	size = sqrtf(size < 1e-6f ? 1e-6f : size);
	return kern_sigmoid((kern_bits(dot) >> 31) != 0 ? -size : size);
}

static void engram_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct engram_job *job = arg;

	(void)part;
	for (uint32_t i = first; i < end; i++) {
		const float *key = job->kv + (size_t)i * (job->copies + 1) * job->dim;
		const float *value = key + (size_t)job->copies * job->dim;

		if (job->dead != NULL && job->dead[i])
			continue;
		for (uint32_t c = 0; c < job->copies; c++) {
			float *x = job->x + ((size_t)i * job->copies + c) * job->dim;
			float g = similarity(job, x, job->qk + (size_t)c * job->dim,
					     key + (size_t)c * job->dim);

			for (uint32_t d = 0; d < job->dim; d++)
				x[d] = ref_keep(job->ctx, x[d] + g * value[d]);
		}
	}
}

void ref_engram_gate(struct kern_ctx *ctx, float *x, const float *kv, const float *qk,
		     const bool *dead, float eps, uint32_t n, uint32_t copies, uint32_t dim)
{
	struct engram_job job = { .ctx = ctx,
				  .x = x,
				  .kv = kv,
				  .qk = qk,
				  .dead = dead,
				  .eps = eps,
				  .copies = copies,
				  .dim = dim };

	kern_parallel(ctx->pool, n, (uint64_t)copies * dim * 6, engram_rows, &job);
}
