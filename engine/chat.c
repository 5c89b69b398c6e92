/*
 * chat.c - a chat/completions body to the prompt that DeepSeek-V4.1 was trained on.
 *
 * Owns the layout of a conversation: which marks stand where, whose reasoning is kept, and where the
 * effort line goes. Marks are put by id. All other text, whoever wrote it, is encoded with added
 * tokens off, so that a user who types "<think>" gets those seven characters; and text between two
 * marks is encoded as one run, because cutting it anywhere else could change its ids.
 *
 * Source of the layout: the model's release notes and its public encoder ports; the rules are
 * those of the V4.1 release where it and later ports differ.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

#define EFFORT_DEFAULT 75

enum mark {
	BOS,
	EOS,
	SYSTEM,
	USER,
	ASSISTANT,
	THINK,
	THINK_END,
	N_MARKS
};

static const char *const mark_text[N_MARKS] = {
	[BOS] = "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
	[EOS] = "<\uff5cend\u2581of\u2581sentence\uff5c>",
	[SYSTEM] = "<\uff5cSystem\uff5c>",
	[USER] = "<\uff5cUser\uff5c>",
	[ASSISTANT] = "<\uff5cAssistant\uff5c>",
	[THINK] = "<think>",
	[THINK_END] = "</think>",
};

static int refuse(struct ds_err *err, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(struct ds_err *err, const char *path, const char *fmt, ...)
{
	char why[sizeof(err->why)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ds_err_set(err, DS_ERR_INPUT, 0, path, "read request");
	ds_err_why(err, "%s", why);
	return -1;
}

static int no_memory(struct ds_err *err)
{
	ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "encode conversation");
	return -1;
}

static bool absent(const json_t *v)
{
	return v == NULL || json_is_null(v);
}

static bool is_text(const json_t *v, const char *want)
{
	size_t n = strlen(want);

	/* By length: a client's string may hold NUL. */
	return json_is_string(v) && json_string_length(v) == n &&
	       memcmp(json_string_value(v), want, n) == 0;
}

/* ------------------------------------ thinking and effort ------------------------------------ */

/* What one level of the request (its own fields, or its template arguments) says. */
struct knobs {
	int on;		 /* -1 = says nothing */
	uint32_t effort; /* 0 = says nothing */
};

/* The release knows low, high and max; the others are names that clients send. */
static const struct {
	const char *name;
	uint32_t effort; /* 0 = thinking off */
} efforts[] = {
	{ "none", 0 },	{ "minimal", 25 }, { "low", 50 },  { "medium", 60 },
	{ "high", 75 }, { "xhigh", 90 },   { "max", 100 },
};

/* An effort also says whether to think, unless a switch of its level has said so already. */
static int read_effort(struct knobs *k, const json_t *v, const char *path, struct ds_err *err)
{
	json_int_t effort = -1;

	if (absent(v))
		return 0;
	if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 100)
		effort = json_integer_value(v);
	for (size_t i = 0; i < sizeof(efforts) / sizeof(efforts[0]); i++)
		if (is_text(v, efforts[i].name))
			effort = efforts[i].effort;
	if (effort < 0)
		return refuse(
			err, path,
			"is not an integer from 1 to 100, nor none, minimal, low, medium, high, xhigh or max");
	if (k->on < 0)
		k->on = effort > 0;
	if (k->effort == 0)
		k->effort = (uint32_t)effort;
	return 0;
}

static int read_switch(struct knobs *k, const json_t *v, const char *path, struct ds_err *err)
{
	if (absent(v))
		return 0;
	if (!json_is_boolean(v))
		return refuse(err, path, "is not true or false");
	if (k->on < 0)
		k->on = json_is_true(v);
	return 0;
}

static int read_thinking_type(struct knobs *k, const json_t *thinking, struct ds_err *err)
{
	if (absent(thinking))
		return 0;
	const json_t *type = json_object_get(thinking, "type");
	if (!is_text(type, "enabled") && !is_text(type, "disabled"))
		return refuse(err, "thinking.type", "is not \"enabled\" or \"disabled\"");
	k->on = is_text(type, "enabled");
	return 0;
}

/* The request's own fields: switches first, since they are what a conflict is decided by. */
static int read_own(struct knobs *k, const json_t *body, struct ds_err *err)
{
	const json_t *think = json_object_get(body, "think");
	const json_t *reasoning = json_object_get(body, "reasoning");

	if (read_thinking_type(k, json_object_get(body, "thinking"), err) != 0)
		return -1;
	if (json_is_string(think) ? read_effort(k, think, "think", err) != 0
				  : read_switch(k, think, "think", err) != 0)
		return -1;
	if (!absent(reasoning) && !json_is_object(reasoning))
		return refuse(err, "reasoning", "is not an object");
	if (read_effort(k, json_object_get(body, "reasoning_effort"), "reasoning_effort", err) != 0)
		return -1;
	return read_effort(k, json_object_get(reasoning, "effort"), "reasoning.effort", err);
}

