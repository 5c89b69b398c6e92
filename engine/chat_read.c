/*
 * chat_read.c - the messages of a body to turns.
 *
 * Owns what a conversation may say: roles, contents, calls and their arguments, which results belong
 * to which calls. Everything is checked here, by its JSON path, so that writing a prompt can fail
 * for want of memory only.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_int.h"
#include "pyjson.h"

int chat_refuse(struct ds_err *err, const char *path, const char *fmt, ...)
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

int chat_no_memory(struct ds_err *err)
{
	ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "encode conversation");
	return -1;
}

bool chat_absent(const json_t *v)
{
	return v == NULL || json_is_null(v);
}

bool chat_is(const json_t *v, const char *want)
{
	size_t n = strlen(want);

	return json_is_string(v) && json_string_length(v) == n &&
	       memcmp(json_string_value(v), want, n) == 0;
}

/* --------------------------------------- contents --------------------------------------- */

/* Parts that are images, as one or another API names them. */
static bool is_image(const json_t *type)
{
	return chat_is(type, "image_url") || chat_is(type, "input_image") || chat_is(type, "image");
}

static int check_part(const json_t *part, const char *path, struct ds_err *err)
{
	const json_t *type = json_object_get(part, "type");
	char at[128];

	snprintf(at, sizeof(at), "%s.type", path);
	if (is_image(type))
		return chat_refuse(err, at, "images are not supported");
	if (!chat_is(type, "text"))
		return chat_refuse(err, at, "only parts of type \"text\" are supported");
	snprintf(at, sizeof(at), "%s.text", path);
	if (!json_is_string(json_object_get(part, "text")))
		return chat_refuse(err, at, "is not a string");
	return 0;
}

/* The content of message @i, NULL when there is none. */
static int read_content(const json_t *message, bool optional, size_t i, const json_t **out,
			struct ds_err *err)
{
	const json_t *content = json_object_get(message, "content");
	char path[96];

	snprintf(path, sizeof(path), "messages[%zu].content", i);
	*out = chat_absent(content) ? NULL : content;
	if (*out == NULL && optional)
		return 0;
	if (json_is_string(content))
		return 0;
	if (!json_is_array(content))
		return chat_refuse(err, path, "is not a string or a list of parts");
	for (size_t k = 0; k < json_array_size(content); k++) {
		snprintf(path, sizeof(path), "messages[%zu].content[%zu]", i, k);
		if (check_part(json_array_get(content, k), path, err) != 0)
			return -1;
	}
	return 0;
}

/* ---------------------------------------- calls ----------------------------------------- */

/* Arguments are an object, or its JSON in a string; an empty string is an empty object. Returns owned. */
static json_t *read_arguments(const json_t *v, const char *path, struct ds_err *err)
{
	json_error_t at;
	json_t *args;

	if (chat_absent(v) || chat_is(v, ""))
		args = json_object();
	else if (json_is_string(v))
		args = pyjson_load(json_string_value(v), json_string_length(v), 0, &at);
	else
		args = json_incref((json_t *)v);
	if (args == NULL && json_is_string(v) && json_error_code(&at) != json_error_out_of_memory)
		chat_refuse(err, path, "is not JSON, line %d column %d: %.100s", at.line, at.column,
			    at.text);
	else if (args == NULL)
		chat_no_memory(err);
	else if (json_is_object(args))
		return args;
	else
		chat_refuse(err, path, "is not a JSON object");
	json_decref(args);
	return NULL;
}

static int read_call(json_t *args, const json_t *call, size_t i, size_t k, struct ds_err *err)
{
	const json_t *type = json_object_get(call, "type");
	const json_t *function = json_object_get(call, "function");
	char path[96];

	snprintf(path, sizeof(path), "messages[%zu].tool_calls[%zu].type", i, k);
	if (!chat_absent(type) && !chat_is(type, "function"))
		return chat_refuse(err, path, "is not \"function\"");
	snprintf(path, sizeof(path), "messages[%zu].tool_calls[%zu].function.name", i, k);
	if (!json_is_string(json_object_get(function, "name")))
		return chat_refuse(err, path, "is not a string");
	snprintf(path, sizeof(path), "messages[%zu].tool_calls[%zu].function.arguments", i, k);
	json_t *one = read_arguments(json_object_get(function, "arguments"), path, err);
	if (one == NULL)
		return -1;
	return json_array_append_new(args, one) == 0 ? 0 : chat_no_memory(err);
}

/* @rank: from a call's id to its place, for the results that follow; made anew by a message with calls. */
static int read_calls(struct chat_turn *t, const json_t *message, size_t i, json_t **rank,
		      struct ds_err *err)
{
	const json_t *calls = json_object_get(message, "tool_calls");
	char path[64];

