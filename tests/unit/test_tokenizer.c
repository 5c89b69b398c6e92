/*
 * test_tokenizer.c - pieces, ids, refusals and the stream of bytes, with the demo model's tokenizer.
 */
#include <CUnit/CUnit.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "tok_bpe.h"
#include "tok_split.h"
#include "tokenizer.h"

#define DEMO TESTS_DIR "/fixtures/demo-model/"

static struct tok *demo(void)
{
	struct ds_err err = { 0 };
	struct tok *t = tok_open(DEMO "tokenizer.json", &err);

	if (t == NULL)
		ds_err_print(stdout, "test", &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	return t;
}

/* A fixed pseudo-random sequence, so that a failure repeats. */
static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* ----------------------------------------- pieces --------------------------------------- */

/*
 * Pieces are joined by "|". The rows down to the zero width spaces are the texts of the published
 * ids for the release: wherever two of its tokens come from two pieces, there is a bar.
 */
/* clang-format off */
static const struct {
	const char *text, *pieces, *why;
} split_cases[] = {
	{ "Hello! \u6bd5\u8001\u5e08\uff011 + 1 = 2", "Hello|!| |\u6bd5\u8001\u5e08|\uff01|1| +| |1| =| |2", "digits, Han and full-width punctuation" },
	{ "abc123def45678", "abc|123|def|456|78", "three digits at most, from the left" },
	{ "don't  stop\n\n  x", "don|'t| | stop|\n\n| | x", "blanks: all but the last stay apart" },
	{ "a_b(c)->d;//x", "a|_b|(c|)->|d|;//|x", "a sign joins letters only when they follow at once" },
	{ "na\u00efve caf\u00e9", "na\u00efve| caf\u00e9", "letters beyond ASCII" },
	{ "\u30ab\u30bf\u30ab\u30ca\u3068kanji\u6f22\u5b57mix", "\u30ab\u30bf\u30ab\u30ca\u3068|kanji|\u6f22\u5b57|mix", "CJK runs are cut out" },
	{ "x  1", "x|  |1", "the look-ahead sees the end of the piece, not the digit" },
	{ "x  y", "x| | y", "the same with a letter" },
	{ "a  \u6f22", "a|  |\u6f22", "the same with a CJK run" },
	{ "\t\tif (x)\r\n", "\t|\tif| (|x|)\r\n", "tab leads letters; punctuation takes the line end" },
	{ "\u0663\u0664\u0665\u0666", "\u0663\u0664\u0665|\u0666", "Arabic-Indic digits are numbers" },
	{ "\u200b\u200b1", "\u200b\u200b|1", "zero width space is no blank" },
	{ "x\u00b2\u2167", "x|\u00b2\u2167", "superscripts and Roman numerals are numbers" },
	{ "\u30ab\u30fb\u30bf\u309b", "\u30ab|\u30fb|\u30bf|\u309b", "a CJK run is split again by the last pattern" },
	{ "a \t\r\n \n  b", "a| \t\r\n \n| | b", "a blank run up to and with its last line end" },
	{ "a   ", "a|   ", "blanks at the end stay together" },
	{ "\u3000x\u3000 y", "\u3000x|\u3000| y", "ideographic space is a blank" },
	{ "x\u180e\u180e", "x|\u180e\u180e", "U+180E is no blank" },
	{ "a\xc2\x85" "1", "a|\xc2\x85|1", "U+0085 is a blank, but not a line end" },
	{ "e\u0301\u0301x", "e\u0301\u0301x", "marks go with letters" },
	{ "\U0001f642\U0001f642ok", "\U0001f642\U0001f642|ok", "emoji are symbols" },
	{ "x \U0001fae8 \U0002ebf0\U0001e4f0", "x| \U0001fae8| \U0002ebf0|\U0001e4f0", "characters newer than PCRE2's tables: sign, letter, number" },
	{ "\x01\x02z", "\x01|\x02z", "a control character leads a letter, or stands alone" },
	{ "ab\xff\xfe" "cd", "ab|\xff\xfe|cd", "bytes that are not UTF-8 are a piece" },
	{ "ab \xe6\x95", "ab| |\xe6\x95", "so is a character cut off" },
	{ "a\xed\xa0\x80" "b", "a|\xed\xa0\x80|b", "surrogates are not UTF-8" },
	{ "", "", "nothing" },
};
/* clang-format on */

static int join_piece(void *arg, const char *p, size_t n, struct ds_err *err)
{
	struct ds_buf *b = arg;

	(void)err;
	if (b->len > 0)
		ds_buf_putc(b, '|');
	ds_buf_put(b, p, n);
	return 0;
}

static struct tok_split *demo_split(void)
{
	struct ds_err err = { 0 };
	json_t *root = json_load_file(DEMO "tokenizer.json", 0, NULL);
	struct tok_split *s = tok_split_open("demo", json_object_get(root, "pre_tokenizer"), &err);

