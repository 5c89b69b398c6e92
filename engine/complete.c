/*
 * complete.c - from an answer's prompt to its last token.
 */
#include "complete.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "out_parse.h"
#include "sample.h"

/* Added tokens that any answer may hold, besides its end; one with tools may hold that of calls too. */
static const char *const allowed_specials[] = { "<think>", "</think>" };
static const char call_special[] = "\uff5cDSML\uff5c";

static void ban(struct complete *c, const struct eng_conf *conf)
{
	for (uint32_t id = 0; id < c->vocab; id++) {
		size_t len;
		c->banned[id] = tok_bytes(c->tok, id, &len) == NULL ||
				(tok_is_special(c->tok, id) && id != conf->eos);
	}
	for (size_t i = 0; i < sizeof(allowed_specials) / sizeof(allowed_specials[0]); i++) {
		int32_t id = tok_special(c->tok, allowed_specials[i]);
		if (id >= 0 && (uint32_t)id < c->vocab)
			c->banned[id] = false;
	}
}

/* Per answer: without tools, or when none may be called, a call cannot even begin. */
static void ban_calls(struct complete *c, bool banned)
{
	int32_t id = tok_special(c->tok, call_special);

	if (id >= 0 && (uint32_t)id < c->vocab)
		c->banned[id] = banned;
}

int complete_init(struct complete *c, struct eng *eng, const struct tok *tok, uint32_t chunk,
		  int64_t time_limit_ms, struct ds_err *err)
{
	const struct eng_conf *conf = eng_model(eng);
	*c = (struct complete){ .eng = eng,
				.tok = tok,
				.vocab = conf->vocab,
				.eos = conf->eos,
				.chunk = chunk,
				.time_limit_ms = time_limit_ms };
	c->logits = calloc(conf->vocab, sizeof(*c->logits));
	c->banned = calloc(conf->vocab, sizeof(*c->banned));
	c->scratch = malloc(sample_scratch(conf->vocab));
	c->in_prompt = calloc(conf->vocab, sizeof(*c->in_prompt));
	c->in_answer = calloc(conf->vocab, sizeof(*c->in_answer));
	if (c->logits == NULL || c->banned == NULL || c->scratch == NULL || c->in_prompt == NULL ||
	    c->in_answer == NULL) {
		complete_fini(c);
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "logits", "prepare to answer");
	}
	ban(c, conf);
	return 0;
}

void complete_fini(struct complete *c)
{
	free(c->logits);
	free(c->banned);
	free(c->scratch);
	free(c->in_prompt);
	free(c->in_answer);
	*c = (struct complete){ 0 };
}

/* One answer in the making. */
struct course {
	struct complete *c;
	struct answer *a;
	struct out_parse out;
	bool forced; /* the forced calls have begun, or none are forced */
	bool ended;  /* by the model's end token */
	struct api_usage usage;
	double begin_ms, prefilled_ms;
	const char *finish; /* NULL = goes on */
	bool by_string;
};

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static bool over_time(const struct course *k)
{
	return now_ms() - k->begin_ms > (double)k->c->time_limit_ms;
}

/* An answer can end early; a prompt that is only half read has none to give. */
static int too_slow(const struct course *k, size_t at, struct ds_err *err)
{
	ds_err_set(err, DS_ERR_TIMEOUT, 0, NULL, "read the prompt");
	ds_err_why(err, "the time limit of %lld s passed after %zu of %zu tokens",
		   (long long)(k->c->time_limit_ms / 1000), at, k->a->prompt.ids.n);
	return ds_err_fix(err, "send a shorter prompt, or raise time_limit_s");
}

