/*
 * test_api_responses.c - OpenAI's Responses: bodies in and out, streams that say what the whole says.
 */
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#include "format_feed.h"

#define FLAT \
	"{\"type\":\"function\",\"name\":\"f\",\"strict\":false,\"description\":\"d\",\"parameters\":{\"x\":1.50}}"
#define AS_CHAT \
	"{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"x\":1.50}}}"
#define SPACE \
	"{\"type\":\"namespace\",\"name\":\"mcp__a\",\"description\":\"A\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}"
#define PATCH                                                                                                  \
	"{\"type\":\"custom\",\"name\":\"patch\",\"description\":\"Edits.\",\"format\":{\"type\":\"grammar\"," \
	"\"syntax\":\"lark\",\"definition\":\"start: x\"}}"

/* @want: as in test_api_messages.c: null = absent */
static const struct {
	const char *what, *body, *want;
} good[] = {
	{ "the least", "{\"input\":\"hi\"}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":null,\"reasoning\":null,"
	  "\"max_tokens\":null,\"response_format\":null,\"logprobs\":null}" },
	{ "plain fields",
	  "{\"input\":\"hi\",\"model\":\"m\",\"stream\":true,\"temperature\":0.5,\"top_p\":0.9,\"seed\":4,"
	  "\"max_output_tokens\":7,\"parallel_tool_calls\":false,\"store\":true,\"metadata\":{\"a\":\"b\"},"
	  "\"user\":\"u\",\"truncation\":\"auto\",\"service_tier\":\"auto\",\"previous_response_id\":null,"
	  "\"background\":false,\"client_metadata\":{},\"prompt_cache_key\":\"k\"}",
	  "{\"model\":\"m\",\"stream\":true,\"temperature\":0.5,\"top_p\":0.9,\"seed\":4,\"max_tokens\":7,"
	  "\"parallel_tool_calls\":false,\"store\":null,\"metadata\":null,\"user\":null}" },
	{ "instructions come first",
	  "{\"instructions\":\"Be brief.\",\"input\":[{\"role\":\"developer\",\"content\":\"D\"},"
	  "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
	  "{\"type\":\"input_text\",\"text\":\"b\"}]}]}",
	  "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"developer\",\"content\":\"D\"},"
	  "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]}" },
	{ "a round with reasoning, text, calls and outputs is one turn",
	  "{\"input\":[{\"role\":\"user\",\"content\":\"Q\"},"
	  "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"T\"}],"
	  "\"encrypted_content\":null},"
	  "{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\",\"id\":\"msg_1\",\"content\":["
	  "{\"type\":\"output_text\",\"text\":\"Let me.\",\"annotations\":[]}]},"
	  "{\"type\":\"function_call\",\"call_id\":\"call_1\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1.0}\"},"
	  "{\"type\":\"function_call\",\"call_id\":\"call_2\",\"name\":\"g\",\"arguments\":\"{}\"},"
	  "{\"type\":\"function_call_output\",\"call_id\":\"call_2\",\"output\":\"two\"},"
	  "{\"type\":\"function_call_output\",\"call_id\":\"call_1\",\"output\":[{\"type\":\"input_text\",\"text\":\"one\"}]},"
	  "{\"role\":\"user\",\"content\":\"Go on.\"}]}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},"
	  "{\"role\":\"assistant\",\"reasoning_content\":\"T\",\"content\":\"Let me.\",\"tool_calls\":["
	  "{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1.0}\"}},"
	  "{\"id\":\"call_2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
	  "{\"role\":\"tool\",\"tool_call_id\":\"call_2\",\"content\":\"two\"},"
	  "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":[{\"type\":\"text\",\"text\":\"one\"}]},"
	  "{\"role\":\"user\",\"content\":\"Go on.\"}]}" },
	{ "text behind a call stays in its turn; a second text and new reasoning do not",
	  "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
	  "{\"role\":\"assistant\",\"content\":\"A\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"},"
	  "{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":\"assistant\",\"content\":\"C\"},"
	  "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"S\"}]},"
	  "{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"No.\"}]}]}",
	  "{\"messages\":[{\"role\":\"assistant\",\"content\":\"A\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
	  "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"o\"},"
	  "{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":\"assistant\",\"content\":\"C\"},"
	  "{\"role\":\"assistant\",\"reasoning_content\":\"S\",\"content\":\"No.\"}]}" },
	{ "reasoning that a client carried; another server's says nothing",
	  "{\"input\":[{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"ds1.VMOkbg==\"},"
	  "{\"role\":\"assistant\",\"content\":\"A\"},"
	  "{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"gAAAAABxyz\"},"
	  "{\"role\":\"assistant\",\"content\":\"B\"},"
	  "{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"ds1.!!!!\"},"
	  "{\"role\":\"assistant\",\"content\":\"C\"},{\"role\":\"user\",\"content\":\"Q\"}]}",
	  "{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":\"T\xc3\xa4n\",\"content\":\"A\"},"
	  "{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":\"assistant\",\"content\":\"C\"},"
	  "{\"role\":\"user\",\"content\":\"Q\"}]}" },
	{ "flat tools, with the client's order of keys; hosted ones are left out",
	  "{\"input\":\"hi\",\"tools\":[{\"type\":\"web_search\",\"external_web_access\":false}," FLAT
	  ",{\"type\":\"image_generation\"}],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}",
	  "{\"tools\":[" AS_CHAT
	  "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}" },
	{ "only hosted tools are none",
	  "{\"input\":\"hi\",\"tools\":[{\"type\":\"web_search_preview\"}]}", "{\"tools\":null}" },
	{ "strict is told when it is asked for",
	  "{\"input\":\"hi\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{},\"strict\":true}],"
	  "\"tool_choice\":\"required\"}",
	  "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{},\"strict\":true}}],"
	  "\"tool_choice\":\"required\"}" },
	{ "namespaces and free text",
	  "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"namespace\":\"mcp__a\",\"name\":\"f\",\"arguments\":\"{}\"},"
	  "{\"type\":\"custom_tool_call\",\"call_id\":\"d\",\"name\":\"patch\",\"input\":\"x\\ny\"},"
	  "{\"type\":\"custom_tool_call_output\",\"call_id\":\"d\",\"output\":\"ok\"}],\"tools\":[" SPACE
	  "," PATCH "]}",
	  "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
	  "{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"mcp__a::f\",\"arguments\":\"{}\"}},"
	  "{\"id\":\"d\",\"type\":\"function\",\"function\":{\"name\":\"patch\",\"arguments\":{\"input\":\"x\\ny\"}}}]},"
	  "{\"role\":\"tool\",\"tool_call_id\":\"d\",\"content\":\"ok\"}],"
	  "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"mcp__a::f\"}},"
	  "{\"type\":\"function\",\"function\":{\"name\":\"patch\","
	  "\"description\":\"Edits.\\n\\nThe input follows this grammar:\\nstart: x\",\"parameters\":{\"type\":\"object\","
	  "\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"]}}}]}" },
	{ "effort", "{\"input\":\"hi\",\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"}}",
	  "{\"reasoning\":{\"effort\":\"low\"}}" },
	{ "no effort is no word about it", "{\"input\":\"hi\",\"reasoning\":{\"effort\":null}}",
	  "{\"reasoning\":null}" },
	{ "JSON answers",
	  "{\"input\":\"hi\",\"text\":{\"format\":{\"type\":\"json_object\"},\"verbosity\":\"low\"}}",
	  "{\"response_format\":{\"type\":\"json_object\"}}" },
	{ "with a schema",
	  "{\"input\":\"hi\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,"
	  "\"schema\":{\"type\":\"object\"}}}}",
	  "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,"
	  "\"schema\":{\"type\":\"object\"}}}}" },
	{ "log probabilities",
	  "{\"input\":\"hi\",\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":3}",
	  "{\"logprobs\":true,\"top_logprobs\":3}" },
};

