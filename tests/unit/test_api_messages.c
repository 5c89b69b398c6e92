/*
 * test_api_messages.c - Anthropic's Messages: bodies in and out, streams that say what the whole says.
 */
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#include "format_feed.h"

/* @want: what the chat body must hold, field by field; a field that is null there must be absent. */
struct body_case {
	const char *what, *body, *want;
};

#define ASK "\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL \
	"{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\",\"x\":1.50}}"

static const struct body_case good[] = {
	{ "the least", "{" ASK "}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":5,"
	  "\"thinking\":{\"type\":\"disabled\"},\"tools\":null,\"stop\":null,\"stream\":null}" },
	{ "sampling, stream and what only the vendor needs",
	  "{" ASK
	  ",\"model\":\"claude-x\",\"stream\":true,\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,"
	  "\"stop_sequences\":[\"a\\u0000b\",\"c\"],\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\","
	  "\"cache_control\":{\"type\":\"ephemeral\"},\"unheard_of\":1}",
	  "{\"model\":\"claude-x\",\"stream\":true,\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,"
	  "\"stop\":[\"a\\u0000b\",\"c\"],\"metadata\":null,\"unheard_of\":null}" },
	{ "system as a string", "{\"system\":\"Be brief.\"," ASK "}",
	  "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"Be brief.\"}]},"
	  "{\"role\":\"user\",\"content\":\"hi\"}]}" },
	{ "system as blocks, without the line for the vendor's accounting",
	  "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: a=1; cch=5;\"},"
	  "{\"type\":\"text\",\"text\":\"One.\",\"cache_control\":{\"type\":\"ephemeral\"}},"
	  "{\"type\":\"text\",\"text\":\"Two.\"}]," ASK "}",
	  "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"One.\"},"
	  "{\"type\":\"text\",\"text\":\"Two.\"}]},{\"role\":\"user\",\"content\":\"hi\"}]}" },
	{ "the same line in front of a string",
	  "{\"system\":\"x-anthropic-billing-header: a\\nBe brief.\"," ASK "}",
	  "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"Be brief.\"}]},"
	  "{\"role\":\"user\",\"content\":\"hi\"}]}" },
	{ "the line alone is no system text",
	  "{\"system\":\"x-anthropic-billing-header: a\"," ASK "}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" },
	{ "tools and each choice: auto",
	  "{" ASK ",\"tools\":[" TOOL
	  "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}",
	  "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
	  "\"parameters\":{\"type\":\"object\",\"x\":1.50}}}],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false}" },
	{ "any",
	  "{" ASK
	  ",\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"description\":null,\"input_schema\":{}}],"
	  "\"tool_choice\":{\"type\":\"any\"}}",
	  "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],"
	  "\"tool_choice\":\"required\",\"parallel_tool_calls\":null}" },
	{ "one by name",
	  "{" ASK ",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}",
	  "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}" },
	{ "none", "{" ASK ",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"none\"}}",
	  "{\"tool_choice\":\"none\"}" },
	{ "thinking with a budget",
	  "{" ASK ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2048}}",
	  "{\"thinking\":{\"type\":\"enabled\"}}" },
	{ "adaptive thinking and effort",
	  "{" ASK ",\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":\"max\"}}",
	  "{\"thinking\":{\"type\":\"enabled\"},\"reasoning_effort\":\"max\"}" },
	{ "effort alone does not think", "{" ASK ",\"output_config\":{\"effort\":\"low\"}}",
	  "{\"thinking\":{\"type\":\"disabled\"},\"reasoning_effort\":\"low\"}" },
	{ "an output schema",
	  "{" ASK
	  ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}}",
	  "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"output\","
	  "\"schema\":{\"type\":\"object\"}}}}" },
	{ "a round with thinking, text, calls and results",
	  "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Q\"}]},"
	  "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"T\",\"signature\":\"s\"},"
	  "{\"type\":\"redacted_thinking\",\"data\":\"zz\"},{\"type\":\"text\",\"text\":\"Let me.\"},"
	  "{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"f\",\"input\":{\"a\":1.0}},"
	  "{\"type\":\"tool_use\",\"id\":\"call_2\",\"name\":\"g\",\"input\":{}}]},"
	  "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"call_2\",\"content\":\"two\"},"
	  "{\"type\":\"tool_result\",\"tool_use_id\":\"call_1\",\"is_error\":true,"
	  "\"content\":[{\"type\":\"text\",\"text\":\"one\"}]},"
	  "{\"type\":\"tool_result\",\"tool_use_id\":\"call_3\"},{\"type\":\"text\",\"text\":\"Go on.\"},"
	  "{\"type\":\"text\",\"text\":\"Please.\"}]}]}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Q\"}]},"
	  "{\"role\":\"assistant\",\"reasoning_content\":\"T\",\"content\":\"Let me.\",\"tool_calls\":["
	  "{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1.0}}},"
	  "{\"id\":\"call_2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
	  "{\"role\":\"tool\",\"tool_call_id\":\"call_2\",\"content\":\"two\"},"
	  "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":[{\"type\":\"text\",\"text\":\"one\"}]},"
	  "{\"role\":\"tool\",\"tool_call_id\":\"call_3\",\"content\":\"\"},"
	  "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Go on.\"},"
	  "{\"type\":\"text\",\"text\":\"Please.\"}]}]}" },
	{ "a last message of the assistant's is continued; neighbours are one turn",
	  "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},"
	  "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"T\"},"
	  "{\"type\":\"thinking\",\"thinking\":\"U\"}]},{\"role\":\"assistant\",\"content\":\"The answer is\"}]}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\","
	  "\"reasoning_content\":\"T\\n\\nU\",\"content\":\"The answer is\",\"prefix\":true}]}" },
	{ "but not behind a call",
	  "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":["
	  "{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{}}]}]}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
	  "{\"id\":\"i\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]}]}" },
	{ "a tool that is held back is told where a search found it",
	  "{\"max_tokens\":5,\"tools\":[" TOOL
	  ",{\"name\":\"late\",\"description\":\"L\",\"defer_loading\":true,"
	  "\"input_schema\":{\"x\":0.1}}],\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
	  "\"tool_use_id\":\"i\",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"late\"}]}]}]}",
	  "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"i\",\"content\":[{\"type\":\"text\",\"text\":"
	  "\"<function>{\\\"name\\\": \\\"late\\\", \\\"description\\\": \\\"L\\\", \\\"parameters\\\": {\\\"x\\\": 0.1}}</function>\"}]}],"
	  "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
	  "\"parameters\":{\"type\":\"object\",\"x\":1.50}}}]}" },
	{ "a system message in the middle",
	  "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"system\",\"content\":\"S\"}]}",
	  "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"system\",\"content\":\"S\"}]}" },
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
		json_error_t at;
		json_t *body = json_loads(good[i].body, JSON_ALLOW_NUL, &at);
		json_t *want = json_loads(good[i].want, JSON_ALLOW_NUL, &at);
		CU_ASSERT_PTR_NOT_NULL_FATAL(body);
		CU_ASSERT_PTR_NOT_NULL_FATAL(want);
		json_t *before = json_deep_copy(body);
		json_t *got = api_messages_to_chat(body, &err);
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

#define SAY(x) "{\"max_tokens\":5,\"messages\":[" x "]}"

static const struct {
	const char *body, *path, *why;
} bad[] = {
	{ "[]", "", "object" },
	{ "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "max_tokens", "required" },
	{ "{\"max_tokens\":5}", "messages", "at least one" },
	{ SAY(""), "messages", "at least one" },
	{ SAY("1"), "messages[0]", "object" },
	{ SAY("{\"role\":\"tool\",\"content\":\"x\"}"), "messages[0].role", "assistant" },
	{ SAY("{\"role\":\"user\"}"), "messages[0].content", "string or a list" },
	{ SAY("{\"role\":\"user\",\"content\":[1]}"), "messages[0].content[0]", "object" },
	{ SAY("{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}"),
	  "messages[0].content[0].type", "text only" },
	{ SAY("{\"role\":\"user\",\"content\":[{\"type\":\"thinking\"}]}"),
	  "messages[0].content[0].type", "no block" },
	{ SAY("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}"),
	  "messages[0].content[0].text", "string" },
	{ SAY("{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"content\":\"x\"}]}"),
	  "messages[0].content[0].tool_use_id", "string" },
	{ SAY("{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"x\","
	      "\"content\":[{\"type\":\"image\"}]}]}"),
	  "messages[0].content[0].content[0].type", "text only" },
	{ SAY("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{}}]}"),
	  "messages[0].content[0].id", "string" },
	{ SAY("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\","
	      "\"input\":\"{}\"}]}"),
	  "messages[0].content[0].input", "object" },
	{ SAY("{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":1}]}"),
	  "messages[0].content[0].thinking", "string" },
	{ SAY("{\"role\":\"assistant\",\"content\":[{\"type\":\"server_tool_use\"}]}"),
	  "messages[0].content[0].type", "no block" },
	{ "{\"system\":1," ASK "}", "system", "string or a list" },
	{ "{\"system\":[{\"type\":\"image\"}]," ASK "}", "system[0].type", "text only" },
	{ "{" ASK ",\"tools\":{}}", "tools", "list" },
	{ "{" ASK ",\"tools\":[1]}", "tools[0]", "object" },
	{ "{" ASK ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}",
	  "tools[0].type", "vendor" },
	{ "{" ASK ",\"tools\":[{\"input_schema\":{}}]}", "tools[0].name", "name" },
	{ "{" ASK ",\"tools\":[{\"name\":\"f\"}]}", "tools[0].input_schema", "object" },
	{ "{" ASK ",\"tools\":[{\"name\":\"f\",\"description\":1,\"input_schema\":{}}]}",
	  "tools[0].description", "string" },
	{ "{" ASK ",\"tool_choice\":\"auto\"}", "tool_choice", "object" },
	{ "{" ASK ",\"tool_choice\":{\"type\":\"required\"}}", "tool_choice.type", "any" },
	{ "{" ASK ",\"tool_choice\":{\"type\":\"tool\"}}", "tool_choice.name", "string" },
	{ "{" ASK ",\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":1}}",
	  "tool_choice.disable_parallel_tool_use", "true or false" },
	{ "{" ASK ",\"thinking\":true}", "thinking", "object" },
	{ "{" ASK ",\"thinking\":{\"type\":\"on\"}}", "thinking.type", "adaptive" },
	{ "{" ASK ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":\"9\"}}",
	  "thinking.budget_tokens", "whole" },
	{ "{" ASK ",\"output_config\":1}", "output_config", "object" },
	{ "{" ASK ",\"output_config\":{\"effort\":\"huge\"}}", "output_config.effort", "xhigh" },
	{ "{" ASK ",\"output_config\":{\"format\":{\"type\":\"grammar\"}}}",
	  "output_config.format.type", "json_schema" },
	{ "{" ASK ",\"output_config\":{\"format\":{\"type\":\"json_schema\"}}}",
	  "output_config.format.schema", "object" },
	{ "{" ASK ",\"stop_sequences\":\"x\"}", "stop_sequences", "list" },
	{ "{" ASK ",\"stop_sequences\":[\"x\",1]}", "stop_sequences[1]", "string" },
	{ "{" ASK ",\"mcp_servers\":[{}]}", "mcp_servers", "connects to nothing" },
	{ "{\"max_tokens\":0.5,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
	  "max_tokens", "whole" },
};

