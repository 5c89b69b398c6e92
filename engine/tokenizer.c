/*
 * tokenizer.c - the tables of a tokenizer.json, and text to ids with them.
 *
 * Owns reading and checking the file: it is untrusted, and a file that is not the byte-level BPE we
 * implement is refused by the name of the part that differs, because a tokenizer that is almost
 * right gives fluent nonsense. Cutting text is tok_split.c, merging is tok_bpe.c.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "jsonin.h"
#include "tok_bpe.h"
#include "tok_split.h"
#include "tokenizer.h"

#define TOK_IDS_MAX \
	(1U << 20) /* eight times the release; bounds what a small file can make us allocate */
#define NO_ID UINT32_MAX

enum tok_kind {
	TOK_HOLE, /* no token has this id */
	TOK_NAMED, /* in the vocabulary under a name that is no byte text: must turn out to be added */
	TOK_BASE,
	TOK_ADDED,
};

struct tok_entry {
	uint32_t at, len; /* bytes in tok.arena */
	uint8_t kind;
	bool whole; /* merging its bytes gives exactly this token, so a piece of them needs no merging */
};

/* Added tokens as a tree of bytes. Node 0 is the root. */
struct tok_node {
	uint32_t child, sibling; /* 0 = none */
	uint32_t id;		 /* NO_ID = no token ends here */
	unsigned char byte;
};

struct tok {
	struct ds_buf arena;
	struct tok_entry *entry; /* [size] */
	uint32_t size;
	uint32_t byte_id[256];
	uint32_t *index; /* open hash of base tokens by their bytes; NO_ID = free */
	size_t index_mask;
	struct tok_node *node;
	size_t n_node, cap_node;
	bool starts[256]; /* some added token begins with this byte */
	struct tok_bpe bpe;
	struct tok_split *split;
};

/* ------------------------------------- lists of ids ------------------------------------- */

int tok_ids_put(struct tok_ids *l, uint32_t id, struct ds_err *err)
{
	if (l->n == l->cap) {
		size_t cap = l->cap > 0 ? 2 * l->cap : 64;
		uint32_t *p = reallocarray(l->id, cap, sizeof(*p));
		if (p == NULL)
			return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "encode text");
		l->id = p;
		l->cap = cap;
	}
	l->id[l->n++] = id;
	return 0;
}

void tok_ids_fini(struct tok_ids *l)
{
	free(l->id);
	*l = (struct tok_ids){ 0 };
}

/* --------------------------------- reading tokenizer.json ------------------------------- */

/* What the loader carries besides the result. */
struct load {
	struct tok *t;
	const char *file;
	const json_t *vocab;   /* model.vocab */
	uint32_t byte_of[324]; /* code point of the byte alphabet -> byte; NO_ID = not in it */
	struct ds_buf a, b;    /* scratch */
	struct tok_bpe_work work;
	struct ds_err *err;
};

static int bad(const struct load *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(const struct load *l, const char *fmt, ...)
{
	char why[sizeof(l->err->why)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ds_err_set(l->err, DS_ERR_INPUT, 0, l->file, "read tokenizer");
	return ds_err_why(l->err, "%s", why);
}

static int no_memory(const struct load *l)
{
	return ds_err_set(l->err, DS_ERR_NOMEM, 0, l->file, "read tokenizer");
}

/*
 * The alphabet in which the file writes bytes: printable Latin-1 stands for itself, the other 68
 * bytes are U+0100 and up in order. Source: the byte-to-unicode table published with GPT-2.
 */
static void byte_alphabet(struct load *l)
{
	uint32_t next = 0x100;

	memset(l->byte_of, 0xff, sizeof(l->byte_of));
	for (uint32_t b = 0; b < 256; b++) {
		bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
		l->byte_of[self ? b : next++] = b;
	}
}

/* Text in the byte alphabet to the bytes it stands for. Return: 0; -1 a character is not in it. */
static int from_alphabet(const struct load *l, const char *s, size_t len, struct ds_buf *out)
{
	const unsigned char *p = (const unsigned char *)s;

	ds_buf_reset(out);
	for (size_t i = 0; i < len;) {
		uint32_t c = p[i];
		if (c >= 0xc0 && i + 1 < len && c < 0xe0) /* jansson has checked the UTF-8 */
			c = (c & 0x1f) << 6 | (p[i + 1] & 0x3f);
		else if (c >= 0x80)
			return -1;
		if (c >= sizeof(l->byte_of) / sizeof(l->byte_of[0]) || l->byte_of[c] == NO_ID)
			return -1;
		ds_buf_putc(out, (char)l->byte_of[c]);
		i += p[i] < 0x80 ? 1 : 2;
	}
	return 0;
}

static size_t hash_bytes(const char *p, size_t len)
{
	uint64_t h = len;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)p[i]) * UINT64_C(0x100000001b3);
	h *= UINT64_C(0x9e3779b97f4a7c15);
	return (size_t)(h ^ h >> 32);
}