static bool holds(const json_t *got, json_t *want)
{
	const char *key;
	json_t *v;
	json_object_foreach (want, key, v) {
		json_t *have = json_object_get(got, key);
		if (json_is_null(v) ? have != NULL : !json_equal(have, v))
			return false;
	}
	return true;
}

static void test_bodies(void)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct ds_err err = { 0 };
		json_t *body = json_of(good[i].body), *want = json_of(good[i].want);
		json_t *before = json_deep_copy(body);
		json_t *got = api_responses_to_chat(body, &err);
		bool ok = got != NULL && holds(got, want);
		if (!ok) {
			char *text = json_dumps(got, 0);
			printf("%s: got %s (%s: %s)\n", good[i].what, text != NULL ? text : "none",
			       err.obj, err.why);
			free(text);
		}
		CU_ASSERT_TRUE(ok);
		CU_ASSERT_TRUE(json_equal(before, body));
		json_decref(before);
		json_decref(body);
		json_decref(want);
		json_decref(got);
	}
}

/* The keys of a function stand in the client's order: the prompt depends on it. */
static void test_key_order(void)
{
	struct ds_err err = { 0 };
	json_t *body =
		json_of("{\"input\":\"hi\",\"tools\":[{\"parameters\":{},\"type\":\"function\","
			"\"description\":\"d\",\"name\":\"f\"}]}");
	json_t *got = api_responses_to_chat(body, &err);
	char *text = json_dumps(json_object_get(got, "tools"), JSON_COMPACT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(text, "{\"parameters\":{},\"description\":\"d\",\"name\":\"f\"}"));
	free(text);
	json_decref(got);
	json_decref(body);
}

