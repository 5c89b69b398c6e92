/*
 * api_responses.c - POST /v1/responses: OpenAI's Responses as chat/completions bodies, answers as
 * response objects and their events.
 *
 * Nothing is stored, so whatever names an earlier response is refused. Shapes are those of OpenAI's
 * public reference.
 */
#include <errno.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_format.h"
#include "api_translate.h"
#include "chat.h"
#include "json.h"
#include "pyjson.h"

/* Reasoning that a client carries for us in "encrypted_content": not secret, only out of its sight. */
#define CARRIED "ds1."

/* ---------------------------------- texts ---------------------------------- */

/* The text of one part; NULL with the refusal told. */
static const json_t *part_text(struct tr *t, const json_t *part, const char *at)
{
	static const char *const types[] = { "input_text", "output_text", "text", "reasoning_text",
					     "summary_text" };
	const json_t *type = json_object_get(part, "type");
	const json_t *text = json_object_get(part, "text");
	bool known = false;
	if (!json_is_object(part)) {
		tr_refuse(t, "must be an object", "%s", at);
		return NULL;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		known = known || tr_is(type, types[i]);
	if (tr_is(type, "refusal")) {
		known = true;
		text = json_object_get(part, "refusal");
	}
	if (!known) {
		tr_refuse(t, "this server reads text only", "%s.type", at);
		return NULL;
	}
	if (!json_is_string(text)) {
		tr_refuse(t, "must be a string", "%s.text", at);
		return NULL;
	}
	return text;
}

static int put_content(struct tr *t, json_t *message, const json_t *content, const char *at)
{
	char path[128];
	if (json_is_string(content)) {
		tr_put(t, message, "content", tr_share(content));
		return 0;
	}
	if (!json_is_array(content))
		return tr_refuse(t, "must be a string or a list of parts", "%s", at);
	json_t *parts = tr_put(t, message, "content", json_array());
	for (size_t i = 0; i < json_array_size(content); i++) {
		snprintf(path, sizeof(path), "%s[%zu]", at, i);
		const json_t *text = part_text(t, json_array_get(content, i), path);
		if (text == NULL)
			return -1;
		tr_add(t, parts, tr_part(t, text));
	}
	return 0;
}

/* ---------------------------------- items of the assistant ---------------------------------- */

/* A second text belongs to a turn of its own; one behind calls to theirs, since results follow. */
static int put_assistant(struct tr *t, const json_t *content, const char *at)
{
	char path[128];
	if (t->turn.open && json_array_size(t->turn.text) > 0 &&
	    json_array_size(t->turn.calls) == 0)
		tr_turn_end(t);
	tr_turn_open(t);
	if (json_is_string(content)) {
		tr_turn_text(t, content);
		return 0;
	}
	if (!json_is_array(content))
		return tr_refuse(t, "must be a string or a list of parts", "%s", at);
	for (size_t i = 0; i < json_array_size(content); i++) {
		snprintf(path, sizeof(path), "%s[%zu]", at, i);
		const json_t *text = part_text(t, json_array_get(content, i), path);
		if (text == NULL)
			return -1;
		tr_turn_text(t, text);
	}
	return 0;
}

/* What put_carried() wrote; anything else is another server's and says nothing here. */
static int put_brought(struct tr *t, const json_t *carried)
{
	const size_t skip = sizeof(CARRIED) - 1;
	const char *s = json_string_value(carried);
	size_t len = json_string_length(carried);
	if (len <= skip || memcmp(s, CARRIED, skip) != 0 || (len - skip) % 4 != 0)
		return 0;
	unsigned char *raw = malloc(len);
	if (raw == NULL) {
		t->no_memory = true;
		return 0;
	}
	int n = EVP_DecodeBlock(raw, (const unsigned char *)s + skip, (int)(len - skip));
	/* Padding decodes to zeros, which are not part of the text. */
	for (size_t i = len; n > 0 && i > len - 2 && s[i - 1] == '='; i--)
		n--;
	json_t *text = n > 0 ? json_stringn((const char *)raw, (size_t)n) : NULL;
	if (text != NULL)
		tr_turn_reason(t, text);
	free(raw);
	return 0;
}

static int put_reasoning(struct tr *t, const json_t *item, size_t i)
{
	static const char *const lists[] = { "content", "summary" };
	char at[96];
	if (t->turn.open &&
	    (json_array_size(t->turn.text) > 0 || json_array_size(t->turn.calls) > 0))
		tr_turn_end(t);
	tr_turn_open(t);
	for (size_t l = 0; l < 2; l++) {
		const json_t *list = tr_field(item, lists[l]);
		if (list != NULL && !json_is_array(list))
			return tr_refuse(t, "must be a list", "input[%zu].%s", i, lists[l]);
		for (size_t k = 0; k < json_array_size(list); k++) {
			snprintf(at, sizeof(at), "input[%zu].%s[%zu]", i, lists[l], k);
			const json_t *text = part_text(t, json_array_get(list, k), at);
			if (text == NULL)
				return -1;
			if (json_string_length(text) > 0)
				tr_turn_reason(t, tr_share(text));
		}
		if (json_array_size(t->turn.reason) > 0)
			return 0;
		/* The reasoning itself before its summary. */
		if (l == 0 && put_brought(t, tr_field(item, "encrypted_content")) != 0)
			return -1;
		if (json_array_size(t->turn.reason) > 0)
			return 0;
	}
	return 0;
}

/* "NAMESPACE::NAME", as the model knows functions in namespaces. Owned. */
static json_t *full_name(struct tr *t, const json_t *space, const json_t *name)
{
	struct ds_buf b = { 0 };
	if (space == NULL)
		return tr_share(name);
	ds_buf_put(&b, json_string_value(space), json_string_length(space));
	ds_buf_puts(&b, "::");
	ds_buf_put(&b, json_string_value(name), json_string_length(name));
	json_t *full = b.failed ? NULL : json_stringn(b.data, b.len);
	if (full == NULL)
		t->no_memory = true;
	ds_buf_fini(&b);
	return full;
}

static bool is_object_text(const json_t *v)
{
	json_error_t at;
	json_t *o = pyjson_load(json_string_value(v), json_string_length(v), 0, &at);
	bool ok = json_is_object(o) ||
		  (o == NULL && json_error_code(&at) == json_error_out_of_memory);
	json_decref(o);
	return ok || json_string_length(v) == 0; /* an empty string is an empty object */
}

/* "function_call" and "custom_tool_call"; the latter's input is the one argument of a function. */
static int put_call(struct tr *t, const json_t *item, bool custom, size_t i)
{
	const json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
	const json_t *space = tr_field(item, "namespace");
	const char *key = custom ? "input" : "arguments";
	const json_t *v = json_object_get(item, key);
	if (!json_is_string(id))
		return tr_refuse(t, "must be a string", "input[%zu].call_id", i);
	if (!json_is_string(name))
		return tr_refuse(t, "must be a string", "input[%zu].name", i);
	if (space != NULL && !json_is_string(space))
		return tr_refuse(t, "must be a string", "input[%zu].namespace", i);
	if (!json_is_string(v) && (custom || !json_is_object(v)))
		return tr_refuse(t, "must be a string", "input[%zu].%s", i, key);
	if (!custom && json_is_string(v) && !is_object_text(v))
		return tr_refuse(t, "must be the JSON of an object", "input[%zu].arguments", i);
	json_t *arguments = custom ? json_object() : tr_share(v);
	if (custom)
		tr_put(t, arguments, "input", tr_share(v));
	tr_turn_call(t, id, full_name(t, space, name), arguments);
	json_decref(arguments);
	return 0;
}

static int put_result(struct tr *t, const json_t *item, size_t i)
{
	const json_t *id = json_object_get(item, "call_id");
	char at[96];
	if (!json_is_string(id))
		return tr_refuse(t, "must be a string", "input[%zu].call_id", i);
	json_t *m = tr_message(t, "tool");
	tr_put(t, m, "tool_call_id", tr_share(id));
	snprintf(at, sizeof(at), "input[%zu].output", i);
	return put_content(t, m, json_object_get(item, "output"), at);
}

/* ---------------------------------- input ---------------------------------- */

static int put_message(struct tr *t, const json_t *item, size_t i)
{
	static const char *const roles[] = { "user", "system", "developer" };
	const json_t *role = json_object_get(item, "role");
	const json_t *content = json_object_get(item, "content");
	char at[96];
	snprintf(at, sizeof(at), "input[%zu].content", i);
	if (tr_is(role, "assistant"))
		return put_assistant(t, content, at);
	for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++)
		if (tr_is(role, roles[k]))
			return put_content(t, tr_message(t, roles[k]), content, at);
	return tr_refuse(t, "must be \"user\", \"assistant\", \"system\" or \"developer\"",
			 "input[%zu].role", i);
}

