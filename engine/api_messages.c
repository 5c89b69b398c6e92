/*
 * api_messages.c - POST /v1/messages: Anthropic's bodies as chat/completions bodies, answers as its
 * messages and events.
 *
 * Shapes are those of Anthropic's public reference. Whatever is only meant for the vendor's own
 * machines (cache_control, metadata, service_tier, ...) is ignored.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api_format.h"
#include "api_translate.h"
#include "chat.h"
#include "json.h"
#include "pyjson.h"

/* ---------------------------------- content blocks ---------------------------------- */

static int refuse_block(struct tr *t, const json_t *type, const char *at)
{
	if (tr_is(type, "image") || tr_is(type, "document"))
		return tr_refuse(t, "this server reads text only", "%s.type", at);
	return tr_refuse(t, "is no block that this server knows here", "%s.type", at);
}

/* A "text" block's text; NULL with the refusal told. Any other type is refused. */
static const json_t *block_text(struct tr *t, const json_t *block, const char *at)
{
	const json_t *type = json_object_get(block, "type");
	const json_t *text = json_object_get(block, "text");
	if (!json_is_object(block)) {
		tr_refuse(t, "must be an object", "%s", at);
		return NULL;
	}
	if (!tr_is(type, "text")) {
		refuse_block(t, type, at);
		return NULL;
	}
	if (!json_is_string(text)) {
		tr_refuse(t, "must be a string", "%s.text", at);
		return NULL;
	}
	return text;
}

/*
 * A tool that a search found ("tool_reference"). Its definition was held back ("defer_loading"), so that
 * the tools in front of the conversation stay the same; here it is told, as a part of the result.
 */
static int add_reference(struct tr *t, json_t *parts, const json_t *block, const char *at)
{
	const json_t *tools = json_object_get(t->body, "tools");
	const json_t *name = json_object_get(block, "tool_name");
	struct ds_buf b = { 0 };
	if (!json_is_string(name))
		return tr_refuse(t, "must be a string", "%s.tool_name", at);
	json_t *shown = json_object();
	tr_put(t, shown, "name", tr_share(name));
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i);
		if (!json_equal(json_object_get(tool, "name"), name))
			continue;
		if (tr_field(tool, "description") != NULL)
			tr_put(t, shown, "description", tr_share(tr_field(tool, "description")));
		if (tr_field(tool, "input_schema") != NULL)
			tr_put(t, shown, "parameters", tr_share(tr_field(tool, "input_schema")));
	}
	ds_buf_puts(&b, "<function>");
	pyjson_dump(shown, &b);
	ds_buf_puts(&b, "</function>");
	json_t *text = b.failed ? NULL : json_stringn(b.data, b.len);
	tr_add(t, parts, tr_part(t, text));
	json_decref(text);
	json_decref(shown);
	ds_buf_fini(&b);
	return 0;
}

/* A string or a list of text blocks as the message's content; absent = empty. */
static int put_text_content(struct tr *t, json_t *message, const json_t *content, const char *at)
{
	char path[128];
	if (content == NULL || json_is_string(content)) {
		tr_put(t, message, "content",
		       content == NULL ? json_string("") : tr_share(content));
		return 0;
	}
	if (!json_is_array(content))
		return tr_refuse(t, "must be a string or a list of blocks", "%s", at);
	json_t *parts = tr_put(t, message, "content", json_array());
	for (size_t i = 0; i < json_array_size(content); i++) {
		const json_t *block = json_array_get(content, i);
		snprintf(path, sizeof(path), "%s[%zu]", at, i);
		if (tr_is(json_object_get(block, "type"), "tool_reference")) {
			if (add_reference(t, parts, block, path) != 0)
				return -1;
			continue;
		}
		const json_t *text = block_text(t, block, path);
		if (text == NULL)
			return -1;
		tr_add(t, parts, tr_part(t, text));
	}
	return 0;
}

/*
 * Some clients put a line for the vendor's accounting in front of the system text. It differs in every
 * request and says nothing to the model; kept, no prompt would ever share a prefix with the last one.
 */
