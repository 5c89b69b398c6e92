/*
 * ktext.c - the few text formats of the kernel and of systemd that the doctor reads.
 */
#include "ktext.h"

#include <ctype.h>
#include <string.h>

struct line {
	const char *s;
	size_t len;
};

/* Cuts the next line off [*p, end). Return: false at the end. */
static bool next_line(const char **p, const char *end, struct line *l)
{
	if (*p >= end)
		return false;
	const char *nl = memchr(*p, '\n', (size_t)(end - *p));
	const char *stop = nl != NULL ? nl : end;
	*l = (struct line){ *p, (size_t)(stop - *p) };
	*p = nl != NULL ? nl + 1 : end;
	return true;
}

static bool starts(const struct line *l, const char *key)
{
	size_t n = strlen(key);
	return l->len >= n && memcmp(l->s, key, n) == 0;
}

static void skip(struct line *l, size_t n)
{
	l->s += n;
	l->len -= n;
}

static void skip_space(struct line *l)
{
	while (l->len > 0 && (*l->s == ' ' || *l->s == '\t'))
		skip(l, 1);
}

/* Digits at the start of @l. Return: false if there are none or they overflow. */
static bool take_number(struct line *l, uint64_t *v)
{
	size_t n = 0;
	*v = 0;
	for (; n < l->len && isdigit((unsigned char)l->s[n]); n++)
		if (__builtin_mul_overflow(*v, 10u, v) ||
		    __builtin_add_overflow(*v, (uint64_t)(l->s[n] - '0'), v))
			return false;
	skip(l, n);
	return n > 0;
}

bool prep_kt_meminfo(const char *text, size_t len, const char *key, uint64_t *kb)
{
	struct line l;
	uint64_t v;
	size_t n = strlen(key);
	for (const char *p = text; next_line(&p, text + len, &l);) {
		if (!starts(&l, key) || l.len == n || l.s[n] != ':')
			continue;
		skip(&l, n + 1);
		skip_space(&l);
		if (!take_number(&l, &v) || l.len != 3 || memcmp(l.s, " kB", 3) != 0)
			return false;
		*kb = v;
		return true;
	}
	return false;
}

bool prep_kt_limit(const char *text, size_t len, const char *name, uint64_t *bytes)
{
	struct line l;
	uint64_t v = PREP_BYTES_INFINITE;
	size_t n = strlen(name);
	for (const char *p = text; next_line(&p, text + len, &l);) {
		if (!starts(&l, name) || l.len == n || l.s[n] != ' ')
			continue;
		skip(&l, n);
		skip_space(&l);
		if (!starts(&l, "unlimited") && !take_number(&l, &v))
			return false;
		*bytes = v;
		return true;
	}
	return false;
}

bool prep_kt_cmdline(const char *text, size_t len, const char *key, char *value, size_t size)
{
	bool found = false;
	size_t n = strlen(key);
	for (size_t i = 0; i < len;) {
		size_t end = i;
		while (end < len && !isspace((unsigned char)text[end]) && text[end] != '\0')
			end++;
		struct line w = { text + i, end - i };
		if (starts(&w, key) && (w.len == n || w.s[n] == '=')) {
			found = true;
			skip(&w, w.len == n ? n : n + 1);
			size_t keep = w.len < size ? w.len : size - 1;
			memcpy(value, w.s, keep);
			value[keep] = '\0';
		}
		i = end + 1;
	}
	return found;
}

bool prep_kt_kconfig(const char *text, size_t len, const char *key)
{
	struct line l;
	size_t n = strlen(key);
	for (const char *p = text; next_line(&p, text + len, &l);)
		if (starts(&l, key) && l.len == n + 2 && memcmp(l.s + n, "=y", 2) == 0)
			return true;
	return false;
}

/* One side of "soft:hard": a size or "infinity". */
static bool take_size(struct line *l, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	if (starts(l, "infinity")) {
		skip(l, 8);
		*bytes = PREP_BYTES_INFINITE;
		return true;
	}
	if (!take_number(l, bytes))
		return false;
	const char *u = l->len > 0 && *l->s != '\0' ? strchr(units, *l->s) : NULL;
	for (const char *p = units; u != NULL && p <= u; p++)
		if (__builtin_mul_overflow(*bytes, 1024u, bytes))
			return false;
	if (u != NULL)
		skip(l, 1);
	return true;
}

static bool whole_size(struct line l, uint64_t *bytes)
{
	uint64_t hard;
	if (!take_size(&l, bytes))
		return false;
	if (l.len > 0 && *l.s == ':') {
		skip(&l, 1);
		if (!take_size(&l, &hard))
			return false;
	}
	while (l.len > 0 && isspace((unsigned char)*l.s))
		skip(&l, 1);
	return l.len == 0;
}

bool prep_kt_unit_bytes(const char *text, size_t len, const char *key, uint64_t *bytes)
{
	struct line l;
	bool service = false, found = false;
	size_t n = strlen(key);
	for (const char *p = text; next_line(&p, text + len, &l);) {
		uint64_t v;
		skip_space(&l);
		if (l.len > 0 && *l.s == '[')
			service = starts(&l, "[Service]");
		if (!service || !starts(&l, key))
			continue;
		skip(&l, n);
		skip_space(&l);
		if (l.len == 0 || *l.s != '=')
			continue;
		skip(&l, 1);
		skip_space(&l);
		found = whole_size(l, &v);
		if (found)
			*bytes = v;
	}
	return found;
}