	json_decref(root);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	return s;
}

static void test_pieces(void)
{
	struct tok_split *s = demo_split();

	for (size_t i = 0; i < sizeof(split_cases) / sizeof(split_cases[0]); i++) {
		struct ds_buf got = { 0 };
		const char *text = split_cases[i].text;
		int rc = tok_split_run(s, text, strlen(text), join_piece, &got, NULL);
		bool same = strcmp(got.data != NULL ? got.data : "", split_cases[i].pieces) == 0;
		if (rc != 0 || !same)
			printf("   %s: got \"%s\", expected \"%s\" (%s)\n", text, got.data,
			       split_cases[i].pieces, split_cases[i].why);
		CU_ASSERT(rc == 0 && same);
		ds_buf_fini(&got);
	}
	tok_split_close(s);
}

static int stop_at_second(void *arg, const char *p, size_t n, struct ds_err *err)
{
	(void)p;
	(void)n;
	return ++*(int *)arg == 2 ? ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "second") : 0;
}

static void test_pieces_stop(void)
{
	struct tok_split *s = demo_split();
	struct ds_err err = { 0 };
	int calls = 0;

	CU_ASSERT_EQUAL(tok_split_run(s, "a b c d", 7, stop_at_second, &calls, &err), -1);
	CU_ASSERT_EQUAL(calls, 2);
	CU_ASSERT_STRING_EQUAL(err.what, "second");
	tok_split_close(s);
}

/* ------------------------------------------- ids ---------------------------------------- */

static bool ids_equal(const struct tok_ids *got, const json_t *want)
{
	if (got->n != json_array_size(want))
		return false;
	for (size_t i = 0; i < got->n; i++)
		if (got->id[i] != json_integer_value(json_array_get(want, i)))
			return false;
	return true;
}

static void test_golden(void)
{
	struct tok *t = demo();
	json_t *golden = json_load_file(DEMO "golden.json", 0, NULL), *g;
	size_t i, compared = 0;

	json_array_foreach (golden, i, g) {
		const char *text = json_string_value(json_object_get(g, "text"));
		struct tok_ids ids = { 0 };
		CU_ASSERT_PTR_NOT_NULL_FATAL(text);
		if (strstr(text, "{{TOOLS_") != NULL) /* not the text that its ids are of */
			continue;
		CU_ASSERT_EQUAL(tok_encode(t, text, strlen(text), true, &ids, NULL), 0);
		CU_ASSERT(ids_equal(&ids, json_object_get(g, "ids")));
		compared++;
		tok_ids_fini(&ids);
	}
	CU_ASSERT_EQUAL(compared, 14);
	json_decref(golden);
	tok_close(t);
}

/* Bytes of @ids joined must be @text again. */
static bool joins_to(const struct tok *t, const struct tok_ids *ids, const char *text, size_t len)
{
	size_t at = 0;

	for (size_t i = 0; i < ids->n; i++) {
		size_t n = 0;
		const char *p = tok_bytes(t, ids->id[i], &n);
		if (p == NULL || n > len - at || memcmp(text + at, p, n) != 0)
			return false;
		at += n;
	}
	return at == len;
}

static void test_any_bytes(void)
{
	static const char *const words[] = {
		"the ",	   "node", "\xe6\xbc\xa2", "\xff", " 12",
		"<think>", "\n\n", "\xf0\x9f",	   "==",   "<\xef\xbd\x9cUser\xef\xbd\x9c>"
	};
	struct tok *t = demo();
	uint32_t seed = 1;

	for (int round = 0; round < 300; round++) {
		struct ds_buf b = { 0 };
		struct tok_ids ids = { 0 };
		for (uint32_t k = next_random(&seed) % 40; k > 0; k--) {
			uint32_t r = next_random(&seed);
			if (r % 3 == 0)
				ds_buf_putc(&b, (char)(r >> 4));
			else
				ds_buf_puts(&b, words[(r >> 4) % 10]);
		}
		CU_ASSERT_EQUAL(tok_encode(t, b.data != NULL ? b.data : "", b.len, round % 2 == 0,
					   &ids, NULL),
				0);
		CU_ASSERT(joins_to(t, &ids, b.data, b.len));
		ds_buf_fini(&b);
		tok_ids_fini(&ids);
	}
	tok_close(t);
}