static int put_item(struct tr *t, const json_t *item, size_t i)
{
	const json_t *type = tr_field(item, "type");
	if (!json_is_object(item))
		return tr_refuse(t, "must be an object", "input[%zu]", i);
	if (type == NULL || tr_is(type, "message"))
		return put_message(t, item, i);
	if (tr_is(type, "reasoning"))
		return put_reasoning(t, item, i);
	if (tr_is(type, "function_call") || tr_is(type, "custom_tool_call"))
		return put_call(t, item, tr_is(type, "custom_tool_call"), i);
	if (tr_is(type, "function_call_output") || tr_is(type, "custom_tool_call_output"))
		return put_result(t, item, i);
	if (tr_is(type, "item_reference"))
		return tr_refuse(t, "this server stores no items; send the item itself",
				 "input[%zu].type", i);
	return tr_refuse(t, "is no item that this server knows", "input[%zu].type", i);
}

static int put_input(struct tr *t, const json_t *body)
{
	const json_t *words = tr_field(body, "instructions"), *input = tr_field(body, "input");
	if (words != NULL && !json_is_string(words))
		return tr_refuse(t, "must be a string", "instructions");
	if (words != NULL && json_string_length(words) > 0)
		tr_put(t, tr_message(t, "system"), "content", tr_share(words));
	if (json_is_string(input)) {
		tr_put(t, tr_message(t, "user"), "content", tr_share(input));
		return 0;
	}
	if (!json_is_array(input) || json_array_size(input) == 0)
		return tr_refuse(t, "must be a string or a list of at least one item", "input");
	for (size_t i = 0; i < json_array_size(input); i++)
		if (put_item(t, json_array_get(input, i), i) != 0)
			return -1;
	return 0;
}

/* ---------------------------------- tools ---------------------------------- */

/*
 * Tools that OpenAI's own machines run and that agents offer without being asked: the model is not told
 * of them, and the response's "tools" do not list them. Other foreign tools are refused: somebody meant
 * them.
 */
