/*
 * format_feed.c - scripted answers for the tests of endpoint formats.
 */
#include "format_feed.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

#define END              \
	{                \
		-1, NULL \
	}

static const struct said plain[] = {
	{ OUT_CONTENT, "Hi \"you\"\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82." }, END
};
static const struct said thought[] = { { OUT_REASONING, "Let me\nsee \xe2\x80\x94 yes." },
				       { OUT_CONTENT, "It is 62." },
				       END };
static const struct said calls[] = { { OUT_REASONING, "two calls" },
				     { OUT_CONTENT, "Checking." },
				     { OUT_CALL, "get_weather" },
				     { OUT_ARGS, "{\"city\": \"Z\xc3\xbcrich \\\"1\\\"\"" },
				     { OUT_ARGS, ", \"days\": 2.0}" },
				     { OUT_CALL_END, "" },
				     { OUT_CALL, "now" },
				     { OUT_ARGS, "{}" },
				     { OUT_CALL_END, "" },
				     END };
static const struct said bare_call[] = {
	{ OUT_CALL, "now" }, { OUT_ARGS, "{}" }, { OUT_CALL_END, "" }, END
};
static const struct said cut_call[] = { { OUT_CONTENT, "I look." },
					{ OUT_CALL, "now" },
					{ OUT_ARGS, "{}" },
					{ OUT_CALL_END, "" },
					{ OUT_CALL, "get_weather" },
					{ OUT_ARGS, "{\"city\": \"Par" },
					END };
static const struct said cut_thought[] = { { OUT_REASONING, "I wonder" }, END };
static const struct said nothing[] = { END };

const struct script format_scripts[] = {
	{ "plain", "stop", NULL, plain },	  { "thought", "stop", NULL, thought },
	{ "calls", "tool_calls", NULL, calls },	  { "bare call", "tool_calls", NULL, bare_call },
	{ "cut call", "length", NULL, cut_call }, { "cut thought", "length", NULL, cut_thought },
	{ "cut text", "length", NULL, plain },	  { "stopped", "stop", "END", thought },
	{ "nothing", "stop", NULL, nothing },	  { NULL, NULL, NULL, NULL },
};

/* Adds to the record what an event says, as answer.c does. */
static void record(struct api_choice *c, const struct out_event *ev)
{
	switch (ev->kind) {
	case OUT_REASONING:
		ds_buf_put(&c->reasoning, ev->text, ev->len);
		break;
	case OUT_CONTENT:
		ds_buf_put(&c->content, ev->text, ev->len);
		break;
	case OUT_CALL:
		c->call = realloc(c->call, (c->n_call + 1) * sizeof(*c->call));
		memset(&c->call[c->n_call], 0, sizeof(*c->call));
		snprintf(c->call[c->n_call].id, API_ID_BYTES, "%s", ev->id);
		ds_buf_put(&c->call[c->n_call++].name, ev->text, ev->len);
		break;
	case OUT_ARGS:
		ds_buf_put(&c->call[ev->call].args, ev->text, ev->len);
		break;
	case OUT_CALL_END:
		c->call[ev->call].complete = true;
	}
}

static void say(struct fed *x, const struct said *s, const char *text, size_t len)
{
	struct api_choice *c = &x->choice;
	char id[API_ID_BYTES];
	struct out_event ev = { .kind = (enum out_kind)s->kind, .text = text, .len = len };
	snprintf(id, sizeof(id), "call_%024u", c->n_call);
	ev.id = s->kind == OUT_CALL ? id : NULL;
	ev.call = s->kind == OUT_CALL ? c->n_call : c->n_call - 1;
	record(c, &ev);
	x->doc.format->event(&x->doc, c, &ev, NULL, &x->stream);
}

/* Text comes in whole characters; a name and an end come at once. */
static void say_pieces(struct fed *x, const struct said *s, size_t step)
{
	size_t len = strlen(s->text);
	bool whole = step == 0 || s->kind == OUT_CALL || s->kind == OUT_CALL_END;
	if (whole) {
		say(x, s, s->text, len);
		return;
	}
	for (size_t at = 0, to; at < len; at = to) {
		size_t n = 0;
		for (to = at; to < len && n < step; n++)
			to += (size_t)ds_utf8_len(s->text + to, len - to);
		say(x, s, s->text + at, to - at);
	}
}