/* The index slot of these bytes: it holds their base token, or NO_ID. */
static uint32_t *find_base(const struct tok *t, const char *p, size_t len)
{
	size_t i = hash_bytes(p, len) & t->index_mask;

	for (; t->index[i] != NO_ID; i = (i + 1) & t->index_mask) {
		const struct tok_entry *e = &t->entry[t->index[i]];
		if (e->len == len && memcmp(t->arena.data + e->at, p, len) == 0)
			break;
	}
	return &t->index[i];
}

static void set_entry(struct tok *t, uint32_t id, enum tok_kind kind, const char *p, size_t len)
{
	/* Offsets fit 32 bits: everything in the arena comes from a file of at most 64 MiB. */
	t->entry[id] = (struct tok_entry){ .at = (uint32_t)t->arena.len,
					   .len = (uint32_t)len,
					   .kind = (uint8_t)kind };
	ds_buf_put(&t->arena, p, len);
}

static bool null_or_empty(const json_t *v)
{
	return v == NULL || json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0);
}

static bool false_or_absent(const json_t *v)
{
	return v == NULL || json_is_null(v) || json_is_false(v);
}

static bool is_type(const json_t *part, const char *type)
{
	const char *s = json_string_value(json_object_get(part, "type"));

	return s != NULL && strcmp(s, type) == 0;
}

/* Everything about the file that we do not implement because the release does not use it. */
static int check_shape(const struct load *l, const json_t *root, const json_t *model)
{
	const json_t *norm = json_object_get(root, "normalizer");
	const json_t *post = json_object_get(root, "post_processor");

	if (norm != NULL && !json_is_null(norm) &&
	    (!is_type(norm, "Sequence") || !json_is_array(json_object_get(norm, "normalizers")) ||
	     json_array_size(json_object_get(norm, "normalizers")) != 0))
		return bad(l, "normalizer is not empty: text would have to be changed first");
	if (post != NULL && !json_is_null(post) && !is_type(post, "ByteLevel"))
		return bad(l, "post_processor is not ByteLevel");
	if (!is_type(json_object_get(root, "decoder"), "ByteLevel"))
		return bad(l, "decoder is not ByteLevel");
	if (!is_type(model, "BPE"))
		return bad(l, "model.type is not BPE");
	static const char *const off[] = { "dropout", "byte_fallback", "ignore_merges" };
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		if (!false_or_absent(json_object_get(model, off[i])))
			return bad(l, "model.%s is set; only plain merging is known", off[i]);
	static const char *const none[] = { "unk_token", "continuing_subword_prefix",
					    "end_of_word_suffix" };
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (!null_or_empty(json_object_get(model, none[i])))
			return bad(l, "model.%s is set; only plain merging is known", none[i]);
	if (!json_is_object(l->vocab))
		return bad(l, "model.vocab is not an object");
	if (!json_is_array(json_object_get(model, "merges")))
		return bad(l, "model.merges is not an array");
	return 0;
}