static bool is_left_out(const json_t *type)
{
	const char *s = json_string_value(type);
	return s != NULL && (strncmp(s, "web_search", 10) == 0 || strcmp(s, "tool_search") == 0 ||
			     strcmp(s, "image_generation") == 0);
}

/* The function's own object, with its keys in the client's order. */
static int put_function(struct tr *t, json_t *list, const json_t *tool, const json_t *space,
			const char *at)
{
	static const char *const keys[] = { "description", "parameters" };
	const char *key;
	json_t *v, *f = json_object();
	json_object_foreach ((json_t *)tool, key, v) {
		if (strcmp(key, "name") == 0)
			tr_put(t, f, key, full_name(t, space, v));
		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			if (strcmp(key, keys[i]) == 0 && !json_is_null(v))
				tr_put(t, f, key, tr_share(v));
		if (strcmp(key, "strict") == 0 && json_is_true(v))
			tr_put(t, f, key, tr_share(v));
	}
	tr_add(t, list, tr_function(t, f));
	const json_t *about = tr_field(tool, "description"), *schema = tr_field(tool, "parameters");
	if (about != NULL && !json_is_string(about))
		return tr_refuse(t, "must be a string", "%s.description", at);
	if (schema != NULL && !json_is_object(schema))
		return tr_refuse(t, "must be an object", "%s.parameters", at);
	return 0;
}

/* A tool of free text is a function with one argument; a grammar that it names is told in words. */
static int put_custom(struct tr *t, json_t *list, const json_t *tool, const json_t *space,
		      const char *at)
{
	const json_t *about = tr_field(tool, "description"), *format = tr_field(tool, "format");
	const json_t *rules = tr_field(format, "definition");
	struct ds_buf b = { 0 };
	if (about != NULL && !json_is_string(about))
		return tr_refuse(t, "must be a string", "%s.description", at);
	if (rules != NULL && !json_is_string(rules))
		return tr_refuse(t, "must be a string", "%s.format.definition", at);
	ds_buf_put(&b, json_string_value(about), json_string_length(about));
	if (rules != NULL) {
		ds_buf_puts(&b, b.len > 0 ? "\n\n" : "");
		ds_buf_puts(&b, "The input follows this grammar:\n");
		ds_buf_put(&b, json_string_value(rules), json_string_length(rules));
	}
	json_t *f = json_object();
	tr_put(t, f, "name", full_name(t, space, json_object_get(tool, "name")));
	if (b.len > 0)
		tr_put(t, f, "description", b.failed ? NULL : json_stringn(b.data, b.len));
	ds_buf_fini(&b);
	tr_put(t, f, "parameters",
	       json_pack("{s:s,s:{s:{s:s}},s:[s]}", "type", "object", "properties", "input", "type",
			 "string", "required", "input"));
	tr_add(t, list, tr_function(t, f));
	return 0;
}

static int put_tool(struct tr *t, json_t *list, const json_t *tool, const json_t *space,
		    const char *at)
{
	const json_t *type = json_object_get(tool, "type"), *name = json_object_get(tool, "name");
	if (!json_is_object(tool))
		return tr_refuse(t, "must be an object", "%s", at);
	if (is_left_out(type))
		return 0;
	bool custom = tr_is(type, "custom"), group = tr_is(type, "namespace") && space == NULL;
	if (!custom && !group && !tr_is(type, "function"))
		return tr_refuse(t, "is no tool that this server can offer; leave it out",
				 "%s.type", at);
	if (!chat_is_name(name))
		return tr_refuse(t, "must be a name: text without quotes or line ends", "%s.name",
				 at);
	if (!group)
		return custom ? put_custom(t, list, tool, space, at)
			      : put_function(t, list, tool, space, at);
	const json_t *inner = json_object_get(tool, "tools");
	char path[128];
	if (!json_is_array(inner))
		return tr_refuse(t, "must be a list", "%s.tools", at);
	for (size_t i = 0; i < json_array_size(inner); i++) {
		snprintf(path, sizeof(path), "%s.tools[%zu]", at, i);
		if (put_tool(t, list, json_array_get(inner, i), name, path) != 0)
			return -1;
	}
	return 0;
}

static int put_choice(struct tr *t, const json_t *choice)
{
	const json_t *type = json_object_get(choice, "type");
	const json_t *name = json_object_get(choice, "name");
	const json_t *space = tr_field(choice, "namespace");
	if (tr_is(choice, "none") || tr_is(choice, "auto") || tr_is(choice, "required")) {
		tr_put(t, t->out, "tool_choice", tr_share(choice));
		return 0;
	}
	if (!json_is_object(choice))
		return tr_refuse(t, "must be \"none\", \"auto\", \"required\" or an object",
				 "tool_choice");
	if (!tr_is(type, "function") && !tr_is(type, "custom"))
		return tr_refuse(t, "must be \"function\" or \"custom\"", "tool_choice.type");
	if (!json_is_string(name))
		return tr_refuse(t, "must be a string", "tool_choice.name");
	if (space != NULL && !json_is_string(space))
		return tr_refuse(t, "must be a string", "tool_choice.namespace");
	json_t *f = json_object();
	tr_put(t, f, "name", full_name(t, space, name));
	tr_put(t, t->out, "tool_choice", tr_function(t, f));
	return 0;
}

