/*
 * engram.c - constants and row ids of the n-gram memory (model.md 4.11.1 to 4.11.3).
 *
 * Integers only: what is looked up where. The rows themselves belong to the weights, the gate to
 * the kernels. Primes are searched at start-up, which takes about a millisecond for the release.
 */
#include "engram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAP_FILE "engram_token_map.bin"

static bool is_prime(uint64_t v)
{
	if (v < 4)
		return v >= 2;
	if (v % 2 == 0 || v % 3 == 0)
		return false;
	for (uint64_t d = 5; d * d <= v; d += 6) {
		if (v % d == 0 || v % (d + 2) == 0)
			return false;
	}
	return true;
}

/* Whether @v was given out: to an earlier layer, or to an earlier column of layer @which. */
static bool is_used(const struct engram *g, uint32_t which, uint32_t col, uint64_t v)
{
	for (uint32_t l = 0; l <= which; l++) {
		uint32_t n = l < which ? g->cols : col;
		for (uint32_t k = 0; k < n; k++) {
			if (g->prime[l][k] == v)
				return true;
		}
	}
	return false;
}

/* Each order starts at the beginning again and takes the next primes not used anywhere before. */
static void find_primes(const struct eng_conf *c, struct engram *g, uint32_t which)
{
	for (uint32_t col = 0; col < g->cols; col++) {
		uint64_t v = col % c->engram_heads == 0 ? c->engram_start
							: g->prime[which][col - 1] + 1;
		while (is_used(g, which, col, v) || !is_prime(v))
			v++;
		g->prime[which][col] = v;
		g->offset[which][col + 1] = g->offset[which][col] + v;
	}
}

int engram_constants(const struct eng_conf *c, struct engram *g, struct ds_err *err)
{
	memset(g, 0, sizeof(*g));
	g->conf = c;
	if (c->n_engram == 0)
		return 0;
	g->cols = (c->engram_orders - 1) * c->engram_heads;
	for (uint32_t i = 0; i < c->n_engram; i++) {
		find_primes(c, g, i);
		if (g->offset[i][g->cols] == c->engram_rows[i])
			continue;
		ds_err_set(err, DS_ERR_INPUT, 0, c->dir, "derive Engram constants");
		return ds_err_why(
			err,
			"engram_num_embeddings: layer %u has %llu rows, the primes from engram_vocab_size %llu sum to %llu",
			c->engram_layer[i], (unsigned long long)c->engram_rows[i],
			(unsigned long long)c->engram_start,
			(unsigned long long)g->offset[i][g->cols]);
	}
	return 0;
}

static int read_map(const struct eng_dir *d, struct engram *g, struct ds_err *err)
{
	const struct eng_conf *c = g->conf;
	size_t want = (size_t)c->vocab * 4;
	struct ds_buf b = { 0 };
	char obj[256];

	eng_dir_obj(d, MAP_FILE, obj, sizeof(obj));
	if (eng_dir_find(d, MAP_FILE) == NULL) {
		ds_err_set(err, DS_ERR_INPUT, ENOENT, obj, "read Engram token map");
		return ds_err_fix(err, "make it: dsengine-engram-map %s/tokenizer.json", c->dir);
	}
	if (eng_dir_read(d, MAP_FILE, want, &b, err) != 0)
		goto fail;
	if (b.len != want) {
		ds_err_set(err, DS_ERR_INPUT, 0, obj, "read Engram token map");
		ds_err_why(err, "%zu bytes where vocab_size %u needs %zu", b.len, c->vocab, want);
		goto fail;
	}
	if ((g->map = malloc(want)) == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, obj, "read Engram token map");
		goto fail;
	}
	for (uint32_t i = 0; i < c->vocab; i++) {
		const uint8_t *p = (const uint8_t *)b.data + (size_t)i * 4;
		uint32_t v = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
			     (uint32_t)p[3] << 24;
		if (v >= c->engram_classes) {
			ds_err_set(err, DS_ERR_INPUT, 0, obj, "read Engram token map");
			ds_err_why(err, "token %u has class %d, outside 0..%u", i, (int32_t)v,
				   c->engram_classes - 1);
			goto fail;
		}
		g->map[i] = (int32_t)v;
	}
	ds_buf_fini(&b);
	return 0;
fail:
	ds_buf_fini(&b);
	return -1;
}

int engram_open(const struct eng_conf *c, struct engram *g, struct ds_err *err)
{
	if (engram_constants(c, g, err) != 0)
		return -1;
	if (c->n_engram == 0)
		return 0;
	struct eng_dir *own = c->files == NULL ? eng_dir_open(c->dir, err) : NULL;
	const struct eng_dir *d = c->files == NULL ? own : c->files;
	int rc = d == NULL ? -1 : read_map(d, g, err);
	eng_dir_close(own);
	if (rc != 0)
		engram_close(g);
	return rc;
}

void engram_close(struct engram *g)
{
	free(g->map);
	g->map = NULL;
}

void engram_rows(const struct engram *g, uint32_t which, const uint32_t *tokens, uint32_t n,
		 uint64_t *row)
{
	const struct eng_conf *c = g->conf;
	uint64_t hash = (uint64_t)g->map[tokens[n - 1]] * c->engram_mult[which][0];

	for (uint32_t shift = 1; shift < c->engram_orders; shift++) {
		uint32_t token = shift < n ? tokens[n - 1 - shift] : c->engram_pad;
		hash ^= (uint64_t)g->map[token] * c->engram_mult[which][shift];
		for (uint32_t h = 0; h < c->engram_heads; h++) {
			uint32_t col = (shift - 1) * c->engram_heads + h;
			row[col] = hash % g->prime[which][col] + g->offset[which][col];
		}
	}
}
