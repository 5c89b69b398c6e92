/*
 * out_parse.c - the automaton that reads an answer.
 *
 * Every byte is looked at once. Held back is only what the next byte or mark decides (line feeds, "<",
 * "</"), a parameter that out_args.c must see whole, and a block in which no call was seen yet: it is a
 * block only when one comes. If none does, its markup is the model's text and is given out as such, once; so a
 * client never sees markup and a call of the same block.
 */
#include "out_parse.h"

#include <string.h>

#include "api.h"

static const char *const mark_text[OUT_MARKS] = {
	[OUT_MARK_THINK] = "<think>",
	[OUT_MARK_THINK_END] = "</think>",
	[OUT_MARK_BLOCK] = "\uff5cDSML\uff5c",
};

enum {
	TAG_OTHER,
	TAG_CALLS,
	TAG_INVOKE,
	TAG_PARAMETER
};

void out_parse_init(struct out_parse *p, const struct tok *t, const struct out_parse_opts *o,
		    out_sink_fn *sink, void *arg)
{
	*p = (struct out_parse){ .t = t, .o = *o, .sink = sink, .arg = arg };
	for (int i = 0; i < OUT_MARKS; i++)
		p->mark_id[i] = t != NULL ? tok_special(t, mark_text[i]) : -1;
	p->reasoning = o->thinking;
	p->started = o->open;
}

void out_parse_fini(struct out_parse *p)
{
	ds_buf_fini(&p->quoted);
	ds_buf_fini(&p->name);
	ds_buf_fini(&p->raw);
	ds_buf_fini(&p->piece);
	out_args_fini(&p->args);
}

/* ------------------------------------- events ------------------------------------- */

static void flush(struct out_parse *p)
{
	struct out_event ev = { .kind = p->piece_kind, .text = p->piece.data, .len = p->piece.len };

	if (ev.kind == OUT_ARGS)
		ev.call = p->n_calls - 1;
	if (ev.len > 0 && !p->piece.failed)
		p->sink(p->arg, &ev);
	p->failed |= p->piece.failed || p->quoted.failed || p->raw.failed || p->args.failed;
	ds_buf_reset(&p->piece);
}

/* Where text of @kind is to be appended. */
static struct ds_buf *piece(struct out_parse *p, enum out_kind kind)
{
	if (p->piece_kind != kind)
		flush(p);
	p->piece_kind = kind;
	return &p->piece;
}

static struct ds_buf *text_piece(struct out_parse *p)
{
	return piece(p, p->reasoning ? OUT_REASONING : OUT_CONTENT);
}

static const json_t *function_named(const struct out_parse *p, const struct ds_buf *name)
{
	for (size_t i = 0; i < json_array_size(p->o.tools); i++) {
		const json_t *f = json_array_get(p->o.tools, i);
		const json_t *own = json_object_get(f, "name");
		if (json_string_length(own) == name->len &&
		    memcmp(json_string_value(own), name->data, name->len) == 0)
			return f;
	}
	return NULL;
}

static void open_call(struct out_parse *p)
{
	struct out_event ev = { .kind = OUT_CALL, .call = p->n_calls };
	char id[API_ID_BYTES];
	struct ds_err err = { 0 };

	tok_stream_end(&p->chars, text_piece(p));
	flush(p);
	p->proven = true;
	p->n_lf = 0;
	ds_buf_reset(&p->raw);
	if (api_new_id("call_", id, &err) != 0 || p->name.failed) {
		p->failed = true;
		return;
	}
	out_args_begin(&p->args, function_named(p, &p->name));
	ev.text = p->name.data;
	ev.len = p->name.len;
	ev.id = id;
	p->n_calls++;
	p->sink(p->arg, &ev);
	p->state = OUT_CALL_OPEN;
}

static void close_call(struct out_parse *p)
{
	out_args_close(&p->args, piece(p, OUT_ARGS));
	flush(p);
	p->sink(p->arg,
		&(struct out_event){ .kind = OUT_CALL_END, .text = "", .call = p->n_calls - 1 });
	p->n_complete++;
	p->state = OUT_BLOCK;
}