static const json_t *without_accounting(struct tr *t, const json_t *text, json_t **owned)
{
	static const char mark[] = "x-anthropic-billing-header:";
	const char *s = json_string_value(text);
	size_t len = json_string_length(text);
	*owned = NULL;
	if (len < sizeof(mark) - 1 || memcmp(s, mark, sizeof(mark) - 1) != 0)
		return text;
	const char *end = memchr(s, '\n', len);
	size_t skip = end != NULL ? (size_t)(end - s) + 1 : len;
	*owned = json_stringn(s + skip, len - skip);
	if (*owned == NULL)
		t->no_memory = true;
	return *owned;
}

static int put_system(struct tr *t, const json_t *body)
{
	const json_t *system = tr_field(body, "system");
	char at[64];
	json_t *cut;
	if (system == NULL)
		return 0;
	if (!json_is_string(system) && !json_is_array(system))
		return tr_refuse(t, "must be a string or a list of blocks", "system");
	json_t *parts = json_array();
	size_t n = json_is_array(system) ? json_array_size(system) : 1;
	for (size_t i = 0; i < n; i++) {
		const json_t *text = system;
		snprintf(at, sizeof(at), "system[%zu]", i);
		if (json_is_array(system))
			text = block_text(t, json_array_get(system, i), at);
		if (text == NULL) {
			json_decref(parts);
			return -1;
		}
		text = without_accounting(t, text, &cut);
		if (cut == NULL || json_string_length(cut) > 0)
			tr_add(t, parts, tr_part(t, text));
		json_decref(cut);
	}
	if (json_array_size(parts) > 0)
		tr_put(t, tr_message(t, "system"), "content", tr_share(parts));
	json_decref(parts);
	return 0;
}

/* ---------------------------------- messages ---------------------------------- */

static int put_tool_result(struct tr *t, const json_t *block, const char *at)
{
	const json_t *id = json_object_get(block, "tool_use_id");
	char path[128];
	if (!json_is_string(id))
		return tr_refuse(t, "must be a string", "%s.tool_use_id", at);
	json_t *m = tr_message(t, "tool");
	tr_put(t, m, "tool_call_id", tr_share(id));
	snprintf(path, sizeof(path), "%s.content", at);
	return put_text_content(t, m, tr_field(block, "content"), path);
}

/* Results become messages of their own; the text between them stays in its place. */
static int put_user_block(struct tr *t, const json_t *block, const char *at, json_t **parts)
{
	if (tr_is(json_object_get(block, "type"), "tool_result")) {
		*parts = NULL;
		return put_tool_result(t, block, at);
	}
	const json_t *text = block_text(t, block, at);
	if (text == NULL)
		return -1;
	if (*parts == NULL)
		*parts = tr_put(t, tr_message(t, "user"), "content", json_array());
	tr_add(t, *parts, tr_part(t, text));
	return 0;
}

static int put_tool_use(struct tr *t, const json_t *block, const char *at)
{
	const json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
	const json_t *input = json_object_get(block, "input");
	if (!json_is_string(id))
		return tr_refuse(t, "must be a string", "%s.id", at);
	if (!json_is_string(name))
		return tr_refuse(t, "must be a string", "%s.name", at);
	if (!json_is_object(input))
		return tr_refuse(t, "must be an object", "%s.input", at);
	tr_turn_call(t, id, tr_share(name), input);
	return 0;
}

static int put_assistant_block(struct tr *t, const json_t *block, const char *at)
{
	const json_t *type = json_object_get(block, "type");
	if (tr_is(type, "tool_use"))
		return put_tool_use(t, block, at);
	if (tr_is(type, "thinking")) {
		const json_t *text = json_object_get(block, "thinking");
		if (!json_is_string(text))
			return tr_refuse(t, "must be a string", "%s.thinking", at);
		if (json_string_length(text) > 0)
			tr_turn_reason(t, tr_share(text));
		return 0;
	}
	if (tr_is(type, "redacted_thinking")) /* another server's, and unreadable here */
		return 0;
	const json_t *text = block_text(t, block, at);
	if (text == NULL)
		return -1;
	tr_turn_text(t, text);
	return 0;
}

