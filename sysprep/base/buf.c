/*
 * buf.c - a growing byte buffer.
 */
#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for @more bytes and the NUL behind them. */
static bool reserve(struct ds_buf *b, size_t more)
{
	if (b->failed || more > SIZE_MAX / 2 - b->len) {
		b->failed = true;
		return false;
	}
	size_t need = b->len + more + 1;
	if (need <= b->cap)
		return true;
	size_t cap = b->cap < 64 ? 64 : b->cap;
	while (cap < need)
		cap *= 2;
	char *data = realloc(b->data, cap);
	if (data == NULL) {
		b->failed = true;
		return false;
	}
	b->data = data;
	b->cap = cap;
	return true;
}

void ds_buf_put(struct ds_buf *b, const void *bytes, size_t len)
{
	if (!reserve(b, len))
		return;
	if (len > 0)
		memcpy(b->data + b->len, bytes, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void ds_buf_puts(struct ds_buf *b, const char *s)
{
	ds_buf_put(b, s, strlen(s));
}

void ds_buf_putc(struct ds_buf *b, char c)
{
	ds_buf_put(b, &c, 1);
}

void ds_buf_printf(struct ds_buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		b->failed = true;
	else if (reserve(b, (size_t)n)) {
		vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
}

void ds_buf_reset(struct ds_buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data != NULL)
		b->data[0] = '\0';
}

void ds_buf_fini(struct ds_buf *b)
{
	free(b->data);
	*b = (struct ds_buf){ 0 };
}

char *ds_buf_take(struct ds_buf *b)
{
	if (!reserve(b, 0)) {
		ds_buf_fini(b);
		return NULL;
	}
	char *data = b->data;
	data[b->len] = '\0';
	*b = (struct ds_buf){ 0 };
	return data;
}
