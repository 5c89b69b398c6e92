/*
 * step.c (fuzz) - a step message of any length and content against a rank's limits.
 *
 * Whatever passes must be safe to run: ids inside the vocabulary, rows inside the working memory.
 */
#include <assert.h>
#include <string.h>

#include "step.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct step_limits l = { .rows = 16, .max_ctx = 64, .vocab = 512, .pos = 20 };
	struct step s;

	if (size > sizeof(s))
		return 0;
	memset(&s, 0xff, sizeof(s)); /* what was not sent must not count */
	memcpy(&s, data, size);
	if (step_fault(&s, size, &l) != NULL || s.op != STEP_RUN)
		return 0;
	assert(s.n >= 1 && s.n <= l.rows && s.pos <= l.pos && s.pos + s.n <= l.max_ctx);
	for (uint32_t i = 0; i < s.n; i++)
		assert(s.token[i] < l.vocab);
	return 0;
}