static int put_message(struct tr *t, const json_t *message, size_t i)
{
	const json_t *role = json_object_get(message, "role");
	const json_t *content = json_object_get(message, "content");
	bool assistant = tr_is(role, "assistant");
	json_t *parts = NULL;
	char at[96];
	snprintf(at, sizeof(at), "messages[%zu].content", i);
	if (!json_is_object(message))
		return tr_refuse(t, "must be an object", "messages[%zu]", i);
	if (tr_is(role, "system")) /* in the middle of a conversation */
		return put_text_content(t, tr_message(t, "system"), content, at);
	if (!assistant && !tr_is(role, "user"))
		return tr_refuse(t, "must be \"user\" or \"assistant\"", "messages[%zu].role", i);
	if (assistant)
		tr_turn_open(t);
	if (json_is_string(content)) {
		if (assistant)
			tr_turn_text(t, content);
		else
			tr_put(t, tr_message(t, "user"), "content", tr_share(content));
		return 0;
	}
	if (!json_is_array(content))
		return tr_refuse(t, "must be a string or a list of blocks", "%s", at);
	for (size_t k = 0; k < json_array_size(content); k++) {
		const json_t *block = json_array_get(content, k);
		snprintf(at, sizeof(at), "messages[%zu].content[%zu]", i, k);
		if (assistant ? put_assistant_block(t, block, at) != 0
			      : put_user_block(t, block, at, &parts) != 0)
			return -1;
	}
	return 0;
}

static int put_messages(struct tr *t, const json_t *body)
{
	const json_t *list = tr_field(body, "messages");
	if (!json_is_array(list) || json_array_size(list) == 0)
		return tr_refuse(t, "must be a list of at least one message", "messages");
	for (size_t i = 0; i < json_array_size(list); i++)
		if (put_message(t, json_array_get(list, i), i) != 0)
			return -1;
	/* A last message of the assistant's is the beginning of the answer. */
	json_t *last = tr_turn_end(t);
	if (last != NULL && json_object_get(last, "tool_calls") == NULL)
		tr_put(t, last, "prefix", json_true());
	return 0;
}

/* ---------------------------------- tools ---------------------------------- */

static int put_tool(struct tr *t, json_t *tools, const json_t *tool, size_t i)
{
	const json_t *type = tr_field(tool, "type"), *name = json_object_get(tool, "name");
	const json_t *about = tr_field(tool, "description");
	const json_t *schema = json_object_get(tool, "input_schema");
	if (!json_is_object(tool))
		return tr_refuse(t, "must be an object", "tools[%zu]", i);
	if (type != NULL && !tr_is(type, "custom"))
		return tr_refuse(
			t,
			"is a tool of its vendor's; this server knows tools with an input_schema",
			"tools[%zu].type", i);
	if (!chat_is_name(name))
		return tr_refuse(t, "must be a name: text without quotes or line ends",
				 "tools[%zu].name", i);
	if (about != NULL && !json_is_string(about))
		return tr_refuse(t, "must be a string", "tools[%zu].description", i);
	if (!json_is_object(schema))
		return tr_refuse(t, "must be an object", "tools[%zu].input_schema", i);
	if (json_is_true(json_object_get(tool, "defer_loading")))
		return 0; /* until a tool_reference shows it */
	json_t *f = json_object();
	tr_put(t, f, "name", tr_share(name));
	if (about != NULL)
		tr_put(t, f, "description", tr_share(about));
	tr_put(t, f, "parameters", tr_share(schema));
	tr_add(t, tools, tr_function(t, f));
	return 0;
}

static int put_choice(struct tr *t, const json_t *choice)
{
	const json_t *type = json_object_get(choice, "type");
	const json_t *serial = tr_field(choice, "disable_parallel_tool_use");
	if (!json_is_object(choice))
		return tr_refuse(t, "must be an object", "tool_choice");
	if (serial != NULL && !json_is_boolean(serial))
		return tr_refuse(t, "must be true or false",
				 "tool_choice.disable_parallel_tool_use");
	if (json_is_true(serial))
		tr_put(t, t->out, "parallel_tool_calls", json_false());
	if (tr_is(type, "auto") || tr_is(type, "none")) {
		tr_put(t, t->out, "tool_choice", tr_share(type));
		return 0;
	}
	if (tr_is(type, "any")) {
		tr_put(t, t->out, "tool_choice", json_string("required"));
		return 0;
	}
	if (!tr_is(type, "tool"))
		return tr_refuse(t, "must be \"auto\", \"any\", \"tool\" or \"none\"",
				 "tool_choice.type");
	const json_t *name = json_object_get(choice, "name");
	if (!json_is_string(name))
		return tr_refuse(t, "must be a string", "tool_choice.name");
	json_t *f = json_object();
	tr_put(t, f, "name", tr_share(name));
	tr_put(t, t->out, "tool_choice", tr_function(t, f));
	return 0;
}

