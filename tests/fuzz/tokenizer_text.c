/*
 * tokenizer_text.c - any bytes encode, join to themselves again, and stream alike in any chunks.
 *
 * The first input byte chooses whether added tokens are matched, and the chunk of the stream.
 */
#include <stdint.h>

#include "fuzz_tok.h"

static void stream(const char *text, size_t len, size_t chunk, struct ds_buf *out)
{
	struct tok_stream s = { .n = 0 };

	for (size_t at = 0; at < len; at += chunk)
		tok_stream_put(&s, text + at, len - at < chunk ? len - at : chunk, out);
	tok_stream_end(&s, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tok *t;
	struct tok_ids ids = { 0 };
	struct ds_buf a = { 0 }, b = { 0 };

	if (t == NULL)
		t = fuzz_tok();
	if (size == 0)
		return 0;
	const char *text = (const char *)data + 1;
	if (tok_encode(t, text, size - 1, data[0] & 1, &ids, NULL) != 0)
		abort();
	fuzz_check_join(t, &ids, text, size - 1);
	stream(text, size - 1, 1 + data[0] / 2 % 7, &a);
	stream(text, size - 1, size, &b);
	if (a.len != b.len || (a.len > 0 && memcmp(a.data, b.data, a.len) != 0))
		abort();
	for (size_t i = 0; i < a.len;) {
		int n = ds_utf8_len(a.data + i, a.len - i);
		if (n < 1)
			abort();
		i += (size_t)n;
	}
	ds_buf_fini(&a);
	ds_buf_fini(&b);
	tok_ids_fini(&ids);
	return 0;
}
