/*
 * rope.c - the rotation of model.md 4.5: adjacent channels of the last `dim` of a vector.
 *
 * The angle is rounded to fp32 before its sine is taken: at the end of the longest context that is
 * visible, and the model was trained with it. The fma is by name: left as products and sums, this
 * very pattern is fused by some compilers' vectorisers (GCC 12 at -O3), contraction forbidden or not.
 */
#include "ref.h"

struct rope_job {
	const struct kern_ctx *ctx;
	const struct kern_rope *r;
	float *x;
	uint32_t heads, width;
	const uint32_t *pos;
	bool inverse;
};

static void rope_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct rope_job *job = arg;
	const struct kern_rope *r = job->r;

	(void)part;
	for (uint32_t i = first; i < end; i++)
		for (uint32_t pair = 0; pair < r->dim / 2; pair++) {
			float angle = (float)job->pos[i] * r->freq[pair], c, s;
			double sine, cosine;

			kern_sincos(angle, &sine, &cosine);
			c = (float)cosine;
			s = (float)(job->inverse ? -sine : sine);
			for (uint32_t h = 0; h < job->heads; h++) {
				float *v = job->x + ((size_t)i * job->heads + h) * job->width +
					   job->width - r->dim + (size_t)2 * pair;
				float a = v[0], b = v[1];

				v[0] = ref_keep(job->ctx, kern_fma(a, c, -(b * s)));
				v[1] = ref_keep(job->ctx, kern_fma(a, s, b * c));
			}
		}
}

void ref_rope(struct kern_ctx *ctx, const struct kern_rope *r, float *x, uint32_t n, uint32_t heads,
	      uint32_t width, const uint32_t *pos, bool inverse)
{
	struct rope_job job = { .ctx = ctx,
				.r = r,
				.x = x,
				.heads = heads,
				.width = width,
				.pos = pos,
				.inverse = inverse };

	assert(r->dim <= width);
	kern_parallel(ctx->pool, n, (uint64_t)r->dim * (heads * 4 + 40), rope_rows, &job);
}
