/*
 * api_format.h - how one endpoint writes an answer: chat/completions, completions, responses, messages.
 *
 * answer.c collects every choice's record and, for a stream, calls the format at each event. A format
 * only writes bytes: no socket, no engine, no lock, no clock.
 */
#ifndef ENG_API_FORMAT_H
#define ENG_API_FORMAT_H

#include <jansson.h>
#include <stdbool.h>

#include "api.h"
#include "out_event.h"

#define API_CALLS_MAX OUT_CALLS_MAX

/* One tool call of a choice. */
struct api_call {
	char id[API_ID_BYTES];
	struct ds_buf name, args; /* owned */
	bool complete;		  /* OUT_CALL_END came */
};

/* Everything one choice has said so far; events are added to it before the format sees them. */
struct api_choice {
	uint32_t index;
	struct ds_buf reasoning, content; /* owned */
	struct api_call *call;		  /* owned, [n_call] */
	uint32_t n_call;
	const char *finish;	 /* NULL = goes on; "stop", "length", "tool_calls" (static) */
	const char *stop_string; /* the request's, when one ended it; borrowed */
	json_t *logprobs; /* owned: what was asked for, as the endpoint's record of tokens; NULL */
};

/* One answer in one endpoint's format. */
struct api_doc {
	const struct api_format *format;
	struct api_head head;		 /* id, model, created, include_usage */
	const struct api_request *req;	 /* borrowed */
	const struct api_choice *choice; /* borrowed, [n] */
	uint32_t n;
	bool thinking;		/* the prompt left the model in reasoning */
	uint32_t prompt_tokens; /* known before the first event */
	/* What a format must remember between two events of a stream; free for it to use, 0 at first. */
	struct {
		uint32_t block;	   /* index of the open or next block or item */
		uint32_t kind;	   /* of the open block, as the format counts; 0 = none open */
		uint64_t sequence; /* events written */
		size_t from;	   /* where the open block's text begins in the choice's record */
	} state;
};

struct api_format {
	const char *id_prefix; /* "chatcmpl-", "cmpl-", "resp_", "msg_" */

	/* A stream. @out: server-sent events are appended, each ended by an empty line. */
	void (*begin)(struct api_doc *d, struct ds_buf *out);
	/* @c has @ev in it already; @logprobs: of the tokens since the last event, NULL when not asked for */
	void (*event)(struct api_doc *d, const struct api_choice *c, const struct out_event *ev,
		      json_t *logprobs, struct ds_buf *out);
	void (*choice_end)(struct api_doc *d, const struct api_choice *c, struct ds_buf *out);
	void (*end)(struct api_doc *d, const struct api_usage *u, struct ds_buf *out);
	void (*ping)(struct api_doc *d, struct ds_buf *out); /* nothing to say for ANSWER_PING_MS */
	/* The stream ends in @e. */
	void (*error)(struct api_doc *d, const struct api_error *e, struct ds_buf *out);

	/* Not a stream: the whole body of a good answer. */
	void (*whole)(struct api_doc *d, const struct api_usage *u, struct ds_buf *out);
	/* The body of an error with its HTTP status, also before an answer exists. */
	void (*error_body)(const struct api_error *e, struct ds_buf *out);
};

extern const struct api_format api_chat_format;	       /* api_chat.c */
extern const struct api_format api_completions_format; /* api_completions.c */
extern const struct api_format api_responses_format;   /* api_responses.c */
extern const struct api_format api_messages_format;    /* api_messages.c */

/**
 * api_responses_to_chat(), api_messages_to_chat() - rewrite a parsed body of the endpoint as the body of
 * chat/completions that means the same; what cannot be said there is refused by the field's own name.
 * api_messages_count_to_chat() is for /v1/messages/count_tokens, which needs no max_tokens.
 * @body: borrowed. Return: owned by the caller; NULL with DS_ERR_INPUT (err->obj: the JSON path in @body).
 */
json_t *api_responses_to_chat(const json_t *body, struct ds_err *err);
json_t *api_messages_to_chat(const json_t *body, struct ds_err *err);
json_t *api_messages_count_to_chat(const json_t *body, struct ds_err *err);

/**
 * api_responses_echo() - what every response object repeats of its request, for api_request.echo.
 * @body: as given to api_responses_to_chat(), which must have taken it.
 * Return: owned; NULL with DS_ERR_NOMEM.
 */
json_t *api_responses_echo(const json_t *body, struct ds_err *err);

/** api_messages_put_count() - the answer of count_tokens. @n: the prompt's tokens */
void api_messages_put_count(struct ds_buf *out, uint32_t n);

extern const struct api_way api_responses_way; /* api_responses.c */
extern const struct api_way api_messages_way;  /* api_messages.c */
extern const struct api_way api_count_way;     /* api_messages.c */

#endif
