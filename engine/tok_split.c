/*
 * tok_split.c - cutting text into pieces with the patterns of the model's tokenizer.json.
 *
 * The file names three Split patterns, written for Oniguruma. We know exactly these three and
 * refuse any other: an unknown pattern could mean something else to PCRE2, or run for ever on
 * hostile text, and either would surface as subtly wrong ids. Splits are nested: every piece of one
 * pattern, matched or left between matches, is a whole subject to the next, so that its look-ahead
 * sees the end of the piece and not the text behind it.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "tok_split.h"

#define N_SPLITS 3

/*
 * PCRE2's \s also holds U+180E, Oniguruma's does not: spell out White_Space, as the release means it.
 * Source of the set: Unicode PropList.txt.
 */
#define SPACE \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/*
 * Characters of Unicode 15.0 to 16.0 by class, for a PCRE2 whose tables are older (Debian 12 has 14.0):
 * ids must not depend on the library's version. Source: Unicode DerivedGeneralCategory.txt.
 */
/* clang-format off */
#define NEW_LETTERS /* and marks */ \
	"\\x{897}\\x{cf3}\\x{ece}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}" \
	"\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}\\x{10d69}-\\x{10d6d}\\x{10d6f}-\\x{10d85}" \
	"\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}" \
	"\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}" \
	"\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d3}\\x{113e1}-\\x{113e2}\\x{11bc0}-\\x{11be0}" \
	"\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{1342f}" \
	"\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1612f}\\x{16d40}-\\x{16d6c}" \
	"\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}" \
	"\\x{1e4d0}-\\x{1e4ef}\\x{1e5d0}-\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}" \
	"\\x{31350}-\\x{323af}"
#define NEW_NUMBERS \
	"\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}" \
	"\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}" \
	"\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define NEW_SIGNS /* punctuation and symbols */ \
	"\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}" \
	"\\x{31ef}\\x{10d6e}\\x{10d8e}-\\x{10d8f}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}" \
	"\\x{11b00}-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}" \
	"\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}\\x{1e5ff}\\x{1f6dc}\\x{1f774}-\\x{1f776}" \
	"\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}" \
	"\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}" \
	"\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}" \
	"\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"

#define LETTER	   "\\p{L}\\p{M}" NEW_LETTERS
#define NUMBER	   "\\p{N}" NEW_NUMBERS
#define SIGN	   "\\p{P}\\p{S}" NEW_SIGNS
/* May lead letters. A mark could too, but needs no lead: it is matched as a letter. */
#define LEAD	   "[^\\r\\n" LETTER SIGN "]?"

static const struct {
	const char *file;  /* as in tokenizer.json */
	const char *pcre2; /* the same language for PCRE2 */
} patterns[N_SPLITS] = {
	{ "\\p{N}{1,3}", "[" NUMBER "]{1,3}" },
	{ "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+" },
	{ "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
	  "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
	  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" LEAD "[" LETTER "]+"
	  "| ?[" SIGN "]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+" },
};
/* clang-format on */

struct tok_split {
	pcre2_code *re[N_SPLITS];
	bool jit[N_SPLITS];
	pcre2_match_context *limits; /* read only while matching, so threads share it */
};

static int refuse(struct ds_err *err, const char *file, const char *part, const char *why)
{
	ds_err_set(err, DS_ERR_INPUT, 0, file, "read tokenizer");
	return ds_err_why(err, "%s %s", part, why);
}

static bool is_string(const json_t *v, const char *want)
{
	return json_is_string(v) && strcmp(json_string_value(v), want) == 0;
}

/* Whether the file's pattern is @known. The release has CR and LF as themselves, others as \r and \n. */
static bool is_pattern(const json_t *v, const char *known)
{
	const char *s = json_string_value(v);

	if (s == NULL)
		return false;
	for (; *s != '\0'; s++) {
		bool line_end = *s == '\r' || *s == '\n';
		if (line_end && *known++ != '\\')
			return false;
		if (*known++ != (!line_end ? *s : *s == '\r' ? 'r' : 'n'))
			return false;
	}
	return *known == '\0';
}

/* One {"type": "Split", ...} against the pattern we know for its place. */
static int check_split(const char *file, const json_t *step, int at, struct ds_err *err)
{
	char part[64];

	snprintf(part, sizeof(part), "pre_tokenizer.pretokenizers[%d]", at);
	if (!is_string(json_object_get(step, "type"), "Split"))
		return refuse(err, file, part, "is not a Split");
	const json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
	if (!is_pattern(regex, patterns[at].file))
		return refuse(err, file, part, "has a pattern that is not DeepSeek's");
	if (!is_string(json_object_get(step, "behavior"), "Isolated"))
		return refuse(err, file, part, "has a behavior other than Isolated");
	if (json_is_true(json_object_get(step, "invert")))
		return refuse(err, file, part, "is inverted");
	return 0;
}

static int check_shape(const char *file, const json_t *pre, struct ds_err *err)
{
	static const char last[] = "pre_tokenizer.pretokenizers[3]";
	const json_t *steps = json_object_get(pre, "pretokenizers");

	if (!is_string(json_object_get(pre, "type"), "Sequence"))
		return refuse(err, file, "pre_tokenizer", "is not a Sequence");
	if (json_array_size(steps) != N_SPLITS + 1)
		return refuse(err, file, "pre_tokenizer.pretokenizers",
			      "does not have three Splits and a ByteLevel");
	for (int i = 0; i < N_SPLITS; i++)
		if (check_split(file, json_array_get(steps, i), i, err) != 0)
			return -1;
	const json_t *bytes = json_array_get(steps, N_SPLITS);
	if (!is_string(json_object_get(bytes, "type"), "ByteLevel"))
		return refuse(err, file, last, "is not ByteLevel");
	/* Both default to true in the format, so they must be there and false. */
	if (!json_is_false(json_object_get(bytes, "add_prefix_space")))
		return refuse(err, file, last, "adds a prefix space");
	if (!json_is_false(json_object_get(bytes, "use_regex")))
		return refuse(err, file, last, "splits by a pattern of its own");
	return 0;
}

