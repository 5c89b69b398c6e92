/*
 * chat.c - a conversation's turns to the prompt that DeepSeek-V4.1 (or V4) was trained on.
 *
 * Owns the layout: which marks stand where, whose reasoning is kept, where effort line, tools and
 * calls go. Marks are put by id. All text of a client, whoever wrote it, is encoded with added
 * tokens off, so that a user who types "<think>" gets those seven characters; and text between two
 * marks is encoded as one run, because cutting it anywhere else could change its ids.
 *
 * Source of the layout and of its fixed texts: the model's release notes and its public encoder
 * ports; the rules are those of the V4.1 release where it and later ports differ.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_int.h"
#include "pyjson.h"

enum mark {
	BOS,
	EOS,
	SYSTEM,
	USER,
	ASSISTANT,
	THINK,
	THINK_END,
	DSML,
	REMINDER,
	N_MARKS
};

static const char *const mark_text[N_MARKS] = {
	[BOS] = "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
	[EOS] = "<\uff5cend\u2581of\u2581sentence\uff5c>",
	[SYSTEM] = "<\uff5cSystem\uff5c>",
	[USER] = "<\uff5cUser\uff5c>",
	[ASSISTANT] = "<\uff5cAssistant\uff5c>",
	[THINK] = "<think>",
	[THINK_END] = "</think>",
	[DSML] = "\uff5cDSML\uff5c",
	[REMINDER] = "<\uff5clatest_reminder\uff5c>",
};

/* In the templates: @d the DSML mark, @t and @e begin and end of reasoning, and the tags' names. */
static const struct version {
	const char *calls, *invoke, *parameter; /* @c, @i, @p */
	bool marks_system;   /* system text has a mark, and one in the middle is answered */
	const char *effort;  /* @n the number */
	uint32_t effort_min; /* written from this effort on */
} versions[] = {
	{ " calls", " invoke", " parameter", true,
	  "Reasoning Effort: @n (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
	  1 },
	{ "tool_calls", "invoke", "parameter", false,
	  "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
	  "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
	  "Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n",
	  100 },
};

/* Protocol constants of the release: a byte that differs is another prompt. The schemas stand between the two. */
static const char tools_head[] =
	"## Tools\n\n"
	"You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \"<@d@c>\" block like the following:\n\n"
	"<@d@c>\n"
	"<@d@i name=\"$TOOL_NAME\">\n"
	"<@d@p name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</@d@p>\n"
	"...\n"
	"</@d@i>\n"
	"<@d@i name=\"$TOOL_NAME2\">\n"
	"...\n"
	"</@d@i>\n"
	"</@d@c>\n\n"
	"String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
	"If thinking_mode is enabled (triggered by @t), you MUST output your complete reasoning inside @t...@e BEFORE any tool calls or final response.\n\n"
	"Otherwise, output directly after @e with tool calls or final response.\n\n"
	"### Available Tool Schemas\n\n";
static const char tools_tail[] =
	"\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";
static const char format_head[] =
	"## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

/* ----------------------------------- text, marks, templates ---------------------------------- */

struct writer {
	const struct tok *t;
	const struct version *v;
	struct chat_prompt *out;
	struct tok_ids *ids; /* where they go: out->ids but for an opening that comes later */
	struct ds_buf *text; /* beside them; NULL = nowhere */
	struct ds_buf run;   /* text since the last mark */
	struct ds_buf json;  /* scratch */
	struct ds_err *err;
	int rc; /* -1 after the first failure; everything later does nothing */
};

static void put_text(struct writer *w, const char *text, size_t len)
{
	if (len == 0)
		return;
	ds_buf_put(&w->run, text, len);
	if (w->text != NULL)
		ds_buf_put(w->text, text, len);
}

static void put_string(struct writer *w, const json_t *s)
{
	put_text(w, json_string_value(s), json_string_length(s));
}

static void put_json(struct writer *w, const json_t *v)
{
	ds_buf_reset(&w->json);
	pyjson_dump(v, &w->json);
	if (w->json.failed)
		w->run.failed = true;
	put_text(w, w->json.data, w->json.len);
}

