/*
 * pyjson.c - JSON text of Python's json module from jansson's values.
 *
 * Owns the dialect: one byte of difference in a tool's schema is a different prompt. jansson keeps
 * what matters (order of keys, integers and floats apart) but for integers beyond 64 bits, which
 * are carried as marked strings.
 */
#include "pyjson.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In front of the digits; as it is written in JSON text, and as it is then read. */
#define MARK_TEXT "\"\\u0000int "
#define MARK	  "\0int "
#define MARK_LEN  5

/* Python's own limit on the digits of an integer. */
#define DIGITS_MAX 4300

/* --------------------------------------- reading --------------------------------------- */

/* The string that begins at @i: index behind its closing quote. */
static size_t skip_string(const char *text, size_t len, size_t i)
{
	for (i++; i < len && text[i] != '"'; i++)
		if (text[i] == '\\')
			i++;
	return i < len ? i + 1 : len;
}

static size_t number_end(const char *text, size_t len, size_t i)
{
	while (i < len && text[i] != '\0' && strchr("+-.0123456789eE", text[i]) != NULL)
		i++;
	return i;
}

/* Whether [from, to) is an integer that 64 bits do not hold. */
static bool too_long(const char *text, size_t from, size_t to)
{
	char s[24];
	size_t n = to - from, digits = n - (text[from] == '-');

	if (memchr(text + from, '.', n) != NULL || memchr(text + from, 'e', n) != NULL ||
	    memchr(text + from, 'E', n) != NULL || digits < 19 || digits > DIGITS_MAX)
		return false;
	if (digits > 19)
		return true;
	memcpy(s, text + from, n);
	s[n] = '\0';
	errno = 0;
	(void)strtoll(s, NULL, 10);
	return errno == ERANGE;
}

/* The same text with every such integer as a marked string. */
static void mark_integers(const char *text, size_t len, struct ds_buf *out)
{
	size_t done = 0;

	for (size_t i = 0; i < len;) {
		if (text[i] == '"') {
			i = skip_string(text, len, i);
		} else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
			size_t to = number_end(text, len, i);
			if (too_long(text, i, to)) {
				ds_buf_put(out, text + done, i - done);
				ds_buf_puts(out, MARK_TEXT);
				ds_buf_put(out, text + i, to - i);
				ds_buf_putc(out, '"');
				done = to;
			}
			i = to;
		} else {
			i++;
		}
	}
	ds_buf_put(out, text + done, len - done);
}

json_t *pyjson_load(const char *text, size_t len, size_t flags, json_error_t *at)
{
	json_t *v = json_loadb(text, len, flags | JSON_ALLOW_NUL, at);
	struct ds_buf marked = { 0 };

	if (v != NULL || json_error_code(at) != json_error_numeric_overflow)
		return v;
	mark_integers(text, len, &marked);
	if (!marked.failed)
		v = json_loadb(marked.data, marked.len, flags | JSON_ALLOW_NUL, at);
	else
		at->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory;
	ds_buf_fini(&marked);
	return v;
}

const char *pyjson_integer(const json_t *v)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);

	if (s == NULL || n <= MARK_LEN || memcmp(s, MARK, MARK_LEN) != 0)
		return NULL;
	s += MARK_LEN;
	n -= MARK_LEN;
	size_t sign = s[0] == '-';
	bool digits = n > sign && s[sign] != '0' && strspn(s + sign, "0123456789") == n - sign;
	return digits && too_long(s, 0, n) ? s : NULL;
}

/* --------------------------------------- writing --------------------------------------- */

static void put_string(const char *s, size_t len, struct ds_buf *out)
{
	static const char named[] = "\b\f\n\r\t\"\\", as[] = "bfnrt\"\\";
	size_t done = 0;

	ds_buf_putc(out, '"');
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];
		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		ds_buf_put(out, s + done, i - done);
		done = i + 1;
		const char *at = c != 0 ? strchr(named, c) : NULL;
		if (at != NULL)
			ds_buf_printf(out, "\\%c", as[at - named]);
		else
			ds_buf_printf(out, "\\u%04x", c);
	}
	ds_buf_put(out, s + done, len - done);
	ds_buf_putc(out, '"');
}

