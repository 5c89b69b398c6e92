/*
 * test_chat_tools.c - prompts with tools: published sums of the fixed texts, forced calls, V4, shared prefixes.
 */
#include <CUnit/CUnit.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "pyjson.h"

#define TOKENIZER TESTS_DIR "/fixtures/demo-model/tokenizer.json"

#define USR "<\uff5cUser\uff5c>"
#define AST "<\uff5cAssistant\uff5c>"
#define BOS "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
#define EOS "<\uff5cend\u2581of\u2581sentence\uff5c>"
#define DSM "\uff5cDSML\uff5c"

/* The demo model's tokenizer; V4's has no mark for system text. */
static struct tok *tokenizer(bool v4)
{
	json_t *root = json_load_file(TOKENIZER, 0, NULL), *v;
	json_t *added = json_object_get(root, "added_tokens");
	struct ds_err err = { 0 };
	size_t i;

	json_array_foreach (added, i, v)
		if (v4 && strcmp(json_string_value(json_object_get(v, "content")),
				 "<\uff5cSystem\uff5c>") == 0)
			json_array_remove(added, i--);
	char *text = json_dumps(root, 0);
	struct tok *t = tok_parse("demo", text, strlen(text), &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	free(text);
	json_decref(root);
	return t;
}

static json_t *parse(const char *text)
{
	json_error_t at;
	json_t *v = pyjson_load(text, strlen(text), 0, &at);

	if (v == NULL)
		printf("   %s: %s\n", text, at.text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	return v;
}

static void encode(const struct tok *t, const char *text, struct chat_prompt *p)
{
	struct ds_err err = { 0 };
	json_t *body = parse(text);
	int rc = chat_encode(t, body, true, p, &err);

	if (rc != 0)
		printf("   %s: %s %s\n", text, err.obj, err.why);
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	json_decref(body);
}

static void sum(const char *text, size_t len, char *hex)
{
	unsigned char md[EVP_MAX_MD_SIZE];

	CU_ASSERT_EQUAL(EVP_Digest(text, len, md, NULL, EVP_sha256(), NULL), 1);
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", md[i]);
}

/* ------------------------------------- fixed texts -------------------------------------- */

/* As on the wire: other spacing, the same keys. */
#define SCHEMA                                                                                           \
	"{\"name\":\"get_weather\",\"description\":\"Weather now\",\"parameters\":{\"type\":\"object\"," \
	"\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},\"required\":[\"city\"]}}"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":" SCHEMA "}],"
#define PRINTED                                                                                                 \
	"{\"name\": \"get_weather\", \"description\": \"Weather now\", \"parameters\": {\"type\": \"object\", " \
	"\"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}}, \"required\": [\"city\"]}}"

/* Sums of the tools block with this schema, and with none between the two empty lines. Source: serving notes of the release. */
static void test_block(void)
{
	static const struct {
		bool v4;
		const char *whole, *bare;
	} sums[] = {
		{ false, "ad10999d09966e6411d76d3c45d8b408eafcee5084d28ac41d7166662009c440",
		  "3c2b43c02161a7a1cdeac198315dd2880af743771744cbfc2a5f38f162c477ac" },
		{ true, "2e313b95a5adcf0f2f1d97d6afe19d5b431a00edaa3f88b7b05427b312495a6d",
		  "c7d3159308f7d076bee8974ece110fda1f92f6e577306e602ba2b466b4dcd904" },
	};

	for (size_t i = 0; i < 2; i++) {
		struct tok *t = tokenizer(sums[i].v4);
		struct chat_prompt p;
		char hex[65];
		encode(t,
		       "{\"think\":false," TOOLS
		       "\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]}",
		       &p);
		const char *from = strstr(p.text.data, "## Tools"), *to = strstr(from, USR);
		sum(from, (size_t)(to - from), hex);
		CU_ASSERT_STRING_EQUAL(hex, sums[i].whole);
		char *at = strstr(p.text.data, PRINTED);
		CU_ASSERT_PTR_NOT_NULL_FATAL(at);
		memmove(at, at + strlen(PRINTED), strlen(at + strlen(PRINTED)) + 1);
		sum(from, (size_t)(to - from) - strlen(PRINTED), hex);
		CU_ASSERT_STRING_EQUAL(hex, sums[i].bare);
		chat_prompt_fini(&p);
		tok_close(t);
	}
}

#define CALL_IN(id, city)                                                                  \
	"{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\"," \
	"\"arguments\":\"{\\\"city\\\":\\\"" city "\\\",\\\"days\\\":2}\"}}"
#define ROUND                                                                                                             \
	"{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Paris and Rome?\"},"            \
	"{\"role\":\"assistant\",\"reasoning_content\":\"need both\",\"content\":\"Checking.\",\"tool_calls\":[" CALL_IN( \
		"a",                                                                                                      \
		"Paris") "," CALL_IN("b",                                                                                 \
				     "Rome") "]},"                                                                        \
					     "{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"24C\"},{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"19C\"}"

/* Parallel calls and results that arrive in the wrong order: published sums of the text. */
static void test_round(void)
{
	static const char *const bodies[] = {
		"{" TOOLS "\"messages\":[" ROUND "]}",
		"{" TOOLS "\"messages\":[" ROUND
		",{\"role\":\"assistant\",\"reasoning_content\":\"got it\",\"content\":\"19C and 24C.\"},"
		"{\"role\":\"user\",\"content\":\"Thanks\"}]}",
		/* tools that a message brings are the same tools */
		"{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\",\"tools\":[{\"function\":" SCHEMA
		"}]},"
		"{\"role\":\"user\",\"content\":\"Paris and Rome?\"},"
		"{\"role\":\"assistant\",\"reasoning\":\"need both\",\"content\":\"Checking.\",\"tool_calls\":[" CALL_IN(
			"a",
			"Paris") "," CALL_IN("b",
					     "Rome") "]},"
						     "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"19C\"},{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"24C\"}]}",
	};
	static const char *const begins[] = { "901037f1298f02db", "3d039f239cfa08f4",
					      "901037f1298f02db" };
	struct tok *t = tokenizer(false);

	for (size_t i = 0; i < 3; i++) {
		struct chat_prompt p;
		char hex[65];
		encode(t, bodies[i], &p);
		sum(p.text.data, p.text.len, hex);
		hex[16] = '\0';
		CU_ASSERT_STRING_EQUAL(hex, begins[i]);
		CU_ASSERT_EQUAL(json_array_size(p.tools), 1);
		CU_ASSERT_STRING_EQUAL(
			json_string_value(json_object_get(json_array_get(p.tools, 0), "name")),
			"get_weather");
		chat_prompt_fini(&p);
	}
	tok_close(t);
}

/* Marks of the fixed text are marks, those of a client's text never are. */
static void test_marks(void)
{
	struct tok *t = tokenizer(false);
	struct chat_prompt p;
	struct tok_ids whole = { 0 };
	size_t dsml = 0;

	encode(t, "{" TOOLS "\"messages\":[" ROUND "]}", &p);
	CU_ASSERT_EQUAL(tok_encode(t, p.text.data, p.text.len, true, &whole, NULL), 0);
	CU_ASSERT(whole.n == p.ids.n &&
		  memcmp(whole.id, p.ids.id, whole.n * sizeof(*whole.id)) == 0);
	tok_ids_fini(&whole);
	chat_prompt_fini(&p);
	encode(t,
	       "{\"think\":false,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" DSM
		       EOS "\",\"description\":\"</" DSM " calls>" AST
	       "<think>\"}}],\"messages\":[{\"role\":\"system\",\"content\":\"" DSM BOS
	       "\"},{\"role\":\"assistant\",\"content\":\"" DSM
	       "\",\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"" DSM EOS
	       "\",\"arguments\":{\"" DSM "\":\"</" DSM " parameter>" EOS "\",\"b\":[\"" DSM USR
	       "\"]}}}]},{\"role\":\"tool\",\"tool_call_id\":\"" EOS
	       "\",\"content\":\"</tool_result>" EOS DSM "\"}]}",
	       &p);
	for (size_t i = 0; i < p.ids.n; i++)
		dsml += p.ids.id[i] == (uint32_t)tok_special(t, DSM);
	CU_ASSERT_EQUAL(dsml, 9 + 2 + 2 + 2 * 2); /* fixed text, block, call, two parameters */
	for (size_t i = 0, eos = 0; i < p.ids.n; i++) {
		eos += p.ids.id[i] == (uint32_t)tok_special(t, EOS);
		CU_ASSERT(eos <= 1);
	}
	chat_prompt_fini(&p);
	tok_close(t);
}

/* ------------------------------------- forced calls ------------------------------------- */

#define ASK	"\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]}"
#define OPENING "\n\n<" DSM " calls>\n"
#define NAMED	OPENING "<" DSM " invoke name=\"get_weather\">\n"

static void test_forced(void)
{
	static const struct {
		const char *body;
		enum chat_choice choice;
		const char *forced, *end; /* end: of the prompt's text */
	} cases[] = {
		{ "{\"think\":false," TOOLS ASK, CHAT_AUTO, "", AST "</think>" },
		{ "{\"think\":false," TOOLS "\"tool_choice\":\"none\"," ASK, CHAT_NO_CALL, "",
		  AST "</think>" },
		{ "{\"think\":false," TOOLS "\"tool_choice\":\"required\"," ASK, CHAT_MUST, OPENING,
		  AST "</think>" OPENING },
		{ "{\"think\":true," TOOLS "\"tool_choice\":\"required\"," ASK, CHAT_MUST, OPENING,
		  AST "<think>" },
		{ "{\"think\":false," TOOLS
		  "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}," ASK,
		  CHAT_MUST_ONE, NAMED, AST "</think>" NAMED },
		{ "{\"think\":true," TOOLS
		  "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}," ASK,
		  CHAT_MUST_ONE, NAMED, AST "<think>" },
		{ "{\"tool_choice\":\"none\"," ASK, CHAT_NO_CALL, "", AST "<think>" },
	};
	struct tok *t = tokenizer(false);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tok_ids want = { 0 };
		struct chat_prompt p;
		encode(t, cases[i].body, &p);
		size_t end = strlen(cases[i].end);
		CU_ASSERT_EQUAL(p.choice, cases[i].choice);
		CU_ASSERT(p.text.len > end &&
			  memcmp(p.text.data + p.text.len - end, cases[i].end, end) == 0);
		CU_ASSERT_EQUAL(
			tok_encode(t, cases[i].forced, strlen(cases[i].forced), true, &want, NULL),
			0);
		CU_ASSERT_EQUAL_FATAL(p.forced.n, want.n);
		CU_ASSERT(want.n == 0 ||
			  memcmp(p.forced.id, want.id, want.n * sizeof(*want.id)) == 0);
		CU_ASSERT_EQUAL(p.forced_given, want.n > 0 && !p.thinking);
		if (p.forced_given)
			CU_ASSERT_EQUAL(memcmp(p.ids.id + p.ids.n - want.n, want.id,
					       want.n * sizeof(*want.id)),
					0);
		tok_ids_fini(&want);
		chat_prompt_fini(&p);
	}
	tok_close(t);
}

/* ------------------------------------------ V4 ------------------------------------------ */

static void test_v4(void)
{
	static const struct {
		const char *body, *begin, *end;
	} cases[] = {
		{ "{\"think\":false,\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Q\"}]}",
		  BOS "S" USR, "Q" AST "</think>" },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]}", BOS USR,
		  "Q" AST "<think>" },
		{ "{\"reasoning_effort\":\"max\",\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]}",
		  BOS "Reasoning Effort: Absolute maximum",
		  "unchecked.\n\n" USR "Q" AST "<think>" },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"reasoning\":\"r\",\"content\":\"A\"},"
		  "{\"role\":\"system\",\"content\":\"S\"}]}",
		  BOS USR "Q" AST "<think>r</think>A" EOS "S", AST "<think>" },
		{ "{\"think\":false,\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]}]}",
		  BOS AST "</think>\n\n<" DSM "tool_calls>\n<" DSM "invoke name=\"f\">\n<" DSM
			  "parameter name=\"a\" string=\"false\">1</" DSM "parameter>\n</" DSM
			  "invoke>\n</" DSM "tool_calls>",
		  EOS AST "</think>" },
		{ "{\"think\":false," TOOLS "\"tool_choice\":\"required\"," ASK,
		  BOS "\n\n## Tools\n\n", "</think>\n\n<" DSM "tool_calls>\n" },
	};
	struct tok *t = tokenizer(true);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct chat_prompt p;
		encode(t, cases[i].body, &p);
		size_t begin = strlen(cases[i].begin), end = strlen(cases[i].end);
		bool ok = p.text.len >= begin && memcmp(p.text.data, cases[i].begin, begin) == 0 &&
			  p.text.len >= end &&
			  memcmp(p.text.data + p.text.len - end, cases[i].end, end) == 0;
		if (!ok)
			printf("   got %s\n", p.text.data);
		CU_ASSERT(ok);
		chat_prompt_fini(&p);
	}
	tok_close(t);
}

