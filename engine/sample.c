/*
 * sample.c - from logits to a token: filters and the keyed draw of design.md 4.3.
 *
 * All sums run in one fixed order in double precision, and exp is our own, so the same logits give
 * the same token on every machine.
 */
#include <math.h>
#include <string.h>

#include "sample.h"

/* Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
void philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
	uint32_t k0 = key[0], k1 = key[1];
	uint32_t c[4];

	memcpy(c, counter, sizeof(c));
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xd2511f53u * c[0];
		uint64_t p1 = (uint64_t)0xcd9e8d57u * c[2];
		uint32_t next[4] = { (uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
				     (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0 };

		memcpy(c, next, sizeof(c));
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	memcpy(out, c, sizeof(c));
}

/* e^x for x <= 0: 2^k * e^r, |r| <= ln 2 / 2, Taylor to the 13th power. Below -700 it is 0. */
static double exp_neg(double x)
{
	static const double ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33;

	if (!(x > -700.0))
		return 0.0;
	double k = rint(x * 0x1.71547652b82fep+0);
	double r = (x - k * ln2_hi) - k * ln2_lo, sum = 1.0;

	for (int i = 13; i >= 1; i--)
		sum = 1.0 + r * sum / i;
	return ldexp(sum, (int)k);
}

struct candidate {
	double p; /* exp of the distance to the best, later the share */
	uint32_t id;
};

/* Descending probability, lower id first on ties. */
static bool likelier(const struct candidate *a, const struct candidate *b)
{
	return a->p > b->p || (a->p == b->p && a->id < b->id);
}

static bool lower_id(const struct candidate *a, const struct candidate *b)
{
	return a->id < b->id;
}

typedef bool order_fn(const struct candidate *a, const struct candidate *b);

/* Let list[at] sink to where nothing below it comes later in the order. */
static void sift(struct candidate *list, size_t at, size_t n, order_fn *first)
{
	struct candidate moving = list[at];

	for (size_t child; (child = 2 * at + 1) < n; at = child) {
		if (child + 1 < n && first(&list[child], &list[child + 1]))
			child++;
		if (!first(&moving, &list[child]))
			break;
		list[at] = list[child];
	}
	list[at] = moving;
}

/* Heap sort: in place, because a step may not allocate, and qsort() does. */
static void sort(struct candidate *list, size_t n, order_fn *first)
{
	for (size_t i = n / 2; i-- > 0;)
		sift(list, i, n, first);
	for (size_t end = n; end > 1; end--) {
		struct candidate last = list[0];

		list[0] = list[end - 1];
		list[end - 1] = last;
		sift(list, 0, end - 1, first);
	}
}

size_t sample_scratch(uint32_t vocab)
{
	return vocab * (sizeof(struct candidate) + sizeof(float));
}

bool sample_looks_back(const struct sample_params *p)
{
	return (p->repetition != 0.0f && p->repetition != 1.0f) || p->presence != 0.0f ||
	       p->frequency != 0.0f;
}

/* Bias and penalties; the sums and products are single operations in one order. */
static void adjust(float *logits, uint32_t vocab, const struct sample_params *p,
		   const struct sample_past *past)
{
	bool repeats = p->repetition != 0.0f && p->repetition != 1.0f;

	for (uint32_t i = 0; i < p->n_bias; i++)
		logits[p->bias[i].id] += p->bias[i].add;
	if (past == NULL || !sample_looks_back(p))
		return;
	for (uint32_t i = 0; i < vocab; i++) {
		uint32_t n = past->answer[i];

		if (repeats && (n > 0 || past->prompt[i]))
			logits[i] = logits[i] > 0.0f ? logits[i] / p->repetition
						     : logits[i] * p->repetition;
		if (n > 0) {
			logits[i] -= p->frequency * (float)n;
			logits[i] -= p->presence;
		}
	}
}

/* The best id that is not banned; -1 when none is left or a logit is NaN. */
static int32_t greedy(const float *logits, uint32_t vocab, const bool *banned)
{
	int32_t best = -1;

	for (uint32_t i = 0; i < vocab; i++) {
		if (isnan(logits[i]))
			return -1;
		if ((banned == NULL || !banned[i]) && (best < 0 || logits[i] > logits[best]))
			best = (int32_t)i;
	}
	return best;
}

/* Sort when a filter asks for it, cut, and return how many stay. */
static uint32_t filter(struct candidate *list, uint32_t n, const struct sample_params *p)
{
	double total = 0.0, sum = 0.0;
	uint32_t keep;

	if (p->top_k == 0 && p->top_p >= 1.0f)
		return n;
	sort(list, n, likelier);
	if (p->top_k > 0 && p->top_k < n)
		n = p->top_k;
	if (p->top_p < 1.0f) {
		for (uint32_t i = 0; i < n; i++)
			total += list[i].p;
		for (keep = 0; keep < n; keep++) {
			sum += list[keep].p;
			if (sum >= (double)p->top_p * total)
				break;
		}
		n = keep < n ? keep + 1 : n;
	}
	sort(list, n, lower_id);
	return n;
}

int32_t sample_token(const float *logits, uint32_t vocab, const bool *banned,
		     const struct sample_params *p, const struct sample_past *past,
		     uint64_t position, uint32_t choice, void *scratch)
{
	struct candidate *list = scratch;
	uint32_t n = 0, word[4];
	double total = 0.0, sum = 0.0;

	if (p->n_bias > 0 || (past != NULL && sample_looks_back(p))) {
		float *own = (float *)(list + vocab);

		memcpy(own, logits, vocab * sizeof(*own));
		adjust(own, vocab, p, past);
		logits = own;
	}
	int32_t best = greedy(logits, vocab, banned);

	if (best < 0 || !(p->temperature > 0.0f))
		return best;
	for (uint32_t i = 0; i < vocab; i++) {
		if (banned != NULL && banned[i])
			continue;
		double x = ((double)logits[i] - (double)logits[best]) / (double)p->temperature;

		double share = exp_neg(x); /* of the best one's probability */

		if (share >= (double)p->min_p)
			list[n++] = (struct candidate){ .p = share, .id = i };
	}
	n = filter(list, n, p);
	for (uint32_t i = 0; i < n; i++)
		total += list[i].p;
	philox4x32((const uint32_t[]){ (uint32_t)p->seed, (uint32_t)(p->seed >> 32) },
		   (const uint32_t[]){ (uint32_t)position, (uint32_t)(position >> 32), choice, 0 },
		   word);
	/* 53 random bits: u in [0, 1). */
	double u = (double)(((uint64_t)word[0] << 21) | (word[1] >> 11)) * 0x1p-53 * total;

	for (uint32_t i = 0; i < n; i++) {
		sum += list[i].p;
		if (u < sum)
			return (int32_t)list[i].id;
	}
	return (int32_t)list[n - 1].id;
}
