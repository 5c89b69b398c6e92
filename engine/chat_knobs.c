/*
 * chat_knobs.c - whether the model thinks, and how hard: every spelling that clients send.
 *
 * Owns the order of precedence (a request's own fields, its template arguments, the server's
 * default) and the table of named efforts.
 */
#include <stdio.h>

#include "chat_int.h"

#define EFFORT_DEFAULT 75

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

	if (chat_absent(v))
		return 0;
	if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 100)
		effort = json_integer_value(v);
	for (size_t i = 0; i < sizeof(efforts) / sizeof(efforts[0]); i++)
		if (chat_is(v, efforts[i].name))
			effort = efforts[i].effort;
	if (effort < 0)
		return chat_refuse(
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
	if (chat_absent(v))
		return 0;
	if (!json_is_boolean(v))
		return chat_refuse(err, path, "is not true or false");
	if (k->on < 0)
		k->on = json_is_true(v);
	return 0;
}

static int read_thinking_type(struct knobs *k, const json_t *thinking, struct ds_err *err)
{
	if (chat_absent(thinking))
		return 0;
	const json_t *type = json_object_get(thinking, "type");
	if (!chat_is(type, "enabled") && !chat_is(type, "disabled"))
		return chat_refuse(err, "thinking.type", "is not \"enabled\" or \"disabled\"");
	k->on = chat_is(type, "enabled");
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
	if (!chat_absent(reasoning) && !json_is_object(reasoning))
		return chat_refuse(err, "reasoning", "is not an object");
	if (read_effort(k, json_object_get(body, "reasoning_effort"), "reasoning_effort", err) != 0)
		return -1;
	return read_effort(k, json_object_get(reasoning, "effort"), "reasoning.effort", err);
}

static int read_template_arguments(struct knobs *k, const json_t *args, struct ds_err *err)
{
	static const char *const switches[] = { "thinking", "enable_thinking" };
	char path[64];

	if (!chat_absent(args) && !json_is_object(args))
		return chat_refuse(err, "chat_template_kwargs", "is not an object");
	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
		snprintf(path, sizeof(path), "chat_template_kwargs.%s", switches[i]);
		if (read_switch(k, json_object_get(args, switches[i]), path, err) != 0)
			return -1;
	}
	return read_effort(k, json_object_get(args, "reasoning_effort"),
			   "chat_template_kwargs.reasoning_effort", err);
}

/* The request's own fields win over its template arguments, and those over the server's default. */
int chat_read_knobs(const json_t *body, bool thinking_default, struct chat_prompt *out,
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
