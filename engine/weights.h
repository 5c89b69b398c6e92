/*
 * weights.h - one rank's weights: read from the shards, cut, prepared for its kernel set.
 *
 * A rank reads only the bytes it keeps (model.md 7.1, design 4.3): row and column ranges of sharded
 * tensors are read by range, never whole. Every shape is checked against the config before use.
 */
#ifndef ENG_WEIGHTS_H
#define ENG_WEIGHTS_H

#include "model.h"

struct eng_layer {
	/*
	 * attention (model.md 4.6); heads and groups are this rank's. A rank without groups (fewer
	 * groups than leaves) has NULL in sink, wq_b, wo_a and wo_b.
	 */
	float *sink; /* [heads] */
	struct kern_weight *wq_a, *wq_b, *wkv;
	float *q_norm, *kv_norm, *attn_norm, *ffn_norm;
	struct kern_weight **wo_a; /* [groups]: o_rank x (heads per group * head_dim) */
	struct kern_weight *wo_b;  /* dim x (groups * o_rank), this rank's columns */
	struct kern_hc hc_attn, hc_ffn;
	/* mixture of experts (4.7); inner is this rank's */
	struct kern_weight *gate; /* [experts, dim], BF16 */
	float *gate_bias, *gate_bias_vl;
	struct kern_weight **w1, **w2,
		**w3; /* [experts]; entries NULL when this rank's inner is empty */
	struct kern_weight *s1, *s2, *s3; /* shared; NULL likewise */
	/* source layers only, else NULL */
	struct kern_weight *comp_kv, *comp_gate; /* comp_gate: ratio 2 only */
	float *comp_norm;
	struct kern_weight *index_wk;
	float *index_k_norm;
	struct kern_weight *index_wq, *index_weights; /* index sources */
	/* Engram layers only */
	int engram; /* index into the config's Engram layers, -1 = none */
	struct kern_weight *engram_wkv;
	float *engram_qk;	      /* [copies, dim] q_weight * k_weight in fp32 */
	uint8_t *table, *table_scale; /* this rank's columns: rows as stored; NULL when none */
	uint64_t table_row0;	      /* first table row held */
};

struct eng_weights {
	const struct eng_conf *conf;
	const struct kern_ops *ops;
	struct eng_shard shard;
	struct eng_layer *layer;    /* [n_layers] */
	uint16_t *embed;	    /* [vocab, dim] bf16 as stored */
	float *norm;		    /* [dim] */
	struct kern_weight *head;   /* [vocab0, vocab_end) x dim, BF16; NULL when empty */
	uint64_t bytes, read_bytes; /* resident; tensor bytes read from files */
	struct eng_mem *mem;	    /* private: what to free */
};

/**
 * eng_weights_load() - read @c->dir for one rank.
 * @w: out; free with eng_weights_free(), also after a failure (it leaves nothing behind itself)
 * Return: 0; -1 DS_ERR_INPUT naming file, tensor and reason; DS_ERR_NOMEM.
 */
int eng_weights_load(const struct eng_conf *c, const struct eng_shard *s,
		     const struct kern_ops *ops, struct eng_weights *w, struct ds_err *err);
void eng_weights_free(struct eng_weights *w);

/**
 * eng_digest() - the model digest of design.md 4.1 as 64 hex digits: SHA-256 of the canonical config,
 * sorted (name, dtype, shape), tokenizer.json, token map, shard sizes, the bytes of every tensor of at most 64 KiB and the
 * first 4 KiB of every other. The same on every rank of the same model. @hex: [65].
 */
int eng_digest(const struct eng_conf *c, char *hex, struct ds_err *err);

#endif