static int put_tools(struct tr *t, const json_t *body)
{
	const json_t *tools = tr_field(body, "tools"), *choice = tr_field(body, "tool_choice");
	char at[64];
	if (tools != NULL && !json_is_array(tools))
		return tr_refuse(t, "must be a list", "tools");
	if (json_array_size(tools) > 0) {
		json_t *list = json_array();
		int rc = 0;
		for (size_t i = 0; i < json_array_size(tools) && rc == 0; i++) {
			snprintf(at, sizeof(at), "tools[%zu]", i);
			rc = put_tool(t, list, json_array_get(tools, i), NULL, at);
		}
		if (rc == 0 && json_array_size(list) > 0)
			tr_put(t, t->out, "tools", tr_share(list));
		json_decref(list);
		if (rc != 0)
			return -1;
	}
	tr_copy(t, body, "parallel_tool_calls", "parallel_tool_calls");
	return choice != NULL ? put_choice(t, choice) : 0;
}

/* ---------------------------------- the other fields ---------------------------------- */

static int put_format(struct tr *t, const json_t *format)
{
	static const char *const keys[] = { "name", "description", "schema", "strict" };
	const json_t *type = json_object_get(format, "type");
	if (!json_is_object(format))
		return tr_refuse(t, "must be an object", "text.format");
	if (tr_is(type, "text"))
		return 0;
	if (!tr_is(type, "json_object") && !tr_is(type, "json_schema"))
		return tr_refuse(t, "must be \"text\", \"json_object\" or \"json_schema\"",
				 "text.format.type");
	json_t *as = json_object();
	tr_put(t, as, "type", tr_share(type));
	tr_put(t, t->out, "response_format", as);
	if (tr_is(type, "json_object"))
		return 0;
	if (!json_is_object(json_object_get(format, "schema")))
		return tr_refuse(t, "must be an object", "text.format.schema");
	json_t *named = json_object();
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const json_t *v = tr_field(format, keys[i]);
		if (v != NULL)
			tr_put(t, named, keys[i], tr_share(v));
	}
	tr_put(t, as, "json_schema", named);
	return 0;
}

static int put_knobs(struct tr *t, const json_t *body)
{
	const json_t *reasoning = tr_field(body, "reasoning"), *text = tr_field(body, "text");
	const json_t *effort = tr_field(reasoning, "effort");
	const json_t *max = tr_field(body, "max_output_tokens");
	if (reasoning != NULL && !json_is_object(reasoning))
		return tr_refuse(t, "must be an object", "reasoning");
	if (effort != NULL) {
		json_t *knob = json_object();
		tr_put(t, knob, "effort", tr_share(effort));
		tr_put(t, t->out, "reasoning", knob);
	}
	if (max != NULL) {
		double d = json_number_value(max);
		if (!json_is_number(max) || d < 1 || d != floor(d))
			return tr_refuse(t, "must be a whole number from 1", "max_output_tokens");
		tr_put(t, t->out, "max_tokens", tr_share(max));
	}
	if (text != NULL && !json_is_object(text))
		return tr_refuse(t, "must be an object", "text");
	const json_t *format = tr_field(text, "format");
	return format != NULL ? put_format(t, format) : 0;
}

static int refuse_state(struct tr *t, const json_t *body)
{
	static const struct {
		const char *name, *why;
	} rows[] = {
		{ "previous_response_id",
		  "this server stores no responses; send the whole conversation as input" },
		{ "conversation",
		  "this server stores no conversations; send the whole conversation as input" },
		{ "prompt", "this server stores no prompts; send instructions and input" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (tr_field(body, rows[i].name) != NULL)
			return tr_refuse(t, rows[i].why, "%s", rows[i].name);
	if (json_is_true(json_object_get(body, "background")))
		return tr_refuse(t, "this server answers on the request's own connection only",
				 "background");
	return 0;
}

static bool includes(const json_t *body, const char *what)
{
	const json_t *list = json_object_get(body, "include");
	for (size_t i = 0; i < json_array_size(list); i++)
		if (tr_is(json_array_get(list, i), what))
			return true;
	return false;
}

static int put_logprobs(struct tr *t, const json_t *body)
{
	const json_t *include = tr_field(body, "include");
	if (include != NULL && !json_is_array(include))
		return tr_refuse(t, "must be a list", "include");
	tr_copy(t, body, "top_logprobs", "top_logprobs");
	if (includes(body, "message.output_text.logprobs") ||
	    json_integer_value(json_object_get(body, "top_logprobs")) > 0)
		tr_put(t, t->out, "logprobs", json_true());
	return 0;
}

json_t *api_responses_to_chat(const json_t *body, struct ds_err *err)
{
	struct tr t;
	int rc = tr_begin(&t, body, err);
	if (rc != 0)
		return NULL;
	tr_copy_sampling(&t, body);
	if (refuse_state(&t, body) != 0 || put_input(&t, body) != 0 || put_tools(&t, body) != 0 ||
	    put_knobs(&t, body) != 0 || put_logprobs(&t, body) != 0)
		rc = -1;
	return tr_end(&t, rc);
}

/* ---------------------------------- what responses repeat ---------------------------------- */

/* Members of a response that its request decides, with what they are without it. */
static const struct {
	const char *name, *otherwise; /* JSON text */
} echoed[] = {
	{ "instructions", "null" },
	{ "max_output_tokens", "null" },
	{ "max_tool_calls", "null" },
	{ "metadata", "{}" },
	{ "parallel_tool_calls", "true" },
	{ "prompt_cache_key", "null" },
	{ "reasoning", "{\"effort\": null, \"summary\": null}" },
	{ "safety_identifier", "null" },
	{ "text", "{\"format\": {\"type\": \"text\"}}" },
	{ "tool_choice", "\"auto\"" },
	{ "tools", "[]" },
	{ "top_logprobs", "0" },
	{ "user", "null" },
};

json_t *api_responses_echo(const json_t *body, struct ds_err *err)
{
	struct tr t = { .out = json_object(), .err = err };
	const json_t *tools = tr_field(body, "tools");
	tr_copy(&t, body, "include", "include");
	for (size_t i = 0; i < sizeof(echoed) / sizeof(echoed[0]); i++)
		if (tools == NULL || strcmp(echoed[i].name, "tools") != 0)
			tr_copy(&t, body, echoed[i].name, echoed[i].name);
	if (tools != NULL) {
		json_t *list = tr_put(&t, t.out, "tools", json_array());
		for (size_t i = 0; i < json_array_size(tools); i++) {
			const json_t *tool = json_array_get(tools, i);
			if (!is_left_out(json_object_get(tool, "type")))
				tr_add(&t, list, tr_share(tool));
		}
	}
	if (!t.no_memory)
		return t.out;
	ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "body", "read the request");
	json_decref(t.out);
	return NULL;
}

/* Paths of single messages do not come up: what they can hold is checked above. */
static const struct api_name names[] = {
	{ ".function", "" },
	{ "response_format.json_schema", "text.format" },
	{ "response_format", "text.format" },
	{ "max_tokens", "max_output_tokens" },
	{ NULL, NULL },
};
const struct api_way api_responses_way = {
	.to_chat = api_responses_to_chat,
	.echo = api_responses_echo,
	.name = names,
};

/* The tool of the request that a call's name means; @space: its namespace or NULL. Views. */
static const json_t *find_tool(const json_t *tools, const char *name, size_t len,
			       const json_t **space)
{
	*space = NULL;
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i), *own = json_object_get(tool, "name");
		const json_t *inner = json_object_get(tool, "tools"), *none;
		size_t n = json_string_length(own);
		const char *s = json_string_value(own);
		if (s == NULL || len < n || memcmp(name, s, n) != 0)
			continue;
		if (inner == NULL && len == n)
			return tool;
		if (inner == NULL || len < n + 2 || memcmp(name + n, "::", 2) != 0)
			continue;
		const json_t *found = find_tool(inner, name + n + 2, len - n - 2, &none);
		if (found == NULL)
			continue;
		*space = own;
		return found;
	}
	return NULL;
}