	if (chat_absent(calls) || (json_is_array(calls) && json_array_size(calls) == 0))
		return 0;
	snprintf(path, sizeof(path), "messages[%zu].tool_calls", i);
	if (!json_is_array(calls))
		return chat_refuse(err, path, "is not a list");
	t->calls = calls;
	t->args = json_array();
	json_decref(*rank);
	*rank = json_object();
	if (t->args == NULL || *rank == NULL)
		return chat_no_memory(err);
	for (size_t k = 0; k < json_array_size(calls); k++) {
		const json_t *call = json_array_get(calls, k), *id = json_object_get(call, "id");
		if (read_call(t->args, call, i, k, err) != 0)
			return -1;
		if (json_is_string(id) &&
		    json_object_setn_new(*rank, json_string_value(id), json_string_length(id),
					 json_integer((json_int_t)k)) != 0)
			return chat_no_memory(err);
	}
	return 0;
}

/* ------------------------------------- one message -------------------------------------- */

static int read_role(const json_t *message, size_t i, enum chat_role *role, bool *result,
		     struct ds_err *err)
{
	static const struct {
		const char *name;
		enum chat_role role;
	} roles[] = {
		{ "system", CHAT_SYSTEM },
		{ "developer", CHAT_SYSTEM }, /* what clients of newer APIs call the system role */
		{ "user", CHAT_USER },
		{ "tool", CHAT_USER }, /* results stand in the user's turn */
		{ "assistant", CHAT_ASSISTANT },
		{ "latest_reminder", CHAT_REMINDER },
	};
	const json_t *v = json_object_get(message, "role");
	char path[64];

	for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++) {
		if (chat_is(v, roles[k].name)) {
			*role = roles[k].role;
			*result = chat_is(v, "tool");
			return 0;
		}
	}
	snprintf(path, sizeof(path), "messages[%zu].role", i);
	if (chat_is(v, "function"))
		return chat_refuse(err, path, "functions are not supported: use tools, role tool");
	return chat_refuse(err, path, "is not system, developer, user, assistant or tool");
}

/* Fields that mean something on other roles than this one, or in other APIs. */
static int check_message(const json_t *message, enum chat_role role, size_t i, struct ds_err *err)
{
	static const struct {
		const char *field, *why;
		int role; /* where it belongs; -1 = nowhere */
	} strict[] = {
		{ "function_call", "functions are not supported: use tool_calls", -1 },
		{ "tool_calls", "only an assistant's message makes calls", CHAT_ASSISTANT },
		{ "tools", "only a system message brings tools", CHAT_SYSTEM },
	};
	char path[96];

	for (size_t k = 0; k < sizeof(strict) / sizeof(strict[0]); k++) {
		const json_t *v = json_object_get(message, strict[k].field);
		snprintf(path, sizeof(path), "messages[%zu].%s", i, strict[k].field);
		if ((int)role != strict[k].role && !chat_absent(v) &&
		    !(json_is_array(v) && json_array_size(v) == 0))
			return chat_refuse(err, path, "%s", strict[k].why);
	}
	return 0;
}

/* "reasoning_content", or "reasoning" as other servers call it. */
static int read_reasoning(struct chat_turn *t, const json_t *message, size_t i, struct ds_err *err)
{
	static const char *const names[] = { "reasoning_content", "reasoning" };
	char path[96];

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		const json_t *v = json_object_get(message, names[k]);
		if (chat_absent(v))
			continue;
		snprintf(path, sizeof(path), "messages[%zu].%s", i, names[k]);
		if (!json_is_string(v))
			return chat_refuse(err, path, "is not a string");
		if (t->reasoning == NULL)
			t->reasoning = v;
	}
	return 0;
}

static int read_own_tools(struct chat_turns *l, struct chat_turn *t, const json_t *message,
			  size_t i, struct ds_err *err)
{
	const json_t *tools = json_object_get(message, "tools");
	char path[64];

	if (chat_absent(tools) || (json_is_array(tools) && json_array_size(tools) == 0))
		return 0;
	snprintf(path, sizeof(path), "messages[%zu].tools", i);
	t->tools = tools;
	l->tools = true;
	return chat_check_tools(tools, path, err);
}

/* The place of a result's call; an unknown one is 0, as in the release's encoder. */
static int read_result(struct chat_part *p, const json_t *message, size_t i, const json_t *rank,
		       struct ds_err *err)
{
	const json_t *id = json_object_get(message, "tool_call_id");
	char path[64];

	snprintf(path, sizeof(path), "messages[%zu].tool_call_id", i);
	p->result = true;
	if (chat_absent(id))
		return 0;
	if (!json_is_string(id))
		return chat_refuse(err, path, "is not a string");
	p->rank = (uint32_t)json_integer_value(
		json_object_getn(rank, json_string_value(id), json_string_length(id)));
	return 0;
}

static int add_message(struct chat_turns *l, const json_t *message, size_t i, json_t **rank,
		       struct ds_err *err)
{
	enum chat_role role = CHAT_USER;
	bool result = false;
	char path[64];