/* @what names the entry; its id grows t->size. */
static int take_id(const struct load *l, const json_t *v, const char *what, uint32_t *id)
{
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v) || n < 0 || n >= TOK_IDS_MAX)
		return bad(l, "%.100s: id is not an integer from 0 to %u", what, TOK_IDS_MAX - 1);
	*id = (uint32_t)n;
	if (*id >= l->t->size)
		l->t->size = *id + 1;
	return 0;
}

/* Highest id first, so that every table is allocated once. */
static int allocate(const struct load *l, const json_t *added)
{
	struct tok *t = l->t;
	const char *name;
	json_t *v;
	size_t i, slots = 16;
	uint32_t id;

	json_object_foreach ((json_t *)l->vocab, name, v)
		if (take_id(l, v, name, &id) != 0)
			return -1;
	json_array_foreach (added, i, v) {
		const char *content = json_string_value(json_object_get(v, "content"));
		if (content == NULL || content[0] == '\0')
			return bad(l, "added_tokens[%zu].content is not a text", i);
		if (take_id(l, json_object_get(v, "id"), content, &id) != 0)
			return -1;
	}
	while (slots < 2 * json_object_size(l->vocab))
		slots *= 2;
	t->entry = calloc(t->size > 0 ? t->size : 1, sizeof(*t->entry));
	t->index = malloc(slots * sizeof(*t->index));
	if (t->entry == NULL || t->index == NULL)
		return no_memory(l);
	memset(t->index, 0xff, slots * sizeof(*t->index));
	t->index_mask = slots - 1;
	return 0;
}

static int load_vocab(struct load *l)
{
	struct tok *t = l->t;
	const char *name;
	json_t *v;

	json_object_foreach ((json_t *)l->vocab, name, v) {
		uint32_t id = (uint32_t)json_integer_value(v);
		size_t len = strlen(name);
		if (len == 0)
			return bad(l, "model.vocab has an empty token, id %u", id);
		if (t->entry[id].kind != TOK_HOLE)
			return bad(l, "id %u is given twice, the second time to %.100s", id, name);
		if (from_alphabet(l, name, len, &l->a) != 0) {
			set_entry(t, id, TOK_NAMED, name, len);
			continue;
		}
		if (l->a.failed)
			return no_memory(l);
		set_entry(t, id, TOK_BASE, l->a.data, l->a.len);
		if (t->arena.failed)
			return no_memory(l);
		*find_base(t, l->a.data, l->a.len) = id;
	}
	for (uint32_t b = 0; b < 256; b++) {
		char c = (char)b;
		t->byte_id[b] = *find_base(t, &c, 1);
		if (t->byte_id[b] == NO_ID)
			return bad(l, "model.vocab has no token for byte 0x%02x", b);
	}
	return t->arena.failed ? no_memory(l) : 0;
}

/* ------------------------------------- added tokens ------------------------------------- */

/* The child of node @at for @byte; 0 = none. */
static uint32_t node_child(const struct tok *t, uint32_t at, unsigned char byte)
{
	uint32_t n = t->node[at].child;

	while (n != 0 && t->node[n].byte != byte)
		n = t->node[n].sibling;
	return n;
}

static int node_new(struct tok *t, unsigned char byte)
{
	if (t->n_node == t->cap_node) {
		size_t cap = t->cap_node > 0 ? 2 * t->cap_node : 64;
		struct tok_node *p = reallocarray(t->node, cap, sizeof(*p));
		if (p == NULL)
			return -1;
		t->node = p;
		t->cap_node = cap;
	}
	t->node[t->n_node++] = (struct tok_node){ .byte = byte, .id = NO_ID };
	return 0;
}

