/*
 * sample.h - from logits to a token, the same for any load, world or draft (design.md 4.3, Sampling).
 *
 * Philox4x32-10 (Salmon et al. 2011), key = seed, counter = (absolute position, choice, draw);
 * filters sum in descending probability, lower id first on ties; inverse CDF over ids ascending.
 */
#ifndef ENG_SAMPLE_H
#define ENG_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include <stddef.h>

struct sample_params {
	float temperature; /* 0 = greedy */
	float top_p;	   /* 1 = off */
	uint32_t top_k;	   /* 0 = off */
	uint64_t seed;
};

/** philox4x32() - ten rounds; @out 4 words. */
void philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

/**
 * sample_token() - @logits [vocab], not changed; @scratch [2 * vocab] floats.
 * @banned: [vocab] ids that may never be drawn; NULL = none
 * @position: of the token to draw; @choice: index among n
 * Return: the id; -1 when no id is left or a logit is NaN.
 */
int32_t sample_token(const float *logits, uint32_t vocab, const bool *banned,
		     const struct sample_params *p, uint64_t position, uint32_t choice,
		     void *scratch);
/** sample_scratch() - bytes of scratch for @vocab. */
size_t sample_scratch(uint32_t vocab);

#endif
