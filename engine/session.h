/*
 * session.h - what is kept of one sequence: its token ids and the caches of every layer.
 *
 * Everything here is replicated: each rank holds the same bits (one latent head). Sizes follow from
 * the model, the longest context and the longest run, so that one allocation serves for life.
 * Source: model.md 4.8 and 5.1.
 */
#ifndef ENG_SESSION_H
#define ENG_SESSION_H

#include "model.h"

/* Half groups kept per ratio-2 source layer, by position; bounds how far a sequence rolls back. */
#define ENG_HALF_RING 16

/*
 * One allocation handed out in 64-byte steps. A layout function runs twice: with base NULL it only
 * counts, then it takes.
 */
struct eng_arena {
	uint8_t *base;
	size_t used;
};

static inline void *eng_arena_take(struct eng_arena *a, size_t bytes)
{
	uint8_t *p = a->base == NULL ? NULL : a->base + a->used;

	a->used += (bytes + 63) & ~(size_t)63;
	return p;
}

struct eng_session {
	uint32_t max_ctx, pos;			  /* capacity; tokens in the sequence */
	uint32_t *tokens;			  /* [max_ctx] */
	struct kern_cache window[ENG_LAYERS_MAX]; /* ring of window + run rows */
	/* KV source layers only, else data is NULL: entries 0 .. max_ctx / ratio - 1 */
	struct kern_cache comp[ENG_LAYERS_MAX], keys[ENG_LAYERS_MAX];
	float *half_kv[ENG_LAYERS_MAX], *half_score[ENG_LAYERS_MAX]; /* [ENG_HALF_RING, head_dim] */
	uint8_t *mem;						     /* owns all of it */
	size_t bytes;
};

/**
 * eng_session_init() - caches for @max_ctx positions (1..max_pos) and runs of @run rows.
 * Allocates once. @s: caller's; eng_session_fini() also after a failure.
 * Return: 0; -1 DS_ERR_NOMEM.
 */
int eng_session_init(struct eng_session *s, const struct eng_conf *c, enum kern_numerics numerics,
		     uint32_t max_ctx, uint32_t run, struct ds_err *err);
void eng_session_fini(struct eng_session *s);

/**
 * eng_session_truncate() - keep the first @pos tokens; later entries are written over.
 * Any sequence can be emptied; otherwise the rings bound how far back one can go.
 * Return: 0; -1 when @pos is ahead of the sequence or further back than the rings reach.
 */
int eng_session_truncate(struct eng_session *s, uint32_t pos);

#endif