/* Return: 0; 1 the client left; -1. */
static int prefill(struct course *k, struct ds_err *err)
{
	const struct tok_ids *ids = &k->a->prompt.ids;
	if (eng_reset(k->c->eng, err) != 0)
		return -1;
	for (size_t at = 0; at < ids->n;) {
		size_t n = ids->n - at < k->c->chunk ? ids->n - at : k->c->chunk;
		bool last = at + n == ids->n;
		if (answer_gone(k->a))
			return 1;
		if (over_time(k))
			return too_slow(k, at, err);
		if (eng_run(k->c->eng, ids->id + at, (uint32_t)n, last ? k->c->logits : NULL,
			    err) != 0)
			return -1;
		at += n;
	}
	return 0;
}

/* Of an event of the parser. Behind a stop string nothing is said any more. */
static void say(void *course, const struct out_event *ev)
{
	struct course *k = course;

	if (k->by_string)
		return;
	if (ev->kind == OUT_CONTENT)
		k->by_string = answer_content(k->a, ev->text, ev->len);
	else
		answer_event(k->a, ev);
	if (k->by_string)
		k->finish = "stop";
}

static int check_parser(const struct course *k, struct ds_err *err)
{
	return k->out.failed ? ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "text", "read the answer") : 0;
}

/* What the penalties look back on. */
static void remember_prompt(struct complete *c, const struct tok_ids *ids)
{
	memset(c->in_prompt, 0, c->vocab * sizeof(*c->in_prompt));
	memset(c->in_answer, 0, c->vocab * sizeof(*c->in_answer));
	for (size_t i = 0; i < ids->n; i++)
		c->in_prompt[ids->id[i]] = true;
}

/* Whether @id ends the answer by the request's own list. */
static bool is_stop_id(const struct api_request *r, uint32_t id)
{
	bool stop = false;
	for (uint32_t i = 0; i < r->n_stop_id; i++)
		stop = stop || r->stop_id[i] == id;
	return stop;
}

/* Ends are banned until min_tokens are there. */
static int32_t sample(struct course *k)
{
	struct complete *c = k->c;
	const struct api_request *r = &k->a->req;
	const struct sample_past past = { c->in_prompt, c->in_answer };
	uint64_t position = (uint64_t)k->usage.prompt + k->usage.completion;
	bool early = k->usage.completion < r->min_tokens, was[API_STOPS_MAX + 1];
	for (uint32_t i = 0; early && i <= r->n_stop_id; i++) {
		uint32_t id = i < r->n_stop_id ? r->stop_id[i] : c->eos;
		was[i] = c->banned[id];
		c->banned[id] = true;
	}
	int32_t got = sample_token(c->logits, c->vocab, c->banned, &r->sample,
				   sample_looks_back(&r->sample) ? &past : NULL, position, 0,
				   c->scratch);
	for (uint32_t i = r->n_stop_id + 1; early && i-- > 0;)
		c->banned[i < r->n_stop_id ? r->stop_id[i] : c->eos] = was[i];
	if (got >= 0)
		c->in_answer[got]++;
	return got;
}

/* Draws the next token and says what it means. Return: 0 with *id; -1. */
static int draw(struct course *k, uint32_t *id, struct ds_err *err)
{
	struct complete *c = k->c;
	int32_t got = sample(k);
	if (got < 0) {
		ds_err_set(err, DS_ERR_HOST, 0, "logits", "choose a token");
		return ds_err_why(err, "none of them is a finite number");
	}
	*id = (uint32_t)got;
	k->usage.completion++;
	if (*id == c->eos && !k->a->req.ignore_eos) {
		k->finish = "stop";
		k->ended = true;
		return 0;
	}
	out_parse_put(&k->out, *id);
	if (k->finish == NULL && is_stop_id(&k->a->req, *id))
		k->finish = "stop";
	if (k->finish == NULL && (k->usage.completion >= k->a->max_tokens || over_time(k)))
		k->finish = "length";
	return check_parser(k, err);
}

/*
 * A call that has to come begins when the reasoning has ended: its opening is the prompt's end in chat mode,
 * else it is put behind "</think>", as if it had been drawn.
 */
