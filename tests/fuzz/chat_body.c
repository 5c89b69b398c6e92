/*
 * chat_body.c - a request body becomes a prompt, or is refused by its JSON path.
 *
 * A prompt's ids must join to its text, and the text of the client must not have become marks: with
 * the marks cut out, encoding has no more of them than the layout allows.
 */
#include <stdint.h>

#include "chat.h"
#include "fuzz_tok.h"
#include "pyjson.h"

/* Marks that the calls of a message need: two for the block, two for each call, two for each argument. */
static size_t call_marks(const json_t *message)
{
	const json_t *calls = json_object_get(message, "tool_calls");
	size_t n = json_array_size(calls) > 0 ? 2 : 0;

	for (size_t i = 0; i < json_array_size(calls); i++) {
		json_error_t at;
		json_t *v = json_object_get(json_object_get(json_array_get(calls, i), "function"),
					    "arguments");
		json_t *args = json_is_string(v) ? pyjson_load(json_string_value(v),
							       json_string_length(v), 0, &at)
						 : json_incref(v);
		n += 2 + 2 * json_object_size(args);
		json_decref(args);
	}
	return n;
}

/* Four marks a message and its calls, those of each tools block, ten around them. */
static void check(const struct tok *t, const json_t *body, const struct chat_prompt *p)
{
	const json_t *messages = json_object_get(body, "messages");
	size_t marks = 0, most = 10 + 13;

	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *m = json_array_get(messages, i);
		most += 4 + call_marks(m);
		most += json_array_size(json_object_get(m, "tools")) > 0 ? 13 : 0;
	}
	if (p->forced_given &&
	    (p->forced.n > p->ids.n || memcmp(p->ids.id + p->ids.n - p->forced.n, p->forced.id,
					      p->forced.n * sizeof(*p->forced.id)) != 0))
		abort();

	for (size_t i = 0; i < p->ids.n; i++)
		marks += tok_is_special(t, p->ids.id[i]);
	if (marks > most || p->effort > 100)
		abort();
	fuzz_check_join(t, &p->ids, p->text.data, p->text.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tok *t;
	struct ds_err err = { 0 };
	struct chat_prompt p;
	json_error_t at;
	json_t *body = pyjson_load((const char *)data, size, JSON_DECODE_ANY, &at);

	if (t == NULL)
		t = fuzz_tok();
	if (body == NULL)
		return 0;
	if (chat_encode(t, body, size % 2, &p, &err) == 0) {
		check(t, body, &p);
		chat_prompt_fini(&p);
	} else if (err.kind != DS_ERR_INPUT || err.obj[0] == '\0' || err.why[0] == '\0') {
		abort();
	}
	json_decref(body);
	return 0;
}
