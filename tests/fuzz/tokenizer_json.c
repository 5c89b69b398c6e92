/*
 * tokenizer_json.c - a tokenizer.json is refused with a reason, or encodes.
 *
 * Random JSON never becomes a tokenizer, so the input edits a good one: it is a list of records
 * "offset (2 bytes), length removed (1), length put (1), bytes". An input that begins with "{" is
 * taken as the whole file.
 */
#include <stdint.h>

#include "fuzz_tok.h"

/* One edit of @b; returns bytes of the record. */
static size_t edit(struct ds_buf *b, const uint8_t *p, size_t n)
{
	size_t at = ((size_t)p[0] << 8 | p[1]) % (b->len + 1), cut = p[2], put = p[3];
	struct ds_buf out = { 0 };

	put = put < n - 4 ? put : n - 4;
	cut = cut < b->len - at ? cut : b->len - at;
	ds_buf_put(&out, b->data, at);
	ds_buf_put(&out, p + 4, put);
	ds_buf_put(&out, b->data + at + cut, b->len - at - cut);
	ds_buf_fini(b);
	*b = out;
	return 4 + put;
}

static void use(const struct tok *t)
{
	static const char text[] = "the abaab ==== 1234 \xe6\xbc\xa2\xff <think>\n\n";
	struct tok_ids ids = { 0 };

	for (int specials = 0; specials < 2; specials++) {
		ids.n = 0;
		if (tok_encode(t, text, sizeof(text), specials, &ids, NULL) != 0)
			abort();
		fuzz_check_join(t, &ids, text, sizeof(text));
	}
	tok_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char *good;
	struct ds_err err = { 0 };
	struct ds_buf b = { 0 };

	if (good == NULL && (good = fuzz_tok_json()) == NULL)
		abort();
	if (size > 0 && data[0] == '{') {
		ds_buf_put(&b, data, size);
	} else {
		ds_buf_puts(&b, good);
		for (size_t at = 0; size - at > 4;)
			at += edit(&b, data + at, size - at);
	}
	/* An exact block, so that one byte too far is a report. */
	char *exact = malloc(b.len > 0 ? b.len : 1);
	if (exact == NULL)
		abort();
	memcpy(exact, b.data, b.len);
	struct tok *t = tok_parse("tokenizer.json", exact, b.len, &err);
	free(exact);
	if (t != NULL)
		use(t);
	else if (err.kind != DS_ERR_INPUT || err.why[0] == '\0')
		abort();
	tok_close(t);
	ds_buf_fini(&b);
	return 0;
}