/* Return: the node at which @text ends, made if need be; 0 on allocation failure. */
static uint32_t node_for(struct tok *t, const char *text, size_t len)
{
	uint32_t at = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)text[i];
		uint32_t next = node_child(t, at, byte);
		if (next == 0) {
			if (node_new(t, byte) != 0)
				return 0;
			next = (uint32_t)(t->n_node - 1);
			t->node[next].sibling = t->node[at].child;
			t->node[at].child = next;
		}
		at = next;
	}
	return at;
}

static int load_added_one(struct load *l, size_t i, const json_t *v)
{
	static const char *const flags[] = { "lstrip", "rstrip", "single_word" };
	struct tok *t = l->t;
	const json_t *content = json_object_get(v, "content");
	const char *text = json_string_value(content);
	size_t len = json_string_length(content);
	uint32_t id = (uint32_t)json_integer_value(json_object_get(v, "id"));
	const json_t *base = json_object_get(l->vocab, text);
	struct tok_entry *e = &t->entry[id];

	for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++)
		if (!false_or_absent(json_object_get(v, flags[f])))
			return bad(l, "added_tokens[%zu].%s is set; only literal matching is known",
				   i, flags[f]);
	if (base != NULL && (uint32_t)json_integer_value(base) != id)
		return bad(l, "added_tokens[%zu]: %.100s has id %u here and another in model.vocab",
			   i, text, id);
	if (e->kind == TOK_ADDED || (e->kind != TOK_HOLE && base == NULL))
		return bad(l, "id %u is given twice, the second time to %.100s", id, text);
	/* An added token is its text; a base token that has its name must be the same bytes. */
	if (e->kind == TOK_BASE && (e->len != len || memcmp(t->arena.data + e->at, text, len) != 0))
		return bad(l, "added_tokens[%zu]: %.100s is also an ordinary token of other bytes",
			   i, text);
	if (e->kind == TOK_HOLE)
		set_entry(t, id, TOK_ADDED, text, len);
	e->kind = TOK_ADDED;
	uint32_t at = node_for(t, text, len);
	if (at == 0 || t->arena.failed)
		return no_memory(l);
	if (t->node[at].id != NO_ID)
		return bad(l, "added_tokens[%zu]: %.100s is there twice", i, text);
	t->node[at].id = id;
	t->starts[(unsigned char)text[0]] = true;
	return 0;
}

static int load_added(struct load *l, const json_t *added)
{
	struct tok *t = l->t;
	json_t *v;
	size_t i;

	if (node_new(t, 0) != 0)
		return no_memory(l);
	json_array_foreach (added, i, v)
		if (load_added_one(l, i, v) != 0)
			return -1;
	for (uint32_t id = 0; id < t->size; id++)
		if (t->entry[id].kind == TOK_NAMED)
			return bad(l, "model.vocab: %.*s (id %u) is not in the byte alphabet",
				   t->entry[id].len < 100 ? (int)t->entry[id].len : 100,
				   t->arena.data + t->entry[id].at, id);
	return 0;
}

/* ----------------------------------------- merges --------------------------------------- */

/* Both halves of merge @i, "a b" or ["a", "b"]. Return: 0; -1 it is neither. */
static int merge_halves(const json_t *v, const char *half[2], size_t len[2])
{
	if (json_is_string(v)) {
		const char *s = json_string_value(v), *space = strchr(s, ' ');
		if (space == NULL || strchr(space + 1, ' ') != NULL)
			return -1;
		half[0] = s;
		len[0] = (size_t)(space - s);
		half[1] = space + 1;
		len[1] = strlen(space + 1);
		return 0;
	}
	if (json_array_size(v) != 2)
		return -1;
	for (size_t k = 0; k < 2; k++) {
		half[k] = json_string_value(json_array_get(v, k));
		len[k] = json_string_length(json_array_get(v, k));
		if (half[k] == NULL)
			return -1;
	}
	return 0;
}

