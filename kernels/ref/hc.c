/*
 * hc.c - hyper-connections (model.md 4.3): the predictor of the mixing coefficients, the mix of the
 * copies into one sublayer input, and the update of the copies with its output.
 */
#include "ref.h"

#define MIXES_MAX ((2 + REF_COPIES_MAX) * REF_COPIES_MAX)

/* z[i][j] of row i divided by its sum plus eps, or (columns) of column j by its. */
static void divide(float *z, uint32_t c, float eps, bool columns)
{
	size_t step = columns ? c : 1, next = columns ? 1 : c;

	for (uint32_t line = 0; line < c; line++) {
		float sum = 0.0f;

		for (uint32_t i = 0; i < c; i++)
			sum += z[line * next + i * step];
		sum += eps;
		for (uint32_t i = 0; i < c; i++)
			z[line * next + i * step] /= sum;
	}
}

/* Softmax of each source copy's row over the destinations, plus eps. */
static void softmax_rows(float *z, uint32_t c, float eps)
{
	for (uint32_t i = 0; i < c; i++) {
		float top = z[i * c], sum = 0.0f;

		for (uint32_t j = 1; j < c; j++)
			top = z[i * c + j] > top ? z[i * c + j] : top;
		for (uint32_t j = 0; j < c; j++) {
			z[i * c + j] = kern_exp(z[i * c + j] - top);
			sum += z[i * c + j];
		}
		for (uint32_t j = 0; j < c; j++)
			z[i * c + j] = z[i * c + j] / sum + eps;
	}
}

/* The 2C + C C numbers of one row -> pre, post and the doubly stochastic comb. */
static void split(const struct kern_hc *w, const float *m, float *pre, float *post, float *comb)
{
	uint32_t c = w->copies;

	for (uint32_t i = 0; i < c; i++) {
		pre[i] = kern_canon(kern_sigmoid(m[i] * w->scale[0] + w->base[i]) + w->eps);
		post[i] = kern_canon(2.0f * kern_sigmoid(m[c + i] * w->scale[1] + w->base[c + i]));
	}
	for (uint32_t i = 0; i < c * c; i++)
		comb[i] = m[2 * c + i] * w->scale[2] + w->base[2 * c + i];
	softmax_rows(comb, c, w->eps);
	divide(comb, c, w->eps, true);
	for (uint32_t round = 1; round < w->iters; round++) {
		divide(comb, c, w->eps, false);
		divide(comb, c, w->eps, true);
	}
	for (uint32_t i = 0; i < c * c; i++)
		comb[i] = kern_canon(comb[i]);
}

struct predict_job {
	const struct kern_hc *w;
	const float *x;
	float *pre, *post, *comb;
};

static void predict_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct predict_job *job = arg;
	const struct kern_hc *w = job->w;
	uint32_t c = w->copies;
	size_t len = (size_t)c * w->dim;

	(void)part;
	for (uint32_t i = first; i < end; i++) {
		const float *x = job->x + i * len;
		float r = 1.0f / sqrtf(kern_lane_dot(x, x, len) / (float)len + w->norm_eps);
		float m[MIXES_MAX] = { 0 };

		for (uint32_t k = 0; k < (2 + c) * c; k++)
			m[k] = kern_lane_dot(w->fn + k * len, x, len) * r;
		split(w, m, job->pre + (size_t)i * c, job->post + (size_t)i * c,
		      job->comb + (size_t)i * c * c);
	}
}

void ref_hc_predict(struct kern_ctx *ctx, const struct kern_hc *w, const float *x, uint32_t n,
		    float *pre, float *post, float *comb)
{
	struct predict_job job = { .w = w, .x = x, .pre = pre, .post = post, .comb = comb };
	uint64_t mixes = (uint64_t)(2 + w->copies) * w->copies;

	assert(w->copies >= 1 && w->copies <= REF_COPIES_MAX && w->iters >= 1);
	kern_parallel(ctx->pool, n, mixes * w->copies * w->dim, predict_rows, &job);
}

struct mix_job {
	const struct kern_ctx *ctx;
	const float *mix, *x;
	float *y;
	uint32_t copies, dim;
};

static void mix_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct mix_job *job = arg;

	(void)part;
	for (uint32_t i = first; i < end; i++)
		for (uint32_t d = 0; d < job->dim; d++) {
			const float *mix = job->mix + (size_t)i * job->copies;
			const float *x = job->x + (size_t)i * job->copies * job->dim + d;
			float acc = 0.0f;

			for (uint32_t c = 0; c < job->copies; c++)
				acc = kern_fma(mix[c], x[(size_t)c * job->dim], acc);
			job->y[(size_t)i * job->dim + d] = ref_keep(job->ctx, acc);
		}
}

void ref_hc_mix(struct kern_ctx *ctx, const float *mix, const float *x, uint32_t n, uint32_t copies,
		uint32_t dim, float *y)
{
	struct mix_job job = {
		.ctx = ctx, .mix = mix, .x = x, .y = y, .copies = copies, .dim = dim
	};

	kern_parallel(ctx->pool, n, (uint64_t)copies * dim * 2, mix_rows, &job);
}

struct update_job {
	const struct kern_ctx *ctx;
	float *x;
	const float *y, *post, *comb;
	uint32_t copies, dim;
};

/* X'[j] = post[j] y + sum_i comb[i][j] X[i]: i is where a copy comes from, j where it goes. */
static void update_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct update_job *job = arg;
	uint32_t c = job->copies;

	(void)part;
	for (uint32_t row = first; row < end; row++) {
		float *x = job->x + (size_t)row * c * job->dim;
		const float *post = job->post + (size_t)row * c;
		const float *comb = job->comb + (size_t)row * c * c;

		for (uint32_t d = 0; d < job->dim; d++) {
			float old[REF_COPIES_MAX], y = job->y[(size_t)row * job->dim + d];

			for (uint32_t i = 0; i < c; i++)
				old[i] = x[(size_t)i * job->dim + d];
			for (uint32_t j = 0; j < c; j++) {
				float acc = 0.0f;

				for (uint32_t i = 0; i < c; i++)
					acc = kern_fma(comb[i * c + j], old[i], acc);
				x[(size_t)j * job->dim + d] =
					ref_keep(job->ctx, kern_fma(post[j], y, acc));
			}
		}
	}
}

void ref_hc_update(struct kern_ctx *ctx, float *x, const float *y, const float *post,
		   const float *comb, uint32_t n, uint32_t copies, uint32_t dim)
{
	struct update_job job = {
		.ctx = ctx, .x = x, .y = y, .post = post, .comb = comb, .copies = copies, .dim = dim
	};

	assert(copies >= 1 && copies <= REF_COPIES_MAX);
	kern_parallel(ctx->pool, n, (uint64_t)copies * (copies + 2) * dim, update_rows, &job);
}
