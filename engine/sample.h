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

/* What is added to one logit. */
struct sample_bias {
	uint32_t id;
	float add;
};

struct sample_params {
	float temperature; /* 0 = greedy */
	float top_p;	   /* 1 = off */
	uint32_t top_k;	   /* 0 = off */
	float min_p;	   /* share of the best one's probability; 0 = off */
	uint64_t seed;
	float repetition;		/* 1, or 0 = off */
	float presence, frequency;	/* 0 = off */
	const struct sample_bias *bias; /* [n_bias], borrowed; ids below the vocabulary */
	uint32_t n_bias;
};

/* What the penalties look back on; both [vocab], borrowed. */
struct sample_past {
	const bool *prompt;	/* ids that the prompt holds */
	const uint32_t *answer; /* how often the answer holds an id */
};

/** sample_looks_back() - whether @p has a penalty that is on: sample_token() then needs a past. */
bool sample_looks_back(const struct sample_params *p);

/** philox4x32() - ten rounds; @out 4 words. */
void philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

/**
 * sample_token() - @logits [vocab], not changed; @scratch: sample_scratch() bytes.
 *
 * In vLLM's order: banned ids, bias, repetition penalty (ids of prompt and answer: a logit above 0 is
 * divided by it, another one multiplied), frequency times count and presence subtracted (ids of the
 * answer), temperature, min_p, top_k, top_p. Greedy takes the best after the penalties, the lowest id on ties.
 * @banned: [vocab] ids that may never be drawn; NULL = none
 * @past:   NULL = no penalties
 * @position: of the token to draw; @choice: index among n
 * Return: the id; -1 when no id is left or a logit is NaN.
 */
int32_t sample_token(const float *logits, uint32_t vocab, const bool *banned,
		     const struct sample_params *p, const struct sample_past *past,
		     uint64_t position, uint32_t choice, void *scratch);
/** sample_scratch() - bytes of scratch for @vocab. */
size_t sample_scratch(uint32_t vocab);

#endif
