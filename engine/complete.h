/*
 * complete.h - from an answer's prompt to its last token, on the thread that owns the engine.
 */
#ifndef ENG_COMPLETE_H
#define ENG_COMPLETE_H

#include <stdbool.h>
#include <stdint.h>

#include "answer.h"
#include "engine.h"
#include "tokenizer.h"

struct complete {
	struct eng *eng;       /* borrowed */
	const struct tok *tok; /* borrowed */
	uint32_t vocab, eos, chunk;
	int64_t time_limit_ms;
	float *logits; /* [vocab] */
	void *scratch; /* of the sampler */
	bool *banned;  /* [vocab] ids that no answer may hold */
	/* of the running answer, for penalties: [vocab] */
	bool *in_prompt;
	uint32_t *in_answer;
};

/**
 * complete_init() - buffers for one sequence; the step path allocates no more than text does.
 * @chunk: most prompt tokens between two looks at the client
 * Return: 0; -1 DS_ERR_NOMEM.
 */
int complete_init(struct complete *c, struct eng *eng, const struct tok *tok, uint32_t chunk,
		  int64_t time_limit_ms, struct ds_err *err);
void complete_fini(struct complete *c);

/**
 * complete_run() - make the answer and end it, well or not; between two steps it looks whether the
 * client is still there. Threads: owner only.
 * Return: 0, also for an answer that failed by itself; -1 DS_ERR_PEER when the group is lost (the
 * answer was told).
 */
int complete_run(struct complete *c, struct answer *a, struct ds_err *err);

#endif