static void end_run(struct writer *w)
{
	if (w->rc == 0 && (w->run.failed || (w->text != NULL && w->text->failed)))
		w->rc = chat_no_memory(w->err);
	if (w->rc == 0 && w->run.len > 0)
		w->rc = tok_encode(w->t, w->run.data, w->run.len, false, w->ids, w->err);
	ds_buf_reset(&w->run);
}

static void put_mark(struct writer *w, enum mark m)
{
	int32_t id = tok_special(w->t, mark_text[m]);

	end_run(w);
	if (w->rc == 0 && id < 0) {
		ds_err_set(w->err, DS_ERR_INPUT, 0, "tokenizer.json", "encode conversation");
		w->rc = ds_err_why(w->err, "has no added token %s", mark_text[m]);
	}
	if (w->rc == 0)
		w->rc = tok_ids_put(w->ids, (uint32_t)id, w->err);
	if (w->text != NULL)
		ds_buf_puts(w->text, mark_text[m]);
}

static void put_letter(struct writer *w, char letter)
{
	static const struct {
		char letter;
		enum mark mark;
	} marks[] = { { 'd', DSML }, { 't', THINK }, { 'e', THINK_END } };
	char number[16];
	const char *s = number;

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (marks[i].letter == letter) {
			put_mark(w, marks[i].mark);
			return;
		}
	snprintf(number, sizeof(number), "%u", w->out->effort);
	if (letter != 'n')
		s = letter == 'c' ? w->v->calls : letter == 'i' ? w->v->invoke : w->v->parameter;
	put_text(w, s, strlen(s));
}

/* One of our own texts, with its letters. */
static void put_template(struct writer *w, const char *s)
{
	for (const char *at; (at = strchr(s, '@')) != NULL; s = at + 2) {
		put_text(w, s, (size_t)(at - s));
		put_letter(w, at[1]);
	}
	put_text(w, s, strlen(s));
}

/* ------------------------------------- pieces of a turn -------------------------------------- */

/* Parts are joined by an empty line, as the release's encoder does. */
static void put_content(struct writer *w, const json_t *content)
{
	if (json_is_string(content))
		put_string(w, content);
	for (size_t i = 0; i < json_array_size(content); i++) {
		put_template(w, i > 0 ? "\n\n" : "");
		put_string(w, json_object_get(json_array_get(content, i), "text"));
	}
}

static void put_parts(struct writer *w, const struct chat_turn *t)
{
	for (size_t i = 0; i < t->n_part; i++) {
		const struct chat_part *p = &t->part[i];
		put_template(w, i > 0 ? "\n\n" : "");
		put_template(w, p->result ? "<tool_result>" : "");
		put_content(w, p->content);
		put_template(w, p->result ? "</tool_result>" : "");
	}
}

static void put_call(struct writer *w, const json_t *name, const json_t *args)
{
	const char *sep = "", *key;
	json_t *v;

	put_template(w, "<@d@i name=\"");
	put_string(w, name);
	put_template(w, "\">\n");
	json_object_foreach ((json_t *)args, key, v) {
		put_template(w, sep);
		put_template(w, "<@d@p name=\"");
		put_text(w, key, strlen(key)); /* jansson takes no NUL in a key */
		put_template(w, json_is_string(v) && pyjson_integer(v) == NULL
					? "\" string=\"true\">"
					: "\" string=\"false\">");
		if (json_is_string(v) && pyjson_integer(v) == NULL)
			put_string(w, v);
		else
			put_json(w, v);
		put_template(w, "</@d@p>");
		sep = "\n";
	}
	put_template(w, "\n</@d@i>");
}

/* The calls of one assistant's message, as the model would have written them. */
static void put_calls(struct writer *w, const struct chat_turn *t)
{
	if (t->calls == NULL)
		return;
	put_template(w, "\n\n<@d@c>\n");
	for (size_t i = 0; i < json_array_size(t->calls); i++) {
		const json_t *call = json_array_get(t->calls, i);
		put_template(w, i > 0 ? "\n" : "");
		put_call(w, json_object_get(json_object_get(call, "function"), "name"),
			 json_array_get(t->args, i));
	}
	put_template(w, "\n</@d@c>");
}

