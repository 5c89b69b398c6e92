/*
 * complete.c - from an answer's prompt to its last token.
 */
#include "complete.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "sample.h"

/* Added tokens that an answer may hold: its end, and the two that chat.h reads. */
static const char *const allowed_specials[] = { "<think>", "</think>" };

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
	struct chat_out out;
	struct ds_buf reasoning, content; /* of the last token */
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

static void give(struct course *k)
{
	if (answer_text(k->a, &k->reasoning, &k->content) && k->finish == NULL) {
		k->finish = "stop";
		k->by_string = true;
	}
	ds_buf_reset(&k->reasoning);
	ds_buf_reset(&k->content);
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
		return 0;
	}
	chat_out_put(&k->out, *id, &k->reasoning, &k->content);
	give(k);
	if (k->finish == NULL && is_stop_id(&k->a->req, *id))
		k->finish = "stop";
	if (k->finish == NULL && (k->usage.completion >= k->a->max_tokens || over_time(k)))
		k->finish = "length";
	return 0;
}

/* Return: 0 with k->finish set; 1 the client left; -1. */
static int decode(struct course *k, struct ds_err *err)
{
	uint32_t id;
	for (;;) {
		if (draw(k, &id, err) != 0)
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
	if (!k->by_string) {
		chat_out_end(&k->out, &k->reasoning, &k->content);
		const char *finish = k->finish;
		k->finish = NULL; /* the flushed text may still complete a stop string */
		give(k);
		if (k->finish == NULL)
			k->finish = finish;
	}
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

int complete_run(struct complete *c, struct answer *a, struct ds_err *err)
{
	struct course k = { .c = c, .a = a, .begin_ms = now_ms() };
	k.usage.prompt = (uint32_t)a->prompt.ids.n;
	k.usage.seed = a->req.sample.seed;
	remember_prompt(c, &a->prompt.ids);
	chat_out_init(&k.out, c->tok, a->prompt.thinking);
	k.out.started = a->prompt.open;
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
	ds_buf_fini(&k.reasoning);
	ds_buf_fini(&k.content);
	return rc < 0 && err->kind == DS_ERR_PEER ? -1 : 0;
}
