/*
 * api_translate.c - any JSON as the body of /v1/messages and /v1/responses: a chat body with messages, or
 * an error that names a path; the chat body becomes a prompt or is refused by path; the body itself stays
 * as it was, and what an answer would repeat of it or call by its names is JSON again.
 */
#include <stdlib.h>
#include <string.h>

#include "api_format.h"
#include "chat.h"
#include "fuzz_tok.h"
#include "pyjson.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_prompt(const json_t *chat)
{
	static struct tok *t;
	struct chat_prompt p;
	struct ds_err err = { 0 };
	if (t == NULL)
		t = fuzz_tok();
	if (chat_encode(t, chat, true, &p, &err) == 0)
		chat_prompt_fini(&p);
	else if (err.kind != DS_ERR_INPUT || err.obj[0] == '\0' || err.why[0] == '\0')
		abort();
}

static void check_chat(const json_t *chat, const struct ds_err *err)
{
	const json_t *list = json_object_get(chat, "messages");
	if (chat == NULL) {
		if (err->kind != DS_ERR_INPUT || err->why[0] == '\0')
			abort();
		return;
	}
	/* A list with nothing in it must not reach the encoder as a turn without a role. */
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *m = json_array_get(list, i);
		if (!json_is_string(json_object_get(m, "role")) ||
		    json_object_get(m, "content") == NULL)
			abort();
	}
	if (!json_is_array(list))
		abort();
	check_prompt(chat);
}

static void check_json(const char *text, size_t len)
{
	json_t *o = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
	if (!json_is_object(o))
		abort();
	json_decref(o);
}

/* Every data line of a stream is JSON or the end mark. */
static void check_stream(const struct ds_buf *b)
{
	for (const char *p = b->data; p != NULL && *p != '\0';) {
		const char *nl = strchr(p, '\n');
		if (nl == NULL)
			abort();
		if (strncmp(p, "data: ", 6) == 0 && strncmp(p, "data: [DONE]", 12) != 0)
			check_json(p + 6, (size_t)(nl - p - 6));
		p = nl + 1;
	}
}

static void say(struct api_doc *d, struct api_choice *c, enum out_kind kind, const char *text,
		size_t len, struct ds_buf *out)
{
	struct out_event ev = { .kind = kind, .text = text, .len = len, .id = "call_1" };
	d->format->event(d, c, &ev, NULL, out);
}

/* One answer with a call of @name, whose arguments are the bytes of the body. */
static void answer(const struct api_format *f, json_t *echo, const json_t *name, const char *args,
		   size_t len)
{
	struct api_request req = { .echo = echo };
	struct api_call call = { .id = "call_1", .complete = true };
	struct api_choice c = { .call = &call, .finish = "tool_calls" };
	struct api_doc d = { .format = f, .req = &req, .choice = &c, .n = 1 };
	struct api_usage u = { 0 };
	struct ds_buf out = { 0 };
	strcpy(d.head.id, "id_1");
	f->begin(&d, &out);
	ds_buf_put(&c.reasoning, args, len);
	say(&d, &c, OUT_REASONING, args, len, &out);
	ds_buf_put(&call.name, json_string_value(name), json_string_length(name));
	c.n_call = 1;
	call.complete = false;
	say(&d, &c, OUT_CALL, call.name.data, call.name.len, &out);
	ds_buf_put(&call.args, args, len);
	say(&d, &c, OUT_ARGS, args, len, &out);
	call.complete = true;
	say(&d, &c, OUT_CALL_END, "", 0, &out);
	f->choice_end(&d, &c, &out);
	f->end(&d, &u, &out);
	check_stream(&out);
	ds_buf_reset(&out);
	f->whole(&d, &u, &out);
	check_json(out.data, out.len);
	ds_buf_fini(&out);
	ds_buf_fini(&c.reasoning);
	ds_buf_fini(&call.name);
	ds_buf_fini(&call.args);
}

static void both(const json_t *body, const char *text, size_t size)
{
	struct ds_err err = { 0 };
	json_t *chat = api_messages_to_chat(body, &err);
	const json_t *tool = json_array_get(json_object_get(body, "tools"), 0);
	const json_t *name = json_object_get(tool, "name");
	check_chat(chat, &err);
	json_decref(chat);
	err = (struct ds_err){ 0 };
	chat = api_messages_count_to_chat(body, &err);
	check_chat(chat, &err);
	json_decref(chat);
	err = (struct ds_err){ 0 };
	chat = api_responses_to_chat(body, &err);
	check_chat(chat, &err);
	if (chat != NULL && json_is_string(name)) {
		json_t *echo = api_responses_echo(body, &err);
		answer(&api_responses_format, echo, name, text, size);
		/* The parser vouches for arguments, so here they are any object: the body. */
		answer(&api_messages_format, NULL, name, text, size);
		json_decref(echo);
	}
	json_decref(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_error_t at;
	json_t *body = pyjson_load((const char *)data, size, JSON_DECODE_ANY, &at);
	if (body == NULL)
		return 0;
	char *before = json_dumps(body, JSON_ENCODE_ANY), *text = json_dumps(body, JSON_ENCODE_ANY);
	if (before == NULL || text == NULL)
		abort();
	both(body, text, strlen(text));
	char *after = json_dumps(body, JSON_ENCODE_ANY);
	if (after == NULL || strcmp(before, after) != 0)
		abort();
	free(before);
	free(after);
	free(text);
	json_decref(body);
	return 0;
}
