/*
 * fuzz_tok.h - a small tokenizer made in memory, for targets that need one and no file.
 *
 * All bytes, a few merges, the marks of a conversation: enough for every path of the encoder.
 */
#ifndef FUZZ_TOK_H
#define FUZZ_TOK_H

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "tokenizer.h"

/* Byte @b in the alphabet of tokenizer.json, as UTF-8. */
static inline void fuzz_symbol(struct ds_buf *out, unsigned int b)
{
	unsigned int c = 0x100, self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

	for (unsigned int k = 0; k < b; k++)
		c += !((k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174);
	c = self ? b : c;
	if (c < 0x80) {
		ds_buf_putc(out, (char)c);
	} else {
		ds_buf_putc(out, (char)(0xc0 | c >> 6));
		ds_buf_putc(out, (char)(0x80 | (c & 0x3f)));
	}
}

static inline void fuzz_text(struct ds_json *j, const char *bytes)
{
	struct ds_buf s = { 0 };

	for (; *bytes != '\0'; bytes++)
		fuzz_symbol(&s, (unsigned char)*bytes);
	ds_json_strn(j, s.data, s.len);
	ds_buf_fini(&s);
}

static inline void fuzz_split(struct ds_json *j, const char *regex)
{
	ds_json_object(j);
	ds_json_kstr(j, "type", "Split");
	ds_json_key(j, "pattern");
	ds_json_object(j);
	ds_json_kstr(j, "Regex", regex);
	ds_json_end(j);
	ds_json_kstr(j, "behavior", "Isolated");
	ds_json_end(j);
}

static const char *const fuzz_merges[][2] = {
	{ "a", "b" },	    { "ab", "a" },	    { "=", "=" },   { "==", "==" }, { " ", "t" },
	{ "\xe6", "\xbc" }, { "\xe6\xbc", "\xa2" }, { "\n", "\n" }, { "t", "h" },   { " t", "h" },
};
static const char *const fuzz_marks[] = {
	"<\uff5cbegin\u2581of\u2581sentence\uff5c>",
	"<\uff5cend\u2581of\u2581sentence\uff5c>",
	"<\uff5cSystem\uff5c>",
	"<\uff5cUser\uff5c>",
	"<\uff5cAssistant\uff5c>",
	"<think>",
	"</think>",
	"\uff5cDSML\uff5c",
	"<\uff5clatest_reminder\uff5c>",
	"<th",
};

static inline void fuzz_vocab(struct ds_json *j)
{
	struct ds_buf s = { 0 };

	for (unsigned int b = 0; b < 256; b++) {
		ds_buf_reset(&s);
		fuzz_symbol(&s, b);
		ds_json_kuint(j, s.data, b);
	}
	for (size_t i = 0; i < sizeof(fuzz_merges) / sizeof(fuzz_merges[0]); i++) {
		ds_buf_reset(&s);
		for (int k = 0; k < 2; k++)
			for (const char *p = fuzz_merges[i][k]; *p != '\0'; p++)
				fuzz_symbol(&s, (unsigned char)*p);
		ds_json_kuint(j, s.data, 300 + i);
	}
	ds_buf_fini(&s);
}

static inline void fuzz_model(struct ds_json *j)
{
	ds_json_key(j, "model");
	ds_json_object(j);
	ds_json_kstr(j, "type", "BPE");
	ds_json_key(j, "vocab");
	ds_json_object(j);
	fuzz_vocab(j);
	ds_json_end(j);
	ds_json_key(j, "merges");
	ds_json_array(j);
	for (size_t i = 0; i < sizeof(fuzz_merges) / sizeof(fuzz_merges[0]); i++) {
		ds_json_array(j);
		fuzz_text(j, fuzz_merges[i][0]);
		fuzz_text(j, fuzz_merges[i][1]);
		ds_json_end(j);
	}
	ds_json_end(j);
	ds_json_end(j);
}

static inline void fuzz_pre_tokenizer(struct ds_json *j)
{
	ds_json_key(j, "pre_tokenizer");
	ds_json_object(j);
	ds_json_kstr(j, "type", "Sequence");
	ds_json_key(j, "pretokenizers");
	ds_json_array(j);
	fuzz_split(j, "\\p{N}{1,3}");
	fuzz_split(j, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+");
	fuzz_split(j, "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
		      "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
		      "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
	ds_json_object(j);
	ds_json_kstr(j, "type", "ByteLevel");
	ds_json_kbool(j, "add_prefix_space", false);
	ds_json_kbool(j, "use_regex", false);
	ds_json_end(j);
	ds_json_end(j);
	ds_json_end(j);
}

/* The tokenizer.json. Returns owned (free()). */
static inline char *fuzz_tok_json(void)
{
	struct ds_buf b = { 0 };
	struct ds_json j;

	ds_json_init(&j, &b, 0);
	ds_json_object(&j);
	ds_json_key(&j, "added_tokens");
	ds_json_array(&j);
	for (size_t i = 0; i < sizeof(fuzz_marks) / sizeof(fuzz_marks[0]); i++) {
		ds_json_object(&j);
		ds_json_kuint(&j, "id", 400 + i);
		ds_json_kstr(&j, "content", fuzz_marks[i]);
		ds_json_end(&j);
	}
	ds_json_end(&j);
	ds_json_key(&j, "decoder");
	ds_json_object(&j);
	ds_json_kstr(&j, "type", "ByteLevel");
	ds_json_end(&j);
	fuzz_pre_tokenizer(&j);
	fuzz_model(&j);
	ds_json_end(&j);
	return ds_buf_take(&b);
}

/* Returns owned (tok_close()); aborts when the tokenizer is refused, which is our own mistake. */
static inline struct tok *fuzz_tok(void)
{
	struct ds_err err = { 0 };
	char *json = fuzz_tok_json();
	struct tok *t = json != NULL ? tok_parse("fuzz", json, strlen(json), &err) : NULL;

	if (t == NULL) {
		ds_err_print(stderr, "fuzz_tok", &err);
		abort();
	}
	free(json);
	return t;
}

/* Bytes of @ids joined must be @text. */
static inline void fuzz_check_join(const struct tok *t, const struct tok_ids *ids, const char *text,
				   size_t len)
{
	size_t at = 0;

	for (size_t i = 0; i < ids->n; i++) {
		size_t n = 0;
		const char *p = tok_bytes(t, ids->id[i], &n);
		if (p == NULL || n > len - at || memcmp(text + at, p, n) != 0)
			abort();
		at += n;
	}
	if (at != len)
		abort();
}

#endif
