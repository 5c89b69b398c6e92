/*
 * out_event.h - what an answer says, piece by piece: the words between the output parser and the
 * endpoints.
 *
 * The parser turns tokens into events once; every endpoint, streaming or not, writes the same events in
 * its own format, so that none can show markup which another hides (serving.md C).
 */
#ifndef ENG_OUT_EVENT_H
#define ENG_OUT_EVENT_H

#include <stddef.h>
#include <stdint.h>

#define OUT_CALLS_MAX 128 /* tool calls in one choice */

enum out_kind {
	OUT_REASONING, /* text: more reasoning */
	OUT_CONTENT,   /* text: more visible content; stop strings were applied already */
	OUT_CALL,      /* a tool call opens; text: the function's name, id: its call id */
	OUT_ARGS,      /* text: more of the call's arguments, a piece of one JSON object */
	OUT_CALL_END,  /* the call is complete: its arguments are valid JSON */
};

struct out_event {
	enum out_kind kind;
	const char *text; /* borrowed; UTF-8, whole characters; may hold NUL bytes */
	size_t len;
	uint32_t call;	/* OUT_CALL, OUT_ARGS, OUT_CALL_END: index in this choice, from 0 */
	const char *id; /* OUT_CALL: "call_" and at least 96 random bits; borrowed */
};

/* Takes one event, in order; it must not keep the views. Threads: the one that feeds the parser. */
typedef void out_sink_fn(void *arg, const struct out_event *ev);

#endif