static int load_merge(struct load *l, size_t i, const json_t *v)
{
	struct tok *t = l->t;
	struct ds_buf *part[2] = { &l->a, &l->b };
	const char *half[2];
	size_t len[2];
	uint32_t id[2];

	if (merge_halves(v, half, len) != 0)
		return bad(l, "model.merges[%zu] is not a pair of tokens", i);
	for (int k = 0; k < 2; k++) {
		id[k] = NO_ID;
		if (len[k] > 0 && from_alphabet(l, half[k], len[k], part[k]) == 0 &&
		    !part[k]->failed)
			id[k] = *find_base(t, part[k]->data, part[k]->len);
		if (part[k]->failed)
			return no_memory(l);
		if (id[k] == NO_ID)
			return bad(l, "model.merges[%zu] names %.*s, which is no token", i,
				   len[k] < 100 ? (int)len[k] : 100, half[k]);
	}
	ds_buf_put(&l->a, l->b.data, l->b.len);
	if (l->a.failed)
		return no_memory(l);
	uint32_t joined = *find_base(t, l->a.data, l->a.len);
	if (joined == NO_ID)
		return bad(l, "model.merges[%zu] makes a token that model.vocab does not have", i);
	if (tok_bpe_add(&t->bpe, id[0], id[1], (uint32_t)i, joined) != 0)
		return bad(l, "model.merges[%zu] repeats an earlier one", i);
	return 0;
}

/* Symbols of @len bytes into work->id, merged. Return: how many are left; 0 = no memory. */
static size_t merge_bytes(const struct tok *t, struct tok_bpe_work *w, const char *p, size_t len,
			  struct ds_err *err)
{
	if (tok_bpe_room(&t->bpe, w, len, err) != 0)
		return 0;
	for (size_t i = 0; i < len; i++)
		w->id[i] = t->byte_id[(unsigned char)p[i]];
	return tok_bpe_merge(&t->bpe, w, len);
}

static int load_merges(struct load *l, const json_t *merges)
{
	struct tok *t = l->t;
	json_t *v;
	size_t i;

	if (tok_bpe_init(&t->bpe, json_array_size(merges), l->err) != 0)
		return -1;
	json_array_foreach (merges, i, v)
		if (load_merge(l, i, v) != 0)
			return -1;
	/* A token in the vocabulary need not be what merging gives for its bytes: find out once. */
	for (uint32_t id = 0; id < t->size; id++) {
		struct tok_entry *e = &t->entry[id];
		if (e->kind != TOK_BASE)
			continue;
		size_t n = merge_bytes(t, &l->work, t->arena.data + e->at, e->len, l->err);
		if (n == 0)
			return -1;
		e->whole = n == 1 && l->work.id[0] == id;
	}
	return 0;
}

static int load(struct load *l, const json_t *root)
{
	const json_t *model = json_object_get(root, "model");
	const json_t *added = json_object_get(root, "added_tokens");

	l->vocab = json_object_get(model, "vocab");
	if (added != NULL && !json_is_null(added) && !json_is_array(added))
		return bad(l, "added_tokens is not an array");
	if (check_shape(l, root, model) != 0)
		return -1;
	l->t->split = tok_split_open(l->file, json_object_get(root, "pre_tokenizer"), l->err);
	if (l->t->split == NULL)
		return -1;
	byte_alphabet(l);
	if (allocate(l, added) != 0 || load_vocab(l) != 0 || load_added(l, added) != 0)
		return -1;
	return load_merges(l, json_object_get(model, "merges"));
}

struct tok *tok_parse(const char *file, const char *json, size_t len, struct ds_err *err)
{
	struct load l = { .file = file, .err = err };
	struct tok *t = NULL;
	json_t *root = eng_json_load(json, len, file, "read tokenizer", err);

	if (root == NULL)
		return NULL;
	if ((t = l.t = calloc(1, sizeof(*t))) == NULL)
		no_memory(&l);
	else if (load(&l, root) != 0) {
		tok_close(t);
		t = NULL;
	}
	ds_buf_fini(&l.a);
	ds_buf_fini(&l.b);
	tok_bpe_work_fini(&l.work);
	json_decref(root);
	return t;
}

