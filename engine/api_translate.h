/*
 * api_translate.h - what the translations of other endpoints' bodies into chat/completions share:
 * refusing by path, sharing values, and collecting an assistant's turn from pieces.
 *
 * A translation shares values with the body that it reads and never prints them anew, so the texts of
 * numbers reach the prompt as they came. Lack of memory is noted once and told at the end.
 */
#ifndef ENG_API_TRANSLATE_H
#define ENG_API_TRANSLATE_H

#include <jansson.h>
#include <stdbool.h>

#include "buf.h"
#include "err.h"

struct tr {
	const json_t *body; /* borrowed: what is translated */
	json_t *out;	    /* owned: the chat body so far */
	json_t *messages;   /* of @out, borrowed */
	struct ds_err *err;
	bool no_memory;
	/* The assistant's turn that is being collected. */
	struct {
		bool open;
		json_t *text;	/* owned: parts */
		json_t *calls;	/* owned */
		json_t *reason; /* owned: strings */
	} turn;
};

/** tr_begin() - @body: must be an object. Return: 0; -1 DS_ERR_INPUT, nothing to free then. */
int tr_begin(struct tr *t, const json_t *body, struct ds_err *err);
/** tr_end() - @rc: of the translation. Return: the chat body, owned; NULL with the error told. */
json_t *tr_end(struct tr *t, int rc);

/** tr_refuse() - DS_ERR_INPUT: @why at a path given as printf. Return: -1. */
int tr_refuse(struct tr *t, const char *why, const char *path, ...)
	__attribute__((format(printf, 3, 4)));

/** tr_field() - a field; NULL when it is absent or null: both mean "not said". Returns a view. */
const json_t *tr_field(const json_t *o, const char *name);
/** tr_is() - whether @v is the string @text, by length: a client's string may hold NUL. */
bool tr_is(const json_t *v, const char *text);
/** tr_share() - one more owner of a value that is only read from now on. */
json_t *tr_share(const json_t *v);

/**
 * tr_put(), tr_add() - put @v, which is taken, into an object or a list; a NULL among the three is lack
 * of memory that came before. Return: @v, borrowed; NULL when it could not be put (and is freed).
 */
json_t *tr_put(struct tr *t, json_t *o, const char *key, json_t *v);
json_t *tr_add(struct tr *t, json_t *list, json_t *v);
/** tr_copy() - the body's field @name as the chat body's @as; absent = nothing. */
void tr_copy(struct tr *t, const json_t *body, const char *name, const char *as);
/** tr_copy_sampling() - the fields that mean the same on every endpoint, under their own names. */
void tr_copy_sampling(struct tr *t, const json_t *body);

/** tr_message() - a new message of @role behind the others; ends the assistant's turn. Borrowed. */
json_t *tr_message(struct tr *t, const char *role);
/** tr_part() - {"type": "text", "text": @text}. Owned. */
json_t *tr_part(struct tr *t, const json_t *text);
/** tr_function() - {"type": "function", "function": @function}; takes @function. Owned. */
json_t *tr_function(struct tr *t, json_t *function);

/*
 * The assistant's turn: these open it where none is open; any other message ends it. Order within a
 * turn is the model's own: reasoning, text, calls.
 */
void tr_turn_open(struct tr *t);
void tr_turn_reason(struct tr *t, json_t *text); /* takes */
void tr_turn_text(struct tr *t, const json_t *text);
/** tr_turn_call() - @arguments: an object, or a string of JSON; @name: taken. */
void tr_turn_call(struct tr *t, const json_t *id, json_t *name, const json_t *arguments);
/** tr_turn_end() - Return: the turn's message, borrowed; NULL when none was open. */
json_t *tr_turn_end(struct tr *t);

#endif