static void test_refused(void)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ds_err err = { 0 };
		json_t *body = json_of(bad[i].body);
		json_t *got = api_messages_to_chat(body, &err);
		bool ok = got == NULL && err.kind == DS_ERR_INPUT &&
			  strcmp(err.obj, bad[i].path) == 0 && strstr(err.why, bad[i].why) != NULL;
		if (!ok)
			printf("%s: got \"%s\": %s\n", bad[i].body, err.obj, err.why);
		CU_ASSERT_TRUE(ok);
		json_decref(got);
		json_decref(body);
	}
}

static void test_count(void)
{
	struct ds_err err = { 0 };
	struct ds_buf out = { 0 };
	json_t *body = json_of("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
	json_t *got = api_messages_count_to_chat(body, &err);
	CU_ASSERT_PTR_NOT_NULL(got);
	CU_ASSERT_PTR_NULL(json_object_get(got, "max_tokens"));
	json_decref(got);
	json_decref(body);
	api_messages_put_count(&out, 4100000000);
	CU_ASSERT_STRING_EQUAL(out.data, "{\"input_tokens\": 4100000000}\n");
	ds_buf_fini(&out);
}

static void test_bytes(void)
{
	static const char want[] =
		"event: message_start\n"
		"data: {\"type\": \"message_start\", \"message\": {\"id\": \"msg_0123456789abcdef\", \"type\": \"message\", "
		"\"role\": \"assistant\", \"model\": \"demo\", \"content\": [], \"stop_reason\": null, \"stop_sequence\": null, "
		"\"usage\": {\"input_tokens\": 11, \"cache_creation_input_tokens\": 0, \"cache_read_input_tokens\": 0, "
		"\"output_tokens\": 0}}}\n\n"
		"event: ping\ndata: {\"type\": \"ping\"}\n\n"
		"event: content_block_start\n"
		"data: {\"type\": \"content_block_start\", \"index\": 0, \"content_block\": {\"type\": \"tool_use\", "
		"\"id\": \"call_000000000000000000000000\", \"name\": \"now\", \"input\": {}}}\n\n"
		"event: content_block_delta\n"
		"data: {\"type\": \"content_block_delta\", \"index\": 0, \"delta\": {\"type\": \"input_json_delta\", "
		"\"partial_json\": \"{}\"}}\n\n"
		"event: content_block_stop\ndata: {\"type\": \"content_block_stop\", \"index\": 0}\n\n"
		"event: message_delta\n"
		"data: {\"type\": \"message_delta\", \"delta\": {\"stop_reason\": \"tool_use\", \"stop_sequence\": null}, "
		"\"usage\": {\"input_tokens\": 11, \"cache_creation_input_tokens\": 0, \"cache_read_input_tokens\": 0, "
		"\"output_tokens\": 7}}\n\n"
		"event: message_stop\ndata: {\"type\": \"message_stop\"}\n\n";
	struct fed x;
	format_feed(&x, &api_messages_format, &format_scripts[3], 0, NULL);
	CU_ASSERT_STRING_EQUAL(x.stream.data, want);
	format_feed_fini(&x);
}

/* One block event onto the list of blocks, as Anthropic's own clients do it. */
static void add_block_event(json_t *blocks, json_t *inputs, const char *type, json_t *data)
{
	size_t index = (size_t)json_integer_value(json_object_get(data, "index"));
	json_t *block = json_array_get(blocks, index);
	if (strcmp(type, "content_block_start") == 0) {
		CU_ASSERT_EQUAL_FATAL(index, json_array_size(blocks));
		json_array_append(blocks, json_object_get(data, "content_block"));
		json_array_append_new(inputs, json_pack("{s:s}", "text", ""));
		return;
	}
	CU_ASSERT_EQUAL_FATAL(index + 1, json_array_size(blocks));
	json_t *input = json_array_get(inputs, index);
	const json_t *delta = json_object_get(data, "delta");
	const json_t *kind = json_object_get(delta, "type");
	const char *k = kind != NULL ? json_string_value(kind) : "";
	if (strcmp(k, "text_delta") == 0)
		append_string(block, "text", json_object_get(delta, "text"));
	else if (strcmp(k, "thinking_delta") == 0)
		append_string(block, "thinking", json_object_get(delta, "thinking"));
	else if (strcmp(k, "signature_delta") == 0)
		append_string(block, "signature", json_object_get(delta, "signature"));
	else if (strcmp(k, "input_json_delta") == 0)
		append_string(input, "text", json_object_get(delta, "partial_json"));
	else
		CU_ASSERT_STRING_EQUAL(type, "content_block_stop");
}

/* The message that a stream's events add up to; a call that was cut is taken out again. Owned. */
static json_t *add_up(const struct ds_buf *stream)
{
	json_t *events = format_events(stream), *message = NULL, *inputs = json_array();
	size_t n = json_array_size(events);
	for (size_t i = 0; i < n; i++) {
		const json_t *e = json_array_get(events, i);
		json_t *data = json_object_get(e, "data");
		const char *type = json_string_value(json_object_get(data, "type"));
		CU_ASSERT_STRING_EQUAL_FATAL(type, json_string_value(json_object_get(e, "event")));
		if (strcmp(type, "message_start") == 0) {
			CU_ASSERT_EQUAL(i, 0);
			message = json_deep_copy(json_object_get(data, "message"));
		} else if (strcmp(type, "message_delta") == 0) {
			json_object_update(message, json_object_get(data, "delta"));
			json_object_set(message, "usage", json_object_get(data, "usage"));
		} else if (strcmp(type, "message_stop") == 0) {
			CU_ASSERT_EQUAL(i, n - 1);
		} else if (strcmp(type, "ping") != 0) {
			add_block_event(json_object_get(message, "content"), inputs, type, data);
		}
	}
	json_t *blocks = json_object_get(message, "content");
	for (size_t i = json_array_size(blocks); i-- > 0;) {
		const char *text =
			json_string_value(json_object_get(json_array_get(inputs, i), "text"));
		if (text[0] == '\0')
			continue;
		json_t *input = json_loads(text, 0, NULL);
		if (input == NULL)
			json_array_remove(blocks, i);
		else
			json_object_set_new(json_array_get(blocks, i), "input", input);
	}
	json_decref(inputs);
	json_decref(events);
	return message;
}

static void test_splits(void)
{
	for (const struct script *s = format_scripts; s->name != NULL; s++) {
		for (size_t step = 0; step <= 12; step++) {
			struct fed x;
			format_feed(&x, &api_messages_format, s, step, NULL);
			json_t *got = add_up(&x.stream), *want = json_of(x.whole.data);
			bool same = json_equal(got, want);
			if (!same)
				printf("%s in pieces of %zu:\n%s\n%s", s->name, step, x.stream.data,
				       x.whole.data);
			CU_ASSERT_TRUE(same);
			json_decref(got);
			json_decref(want);
			format_feed_fini(&x);
		}
	}
}

static void test_reasons(void)
{
	static const char *const want[][2] = {
		{ "plain", "end_turn" },      { "calls", "tool_use" },
		{ "cut call", "max_tokens" }, { "stopped", "stop_sequence" },
		{ "nothing", "end_turn" },
	};
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct script *s = format_scripts;
		while (strcmp(s->name, want[i][0]) != 0)
			s++;
		struct fed x;
		format_feed(&x, &api_messages_format, s, 0, NULL);
		json_t *got = json_of(x.whole.data);
		CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(got, "stop_reason")),
				       want[i][1]);
		const char *stop = json_string_value(json_object_get(got, "stop_sequence"));
		CU_ASSERT_TRUE(s->stop == NULL ? stop == NULL
					       : stop != NULL && strcmp(stop, s->stop) == 0);
		json_decref(got);
		format_feed_fini(&x);
	}
}

