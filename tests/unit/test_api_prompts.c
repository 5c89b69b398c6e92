/*
 * test_api_prompts.c - the same conversation by any endpoint is the same prompt, id by id.
 *
 * tests/fixtures/agent/conversations.json has transcripts as agents send them, each as a body of
 * chat/completions, of Messages and of Responses.
 */
#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <string.h>

#include "api_format.h"
#include "chat.h"
#include "file.h"
#include "pyjson.h"

static struct tok *tok;

static bool encode(const json_t *body, struct chat_prompt *p, struct ds_err *err)
{
	ds_err_clear(err);
	return body != NULL && chat_encode(tok, body, true, p, err) == 0;
}

static bool same_prompt(const struct chat_prompt *want, json_t *body, struct ds_err *err)
{
	struct chat_prompt got = { 0 };
	bool ok = encode(body, &got, err);
	ok = ok && got.ids.n == want->ids.n &&
	     memcmp(got.ids.id, want->ids.id, got.ids.n * sizeof(*got.ids.id)) == 0 &&
	     got.thinking == want->thinking && got.choice == want->choice;
	if (!ok)
		printf("%s: %s\ngot  %s\nwant %s\n", err->obj, err->why,
		       got.text.data != NULL ? got.text.data : "", want->text.data);
	chat_prompt_fini(&got);
	json_decref(body);
	return ok;
}

static void test_same(void)
{
	struct ds_err err = { 0 };
	struct ds_buf text = { 0 };
	json_error_t at;
	tok = tok_open(TESTS_DIR "/fixtures/demo-model/tokenizer.json", &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(tok);
	CU_ASSERT_EQUAL_FATAL(ds_file_read(AT_FDCWD, TESTS_DIR "/fixtures/agent/conversations.json",
					   0, 1 << 20, &text, &err),
			      0);
	json_t *rows = pyjson_load(text.data, text.len, 0, &at);
	size_t n = json_array_size(rows);
	CU_ASSERT_TRUE_FATAL(n > 5);
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(rows, i);
		struct chat_prompt want = { 0 };
		CU_ASSERT_TRUE_FATAL(encode(json_object_get(row, "chat"), &want, &err));
		bool ok = same_prompt(
			&want, api_messages_to_chat(json_object_get(row, "messages"), &err), &err);
		ok = same_prompt(&want,
				 api_responses_to_chat(json_object_get(row, "responses"), &err),
				 &err) &&
		     ok;
		if (!ok)
			printf("conversation %zu: %s\n", i,
			       json_string_value(json_object_get(row, "name")));
		CU_ASSERT_TRUE(ok);
		chat_prompt_fini(&want);
	}
	json_decref(rows);
	ds_buf_fini(&text);
	tok_close(tok);
}

/* What fails behind the translation is told in the client's own words. */
static void test_paths(void)
{
	static const struct {
		const struct api_way *way;
		const char *chat, *own;
	} rows[] = {
		{ NULL, "response_format.json_schema", "response_format.json_schema" },
		{ &api_responses_way, "response_format.json_schema.schema.type",
		  "text.format.schema.type" },
		{ &api_responses_way, "response_format", "text.format" },
		{ &api_responses_way, "response_formats", "response_formats" },
		{ &api_responses_way, "max_tokens", "max_output_tokens" },
		{ &api_responses_way, "tool_choice.function.name", "tool_choice.name" },
		{ &api_responses_way, "temperature", "temperature" },
		{ &api_messages_way, "response_format.json_schema.schema",
		  "output_config.format.schema" },
		{ &api_messages_way, "tools[3].function.parameters.type",
		  "tools[3].input_schema.type" },
		{ &api_messages_way, "tool_choice.function.name", "tool_choice.name" },
		{ &api_messages_way, "stop", "stop_sequences" },
		{ &api_count_way, "stop_token_ids", "stop_token_ids" },
	};
	static const struct {
		const struct api_way *way;
		const char *body, *path;
	} bodies[] = {
		{ &api_messages_way,
		  "{\"max_tokens\":5,\"temperature\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
		  "temperature" },
		{ &api_messages_way, "{\"max_tokens\":5,\"messages\":[{\"role\":\"x\"}]}",
		  "messages[0].role" },
		{ &api_responses_way, "{\"input\":\"x\",\"max_output_tokens\":1e30}",
		  "max_output_tokens" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char path[256];
		snprintf(path, sizeof(path), "%s", rows[i].chat);
		api_own_path(rows[i].way, path, sizeof(path));
		CU_ASSERT_STRING_EQUAL(path, rows[i].own);
	}
	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		struct api_request r;
		struct ds_err err = { 0 };
		CU_ASSERT_EQUAL(api_request_parse_by(bodies[i].way, bodies[i].body,
						     strlen(bodies[i].body), &r, &err),
				-1);
		CU_ASSERT_STRING_EQUAL(err.obj, bodies[i].path);
	}
}

static CU_TestInfo api_prompts_tests[] = {
	{ "errors name fields as the endpoint calls them", test_paths },
	{ "agents' conversations have the same ids by every endpoint", test_same },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo api_prompts_suite = { .pName = "engine/api_prompts", .pTests = api_prompts_tests };
