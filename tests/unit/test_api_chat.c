/*
 * test_api_chat.c - answers of chat/completions: shapes, and streams that say what the whole says.
 */
#include <CUnit/CUnit.h>
#include <string.h>

#include "format_feed.h"

static json_t *first(const json_t *o, const char *list)
{
	return json_array_get(json_object_get(o, list), 0);
}

static void add_call(json_t *calls, json_t *delta)
{
	size_t index = (size_t)json_integer_value(json_object_get(delta, "index"));
	if (index == json_array_size(calls)) {
		json_t *call = json_deep_copy(delta);
		json_object_del(call, "index");
		json_array_append_new(calls, call);
		return;
	}
	CU_ASSERT_EQUAL_FATAL(index + 1, json_array_size(calls));
	CU_ASSERT_PTR_NULL(json_object_get(delta, "id"));
	append_string(json_object_get(json_array_get(calls, index), "function"), "arguments",
		      json_object_get(json_object_get(delta, "function"), "arguments"));
}

/* The chat.completion that a stream's chunks add up to. Owned. */
static json_t *add_up(const struct ds_buf *stream)
{
	json_t *events = format_events(stream), *sum = NULL, *calls = json_array();
	json_t *message = json_pack("{s:s,s:s}", "reasoning_content", "", "content", "");
	size_t n = json_array_size(events);
	CU_ASSERT_STRING_EQUAL(
		json_string_value(json_object_get(json_array_get(events, n - 1), "data")),
		"[DONE]");
	for (size_t i = 0; i + 1 < n; i++) {
		json_t *data = json_object_get(json_array_get(events, i), "data");
		json_t *choice = first(data, "choices"), *delta = json_object_get(choice, "delta");
		static const char *const texts[] = { "reasoning_content", "content" };
		if (sum == NULL)
			sum = json_deep_copy(data);
		if (choice == NULL)
			continue;
		CU_ASSERT_EQUAL(i == 0, json_object_get(delta, "role") != NULL);
		for (size_t k = 0; k < 2; k++)
			if (json_object_get(delta, texts[k]) != NULL)
				append_string(message, texts[k], json_object_get(delta, texts[k]));
		if (json_object_get(delta, "tool_calls") != NULL)
			add_call(calls, first(delta, "tool_calls"));
		json_object_set(first(sum, "choices"), "finish_reason",
				json_object_get(choice, "finish_reason"));
	}
	/* A call that was cut shows by its arguments. */
	for (size_t i = json_array_size(calls); i-- > 0;) {
		const json_t *f = json_object_get(json_array_get(calls, i), "function");
		json_t *o = json_loads(json_string_value(json_object_get(f, "arguments")), 0, NULL);
		if (o == NULL)
			json_array_remove(calls, i);
		json_decref(o);
	}
	if (json_array_size(calls) > 0)
		json_object_set(message, "tool_calls", calls);
	json_object_set_new(first(sum, "choices"), "message", message);
	json_decref(calls);
	json_decref(events);
	return sum;
}

static void test_splits(void)
{
	for (const struct script *s = format_scripts; s->name != NULL; s++) {
		for (size_t step = 0; step <= 12; step++) {
			struct fed x;
			format_feed(&x, &api_chat_format, s, step, NULL);
			json_t *got = add_up(&x.stream), *want = json_of(x.whole.data);
			json_t *a = first(got, "choices"), *b = first(want, "choices");
			json_t *said = json_object_get(b, "message");
			json_object_del(said, "role");
			if (json_object_get(said, "reasoning_content") == NULL)
				json_object_set_new(said, "reasoning_content", json_string(""));
			if (json_is_null(json_object_get(said, "content")))
				json_object_set_new(said, "content", json_string(""));
			bool same =
				json_equal(json_object_get(a, "message"), said) &&
				json_equal(json_object_get(a, "finish_reason"),
					   json_object_get(b, "finish_reason")) &&
				json_equal(json_object_get(got, "id"), json_object_get(want, "id"));
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

static void test_shapes(void)
{
	struct fed x;
	format_feed(&x, &api_chat_format, &format_scripts[3], 0, NULL);
	json_t *got = json_of(x.whole.data);
	const json_t *choice = first(got, "choices"), *m = json_object_get(choice, "message");
	const json_t *call = first(m, "tool_calls");
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(got, "object")),
			       "chat.completion");
	CU_ASSERT_TRUE(json_is_null(json_object_get(m, "content")));
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(call, "type")), "function");
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(choice, "finish_reason")),
			       "tool_calls");
	const json_t *u = json_object_get(got, "usage");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(u, "total_tokens")), 18);
	json_decref(got);
	/* Seed and times come with the end; usage in an event of its own, where it was asked for. */
	json_t *events = format_events(&x.stream);
	size_t n = json_array_size(events);
	const json_t *last = json_object_get(json_array_get(events, n - 2), "data");
	CU_ASSERT_PTR_NOT_NULL(json_object_get(last, "timings"));
	CU_ASSERT_PTR_NOT_NULL(json_object_get(last, "seed"));
	CU_ASSERT_PTR_NULL(json_object_get(last, "usage"));
	json_decref(events);
	ds_buf_reset(&x.stream);
	x.doc.head.include_usage = true;
	api_chat_format.begin(&x.doc, &x.stream);
	api_chat_format.choice_end(&x.doc, &x.choice, &x.stream);
	api_chat_format.end(&x.doc, &x.usage, &x.stream);
	events = format_events(&x.stream);
	CU_ASSERT_EQUAL_FATAL(json_array_size(events), 4);
	const json_t *head = json_object_get(json_array_get(events, 0), "data");
	const json_t *usage = json_object_get(json_array_get(events, 2), "data");
	CU_ASSERT_TRUE(json_is_null(json_object_get(head, "usage")));
	CU_ASSERT_EQUAL(json_array_size(json_object_get(usage, "choices")), 0);
	CU_ASSERT_TRUE(json_is_object(json_object_get(usage, "usage")));
	json_decref(events);
	format_feed_fini(&x);
}

static CU_TestInfo api_chat_tests[] = {
	{ "any split of the text adds up to the whole body", test_splits },
	{ "objects, chunks, calls and usage have the shape clients know", test_shapes },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo api_chat_suite = { .pName = "engine/api_chat", .pTests = api_chat_tests };
