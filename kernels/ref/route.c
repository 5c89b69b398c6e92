/*
 * route.c - which experts a row goes to and with what weight (model.md 4.7).
 */
#include "ref.h"

/* The better of two experts: higher biased score; a NaN loses; the earlier one keeps a tie. */
static bool better(float a, float b)
{
	return a > b || (a == a && b != b);
}

/* sqrt(softplus(g)), the score of one expert. */
static float expert_score(float logit)
{
	return sqrtf(kern_softplus(logit));
}

static void route_row(const float *logits, const float *bias, uint32_t experts, uint32_t topk,
		      float scale, int32_t *ids, float *weight)
{
	float sum = 0.0f;

	for (uint32_t t = 0; t < topk; t++) {
		float most = 0.0f;
		int32_t pick = -1;

		for (uint32_t e = 0; e < experts; e++) {
			float s = expert_score(logits[e]) + bias[e];
			bool taken = false;

			for (uint32_t k = 0; k < t; k++)
				taken = taken || ids[k] == (int32_t)e;
			if (!taken && (pick < 0 || better(s, most))) {
				pick = (int32_t)e;
				most = s;
			}
		}
		ids[t] = pick;
		weight[t] = expert_score(logits[pick]); /* the bias only chooses */
		sum += weight[t];
	}
	for (uint32_t t = 0; t < topk; t++)
		weight[t] = kern_canon((topk > 1 ? weight[t] / (sum + 1e-20f) : weight[t]) * scale);
}

void ref_route(struct kern_ctx *ctx, const float *logits, const float *bias, uint32_t n,
	       uint32_t experts, uint32_t topk, float scale, int32_t *ids, float *weight)
{
	(void)ctx;
	assert(topk >= 1 && topk <= experts);
	for (uint32_t i = 0; i < n; i++)
		route_row(logits + (size_t)i * experts, bias, experts, topk, scale,
			  ids + (size_t)i * topk, weight + (size_t)i * topk);
}
