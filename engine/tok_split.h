/*
 * tok_split.h - private to the tokenizer: cutting text into the pieces that BPE never crosses.
 */
#ifndef ENG_TOK_SPLIT_H
#define ENG_TOK_SPLIT_H

#include <jansson.h>
#include <stddef.h>

#include "err.h"

struct tok_split;

/**
 * tok_split_open() - check the "pre_tokenizer" of a tokenizer.json and prepare its patterns.
 * @file: for messages
 * Immutable afterwards; any thread may run it. Returns owned (tok_split_close()); NULL:
 * DS_ERR_INPUT naming the part that is not the one we know, or DS_ERR_NOMEM.
 */
struct tok_split *tok_split_open(const char *file, const json_t *pre_tokenizer, struct ds_err *err);
void tok_split_close(struct tok_split *s);

/** A piece: @p is a view into the text, @n > 0 bytes. Return: 0 to go on, -1 to stop (err is set). */
typedef int tok_piece_fn(void *arg, const char *p, size_t n, struct ds_err *err);

/**
 * tok_split_run() - hand every piece of @text to @piece, in order; together they are the text.
 *
 * Any bytes are valid: a run of bytes that is not UTF-8 is one piece, and the text on both sides of
 * it is split as if it ended there. Return: 0; -1 from @piece, DS_ERR_NOMEM, or DS_ERR_BUG.
 */
int tok_split_run(const struct tok_split *s, const char *text, size_t len, tok_piece_fn *piece,
		  void *arg, struct ds_err *err);

#endif
