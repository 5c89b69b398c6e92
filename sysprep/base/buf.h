/*
 * buf.h - a growing byte buffer.
 *
 * An allocation that fails marks the buffer; later puts do nothing, and the caller asks once, at
 * the end. That keeps builders of JSON, reports and frames free of a check per line.
 */
#ifndef DS_BUF_H
#define DS_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds_buf {
	char *data; /* owned; always followed by a NUL byte once anything was put; NULL at first */
	size_t len; /* bytes, without that NUL */
	size_t cap;
	bool failed; /* an allocation failed: the content is not complete */
};

/** ds_buf_put() - append @len bytes. Threads: owner only, like all of these. */
void ds_buf_put(struct ds_buf *b, const void *bytes, size_t len);
/** ds_buf_puts() - append a string. */
void ds_buf_puts(struct ds_buf *b, const char *s);
/** ds_buf_putc() - append one byte. */
void ds_buf_putc(struct ds_buf *b, char c);
/** ds_buf_printf() - append formatted text. */
void ds_buf_printf(struct ds_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** ds_buf_reset() - forget the content, keep the memory and the failed mark's clearing. */
void ds_buf_reset(struct ds_buf *b);
/** ds_buf_fini() - free; safe on a zeroed buffer. */
void ds_buf_fini(struct ds_buf *b);
/** ds_buf_take() - returns owned (free()) the NUL-terminated content and empties @b; NULL if it failed. */
char *ds_buf_take(struct ds_buf *b);

#endif