static int put_tools(struct tr *t, const json_t *body)
{
	const json_t *list = tr_field(body, "tools"), *choice = tr_field(body, "tool_choice");
	const json_t *remote = tr_field(body, "mcp_servers");
	if (remote != NULL && json_array_size(remote) > 0)
		return tr_refuse(t, "this server connects to nothing; let the client run its tools",
				 "mcp_servers");
	if (list != NULL && !json_is_array(list))
		return tr_refuse(t, "must be a list", "tools");
	if (json_array_size(list) > 0) {
		json_t *tools = tr_put(t, t->out, "tools", json_array()); /* an empty one is none */
		for (size_t i = 0; i < json_array_size(list); i++)
			if (put_tool(t, tools, json_array_get(list, i), i) != 0)
				return -1;
	}
	return choice != NULL ? put_choice(t, choice) : 0;
}

/* ---------------------------------- the other fields ---------------------------------- */

static bool is_whole(const json_t *v)
{
	double d = json_number_value(v);
	return json_is_integer(v) || (json_is_real(v) && d == floor(d));
}

static int put_thinking(struct tr *t, const json_t *body)
{
	const json_t *thinking = tr_field(body, "thinking");
	const json_t *type = json_object_get(thinking, "type");
	const json_t *budget = tr_field(thinking, "budget_tokens");
	bool on = tr_is(type, "enabled") || tr_is(type, "adaptive");
	if (thinking != NULL && !json_is_object(thinking))
		return tr_refuse(t, "must be an object", "thinking");
	if (thinking != NULL && !on && !tr_is(type, "disabled"))
		return tr_refuse(t, "must be \"enabled\", \"adaptive\" or \"disabled\"",
				 "thinking.type");
	if (budget != NULL && (!is_whole(budget) || json_number_value(budget) < 1))
		return tr_refuse(t, "must be a whole number from 1", "thinking.budget_tokens");
	/* Without the field this endpoint does not think, whatever the server's default is. */
	json_t *knob = json_object();
	tr_put(t, knob, "type", json_string(on ? "enabled" : "disabled"));
	tr_put(t, t->out, "thinking", knob);
	return 0;
}

static int put_output_config(struct tr *t, const json_t *body)
{
	static const char *const efforts[] = { "low", "medium", "high", "xhigh", "max" };
	const json_t *config = tr_field(body, "output_config");
	const json_t *effort = tr_field(config, "effort");
	const json_t *format = tr_field(config, "format");
	if (config != NULL && !json_is_object(config))
		return tr_refuse(t, "must be an object", "output_config");
	if (effort != NULL) {
		bool known = false;
		for (size_t i = 0; i < sizeof(efforts) / sizeof(efforts[0]); i++)
			known = known || tr_is(effort, efforts[i]);
		if (!known)
			return tr_refuse(
				t, "must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"",
				"output_config.effort");
		tr_put(t, t->out, "reasoning_effort", tr_share(effort));
	}
	if (format == NULL)
		return 0;
	const json_t *schema = json_object_get(format, "schema");
	if (!tr_is(json_object_get(format, "type"), "json_schema"))
		return tr_refuse(t, "must be \"json_schema\"", "output_config.format.type");
	if (!json_is_object(schema))
		return tr_refuse(t, "must be an object", "output_config.format.schema");
	json_t *named = json_object(), *as = json_object();
	tr_put(t, named, "name", json_string("output"));
	tr_put(t, named, "schema", tr_share(schema));
	tr_put(t, as, "type", json_string("json_schema"));
	tr_put(t, as, "json_schema", named);
	tr_put(t, t->out, "response_format", as);
	return 0;
}

static int put_stops(struct tr *t, const json_t *body)
{
	const json_t *list = tr_field(body, "stop_sequences");
	if (list == NULL)
		return 0;
	if (!json_is_array(list) || json_array_size(list) > API_STOPS_MAX)
		return tr_refuse(t, "must be a list of up to 16 strings", "stop_sequences");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);
		if (!json_is_string(v) || json_string_length(v) > API_STOP_LEN)
			return tr_refuse(t, "must be a string of up to 1024 bytes",
					 "stop_sequences[%zu]", i);
	}
	tr_put(t, t->out, "stop", tr_share(list));
	return 0;
}