/* ---------------------------------- parts and items ---------------------------------- */

enum {
	NO_ITEM,
	REASONING,
	MESSAGE,
	CALL,
	CUSTOM_CALL
}; /* api_doc.state.kind */

static const char *const id_prefix[] = { "", "rs_", "msg_", "fc_", "ctc_" };

static void put_string(struct ds_json *j, const char *key, const char *s, size_t len)
{
	ds_json_key(j, key);
	ds_json_strn(j, len > 0 ? s : "", len);
}

/* Items have the response's random bits and their own index. @out: [64] */
static const char *item_id(const struct api_doc *d, uint32_t kind, uint32_t index, char *out)
{
	const char *bits = strchr(d->head.id, '_');
	snprintf(out, 64, "%s%s_%u", id_prefix[kind], bits != NULL ? bits + 1 : d->head.id, index);
	return out;
}

static void put_json(struct ds_json *j, const json_t *v)
{
	struct ds_buf text = { 0 };
	pyjson_dump(v, &text);
	j->out->failed |= text.failed;
	ds_json_raw(j, text.failed ? "null" : text.data);
	ds_buf_fini(&text);
}

/* The whole text so that a client that hides reasoning can still bring it back. */
static void put_carried(struct ds_json *j, const struct api_doc *d, const char *text, size_t len)
{
	ds_json_key(j, "encrypted_content");
	if (len == 0 || len > INT32_MAX / 2 ||
	    !includes(d->req->echo, "reasoning.encrypted_content")) {
		ds_json_null(j);
		return;
	}
	const size_t skip = sizeof(CARRIED) - 1;
	char *s = malloc(skip + 4 * ((len + 2) / 3) + 1);
	if (s == NULL) {
		j->out->failed = true;
		ds_json_null(j);
		return;
	}
	memcpy(s, CARRIED, skip);
	EVP_EncodeBlock((unsigned char *)s + skip, (const unsigned char *)text, (int)len);
	ds_json_str(j, s);
	free(s);
}

/* One part of an item. @logprobs: a list, or NULL */
static void put_part(struct ds_json *j, uint32_t kind, const char *text, size_t len,
		     const json_t *logprobs)
{
	ds_json_object(j);
	ds_json_kstr(j, "type", kind == REASONING ? "reasoning_text" : "output_text");
	put_string(j, "text", text, len);
	if (kind == MESSAGE) {
		ds_json_key(j, "annotations");
		ds_json_array(j);
		ds_json_end(j);
		ds_json_key(j, "logprobs");
		if (logprobs != NULL) {
			put_json(j, logprobs);
		} else {
			ds_json_array(j);
			ds_json_end(j);
		}
	}
	ds_json_end(j);
}