/* @x in @n significant digits, as "d.ddde+xx". */
static bool digits_give(double x, int n, char *s, size_t size)
{
	snprintf(s, size, "%.*e", n - 1, x);
	return strtod(s, NULL) == x;
}

/*
 * The next longer number of as many digits. At a power of two the neighbours of a double are not equally
 * far, so that the nearest decimal may miss it where the one above does not.
 */
static bool next_gives(double x, char *s)
{
	char *e = strchr(s, 'e'), *p = e - 1;

	for (; p >= s && (*p == '9' || *p == '.'); p--)
		if (*p == '9')
			*p = '0';
	if (p < s || *p == '-')
		return false; /* all nines: one digit fewer would have done */
	++*p;
	return strtod(s, NULL) == x;
}

/* The fewest digits that give @x back, and of those the nearest. */
static void shortest(double x, char *s, size_t size)
{
	/* 15 digits always survive a normal double, so fewer are the same with zeros at the end. */
	for (int n = fabs(x) < DBL_MIN ? 1 : 15; n < 17; n++)
		if (digits_give(x, n, s, size) || (n < 17 && next_gives(x, s)))
			return;
	digits_give(x, 17, s, size);
}

/* Source of the form: float.__repr__ of Python 3. */
static void put_real(double x, struct ds_buf *out)
{
	char s[40], digits[24] = "0";
	int n = 0, point;

	shortest(x, s, sizeof(s));
	for (const char *p = s; *p != 'e'; p++)
		if (*p >= '0' && *p <= '9')
			digits[n++] = *p;
	while (n > 1 && digits[n - 1] == '0')
		n--;
	point = (int)strtol(strchr(s, 'e') + 1, NULL, 10) + 1; /* digits in front of the point */
	if (s[0] == '-')
		ds_buf_putc(out, '-');
	if (point > 16 || point < -3) {
		ds_buf_printf(out, "%c%s%.*se%+03d", digits[0], n > 1 ? "." : "", n - 1, digits + 1,
			      point - 1);
	} else if (point <= 0) {
		ds_buf_printf(out, "0.%.*s%.*s", -point, "000", n, digits);
	} else {
		for (int i = 0; i < point; i++)
			ds_buf_putc(out, i < n ? digits[i] : '0');
		ds_buf_printf(out, ".%.*s", n > point ? n - point : 1,
			      n > point ? digits + point : "0");
	}
}

static void put_object(const json_t *v, struct ds_buf *out)
{
	const char *sep = "{";
	void *at;

	for (at = json_object_iter((json_t *)v); at != NULL;
	     at = json_object_iter_next((json_t *)v, at)) {
		ds_buf_puts(out, sep);
		put_string(json_object_iter_key(at), json_object_iter_key_len(at), out);
		ds_buf_puts(out, ": ");
		pyjson_dump(json_object_iter_value(at), out);
		sep = ", ";
	}
	ds_buf_puts(out, json_object_size(v) > 0 ? "}" : "{}");
}

static void put_array(const json_t *v, struct ds_buf *out)
{
	ds_buf_putc(out, '[');
	for (size_t i = 0; i < json_array_size(v); i++) {
		if (i > 0)
			ds_buf_puts(out, ", ");
		pyjson_dump(json_array_get(v, i), out);
	}
	ds_buf_putc(out, ']');
}

/* As deep as jansson's parser lets a value be. */
void pyjson_dump(const json_t *v, struct ds_buf *out)
{
	const char *integer;

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		put_object(v, out);
		break;
	case JSON_ARRAY:
		put_array(v, out);
		break;
	case JSON_STRING:
		if ((integer = pyjson_integer(v)) != NULL)
			ds_buf_puts(out, integer);
		else
			put_string(json_string_value(v), json_string_length(v), out);
		break;
	case JSON_INTEGER:
		ds_buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		break;
	case JSON_REAL:
		put_real(json_real_value(v), out);
		break;
	case JSON_TRUE:
		ds_buf_puts(out, "true");
		break;
	case JSON_FALSE:
		ds_buf_puts(out, "false");
		break;
	case JSON_NULL:
		ds_buf_puts(out, "null");
		break;
	}
}