struct tok *tok_open(const char *file, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	struct tok *t = NULL;

	if (ds_file_read(AT_FDCWD, file, 0, TOK_FILE_BYTES_MAX, &b, err) == 0)
		t = tok_parse(file, b.data != NULL ? b.data : "", b.len, err);
	ds_buf_fini(&b);
	return t;
}

void tok_close(struct tok *t)
{
	if (t == NULL)
		return;
	ds_buf_fini(&t->arena);
	free(t->entry);
	free(t->index);
	free(t->node);
	tok_bpe_fini(&t->bpe);
	tok_split_close(t->split);
	free(t);
}

/* ---------------------------------------- encoding -------------------------------------- */

/* One call of tok_encode(). */
struct encoder {
	const struct tok *t;
	struct tok_bpe_work work;
	struct tok_ids *out;
};

static int encode_piece(void *arg, const char *p, size_t n, struct ds_err *err)
{
	struct encoder *e = arg;
	uint32_t id = *find_base(e->t, p, n);

	if (id != NO_ID && e->t->entry[id].whole)
		return tok_ids_put(e->out, id, err);
	size_t left = merge_bytes(e->t, &e->work, p, n, err);
	if (left == 0)
		return -1;
	for (size_t i = 0; i < left; i++)
		if (tok_ids_put(e->out, e->work.id[i], err) != 0)
			return -1;
	return 0;
}

/* The longest added token that starts at @p. Return: its bytes, 0 = none; *id set. */
static size_t added_at(const struct tok *t, const char *p, size_t len, uint32_t *id)
{
	size_t best = 0;
	uint32_t at = 0;

	for (size_t i = 0; i < len && (at = node_child(t, at, (unsigned char)p[i])) != 0; i++) {
		if (t->node[at].id != NO_ID) {
			best = i + 1;
			*id = t->node[at].id;
		}
	}
	return best;
}

static int encode_specials(struct encoder *e, const char *text, size_t len, struct ds_err *err)
{
	size_t done = 0, at = 0;

	while (at < len) {
		uint32_t id = NO_ID;
		size_t n = 0;
		if (e->t->starts[(unsigned char)text[at]])
			n = added_at(e->t, text + at, len - at, &id);
		if (n == 0) {
			at++;
			continue;
		}
		if (tok_split_run(e->t->split, text + done, at - done, encode_piece, e, err) != 0 ||
		    tok_ids_put(e->out, id, err) != 0)
			return -1;
		at += n;
		done = at;
	}
	return tok_split_run(e->t->split, text + done, len - done, encode_piece, e, err);
}

int tok_encode(const struct tok *t, const char *text, size_t len, bool specials,
	       struct tok_ids *out, struct ds_err *err)
{
	struct encoder e = { .t = t, .out = out };
	int rc;

	if (len > INT32_MAX) {
		ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "encode text");
		return ds_err_why(err, "%zu bytes, the limit is 2 GiB", len);
	}
	if (specials)
		rc = encode_specials(&e, text, len, err);
	else
		rc = tok_split_run(t->split, text, len, encode_piece, &e, err);
	tok_bpe_work_fini(&e.work);
	return rc;
}

/* ---------------------------------------- look-ups -------------------------------------- */

int32_t tok_special(const struct tok *t, const char *text)
{
	uint32_t id = NO_ID;
	size_t len = strlen(text);

	return len > 0 && added_at(t, text, len, &id) == len ? (int32_t)id : -1;
}

bool tok_is_special(const struct tok *t, uint32_t id)
{
	return id < t->size && t->entry[id].kind == TOK_ADDED;
}

uint32_t tok_size(const struct tok *t)
{
	return t->size;
}

const char *tok_bytes(const struct tok *t, uint32_t id, size_t *len)
{
	if (id >= t->size || t->entry[id].kind == TOK_HOLE)
		return NULL;
	*len = t->entry[id].len;
	return t->arena.data + t->entry[id].at;
}
