/*
 * model.h - the shape of a checkpoint: config.json as numbers, checked once, early.
 *
 * Everything else may rely on what eng_conf_load() let through. Refusals name the field.
 * Source of names and meanings: the release's config.json (model.md 1.2).
 */
#ifndef ENG_MODEL_H
#define ENG_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "kernels.h"
#include "modeldir.h"

#define ENG_LAYERS_MAX	64
#define ENG_SOURCES_MAX 16
#define ENG_ENGRAM_MAX	4
#define ENG_ORDERS_MAX	8
#define ENG_COPIES_MAX	8

struct eng_conf {
	char dir[4096]; /* model directory as given */
	char name[128]; /* its last component: the model's default served name */
	/* the directory's open files, borrowed from eng_conf_read(); NULL: open below dir by name */
	const struct eng_dir *files;
	uint32_t vocab, dim, inner, n_layers, n_heads, head_dim, rope_dim, q_rank;
	uint32_t o_groups, o_rank, window, max_pos;
	uint32_t n_experts, topk;
	float route_scale, limit, norm_eps;
	uint32_t ratio[ENG_LAYERS_MAX]; /* compress_ratios: 0, 1 or 2 */
	int32_t kv_source
		[ENG_LAYERS_MAX]; /* nearest source layer at or below; -1 = none (ratio 0) */
	int32_t index_source[ENG_LAYERS_MAX]; /* likewise for selections */
	uint32_t index_heads, index_dim, index_topk;
	int32_t cand_layer; /* candidate_source_layer_id, -1 = none */
	uint32_t cand_blocks, cand_size;
	uint32_t copies, hc_iters;
	float hc_eps;
	double rope_theta, crope_theta, yarn_factor, yarn_fast, yarn_slow, yarn_orig;
	uint32_t n_engram, engram_layer[ENG_ENGRAM_MAX];
	uint64_t engram_rows[ENG_ENGRAM_MAX]; /* engram_num_embeddings */
	uint32_t engram_orders;		      /* engram_max_ngram_size: n-grams 2..orders */
	uint32_t engram_heads, engram_dim, engram_classes, engram_pad;
	uint64_t engram_start; /* engram_vocab_size: where the search for primes starts */
	uint64_t engram_mult[ENG_ENGRAM_MAX][ENG_ORDERS_MAX];
	uint32_t n_draft; /* num_nextn_predict_layers: present, not run without drafts */
	uint32_t bos, eos, pad;
	int32_t image_token; /* -1 = none */
};

/* Read DIR/config.json. Return: 0; -1 with DS_ERR_INPUT naming file and field. */
int eng_conf_load(const char *dir, struct eng_conf *c, struct ds_err *err);
/* The same from a directory opened before (as root, say); @d must outlive every use of @c. */
int eng_conf_read(const struct eng_dir *d, struct eng_conf *c, struct ds_err *err);
/* The same from memory, for tests and fuzzing; @file names it. */
int eng_conf_parse(const char *file, const char *text, size_t len, struct eng_conf *c,
		   struct ds_err *err);

/* How one rank cuts the sharded tensors (design 4.3). All ranges are [first, end). */
struct eng_shard {
	uint32_t rank, world, leaves; /* leaves of the class: 4 or 3 */
	uint32_t leaf0, leaf_end;     /* leaves of this rank */
	uint32_t group0, group_end;   /* output groups = heads group*H/G.. */
	uint32_t head0, head_end;     /* query heads */
	uint32_t inner0, inner_end;   /* channels of the experts' inner width */
	uint32_t n_leaf;	      /* leaves of this rank that are not empty, experts */
	uint32_t leaf_inner[KERN_LEAVES_MAX + 1]; /* their cuts, relative to inner0 */
	uint32_t vocab0, vocab_end;		  /* rows of the head matrix */
	uint32_t col0, col_end;			  /* Engram columns, of (orders - 1) * heads */
};

/*
 * Return: 0; -1: DS_ERR_USAGE when @leaves does not fit @world (4 with 1, 2, 4; 3 with 1, 3);
 * DS_ERR_INPUT naming num_attention_heads, o_groups and the world when the model cannot be cut so.
 */
int eng_shard_plan(const struct eng_conf *c, uint32_t rank, uint32_t world, uint32_t leaves,
		   struct eng_shard *s, struct ds_err *err);

#endif