static int read_template_arguments(struct knobs *k, const json_t *args, struct ds_err *err)
{
	static const char *const switches[] = { "thinking", "enable_thinking" };
	char path[64];

	if (!absent(args) && !json_is_object(args))
		return refuse(err, "chat_template_kwargs", "is not an object");
	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
		snprintf(path, sizeof(path), "chat_template_kwargs.%s", switches[i]);
		if (read_switch(k, json_object_get(args, switches[i]), path, err) != 0)
			return -1;
	}
	return read_effort(k, json_object_get(args, "reasoning_effort"),
			   "chat_template_kwargs.reasoning_effort", err);
}

/* The request's own fields win over its template arguments, and those over the server's default. */
static int read_knobs(const json_t *body, bool thinking_default, struct chat_prompt *out,
		      struct ds_err *err)
{
	struct knobs own = { .on = -1 }, args = { .on = -1 };

	if (read_own(&own, body, err) != 0 ||
	    read_template_arguments(&args, json_object_get(body, "chat_template_kwargs"), err) != 0)
		return -1;
	int on = own.on >= 0 ? own.on : args.on >= 0 ? args.on : thinking_default;
	uint32_t effort = own.effort > 0 ? own.effort : args.effort;
	out->thinking = on > 0;
	out->effort = !out->thinking ? 0 : effort > 0 ? effort : EFFORT_DEFAULT;
	return 0;
}

/* ---------------------------------- what is not encoded here --------------------------------- */

static bool is_empty(const json_t *v)
{
	return absent(v) || (json_is_array(v) && json_array_size(v) == 0);
}

static int check_body(const json_t *body, struct ds_err *err)
{
	static const char *const lists[] = { "tools", "functions" };
	const json_t *choice = json_object_get(body, "tool_choice");
	const json_t *format = json_object_get(body, "response_format");

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		if (!is_empty(json_object_get(body, lists[i])))
			return refuse(err, lists[i], "tools are not supported");
	if (!absent(choice) && !is_text(choice, "none") && !is_text(choice, "auto"))
		return refuse(err, "tool_choice", "asks for a call, but there are no tools");
	if (!absent(format) && !is_text(json_object_get(format, "type"), "text"))
		return refuse(err, "response_format", "only {\"type\": \"text\"} is supported");
	return 0;
}

/* -------------------------------------- messages to turns ------------------------------------ */

/* One turn: a message, or adjacent user messages as one. */
struct turn {
	enum mark role; /* SYSTEM, USER or ASSISTANT */
	struct ds_buf text;
	const json_t *reasoning; /* of an assistant: a string of the body, or NULL */
};

struct turns {
	struct turn *turn;
	size_t n;
	bool open; /* the last one is an assistant's and is to be continued */
};

static void turns_fini(struct turns *l)
{
	for (size_t i = 0; i < l->n; i++)
		ds_buf_fini(&l->turn[i].text);
	free(l->turn);
}

/* Parts are joined by an empty line, as the release's encoder does. */
static int add_part(struct ds_buf *text, const json_t *part, bool first, const char *path,
		    struct ds_err *err)
{
	const json_t *type = json_object_get(part, "type");
	const json_t *s = json_object_get(part, "text");
	char at[128];

	if (!is_text(type, "text")) {
		snprintf(at, sizeof(at), "%s.type", path);
		return refuse(err, at, "only parts of type \"text\" are supported");
	}
	if (!json_is_string(s)) {
		snprintf(at, sizeof(at), "%s.text", path);
		return refuse(err, at, "is not a string");
	}
	if (!first)
		ds_buf_puts(text, "\n\n");
	ds_buf_put(text, json_string_value(s), json_string_length(s));
	return 0;
}

static int add_content(struct ds_buf *text, const json_t *content, bool optional, size_t i,
		       struct ds_err *err)
{
	char path[96];
	json_t *part;
	size_t k;

	snprintf(path, sizeof(path), "messages[%zu].content", i);
	if (json_is_string(content)) {
		ds_buf_put(text, json_string_value(content), json_string_length(content));
		return 0;
	}
	if (absent(content) && optional)
		return 0;
	if (!json_is_array(content))
		return refuse(err, path, "is not a string or a list of parts");
	json_array_foreach (content, k, part) {
		snprintf(path, sizeof(path), "messages[%zu].content[%zu]", i, k);
		if (add_part(text, part, k == 0, path, err) != 0)
			return -1;
	}
	return 0;
}

