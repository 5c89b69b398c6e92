/*
 * index.c - the indexer: scores of compressed entries, candidate blocks, the best entries
 * (model.md 4.6.3 to 4.6.5).
 *
 * Entries are scored one after the other in ascending order and only the best are kept, in a heap
 * whose root is the worst of them; so the memory does not grow with the context. Order of worth:
 * higher score first, lower entry on ties; a NaN is worth least, but what is visible is never
 * passed over while there is room.
 */
#include "ref.h"

struct best {
	uint32_t key; /* the score as an integer of the same order */
	int32_t id;
};

struct heap {
	struct best *at; /* [capacity]; at[0] is the worst */
	uint32_t size, capacity;
};

static bool worse(struct best a, struct best b)
{
	return a.key != b.key ? a.key < b.key : a.id > b.id;
}

static uint32_t order(float score)
{
	uint32_t u = kern_bits(score + 0.0f); /* -0 becomes +0: they are a tie */

	if (score != score)
		return 0;
	return (u >> 31) != 0 ? ~u : u | UINT32_C(0x80000000);
}

static void sift_down(struct best *at, uint32_t size, uint32_t i)
{
	for (uint32_t child; (child = 2 * i + 1) < size; i = child) {
		struct best swap = at[i];

		if (child + 1 < size && worse(at[child + 1], at[child]))
			child++;
		if (!worse(at[child], at[i]))
			return;
		at[i] = at[child];
		at[child] = swap;
	}
}

static void heap_add(struct heap *h, uint32_t key, int32_t id)
{
	struct best b = { .key = key, .id = id };
	uint32_t i;

	if (h->size == h->capacity) {
		if (!worse(h->at[0], b))
			return;
		h->at[0] = b;
		sift_down(h->at, h->size, 0);
		return;
	}
	h->at[h->size] = b;
	for (i = h->size++; i > 0 && worse(h->at[i], h->at[(i - 1) / 2]); i = (i - 1) / 2) {
		h->at[i] = h->at[(i - 1) / 2];
		h->at[(i - 1) / 2] = b;
	}
}

/* What the heap holds, ids ascending, padded with -1 to its capacity. The heap is used up. */
static void heap_list(struct heap *h, int32_t *out)
{
	for (uint32_t i = 0; i < h->capacity; i++)
		out[i] = -1;
	for (uint32_t i = 0; i < h->size; i++)
		h->at[i].key = 0; /* now the largest id is the worst */
	for (uint32_t i = h->size / 2; i-- > 0;)
		sift_down(h->at, h->size, i);
	while (h->size > 0) {
		out[h->size - 1] = h->at[0].id;
		h->at[0] = h->at[--h->size];
		sift_down(h->at, h->size, 0);
	}
}

#define MANY 16 /* entries scored side by side */

/* sum over heads of weight * relu(query . key) for @n entries; heads ascending (4.6.4). */
static void score(const struct kern_index_args *a, uint32_t i, const uint32_t *entry, uint32_t n,
		  float *sum)
{
	float key[REF_WIDTH_MAX], column[REF_WIDTH_MAX * MANY];

	for (uint32_t e = 0; e < MANY; e++) {
		ref_row_read(a->keys, entry[e < n ? e : 0], key);
		for (uint32_t d = 0; d < a->dim; d++)
			column[(size_t)d * MANY + e] = key[d];
		sum[e] = 0.0f;
	}
	for (uint32_t h = 0; h < a->heads; h++) {
		size_t at = (size_t)i * a->heads + h;
		float dot[MANY];

		kern_dot16(a->q + at * a->dim, column, a->dim, dot);
		for (uint32_t e = 0; e < MANY; e++)
			sum[e] = kern_fma(a->weight[at], dot[e] < 0.0f ? 0.0f : dot[e], sum[e]);
	}
}

/* Everything of 0..count-1, when there is room for all of it. */
static void take_all(uint32_t count, uint32_t capacity, int32_t *out)
{
	for (uint32_t i = 0; i < capacity; i++)
		out[i] = i < count ? (int32_t)i : -1;
}

