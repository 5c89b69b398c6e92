/*
 * json.c - a JSON writer.
 */
#include "json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void ds_json_init(struct ds_json *j, struct ds_buf *out, int indent)
{
	*j = (struct ds_json){ .out = out, .indent = indent };
}

static void newline(struct ds_json *j)
{
	if (j->indent == 0)
		return;
	ds_buf_putc(j->out, '\n');
	for (int i = 0; i < j->depth * j->indent; i++)
		ds_buf_putc(j->out, ' ');
}

/* What has to stand in front of the next value or key. */
static void separate(struct ds_json *j, bool is_key)
{
	if (j->key) {
		assert(!is_key);
		j->key = false;
		return;
	}
	if (j->depth == 0)
		return;
	int top = j->depth - 1;
	assert((j->kind[top] == 'o') == is_key);
	if (j->any[top])
		ds_buf_puts(j->out, j->indent != 0 ? "," : ", ");
	j->any[top] = true;
	newline(j);
}

static void open_level(struct ds_json *j, char kind, char c)
{
	separate(j, false);
	assert(j->depth < DS_JSON_DEPTH);
	j->kind[j->depth] = kind;
	j->any[j->depth++] = false;
	ds_buf_putc(j->out, c);
}

void ds_json_object(struct ds_json *j)
{
	open_level(j, 'o', '{');
}

void ds_json_array(struct ds_json *j)
{
	open_level(j, 'a', '[');
}

void ds_json_end(struct ds_json *j)
{
	assert(j->depth > 0 && !j->key);
	bool any = j->any[--j->depth];
	if (any)
		newline(j);
	ds_buf_putc(j->out, j->kind[j->depth] == 'o' ? '}' : ']');
}

int ds_utf8_len(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	static const struct {
		unsigned char lead_lo, lead_hi, second_lo, second_hi;
		int len;
	} forms[] = {
		{ 0x00, 0x7f, 0x00, 0x00, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 },
		{ 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 },
		{ 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};
	for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
		if (p[0] < forms[f].lead_lo || p[0] > forms[f].lead_hi)
			continue;
		for (int i = 1; i < forms[f].len; i++) {
			if ((size_t)i >= len)
				return -1;
			unsigned char lo = i == 1 ? forms[f].second_lo : 0x80;
			unsigned char hi = i == 1 ? forms[f].second_hi : 0xbf;
			if (p[i] < lo || p[i] > hi)
				return 0;
		}
		return forms[f].len;
	}
	return 0;
}

void ds_json_escape(struct ds_buf *out, const char *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		unsigned char c = (unsigned char)s[i];
		if (c == '"' || c == '\\') {
			ds_buf_putc(out, '\\');
			ds_buf_putc(out, (char)c);
			i++;
		} else if (c < 0x20 || c == 0x7f) {
			static const char named[] = "btn?fr";
			if (c >= 8 && c <= 13 && c != 11) {
				ds_buf_putc(out, '\\');
				ds_buf_putc(out, named[c - 8]);
			} else {
				ds_buf_printf(out, "\\u%04x", c);
			}
			i++;
		} else {
			int n = ds_utf8_len(s + i, len - i);
			if (n > 0)
				ds_buf_put(out, s + i, (size_t)n);
			else
				ds_buf_puts(out, "\xef\xbf\xbd");
			i += n > 0 ? (size_t)n : 1;
		}
	}
}

static void quoted(struct ds_json *j, const char *s, size_t len)
{
	ds_buf_putc(j->out, '"');
	ds_json_escape(j->out, s, len);
	ds_buf_putc(j->out, '"');
}

void ds_json_key(struct ds_json *j, const char *key)
{
	separate(j, true);
	quoted(j, key, strlen(key));
	ds_buf_puts(j->out, ": ");
	j->key = true;
}

void ds_json_strn(struct ds_json *j, const char *s, size_t len)
{
	separate(j, false);
	quoted(j, s, len);
}

void ds_json_str(struct ds_json *j, const char *s)
{
	if (s == NULL)
		ds_json_null(j);
	else
		ds_json_strn(j, s, strlen(s));
}

void ds_json_int(struct ds_json *j, int64_t v)
{
	separate(j, false);
	ds_buf_printf(j->out, "%" PRId64, v);
}

void ds_json_uint(struct ds_json *j, uint64_t v)
{
	separate(j, false);
	ds_buf_printf(j->out, "%" PRIu64, v);
}

void ds_json_num(struct ds_json *j, double v, int digits)
{
	if (!isfinite(v)) {
		ds_json_null(j);
		return;
	}
	separate(j, false);
	ds_buf_printf(j->out, "%.*g", digits, v);
}

void ds_json_bool(struct ds_json *j, bool v)
{
	ds_json_raw(j, v ? "true" : "false");
}

void ds_json_null(struct ds_json *j)
{
	ds_json_raw(j, "null");
}

void ds_json_raw(struct ds_json *j, const char *text)
{
	separate(j, false);
	ds_buf_puts(j->out, text);
}

void ds_json_kstr(struct ds_json *j, const char *key, const char *s)
{
	ds_json_key(j, key);
	ds_json_str(j, s);
}

void ds_json_kint(struct ds_json *j, const char *key, int64_t v)
{
	ds_json_key(j, key);
	ds_json_int(j, v);
}

void ds_json_kuint(struct ds_json *j, const char *key, uint64_t v)
{
	ds_json_key(j, key);
	ds_json_uint(j, v);
}

void ds_json_knum(struct ds_json *j, const char *key, double v, int digits)
{
	ds_json_key(j, key);
	ds_json_num(j, v, digits);
}

void ds_json_kbool(struct ds_json *j, const char *key, bool v)
{
	ds_json_key(j, key);
	ds_json_bool(j, v);
}

void ds_json_knull(struct ds_json *j, const char *key)
{
	ds_json_key(j, key);
	ds_json_null(j);
}