/* @request, @own: function objects, and a message's tools that hold some; one schema a line. */
static void put_tools(struct writer *w, const json_t *request, size_t n_request, const json_t *own)
{
	const char *sep = "";

	if (n_request + json_array_size(own) == 0)
		return;
	put_template(w, "\n\n");
	put_template(w, tools_head);
	for (size_t i = 0; i < n_request; i++, sep = "\n") {
		put_template(w, sep);
		put_json(w, json_array_get(request, i));
	}
	for (size_t i = 0; i < json_array_size(own); i++, sep = "\n") {
		put_template(w, sep);
		put_json(w, json_object_get(json_array_get(own, i), "function"));
	}
	put_template(w, tools_tail);
}

/* ---------------------------------------- the layout ----------------------------------------- */

/* How the turns of a conversation lie. */
struct layout {
	const struct chat_turns *l;
	size_t first; /* turns that stand in front of all others: 1 with a system message there, else 0 */
	size_t asked;	  /* turns up to and including the last question */
	size_t n_request; /* of out->tools, the request's own */
	bool keep_all;	  /* no reasoning is dropped */
};

/* A turn that the assistant answers. */
static bool is_question(const struct writer *w, const struct layout *y, size_t i)
{
	enum chat_role role = y->l->turn[i].role;

	return role == CHAT_USER || (role == CHAT_SYSTEM && w->v->marks_system && i >= y->first);
}

static bool keeps(const struct writer *w, const struct layout *y, size_t i)
{
	return w->out->thinking && (y->keep_all || i >= y->asked);
}

/* System text, effort line, tools and format; in thinking mode the effort line stands there even alone. */
static void put_first(struct writer *w, const struct layout *y)
{
	const struct chat_turn *system = y->first == 1 ? &y->l->turn[0] : NULL;
	bool effort = w->out->effort >= w->v->effort_min;

	if (w->v->marks_system &&
	    (system != NULL || effort || y->n_request > 0 || w->out->format != NULL))
		put_mark(w, SYSTEM);
	if (effort)
		put_template(w, w->v->effort);
	if (system != NULL)
		put_parts(w, system);
	put_tools(w, w->out->tools, y->n_request, system != NULL ? system->tools : NULL);
	if (w->out->format != NULL) {
		put_template(w, "\n\n");
		put_template(w, format_head);
		put_json(w, w->out->format);
	}
}

static void put_header(struct writer *w, bool think)
{
	put_mark(w, ASSISTANT);
	put_mark(w, think ? THINK : THINK_END);
}

/* Whether a turn has nothing behind its reasoning. */
static bool only_reasons(const struct chat_turn *t)
{
	bool said = false;

	for (size_t i = 0; i < t->n_part; i++)
		said = said || json_string_length(t->part[i].content) > 0 ||
		       json_array_size(t->part[i].content) > 0;
	return !said && t->calls == NULL && json_string_length(t->reasoning) > 0;
}

/* Behind its header. @keep: with its reasoning; @open: generation goes on behind it, in the reasoning if that is all */
static void put_assistant(struct writer *w, const struct chat_turn *t, bool keep, bool open)
{
	bool inside = keep && open && only_reasons(t);

	if (open)
		w->out->thinking = inside;
	if (keep)
		put_string(w, t->reasoning);
	if (keep && !inside)
		put_mark(w, THINK_END);
	put_parts(w, t);
	put_calls(w, t);
	if (!open)
		put_mark(w, EOS);
}

static void put_asked(struct writer *w, const struct chat_turn *t)
{
	if (t->role == CHAT_REMINDER)
		put_mark(w, REMINDER);
	else if (t->role == CHAT_USER)
		put_mark(w, USER);
	else if (w->v->marks_system)
		put_mark(w, SYSTEM);
	put_parts(w, t);
	put_tools(w, NULL, 0, t->tools);
}

/*
 * What a forced call begins with. Text is cut only where the model's own tokens end: behind ">" and a line
 * feed, in front of "<".
 */
static void put_forced(struct writer *w, struct tok_ids *ids, struct ds_buf *text)
{
	w->ids = ids;
	w->text = text;
	put_template(w, "\n\n<@d@c>\n");
	if (w->out->named != NULL) {
		put_template(w, "<@d@i name=\"");
		put_text(w, w->out->named, strlen(w->out->named));
		put_template(w, "\">\n");
	}
	end_run(w);
}