/* -------------------------------------- text -------------------------------------- */

static void put_visible(struct out_parse *p, const char *bytes, size_t len)
{
	p->started |= len > 0;
	tok_stream_put(&p->chars, bytes, len, text_piece(p));
}

/* What was held back is text after all. */
static void release(struct out_parse *p)
{
	static const char before[] = "</";

	for (; p->n_lf > 0; p->n_lf--)
		put_visible(p, "\n", 1);
	put_visible(p, before, p->before);
	p->before = 0;
}

static void text_byte(struct out_parse *p, char c)
{
	if (p->before > 0)
		release(p);
	if (c == '\n' && !p->started)
		return;
	if (c == '\n' && (p->reasoning || p->o.calls)) {
		p->n_lf++;
	} else if (c == '<' && p->o.calls) {
		p->before = 1;
	} else {
		release(p);
		put_visible(p, &c, 1);
	}
}

static void end_reasoning(struct out_parse *p)
{
	tok_stream_end(&p->chars, text_piece(p));
	p->reasoning = p->started = false;
	p->n_lf = 0;
	p->n_unproven = 0;
}

/* The block was none: what it looked like is text, of the reasoning that it stood in, or content. */
static void give_back(struct out_parse *p, bool as_content)
{
	struct ds_buf raw = p->raw;

	if (as_content && p->reasoning)
		end_reasoning(p);
	if (p->reasoning)
		p->n_reasoning += p->n_unproven;
	p->n_unproven = 0;
	p->state = OUT_TEXT;
	p->tag = OUT_TAG_NONE;
	p->before = 0;
	p->failed |= raw.failed;
	for (size_t i = 0; i < raw.len; i++)
		text_byte(p, raw.data[i]);
	ds_buf_reset(&p->raw);
}

/* -------------------------------------- tags -------------------------------------- */

static void begin_tag(struct out_parse *p, bool closing, bool first)
{
	p->tag = OUT_TAG_NAME;
	p->closing = closing;
	p->first = first;
	p->bad = p->named = false;
	p->form = OUT_FORM_OPEN;
	p->n_word = 0;
	p->before = 0;
}

static bool word_is(const struct out_parse *p, const char *word)
{
	return strlen(word) == p->n_word && memcmp(p->word, word, p->n_word) == 0;
}

/* Names of V4.1, V4 and V3.2. */
static uint32_t kind_of(const struct out_parse *p)
{
	if (word_is(p, "calls") || word_is(p, "tool_calls") || word_is(p, "function_calls"))
		return TAG_CALLS;
	if (word_is(p, "invoke"))
		return TAG_INVOKE;
	return word_is(p, "parameter") ? TAG_PARAMETER : TAG_OTHER;
}

static void do_closing(struct out_parse *p)
{
	if (p->state == OUT_CALL_OPEN && p->kind != TAG_PARAMETER)
		close_call(p);
	if (p->kind == TAG_CALLS && p->proven)
		p->state = OUT_DONE;
	else if (p->kind == TAG_CALLS)
		give_back(p, true);
}

/* The tag is whole. */
static void do_tag(struct out_parse *p)
{
	p->tag = OUT_TAG_NONE;
	if (p->closing) {
		do_closing(p);
	} else if (p->kind == TAG_INVOKE && p->named && !p->bad && p->name.len > 0) {
		if (p->state == OUT_CALL_OPEN)
			close_call(p);
		if (p->n_calls < OUT_CALLS_MAX)
			open_call(p);
		else
			p->state = OUT_DONE;
	} else if (p->kind == TAG_PARAMETER && p->named && !p->bad && p->state == OUT_CALL_OPEN) {
		out_args_key(&p->args, p->name.data, p->name.len, p->form, piece(p, OUT_ARGS));
		p->state = OUT_VALUE;
	}
}