static void test_specials(void)
{
	static const char text[] = "<think>a</think><\xef\xbd\x9cUser\xef\xbd\x9c";
	struct tok *t = demo();
	struct tok_ids on = { 0 }, off = { 0 };
	size_t len = 0;

	CU_ASSERT_EQUAL(tok_special(t, "<think>"), 1269);
	CU_ASSERT_EQUAL(tok_special(t, "<think"), -1);
	CU_ASSERT_EQUAL(tok_special(t, "the"), -1);
	CU_ASSERT_EQUAL(tok_special(t, ""), -1);
	CU_ASSERT(tok_is_special(t, 0));
	CU_ASSERT(!tok_is_special(t, 35));
	CU_ASSERT(!tok_is_special(t, 1280));
	CU_ASSERT_EQUAL(tok_size(t), 1280);
	CU_ASSERT_PTR_NULL(tok_bytes(t, 1280, &len));
	CU_ASSERT_EQUAL(memcmp(tok_bytes(t, 1270, &len), "</think>", 8), 0);
	CU_ASSERT_EQUAL(len, 8);
	tok_encode(t, text, strlen(text), true, &on, NULL);
	tok_encode(t, text, strlen(text), false, &off, NULL);
	CU_ASSERT_FATAL(on.n > 3);
	CU_ASSERT_EQUAL(on.id[0], 1269);
	CU_ASSERT_EQUAL(on.id[2], 1270);
	for (size_t i = 3; i < on.n; i++) /* an added token cut short is text */
		CU_ASSERT(!tok_is_special(t, on.id[i]));
	for (size_t i = 0; i < off.n; i++)
		CU_ASSERT(!tok_is_special(t, off.id[i]));
	CU_ASSERT(joins_to(t, &off, text, strlen(text)));
	tok_ids_fini(&on);
	tok_ids_fini(&off);
	tok_close(t);
}

/* The definition, as slow as it reads: the reference for both ways of tok_bpe.c. */
static size_t merge_slowly(const uint32_t (*merge)[3], size_t n_merge, uint32_t *id, size_t n)
{
	for (size_t m = 0; m < n_merge;) {
		size_t i = 0;
		while (i + 1 < n && (id[i] != merge[m][0] || id[i + 1] != merge[m][1]))
			i++;
		if (i + 1 >= n) {
			m++;
			continue;
		}
		id[i] = merge[m][2];
		n--;
		memmove(id + i + 1, id + i + 2, (n - i - 1) * sizeof(*id));
		m = 0; /* the new symbol may revive an earlier merge */
	}
	return n;
}

static void test_merging(void)
{
	static const uint32_t merge[][3] = { { 0, 1, 4 }, { 4, 4, 5 }, { 2, 2, 6 },  { 6, 0, 7 },
					     { 1, 0, 8 }, { 5, 3, 9 }, { 3, 4, 10 }, { 6, 6, 11 } };
	enum {
		N_MERGE = sizeof(merge) / sizeof(merge[0]),
		LONGEST = 400
	};
	struct tok_bpe bpe = { 0 };
	struct tok_bpe_work work = { 0 };
	uint32_t want[LONGEST], seed = 7;

	CU_ASSERT_EQUAL_FATAL(tok_bpe_init(&bpe, N_MERGE, NULL), 0);
	for (uint32_t i = 0; i < N_MERGE; i++)
		CU_ASSERT_EQUAL(tok_bpe_add(&bpe, merge[i][0], merge[i][1], i, merge[i][2]), 0);
	CU_ASSERT_EQUAL(tok_bpe_add(&bpe, 0, 1, 99, 99), -1);
	for (int round = 0; round < 2000; round++) {
		size_t n = next_random(&seed) % (round % 4 == 0 ? LONGEST : 60) + 1;
		CU_ASSERT_EQUAL_FATAL(tok_bpe_room(&bpe, &work, n, NULL), 0);
		for (size_t i = 0; i < n; i++)
			want[i] = work.id[i] = next_random(&seed) % 4;
		size_t got = tok_bpe_merge(&bpe, &work, n);
		n = merge_slowly(merge, N_MERGE, want, n);
		CU_ASSERT(got == n && memcmp(work.id, want, n * sizeof(*want)) == 0);
	}
	tok_bpe_work_fini(&work);
	tok_bpe_fini(&bpe);
}

