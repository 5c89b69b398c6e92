/*
 * tok_bpe.h - private to the tokenizer: joining adjacent symbols by merge rank.
 */
#ifndef ENG_TOK_BPE_H
#define ENG_TOK_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct tok_merge {
	uint32_t left, right; /* UINT32_MAX, UINT32_MAX = free slot */
	uint32_t rank;	      /* lower joins first */
	uint32_t id;	      /* what the pair becomes */
};

/* Merges as a hash table from a pair of ids; immutable once filled. Zero it to start. */
struct tok_bpe {
	struct tok_merge *slot;
	size_t mask;  /* slots - 1 */
	uint32_t *at; /* [n] slot of the merge of each rank */
	uint32_t n;   /* ranks are below it */
};

/** tok_bpe_init() - room for @n merges, of ranks 0 to @n - 1. Return: 0; -1 DS_ERR_NOMEM. */
int tok_bpe_init(struct tok_bpe *b, size_t n, struct ds_err *err);
void tok_bpe_fini(struct tok_bpe *b);
/** tok_bpe_add() - one merge of the @n announced. Return: 0; -1 when the pair is there already. */
int tok_bpe_add(struct tok_bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

/* A symbol of a long piece, between its neighbours (UINT32_MAX = none). */
struct tok_sym {
	uint32_t id, prev, next;
};

#define TOK_PEND 14

/* Pairs that could join, some of those of one rank: a cache line, since following a list of single ones is slow. */
struct tok_pend {
	uint32_t next, n; /* next: UINT32_MAX = the last; all but the first in a list are full */
	uint32_t at[TOK_PEND]; /* their left symbols */
};

/* Memory of one encoder, reused from piece to piece. Zero it to start; owner only. */
struct tok_bpe_work {
	uint32_t *id;	       /* in: symbols of the piece; out: what is left of them */
	struct tok_sym *sym;   /* [cap] */
	struct tok_pend *pend; /* enough for 2 * cap pairs of any ranks */
	uint32_t n_pend, free; /* of them: ever used; first of those free again */
	uint32_t *batch;       /* [2 * cap] the pairs of one rank */
	size_t cap;
	uint32_t *head; /* [ranks] the pairs that wait, by rank; all empty between two pieces */
	uint64_t *set, *sum; /* bits: ranks where some wait; words of set that are not 0 */
};

/** tok_bpe_room() - make work->id hold @n symbols. Return: 0; -1 DS_ERR_NOMEM. */
int tok_bpe_room(const struct tok_bpe *b, struct tok_bpe_work *w, size_t n, struct ds_err *err);
void tok_bpe_work_fini(struct tok_bpe_work *w);

/**
 * tok_bpe_merge() - join work->id[0..n) until no merge applies: lowest rank first, leftmost on ties.
 * @n: at most what tok_bpe_room() was asked for. Time O(n log n). Return: symbols left, in work->id.
 */
size_t tok_bpe_merge(const struct tok_bpe *b, struct tok_bpe_work *w, size_t n);

#endif
