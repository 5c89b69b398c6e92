/*
 * leaf.c - how a row-parallel sum is cut into leaves, and the one order in which they are added
 * (design 4.3). The engine and every transport finish their sums here.
 */
#include <assert.h>
#include <string.h>

#include "kernels.h"

void kern_leaf_range(uint32_t units, uint32_t leaves, uint32_t leaf, uint32_t *first, uint32_t *end)
{
	uint32_t each, longer;

	assert(leaves > 0 && leaf < leaves);
	each = units / leaves;
	longer = units % leaves; /* this many leaves, the earlier ones, hold one unit more */
	*first = leaf * each + (leaf < longer ? leaf : longer);
	*end = *first + each + (leaf < longer ? 1 : 0);
}

/* a + b, where an absent side leaves the other as it is. */
static const float *add(const float *a, const float *b, float *sum)
{
	if (a == NULL || b == NULL)
		return a == NULL ? b : a;
	*sum = *a + *b;
	return sum;
}

void kern_leaf_sum(uint32_t class_, const float *const *part, size_t len, float *out)
{
	assert(class_ >= 1 && class_ <= KERN_LEAVES_MAX);
	for (size_t i = 0; i < len; i++) {
		const float *p[KERN_LEAVES_MAX] = { NULL }, *low, *high, *all;
		float s[3];

		for (uint32_t l = 0; l < class_; l++)
			p[l] = part[l] == NULL ? NULL : part[l] + i;
		low = add(p[0], p[1], &s[0]);
		high = add(p[2], p[3], &s[1]);
		all = add(low, high, &s[2]);
		out[i] = all == NULL ? 0.0f : *all;
	}
}
