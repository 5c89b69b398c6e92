/*
 * api_chat.c - answers of POST /v1/chat/completions: OpenAI's chat.completion objects and chunks.
 */
#include <stdlib.h>

#include "api_format.h"
#include "json.h"

static void put_head(struct ds_json *j, const struct api_head *h, const char *object)
{
	ds_json_object(j);
	ds_json_kstr(j, "id", h->id);
	ds_json_kstr(j, "object", object);
	ds_json_kint(j, "created", h->created);
	ds_json_kstr(j, "model", h->model);
}

static double rate(uint32_t n, double ms)
{
	return ms > 0 ? n * 1000.0 / ms : 0;
}

/* Seed and times: the seed repeats the answer, the times are what the server measured. */
static void put_extras(struct ds_json *j, const struct api_usage *u)
{
	ds_json_kuint(j, "seed", u->seed);
	ds_json_key(j, "timings");
	ds_json_object(j);
	ds_json_kuint(j, "prompt_n", u->prompt);
	ds_json_knum(j, "prompt_ms", u->prompt_ms, 6);
	ds_json_knum(j, "prompt_per_second", rate(u->prompt, u->prompt_ms), 5);
	ds_json_kuint(j, "predicted_n", u->completion);
	ds_json_knum(j, "predicted_ms", u->predicted_ms, 6);
	ds_json_knum(j, "predicted_per_second", rate(u->completion, u->predicted_ms), 5);
	ds_json_end(j);
}

static void put_usage(struct ds_json *j, const struct api_usage *u)
{
	ds_json_key(j, "usage");
	ds_json_object(j);
	ds_json_kuint(j, "prompt_tokens", u->prompt);
	ds_json_kuint(j, "completion_tokens", u->completion);
	ds_json_kuint(j, "total_tokens", (uint64_t)u->prompt + u->completion);
	ds_json_key(j, "completion_tokens_details");
	ds_json_object(j);
	ds_json_kuint(j, "reasoning_tokens", u->reasoning);
	ds_json_end(j);
	ds_json_end(j);
}

static void put_string(struct ds_json *j, const char *key, const char *s, size_t len)
{
	ds_json_key(j, key);
	ds_json_strn(j, len > 0 ? s : "", len);
}

static void put_logprobs(struct ds_json *j, const json_t *logprobs)
{
	char *text = logprobs != NULL ? json_dumps(logprobs, JSON_ENCODE_ANY) : NULL;
	if (logprobs != NULL && text == NULL)
		j->out->failed = true;
	ds_json_key(j, "logprobs");
	ds_json_raw(j, text != NULL ? text : "null");
	free(text);
}

/* ---------------------------------- stream ---------------------------------- */

/* Opens a chunk up to its one choice's "delta". */
static void chunk_begin(struct ds_json *j, const struct api_doc *d, uint32_t index,
			struct ds_buf *out)
{
	ds_buf_puts(out, "data: ");
	ds_json_init(j, out, 0);
	put_head(j, &d->head, "chat.completion.chunk");
	ds_json_key(j, "choices");
	ds_json_array(j);
	ds_json_object(j);
	ds_json_kuint(j, "index", index);
	ds_json_key(j, "delta");
	ds_json_object(j);
}

/* Closes it behind the delta. @u: with the last one, else NULL */
static void chunk_end(struct ds_json *j, const struct api_doc *d, const json_t *logprobs,
		      const char *finish, const struct api_usage *u)
{
	ds_json_end(j);
	put_logprobs(j, logprobs);
	ds_json_kstr(j, "finish_reason", finish);
	ds_json_end(j);
	ds_json_end(j);
	if (d->head.include_usage)
		ds_json_knull(j, "usage");
	if (u != NULL)
		put_extras(j, u);
	ds_json_end(j);
	ds_buf_puts(j->out, "\n\n");
}

static void stream_begin(struct api_doc *d, struct ds_buf *out)
{
	struct ds_json j;
	for (uint32_t i = 0; i < d->n; i++) {
		chunk_begin(&j, d, i, out);
		ds_json_kstr(&j, "role", "assistant");
		ds_json_kstr(&j, "content", "");
		chunk_end(&j, d, NULL, NULL, NULL);
	}
}

/* The call's first piece has its id and name, the others grow its arguments. */
static void put_call_delta(struct ds_json *j, const struct out_event *ev)
{
	ds_json_key(j, "tool_calls");
	ds_json_array(j);
	ds_json_object(j);
	ds_json_kuint(j, "index", ev->call);
	if (ev->kind == OUT_CALL) {
		ds_json_kstr(j, "id", ev->id);
		ds_json_kstr(j, "type", "function");
	}
	ds_json_key(j, "function");
	ds_json_object(j);
	if (ev->kind == OUT_CALL) {
		put_string(j, "name", ev->text, ev->len);
		ds_json_kstr(j, "arguments", "");
	} else {
		put_string(j, "arguments", ev->text, ev->len);
	}
	ds_json_end(j);
	ds_json_end(j);
	ds_json_end(j);
}