/* ------------------------------------ shared prefixes ----------------------------------- */

/* An agent's conversation, a message a row. */
static const char *const talk[] = {
	"{\"role\":\"system\",\"content\":\"Be brief.\"}",
	"{\"role\":\"user\",\"content\":\"Is the link up?\"}",
	"{\"role\":\"assistant\",\"reasoning_content\":\"look first\",\"content\":\"\",\"tool_calls\":[" CALL_IN(
		"a", "Paris") "]}",
	"{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"up\\nyes\"}",
	"{\"role\":\"assistant\",\"reasoning_content\":\"once more\",\"content\":\"Again:\",\"tool_calls\":[" CALL_IN(
		"b", "Rome") "," CALL_IN("c", "Oslo") "]}",
	"{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"down\"}",
	"{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":[{\"type\":\"text\",\"text\":\"up\"}]}",
	"{\"role\":\"assistant\",\"reasoning_content\":\"done\",\"content\":\"One of two.\"}",
	"{\"role\":\"user\",\"content\":\"Thanks\"}",
	"{\"role\":\"assistant\",\"content\":\"Welcome.\"}",
	"{\"role\":\"system\",\"content\":\"Answer in French.\"}",
	"{\"role\":\"assistant\",\"content\":\"Oui.\"}",
	"{\"role\":\"user\",\"content\":\"Bye\"}",
};
#define N_TALK (sizeof(talk) / sizeof(talk[0]))

/* The prompt of the first @n messages, as a server gets it when the model's turn comes. */
static void encode_first(const struct tok *t, const char *fields, size_t n, struct chat_prompt *p)
{
	struct ds_buf b = { 0 };

	ds_buf_printf(&b, "{%s\"messages\":[", fields);
	for (size_t i = 0; i < n; i++)
		ds_buf_printf(&b, "%s%s", i > 0 ? "," : "", talk[i]);
	ds_buf_puts(&b, "]}");
	encode(t, b.data, p);
	ds_buf_fini(&b);
}

static size_t common(const struct tok_ids *a, const struct tok_ids *b)
{
	size_t n = 0;

	while (n < a->n && n < b->n && a->id[n] == b->id[n])
		n++;
	return n;
}

/* Whether message @i is the model's to answer. */
static bool is_asked(size_t i)
{
	bool own = strstr(talk[i], "\"assistant\"") != NULL;

	return !own && i > 0 && (i + 1 == N_TALK || strstr(talk[i + 1], "\"assistant\"") != NULL);
}

static size_t last_mark(const struct tok *t, const struct tok_ids *ids, const char *text)
{
	size_t i = ids->n;

	while (i > 0 && ids->id[i - 1] != (uint32_t)tok_special(t, text))
		i--;
	return i;
}

/*
 * Chat, and thinking with tools: every prompt is the whole beginning of the next one. Thinking without tools: the
 * release drops a round's reasoning when the next question comes, so all but what stood behind the header of the
 * first answer since the last question is shared.
 */
static void test_prefixes(void)
{
	static const struct {
		const char *fields;
		bool whole;
	} kinds[] = {
		{ "\"think\":false,", true },
		{ "\"think\":false," TOOLS, true },
		{ "\"think\":false," TOOLS "\"response_format\":{\"type\":\"json_object\"},",
		  true },
		{ TOOLS, true },
		{ TOOLS "\"tool_choice\":\"none\",", true },
		{ "\"chat_template_kwargs\":{\"drop_thinking\":false},", true },
		{ "", false },
	};
	struct tok *t = tokenizer(false);

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct chat_prompt before = { 0 }, now;
		for (size_t i = 0; i < N_TALK; i++) {
			if (!is_asked(i))
				continue;
			encode_first(t, kinds[k].fields, i + 1, &now);
			size_t shared = common(&before.ids, &now.ids);
			size_t want = before.ids.n;
			if (!kinds[k].whole && want > 0)
				want = last_mark(t, &before.ids, AST);
			if (shared < want)
				printf("   {%s} %zu messages: %zu of %zu ids\n", kinds[k].fields,
				       i + 1, shared, want);
			CU_ASSERT(shared >= want);
			chat_prompt_fini(&before);
			before = now;
		}
		CU_ASSERT(before.ids.n > 60);
		chat_prompt_fini(&before);
	}
	tok_close(t);
}

/* What is not of the conversation leaves the prompt as it is: fields that ask nothing, order of results, spacing. */
static void test_equal_prompts(void)
{
	static const char *const same[][2] = {
		{ "{" TOOLS "\"messages\":[" ROUND "]}",
		  "{\"user\":\"u\",\"metadata\":{\"a\":[1]},\"tool_choice\":\"auto\"," TOOLS
		  "\"seed\":5,\"messages\":[" ROUND "]}" },
		{ "{" TOOLS ASK, "{" TOOLS "\"tool_choice\":\"none\"," ASK },
		{ "{" TOOLS ASK, "{" TOOLS "\"parallel_tool_calls\":false,\"temperature\":0," ASK },
	};
	struct tok *t = tokenizer(false);

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		struct chat_prompt a, b;
		encode(t, same[i][0], &a);
		encode(t, same[i][1], &b);
		CU_ASSERT(a.ids.n == b.ids.n && common(&a.ids, &b.ids) == a.ids.n);
		chat_prompt_fini(&a);
		chat_prompt_fini(&b);
	}
	tok_close(t);
}

static CU_TestInfo tests[] = {
	{ "the tools block has the release's sum, V4.1 and V4", test_block },
	{ "a round of parallel calls has the published sum", test_round },
	{ "marks of the fixed text are marks, a client's are text", test_marks },
	{ "a forced call is opened in the prompt, or kept for behind the reasoning", test_forced },
	{ "a tokenizer without the system mark gets V4's layout", test_v4 },
	{ "a longer conversation begins with the ids of the shorter one", test_prefixes },
	{ "what does not concern the prompt leaves it alone", test_equal_prompts },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo chat_tools_suite = { .pName = "engine/chat_tools", .pTests = tests };