/* One piece of a megabyte: quadratic merging would take minutes. */
static void test_long_piece(void)
{
	enum {
		LEN = 1 << 20
	};
	struct tok *t = demo();
	struct tok_ids ids = { 0 };
	char *text = malloc(LEN);

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	for (int i = 0; i < LEN; i++)
		text[i] = (char)('a' + i * 7 % 25);
	CU_ASSERT_EQUAL(tok_encode(t, text, LEN, true, &ids, NULL), 0);
	CU_ASSERT(joins_to(t, &ids, text, LEN));
	ids.n = 0;
	memset(text, '<', LEN); /* the first byte of every added token */
	CU_ASSERT_EQUAL(tok_encode(t, text, LEN, true, &ids, NULL), 0);
	CU_ASSERT(joins_to(t, &ids, text, LEN));
	ids.n = 0;
	memset(text, ' ', LEN); /* blanks make the last pattern backtrack */
	text[LEN - 1] = 'x';
	CU_ASSERT_EQUAL(tok_encode(t, text, LEN, true, &ids, NULL), 0);
	CU_ASSERT(joins_to(t, &ids, text, LEN));
	tok_ids_fini(&ids);
	free(text);
	tok_close(t);
}

/* ---------------------------------------- bad files ------------------------------------- */

/* clang-format off */
static const struct {
	const char *path, *value, *why; /* JSON put at a dotted path of the demo file; null value removes */
} refusals[] = {
	{ "normalizer", "{\"type\":\"NFC\"}", "normalizer is not empty" },
	{ "normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}", "normalizer is not empty" },
	{ "post_processor", "{\"type\":\"TemplateProcessing\"}", "post_processor is not ByteLevel" },
	{ "decoder", "{\"type\":\"Metaspace\"}", "decoder is not ByteLevel" },
	{ "decoder", NULL, "decoder is not ByteLevel" },
	{ "pre_tokenizer", NULL, "pre_tokenizer is not a Sequence" },
	{ "pre_tokenizer.pretokenizers", "[]", "does not have three Splits" },
	{ "pre_tokenizer.pretokenizers.0.pattern.Regex", "\"\\\\d+\"", "pretokenizers[0] has a pattern that is not" },
	{ "pre_tokenizer.pretokenizers.2.pattern.Regex", "\"\\\\s+\"", "pretokenizers[2] has a pattern that is not" },
	{ "pre_tokenizer.pretokenizers.1.behavior", "\"Removed\"", "pretokenizers[1] has a behavior" },
	{ "pre_tokenizer.pretokenizers.1.invert", "true", "pretokenizers[1] is inverted" },
	{ "pre_tokenizer.pretokenizers.3.add_prefix_space", "true", "adds a prefix space" },
	{ "pre_tokenizer.pretokenizers.3.use_regex", "true", "splits by a pattern of its own" },
	{ "model.type", "\"WordPiece\"", "model.type is not BPE" },
	{ "model.byte_fallback", "true", "model.byte_fallback is set" },
	{ "model.ignore_merges", "true", "model.ignore_merges is set" },
	{ "model.dropout", "0.1", "model.dropout is set" },
	{ "model.unk_token", "\"<unk>\"", "model.unk_token is set" },
	{ "model.vocab", "7", "model.vocab is not an object" },
	{ "model.merges", "7", "model.merges is not an array" },
	{ "model.vocab.the", "3", "id 3 is given twice" },
	{ "model.vocab.the", "-1", "the: id is not an integer" },
	{ "model.vocab.the", "1048576", "the: id is not an integer" },
	{ "model.vocab.the", "\"7\"", "the: id is not an integer" },
	{ "model.vocab.A", NULL, "no token for byte 0x41" },
	{ "model.vocab.\u4e00", "1600", "is not in the byte alphabet" },
	{ "model.merges.0", "\"zq zq\"", "model.merges[0] names zq, which is no token" },
	{ "model.merges.0", "\"z\"", "model.merges[0] is not a pair" },
	{ "model.merges.0", "\"a b c\"", "model.merges[0] is not a pair" },
	{ "model.merges.0", "[\"a\"]", "model.merges[0] is not a pair" },
	{ "model.merges.0", "[\"a\",7]", "model.merges[0] is not a pair" },
	{ "model.merges.0", "\"Q Z\"", "model.merges[0] makes a token that" },
	{ "model.merges.1", "\"\u0120 t\"", "model.merges[1] repeats an earlier one" },
	{ "added_tokens", "7", "added_tokens is not an array" },
	{ "added_tokens.3.id", "35", "id 35 is given twice" },
	{ "added_tokens.3.id", "1264", "id 1264 is given twice" },
	{ "added_tokens.3.content", "\"\"", "added_tokens[3].content is not a text" },
	{ "added_tokens.3.content", "\"<think>\"", "<think> is there twice" },
	{ "added_tokens.3.content", "\"A\"", "A has id 1262 here and another in model.vocab" },
	{ "added_tokens.3.lstrip", "true", "added_tokens[3].lstrip is set" },
	{ "added_tokens.3.single_word", "true", "added_tokens[3].single_word is set" },
};
/* clang-format on */