static int read_role(const json_t *message, size_t i, enum mark *role, struct ds_err *err)
{
	static const struct {
		const char *name;
		enum mark role;
	} roles[] = {
		{ "system", SYSTEM },
		{ "developer", SYSTEM }, /* what clients of newer APIs call the system role */
		{ "user", USER },
		{ "assistant", ASSISTANT },
	};
	const json_t *v = json_object_get(message, "role");
	char path[64];

	for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++) {
		if (is_text(v, roles[k].name)) {
			*role = roles[k].role;
			return 0;
		}
	}
	snprintf(path, sizeof(path), "messages[%zu].role", i);
	if (is_text(v, "tool") || is_text(v, "function"))
		return refuse(err, path, "tool results are not supported");
	return refuse(err, path, "is not system, developer, user or assistant");
}

static int check_message(const json_t *message, size_t i, struct ds_err *err)
{
	static const char *const later[] = { "tool_calls", "function_call", "tools" };
	char path[96];

	snprintf(path, sizeof(path), "messages[%zu]", i);
	if (!json_is_object(message))
		return refuse(err, path, "is not an object");
	for (size_t k = 0; k < sizeof(later) / sizeof(later[0]); k++) {
		snprintf(path, sizeof(path), "messages[%zu].%s", i, later[k]);
		if (!is_empty(json_object_get(message, later[k])))
			return refuse(err, path, "tools are not supported");
	}
	return 0;
}

/* "reasoning_content", or "reasoning" as other servers call it. */
static int read_reasoning(struct turn *t, const json_t *message, size_t i, struct ds_err *err)
{
	static const char *const names[] = { "reasoning_content", "reasoning" };
	char path[96];

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		const json_t *v = json_object_get(message, names[k]);
		if (absent(v))
			continue;
		snprintf(path, sizeof(path), "messages[%zu].%s", i, names[k]);
		if (!json_is_string(v))
			return refuse(err, path, "is not a string");
		if (t->reasoning == NULL)
			t->reasoning = v;
	}
	return 0;
}

static int add_message(struct turns *l, const json_t *message, size_t i, struct ds_err *err)
{
	enum mark role = USER;

	if (check_message(message, i, err) != 0 || read_role(message, i, &role, err) != 0)
		return -1;
	bool joins = role == USER && l->n > 0 && l->turn[l->n - 1].role == USER;
	if (!joins)
		l->turn[l->n++] = (struct turn){ .role = role };
	struct turn *t = &l->turn[l->n - 1];
	if (joins)
		ds_buf_puts(&t->text, "\n\n");
	if (role == ASSISTANT && read_reasoning(t, message, i, err) != 0)
		return -1;
	return add_content(&t->text, json_object_get(message, "content"), role == ASSISTANT, i,
			   err);
}

/* "prefix" on the last message, or "continue_final_message": the last turn is to be continued. */
static int read_open(struct turns *l, const json_t *body, const json_t *messages,
		     struct ds_err *err)
{
	const json_t *flag = json_object_get(body, "continue_final_message");
	size_t n = json_array_size(messages);
	char path[64];

	if (!absent(flag) && !json_is_boolean(flag))
		return refuse(err, "continue_final_message", "is not true or false");
	l->open = json_is_true(flag);
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_object_get(json_array_get(messages, i), "prefix");
		snprintf(path, sizeof(path), "messages[%zu].prefix", i);
		if (!absent(v) && !json_is_boolean(v))
			return refuse(err, path, "is not true or false");
		if (json_is_true(v) && i + 1 < n)
			return refuse(err, path, "is not on the last message");
		l->open = l->open || json_is_true(v);
	}
	snprintf(path, sizeof(path), "messages[%zu].role", n - 1);
	if (l->open && l->turn[l->n - 1].role != ASSISTANT)
		return refuse(err, path, "only an assistant's message can be continued");
	return 0;
}

static int read_turns(struct turns *l, const json_t *body, struct ds_err *err)
{
	const json_t *messages = json_object_get(body, "messages");
	json_t *m;
	size_t i;

	if (!json_is_array(messages) || json_array_size(messages) == 0)
		return refuse(err, "messages", "is not a list of at least one message");
	if ((l->turn = calloc(json_array_size(messages), sizeof(*l->turn))) == NULL)
		return no_memory(err);
	json_array_foreach (messages, i, m)
		if (add_message(l, m, i, err) != 0)
			return -1;
	for (i = 0; i < l->n; i++)
		if (l->turn[i].text.failed)
			return no_memory(err);
	return read_open(l, body, messages, err);
}

