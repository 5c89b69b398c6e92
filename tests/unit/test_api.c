/*
 * test_api.c - bodies of chat/completions: what is taken and what is refused by name; stop strings.
 */
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define MSG "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static int parse(const char *text, struct api_request *r, struct ds_err *err)
{
	ds_err_clear(err);
	return api_request_parse(text, strlen(text), r, err);
}

static void test_defaults(void)
{
	struct api_request r;
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL_FATAL(parse("{" MSG "}", &r, &err), 0);
	CU_ASSERT_FALSE(r.stream);
	CU_ASSERT_EQUAL(r.sample.temperature, 1.0F);
	CU_ASSERT_EQUAL(r.sample.top_p, 0.95F);
	CU_ASSERT_EQUAL(r.sample.top_k, 0);
	CU_ASSERT_EQUAL(r.max_tokens, 0);
	CU_ASSERT_TRUE(r.sample.seed < UINT64_C(1) << 53);
	uint64_t seed = r.sample.seed;
	api_request_fini(&r);
	CU_ASSERT_EQUAL_FATAL(parse("{" MSG "}", &r, &err), 0);
	CU_ASSERT_NOT_EQUAL(r.sample.seed, seed);
	api_request_fini(&r);
}

static void test_fields(void)
{
	static const char text[] =
		"{" MSG ",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
		"\"temperature\":0,\"top_p\":0,\"top_k\":-1,\"seed\":-3,\"max_tokens\":7,"
		"\"max_completion_tokens\":9.0,\"n\":1,\"stop\":[\"a\\u0000b\",\"\",\"c\"],"
		"\"tools\":[],\"logprobs\":false,\"top_logprobs\":null,\"tool_choice\":\"none\","
		"\"presence_penalty\":0.0,\"repetition_penalty\":1,\"model\":\"any\","
		"\"response_format\":{\"type\":\"text\"},\"user\":\"u\",\"metadata\":{\"x\":[1]},"
		"\"store\":true,\"unheard_of\":[[]]}";
	struct api_request r;
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL_FATAL(parse(text, &r, &err), 0);
	CU_ASSERT_TRUE(r.stream && r.include_usage);
	CU_ASSERT_EQUAL(r.sample.temperature, 0.0F);
	CU_ASSERT_TRUE(r.sample.top_p > 0.0F && r.sample.top_p < 1e-30F);
	CU_ASSERT_EQUAL(r.sample.top_k, 0);
	CU_ASSERT_EQUAL(r.sample.seed, (uint64_t)-3);
	CU_ASSERT_EQUAL(r.max_tokens, 9);
	CU_ASSERT_EQUAL_FATAL(r.n_stop, 2);
	CU_ASSERT_EQUAL(r.stop_len[0], 3);
	CU_ASSERT_EQUAL(memcmp(r.stop[0], "a\0b", 3), 0);
	api_request_fini(&r);
	/* Duplicate keys: the last one wins. */
	CU_ASSERT_EQUAL_FATAL(parse("{" MSG ",\"max_tokens\":1,\"max_tokens\":5}", &r, &err), 0);
	CU_ASSERT_EQUAL(r.max_tokens, 5);
	api_request_fini(&r);
	CU_ASSERT_EQUAL_FATAL(parse("{" MSG ",\"max_tokens\":9000000000}", &r, &err), 0);
	CU_ASSERT_EQUAL(r.max_tokens, UINT32_MAX);
	api_request_fini(&r);
}