#define IN(x) "{\"input\":[" x "]}"

static const struct {
	const char *body, *path, *why;
} bad[] = {
	{ "[]", "", "object" },
	{ "{}", "input", "string or a list" },
	{ "{\"input\":[]}", "input", "at least one" },
	{ "{\"input\":5}", "input", "string or a list" },
	{ "{\"input\":\"x\",\"instructions\":[]}", "instructions", "string" },
	{ "{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", "previous_response_id",
	  "whole conversation" },
	{ "{\"input\":\"x\",\"conversation\":\"c\"}", "conversation", "whole conversation" },
	{ "{\"input\":\"x\",\"prompt\":{\"id\":\"p\"}}", "prompt", "instructions" },
	{ "{\"input\":\"x\",\"background\":true}", "background", "own connection" },
	{ IN("1"), "input[0]", "object" },
	{ IN("{\"role\":\"tool\",\"content\":\"x\"}"), "input[0].role", "developer" },
	{ IN("{\"role\":\"user\"}"), "input[0].content", "string or a list" },
	{ IN("{\"role\":\"assistant\",\"content\":1}"), "input[0].content", "string or a list" },
	{ IN("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"x\"}]}"),
	  "input[0].content[0].type", "text only" },
	{ IN("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}"),
	  "input[0].content[0].text", "string" },
	{ IN("{\"type\":\"item_reference\",\"id\":\"x\"}"), "input[0].type", "stores no items" },
	{ IN("{\"type\":\"computer_call\"}"), "input[0].type", "no item" },
	{ IN("{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}"),
	  "input[0].call_id", "string" },
	{ IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"arguments\":\"{}\"}"),
	  "input[0].name", "string" },
	{ IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}"), "input[0].arguments",
	  "string" },
	{ IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"[1]\"}"),
	  "input[0].arguments", "an object" },
	{ IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{\"}"),
	  "input[0].arguments", "an object" },
	{ IN("{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\",\"input\":{}}"),
	  "input[0].input", "string" },
	{ IN("{\"type\":\"function_call_output\",\"output\":\"x\"}"), "input[0].call_id",
	  "string" },
	{ IN("{\"type\":\"function_call_output\",\"call_id\":\"c\"}"), "input[0].output",
	  "string or a list" },
	{ IN("{\"type\":\"reasoning\",\"content\":1}"), "input[0].content", "list" },
	{ IN("{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\"}]}"),
	  "input[0].summary[0].text", "string" },
	{ "{\"input\":\"x\",\"tools\":{}}", "tools", "list" },
	{ "{\"input\":\"x\",\"tools\":[1]}", "tools[0]", "object" },
	{ "{\"input\":\"x\",\"tools\":[{\"type\":\"file_search\"}]}", "tools[0].type",
	  "can offer" },
	{ "{\"input\":\"x\",\"tools\":[{\"type\":\"function\"}]}", "tools[0].name", "name" },
	{ "{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":1}]}",
	  "tools[0].parameters", "object" },
	{ "{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"namespace\","
	  "\"name\":\"m\",\"tools\":[]}]}]}",
	  "tools[0].tools[0].type", "no tool" },
	{ "{\"input\":\"x\",\"tool_choice\":\"any\"}", "tool_choice", "required" },
	{ "{\"input\":\"x\",\"tool_choice\":{\"type\":\"web_search\"}}", "tool_choice.type",
	  "function" },
	{ "{\"input\":\"x\",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice.name",
	  "string" },
	{ "{\"input\":\"x\",\"reasoning\":\"high\"}", "reasoning", "object" },
	{ "{\"input\":\"x\",\"max_output_tokens\":0}", "max_output_tokens", "whole" },
	{ "{\"input\":\"x\",\"text\":1}", "text", "object" },
	{ "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"xml\"}}}", "text.format.type",
	  "json_schema" },
	{ "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}",
	  "text.format.schema", "object" },
	{ "{\"input\":\"x\",\"include\":\"x\"}", "include", "list" },
};

