/*
 * tok_bpe.c - rank-ordered byte-pair merging of one piece.
 *
 * Two ways to the same result. Almost every piece of prose is a word, where looking for the lowest
 * rank again after each merge is fastest; a piece of base64 or a long row of "=" would make that
 * quadratic, so longer ones keep a list of candidates for each rank and join all of one rank from
 * left to right, which also walks through memory in order. Candidates that a merge has made stale
 * are recognised when they come up, not searched for.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tok_bpe.h"

#define SHORT_PIECE 48
#define AHEAD	    8 /* candidates whose memory is fetched before their turn */
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
	b->slot = malloc(slots * sizeof(*b->slot));
	b->at = malloc((n + 1) * sizeof(*b->at));
	if (b->slot == NULL || b->at == NULL) {
		tok_bpe_fini(b);
		return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "allocate merges");
	}
	memset(b->slot, 0xff, slots * sizeof(*b->slot));
	b->mask = slots - 1;
	b->n = (uint32_t)n;
	return 0;
}

void tok_bpe_fini(struct tok_bpe *b)
{
	free(b->slot);
	free(b->at);
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

	if (m->left != NONE || rank >= b->n)
		return -1;
	b->at[rank] = (uint32_t)(m - b->slot);
	*m = (struct tok_merge){ .left = left, .right = right, .rank = rank, .id = id };
	return 0;
}

/* Words of 64 bits for @n. */
static size_t words(size_t n)
{
	return n / 64 + 1;
}

/* The lists by rank, once for all pieces. */
static int lists_room(const struct tok_bpe *b, struct tok_bpe_work *w)
{
	if (w->head != NULL)
		return 0;
	w->head = malloc((b->n + 1) * sizeof(*w->head));
	w->set = calloc(words(b->n), sizeof(*w->set));
	w->sum = calloc(words(words(b->n)), sizeof(*w->sum));
	if (w->head == NULL || w->set == NULL || w->sum == NULL)
		return -1;
	memset(w->head, 0xff, (b->n + 1) * sizeof(*w->head));
	return 0;
}

/* Room for @cap symbols; what they were is lost. */
static int symbols_room(const struct tok_bpe *b, struct tok_bpe_work *w, size_t cap)
{
	size_t pairs = 2 * cap, ranks = pairs < b->n ? pairs : b->n;

	free(w->id);
	free(w->sym);
	free(w->pend);
	free(w->batch);
	w->id = malloc(cap * sizeof(*w->id));
	w->sym = malloc(cap * sizeof(*w->sym));
	/* n - 1 pairs at first; each of at most n - 1 merges adds two and has taken one. */
	w->pend = malloc((pairs / TOK_PEND + ranks + 1) * sizeof(*w->pend));
	w->batch = malloc(pairs * sizeof(*w->batch));
	w->cap = cap;
	return w->id == NULL || w->sym == NULL || w->pend == NULL || w->batch == NULL ? -1 : 0;
}

int tok_bpe_room(const struct tok_bpe *b, struct tok_bpe_work *w, size_t n, struct ds_err *err)
{
	size_t cap = w->cap > 0 ? w->cap : 256;

	while (cap < n)
		cap *= 2;
	if ((n > w->cap && symbols_room(b, w, cap) != 0) ||
	    (n > SHORT_PIECE && lists_room(b, w) != 0)) {
		tok_bpe_work_fini(w);
		return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "encode text");
	}
	return 0;
}