static void end_attribute(struct out_parse *p)
{
	tok_stream_end(&p->quoted_chars, &p->quoted);
	p->failed |= p->quoted.failed;
	if (word_is(p, "name")) {
		struct ds_buf old = p->name;
		p->name = p->quoted;
		p->quoted = old;
		p->named = true;
	} else if (word_is(p, "string")) {
		bool yes = p->quoted.len == 4 && memcmp(p->quoted.data, "true", 4) == 0;
		bool no = p->quoted.len == 5 && memcmp(p->quoted.data, "false", 5) == 0;
		p->form = yes ? OUT_FORM_STRING : no ? OUT_FORM_JSON : OUT_FORM_OPEN;
	}
	ds_buf_reset(&p->quoted);
	p->tag = OUT_TAG_ATTRS;
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || c == '_';
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void add_word(struct out_parse *p, char c)
{
	if (p->n_word < sizeof(p->word))
		p->word[p->n_word++] = c;
}

/* Not what a tag may hold: nothing is done with it but to find its end. */
static void spoil(struct out_parse *p, char c)
{
	p->bad = true;
	p->tag = OUT_TAG_SKIP;
	if (c == '>')
		do_tag(p);
}

static void name_byte(struct out_parse *p, char c)
{
	if (is_word(c)) {
		add_word(p, c);
		return;
	}
	if (p->n_word == 0 && c == ' ')
		return;
	p->kind = kind_of(p);
	if (p->first && p->kind != TAG_CALLS && p->kind != TAG_INVOKE) {
		/* No tag: raw has this byte already, but it may begin something itself. */
		p->raw.len -= p->raw.len > 0;
		give_back(p, false);
		text_byte(p, c);
		return;
	}
	p->tag = p->closing || p->kind < TAG_INVOKE ? OUT_TAG_SKIP : OUT_TAG_ATTRS;
	if (c == '>')
		do_tag(p);
	else if (!is_blank(c))
		spoil(p, c);
}

static void quoted_byte(struct out_parse *p, char c)
{
	if (c == '"')
		end_attribute(p);
	else if (c == '\n' || c == '\r')
		spoil(p, c);
	else if (c != '\0') /* clients' JSON libraries take none in a key */
		tok_stream_put(&p->quoted_chars, &c, 1, &p->quoted);
}

static void tag_byte(struct out_parse *p, char c)
{
	if (p->tag == OUT_TAG_NAME) {
		name_byte(p, c);
	} else if (p->tag == OUT_TAG_VALUE) {
		quoted_byte(p, c);
	} else if (c == '>') {
		if (p->tag == OUT_TAG_ATTR || p->tag == OUT_TAG_QUOTE)
			p->bad = true;
		do_tag(p);
	} else if (p->tag == OUT_TAG_SKIP || is_blank(c)) {
		return;
	} else if (p->tag == OUT_TAG_QUOTE) {
		ds_buf_reset(&p->quoted);
		p->quoted_chars = (struct tok_stream){ 0 };
		if (c == '"')
			p->tag = OUT_TAG_VALUE;
		else
			spoil(p, c);
	} else if (is_word(c)) {
		p->n_word = p->tag == OUT_TAG_ATTR ? p->n_word : 0;
		p->tag = OUT_TAG_ATTR;
		add_word(p, c);
	} else if (c == '=' && p->tag == OUT_TAG_ATTR) {
		p->tag = OUT_TAG_QUOTE;
	} else {
		spoil(p, c);
	}
}

/* ------------------------------------- blocks ------------------------------------- */

/* "<" and "</" count when the mark follows. */
static void note_before(struct out_parse *p, char c)
{
	p->before = c == '<' ? 1 : c == '/' && p->before == 1 ? 2 : 0;
}

static void value_bytes(struct out_parse *p, const char *bytes, size_t len)
{
	out_args_put(&p->args, bytes, len, piece(p, OUT_ARGS));
}

static void value_byte(struct out_parse *p, char c)
{
	uint32_t had = p->before;

	note_before(p, c);
	if (had > 0 && p->before <= 1)
		value_bytes(p, "</", had);
	if (p->before == 0)
		value_bytes(p, &c, 1);
}

static void block_byte(struct out_parse *p, char c)
{
	if (!p->proven)
		ds_buf_putc(&p->raw, c);
	note_before(p, c);
	if (p->tag != OUT_TAG_NONE)
		tag_byte(p, c);
}

static void put_byte(struct out_parse *p, char c)
{
	if (p->state == OUT_TEXT)
		text_byte(p, c);
	else if (p->state == OUT_VALUE)
		value_byte(p, c);
	else if (p->state != OUT_DONE)
		block_byte(p, c);
}

/* -------------------------------------- marks ------------------------------------- */

static void put_mark_text(struct out_parse *p, enum out_mark m)
{
	for (const char *s = mark_text[m]; *s != '\0'; s++)
		put_byte(p, *s);
}

static void value_mark(struct out_parse *p, enum out_mark m)
{
	if (m != OUT_MARK_BLOCK || p->before != 2) {
		put_mark_text(p, m);
		return;
	}
	out_args_value(&p->args, piece(p, OUT_ARGS));
	p->state = OUT_CALL_OPEN;
	begin_tag(p, true, false);
}

static void think_mark(struct out_parse *p, enum out_mark m)
{
	if (m != OUT_MARK_THINK_END || !p->reasoning || p->proven)
		return;
	if (p->state == OUT_BLOCK)
		give_back(p, false);
	if (p->before > 0) /* "<" waited for another mark */
		release(p);
	end_reasoning(p);
}

/* The mark of blocks, in text and between tags. */
static void block_mark(struct out_parse *p)
{
	bool was_text = p->state == OUT_TEXT;

	if (was_text && (p->before == 0 || !p->o.calls)) {
		put_mark_text(p, OUT_MARK_BLOCK);
		return;
	}
	if (p->state == OUT_BLOCK && p->tag == OUT_TAG_NAME && p->first) {
		give_back(p, false); /* the mark in front of this one was none */
		block_mark(p);
		return;
	}
	if (was_text) {
		ds_buf_putc(&p->raw, '<');
		p->state = OUT_BLOCK;
		p->proven = false;
	}
	if (!p->proven)
		ds_buf_puts(&p->raw, mark_text[OUT_MARK_BLOCK]);
	if (p->before > 0)
		begin_tag(p, p->before == 2, was_text);
	else if (p->tag != OUT_TAG_NONE)
		spoil(p, 0);
}

static void put_mark(struct out_parse *p, enum out_mark m)
{
	if (p->state == OUT_VALUE)
		value_mark(p, m);
	else if (m != OUT_MARK_BLOCK)
		think_mark(p, m);
	else if (p->state != OUT_DONE)
		block_mark(p);
}

/* -------------------------------------- calls ------------------------------------- */

void out_parse_bytes(struct out_parse *p, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		put_byte(p, bytes[i]);
	flush(p);
}

void out_parse_mark(struct out_parse *p, enum out_mark mark)
{
	put_mark(p, mark);
	flush(p);
}

void out_parse_put(struct out_parse *p, uint32_t id)
{
	size_t len = 0;
	const char *bytes = tok_bytes(p->t, id, &len);

	if (p->reasoning && p->state == OUT_TEXT)
		p->n_reasoning++;
	else if (p->reasoning && !p->proven)
		p->n_unproven++;
	for (int m = 0; m < OUT_MARKS; m++)
		if ((int64_t)id == p->mark_id[m]) {
			out_parse_mark(p, (enum out_mark)m);
			return;
		}
	if (bytes != NULL && !tok_is_special(p->t, id))
		out_parse_bytes(p, bytes, len);
}

void out_parse_end(struct out_parse *p, bool natural)
{
	bool whole = p->tag == OUT_TAG_NONE || p->closing;

	if (natural && whole && p->state == OUT_CALL_OPEN && p->args.n > 0)
		close_call(p);
	if (p->state == OUT_BLOCK && !p->proven)
		give_back(p, p->tag != OUT_TAG_NAME || !p->first);
	if (p->state == OUT_TEXT) {
		/* What was held back comes after an incomplete character: a later byte would have settled both. */
		tok_stream_end(&p->chars, text_piece(p));
		release(p);
	}
	flush(p);
}