static void stream_event(struct api_doc *d, const struct api_choice *c, const struct out_event *ev,
			 json_t *logprobs, struct ds_buf *out)
{
	struct ds_json j;
	if (ev->kind == OUT_CALL_END || (ev->len == 0 && ev->kind != OUT_CALL))
		return;
	chunk_begin(&j, d, c->index, out);
	if (ev->kind == OUT_REASONING)
		put_string(&j, "reasoning_content", ev->text, ev->len);
	else if (ev->kind == OUT_CONTENT)
		put_string(&j, "content", ev->text, ev->len);
	else
		put_call_delta(&j, ev);
	chunk_end(&j, d, logprobs, NULL, NULL);
}

static void put_finish(struct api_doc *d, const struct api_choice *c, const struct api_usage *u,
		       struct ds_buf *out)
{
	struct ds_json j;
	chunk_begin(&j, d, c->index, out);
	chunk_end(&j, d, NULL, c->finish, u);
}

/* The last choice's end waits for the usage, which goes with it. */
static void stream_choice_end(struct api_doc *d, const struct api_choice *c, struct ds_buf *out)
{
	if (c->index + 1 < d->n)
		put_finish(d, c, NULL, out);
}

static void stream_end(struct api_doc *d, const struct api_usage *u, struct ds_buf *out)
{
	put_finish(d, &d->choice[d->n - 1], u, out);
	if (d->head.include_usage) {
		struct ds_json j;
		ds_buf_puts(out, "data: ");
		ds_json_init(&j, out, 0);
		put_head(&j, &d->head, "chat.completion.chunk");
		ds_json_key(&j, "choices");
		ds_json_array(&j);
		ds_json_end(&j);
		put_usage(&j, u);
		put_extras(&j, u);
		ds_json_end(&j);
		ds_buf_puts(out, "\n\n");
	}
	ds_buf_puts(out, "data: [DONE]\n\n");
}

static void stream_ping(struct api_doc *d, struct ds_buf *out)
{
	(void)d;
	ds_buf_puts(out, ": keep-alive\n\n");
}

static void stream_error(struct api_doc *d, const struct api_error *e, struct ds_buf *out)
{
	(void)d;
	ds_buf_puts(out, "data: ");
	api_put_error(out, e);
	ds_buf_puts(out, "\n\ndata: [DONE]\n\n");
}

/* ---------------------------------- whole ---------------------------------- */

static void put_calls(struct ds_json *j, const struct api_choice *c)
{
	ds_json_key(j, "tool_calls");
	ds_json_array(j);
	for (uint32_t i = 0; i < c->n_call; i++) {
		const struct api_call *call = &c->call[i];
		if (!call->complete)
			continue;
		ds_json_object(j);
		ds_json_kstr(j, "id", call->id);
		ds_json_kstr(j, "type", "function");
		ds_json_key(j, "function");
		ds_json_object(j);
		put_string(j, "name", call->name.data, call->name.len);
		put_string(j, "arguments", call->args.data, call->args.len);
		ds_json_end(j);
		ds_json_end(j);
	}
	ds_json_end(j);
}

static bool has_calls(const struct api_choice *c)
{
	for (uint32_t i = 0; i < c->n_call; i++)
		if (c->call[i].complete)
			return true;
	return false;
}

static void put_choice(struct ds_json *j, const struct api_doc *d, const struct api_choice *c)
{
	bool calls = has_calls(c);
	ds_json_object(j);
	ds_json_kuint(j, "index", c->index);
	ds_json_key(j, "message");
	ds_json_object(j);
	ds_json_kstr(j, "role", "assistant");
	if (d->thinking || c->reasoning.len > 0)
		put_string(j, "reasoning_content", c->reasoning.data, c->reasoning.len);
	if (calls && c->content.len == 0)
		ds_json_knull(j, "content");
	else
		put_string(j, "content", c->content.data, c->content.len);
	if (calls)
		put_calls(j, c);
	ds_json_end(j);
	put_logprobs(j, c->logprobs);
	ds_json_kstr(j, "finish_reason", c->finish);
	ds_json_end(j);
}

static void put_whole(struct api_doc *d, const struct api_usage *u, struct ds_buf *out)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	put_head(&j, &d->head, "chat.completion");
	ds_json_key(&j, "choices");
	ds_json_array(&j);
	for (uint32_t i = 0; i < d->n; i++)
		put_choice(&j, d, &d->choice[i]);
	ds_json_end(&j);
	put_usage(&j, u);
	put_extras(&j, u);
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
}

static void put_error_body(const struct api_error *e, struct ds_buf *out)
{
	api_put_error(out, e);
}

const struct api_format api_chat_format = {
	.id_prefix = "chatcmpl-",
	.begin = stream_begin,
	.event = stream_event,
	.choice_end = stream_choice_end,
	.end = stream_end,
	.ping = stream_ping,
	.error = stream_error,
	.whole = put_whole,
	.error_body = put_error_body,
};