void format_feed(struct fed *x, const struct api_format *f, const struct script *s, size_t step,
		 json_t *echo)
{
	memset(x, 0, sizeof(*x));
	x->req.sample.temperature = 1.0F;
	x->req.sample.top_p = 0.95F;
	x->req.echo = echo;
	x->doc = (struct api_doc){
		.format = f, .req = &x->req, .choice = &x->choice, .n = 1, .prompt_tokens = 11
	};
	snprintf(x->doc.head.id, API_ID_BYTES, "%s0123456789abcdef", f->id_prefix);
	snprintf(x->doc.head.model, sizeof(x->doc.head.model), "demo");
	x->doc.head.created = 1700000000;
	x->usage = (struct api_usage){ .prompt = 11, .completion = 7, .reasoning = 3 };
	if (s->stop != NULL) {
		x->req.stop[0] = strdup(s->stop);
		x->req.stop_len[0] = strlen(s->stop);
		x->req.n_stop = 1;
	}
	f->begin(&x->doc, &x->stream);
	for (const struct said *p = s->said; p->kind >= 0; p++)
		say_pieces(x, p, step);
	x->choice.finish = s->finish;
	x->choice.stop_string = s->stop != NULL ? x->req.stop[0] : NULL;
	f->choice_end(&x->doc, &x->choice, &x->stream);
	f->end(&x->doc, &x->usage, &x->stream);
	memset(&x->doc.state, 0, sizeof(x->doc.state));
	f->whole(&x->doc, &x->usage, &x->whole);
}

void format_feed_fini(struct fed *x)
{
	for (uint32_t i = 0; i < x->choice.n_call; i++) {
		ds_buf_fini(&x->choice.call[i].name);
		ds_buf_fini(&x->choice.call[i].args);
	}
	free(x->choice.call);
	ds_buf_fini(&x->choice.reasoning);
	ds_buf_fini(&x->choice.content);
	ds_buf_fini(&x->stream);
	ds_buf_fini(&x->whole);
	api_request_fini(&x->req);
}

json_t *json_of(const char *text)
{
	json_error_t at;
	json_t *v = json_loads(text, JSON_DECODE_ANY, &at);
	if (v == NULL) {
		printf("not JSON: %s: %s\n", at.text, text);
		abort();
	}
	return v;
}

json_t *format_events(const struct ds_buf *stream)
{
	json_t *list = json_array();
	const char *p = stream->data != NULL ? stream->data : "";
	while (*p != '\0') {
		json_t *e = json_object();
		const char *end = strstr(p, "\n\n");
		CU_ASSERT_PTR_NOT_NULL_FATAL(end);
		if (strncmp(p, "event: ", 7) == 0) {
			const char *nl = strchr(p, '\n');
			json_object_set_new(e, "event", json_stringn(p + 7, (size_t)(nl - p - 7)));
			p = nl + 1;
		}
		CU_ASSERT_EQUAL_FATAL(strncmp(p, "data: ", 6), 0);
		json_t *data = json_loadb(p + 6, (size_t)(end - p - 6), JSON_ALLOW_NUL, NULL);
		if (data == NULL)
			data = json_stringn(p + 6, (size_t)(end - p - 6));
		json_object_set_new(e, "data", data);
		json_array_append_new(list, e);
		p = end + 2;
	}
	return list;
}

void append_string(json_t *o, const char *key, const json_t *more)
{
	const json_t *old = json_object_get(o, key);
	struct ds_buf b = { 0 };
	CU_ASSERT_TRUE_FATAL(json_is_string(more));
	ds_buf_put(&b, json_string_value(old), json_string_length(old));
	ds_buf_put(&b, json_string_value(more), json_string_length(more));
	json_object_set_new(o, key, json_stringn(b.data, b.len));
	ds_buf_fini(&b);
}
