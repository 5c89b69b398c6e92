/*
 * rope_table.c - rotary frequencies (model.md 4.5). Made once per model, the same for every set.
 *
 * The power must come out correctly rounded to fp32: two units off move a cosine by 0.03 at the end
 * of the longest context. It is built from square roots, which IEEE rounds correctly everywhere.
 */
#include <assert.h>
#include <math.h>

#include "kernels.h"

/* base^e for 0 <= e < 1, as the product of base^(1/2), base^(1/4), ... for the bits of e. */
static float power(double base, float e)
{
	double product = 1.0, root = base;
	float rest = e;

	while (rest > 0.0f) {
		root = sqrt(root);
		rest *= 2.0f; /* exact, like the subtraction below */
		if (rest >= 1.0f) {
			product *= root;
			rest -= 1.0f;
		}
	}
	return (float)product;
}

/* Natural logarithm: x = m 2^e, ln x = e ln 2 + 2 atanh((m - 1) / (m + 1)). */
static double natural_log(double x)
{
	double z, zz, sum = 0.0;
	int e;

	x = frexp(x, &e) * 2.0; /* 1 <= x < 2 */
	z = (x - 1.0) / (x + 1.0);
	zz = z * z;
	for (int k = 41; k > 0; k -= 2)
		sum = sum * zz + 1.0 / k;
	return (e - 1) * 0x1.62e42fefa39efp-1 + 2.0 * z * sum;
}

/* Channel pair that turns @rotations times within the original context. */
static double channel(double rotations, double original, double base, uint32_t dim)
{
	double turn = rotations * 2.0 * 3.14159265358979323846;

	return dim * natural_log(original / turn) / (2.0 * natural_log(base));
}

void kern_rope_init(struct kern_rope *r, uint32_t dim, double base, bool yarn, double factor,
		    double beta_fast, double beta_slow, double original)
{
	double low = 0.0, high = 0.0;
	float span;

	assert(dim % 2 == 0 && dim / 2 <= sizeof(r->freq) / sizeof(r->freq[0]));
	*r = (struct kern_rope){ .dim = dim };
	if (yarn) {
		low = fmax(floor(channel(beta_fast, original, base, dim)), 0.0);
		high = fmin(ceil(channel(beta_slow, original, base, dim)), dim - 1.0);
	}
	span = (float)fmax(high - low, 1e-3);
	for (uint32_t i = 0; i < dim / 2; i++) {
		float f = 1.0f / power(base, (float)(2 * i) / (float)dim);
		float ramp = fminf(fmaxf(((float)i - (float)low) / span, 0.0f), 1.0f);
		float smooth = 1.0f - ramp;

		r->freq[i] = yarn ? f / (float)factor * (1.0f - smooth) + f * smooth : f;
	}
}