static int compile(struct tok_split *s, struct ds_err *err)
{
	if ((s->limits = pcre2_match_context_create(NULL)) == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "allocate tokenizer");
	/* Our patterns backtrack once over a run at most; a long run of blanks must not hit a limit. */
	pcre2_set_match_limit(s->limits, UINT32_MAX);
	for (int i = 0; i < N_SPLITS; i++) {
		int code;
		PCRE2_SIZE at;
		s->re[i] = pcre2_compile((PCRE2_SPTR)patterns[i].pcre2, PCRE2_ZERO_TERMINATED,
					 PCRE2_UTF, &code, &at, NULL);
		if (s->re[i] == NULL) {
			ds_err_set(err, code == PCRE2_ERROR_HEAP_FAILED ? DS_ERR_NOMEM : DS_ERR_BUG,
				   0, NULL, "compile split pattern %d", i);
			return ds_err_why(err, "pcre2 code %d at offset %zu", code, at);
		}
		/* No JIT (a hardened host, another processor) is slower and otherwise the same. */
		s->jit[i] = pcre2_jit_compile(s->re[i], PCRE2_JIT_COMPLETE) == 0;
	}
	return 0;
}

struct tok_split *tok_split_open(const char *file, const json_t *pre_tokenizer, struct ds_err *err)
{
	struct tok_split *s;

	if (check_shape(file, pre_tokenizer, err) != 0)
		return NULL;
	if ((s = calloc(1, sizeof(*s))) == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, 0, file, "read tokenizer");
		return NULL;
	}
	if (compile(s, err) != 0) {
		tok_split_close(s);
		return NULL;
	}
	return s;
}

void tok_split_close(struct tok_split *s)
{
	if (s == NULL)
		return;
	for (int i = 0; i < N_SPLITS; i++)
		pcre2_code_free(s->re[i]);
	pcre2_match_context_free(s->limits);
	free(s);
}

/* One run over one text. */
struct run {
	const struct tok_split *s;
	pcre2_match_data *match;
	tok_piece_fn *piece;
	void *arg;
};

/*
 * Next match of pattern @level at or after @at, which is a character border. The text is known to
 * be valid UTF-8, so PCRE2 must not check it again: that would make every call O(rest).
 * Return: 1 with *from and *to set; 0 none; -1.
 */
static int next_match(const struct run *r, int level, const char *text, size_t len, size_t at,
		      size_t *from, size_t *to, struct ds_err *err)
{
	PCRE2_SPTR subject = (PCRE2_SPTR)text;
	int rc = PCRE2_ERROR_JIT_STACKLIMIT;

	if (r->s->jit[level])
		rc = pcre2_jit_match(r->s->re[level], subject, len, at, 0, r->match, r->s->limits);
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(r->s->re[level], subject, len, at,
				 PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match, r->s->limits);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	const PCRE2_SIZE *ov = pcre2_get_ovector_pointer(r->match);
	if (rc < 0 || ov[1] <= ov[0]) {
		ds_err_set(err, rc == PCRE2_ERROR_NOMEMORY ? DS_ERR_NOMEM : DS_ERR_BUG, 0, NULL,
			   "split text");
		return ds_err_why(err, "pcre2 code %d with pattern %d", rc, level);
	}
	*from = ov[0];
	*to = ov[1];
	return 1;
}

static int split(const struct run *r, int level, const char *text, size_t len, struct ds_err *err)
{
	size_t done = 0, from = 0, to = 0;
	int found;

	if (level == N_SPLITS)
		return r->piece(r->arg, text, len, err);
	while (done < len &&
	       (found = next_match(r, level, text, len, done, &from, &to, err)) != 0) {
		if (found < 0)
			return -1;
		if (from > done && split(r, level + 1, text + done, from - done, err) != 0)
			return -1;
		if (split(r, level + 1, text + from, to - from, err) != 0)
			return -1;
		done = to;
	}
	return done < len ? split(r, level + 1, text + done, len - done, err) : 0;
}

/* Length of the run of valid (@valid) or invalid UTF-8 at the start of @text. */
static size_t utf8_run(const char *text, size_t len, bool valid)
{
	size_t at = 0;

	while (at < len) {
		int n = (signed char)text[at] > 0 ? 1 : ds_utf8_len(text + at, len - at);
		if ((n > 0) != valid)
			break;
		at += n > 0 ? (size_t)n : 1;
	}
	return at;
}

int tok_split_run(const struct tok_split *s, const char *text, size_t len, tok_piece_fn *piece,
		  void *arg, struct ds_err *err)
{
	struct run r = { .s = s, .piece = piece, .arg = arg };
	int rc = 0;

	if ((r.match = pcre2_match_data_create(1, NULL)) == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "split text");
	for (size_t at = 0; rc == 0 && at < len;) {
		size_t good = utf8_run(text + at, len - at, true);
		if (good > 0)
			rc = split(&r, 0, text + at, good, err);
		at += good;
		size_t bad = at < len ? utf8_run(text + at, len - at, false) : 0;
		if (rc == 0 && bad > 0)
			rc = piece(arg, text + at, bad, err);
		at += bad;
	}
	pcre2_match_data_free(r.match);
	return rc;
}
