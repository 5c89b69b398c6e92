/*
 * tok_stream.c - bytes of tokens to complete UTF-8, as they come.
 *
 * A character may be spread over several tokens, and a model may emit bytes that are no character
 * at all. What cannot become one is replaced at once: waiting for its end would stall the stream.
 */
#include <string.h>

#include "json.h"
#include "tokenizer.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/*
 * Bytes of the pending that can never become a character: a "maximal subpart" (Unicode, 3.9), so that
 * one damaged character gives one replacement character whatever the chunks it arrives in.
 */
static size_t subpart(const struct tok_stream *s)
{
	size_t n = 1;

	while (n < s->n && ds_utf8_len(s->pending, n + 1) < 0)
		n++;
	return n;
}

/* Release whatever of the pending bytes is decided. */
static void settle(struct tok_stream *s, struct ds_buf *out)
{
	while (s->n > 0) {
		int len = ds_utf8_len(s->pending, s->n);
		if (len < 0)
			return;
		size_t n = len > 0 ? (size_t)len : subpart(s);
		if (len > 0)
			ds_buf_put(out, s->pending, n);
		else
			ds_buf_puts(out, REPLACEMENT);
		s->n -= n;
		memmove(s->pending, s->pending + n, s->n);
	}
}

void tok_stream_put(struct tok_stream *s, const char *bytes, size_t len, struct ds_buf *out)
{
	for (size_t i = 0; i < len; i++) {
		/* At most three bytes wait: a fourth always decides. */
		s->pending[s->n++] = bytes[i];
		settle(s, out);
	}
}

void tok_stream_end(struct tok_stream *s, struct ds_buf *out)
{
	if (s->n > 0)
		ds_buf_puts(out, REPLACEMENT);
	s->n = 0;
}
