/*
 * nomem_text.c - the tokenizer and the chat encoder with every allocation failing once.
 *
 * The Nth allocation of a whole run (read a tokenizer, encode a conversation, take its output apart)
 * fails, for N = 1, 2, ... until a run needs fewer. Each run must either report DS_ERR_NOMEM or give
 * the right answer without that memory, and must return everything it took. Allocations of jansson
 * are left alone: it asserts, or goes on with a byte less, when one fails inside a string.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../fuzz/fuzz_tok.h"
#include "chat.h"
#include "failmalloc.h"
#include "out_parse.h"

#ifdef FAILMALLOC_ABSENT

int main(void)
{
	puts("skip every allocation of tokenizer and chat fails once: a sanitizer has its own allocator");
	return 77;
}

#else

static const char request[] =
	"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"maximum\":1.5}}}],"
	"\"tool_choice\":\"required\",\"response_format\":{\"type\":\"json_object\"},\"messages\":["
	"{\"role\":\"system\",\"content\":\"the abaab\"},{\"role\":\"user\",\"content\":"
	"\"==========================================================================\"},"
	"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\","
	"\"arguments\":\"{\\\"a\\\": \\\"x\\\", \\\"b\\\": [18446744073709551615]}\"}},"
	"{\"id\":\"b\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
	"{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"1\"},"
	"{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"2\"}]}";

static void hear(void *arg, const struct out_event *ev)
{
	*(size_t *)arg += ev->len;
}

/* Return: ids of the prompt and bytes of its events; 0 with @err set. */
static size_t run(const char *file, const json_t *body, struct ds_err *err)
{
	struct out_parse_opts how = { .thinking = true, .calls = true };
	struct chat_prompt p;
	struct out_parse o;
	size_t n = 0, heard = 0;

	struct tok *t = tok_parse("tokenizer.json", file, strlen(file), err);
	if (t == NULL)
		return 0;
	if (chat_encode(t, body, true, &p, err) == 0) {
		how.tools = p.tools;
		out_parse_init(&o, t, &how, hear, &heard);
		for (size_t i = 0; i < p.ids.n; i++)
			out_parse_put(&o, p.ids.id[i]);
		out_parse_end(&o, true);
		if (o.failed)
			ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "output");
		n = err->kind == DS_ERR_NONE ? p.ids.n + heard : 0;
		out_parse_fini(&o);
		chat_prompt_fini(&p);
	}
	tok_close(t);
	return n;
}

/* Run with allocation @nth failing. Return: 1 it came to that, 0 it did not, -1 wrong. */
static int run_nth(long nth, const char *file, const json_t *body, size_t want)
{
	struct ds_err err = { 0 };
	long before = fm_alive;

	fm_left = nth;
	size_t got = run(file, body, &err);
	bool failed = fm_left < 0;
	fm_left = -1;
	if (fm_alive != before) {
		printf("   allocation %ld: %ld blocks not returned\n", nth,
		       (long)fm_alive - before);
		return -1;
	}
	if (got == want && err.kind == DS_ERR_NONE)
		return failed;
	if (got == 0 && err.kind == DS_ERR_NOMEM)
		return 1;
	char line[900];
	printf("   allocation %ld: %zu ids, %s\n", nth, got, ds_err_line(&err, line, sizeof(line)));
	return -1;
}

int main(void)
{
	struct ds_err err = { 0 };
	json_set_alloc_funcs(fm_steady_malloc, free);
	char *file = fuzz_tok_json();
	json_t *body = json_loads(request, 0, NULL);
	int state = 1;
	long nth = 0;

	if (file == NULL || body == NULL)
		return 1;
	size_t want = run(file, body, &err); /* also takes what libraries keep for ever */
	for (; want > 0 && state == 1 && nth < 100000; nth++)
		state = run_nth(nth, file, body, want);
	printf("%sok every one of %ld allocations of tokenizer and chat fails once\n",
	       want > 0 && state == 0 && nth > 40 ? "" : "not ", nth - 1);
	json_decref(body);
	free(file);
	return want > 0 && state == 0 && nth > 40 ? 0 : 1;
}

#endif
