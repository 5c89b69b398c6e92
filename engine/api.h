/*
 * api.h - what a request says, and the words that all answers share: ids, usage, errors, models.
 *
 * Only text in and text out: no socket, no engine. Names and shapes are OpenAI's; what this server
 * cannot do is refused by field name when leaving it out would change the meaning, and any field it
 * does not know is ignored (serving.md D.2).
 */
#ifndef ENG_API_H
#define ENG_API_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "sample.h"

#define API_BODY_MAX  (8 * 1024 * 1024)
#define API_STOPS_MAX 16
#define API_STOP_LEN  1024
#define API_BIAS_MAX  1024 /* entries of logit_bias */
#define API_ID_BYTES  48   /* "chatcmpl-" and 32 hexadecimal digits */

/* A chat/completions request after its checks. */
struct api_request {
	json_t *body; /* owned, NULL once chat_encode() has read messages and reasoning knobs */
	json_t *echo; /* owned: what /v1/responses repeats (api_responses_echo()); else NULL */
	bool stream, include_usage;
	struct sample_params sample;
	uint32_t max_tokens; /* 0 = the server's default */
	uint32_t min_tokens; /* the answer does not end by itself before it has so many */
	bool ignore_eos;     /* the end token is a token like others */
	uint32_t n_stop_id;
	uint32_t stop_id[API_STOPS_MAX]; /* tokens that end the answer, and are shown */
	struct sample_bias *bias;	 /* owned: sample.bias */
	uint32_t n_stop;
	char *stop[API_STOPS_MAX]; /* owned, each with its length: it may hold NUL bytes */
	size_t stop_len[API_STOPS_MAX];
};

/**
 * api_request_parse() - @text [len] is the body as it came.
 * Without "seed" a random one of 53 bits is drawn, so that every client can repeat it as a number.
 * Return: 0; -1 DS_ERR_INPUT: err->obj is the field ("" = the body as a whole), err->why the reason;
 * @out then needs no api_request_fini().
 */
int api_request_parse(const char *text, size_t len, struct api_request *out, struct ds_err *err);
/** api_request_check_ids() - token ids in the request against the vocabulary. Return: 0; -1 DS_ERR_INPUT. */
int api_request_check_ids(const struct api_request *r, uint32_t vocab, struct ds_err *err);
void api_request_fini(struct api_request *r);

/* A field of chat/completions and what another endpoint calls it. */
struct api_name {
	const char *chat; /* the path's beginning, or, with a point in front, a part of it */
	const char *own;
};

/* How another endpoint's bodies become chat bodies; see api_format.h. */
struct api_way {
	json_t *(*to_chat)(const json_t *body, struct ds_err *err);
	json_t *(*echo)(const json_t *body, struct ds_err *err); /* for api_request.echo; or NULL */
	const struct api_name *name;				 /* ends with chat NULL */
};
/** api_request_parse_by() - the same for the body of another endpoint. @way: NULL = chat/completions */
int api_request_parse_by(const struct api_way *way, const char *text, size_t len,
			 struct api_request *out, struct ds_err *err);
/** api_own_path() - a chat body's path as the client knows it. @path: [@size]; @way: NULL = as it is */
void api_own_path(const struct api_way *way, char *path, size_t size);

/* Stop strings over visible content, across tokens: text that may still become one is held back. */
struct api_stop {
	const struct api_request *req; /* borrowed */
	struct ds_buf held;
	const char *hit; /* the request's string that came; NULL = none yet */
};
/**
 * api_stop_put() - more content; what can no longer be part of a stop string is appended to @out.
 * Return: true when a stop string came: everything before it is in @out, the rest is dropped.
 */
bool api_stop_put(struct api_stop *s, const char *text, size_t len, struct ds_buf *out);
/** api_stop_end() - the answer ended: what was held back is content after all. */
void api_stop_end(struct api_stop *s, struct ds_buf *out);

/** api_new_id() - PREFIX and 128 random bits. @out: [API_ID_BYTES]. Return: 0; -1 DS_ERR_HOST. */
int api_new_id(const char *prefix, char *out, struct ds_err *err);

/* What all chunks of one answer share. */
struct api_head {
	char id[API_ID_BYTES];
	char model[128];
	int64_t created; /* seconds since 1970 */
	bool include_usage;
};

/* What one answer cost. */
struct api_usage {
	uint32_t prompt, completion, reasoning; /* tokens */
	double prompt_ms, predicted_ms;
	uint64_t seed;
};

/* An error as clients know it. */
struct api_error {
	unsigned int status;	 /* of HTTP */
	const char *type, *code; /* OpenAI's words; code NULL = null */
	char param[256];	 /* "" = null */
	char message[800];
};
/** api_error_of() - @err as an error body: INPUT and USAGE 400, TIMEOUT and PEER 503, others 500. */
void api_error_of(const struct ds_err *err, struct api_error *out);
/** api_put_error() - {"error":{...}}. */
void api_put_error(struct ds_buf *out, const struct api_error *e);

/** api_put_models() - the list of GET /v1/models; api_put_model() - one entry. @context: positions */
void api_put_models(struct ds_buf *out, const char *name, int64_t created, uint32_t context);
void api_put_model(struct ds_buf *out, const char *name, int64_t created, uint32_t context);

#endif
