/*
 * tokenizer.h - text to ids and back: the byte-level BPE of tokenizer.json.
 *
 * Immutable after tok_open(); any number of threads may encode at once.
 */
#ifndef ENG_TOKENIZER_H
#define ENG_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define TOK_FILE_BYTES_MAX (64 * 1024 * 1024)

struct tok;

/* A growing list of ids. Zero it to start; ids are owned (tok_ids_fini()). */
struct tok_ids {
	uint32_t *id;
	size_t n, cap;
};
int tok_ids_put(struct tok_ids *l, uint32_t id, struct ds_err *err);
void tok_ids_fini(struct tok_ids *l);

/** tok_open() - read a tokenizer.json. Returns owned (tok_close()); NULL: DS_ERR_INPUT, file and reason. */
struct tok *tok_open(const char *file, struct ds_err *err);
/** tok_parse() - the same from memory, for tests and fuzzing. */
struct tok *tok_parse(const char *file, const char *json, size_t len, struct ds_err *err);
void tok_close(struct tok *t);

/**
 * tok_encode() - append the ids of @text.
 * @specials: match added tokens as literal strings (leftmost, longest); false treats them as text
 * Any bytes are valid input. Return: 0; -1 DS_ERR_NOMEM.
 */
int tok_encode(const struct tok *t, const char *text, size_t len, bool specials,
	       struct tok_ids *out, struct ds_err *err);

/** tok_special() - id of the added token with exactly this text, or -1. */
int32_t tok_special(const struct tok *t, const char *text);
/** tok_is_special() - whether @id is an added token. */
bool tok_is_special(const struct tok *t, uint32_t id);
uint32_t tok_size(const struct tok *t); /* ids 0..size-1; some may be holes */
/** tok_bytes() - bytes of one token (an added token's text included). Returns view; NULL = no such id. */
const char *tok_bytes(const struct tok *t, uint32_t id, size_t *len);

/* Incremental detokeniser: bytes in, complete UTF-8 out (serving.md A.5). Zero it to start. */
struct tok_stream {
	char pending[4];
	size_t n;
};
/** tok_stream_put() - add one token's bytes; append what is complete to @out. Invalid bytes become U+FFFD. */
void tok_stream_put(struct tok_stream *s, const char *bytes, size_t len, struct ds_buf *out);
/** tok_stream_end() - an incomplete tail becomes one U+FFFD. */
void tok_stream_end(struct tok_stream *s, struct ds_buf *out);

#endif