/* A reasoning or message item. @status: "in_progress" = without its part yet */
static void put_text_item(struct ds_json *j, const struct api_doc *d, uint32_t kind, uint32_t index,
			  const char *status, const char *text, size_t len)
{
	char id[64];
	bool begun = strcmp(status, "in_progress") != 0;
	ds_json_object(j);
	ds_json_kstr(j, "id", item_id(d, kind, index, id));
	ds_json_kstr(j, "type", kind == REASONING ? "reasoning" : "message");
	ds_json_kstr(j, "status", status);
	if (kind == MESSAGE) {
		ds_json_kstr(j, "role", "assistant");
	} else {
		ds_json_key(j, "summary");
		ds_json_array(j);
		ds_json_end(j);
	}
	ds_json_key(j, "content");
	ds_json_array(j);
	if (begun)
		put_part(j, kind, text, len, kind == MESSAGE ? d->choice[0].logprobs : NULL);
	ds_json_end(j);
	if (kind == REASONING)
		put_carried(j, d, text, begun ? len : 0);
	ds_json_end(j);
}

/* The text that a free-text tool gets. Owned; NULL: the arguments themselves are it. */
static json_t *custom_input(const struct api_call *call)
{
	json_t *args = json_loadb(call->args.data != NULL ? call->args.data : "", call->args.len,
				  JSON_ALLOW_NUL, NULL);
	json_t *input = json_incref(json_object_get(args, "input"));
	json_decref(args);
	if (json_is_string(input))
		return input;
	json_decref(input);
	return NULL;
}

static void put_input_text(struct ds_json *j, const char *key, const struct api_call *call,
			   const json_t *input)
{
	if (input != NULL)
		put_string(j, key, json_string_value(input), json_string_length(input));
	else
		put_string(j, key, call->args.data, call->args.len);
}

static uint32_t call_kind(const struct api_doc *d, const struct api_call *call,
			  const json_t **space)
{
	const json_t *tool = find_tool(json_object_get(d->req->echo, "tools"), call->name.data,
				       call->name.len, space);
	return tr_is(json_object_get(tool, "type"), "custom") ? CUSTOM_CALL : CALL;
}

static void put_call_item(struct ds_json *j, const struct api_doc *d, const struct api_call *call,
			  uint32_t index, bool done)
{
	const json_t *space;
	uint32_t kind = call_kind(d, call, &space);
	size_t skip = space != NULL ? json_string_length(space) + 2 : 0;
	char id[64];
	ds_json_object(j);
	ds_json_kstr(j, "id", item_id(d, kind, index, id));
	ds_json_kstr(j, "type", kind == CUSTOM_CALL ? "custom_tool_call" : "function_call");
	ds_json_kstr(j, "status", done ? "completed" : "in_progress");
	ds_json_kstr(j, "call_id", call->id);
	put_string(j, "name", call->name.data + skip, call->name.len - skip);
	if (space != NULL)
		put_string(j, "namespace", json_string_value(space), json_string_length(space));
	if (kind == CUSTOM_CALL) {
		json_t *input = done ? custom_input(call) : NULL;
		if (done)
			put_input_text(j, "input", call, input);
		else
			ds_json_kstr(j, "input", "");
		json_decref(input);
	} else {
		put_string(j, "arguments", call->args.data, done ? call->args.len : 0);
	}
	ds_json_end(j);
}

/* ---------------------------------- the response object ---------------------------------- */

static bool is_cut(const struct api_choice *c)
{
	return c->finish != NULL && strcmp(c->finish, "length") == 0;
}

static void put_output(struct ds_json *j, const struct api_doc *d, const struct api_choice *c)
{
	uint32_t index = 0;
	bool cut = is_cut(c) && c->n_call == 0;
	ds_json_key(j, "output");
	ds_json_array(j);
	if (c->reasoning.len > 0)
		put_text_item(j, d, REASONING, index++,
			      cut && c->content.len == 0 ? "incomplete" : "completed",
			      c->reasoning.data, c->reasoning.len);
	if (c->content.len > 0)
		put_text_item(j, d, MESSAGE, index++, cut ? "incomplete" : "completed",
			      c->content.data, c->content.len);
	for (uint32_t i = 0; i < c->n_call; i++)
		if (c->call[i].complete)
			put_call_item(j, d, &c->call[i], index++, true);
	ds_json_end(j);
}

static void put_usage(struct ds_json *j, const struct api_usage *u)
{
	ds_json_key(j, "usage");
	if (u == NULL) {
		ds_json_null(j);
		return;
	}
	ds_json_object(j);
	ds_json_kuint(j, "input_tokens", u->prompt);
	ds_json_key(j, "input_tokens_details");
	ds_json_object(j);
	ds_json_kuint(j, "cached_tokens", 0);
	ds_json_end(j);
	ds_json_kuint(j, "output_tokens", u->completion);
	ds_json_key(j, "output_tokens_details");
	ds_json_object(j);
	ds_json_kuint(j, "reasoning_tokens", u->reasoning);
	ds_json_end(j);
	ds_json_kuint(j, "total_tokens", (uint64_t)u->prompt + u->completion);
	ds_json_end(j);
}

static void put_echo(struct ds_json *j, const struct api_doc *d)
{
	for (size_t i = 0; i < sizeof(echoed) / sizeof(echoed[0]); i++) {
		const json_t *v = tr_field(d->req->echo, echoed[i].name);
		ds_json_key(j, echoed[i].name);
		if (v != NULL)
			put_json(j, v);
		else
			ds_json_raw(j, echoed[i].otherwise);
	}
	ds_json_knull(j, "previous_response_id");
	ds_json_kbool(j, "background", false);
	ds_json_kbool(j, "store", false);
	ds_json_kstr(j, "service_tier", "default");
	ds_json_kstr(j, "truncation", "disabled");
	ds_json_knum(j, "temperature", d->req->sample.temperature, 6);
	ds_json_knum(j, "top_p", d->req->sample.top_p, 6);
}