static void put_turns(struct writer *w, const struct layout *y)
{
	const struct chat_turns *l = y->l;
	bool header = false; /* it stands already, whatever came behind it */

	put_mark(w, BOS);
	put_first(w, y);
	for (size_t i = y->first; i < l->n; i++) {
		const struct chat_turn *t = &l->turn[i];
		if (t->role == CHAT_ASSISTANT) {
			if (!header)
				put_header(w, keeps(w, y, i));
			put_assistant(w, t, keeps(w, y, i), l->open && i + 1 == l->n);
			header = false;
			continue;
		}
		put_asked(w, t);
		/* A reminder stands behind the header of the question in front of it. */
		if (is_question(w, y, i) && i + 1 < l->n && l->turn[i + 1].role == CHAT_REMINDER) {
			put_header(w, keeps(w, y, i + 1));
			header = true;
		}
	}
	/* Behind an assistant's turn as well: generation from its end mark stops at once or loops. */
	if (!l->open && !l->closed && !header)
		put_header(w, w->out->thinking);
	end_run(w);
}

/* The forced opening, at the end of the prompt or for later. */
static void put_choice(struct writer *w)
{
	struct chat_prompt *out = w->out;

	if (w->rc != 0 || (out->choice != CHAT_MUST && out->choice != CHAT_MUST_ONE))
		return;
	put_forced(w, &out->forced, NULL);
	out->forced_given = !out->thinking;
	if (out->forced_given)
		put_forced(w, &out->ids, &out->text);
}

static int write_prompt(const struct tok *t, const struct chat_turns *l, size_t n_request,
			struct chat_prompt *out, struct ds_err *err)
{
	bool v41 = tok_special(t, mark_text[SYSTEM]) >= 0;
	struct writer w = { .t = t, .v = &versions[v41 ? 0 : 1], .out = out, .err = err };
	struct layout y = { .l = l, .n_request = n_request };

	w.ids = &out->ids;
	w.text = &out->text;
	y.first = l->turn[0].role == CHAT_SYSTEM;
	y.keep_all = l->keep_all || out->tools != NULL;
	for (size_t i = y.first; i < l->n; i++)
		if (is_question(&w, &y, i))
			y.asked = i + 1;
	put_turns(&w, &y);
	put_choice(&w);
	ds_buf_fini(&w.run);
	ds_buf_fini(&w.json);
	return w.rc;
}

/* A call cannot be forced where the answer does not begin. */
static int check_forced(const struct chat_prompt *out, const struct chat_turns *l,
			struct ds_err *err)
{
	if ((out->choice == CHAT_MUST || out->choice == CHAT_MUST_ONE) && (l->open || l->closed))
		return chat_refuse(err, "tool_choice",
				   "a call cannot be forced without a fresh generation prompt");
	return 0;
}

int chat_encode(const struct tok *t, const json_t *body, bool thinking_default,
		struct chat_prompt *out, struct ds_err *err)
{
	struct chat_turns l = { 0 };
	int rc = -1;

	*out = (struct chat_prompt){ 0 };
	if (!json_is_object(body))
		return chat_refuse(err, "body", "is not a JSON object");
	if (chat_read_knobs(body, thinking_default, out, err) == 0 &&
	    chat_read_turns(&l, body, err) == 0 && chat_read_tools(body, out, err) == 0 &&
	    check_forced(out, &l, err) == 0)
		rc = write_prompt(t, &l, json_array_size(json_object_get(body, "tools")), out, err);
	out->open = l.open;
	if (l.closed)
		out->thinking = false;
	chat_turns_fini(&l);
	if (rc != 0)
		chat_prompt_fini(out);
	return rc;
}

void chat_prompt_fini(struct chat_prompt *p)
{
	tok_ids_fini(&p->ids);
	tok_ids_fini(&p->forced);
	ds_buf_fini(&p->text);
	json_decref(p->tools);
	json_decref(p->format);
	*p = (struct chat_prompt){ 0 };
}