static void test_refused(void)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ds_err err = { 0 };
		json_t *body = json_of(bad[i].body);
		json_t *got = api_responses_to_chat(body, &err);
		bool ok = got == NULL && err.kind == DS_ERR_INPUT &&
			  strcmp(err.obj, bad[i].path) == 0 && strstr(err.why, bad[i].why) != NULL;
		if (!ok)
			printf("%s: got \"%s\": %s\n", bad[i].body, err.obj, err.why);
		CU_ASSERT_TRUE(ok);
		json_decref(got);
		json_decref(body);
	}
}

static json_t *echo_of(const char *body)
{
	struct ds_err err = { 0 };
	json_t *o = json_of(body), *echo = api_responses_echo(o, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(echo);
	json_decref(o);
	return echo;
}

static const char *type_of(const json_t *event)
{
	const char *s = json_string_value(json_object_get(event, "type"));
	return s != NULL ? s : "";
}

/* Events in their order, for the two kinds of answers that have all of them. */
static void test_order(void)
{
	static const char *const thought[] = {
		"response.created",
		"response.in_progress",
		"response.output_item.added",
		"response.content_part.added",
		"response.reasoning_text.delta",
		"response.reasoning_text.done",
		"response.content_part.done",
		"response.output_item.done",
		"response.output_item.added",
		"response.content_part.added",
		"response.output_text.delta",
		"response.output_text.done",
		"response.content_part.done",
		"response.output_item.done",
		"response.completed",
	};
	static const char *const call[] = {
		"response.created",
		"response.in_progress",
		"response.output_item.added",
		"response.function_call_arguments.delta",
		"response.function_call_arguments.done",
		"response.output_item.done",
		"response.completed",
	};
	static const struct {
		size_t script, n;
		const char *const *types;
	} rows[] = { { 1, 15, thought }, { 3, 7, call } };
	for (size_t i = 0; i < 2; i++) {
		struct fed x;
		format_feed(&x, &api_responses_format, &format_scripts[rows[i].script], 0, NULL);
		json_t *events = format_events(&x.stream);
		CU_ASSERT_EQUAL_FATAL(json_array_size(events), rows[i].n + 1);
		for (size_t k = 0; k < rows[i].n; k++) {
			const json_t *e = json_array_get(events, k);
			const json_t *data = json_object_get(e, "data");
			CU_ASSERT_STRING_EQUAL(type_of(data), rows[i].types[k]);
			CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(e, "event")),
					       rows[i].types[k]);
			CU_ASSERT_EQUAL(
				json_integer_value(json_object_get(data, "sequence_number")), k);
		}
		const json_t *last = json_array_get(events, rows[i].n);
		CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(last, "data")), "[DONE]");
		CU_ASSERT_PTR_NULL(json_object_get(last, "event"));
		json_decref(events);
		format_feed_fini(&x);
	}
}