static void put_failure(struct ds_json *j, const struct api_error *e)
{
	ds_json_key(j, "error");
	if (e == NULL) {
		ds_json_null(j);
		return;
	}
	ds_json_object(j);
	ds_json_kstr(j, "code", e->code != NULL ? e->code : "server_error");
	ds_json_kstr(j, "message", e->message);
	ds_json_end(j);
}

/* @status: with "in_progress" the output is not listed yet; @e, @u: or NULL */
static void put_response(struct ds_json *j, const struct api_doc *d, const char *status,
			 const struct api_error *e, const struct api_usage *u)
{
	bool begun = strcmp(status, "in_progress") != 0;
	ds_json_object(j);
	ds_json_kstr(j, "id", d->head.id);
	ds_json_kstr(j, "object", "response");
	ds_json_kint(j, "created_at", d->head.created);
	ds_json_kstr(j, "status", status);
	ds_json_kstr(j, "model", d->head.model);
	put_failure(j, e);
	ds_json_key(j, "incomplete_details");
	if (strcmp(status, "incomplete") == 0) {
		ds_json_object(j);
		ds_json_kstr(j, "reason", "max_output_tokens");
		ds_json_end(j);
	} else {
		ds_json_null(j);
	}
	if (begun && d->n > 0) {
		put_output(j, d, &d->choice[0]);
	} else {
		ds_json_key(j, "output");
		ds_json_array(j);
		ds_json_end(j);
	}
	put_echo(j, d);
	put_usage(j, u);
	ds_json_end(j);
}

/* ---------------------------------- events ---------------------------------- */

static void event_begin(struct ds_json *j, struct api_doc *d, struct ds_buf *out, const char *type)
{
	ds_buf_printf(out, "event: %s\ndata: ", type);
	ds_json_init(j, out, 0);
	ds_json_object(j);
	ds_json_kstr(j, "type", type);
	ds_json_kuint(j, "sequence_number", d->state.sequence++);
}

static void event_end(struct ds_json *j)
{
	ds_json_end(j);
	ds_buf_puts(j->out, "\n\n");
}

/* An event about the open item; @part: about its one part. */
static void item_begin(struct ds_json *j, struct api_doc *d, struct ds_buf *out, const char *type,
		       bool part)
{
	char id[64];
	event_begin(j, d, out, type);
	ds_json_kstr(j, "item_id", item_id(d, d->state.kind, d->state.block, id));
	ds_json_kuint(j, "output_index", d->state.block);
	if (part)
		ds_json_kuint(j, "content_index", 0);
}

static void put_response_event(struct api_doc *d, struct ds_buf *out, const char *type,
			       const char *status, const struct api_error *e,
			       const struct api_usage *u)
{
	struct ds_json j;
	event_begin(&j, d, out, type);
	ds_json_key(&j, "response");
	put_response(&j, d, status, e, u);
	event_end(&j);
}

static void no_logprobs(struct ds_json *j)
{
	ds_json_key(j, "logprobs");
	ds_json_array(j);
	ds_json_end(j);
}

static void put_part_event(struct api_doc *d, struct ds_buf *out, const char *type,
			   const char *text, size_t len)
{
	struct ds_json j;
	bool done = strcmp(type, "response.content_part.done") == 0;
	item_begin(&j, d, out, type, true);
	ds_json_key(&j, "part");
	put_part(&j, d->state.kind, text, len,
		 done && d->state.kind == MESSAGE ? d->choice[0].logprobs : NULL);
	event_end(&j);
}

static void item_event_begin(struct ds_json *j, struct api_doc *d, struct ds_buf *out,
			     const char *type)
{
	event_begin(j, d, out, type);
	ds_json_kuint(j, "output_index", d->state.block);
	ds_json_key(j, "item");
}

static void close_text(struct api_doc *d, const struct api_choice *c, const char *status,
		       struct ds_buf *out)
{
	const struct ds_buf *b = d->state.kind == REASONING ? &c->reasoning : &c->content;
	const char *text = b->data + d->state.from;
	size_t len = b->len - d->state.from;
	struct ds_json j;
	item_begin(&j, d, out,
		   d->state.kind == REASONING ? "response.reasoning_text.done"
					      : "response.output_text.done",
		   true);
	put_string(&j, "text", text, len);
	if (d->state.kind == MESSAGE) {
		if (c->logprobs != NULL) {
			ds_json_key(&j, "logprobs");
			put_json(&j, c->logprobs);
		} else {
			no_logprobs(&j);
		}
	}
	event_end(&j);
	put_part_event(d, out, "response.content_part.done", text, len);
	item_event_begin(&j, d, out, "response.output_item.done");
	put_text_item(&j, d, d->state.kind, d->state.block, status, text, len);
	event_end(&j);
}

static void close_call(struct api_doc *d, const struct api_call *call, struct ds_buf *out)
{
	struct ds_json j;
	if (d->state.kind == CALL) {
		item_begin(&j, d, out, "response.function_call_arguments.done", false);
		put_string(&j, "arguments", call->args.data, call->args.len);
		event_end(&j);
	} else {
		json_t *input = custom_input(call);
		item_begin(&j, d, out, "response.custom_tool_call_input.delta", false);
		put_input_text(&j, "delta", call, input);
		event_end(&j);
		item_begin(&j, d, out, "response.custom_tool_call_input.done", false);
		put_input_text(&j, "input", call, input);
		event_end(&j);
		json_decref(input);
	}
	item_event_begin(&j, d, out, "response.output_item.done");
	put_call_item(&j, d, call, d->state.block, true);
	event_end(&j);
}