void tok_bpe_work_fini(struct tok_bpe_work *w)
{
	free(w->id);
	free(w->sym);
	free(w->pend);
	free(w->batch);
	free(w->head);
	free(w->set);
	free(w->sum);
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

static void pend(struct tok_bpe_work *w, uint32_t rank, uint32_t at)
{
	uint32_t i = w->head[rank];

	if (i == NONE || w->pend[i].n == TOK_PEND) {
		uint32_t new = w->free;
		if (new != NONE)
			w->free = w->pend[new].next;
		else
			new = w->n_pend++;
		w->pend[new].next = i;
		w->pend[new].n = 0;
		w->head[rank] = i = new;
		w->set[rank / 64] |= UINT64_C(1) << rank % 64;
		w->sum[rank / 4096] |= UINT64_C(1) << rank / 64 % 64;
	}
	w->pend[i].at[w->pend[i].n++] = at;
}

/* The pair that starts at symbol @at becomes a candidate if a merge knows it. Return: its rank, NONE = no. */
static uint32_t offer(const struct tok_bpe *b, struct tok_bpe_work *w, uint32_t at)
{
	if (at == NONE || w->sym[at].next == NONE)
		return NONE;
	const struct tok_merge *m = find(b, w->sym[at].id, w->sym[w->sym[at].next].id);
	if (m->left != NONE)
		pend(w, m->rank, at);
	return m->rank; /* a free slot's rank is NONE */
}

/* The lowest rank with candidates; NONE = there are none. */
static uint32_t lowest(const struct tok_bpe *b, const struct tok_bpe_work *w)
{
	size_t n = words(words(b->n));

	for (size_t i = 0; i < n; i++) {
		if (w->sum[i] == 0)
			continue;
		size_t word = 64 * i + (size_t)__builtin_ctzll(w->sum[i]);
		return (uint32_t)(64 * word) + (uint32_t)__builtin_ctzll(w->set[word]);
	}
	return NONE;
}

static int by_place(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* All candidates of @rank, from left to right: a view into w->batch of *n. */
static uint32_t *take(struct tok_bpe_work *w, uint32_t rank, size_t *n)
{
	uint32_t *end = w->batch + 2 * w->cap, *at = end;
	bool sorted = true;

	/* The list has the last to come first, so it is filled from behind. */
	for (uint32_t i = w->head[rank], next; i != NONE; i = next) {
		struct tok_pend *p = &w->pend[i];
		next = p->next;
		at -= p->n;
		memcpy(at, p->at, p->n * sizeof(*at));
		p->next = w->free;
		w->free = i;
	}
	*n = (size_t)(end - at);
	w->head[rank] = NONE;
	w->set[rank / 64] &= ~(UINT64_C(1) << rank % 64);
	if (w->set[rank / 64] == 0)
		w->sum[rank / 4096] &= ~(UINT64_C(1) << rank / 64 % 64);
	for (size_t i = 1; sorted && i < *n; i++)
		sorted = at[i - 1] < at[i];
	if (!sorted)
		qsort(at, *n, sizeof(*at), by_place);
	return at;
}

/* Joins the pair at @at. Return: the lowest rank of the two pairs that this makes. */
static uint32_t join(const struct tok_bpe *b, struct tok_bpe_work *w, const struct tok_merge *m,
		     uint32_t at)
{
	struct tok_sym *left = &w->sym[at], *right = &w->sym[left->next];

	left->id = m->id;
	left->next = right->next;
	right->id = NONE;
	if (right->next != NONE)
		w->sym[right->next].prev = at;
	uint32_t one = offer(b, w, left->prev), two = offer(b, w, at);
	return one < two ? one : two;
}

static void merge_rank(const struct tok_bpe *b, struct tok_bpe_work *w, uint32_t rank)
{
	const struct tok_merge m = b->slot[b->at[rank]];
	size_t n;
	const uint32_t *batch = take(w, rank, &n);

	for (size_t i = 0; i < n; i++) {
		uint32_t at = batch[i];
		const struct tok_sym *left = &w->sym[at];
		if (i + AHEAD < n)
			__builtin_prefetch(&w->sym[batch[i + AHEAD]]);
		/* Stale: one of the two has since become part of another symbol. */
		if (left->id != m.left || left->next == NONE || w->sym[left->next].id != m.right)
			continue;
		if (join(b, w, &m, at) > rank)
			continue;
		/* A merge that should have come first has become possible: the rest waits. */
		while (++i < n)
			pend(w, rank, batch[i]);
	}
}

static size_t merge_long(const struct tok_bpe *b, struct tok_bpe_work *w, size_t n)
{
	size_t left = 0;

	w->n_pend = 0;
	w->free = NONE;
	for (size_t i = 0; i < n; i++) {
		w->sym[i].id = w->id[i];
		w->sym[i].prev = i > 0 ? (uint32_t)(i - 1) : NONE;
		w->sym[i].next = i + 1 < n ? (uint32_t)(i + 1) : NONE;
	}
	for (size_t i = 0; i < n; i++)
		offer(b, w, (uint32_t)i);
	for (uint32_t rank; (rank = lowest(b, w)) != NONE;)
		merge_rank(b, w, rank);
	for (uint32_t i = 0; i != NONE; i = w->sym[i].next)
		w->id[left++] = w->sym[i].id;
	return left;
}

size_t tok_bpe_merge(const struct tok_bpe *b, struct tok_bpe_work *w, size_t n)
{
	if (n < 2)
		return n;
	return n <= SHORT_PIECE ? merge_short(b, w->id, n) : merge_long(b, w, n);
}
