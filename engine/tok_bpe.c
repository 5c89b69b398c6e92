/*
 * tok_bpe.c - rank-ordered byte-pair merging of one piece.
 *
 * Two ways to the same result. Almost every piece of prose is a word, where looking for the lowest
 * rank again after each merge is fastest; a piece of base64 or a long row of "=" would make that
 * quadratic, so longer ones use a linked list with a heap of candidates. Candidates that a merge
 * has made stale are recognised when they come up, not searched for.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tok_bpe.h"

#define SHORT_PIECE 48
#define NONE	    UINT32_MAX

static size_t hash_pair(uint32_t left, uint32_t right)
{
	uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(h ^ h >> 29);
}

int tok_bpe_init(struct tok_bpe *b, size_t n, struct ds_err *err)
{
	size_t slots = 16;

	while (slots < 2 * n)
		slots *= 2;
	if ((b->slot = malloc(slots * sizeof(*b->slot))) == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "allocate merges");
	memset(b->slot, 0xff, slots * sizeof(*b->slot));
	b->mask = slots - 1;
	return 0;
}

void tok_bpe_fini(struct tok_bpe *b)
{
	free(b->slot);
	*b = (struct tok_bpe){ 0 };
}

/* The slot of the pair, or the free slot where it belongs. */
static struct tok_merge *find(const struct tok_bpe *b, uint32_t left, uint32_t right)
{
	size_t i = hash_pair(left, right) & b->mask;

	while (b->slot[i].left != NONE && (b->slot[i].left != left || b->slot[i].right != right))
		i = (i + 1) & b->mask;
	return &b->slot[i];
}

int tok_bpe_add(struct tok_bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
	struct tok_merge *m = find(b, left, right);

	if (m->left != NONE)
		return -1;
	*m = (struct tok_merge){ .left = left, .right = right, .rank = rank, .id = id };
	return 0;
}

int tok_bpe_room(struct tok_bpe_work *w, size_t n, struct ds_err *err)
{
	size_t cap = w->cap > 0 ? w->cap : 256;

	if (n <= w->cap)
		return 0;
	while (cap < n)
		cap *= 2;
	tok_bpe_work_fini(w);
	w->id = malloc(cap * sizeof(*w->id));
	w->prev = malloc(cap * sizeof(*w->prev));
	w->next = malloc(cap * sizeof(*w->next));
	/* n - 1 pairs at first; each of at most n - 1 merges adds two and has taken one. */
	w->heap = malloc(2 * cap * sizeof(*w->heap));
	if (w->id == NULL || w->prev == NULL || w->next == NULL || w->heap == NULL) {
		tok_bpe_work_fini(w);
		return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "encode text");
	}
	w->cap = cap;
	return 0;
}

void tok_bpe_work_fini(struct tok_bpe_work *w)
{
	free(w->id);
	free(w->prev);
	free(w->next);
	free(w->heap);
	*w = (struct tok_bpe_work){ 0 };
}

/* ------------------------------------- short pieces ------------------------------------- */

static uint32_t rank_of(const struct tok_bpe *b, const uint32_t *id, size_t i, size_t n)
{
	return i + 1 < n ? find(b, id[i], id[i + 1])->rank : NONE; /* a free slot's rank is NONE */
}

static size_t merge_short(const struct tok_bpe *b, uint32_t *id, size_t n)
{
	uint32_t rank[SHORT_PIECE];

	for (size_t i = 0; i < n; i++)
		rank[i] = rank_of(b, id, i, n);
	for (;;) {
		size_t best = 0;
		for (size_t i = 1; i < n; i++)
			if (rank[i] < rank[best])
				best = i;
		if (rank[best] == NONE)
			return n;
		id[best] = find(b, id[best], id[best + 1])->id;
		n--;
		memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof(*id));
		memmove(rank + best + 1, rank + best + 2, (n - best - 1) * sizeof(*rank));
		rank[best] = rank_of(b, id, best, n);
		if (best > 0)
			rank[best - 1] = rank_of(b, id, best - 1, n);
	}
}

/* -------------------------------------- long pieces ------------------------------------- */

static bool before(const struct tok_cand *a, const struct tok_cand *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct tok_bpe_work *w, struct tok_cand c)
{
	size_t i = w->n_heap++;

	for (; i > 0 && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = c;
}

static struct tok_cand heap_pop(struct tok_bpe_work *w)
{
	struct tok_cand top = w->heap[0], last = w->heap[--w->n_heap];
	size_t i = 0;

	for (size_t kid; (kid = 2 * i + 1) < w->n_heap; i = kid) {
		if (kid + 1 < w->n_heap && before(&w->heap[kid + 1], &w->heap[kid]))
			kid++;
		if (!before(&w->heap[kid], &last))
			break;
		w->heap[i] = w->heap[kid];
	}
	w->heap[i] = last;
	return top;
}

/* The pair that starts at symbol @at becomes a candidate if a merge knows it. */
static void offer(const struct tok_bpe *b, struct tok_bpe_work *w, uint32_t at)
{
	if (at == NONE || w->next[at] == NONE)
		return;
	const struct tok_merge *m = find(b, w->id[at], w->id[w->next[at]]);
	if (m->left != NONE)
		heap_push(w, (struct tok_cand){ m->rank, at, m->left, m->right });
}

static size_t merge_long(const struct tok_bpe *b, struct tok_bpe_work *w, size_t n)
{
	size_t left = 0;

	w->n_heap = 0;
	for (size_t i = 0; i < n; i++) {
		w->prev[i] = i > 0 ? (uint32_t)(i - 1) : NONE;
		w->next[i] = i + 1 < n ? (uint32_t)(i + 1) : NONE;
	}
	for (size_t i = 0; i < n; i++)
		offer(b, w, (uint32_t)i);
	while (w->n_heap > 0) {
		struct tok_cand c = heap_pop(w);
		uint32_t right = w->next[c.at];
		/* Stale: one of the two has since become part of another symbol. */
		if (w->id[c.at] != c.left || right == NONE || w->id[right] != c.right)
			continue;
		w->id[c.at] = find(b, c.left, c.right)->id;
		w->id[right] = NONE;
		w->next[c.at] = w->next[right];
		if (w->next[right] != NONE)
			w->prev[w->next[right]] = c.at;
		offer(b, w, w->prev[c.at]);
		offer(b, w, c.at);
	}
	for (uint32_t i = 0; i != NONE; i = w->next[i])
		w->id[left++] = w->id[i];
	return left;
}

size_t tok_bpe_merge(const struct tok_bpe *b, struct tok_bpe_work *w, size_t n)
{
	if (n < 2)
		return n;
	return n <= SHORT_PIECE ? merge_short(b, w->id, n) : merge_long(b, w, n);
}