/* What the deltas of an item add up to must be what its "done" events say. */
struct adding {
	json_t *items;	  /* by output_index, as added and then grown */
	json_t *finished; /* as output_item.done told them */
};

static void grow(json_t *item, const char *type, const json_t *data)
{
	const json_t *delta = json_object_get(data, "delta");
	json_t *part = json_array_get(json_object_get(item, "content"), 0);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(item, "id")),
			       json_string_value(json_object_get(data, "item_id")));
	if (strcmp(type, "response.content_part.added") == 0)
		json_array_append(json_object_get(item, "content"), json_object_get(data, "part"));
	else if (strcmp(type, "response.content_part.done") == 0)
		CU_ASSERT_TRUE(json_equal(part, json_object_get(data, "part")))
	else if (strcmp(type, "response.function_call_arguments.delta") == 0)
		append_string(item, "arguments", delta);
	else if (strcmp(type, "response.custom_tool_call_input.delta") == 0)
		append_string(item, "input", delta);
	else if (strcmp(type, "response.output_text.delta") == 0 ||
		 strcmp(type, "response.reasoning_text.delta") == 0)
		append_string(part, "text", delta);
	else if (strcmp(type, "response.output_text.done") == 0 ||
		 strcmp(type, "response.reasoning_text.done") == 0)
		CU_ASSERT_TRUE(
			json_equal(json_object_get(part, "text"), json_object_get(data, "text")))
	else if (strcmp(type, "response.function_call_arguments.done") == 0)
		CU_ASSERT_TRUE(json_equal(json_object_get(item, "arguments"),
					  json_object_get(data, "arguments")))
	else if (strcmp(type, "response.custom_tool_call_input.done") == 0)
		CU_ASSERT_TRUE(
			json_equal(json_object_get(item, "input"), json_object_get(data, "input")))
	else
		CU_FAIL(type);
}

static void add_event(struct adding *a, const json_t *data)
{
	const char *type = type_of(data);
	size_t index = (size_t)json_integer_value(json_object_get(data, "output_index"));
	json_t *item = json_array_get(a->items, index), *told = json_object_get(data, "item");
	if (strcmp(type, "response.output_item.added") == 0) {
		CU_ASSERT_EQUAL_FATAL(index, json_array_size(a->items));
		CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(told, "status")),
				       "in_progress");
		json_array_append_new(a->items, json_deep_copy(told));
		return;
	}
	CU_ASSERT_EQUAL_FATAL(index + 1, json_array_size(a->items));
	if (strcmp(type, "response.output_item.done") != 0) {
		grow(item, type, data);
		return;
	}
	json_object_set(item, "status", json_object_get(told, "status"));
	if (json_object_get(told, "encrypted_content") != NULL)
		json_object_set(item, "encrypted_content",
				json_object_get(told, "encrypted_content"));
	CU_ASSERT_TRUE(json_equal(item, told));
	json_array_append(a->finished, told);
}

static bool adds_up(const struct fed *x)
{
	struct adding a = { json_array(), json_array() };
	json_t *events = format_events(&x->stream), *want = json_of(x->whole.data);
	size_t n = json_array_size(events);
	bool same = true;
	for (size_t i = 0; i + 1 < n; i++) {
		json_t *data = json_object_get(json_array_get(events, i), "data");
		json_t *response = json_object_get(data, "response");
		if (response == NULL) {
			add_event(&a, data);
		} else if (i < 2) {
			const char *status = json_string_value(json_object_get(response, "status"));
			same = same && strcmp(status, "in_progress") == 0;
		} else {
			same = same && i + 2 == n && json_equal(response, want);
		}
	}
	same = same && json_equal(a.finished, json_object_get(want, "output"));
	json_decref(a.items);
	json_decref(a.finished);
	json_decref(events);
	json_decref(want);
	return same;
}