	snprintf(path, sizeof(path), "messages[%zu]", i);
	if (!json_is_object(message))
		return chat_refuse(err, path, "is not an object");
	if (read_role(message, i, &role, &result, err) != 0 ||
	    check_message(message, role, i, err) != 0)
		return -1;
	if (role != CHAT_USER || l->n == 0 || l->turn[l->n - 1].role != CHAT_USER)
		l->turn[l->n++] = (struct chat_turn){ .role = role, .part = l->part + l->n_part };
	struct chat_turn *t = &l->turn[l->n - 1];
	struct chat_part p = { .at = l->n_part };
	if ((role == CHAT_ASSISTANT && (read_reasoning(t, message, i, err) != 0 ||
					read_calls(t, message, i, rank, err) != 0)) ||
	    (role == CHAT_SYSTEM && read_own_tools(l, t, message, i, err) != 0) ||
	    (result && read_result(&p, message, i, *rank, err) != 0))
		return -1;
	if (read_content(message, role == CHAT_ASSISTANT || result, i, &p.content, err) != 0)
		return -1;
	/* A user's empty list is no part at all: nothing is put between it and its neighbours. */
	if (role == CHAT_USER && !result && json_is_array(p.content) &&
	    json_array_size(p.content) == 0)
		return 0;
	t->part[t->n_part++] = p;
	l->n_part++;
	return 0;
}

/* ------------------------------------- all messages ------------------------------------- */

static int by_rank(const void *a, const void *b)
{
	const struct chat_part *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

/* Results in the order of their calls, whatever the order of arrival; texts between them stay in place. */
static int sort_results(struct chat_turn *t, struct ds_err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n_part; i++)
		n += t->part[i].result;
	if (n < 2)
		return 0;
	struct chat_part *sorted = malloc(n * sizeof(*sorted));
	if (sorted == NULL)
		return chat_no_memory(err);
	n = 0;
	for (size_t i = 0; i < t->n_part; i++)
		if (t->part[i].result)
			sorted[n++] = t->part[i];
	qsort(sorted, n, sizeof(*sorted), by_rank);
	n = 0;
	for (size_t i = 0; i < t->n_part; i++)
		if (t->part[i].result)
			t->part[i] = sorted[n++];
	free(sorted);
	return 0;
}

/* @name of @from: true, false, or *out as it was. */
static int read_flag(const json_t *from, const char *name, const char *path, bool *out,
		     struct ds_err *err)
{
	const json_t *v = json_object_get(from, name);

	if (chat_absent(v))
		return 0;
	if (!json_is_boolean(v))
		return chat_refuse(err, path, "is not true or false");
	*out = json_is_true(v);
	return 0;
}

/* "prefix" on the last message, or "continue_final_message": the last turn is to be continued. */
static int read_open(struct chat_turns *l, const json_t *body, const json_t *messages,
		     struct ds_err *err)
{
	size_t n = json_array_size(messages);
	bool header = false;
	char path[64];

	if (read_flag(body, "continue_final_message", "continue_final_message", &l->open, err) !=
		    0 ||
	    read_flag(body, "add_generation_prompt", "add_generation_prompt", &header, err) != 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		bool prefix = false;
		snprintf(path, sizeof(path), "messages[%zu].prefix", i);
		if (read_flag(json_array_get(messages, i), "prefix", path, &prefix, err) != 0)
			return -1;
		if (prefix && i + 1 < n)
			return chat_refuse(err, path, "is not on the last message");
		l->open = l->open || prefix;
	}
	snprintf(path, sizeof(path), "messages[%zu].role", n - 1);
	if (l->open && l->turn[l->n - 1].role != CHAT_ASSISTANT)
		return chat_refuse(err, path, "only an assistant's message can be continued");
	if (l->open && header)
		return chat_refuse(err, "add_generation_prompt",
				   "contradicts the continuation of the last message");
	l->closed = json_is_false(json_object_get(body, "add_generation_prompt"));
	return 0;
}

/* "drop_thinking" of the template's arguments: false keeps the reasoning of earlier rounds. */
static int read_keep(struct chat_turns *l, const json_t *body, struct ds_err *err)
{
	bool drop = true;

	if (read_flag(json_object_get(body, "chat_template_kwargs"), "drop_thinking",
		      "chat_template_kwargs.drop_thinking", &drop, err) != 0)
		return -1;
	l->keep_all = !drop;
	return 0;
}

int chat_read_turns(struct chat_turns *l, const json_t *body, struct ds_err *err)
{
	const json_t *messages = json_object_get(body, "messages");
	size_t n = json_array_size(messages);
	json_t *rank = NULL;
	int rc = 0;

	if (n == 0)
		return chat_refuse(err, "messages", "is not a list of at least one message");
	l->turn = calloc(n, sizeof(*l->turn));
	l->part = calloc(n, sizeof(*l->part));
	if (l->turn == NULL || l->part == NULL)
		return chat_no_memory(err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = add_message(l, json_array_get(messages, i), i, &rank, err);
	json_decref(rank);
	for (size_t i = 0; rc == 0 && i < l->n; i++)
		rc = sort_results(&l->turn[i], err);
	if (rc != 0 || read_keep(l, body, err) != 0)
		return -1;
	return read_open(l, body, messages, err);
}

void chat_turns_fini(struct chat_turns *l)
{
	for (size_t i = 0; i < l->n; i++)
		json_decref(l->turn[i].args);
	free(l->turn);
	free(l->part);
	*l = (struct chat_turns){ 0 };
}
