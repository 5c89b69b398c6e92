/*
 * session.c - sizes and life of one sequence's caches.
 */
#include <string.h>

#include "session.h"

static void cache_layout(struct eng_arena *a, struct kern_cache *k, enum kern_row_fmt fmt,
			 uint32_t width, uint64_t rows)
{
	k->fmt = fmt;
	k->width = width;
	k->ring = rows;
	k->data = eng_arena_take(a, kern_row_bytes(fmt, width) * rows);
}

static void layout(struct eng_session *s, const struct eng_conf *c, bool native, uint32_t run,
		   struct eng_arena *a)
{
	/* A run's rows are all stored before its first query looks back a whole window. */
	uint64_t ring = (uint64_t)c->window + run + ENG_HALF_RING;

	s->tokens = eng_arena_take(a, sizeof(*s->tokens) * s->max_ctx);
	for (uint32_t l = 0; l < c->n_layers; l++) {
		cache_layout(a, &s->window[l], native ? KERN_ROW_Q8 : KERN_ROW_F32, c->head_dim,
			     ring);
		if (c->ratio[l] == 0 || c->kv_source[l] != (int32_t)l)
			continue;
		uint64_t entries = s->max_ctx / c->ratio[l] + 1;

		cache_layout(a, &s->comp[l], native ? KERN_ROW_Q4KV : KERN_ROW_F32, c->head_dim,
			     entries);
		cache_layout(a, &s->keys[l], native ? KERN_ROW_Q4IDX : KERN_ROW_F32, c->index_dim,
			     entries);
		if (c->ratio[l] == 1)
			continue;
		size_t half = sizeof(float) * ENG_HALF_RING * c->head_dim;

		s->half_kv[l] = eng_arena_take(a, half);
		s->half_score[l] = eng_arena_take(a, half);
	}
}

int eng_session_init(struct eng_session *s, const struct eng_conf *c, enum kern_numerics numerics,
		     uint32_t max_ctx, uint32_t run, struct ds_err *err)
{
	struct eng_arena a = { 0 };
	bool native = numerics == KERN_NATIVE;

	memset(s, 0, sizeof(*s));
	s->max_ctx = max_ctx;
	layout(s, c, native, run, &a);
	s->bytes = a.used;
	s->mem = kern_alloc(a.used, "the caches of a sequence", err);
	if (s->mem == NULL)
		return -1;
	a = (struct eng_arena){ .base = s->mem };
	layout(s, c, native, run, &a);
	return 0;
}

void eng_session_fini(struct eng_session *s)
{
	kern_free(s->mem);
	memset(s, 0, sizeof(*s));
}

int eng_session_truncate(struct eng_session *s, uint32_t pos)
{
	if (pos > s->pos || (pos != 0 && s->pos - pos >= ENG_HALF_RING))
		return -1;
	s->pos = pos;
	return 0;
}