#define KNOWN                                                                                             \
	"{\"input\":\"x\",\"include\":[\"reasoning.encrypted_content\"],\"tools\":[{\"type\":\"custom\"," \
	"\"name\":\"now\"}]}"

static void test_splits(void)
{
	for (const struct script *s = format_scripts; s->name != NULL; s++) {
		for (size_t step = 0; step <= 24; step++) {
			struct fed x;
			json_t *echo = step > 12 ? echo_of(KNOWN) : NULL;
			format_feed(&x, &api_responses_format, s, step % 13, echo);
			bool same = adds_up(&x);
			if (!same)
				printf("%s in pieces of %zu:\n%s\n%s", s->name, step, x.stream.data,
				       x.whole.data);
			CU_ASSERT_TRUE(same);
			format_feed_fini(&x);
		}
	}
}

static const json_t *at(const json_t *o, const char *list, size_t i, const char *key)
{
	return json_object_get(json_array_get(json_object_get(o, list), i), key);
}

static bool says(const json_t *v, const char *text)
{
	return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

static void test_calls_by_kind(void)
{
	static const struct said said[] = {
		{ OUT_CALL, "mcp__a::f" },
		{ OUT_ARGS, "{\"x\": 1}" },
		{ OUT_CALL_END, "" },
		{ OUT_CALL, "patch" },
		{ OUT_ARGS, "{\"input\": \"a\\n\\u00e4\"}" },
		{ OUT_CALL_END, "" },
		{ OUT_CALL, "other::f" },
		{ OUT_ARGS, "{}" },
		{ OUT_CALL_END, "" },
		{ -1, NULL },
	};
	static const struct script s = { "kinds", "tool_calls", NULL, said };
	struct fed x;
	format_feed(&x, &api_responses_format, &s, 1,
		    echo_of("{\"tools\":[{\"type\":\"web_search\"}," SPACE "," PATCH "]}"));
	CU_ASSERT_TRUE(adds_up(&x));
	json_t *got = json_of(x.whole.data);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(got, "tools")), 2);
	CU_ASSERT_TRUE(says(at(got, "output", 0, "namespace"), "mcp__a"));
	CU_ASSERT_TRUE(says(at(got, "output", 0, "name"), "f"));
	CU_ASSERT_TRUE(says(at(got, "output", 0, "arguments"), "{\"x\": 1}"));
	CU_ASSERT_TRUE(says(at(got, "output", 1, "type"), "custom_tool_call"));
	CU_ASSERT_TRUE(says(at(got, "output", 1, "input"), "a\n\xc3\xa4"));
	CU_ASSERT_TRUE(says(at(got, "output", 2, "name"), "other::f"));
	CU_ASSERT_PTR_NULL(at(got, "output", 2, "namespace"));
	json_decref(got);
	format_feed_fini(&x);
}

/* What a client brings back as "encrypted_content" is the reasoning again. */
static void test_carried(void)
{
	struct fed x;
	struct ds_err err = { 0 };
	format_feed(&x, &api_responses_format, &format_scripts[1], 0, echo_of(KNOWN));
	json_t *got = json_of(x.whole.data);
	json_t *item = json_copy(json_array_get(json_object_get(got, "output"), 0));
	json_object_del(item, "content");
	json_t *body = json_pack("{s:[o]}", "input", item);
	json_t *chat = api_responses_to_chat(body, &err);
	const json_t *text = at(chat, "messages", 0, "reasoning_content");
	CU_ASSERT_TRUE_FATAL(json_is_string(text));
	CU_ASSERT_STRING_EQUAL(json_string_value(text), x.choice.reasoning.data);
	json_decref(chat);
	json_decref(body);
	json_decref(got);
	format_feed_fini(&x);
}