/* --------------------------------------- turns to ids ---------------------------------------- */

struct writer {
	const struct tok *t;
	struct chat_prompt *out;
	struct ds_buf run; /* text since the last mark */
	struct ds_err *err;
	int rc; /* -1 after the first failure; everything later does nothing */
};

static void put_text(struct writer *w, const char *text, size_t len)
{
	if (len == 0)
		return;
	ds_buf_put(&w->run, text, len);
	ds_buf_put(&w->out->text, text, len);
}

static void end_run(struct writer *w)
{
	if (w->rc == 0 && (w->run.failed || w->out->text.failed))
		w->rc = no_memory(w->err);
	if (w->rc == 0 && w->run.len > 0)
		w->rc = tok_encode(w->t, w->run.data, w->run.len, false, &w->out->ids, w->err);
	ds_buf_reset(&w->run);
}

static void put_mark(struct writer *w, enum mark m)
{
	int32_t id = tok_special(w->t, mark_text[m]);

	end_run(w);
	if (w->rc == 0 && id < 0) {
		ds_err_set(w->err, DS_ERR_INPUT, 0, "tokenizer.json", "encode conversation");
		w->rc = ds_err_why(w->err, "has no added token %s", mark_text[m]);
	}
	if (w->rc == 0)
		w->rc = tok_ids_put(&w->out->ids, (uint32_t)id, w->err);
	ds_buf_puts(&w->out->text, mark_text[m]);
}

/* System text at the start; in thinking mode the effort line stands there even without one. */
static void put_first(struct writer *w, const struct turn *system)
{
	char line[128];
	int n;

	if (system == NULL && w->out->effort == 0)
		return;
	put_mark(w, SYSTEM);
	if (w->out->effort > 0) {
		n = snprintf(
			line, sizeof(line),
			"Reasoning Effort: %u (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
			w->out->effort);
		put_text(w, line, (size_t)n);
	}
	if (system != NULL)
		put_text(w, system->text.data, system->text.len);
}

/* @keep: with its reasoning; @open: generation goes on behind it */
static void put_assistant(struct writer *w, const struct turn *t, bool keep, bool open)
{
	put_mark(w, ASSISTANT);
	if (keep) {
		put_mark(w, THINK);
		put_text(w, json_string_value(t->reasoning), json_string_length(t->reasoning));
	}
	put_mark(w, THINK_END);
	put_text(w, t->text.data, t->text.len);
	if (!open)
		put_mark(w, EOS);
}

static void put_turns(struct writer *w, const struct turns *l)
{
	size_t first = l->n > 0 && l->turn[0].role == SYSTEM ? 1 : 0;
	size_t asked =
		0; /* turns up to and including the last question; reasoning before it is dropped */

	for (size_t i = first; i < l->n; i++)
		if (l->turn[i].role != ASSISTANT)
			asked = i + 1;
	put_mark(w, BOS);
	put_first(w, first == 1 ? &l->turn[0] : NULL);
	for (size_t i = first; i < l->n; i++) {
		const struct turn *t = &l->turn[i];
		if (t->role == ASSISTANT) {
			put_assistant(w, t, w->out->thinking && i >= asked,
				      l->open && i + 1 == l->n);
		} else {
			put_mark(w, t->role);
			put_text(w, t->text.data, t->text.len);
		}
	}
	/* Behind an assistant's turn as well: generation from its end mark stops at once or loops. */
	if (!l->open) {
		put_mark(w, ASSISTANT);
		put_mark(w, w->out->thinking ? THINK : THINK_END);
	}
	end_run(w);
}

int chat_encode(const struct tok *t, const json_t *body, bool thinking_default,
		struct chat_prompt *out, struct ds_err *err)
{
	struct writer w = { .t = t, .out = out, .err = err };
	struct turns l = { 0 };

	*out = (struct chat_prompt){ 0 };
	if (!json_is_object(body))
		return refuse(err, "body", "is not a JSON object");
	w.rc = read_knobs(body, thinking_default, out, err);
	if (w.rc == 0)
		w.rc = check_body(body, err);
	if (w.rc == 0)
		w.rc = read_turns(&l, body, err);
	if (w.rc == 0)
		put_turns(&w, &l);
	out->open = l.open;
	if (l.open)
		out->thinking = false; /* the continued turn's reasoning is closed */
	ds_buf_fini(&w.run);
	turns_fini(&l);
	if (w.rc != 0)
		chat_prompt_fini(out);
	return w.rc;
}

void chat_prompt_fini(struct chat_prompt *p)
{
	tok_ids_fini(&p->ids);
	ds_buf_fini(&p->text);
	*p = (struct chat_prompt){ 0 };
}