/*
 * The open item ends. A call that is not complete gets no "done", so that no client runs it, and no
 * place in the final response.
 */
static void close_item(struct api_doc *d, const struct api_choice *c, struct ds_buf *out)
{
	uint32_t kind = d->state.kind;
	if (kind == NO_ITEM)
		return;
	if (kind == REASONING || kind == MESSAGE)
		close_text(d, c, is_cut(c) ? "incomplete" : "completed", out);
	else if (c->n_call > 0 && c->call[c->n_call - 1].complete)
		close_call(d, &c->call[c->n_call - 1], out);
	d->state.kind = NO_ITEM;
	d->state.block++;
}

static void open_text(struct api_doc *d, const struct api_choice *c, uint32_t kind,
		      const struct out_event *ev, struct ds_buf *out)
{
	struct ds_json j;
	if (d->state.kind == kind)
		return;
	close_item(d, c, out);
	d->state.kind = kind;
	d->state.from = (kind == REASONING ? c->reasoning.len : c->content.len) - ev->len;
	item_event_begin(&j, d, out, "response.output_item.added");
	put_text_item(&j, d, kind, d->state.block, "in_progress", "", 0);
	event_end(&j);
	put_part_event(d, out, "response.content_part.added", "", 0);
}

static void open_call(struct api_doc *d, const struct api_choice *c, const struct out_event *ev,
		      struct ds_buf *out)
{
	const struct api_call *call = &c->call[ev->call];
	const json_t *space;
	struct ds_json j;
	close_item(d, c, out);
	d->state.kind = call_kind(d, call, &space);
	item_event_begin(&j, d, out, "response.output_item.added");
	put_call_item(&j, d, call, d->state.block, false);
	event_end(&j);
}

static void put_text_delta(struct api_doc *d, const struct out_event *ev, const json_t *logprobs,
			   struct ds_buf *out)
{
	struct ds_json j;
	bool message = d->state.kind == MESSAGE;
	item_begin(&j, d, out,
		   message ? "response.output_text.delta" : "response.reasoning_text.delta", true);
	put_string(&j, "delta", ev->text, ev->len);
	if (message && logprobs != NULL) {
		ds_json_key(&j, "logprobs");
		put_json(&j, logprobs);
	} else if (message) {
		no_logprobs(&j);
	}
	event_end(&j);
}

static void stream_begin(struct api_doc *d, struct ds_buf *out)
{
	put_response_event(d, out, "response.created", "in_progress", NULL, NULL);
	put_response_event(d, out, "response.in_progress", "in_progress", NULL, NULL);
}

static void stream_event(struct api_doc *d, const struct api_choice *c, const struct out_event *ev,
			 json_t *logprobs, struct ds_buf *out)
{
	struct ds_json j;
	switch (ev->kind) {
	case OUT_REASONING:
	case OUT_CONTENT:
		if (ev->len == 0)
			return;
		open_text(d, c, ev->kind == OUT_REASONING ? REASONING : MESSAGE, ev, out);
		put_text_delta(d, ev, logprobs, out);
		return;
	case OUT_CALL:
		open_call(d, c, ev, out);
		return;
	case OUT_ARGS:
		if (ev->len == 0 || d->state.kind != CALL)
			return;
		item_begin(&j, d, out, "response.function_call_arguments.delta", false);
		put_string(&j, "delta", ev->text, ev->len);
		event_end(&j);
		return;
	case OUT_CALL_END:
		close_item(d, c, out);
	}
}

static void stream_choice_end(struct api_doc *d, const struct api_choice *c, struct ds_buf *out)
{
	close_item(d, c, out);
}

static void stream_end(struct api_doc *d, const struct api_usage *u, struct ds_buf *out)
{
	bool cut = is_cut(&d->choice[0]);
	put_response_event(d, out, cut ? "response.incomplete" : "response.completed",
			   cut ? "incomplete" : "completed", NULL, u);
	ds_buf_puts(out, "data: [DONE]\n\n");
}

static void stream_ping(struct api_doc *d, struct ds_buf *out)
{
	(void)d;
	ds_buf_puts(out, ": keep-alive\n\n");
}

static void stream_error(struct api_doc *d, const struct api_error *e, struct ds_buf *out)
{
	struct ds_json j;
	event_begin(&j, d, out, "error");
	ds_json_kstr(&j, "code", e->code != NULL ? e->code : "server_error");
	ds_json_kstr(&j, "message", e->message);
	ds_json_kstr(&j, "param", e->param[0] != '\0' ? e->param : NULL);
	event_end(&j);
	put_response_event(d, out, "response.failed", "failed", e, NULL);
	ds_buf_puts(out, "data: [DONE]\n\n");
}

static void put_whole(struct api_doc *d, const struct api_usage *u, struct ds_buf *out)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	put_response(&j, d, is_cut(&d->choice[0]) ? "incomplete" : "completed", NULL, u);
	ds_buf_putc(out, '\n');
}

static void put_error_body(const struct api_error *e, struct ds_buf *out)
{
	api_put_error(out, e);
}

const struct api_format api_responses_format = {
	.id_prefix = "resp_",
	.begin = stream_begin,
	.event = stream_event,
	.choice_end = stream_choice_end,
	.end = stream_end,
	.ping = stream_ping,
	.error = stream_error,
	.whole = put_whole,
	.error_body = put_error_body,
};
