/*
 * api_translate.c - the common half of the translations into chat/completions bodies.
 */
#include "api_translate.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int tr_begin(struct tr *t, const json_t *body, struct ds_err *err)
{
	*t = (struct tr){ .body = body, .err = err };
	if (!json_is_object(body))
		return tr_refuse(t, "the body must be a JSON object", "%s", "");
	t->out = json_object();
	t->messages = tr_put(t, t->out, "messages", json_array());
	return 0;
}

json_t *tr_end(struct tr *t, int rc)
{
	json_t *out = t->out;
	tr_turn_end(t);
	if (rc == 0 && !t->no_memory)
		return out;
	if (rc == 0)
		ds_err_set(t->err, DS_ERR_NOMEM, ENOMEM, "body", "translate the request");
	json_decref(out);
	return NULL;
}

int tr_refuse(struct tr *t, const char *why, const char *path, ...)
{
	char at[sizeof(t->err->obj)];
	va_list ap;
	va_start(ap, path);
	vsnprintf(at, sizeof(at), path, ap);
	va_end(ap);
	ds_err_set(t->err, DS_ERR_INPUT, 0, at, "read the request");
	return ds_err_why(t->err, "%s", why);
}

const json_t *tr_field(const json_t *o, const char *name)
{
	const json_t *v = json_object_get(o, name);
	return v == NULL || json_is_null(v) ? NULL : v;
}

bool tr_is(const json_t *v, const char *text)
{
	size_t n = strlen(text);
	return json_is_string(v) && json_string_length(v) == n &&
	       memcmp(json_string_value(v), text, n) == 0;
}

json_t *tr_share(const json_t *v)
{
	return json_incref((json_t *)v);
}

json_t *tr_put(struct tr *t, json_t *o, const char *key, json_t *v)
{
	if (json_object_set_new(o, key, v) == 0)
		return v;
	t->no_memory = true;
	return NULL;
}

json_t *tr_add(struct tr *t, json_t *list, json_t *v)
{
	if (json_array_append_new(list, v) == 0)
		return v;
	t->no_memory = true;
	return NULL;
}

void tr_copy(struct tr *t, const json_t *body, const char *name, const char *as)
{
	const json_t *v = tr_field(body, name);
	if (v != NULL)
		tr_put(t, t->out, as, tr_share(v));
}

/* What these endpoints' own fields do not say, but this server's clients may. */
void tr_copy_sampling(struct tr *t, const json_t *body)
{
	static const char *const same[] = {
		"model",
		"stream",
		"temperature",
		"top_p",
		"top_k",
		"min_p",
		"seed",
		"presence_penalty",
		"frequency_penalty",
		"repetition_penalty",
		"logit_bias",
		"ignore_eos",
		"min_tokens",
		"stop",
		"stop_token_ids",
		"priority",
		"cache_salt",
		"include_stop_str_in_output",
		"bad_words",
		"structured_outputs",
		"chat_template_kwargs",
	};
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		tr_copy(t, body, same[i], same[i]);
}

json_t *tr_message(struct tr *t, const char *role)
{
	tr_turn_end(t);
	json_t *m = tr_add(t, t->messages, json_object());
	tr_put(t, m, "role", json_string(role));
	return m;
}

json_t *tr_part(struct tr *t, const json_t *text)
{
	json_t *part = json_object();
	tr_put(t, part, "type", json_string("text"));
	tr_put(t, part, "text", tr_share(text));
	return part;
}

json_t *tr_function(struct tr *t, json_t *function)
{
	json_t *o = json_object();
	tr_put(t, o, "type", json_string("function"));
	tr_put(t, o, "function", function);
	return o;
}

/* ---------------------------------- the assistant's turn ---------------------------------- */

void tr_turn_open(struct tr *t)
{
	if (t->turn.open)
		return;
	t->turn.open = true;
	t->turn.text = json_array();
	t->turn.calls = json_array();
	t->turn.reason = json_array();
}

void tr_turn_reason(struct tr *t, json_t *text)
{
	tr_turn_open(t);
	tr_add(t, t->turn.reason, text);
}

void tr_turn_text(struct tr *t, const json_t *text)
{
	tr_turn_open(t);
	tr_add(t, t->turn.text, tr_part(t, text));
}

void tr_turn_call(struct tr *t, const json_t *id, json_t *name, const json_t *arguments)
{
	tr_turn_open(t);
	json_t *f = json_object();
	tr_put(t, f, "name", name);
	tr_put(t, f, "arguments", tr_share(arguments));
	json_t *call = tr_function(t, f);
	tr_put(t, call, "id", tr_share(id));
	tr_add(t, t->turn.calls, call);
}

/* Several pieces of reasoning are one, with an empty line between them. */
static json_t *join(struct tr *t, const json_t *list)
{
	struct ds_buf b = { 0 };
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *s = json_array_get(list, i);
		if (i > 0)
			ds_buf_puts(&b, "\n\n");
		ds_buf_put(&b, json_string_value(s), json_string_length(s));
	}
	json_t *all = json_stringn(b.data != NULL ? b.data : "", b.len);
	if (b.failed)
		t->no_memory = true;
	ds_buf_fini(&b);
	return all;
}

json_t *tr_turn_end(struct tr *t)
{
	if (!t->turn.open)
		return NULL;
	t->turn.open = false;
	size_t n_text = json_array_size(t->turn.text);
	json_t *m = tr_message(t, "assistant");
	if (json_array_size(t->turn.reason) > 0)
		tr_put(t, m, "reasoning_content", join(t, t->turn.reason));
	if (n_text == 0)
		tr_put(t, m, "content", json_string(""));
	else if (n_text == 1)
		tr_put(t, m, "content",
		       tr_share(json_object_get(json_array_get(t->turn.text, 0), "text")));
	else
		tr_put(t, m, "content", tr_share(t->turn.text));
	if (json_array_size(t->turn.calls) > 0)
		tr_put(t, m, "tool_calls", tr_share(t->turn.calls));
	json_decref(t->turn.text);
	json_decref(t->turn.calls);
	json_decref(t->turn.reason);
	memset(&t->turn, 0, sizeof(t->turn));
	return m;
}