/* Put @value at @path of @root; path parts are keys, or indexes into arrays. */
static void put_at(json_t *root, const char *path, json_t *value)
{
	char part[64];
	size_t n = strcspn(path, ".");

	snprintf(part, sizeof(part), "%.*s", (int)n, path);
	bool last = path[n] == '\0';
	if (json_is_array(root)) {
		size_t i = strtoul(part, NULL, 10);
		if (last)
			json_array_set(root, i, value);
		else
			put_at(json_array_get(root, i), path + n + 1, value);
	} else if (!last) {
		put_at(json_object_get(root, part), path + n + 1, value);
	} else if (value != NULL) {
		json_object_set(root, part, value);
	} else {
		json_object_del(root, part);
	}
}

static void test_refusals(void)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		json_t *root = json_load_file(DEMO "tokenizer.json", 0, NULL);
		json_t *value = refusals[i].value == NULL
					? NULL
					: json_loads(refusals[i].value, JSON_DECODE_ANY, NULL);
		struct ds_err err = { 0 };
		put_at(root, refusals[i].path, value);
		char *text = json_dumps(root, JSON_COMPACT);
		struct tok *t = tok_parse("x/tokenizer.json", text, strlen(text), &err);
		bool ok = t == NULL && err.kind == DS_ERR_INPUT &&
			  strstr(err.why, refusals[i].why) != NULL &&
			  strcmp(err.obj, "x/tokenizer.json") == 0;
		if (!ok)
			printf("   %s = %s: got \"%s\", expected \"%s\"\n", refusals[i].path,
			       refusals[i].value, t != NULL ? "no refusal" : err.why,
			       refusals[i].why);
		CU_ASSERT(ok);
		tok_close(t);
		free(text);
		json_decref(value);
		json_decref(root);
	}
}

static void test_bad_json(void)
{
	static const char *const texts[] = {
		"", "{", "[]", "null\n", "{\"model\":{},\"model\":{}}", "{\"model\":\"\xff\"}"
	};
	struct ds_err err = { 0 };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		ds_err_clear(&err);
		CU_ASSERT_PTR_NULL(tok_parse("t", texts[i], strlen(texts[i]), &err));
		CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	}
	ds_err_clear(&err);
	CU_ASSERT_PTR_NULL(tok_open(DEMO "no-such-file", &err));
	CU_ASSERT(strstr(err.obj, "no-such-file") != NULL);
}