/* What one row is choosing; blocks are NULL where it publishes none. */
struct choice {
	struct heap *best, *blocks;
	uint32_t block_key; /* best of the block so far */
};

/* One scored entry; entries come ascending. The newest block is always among the best. */
static void offer(const struct kern_index_args *a, uint32_t i, struct choice *c, uint32_t entry,
		  float s)
{
	uint32_t key = order(s);

	heap_add(c->best, key, (int32_t)entry);
	if (c->blocks == NULL)
		return;
	c->block_key = key > c->block_key ? key : c->block_key;
	if (entry + 1 == a->visible[i])
		heap_add(c->blocks, UINT32_MAX, (int32_t)(entry / a->block_size));
	else if ((entry + 1) % a->block_size == 0) {
		heap_add(c->blocks, c->block_key, (int32_t)(entry / a->block_size));
		c->block_key = 0;
	}
}

/* The next of the entries that row @i may choose, from @e on; at or past `visible` when none is left. */
static uint32_t next_entry(const struct kern_index_args *a, uint32_t i, uint32_t e, uint32_t *block)
{
	const int32_t *in = a->blocks_in + (size_t)i * a->n_blocks;

	if (a->blocks_in == NULL)
		return e;
	for (; *block < a->n_blocks && in[*block] >= 0; ++*block) {
		uint32_t first = (uint32_t)in[*block] * a->block_size;

		if (e < first)
			return first;
		if (e < first + a->block_size)
			return e;
	}
	return UINT32_MAX;
}

/* Score all entries that row @i may choose, sixteen at a time, and offer them in ascending order. */
static void scan(const struct kern_index_args *a, uint32_t i, struct choice *c)
{
	uint32_t entry[MANY] = { 0 }, n, block = 0;
	float sum[MANY];

	for (uint32_t e = next_entry(a, i, 0, &block); e < a->visible[i];) {
		for (n = 0; n < MANY && e < a->visible[i]; n++) {
			entry[n] = e;
			e = next_entry(a, i, e + 1, &block);
		}
		score(a, i, entry, n, sum);
		for (uint32_t k = 0; k < n; k++)
			offer(a, i, c, entry[k], sum[k]);
	}
}

static void select_row(const struct kern_index_args *a, uint32_t i, struct best *room)
{
	struct heap best = { .at = room, .capacity = a->topk };
	struct heap blocks = { .at = room + a->topk, .capacity = a->n_blocks };
	int32_t *sel = a->sel + (size_t)i * a->topk;
	int32_t *out = a->blocks_out == NULL ? NULL : a->blocks_out + (size_t)i * a->n_blocks;
	uint32_t visible = a->visible[i];
	uint32_t in_blocks = out == NULL ? 0 : (visible + a->block_size - 1) / a->block_size;
	struct choice c = { .best = &best, .blocks = out == NULL ? NULL : &blocks };

	if (a->blocks_in == NULL && visible <= a->topk && in_blocks <= a->n_blocks) {
		take_all(visible, a->topk, sel); /* no score can change anything */
		if (out != NULL)
			take_all(in_blocks, a->n_blocks, out);
		return;
	}
	scan(a, i, &c);
	heap_list(&best, sel);
	if (out != NULL)
		heap_list(&blocks, out);
}

static void select_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct kern_index_args *a = arg;
	struct best *room = (struct best *)a->scratch + (size_t)part * (a->topk + a->n_blocks);

	for (uint32_t i = first; i < end; i++)
		select_row(a, i, room);
}

void ref_index_select(struct kern_ctx *ctx, const struct kern_index_args *a)
{
	struct kern_index_args args = *a;
	uint64_t most = 0;

	assert(a->dim <= REF_WIDTH_MAX && a->keys->width == a->dim && a->topk > 0);
	assert((a->blocks_in == NULL && a->blocks_out == NULL) ||
	       (a->n_blocks > 0 && a->block_size > 0));
	for (uint32_t i = 0; i < a->n; i++)
		most = a->visible[i] > most ? a->visible[i] : most;
	kern_parallel(ctx->pool, a->n, most * a->heads * a->dim, select_rows, &args);
}
