/*
 * engine.h - a loaded model and one sequence: the whole boundary between serving and arithmetic.
 *
 * struct eng is one rank's share of the weights, its kernels and its group. Rank 0 drives: every
 * call below on rank 0 sends the step to the other ranks, which sit in eng_follow(). HTTP code never
 * sees a tensor, and the forward pass never sees a request.
 */
#ifndef ENG_ENGINE_H
#define ENG_ENGINE_H

#include "model.h"
#include "tp.h"

struct eng;

struct eng_open_args {
	const struct eng_conf *conf; /* borrowed for the life of the engine */
	const char *kernels;	     /* set name, NULL = best */
	enum kern_numerics numerics;
	uint32_t rank, world, leaves;
	uint32_t n_threads;	/* 0 = processors / ranks on this machine */
	uint32_t max_ctx;	/* positions per sequence; 0 = the model's */
	uint32_t prefill_chunk; /* most prompt tokens per run; 0 = the engine's own limit */
	struct tp *tp;		/* borrowed; NULL at world 1 */
	bool profile;		/* measure every operation: eng_profile() */
};

/** eng_open() - load this rank's weights. Returns owned (eng_close()); NULL names file, tensor, reason. */
struct eng *eng_open(const struct eng_open_args *a, struct ds_err *err);
void eng_close(struct eng *e);

/**
 * eng_state_text() - the "key=value" lines that ranks compare before they form a group, for
 * tp_conf.state: version, model digest, numerics, leaves, kernel set, constants, world, and the plan
 * (longest sequence and longest run). Of @a it takes what all ranks share; rank, threads and tp may
 * be left 0. Needs no loaded weights: call it before tp_open().
 */
int eng_state_text(const struct eng_open_args *a, char *out, size_t size, struct ds_err *err);

/** eng_set_tp() - the group this rank's steps run over; NULL while there is none. */
void eng_set_tp(struct eng *e, struct tp *tp);

/** eng_reset() - forget the sequence (all ranks). Rank 0 only. */
int eng_reset(struct eng *e, struct ds_err *err);

/**
 * eng_run() - append @n tokens behind the sequence and compute them (prefill in chunks, or decode).
 * @logits: [vocab] fp32 of the last token; NULL = not needed. Rank 0 only.
 * Return: 0; -1: DS_ERR_INPUT (an id outside the vocabulary, a sequence that would be too long),
 * DS_ERR_PEER (a rank was lost: the sequence is gone), DS_ERR_HOST (NaN: names layer and rank).
 */
int eng_run(struct eng *e, const uint32_t *tokens, uint32_t n, float *logits, struct ds_err *err);

/** eng_position() - tokens in the sequence. */
uint32_t eng_position(const struct eng *e);

/**
 * eng_follow() - ranks > 0: run what rank 0 sends until it closes in an orderly way.
 * @stop: polled; true ends. Return: 0; -1 DS_ERR_PEER when rank 0 was lost.
 */
int eng_follow(struct eng *e, bool (*stop)(void *), void *arg, struct ds_err *err);

/**
 * eng_hash_layers() - write one line "POSITION LAYER SHA256" per position and layer to @f (a FILE,
 * borrowed until the next call), the stream as little-endian fp32; NULL stops. Rank 0 only.
 * Return: 0; -1 DS_ERR_NOMEM.
 */
int eng_hash_layers(struct eng *e, void *f, struct ds_err *err);

struct eng_stats {
	uint64_t weight_bytes;	    /* of this rank, stored layout */
	uint64_t weight_read_bytes; /* bytes of tensor data read from files */
	uint64_t cache_bytes;
	uint64_t exchange_bytes[TP_KINDS]; /* payload sent by this rank */
	uint64_t touched_bytes;		   /* weight bytes one decoded token reads, this rank */
};
void eng_stats(const struct eng *e, struct eng_stats *s);
/** eng_stats_all() - of all ranks, [world]; rank 0 only (asks the others). */
int eng_stats_all(struct eng *e, struct eng_stats *s, struct ds_err *err);

/**
 * eng_profile() - print what the operations of this rank took since the last call or eng_open(), under
 * @title, to @f (a FILE); @wall_ms: of everything. Without eng_open_args.profile it does nothing.
 */
void eng_profile(struct eng *e, const char *title, double wall_ms, void *f);

const struct eng_conf *eng_model(const struct eng *e);

#endif
