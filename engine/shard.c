/*
 * shard.c - which part of each sharded tensor a rank holds (design 4.3, "sharding follows").
 *
 * The cuts of the row-parallel sums come from leaves, which do not depend on the number of ranks;
 * a rank takes consecutive leaves. Vocabulary rows and Engram columns are not summed over, so they
 * are simply spread over the ranks.
 */
#include "model.h"

#include <string.h>

/* First and end unit of the leaves [leaf0, leaf_end); empty leaves lie at the end. */
static void leaf_span(uint32_t units, const struct eng_shard *s, uint32_t *first, uint32_t *end)
{
	uint32_t a, b;

	kern_leaf_range(units, s->leaves, s->leaf0, first, &b);
	kern_leaf_range(units, s->leaves, s->leaf_end - 1, &a, end);
}

static void cut_inner(const struct eng_conf *c, struct eng_shard *s)
{
	uint32_t units = c->inner / KERN_BLOCK, first, end;

	leaf_span(units, s, &first, &end);
	s->inner0 = first * KERN_BLOCK;
	s->inner_end = end * KERN_BLOCK;
	for (uint32_t leaf = s->leaf0; leaf < s->leaf_end; leaf++) {
		kern_leaf_range(units, s->leaves, leaf, &first, &end);
		if (first == end)
			break;
		s->leaf_inner[++s->n_leaf] = end * KERN_BLOCK - s->inner0;
	}
}

int eng_shard_plan(const struct eng_conf *c, uint32_t rank, uint32_t world, uint32_t leaves,
		   struct eng_shard *s, struct ds_err *err)
{
	bool four = leaves == 4 && (world == 1 || world == 2 || world == 4);
	bool three = leaves == 3 && (world == 1 || world == 3);

	if (!four && !three) {
		ds_err_set(err, DS_ERR_USAGE, 0, NULL, "cut the model");
		ds_err_why(err, "%u leaves do not fit a world of %u", leaves, world);
		return ds_err_fix(err, "4 leaves serve worlds 1, 2 and 4; 3 leaves worlds 1 and 3");
	}
	if (rank >= world) {
		ds_err_set(err, DS_ERR_USAGE, 0, NULL, "cut the model");
		return ds_err_why(err, "rank %u in a world of %u", rank, world);
	}
	if (c->n_heads % c->o_groups != 0 || c->o_groups < world) {
		ds_err_set(err, DS_ERR_INPUT, 0, c->dir, "cut the model");
		return ds_err_why(
			err,
			"num_attention_heads %u, o_groups %u, world %u: heads must be a multiple of groups, and groups at least the world",
			c->n_heads, c->o_groups, world);
	}
	memset(s, 0, sizeof(*s));
	s->rank = rank;
	s->world = world;
	s->leaves = leaves;
	s->leaf0 = rank * (leaves / world);
	s->leaf_end = s->leaf0 + leaves / world;
	leaf_span(c->o_groups, s, &s->group0, &s->group_end);
	s->head0 = s->group0 * (c->n_heads / c->o_groups);
	s->head_end = s->group_end * (c->n_heads / c->o_groups);
	cut_inner(c, s);

	uint32_t runs = (c->vocab + KERN_BLOCK - 1) / KERN_BLOCK;
	kern_leaf_range(runs, world, rank, &s->vocab0, &s->vocab_end);
	s->vocab0 *= KERN_BLOCK;
	s->vocab_end *= KERN_BLOCK;
	if (s->vocab0 > c->vocab)
		s->vocab0 = c->vocab;
	if (s->vocab_end > c->vocab)
		s->vocab_end = c->vocab;
	if (c->n_engram > 0)
		kern_leaf_range((c->engram_orders - 1) * c->engram_heads, world, rank, &s->col0,
				&s->col_end);
	return 0;
}