static void test_errors(void)
{
	static const struct {
		unsigned int status;
		const char *type;
	} rows[] = {
		{ 400, "invalid_request_error" }, { 401, "authentication_error" },
		{ 403, "permission_error" },	  { 404, "not_found_error" },
		{ 413, "request_too_large" },	  { 415, "invalid_request_error" },
		{ 429, "rate_limit_error" },	  { 500, "api_error" },
		{ 503, "overloaded_error" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct api_error e = { .status = rows[i].status, .type = "x" };
		struct ds_buf out = { 0 };
		snprintf(e.message, sizeof(e.message), "no \"way\"");
		api_messages_format.error_body(&e, &out);
		json_t *o = json_of(out.data);
		const json_t *in = json_object_get(o, "error");
		CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(o, "type")), "error");
		CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(in, "type")),
				       rows[i].type);
		CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(in, "message")),
				       "no \"way\"");
		json_decref(o);
		ds_buf_reset(&out);
		api_messages_format.error(NULL, &e, &out);
		CU_ASSERT_PTR_EQUAL(
			strstr(out.data, "event: error\ndata: {\"type\": \"error\", \"error\""),
			out.data);
		ds_buf_fini(&out);
	}
	struct api_error e = { .status = 400, .code = "context_length_exceeded" };
	struct ds_buf out = { 0 };
	snprintf(e.message, sizeof(e.message), "5 > 4");
	api_messages_format.error_body(&e, &out);
	CU_ASSERT_PTR_NOT_NULL(strstr(out.data, "\"prompt is too long: 5 > 4\""));
	ds_buf_fini(&out);
}

static CU_TestInfo api_messages_tests[] = {
	{ "bodies become chat bodies that mean the same", test_bodies },
	{ "wrong and impossible fields are refused by path", test_refused },
	{ "counting needs no max_tokens", test_count },
	{ "a stream byte by byte", test_bytes },
	{ "any split of the text adds up to the whole body", test_splits },
	{ "stop reasons", test_reasons },
	{ "errors", test_errors },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo api_messages_suite = { .pName = "engine/api_messages", .pTests = api_messages_tests };
