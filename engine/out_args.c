/*
 * out_args.c - parameters of a tool call as one JSON object.
 *
 * Owns what a value means: string or JSON, and where a schema knows better than the tag. Rules of
 * repair: serving.md C.2, rule 8. Never fails on what a model writes: a value that is no JSON is a string.
 */
#include "out_args.h"

#include <string.h>

#include "json.h"
#include "pyjson.h"

enum {
	T_STRING = 1,
	T_INTEGER = 2,
	T_NUMBER = 4, /* integers as well */
	T_BOOLEAN = 8,
	T_ARRAY = 16,
	T_OBJECT = 32,
	T_NULL = 64,
	T_ANY = 127
};

/* ------------------------------------- schema ------------------------------------- */

static unsigned int type_named(const json_t *name)
{
	static const struct {
		const char *name;
		unsigned int types;
	} names[] = {
		{ "string", T_STRING },
		{ "integer", T_INTEGER },
		{ "number", T_NUMBER | T_INTEGER },
		{ "boolean", T_BOOLEAN },
		{ "array", T_ARRAY },
		{ "object", T_OBJECT },
		{ "null", T_NULL },
	};

	for (size_t i = 0; json_is_string(name) && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(json_string_value(name), names[i].name) == 0)
			return names[i].types;
	return T_ANY;
}

static unsigned int type_of(const json_t *v)
{
	if (json_is_string(v))
		return pyjson_integer(v) != NULL ? T_INTEGER : T_STRING;
	return json_is_integer(v)   ? T_INTEGER
	       : json_is_real(v)    ? T_NUMBER
	       : json_is_boolean(v) ? T_BOOLEAN
	       : json_is_array(v)   ? T_ARRAY
	       : json_is_object(v)  ? T_OBJECT
				    : T_NULL;
}

/* Types that a schema allows: its "type", else its alternatives or enumerated values; what it does not say is any. */
static unsigned int types_of(const json_t *schema, int depth)
{
	static const char *const lists[] = { "anyOf", "oneOf" };
	const json_t *type = json_object_get(schema, "type"), *v;
	unsigned int types = 0;

	if (json_is_string(type))
		return type_named(type);
	for (size_t i = 0; i < json_array_size(type); i++)
		types |= type_named(json_array_get(type, i));
	if (types != 0)
		return types;
	for (size_t k = 0; depth > 0 && k < sizeof(lists) / sizeof(lists[0]); k++) {
		v = json_object_get(schema, lists[k]);
		for (size_t i = 0; i < json_array_size(v); i++)
			types |= types_of(json_array_get(v, i), depth - 1);
		if (types != 0)
			return types;
	}
	v = json_object_get(schema, "enum");
	for (size_t i = 0; i < json_array_size(v); i++)
		types |= type_of(json_array_get(v, i));
	return types != 0 ? types : T_ANY;
}

/* ------------------------------------- pieces ------------------------------------- */

/* In front of a value: the object's beginning, or what parts it from the value before. */
static void open_value(const struct out_args *a, struct ds_buf *out)
{
	ds_buf_puts(out, a->n > 1 ? ", \"" : "{\"");
	ds_json_escape(out, a->key.data, a->key.len);
	ds_buf_puts(out, "\": ");
}

static void put_string(struct ds_buf *out, const struct ds_buf *s)
{
	ds_buf_putc(out, '"');
	ds_json_escape(out, s->data, s->len);
	ds_buf_putc(out, '"');
}

/* A number such as 1e999 is JSON, but nobody can read it: it is left a string, as other text is. */
static json_t *parse(const struct ds_buf *s)
{
	json_error_t at;

	return s->len == 0 ? NULL : pyjson_load(s->data, s->len, JSON_DECODE_ANY, &at);
}

/* Whether the held value goes out as the JSON that it is. */
static bool is_json(const struct out_args *a, const json_t *v)
{
	if (v == NULL)
		return false;
	if (a->form == OUT_FORM_STRING && (a->types & T_STRING) != 0)
		return false;
	return a->form == OUT_FORM_JSON || (type_of(v) & a->types) != 0;
}

static void put_held(struct out_args *a, struct ds_buf *out)
{
	json_t *v = parse(&a->value);

	open_value(a, out);
	if (is_json(a, v))
		ds_buf_put(out, a->value.data, a->value.len);
	else
		put_string(out, &a->value);
	json_decref(v);
	ds_buf_reset(&a->value);
}

/* -------------------------------------- calls ------------------------------------- */

void out_args_begin(struct out_args *a, const json_t *function)
{
	struct ds_buf key = a->key, value = a->value, piece = a->piece;

	ds_buf_reset(&key);
	ds_buf_reset(&value);
	ds_buf_reset(&piece);
	*a = (struct out_args){ .key = key, .value = value, .piece = piece, .failed = a->failed };
	a->properties = json_object_get(json_object_get(function, "parameters"), "properties");
}

/* A model that wraps all its arguments does so under one of these names. */
static bool may_wrap(const struct out_args *a)
{
	return a->n == 1 && json_is_object(a->properties) && a->key.len > 0 &&
	       (strcmp(a->key.data, "arguments") == 0 || strcmp(a->key.data, "input") == 0) &&
	       json_object_get(a->properties, a->key.data) == NULL;
}

static void put_chars(struct out_args *a, struct ds_buf *out)
{
	if (a->held)
		ds_buf_put(&a->value, a->piece.data, a->piece.len);
	else
		ds_json_escape(out, a->piece.data, a->piece.len);
	a->failed |= a->piece.failed || a->value.failed;
	ds_buf_reset(&a->piece);
}

void out_args_key(struct out_args *a, const char *key, size_t len, enum out_form form,
		  struct ds_buf *out)
{
	const json_t *schema;

	if (a->wrapper) { /* it was not the only one */
		a->n = 1;
		put_held(a, out);
	}
	ds_buf_reset(&a->key);
	ds_buf_put(&a->key, key, len);
	a->failed |= a->key.failed;
	a->n++;
	a->form = form;
	a->chars = (struct tok_stream){ 0 };
	schema = a->key.len > 0 ? json_object_get(a->properties, a->key.data) : NULL;
	a->types = types_of(schema, 4);
	a->wrapper = may_wrap(a);
	a->held = a->wrapper || form != OUT_FORM_STRING || (a->types & T_STRING) == 0;
	if (!a->held) {
		open_value(a, out);
		ds_buf_putc(out, '"');
	}
}

void out_args_put(struct out_args *a, const char *bytes, size_t len, struct ds_buf *out)
{
	tok_stream_put(&a->chars, bytes, len, &a->piece);
	put_chars(a, out);
}

void out_args_value(struct out_args *a, struct ds_buf *out)
{
	tok_stream_end(&a->chars, &a->piece);
	put_chars(a, out);
	if (!a->held)
		ds_buf_putc(out, '"');
	else if (!a->wrapper)
		put_held(a, out);
}

void out_args_close(struct out_args *a, struct ds_buf *out)
{
	json_t *v = a->wrapper ? parse(&a->value) : NULL;

	if (json_is_object(v)) {
		ds_buf_put(out, a->value.data, a->value.len);
	} else {
		if (a->wrapper)
			put_held(a, out);
		ds_buf_puts(out, a->n == 0 ? "{}" : "}");
	}
	json_decref(v);
}

void out_args_fini(struct out_args *a)
{
	ds_buf_fini(&a->key);
	ds_buf_fini(&a->value);
	ds_buf_fini(&a->piece);
	*a = (struct out_args){ 0 };
}
