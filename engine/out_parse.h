/*
 * out_parse.h - generated tokens to events: reasoning, content, tool calls.
 *
 * One automaton for every endpoint, streamed or not. It works on bytes and three marks: "</think>",
 * "<think>" and the one of tool blocks count when they came as their tokens; spelled with ordinary tokens
 * they are text. So the events, pieces of one kind joined, depend on bytes and marks alone and not on
 * how the bytes were cut into tokens. Source of the rules: serving.md C.
 *
 * Errors: only lack of memory or of random bits; the parser goes on and says so in failed.
 * Threads: one at a time.
 */
#ifndef ENG_OUT_PARSE_H
#define ENG_OUT_PARSE_H

#include "out_args.h"
#include "out_event.h"
#include "tokenizer.h"

struct out_parse_opts {
	bool thinking; /* generation begins in reasoning */
	bool open;     /* it goes on behind text: leading line feeds count */
	bool calls; /* tool blocks are read; false: their mark is text, and no line feed waits for one */
	const json_t *tools; /* borrowed: function objects, for types; NULL = none known */
};

enum out_mark {
	OUT_MARK_THINK,
	OUT_MARK_THINK_END,
	OUT_MARK_BLOCK,
	OUT_MARKS
};

enum out_state {
	OUT_TEXT,      /* reasoning or content */
	OUT_BLOCK,     /* between calls, or in front of the first */
	OUT_CALL_OPEN, /* between a call's parameters */
	OUT_VALUE,     /* inside a parameter */
	OUT_DONE,      /* behind the block */
};

enum out_tag_step {
	OUT_TAG_NONE,
	OUT_TAG_NAME,  /* what the tag is */
	OUT_TAG_ATTRS, /* between attributes */
	OUT_TAG_ATTR,  /* in an attribute's name */
	OUT_TAG_QUOTE, /* between "=" and the quote */
	OUT_TAG_VALUE, /* inside the quotes */
	OUT_TAG_SKIP,  /* up to ">" */
};

struct out_parse {
	const struct tok *t;
	struct out_parse_opts o;
	out_sink_fn *sink;
	void *arg;
	int32_t mark_id[OUT_MARKS]; /* -1 = the tokenizer has none */

	enum out_state state;
	bool reasoning;	 /* text is reasoning; inside an unproven block: it was, in front of it */
	bool started;	 /* a visible byte was emitted in this part of the text */
	bool proven;	 /* the block holds a call */
	size_t n_lf;	 /* line feeds held back in front of "</think>" or a block */
	uint32_t before; /* held back behind them: 0 nothing, 1 "<", 2 "</" */
	struct tok_stream chars;

	/* The tag in the making. */
	enum out_tag_step tag;
	bool closing, bad, first; /* first: it may begin a block */
	char word[20];		  /* tag's or attribute's name */
	size_t n_word;
	uint32_t kind; /* of the tag, once its name is known */
	enum out_form form;
	bool named;	      /* it has a "name" */
	struct ds_buf quoted; /* owned: an attribute's value */
	struct tok_stream quoted_chars;
	struct ds_buf name; /* owned: the one of "name" */

	struct ds_buf raw; /* owned: an unproven block as it came */
	struct out_args args;

	struct ds_buf piece; /* owned: pieces of one kind, not yet given to the sink */
	enum out_kind piece_kind;

	uint32_t n_calls, n_complete; /* announced; closed */
	uint32_t n_reasoning;	      /* tokens up to and including what closed the reasoning */
	uint32_t n_unproven;	      /* tokens of a block that may yet have been reasoning */
	bool failed;
};

/** out_parse_init() - @t, @o's tools: borrowed until out_parse_fini(). @sink gets every event during a put. */
void out_parse_init(struct out_parse *p, const struct tok *t, const struct out_parse_opts *o,
		    out_sink_fn *sink, void *arg);
/** out_parse_put() - one token. Control tokens that are no mark are never shown. */
void out_parse_put(struct out_parse *p, uint32_t id);
/** out_parse_bytes(), out_parse_mark() - what a token is made of; for who has no tokens. */
void out_parse_bytes(struct out_parse *p, const char *bytes, size_t len);
void out_parse_mark(struct out_parse *p, enum out_mark mark);
/**
 * out_parse_end() - what was held back is settled.
 * @natural: the model ended by itself; then a block, and a call behind its last parameter, need no closing tag
 */
void out_parse_end(struct out_parse *p, bool natural);
void out_parse_fini(struct out_parse *p);

#endif