static const struct refuse_case {
	const char *text, *field, *why;
} refuse_cases[] = {
	{ "", "", "not JSON" },
	{ "{", "", "line 1 column 1" },
	{ "[]", "", "must be a JSON object" },
	{ "{} x", "", "not JSON" },
	{ "{\"messages\":\"\xff\"}", "", "not JSON" },
	{ "{}", "messages", "at least one" },
	{ "{\"messages\":[]}", "messages", "at least one" },
	{ "{\"messages\":{}}", "messages", "at least one" },
	{ "{" MSG ",\"model\":1}", "model", "string" },
	{ "{" MSG ",\"stream\":1}", "stream", "true or false" },
	{ "{" MSG ",\"stream_options\":1}", "stream_options", "object" },
	{ "{" MSG ",\"stream_options\":{\"include_usage\":1}}", "stream_options.include_usage",
	  "true or false" },
	{ "{" MSG ",\"temperature\":-0.1}", "temperature", "from 0 to 2" },
	{ "{" MSG ",\"temperature\":\"1\"}", "temperature", "from 0 to 2" },
	{ "{" MSG ",\"temperature\":true}", "temperature", "from 0 to 2" },
	{ "{" MSG ",\"top_p\":1.5}", "top_p", "from 0 to 1" },
	{ "{" MSG ",\"top_k\":2.5}", "top_k", "whole number" },
	{ "{" MSG ",\"top_k\":-2}", "top_k", "whole number" },
	{ "{" MSG ",\"seed\":1e300}", "seed", "whole number" },
	{ "{" MSG ",\"seed\":99999999999999999999}", "seed", "whole number" },
	{ "{" MSG ",\"max_tokens\":0}", "max_tokens", "from 1" },
	{ "{" MSG ",\"max_tokens\":-1}", "max_tokens", "from 1" },
	{ "{" MSG ",\"max_completion_tokens\":0}", "max_completion_tokens", "from 1" },
	{ "{" MSG ",\"n\":2}", "n", "must be 1" },
	{ "{" MSG ",\"n\":0}", "n", "from 1" },
	{ "{" MSG ",\"stop\":5}", "stop", "strings" },
	{ "{" MSG ",\"stop\":[null]}", "stop", "strings" },
	{ "{" MSG ",\"logprobs\":true}", "logprobs", "not supported" },
	{ "{" MSG ",\"top_logprobs\":3}", "top_logprobs", "not supported" },
	{ "{" MSG ",\"presence_penalty\":2.5}", "presence_penalty", "from -2 to 2" },
	{ "{" MSG ",\"min_p\":1.05}", "min_p", "from 0 to 1" },
	{ "{" MSG ",\"logit_bias\":{\"5\":101}}", "logit_bias", "-100 to 100" },
	{ "{" MSG ",\"logit_bias\":{\"-5\":1}}", "logit_bias", "token ids" },
	{ "{" MSG ",\"logit_bias\":[1]}", "logit_bias", "object" },
	{ "{" MSG ",\"repetition_penalty\":0}", "repetition_penalty", "from 0.01" },
	{ "{" MSG ",\"min_tokens\":5,\"max_tokens\":4}", "min_tokens", "above max_tokens" },
	{ "{" MSG ",\"stop_token_ids\":[1.5]}", "stop_token_ids", "token ids" },
	{ "{" MSG ",\"ignore_eos\":1}", "ignore_eos", "true or false" },
	{ "{" MSG ",\"response_format\":{\"type\":\"json_object\"}}", "response_format", "text" },
	{ "{" MSG ",\"modalities\":[\"text\",\"audio\"]}", "modalities", "text" },
};

static void test_refused(void)
{
	for (size_t i = 0; i < sizeof(refuse_cases) / sizeof(refuse_cases[0]); i++) {
		const struct refuse_case *c = &refuse_cases[i];
		struct api_request r;
		struct ds_err err;
		int rc = parse(c->text, &r, &err);
		bool ok = rc == -1 && err.kind == DS_ERR_INPUT && strcmp(err.obj, c->field) == 0 &&
			  strstr(err.why, c->why) != NULL;
		if (!ok)
			printf("row %zu (%s): got %d, \"%s\": %s\n", i, c->text, rc, err.obj,
			       err.why);
		if (rc == 0)
			api_request_fini(&r);
		CU_ASSERT_TRUE(ok);
	}
}

