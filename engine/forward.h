/*
 * forward.h - inside the engine: one rank's state, its working memory and the sublayers of a run.
 *
 * A *run* is n tokens at positions p0 .. p0 + n - 1. Its sublayers follow model.md 4.1 in order;
 * every function here works on all rows of the run at once and leaves its result in struct eng_work.
 * Only engine.c, forward.c, the sublayer files and tests include this header.
 *
 * Threads: everything here belongs to the rank's compute thread.
 */
#ifndef ENG_FORWARD_H
#define ENG_FORWARD_H

#include <stdio.h>

#include "engine.h"
#include "engram.h"
#include "session.h"
#include "weights.h"

/* Working memory of a run, sized once for rows = the longest run. Shapes use n <= rows. */
struct eng_work {
	uint32_t rows, n; /* capacity; rows of the present run */
	uint32_t *pos;	  /* [n] absolute positions */
	float *x;	  /* [n, C, D] the stream */
	float *mix;	  /* [n, C] A: the input mix that the previous sublayer predicted */
	float *pre;	  /* [n, C] prediction for the next sublayer */
	float *post;	  /* [n, C] */
	float *comb;	  /* [n, C, C] */
	float *u, *y;	  /* [n, D] input and output of a sublayer */
	float *part[KERN_LEAVES_MAX]; /* [n, D] fp32 leaf partials of this rank */
	float *peer[TP_WORLD_MAX];    /* [n, D] partials of the others; NULL at world 1 */
	struct kern_act act_u, act_plain, act_qr; /* [n, D], [n, D], [n, q_rank] */
	/* attention */
	float *qr;	  /* [n, q_rank] */
	float *q, *heads; /* [n, H of this rank, W] queries; outputs */
	float *win;	  /* [n, W] window latents */
	float *grouped;	  /* [n, o_rank * groups of one leaf] */
	struct kern_act act_head, act_group;
	float *kv, *score;   /* [1 + n, W] compressor; row 0 is the half group before the run */
	float *latent;	     /* [n, W] */
	float *key;	     /* [n, index_dim] */
	uint32_t *entry_pos; /* [n] */
	struct kern_act act_latent;
	float *iq, *iw;	   /* [n, index_heads, index_dim], [n, index_heads] */
	uint32_t *visible; /* [n] */
	int32_t *sel;	   /* [n, index_topk] the selection in force; later layers reuse it */
	int32_t *blocks;   /* [n, cand_blocks] candidates of this run */
	float *index_scratch;
	/* mixture of experts */
	float *router; /* [n, experts] */
	int32_t *ids;  /* [n, topk] */
	float *gain;   /* [n, topk] routing weights */
	float *moe_scratch;
	/* Engram */
	uint64_t *row_ids;		/* [n, cols] of the layer last injected */
	uint8_t *rows_of[TP_WORLD_MAX]; /* [n, columns of that rank, row bytes] */
	float *looked;			/* [n, cols * engram_dim] */
	struct kern_act act_looked;
	float *ekv; /* [n, (C + 1) * D] */
	/* head */
	float *logits; /* [vocab rows of this rank] */
	uint8_t *mem;  /* owns all of it */
	size_t bytes;
};

/* First sublayer of a run with a value that is not finite. */
struct eng_bad {
	int32_t stage; /* 2 * layer + (0 attention, 1 experts); -1 = none */
	bool own;      /* in this rank's own share, before anything was received */
};

struct eng {
	const struct eng_conf *conf;
	const struct kern_ops *ops;
	struct kern_ctx ctx;
	uint32_t rank, world, leaves;
	struct eng_shard shard[TP_WORLD_MAX]; /* of every rank */
	struct eng_weights w;
	struct engram engram;
	struct kern_rope rope[2]; /* plain layers; layers with compressed KV */
	struct eng_session seq;
	struct eng_work work;
	struct eng_bad bad;
	struct tp *tp; /* borrowed; NULL at world 1 or while there is no group */
	uint64_t touched_bytes;
	/* rank 0: layer hashes of one run, [rows, layers, 32], and where they go */
	uint8_t *digests;
	FILE *hash_file;
	/* tests: called after every layer with the state in @work; and the sum in another order */
	void (*after_layer)(struct eng *e, uint32_t layer, void *arg);
	void *after_layer_arg;
	bool reassociate;
};

static inline const struct eng_shard *eng_own(const struct eng *e)
{
	return &e->shard[e->rank];
}

/** eng_work_init() - allocate the working memory for runs of @rows. Return: 0; -1 DS_ERR_NOMEM. */
int eng_work_init(struct eng *e, uint32_t rows, struct ds_err *err);
void eng_work_fini(struct eng_work *w);

/**
 * eng_forward() - one run: @tokens [n] behind the sequence, which grows by n.
 * @n: 1..work.rows; room and ids were checked by the caller
 * @want_logits: compute this rank's rows of the head for the last token into work.logits
 * On failure the sequence is not to be used further. e->bad tells of values that are not finite.
 * Return: 0; -1 DS_ERR_PEER.
 */
int eng_forward(struct eng *e, const uint32_t *tokens, uint32_t n, bool want_logits,
		struct ds_err *err);

/*
 * Sublayers: work.u [n, D], normed -> work.y [n, D], rounded, summed over all ranks. They read
 * work.pos and extend the caches of layer @l. Return: 0; -1 DS_ERR_PEER.
 */
int eng_attention(struct eng *e, uint32_t l, uint32_t n, struct ds_err *err);
int eng_experts(struct eng *e, uint32_t l, uint32_t n, struct ds_err *err);

/** eng_inject() - Engram: adds what layer @l looked up to the stream work.x, rows at p0.. (4.11). */
int eng_inject(struct eng *e, uint32_t l, uint32_t p0, uint32_t n, struct ds_err *err);

/**
 * eng_reduce() - the canonical sum (design.md 4.3) of the leaf partials of all ranks into work.y.
 * @units: what leaves are cut from (output groups, or 32-channel groups of the inner width)
 * @stage: for eng_bad. work.part holds this rank's leaves that are not empty, in order.
 * Return: 0; -1 DS_ERR_PEER.
 */
int eng_reduce(struct eng *e, uint32_t units, int32_t stage, uint32_t n, struct ds_err *err);

/** eng_leaves_used() - how many leaves of @rank are not empty when @units are cut. */
uint32_t eng_leaves_used(const struct eng *e, uint32_t rank, uint32_t units);

#endif