static int put_limit(struct tr *t, const json_t *body)
{
	const json_t *max = tr_field(body, "max_tokens");
	if (max == NULL)
		return tr_refuse(t, "is required: the most tokens to answer with", "max_tokens");
	if (!is_whole(max) || json_number_value(max) < 1)
		return tr_refuse(t, "must be a whole number from 1", "max_tokens");
	tr_put(t, t->out, "max_tokens", tr_share(max));
	return 0;
}

static json_t *translate(const json_t *body, bool counting, struct ds_err *err)
{
	struct tr t;
	int rc = tr_begin(&t, body, err);
	if (rc != 0)
		return NULL;
	tr_copy_sampling(&t, body);
	if (put_system(&t, body) != 0 || put_messages(&t, body) != 0 || put_tools(&t, body) != 0 ||
	    put_thinking(&t, body) != 0 || put_output_config(&t, body) != 0 ||
	    put_stops(&t, body) != 0 || (!counting && put_limit(&t, body) != 0))
		rc = -1;
	return tr_end(&t, rc);
}

json_t *api_messages_to_chat(const json_t *body, struct ds_err *err)
{
	return translate(body, false, err);
}

json_t *api_messages_count_to_chat(const json_t *body, struct ds_err *err)
{
	return translate(body, true, err);
}

static const struct api_name names[] = {
	{ ".function.parameters", ".input_schema" },
	{ ".function", "" },
	{ "response_format.json_schema", "output_config.format" },
	{ "response_format", "output_config.format" },
	{ "reasoning_effort", "output_config.effort" },
	{ "stop", "stop_sequences" },
	{ NULL, NULL },
};
const struct api_way api_messages_way = { .to_chat = api_messages_to_chat, .name = names };
const struct api_way api_count_way = { .to_chat = api_messages_count_to_chat, .name = names };

void api_messages_put_count(struct ds_buf *out, uint32_t n)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	ds_json_object(&j);
	ds_json_kuint(&j, "input_tokens", n);
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
}

/* ---------------------------------- answers ---------------------------------- */

enum {
	NO_BLOCK,
	THINKING,
	TEXT,
	TOOL_USE
}; /* api_doc.state.kind */

static void event_begin(struct ds_json *j, struct ds_buf *out, const char *type)
{
	ds_buf_printf(out, "event: %s\ndata: ", type);
	ds_json_init(j, out, 0);
	ds_json_object(j);
	ds_json_kstr(j, "type", type);
}

static void event_end(struct ds_json *j)
{
	ds_json_end(j);
	ds_buf_puts(j->out, "\n\n");
}

static void put_string(struct ds_json *j, const char *key, const char *s, size_t len)
{
	ds_json_key(j, key);
	ds_json_strn(j, len > 0 ? s : "", len);
}

static void put_usage(struct ds_json *j, uint32_t input, uint32_t output)
{
	ds_json_key(j, "usage");
	ds_json_object(j);
	ds_json_kuint(j, "input_tokens", input);
	ds_json_kuint(j, "cache_creation_input_tokens", 0);
	ds_json_kuint(j, "cache_read_input_tokens", 0);
	ds_json_kuint(j, "output_tokens", output);
	ds_json_end(j);
}

static void put_message_head(struct ds_json *j, const struct api_doc *d)
{
	ds_json_kstr(j, "id", d->head.id);
	ds_json_kstr(j, "type", "message");
	ds_json_kstr(j, "role", "assistant");
	ds_json_kstr(j, "model", d->head.model);
}

/* "stop_reason" and "stop_sequence"; @c: NULL or not finished = null. */
static void put_stop(struct ds_json *j, const struct api_doc *d, const struct api_choice *c)
{
	const char *finish = c != NULL ? c->finish : NULL;
	const char *stop = finish != NULL ? c->stop_string : NULL;
	const char *reason = NULL;
	if (finish != NULL)
		reason = stop != NULL			     ? "stop_sequence"
			 : strcmp(finish, "length") == 0     ? "max_tokens"
			 : strcmp(finish, "tool_calls") == 0 ? "tool_use"
							     : "end_turn";
	ds_json_kstr(j, "stop_reason", reason);
	ds_json_key(j, "stop_sequence");
	for (uint32_t i = 0; stop != NULL && i < d->req->n_stop; i++) {
		if (d->req->stop[i] == stop) { /* it may hold NUL bytes */
			ds_json_strn(j, stop, d->req->stop_len[i]);
			return;
		}
	}
	ds_json_str(j, stop);
}