static int force(struct course *k, struct ds_err *err)
{
	const struct tok_ids *ids = &k->a->prompt.forced;
	bool given = k->a->prompt.forced_given;

	if (k->forced || (k->out.reasoning && !k->out.proven))
		return 0;
	k->forced = true;
	if (ids->n == 0 || k->out.state != OUT_TEXT)
		return 0;
	for (size_t i = 0; i < ids->n; i++) {
		out_parse_put(&k->out, ids->id[i]);
		k->c->in_answer[ids->id[i]] += !given;
	}
	if (given)
		return check_parser(k, err);
	k->usage.completion += (uint32_t)ids->n;
	if (k->usage.completion >= k->a->max_tokens)
		k->finish = "length";
	else if (eng_run(k->c->eng, ids->id, (uint32_t)ids->n, k->c->logits, err) != 0)
		return -1;
	return check_parser(k, err);
}

/* Return: 0 with k->finish set; 1 the client left; -1. */
static int decode(struct course *k, struct ds_err *err)
{
	uint32_t id;
	for (;;) {
		if (force(k, err) != 0)
			return -1;
		if (k->finish == NULL && draw(k, &id, err) != 0)
			return -1;
		if (k->finish != NULL)
			return 0;
		if (answer_gone(k->a))
			return 1;
		if (eng_run(k->c->eng, &id, 1, k->c->logits, err) != 0)
			return -1;
	}
}

static void end(struct course *k)
{
	/* What was held back may still complete a stop string. */
	out_parse_end(&k->out, k->ended);
	if (strcmp(k->finish, "stop") == 0 && !k->by_string && k->out.n_complete > 0)
		k->finish = "tool_calls";
	k->usage.reasoning = k->out.n_reasoning;
	k->usage.predicted_ms = now_ms() - k->prefilled_ms;
	answer_end(k->a, k->finish, k->by_string, &k->usage);
	ds_log(DS_LOG_INFO, "sched",
	       "answered id=%s prompt=%u tokens=%u finish=%s prompt_ms=%.0f predicted_ms=%.0f",
	       k->a->doc.head.id, k->usage.prompt, k->usage.completion, k->finish,
	       k->usage.prompt_ms, k->usage.predicted_ms);
}

static void give_up(struct course *k, int rc, const struct ds_err *err)
{
	if (rc > 0) {
		answer_left(k->a);
		ds_log(DS_LOG_INFO, "sched", "cancelled id=%s prompt=%u tokens=%u",
		       k->a->doc.head.id, k->usage.prompt, k->usage.completion);
	} else {
		answer_fail(k->a, err);
		ds_log_err(DS_LOG_ERROR, "sched", err);
	}
}

static bool may_call(const struct answer *a)
{
	return a->prompt.tools != NULL && a->prompt.choice != CHAT_NO_CALL;
}

int complete_run(struct complete *c, struct answer *a, struct ds_err *err)
{
	struct course k = { .c = c, .a = a, .begin_ms = now_ms() };
	k.usage.prompt = (uint32_t)a->prompt.ids.n;
	k.usage.seed = a->req.sample.seed;
	remember_prompt(c, &a->prompt.ids);
	struct out_parse_opts o = { .thinking = a->prompt.thinking,
				    .open = a->prompt.open,
				    .calls = may_call(a),
				    .tools = a->prompt.tools };
	out_parse_init(&k.out, c->tok, &o, say, &k);
	ban_calls(c, !o.calls);
	answer_start(a);
	int rc = prefill(&k, err);
	k.prefilled_ms = now_ms();
	k.usage.prompt_ms = k.prefilled_ms - k.begin_ms;
	if (rc == 0)
		rc = decode(&k, err);
	if (rc == 0)
		end(&k);
	else
		give_up(&k, rc, err);
	out_parse_fini(&k.out);
	return rc < 0 && err->kind == DS_ERR_PEER ? -1 : 0;
}
