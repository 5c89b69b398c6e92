/*
 * step.c - checking what rank 0 sent.
 */
#include "step.h"

const char *step_fault(const struct step *s, size_t len, const struct step_limits *l)
{
	if (len < STEP_HEAD || s->magic != STEP_MAGIC)
		return "not a step";
	if (s->version != STEP_VERSION)
		return "another version";
	if (s->op == STEP_STATS)
		return len == STEP_HEAD ? NULL : "wrong length";
	if (s->op != STEP_RUN)
		return "unknown operation";
	if (s->n < 1 || s->n > l->rows || s->n > ENG_RUN_MAX)
		return "number of tokens out of range";
	if (len != STEP_HEAD + s->n * sizeof(s->token[0]))
		return "wrong length";
	if (s->pos > l->pos || s->n > l->max_ctx - s->pos)
		return "position out of range";
	if (s->want_logits > 1)
		return "unknown flags";
	for (uint32_t i = 0; i < s->n; i++)
		if (s->token[i] >= l->vocab)
			return "token id out of range";
	return NULL;
}