/* Merges as pairs, ids with holes, CR and LF as themselves in the pattern: all in use somewhere. */
static void test_variants(void)
{
	json_t *root = json_load_file(DEMO "tokenizer.json", 0, NULL), *v;
	json_t *pairs = json_array();
	json_t *model = json_object_get(root, "model");
	json_t *pattern = json_object_get(
		json_array_get(
			json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"),
			2),
		"pattern");
	struct ds_err err = { 0 };
	struct tok_ids a = { 0 }, b = { 0 };
	struct tok *t = demo();
	size_t i, len;

	json_array_foreach (json_object_get(model, "merges"), i, v) {
		const char *s = json_string_value(v), *space = strchr(s, ' ');
		json_array_append_new(pairs, json_pack("[s#s]", s, (int)(space - s), space + 1));
	}
	json_object_set_new(model, "merges", pairs);
	json_array_append_new(json_object_get(root, "added_tokens"),
			      json_pack("{s:i,s:s}", "id", 2000, "content", "<new>"));
	json_object_set_new(pattern, "Regex",
			    json_string("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
					"|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
					"| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"));
	char *text = json_dumps(root, 0);
	struct tok *u = tok_parse("t", text, strlen(text), &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(u);
	CU_ASSERT_EQUAL(tok_size(u), 2001);
	CU_ASSERT_PTR_NULL(tok_bytes(u, 1999, &len));
	CU_ASSERT_EQUAL(tok_special(u, "<new>"), 2000);
	tok_encode(t, "Hello, what is the MTU?", 23, true, &a, NULL);
	tok_encode(u, "Hello, what is the MTU?", 23, true, &b, NULL);
	CU_ASSERT(a.n == b.n && memcmp(a.id, b.id, a.n * sizeof(*a.id)) == 0);
	tok_ids_fini(&a);
	tok_ids_fini(&b);
	tok_close(t);
	tok_close(u);
	free(text);
	json_decref(root);
}

/* ----------------------------------------- stream --------------------------------------- */

/* clang-format off */
static const struct {
	const char *bytes, *text, *why;
} stream_cases[] = {
	{ "plain", "plain", "ASCII" },
	{ "\xf0\x9f\x99\x82!", "\xf0\x9f\x99\x82!", "four bytes" },
	{ "a\xff" "b", "a\xef\xbf\xbd" "b", "a byte that never occurs" },
	{ "\xe6\xbc", "\xef\xbf\xbd", "an incomplete end is one replacement" },
	{ "\xe6\xbc" "A", "\xef\xbf\xbd" "A", "an incomplete middle too" },
	{ "\xf0\x9f\x99\xe6\xbc\xa2", "\xef\xbf\xbd\xe6\xbc\xa2", "a character begins inside another" },
	{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "surrogate: no byte of it begins a character" },
	{ "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd", "overlong" },
	{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "above U+10FFFF" },
	{ "\x80\xbf", "\xef\xbf\xbd\xef\xbf\xbd", "continuation bytes alone" },
};
/* clang-format on */

static void test_stream(void)
{
	for (size_t i = 0; i < sizeof(stream_cases) / sizeof(stream_cases[0]); i++) {
		const char *bytes = stream_cases[i].bytes;
		for (size_t chunk = 1; chunk <= 5; chunk++) {
			struct tok_stream s = { .n = 0 };
			struct ds_buf out = { 0 };
			for (size_t at = 0; at < strlen(bytes); at += chunk) {
				size_t n = strlen(bytes) - at;
				tok_stream_put(&s, bytes + at, n < chunk ? n : chunk, &out);
			}
			tok_stream_end(&s, &out);
			CU_ASSERT_STRING_EQUAL(out.data, stream_cases[i].text);
			ds_buf_fini(&out);
		}
	}
}

static void test_stream_at_once(void)
{
	struct tok_stream s = { .n = 0 };
	struct ds_buf out = { 0 };

	tok_stream_put(&s, "ok\xe6\xbc", 4, &out);
	CU_ASSERT_STRING_EQUAL(out.data, "ok");
	tok_stream_put(&s, "\xff", 1, &out); /* invalid, not incomplete: it must not wait */
	CU_ASSERT_STRING_EQUAL(out.data, "ok\xef\xbf\xbd\xef\xbf\xbd");
	ds_buf_fini(&out);
}

static CU_TestInfo tests[] = {
	{ "texts are cut into the pieces of the release", test_pieces },
	{ "a piece's receiver can stop the cutting", test_pieces_stop },
	{ "golden prompts give their ids", test_golden },
	{ "any bytes encode, and their tokens join to them again", test_any_bytes },
	{ "added tokens match only where asked", test_specials },
	{ "merging equals its definition, short and long", test_merging },
	{ "a piece of a megabyte is not quadratic", test_long_piece },
	{ "files of another kind are refused by the part", test_refusals },
	{ "files that are no JSON are refused", test_bad_json },
	{ "other spellings of the same tokenizer are read", test_variants },
	{ "bytes become complete UTF-8 whatever the chunks", test_stream },
	{ "invalid bytes do not stall the stream", test_stream_at_once },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo tokenizer_suite = { .pName = "engine/tokenizer", .pTests = tests };