static void test_repeated(void)
{
	struct fed x;
	format_feed(
		&x, &api_responses_format, &format_scripts[4], 0,
		echo_of("{\"instructions\":\"I\",\"metadata\":{\"a\":\"b\"},\"max_output_tokens\":9,"
			"\"tool_choice\":\"none\",\"input\":\"x\"}"));
	json_t *got = json_of(x.whole.data);
	json_t *want = json_of(
		"{\"object\":\"response\",\"status\":\"incomplete\",\"instructions\":\"I\","
		"\"metadata\":{\"a\":\"b\"},\"max_output_tokens\":9,\"tool_choice\":\"none\","
		"\"tools\":[],\"parallel_tool_calls\":true,\"temperature\":1.0,\"top_p\":0.95,"
		"\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"store\":false,"
		"\"text\":{\"format\":{\"type\":\"text\"}},\"id\":\"resp_0123456789abcdef\","
		"\"usage\":{\"input_tokens\":11,\"input_tokens_details\":{\"cached_tokens\":0},"
		"\"output_tokens\":7,\"output_tokens_details\":{\"reasoning_tokens\":3},"
		"\"total_tokens\":18}}");
	/* 1.0 is written as 1: equal numbers, but not to json_equal(). */
	CU_ASSERT_EQUAL(json_number_value(json_object_get(got, "temperature")), 1.0);
	json_object_set(got, "temperature", json_object_get(want, "temperature"));
	CU_ASSERT_TRUE(holds(got, want));
	CU_ASSERT_PTR_NULL(json_object_get(got, "input"));
	/* The call that was cut is not among the items. */
	CU_ASSERT_EQUAL(json_array_size(json_object_get(got, "output")), 2);
	json_decref(want);
	json_decref(got);
	format_feed_fini(&x);
}

static void test_failure(void)
{
	struct fed x;
	struct api_error e = { .status = 503, .type = "server_error", .code = "unavailable" };
	struct ds_buf out = { 0 };
	snprintf(e.message, sizeof(e.message), "rank 1 is lost");
	format_feed(&x, &api_responses_format, &format_scripts[1], 0, NULL);
	x.choice.finish = NULL;
	api_responses_format.error(&x.doc, &e, &out);
	json_t *events = format_events(&out);
	CU_ASSERT_EQUAL_FATAL(json_array_size(events), 3);
	const json_t *first = json_object_get(json_array_get(events, 0), "data");
	const json_t *second = json_object_get(json_array_get(events, 1), "data");
	CU_ASSERT_STRING_EQUAL(type_of(first), "error");
	CU_ASSERT_TRUE(says(json_object_get(first, "message"), "rank 1 is lost"));
	CU_ASSERT_STRING_EQUAL(type_of(second), "response.failed");
	const json_t *response = json_object_get(second, "response");
	CU_ASSERT_TRUE(says(json_object_get(response, "status"), "failed"));
	CU_ASSERT_TRUE(
		says(json_object_get(json_object_get(response, "error"), "code"), "unavailable"));
	json_decref(events);
	ds_buf_reset(&out);
	api_responses_format.error_body(&e, &out);
	json_t *o = json_of(out.data);
	CU_ASSERT_TRUE(says(json_object_get(json_object_get(o, "error"), "code"), "unavailable"));
	json_decref(o);
	ds_buf_fini(&out);
	format_feed_fini(&x);
}

static CU_TestInfo api_responses_tests[] = {
	{ "bodies become chat bodies that mean the same", test_bodies },
	{ "a function keeps the client's order of keys", test_key_order },
	{ "wrong and impossible fields are refused by path", test_refused },
	{ "events come in their order, numbered", test_order },
	{ "any split of the text adds up to the whole body", test_splits },
	{ "calls into namespaces and of free text come back as such", test_calls_by_kind },
	{ "reasoning survives a client that hides it", test_carried },
	{ "a response repeats its request", test_repeated },
	{ "a stream that fails", test_failure },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo api_responses_suite = { .pName = "engine/api_responses",
				     .pTests = api_responses_tests };
