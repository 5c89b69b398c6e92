/*
 * json.h - a JSON writer: text out, in order, nothing read.
 *
 * Writes into a ds_buf. Commas and nesting are its business; a wrong sequence (a value without a
 * key inside an object) is our own mistake and asserts. Reading JSON is jansson's job elsewhere.
 */
#ifndef DS_JSON_H
#define DS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define DS_JSON_DEPTH 32

struct ds_json {
	struct ds_buf *out; /* borrowed until the last call */
	int depth;
	char kind[DS_JSON_DEPTH]; /* 'o' or 'a' per level */
	bool any[DS_JSON_DEPTH];  /* something was written on this level */
	bool key;		  /* a key was written, its value is due */
	int indent;		  /* spaces per level; 0 = one line */
};

/** ds_json_init() - start writing into @out. @indent: 0 for one line, 2 for people. */
void ds_json_init(struct ds_json *j, struct ds_buf *out, int indent);
void ds_json_object(struct ds_json *j); /* { */
void ds_json_array(struct ds_json *j);	/* [ */
void ds_json_end(struct ds_json *j);	/* closes the innermost of the two */
void ds_json_key(struct ds_json *j, const char *key);
/** ds_json_str() - a string; NULL writes null. Bytes that are not UTF-8 become U+FFFD. */
void ds_json_str(struct ds_json *j, const char *s);
void ds_json_strn(struct ds_json *j, const char *s, size_t len);
/** ds_json_escape() - append what stands between a string's quotes; for one that comes in pieces. */
void ds_json_escape(struct ds_buf *out, const char *s, size_t len);
void ds_json_int(struct ds_json *j, int64_t v);
void ds_json_uint(struct ds_json *j, uint64_t v);
/** ds_json_num() - a number with up to @digits significant digits; NaN and infinities write null. */
void ds_json_num(struct ds_json *j, double v, int digits);
void ds_json_bool(struct ds_json *j, bool v);
void ds_json_null(struct ds_json *j);
/** ds_json_raw() - @text is already JSON (a value printed by jansson, a number kept as text). */
void ds_json_raw(struct ds_json *j, const char *text);

/* Key and value in one call. */
void ds_json_kstr(struct ds_json *j, const char *key, const char *s);
void ds_json_kint(struct ds_json *j, const char *key, int64_t v);
void ds_json_kuint(struct ds_json *j, const char *key, uint64_t v);
void ds_json_knum(struct ds_json *j, const char *key, double v, int digits);
void ds_json_kbool(struct ds_json *j, const char *key, bool v);
void ds_json_knull(struct ds_json *j, const char *key);

/**
 * ds_utf8_len() - length in bytes, 1 to 4, of the valid UTF-8 sequence at @s.
 * @s: at least @len readable bytes; @len: 1 or more.
 * Return: 1..4; 0 if the bytes are invalid; -1 if they are a valid beginning cut off by @len.
 * Overlong forms, surrogates and values above U+10FFFF are invalid (RFC 3629).
 */
int ds_utf8_len(const char *s, size_t len);

#endif
