/*
 * chat_ids.c - prompts of many conversations, for comparing with other encoders: chat_ids TOKENIZER.json.
 *
 * Reads one chat/completions body a line from stdin; prints one JSON line for each: "text", "ids" and "forced",
 * or "error", the JSON path that was refused. Thinking is on unless the body says otherwise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "json.h"
#include "pyjson.h"

static void put_ids(struct ds_json *j, const char *key, const struct tok_ids *ids)
{
	ds_json_key(j, key);
	ds_json_array(j);
	for (size_t i = 0; i < ids->n; i++)
		ds_json_uint(j, ids->id[i]);
	ds_json_end(j);
}

static void one(const struct tok *t, const char *line, size_t len)
{
	struct ds_buf out = { 0 };
	struct ds_json j;
	struct ds_err err = { 0 };
	struct chat_prompt p = { 0 };
	json_error_t at;
	json_t *body = pyjson_load(line, len, 0, &at);
	int rc = body == NULL ? -1 : chat_encode(t, body, true, &p, &err);

	ds_json_init(&j, &out, 0);
	ds_json_object(&j);
	if (rc != 0) {
		ds_json_kstr(&j, "error", body == NULL ? at.text : err.obj);
		ds_json_kstr(&j, "why", err.why);
	} else {
		ds_json_key(&j, "text");
		ds_json_strn(&j, p.text.data, p.text.len);
		put_ids(&j, "ids", &p.ids);
		put_ids(&j, "forced", &p.forced);
		chat_prompt_fini(&p);
	}
	ds_json_end(&j);
	puts(out.data);
	ds_buf_fini(&out);
	json_decref(body);
}

int main(int argc, char **argv)
{
	struct ds_err err = { 0 };
	struct tok *t = argc > 1 ? tok_open(argv[1], &err) : NULL;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	if (t == NULL) {
		ds_err_print(stderr, "chat_ids", &err);
		return 1;
	}
	while ((n = getline(&line, &cap, stdin)) > 0)
		one(t, line, (size_t)n);
	free(line);
	tok_close(t);
	return 0;
}
