/*
 * format_feed.h - an answer for a format under test: a script of what a model says, cut into events of
 * any size, and the events of a stream as JSON.
 */
#ifndef TESTS_FORMAT_FEED_H
#define TESTS_FORMAT_FEED_H

#include <jansson.h>

#include "api_format.h"

/* What a model says, in order; ends with kind < 0. An OUT_CALL's text is the name. */
struct said {
	int kind; /* enum out_kind */
	const char *text;
};

struct script {
	const char *name;
	const char *finish;
	const char *stop; /* the stop string that ended it, or NULL */
	const struct said *said;
};

extern const struct script format_scripts[]; /* ends with name NULL */

/* A finished answer and the stream that told it. */
struct fed {
	struct api_request req;
	struct api_choice choice;
	struct api_doc doc;
	struct api_usage usage;
	struct ds_buf stream, whole;
};

/**
 * format_feed() - run @s through @f in pieces of @step characters (0 = as written), then write it whole.
 * @echo: for api_request.echo, taken
 */
void format_feed(struct fed *x, const struct api_format *f, const struct script *s, size_t step,
		 json_t *echo);
void format_feed_fini(struct fed *x);

/**
 * format_events() - a list of {"event": name or null, "data": object} (data a string if it is no JSON).
 * Fails the test when the stream is not well-formed. Owned.
 */
json_t *format_events(const struct ds_buf *stream);

/** json_of() - parse JSON that is part of the test; aborts when it is none. Owned. */
json_t *json_of(const char *text);

/** append_string() - the string at @key grows by @more. */
void append_string(json_t *o, const char *key, const json_t *more);

#endif
