/*
 * step.h - the messages between rank 0 and the ranks that follow it, and what makes one acceptable.
 *
 * A step says what to run from which position; a report says how it went. Peers are authenticated,
 * but a rank still believes nothing that would index outside its own memory.
 */
#ifndef ENG_STEP_H
#define ENG_STEP_H

#include <stddef.h>
#include <stdint.h>

/* The engine's own limit of rows in one run; prefill longer than this goes in chunks. */
#define ENG_RUN_MAX 512

#define STEP_MAGIC   0x50545344u /* "DSTP" */
#define STEP_VERSION 1

enum step_op {
	STEP_RUN = 1, /* n tokens from position pos */
	STEP_STATS,   /* answer with struct eng_stats */
};

/* In memory order: ranks refuse to form a group across byte orders (eng_state_text()). */
struct step {
	uint32_t magic;
	uint16_t version, op;
	uint32_t pos, n;	     /* of STEP_RUN */
	uint32_t want_logits;	     /* 0 or 1 */
	uint32_t token[ENG_RUN_MAX]; /* only n of them are sent */
};

#define STEP_HEAD offsetof(struct step, token)

struct step_report {
	uint32_t magic;
	int32_t stage; /* first stage with a value that is not finite; -1 = none */
	uint32_t own;  /* 1: in that rank's own share */
	uint32_t pos;  /* tokens in the sequence after the step */
};

/* What a rank can do, and where it stands. */
struct step_limits {
	uint32_t rows, max_ctx, vocab, pos;
};

/** step_fault() - what is wrong with the @len bytes at @s. Returns view (static); NULL = nothing. */
const char *step_fault(const struct step *s, size_t len, const struct step_limits *l);

#endif