/* A body of brackets only must end in an error, not in a stack without end. */
static void test_deep(void)
{
	enum {
		DEEP = 1000000
	};
	char *text = malloc(DEEP);
	struct api_request r;
	struct ds_err err = { 0 };
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	memset(text, '[', DEEP);
	CU_ASSERT_EQUAL(api_request_parse(text, DEEP, &r, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	free(text);
}

/* Every split of the same text gives the same result. */
static const struct stop_case {
	const char *stops[3], *text, *want;
	bool hit;
} stop_cases[] = {
	{ { "END" }, "one ENDtwo", "one ", true },
	{ { "END" }, "one EN", "one EN", false },
	{ { "END" }, "EENDx", "E", true },
	{ { "aab" }, "aaab", "a", true },
	{ { "abc", "b" }, "xabc", "xa", true },
	{ { "abc", "bcd" }, "xabd bcd", "xabd ", true },
	{ { "\n\n" }, "a\nb\n\nc", "a\nb", true },
	{ { "zz" }, "abc", "abc", false },
	{ { "\xc3\xa4" }, "x\xc3\xa4y", "x", true },
	{ { "x" }, "", "", false },
};

static bool run_stop(const struct api_request *r, const char *text, size_t step, struct ds_buf *out)
{
	struct api_stop s = { .req = r };
	bool hit = false;
	for (size_t at = 0, len = strlen(text); at < len && !hit; at += step)
		hit = api_stop_put(&s, text + at, at + step < len ? step : len - at, out);
	if (!hit)
		api_stop_end(&s, out);
	ds_buf_fini(&s.held);
	return hit;
}

static void test_stop(void)
{
	for (size_t i = 0; i < sizeof(stop_cases) / sizeof(stop_cases[0]); i++) {
		const struct stop_case *c = &stop_cases[i];
		struct api_request r = { 0 };
		for (; r.n_stop < 3 && c->stops[r.n_stop] != NULL; r.n_stop++) {
			r.stop[r.n_stop] = (char *)c->stops[r.n_stop];
			r.stop_len[r.n_stop] = strlen(c->stops[r.n_stop]);
		}
		for (size_t step = 1; step <= 12; step++) {
			struct ds_buf out = { 0 };
			bool hit = run_stop(&r, c->text, step, &out);
			bool ok = hit == c->hit && out.len == strlen(c->want) &&
				  memcmp(out.data != NULL ? out.data : "", c->want, out.len) == 0;
			if (!ok)
				printf("row %zu, pieces of %zu: \"%s\", hit %d\n", i, step,
				       out.data != NULL ? out.data : "", hit);
			CU_ASSERT_TRUE(ok);
			ds_buf_fini(&out);
		}
	}
}

static void test_ids(void)
{
	char one[API_ID_BYTES], two[API_ID_BYTES];
	CU_ASSERT_EQUAL_FATAL(api_new_id("chatcmpl-", one, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(api_new_id("chatcmpl-", two, NULL), 0);
	CU_ASSERT_EQUAL(strlen(one), 9 + 32);
	CU_ASSERT_EQUAL(strspn(one + 9, "0123456789abcdef"), 32);
	CU_ASSERT_STRING_NOT_EQUAL(one, two);
}

static void test_errors(void)
{
	static const struct {
		enum ds_err_kind kind;
		unsigned int status;
	} cases[] = {
		{ DS_ERR_INPUT, 400 }, { DS_ERR_TIMEOUT, 503 }, { DS_ERR_PEER, 503 },
		{ DS_ERR_HOST, 500 },  { DS_ERR_NOMEM, 500 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ds_err err = { 0 };
		struct api_error e;
		struct ds_buf out = { 0 };
		ds_err_set(&err, cases[i].kind, 0, "messages[2].content", "read the request");
		ds_err_why(&err, "must be \"text\"");
		api_error_of(&err, &e);
		CU_ASSERT_EQUAL(e.status, cases[i].status);
		api_put_error(&out, &e);
		json_t *o = json_loads(out.data, 0, NULL);
		const json_t *in = json_object_get(o, "error");
		CU_ASSERT_TRUE(json_is_string(json_object_get(in, "message")));
		CU_ASSERT_TRUE(json_is_string(json_object_get(in, "type")));
		const char *param = json_string_value(json_object_get(in, "param"));
		CU_ASSERT_EQUAL(param != NULL && strcmp(param, "messages[2].content") == 0,
				cases[i].status == 400);
		json_decref(o);
		ds_buf_fini(&out);
	}
}

static CU_TestInfo api_tests[] = {
	{ "an empty request has the defaults, and a new seed each time", test_defaults },
	{ "fields are read, neutral and unknown ones pass", test_fields },
	{ "wrong and unsupported fields are refused by name", test_refused },
	{ "deep nesting is an error", test_deep },
	{ "stop strings are found across any split and never shown", test_stop },
	{ "ids are a prefix and random bits", test_ids },
	{ "errors become statuses and bodies", test_errors },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo api_suite = { .pName = "engine/api", .pTests = api_tests };
