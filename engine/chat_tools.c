/*
 * chat_tools.c - what a request says of tools and of the answer's form.
 *
 * Owns the checks of "tools", "tool_choice" and "response_format". The schemas themselves go into
 * the prompt as they came; whether one can be enforced is for others to say.
 */
#include <stdio.h>
#include <string.h>

#include "chat_int.h"

/* A name stands between quotes in the markup and cannot be escaped there. */
bool chat_is_name(const json_t *v)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);

	return s != NULL && n > 0 && strlen(s) == n && strpbrk(s, "\"\r\n") == NULL;
}

int chat_check_tools(const json_t *tools, const char *path, struct ds_err *err)
{
	char at[128];

	if (!json_is_array(tools))
		return chat_refuse(err, path, "is not a list");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i);
		const json_t *type = json_object_get(tool, "type");
		snprintf(at, sizeof(at), "%s[%zu].type", path, i);
		if (json_is_object(tool) && !chat_absent(type) && !chat_is(type, "function"))
			return chat_refuse(err, at,
					   "only tools of type \"function\" are supported");
		snprintf(at, sizeof(at), "%s[%zu].function", path, i);
		const json_t *function = json_object_get(tool, "function");
		if (!json_is_object(function))
			return chat_refuse(err, at, "is not an object");
		snprintf(at, sizeof(at), "%s[%zu].function.name", path, i);
		if (!chat_is_name(json_object_get(function, "name")))
			return chat_refuse(err, at,
					   "is not a name: text without quotes or line ends");
	}
	return 0;
}

static int add_functions(json_t *list, const json_t *tools, struct ds_err *err)
{
	for (size_t i = 0; i < json_array_size(tools); i++)
		if (json_array_append(list,
				      json_object_get(json_array_get(tools, i), "function")) != 0)
			return chat_no_memory(err);
	return 0;
}

/* The request's tools, then those of its messages; NULL when there are none. */
static int read_tools(const json_t *body, struct chat_prompt *out, struct ds_err *err)
{
	const json_t *messages = json_object_get(body, "messages");
	const json_t *tools = json_object_get(body, "tools"),
		     *old = json_object_get(body, "functions");

	if (!chat_absent(old) && !(json_is_array(old) && json_array_size(old) == 0))
		return chat_refuse(err, "functions", "functions are not supported: use tools");
	if (!chat_absent(tools) && chat_check_tools(tools, "tools", err) != 0)
		return -1;
	if ((out->tools = json_array()) == NULL)
		return chat_no_memory(err);
	if (add_functions(out->tools, tools, err) != 0)
		return -1;
	for (size_t i = 0; i < json_array_size(messages); i++)
		if (add_functions(out->tools, json_object_get(json_array_get(messages, i), "tools"),
				  err) != 0)
			return -1;
	if (json_array_size(out->tools) == 0) {
		json_decref(out->tools);
		out->tools = NULL;
	}
	return 0;
}

static int read_named(const json_t *choice, struct chat_prompt *out, struct ds_err *err)
{
	static const char path[] = "tool_choice.function.name";
	const json_t *name = json_object_get(json_object_get(choice, "function"), "name");

	if (!chat_is(json_object_get(choice, "type"), "function"))
		return chat_refuse(err, "tool_choice.type", "is not \"function\"");
	if (!json_is_string(name))
		return chat_refuse(err, path, "is not a string");
	for (size_t i = 0; i < json_array_size(out->tools); i++) {
		const json_t *known = json_object_get(json_array_get(out->tools, i), "name");
		if (json_equal(known, name))
			out->named = json_string_value(known);
	}
	if (out->named == NULL)
		return chat_refuse(err, path, "there is no tool \"%.64s\"",
				   json_string_value(name));
	out->choice = CHAT_MUST_ONE;
	return 0;
}

static int read_choice(const json_t *body, struct chat_prompt *out, struct ds_err *err)
{
	const json_t *choice = json_object_get(body, "tool_choice");

	if (chat_absent(choice) || chat_is(choice, "auto"))
		out->choice = CHAT_AUTO;
	else if (chat_is(choice, "none"))
		out->choice = CHAT_NO_CALL;
	else if (!chat_is(choice, "required") && !json_is_object(choice))
		return chat_refuse(
			err, "tool_choice",
			"is not auto, none, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
	else if (out->tools == NULL)
		return chat_refuse(err, "tool_choice", "asks for a call, but there are no tools");
	else if (json_is_object(choice))
		return read_named(choice, out, err);
	else
		out->choice = CHAT_MUST;
	return 0;
}

static int read_format(const json_t *body, struct chat_prompt *out, struct ds_err *err)
{
	json_t *format = json_object_get(body, "response_format");
	const json_t *type = json_object_get(format, "type");

	if (chat_absent(format) || chat_is(type, "text"))
		return 0;
	if (!json_is_object(format))
		return chat_refuse(err, "response_format", "is not an object");
	if (!chat_is(type, "json_object") && !chat_is(type, "json_schema"))
		return chat_refuse(err, "response_format.type",
				   "is not text, json_object or json_schema");
	if (chat_is(type, "json_schema") && !json_is_object(json_object_get(format, "json_schema")))
		return chat_refuse(err, "response_format.json_schema", "is not an object");
	out->format = json_incref(format);
	return 0;
}

int chat_read_tools(const json_t *body, struct chat_prompt *out, struct ds_err *err)
{
	if (read_tools(body, out, err) != 0 || read_choice(body, out, err) != 0)
		return -1;
	return read_format(body, out, err);
}
