/*
 * engram.h - n-gram hashing of the Engram layers: constants, token map, row ids (model.md 4.11).
 */
#ifndef ENG_ENGRAM_H
#define ENG_ENGRAM_H

#include "model.h"

#define ENGRAM_COLS_MAX 64

struct engram {
	const struct eng_conf *conf;
	uint32_t cols; /* (orders - 1) * heads */
	uint64_t prime[ENG_ENGRAM_MAX][ENGRAM_COLS_MAX];
	uint64_t offset[ENG_ENGRAM_MAX][ENGRAM_COLS_MAX + 1]; /* prefix sums; [cols] = table rows */
	int32_t *map;					      /* [vocab] token -> class; owned */
};

/** engram_constants() - primes and offsets by the rule of 4.11.2; refuses sums that differ from the config. */
int engram_constants(const struct eng_conf *c, struct engram *g, struct ds_err *err);
/**
 * engram_open() - constants and the token map engram_token_map.bin of the model directory.
 * An absent map is DS_ERR_INPUT and says what is missing; a class out of range is named.
 */
int engram_open(const struct eng_conf *c, struct engram *g, struct ds_err *err);
void engram_close(struct engram *g);

/**
 * engram_rows() - row ids of one position. @which: Engram layer index.
 * @tokens: the last ids ending at this position, newest last; @n: how many there are (>= 1, the start of text
 * when fewer than orders); @row: out [cols], offset included.
 */
void engram_rows(const struct engram *g, uint32_t which, const uint32_t *tokens, uint32_t n,
		 uint64_t *row);

#endif
