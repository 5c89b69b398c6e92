/*
 * pyjson.h - JSON in and out as Python's json module has it, which is what the model was trained on.
 */
#ifndef ENG_PYJSON_H
#define ENG_PYJSON_H

#include <jansson.h>
#include <stdbool.h>

#include "buf.h"

/**
 * pyjson_load() - json_loadb() with JSON_ALLOW_NUL that also takes integers of more than 64 bits.
 *
 * Such an integer (schemas bound unsigned 64-bit fields by 18446744073709551615) becomes a string that only
 * pyjson_dump() and pyjson_integer() tell from others, so whoever wants a number of it refuses it by name. (A client that sends such a string itself
 * has its number printed without quotes, and nothing else.)
 * @flags: jansson's; @at: as json_loadb(); behind such an integer its column counts a few too many.
 * Return: owned (json_decref()); NULL. Threads: any thread.
 */
json_t *pyjson_load(const char *text, size_t len, size_t flags, json_error_t *at);

/** pyjson_integer() - view of the digits of such an integer, sign included; NULL = @v is something else. */
const char *pyjson_integer(const json_t *v);

/**
 * pyjson_dump() - append @v as json.dumps(v, ensure_ascii=False) writes it: ", " and ": " between, keys in
 * the order they came in, floats by their shortest digits (1.0, 1e-05), no escape that JSON does not ask for.
 */
void pyjson_dump(const json_t *v, struct ds_buf *out);

#endif