/*
 * Some clients send thinking back only when it is signed. Here the text itself is what counts, so the
 * signature is the answer's id, and none is checked.
 */
static void put_thinking_block(struct ds_json *j, const char *text, size_t len,
			       const char *signature)
{
	ds_json_kstr(j, "type", "thinking");
	put_string(j, "thinking", text, len);
	ds_json_kstr(j, "signature", signature);
}

static void put_text_block(struct ds_json *j, const char *text, size_t len)
{
	ds_json_kstr(j, "type", "text");
	put_string(j, "text", text, len);
}

/* @input: JSON text */
static void put_tool_block(struct ds_json *j, const char *id, const char *name, size_t len,
			   const char *input)
{
	ds_json_kstr(j, "type", "tool_use");
	ds_json_kstr(j, "id", id);
	put_string(j, "name", name, len);
	ds_json_key(j, "input");
	ds_json_raw(j, input);
}

static void put_delta(const struct api_doc *d, const char *type, const char *key, const char *text,
		      size_t len, struct ds_buf *out)
{
	struct ds_json j;
	event_begin(&j, out, "content_block_delta");
	ds_json_kuint(&j, "index", d->state.block);
	ds_json_key(&j, "delta");
	ds_json_object(&j);
	ds_json_kstr(&j, "type", type);
	put_string(&j, key, text, len);
	ds_json_end(&j);
	event_end(&j);
}

static void close_block(struct api_doc *d, struct ds_buf *out)
{
	struct ds_json j;
	if (d->state.kind == NO_BLOCK)
		return;
	if (d->state.kind == THINKING)
		put_delta(d, "signature_delta", "signature", d->head.id, strlen(d->head.id), out);
	event_begin(&j, out, "content_block_stop");
	ds_json_kuint(&j, "index", d->state.block);
	event_end(&j);
	d->state.kind = NO_BLOCK;
	d->state.block++;
}

/* @ev: OUT_CALL, for a tool block */
static void open_block(struct api_doc *d, uint32_t kind, const struct out_event *ev,
		       struct ds_buf *out)
{
	struct ds_json j;
	if (kind != TOOL_USE && d->state.kind == kind)
		return;
	close_block(d, out);
	event_begin(&j, out, "content_block_start");
	ds_json_kuint(&j, "index", d->state.block);
	ds_json_key(&j, "content_block");
	ds_json_object(&j);
	if (kind == THINKING)
		put_thinking_block(&j, "", 0, "");
	else if (kind == TEXT)
		put_text_block(&j, "", 0);
	else
		put_tool_block(&j, ev->id, ev->text, ev->len, "{}");
	ds_json_end(&j);
	event_end(&j);
	d->state.kind = kind;
}

/* In front of message_start a ping would be a message's first event: a comment is none. */
static void stream_ping(struct api_doc *d, struct ds_buf *out)
{
	struct ds_json j;
	if (d->state.sequence == 0) {
		ds_buf_puts(out, ": keep-alive\n\n");
		return;
	}
	event_begin(&j, out, "ping");
	event_end(&j);
}

static void stream_begin(struct api_doc *d, struct ds_buf *out)
{
	struct ds_json j;
	event_begin(&j, out, "message_start");
	ds_json_key(&j, "message");
	ds_json_object(&j);
	put_message_head(&j, d);
	ds_json_key(&j, "content");
	ds_json_array(&j);
	ds_json_end(&j);
	put_stop(&j, d, NULL);
	put_usage(&j, d->prompt_tokens, 0);
	ds_json_end(&j);
	event_end(&j);
	d->state.sequence = 1;
	stream_ping(d, out);
}

static void stream_event(struct api_doc *d, const struct api_choice *c, const struct out_event *ev,
			 json_t *logprobs, struct ds_buf *out)
{
	(void)c;
	(void)logprobs; /* nothing in this endpoint asks for them */
	switch (ev->kind) {
	case OUT_REASONING:
		if (ev->len == 0)
			return;
		open_block(d, THINKING, ev, out);
		put_delta(d, "thinking_delta", "thinking", ev->text, ev->len, out);
		return;
	case OUT_CONTENT:
		if (ev->len == 0)
			return;
		open_block(d, TEXT, ev, out);
		put_delta(d, "text_delta", "text", ev->text, ev->len, out);
		return;
	case OUT_CALL:
		open_block(d, TOOL_USE, ev, out);
		return;
	case OUT_ARGS:
		if (ev->len > 0)
			put_delta(d, "input_json_delta", "partial_json", ev->text, ev->len, out);
		return;
	case OUT_CALL_END:
		close_block(d, out);
	}
}

static void stream_choice_end(struct api_doc *d, const struct api_choice *c, struct ds_buf *out)
{
	(void)c;
	close_block(d, out);
}

static void stream_end(struct api_doc *d, const struct api_usage *u, struct ds_buf *out)
{
	struct ds_json j;
	event_begin(&j, out, "message_delta");
	ds_json_key(&j, "delta");
	ds_json_object(&j);
	put_stop(&j, d, &d->choice[0]);
	ds_json_end(&j);
	put_usage(&j, u->prompt, u->completion);
	event_end(&j);
	event_begin(&j, out, "message_stop");
	event_end(&j);
}

static void put_content(struct ds_json *j, const struct api_doc *d, const struct api_choice *c)
{
	ds_json_key(j, "content");
	ds_json_array(j);
	if (c->reasoning.len > 0) {
		ds_json_object(j);
		put_thinking_block(j, c->reasoning.data, c->reasoning.len, d->head.id);
		ds_json_end(j);
	}
	if (c->content.len > 0) {
		ds_json_object(j);
		put_text_block(j, c->content.data, c->content.len);
		ds_json_end(j);
	}
	for (uint32_t i = 0; i < c->n_call; i++) {
		const struct api_call *call = &c->call[i];
		if (!call->complete)
			continue;
		ds_json_object(j);
		put_tool_block(j, call->id, call->name.data, call->name.len,
			       call->args.len > 0 ? call->args.data : "{}");
		ds_json_end(j);
	}
	ds_json_end(j);
}

static void put_whole(struct api_doc *d, const struct api_usage *u, struct ds_buf *out)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	ds_json_object(&j);
	put_message_head(&j, d);
	put_content(&j, d, &d->choice[0]);
	put_stop(&j, d, &d->choice[0]);
	put_usage(&j, u->prompt, u->completion);
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
}

/* ---------------------------------- errors ---------------------------------- */

static const char *error_type(unsigned int status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 403:
		return "permission_error";
	case 404:
		return "not_found_error";
	case 413:
		return "request_too_large";
	case 429:
		return "rate_limit_error";
	case 503:
		return "overloaded_error";
	default:
		return status < 500 ? "invalid_request_error" : "api_error";
	}
}

static void put_error(struct ds_json *j, const struct api_error *e)
{
	ds_json_key(j, "error");
	ds_json_object(j);
	ds_json_kstr(j, "type", error_type(e->status));
	/* Clients look for these words to know that they must shorten the conversation. */
	bool long_prompt = e->code != NULL && strcmp(e->code, "context_length_exceeded") == 0;
	char message[sizeof(e->message) + 32];
	snprintf(message, sizeof(message), "%s%s", long_prompt ? "prompt is too long: " : "",
		 e->message);
	ds_json_kstr(j, "message", message);
	ds_json_end(j);
}

static void stream_error(struct api_doc *d, const struct api_error *e, struct ds_buf *out)
{
	struct ds_json j;
	(void)d;
	event_begin(&j, out, "error");
	put_error(&j, e);
	event_end(&j);
}

static void put_error_body(const struct api_error *e, struct ds_buf *out)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	ds_json_object(&j);
	ds_json_kstr(&j, "type", "error");
	put_error(&j, e);
	ds_json_end(&j);
}

const struct api_format api_messages_format = {
	.id_prefix = "msg_",
	.begin = stream_begin,
	.event = stream_event,
	.choice_end = stream_choice_end,
	.end = stream_end,
	.ping = stream_ping,
	.error = stream_error,
	.whole = put_whole,
	.error_body = put_error_body,
};
