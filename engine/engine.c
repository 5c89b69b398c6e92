/*
 * engine.c - one rank's engine: opening it, and the steps that rank 0 plans and the others follow.
 *
 * A step is one control message from rank 0 (struct step), the run itself, and a report from every
 * other rank behind it (struct step_report).
 *
 * A step carries the position it starts from. A rank that is further truncates to it, so forgetting
 * a sequence needs no message of its own, and no rank can be left behind in an old one.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "forward.h"
#include "profile.h"
#include "step.h"

/* ------------------------------------------------------------------ opening */

static uint32_t processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
		return (uint32_t)CPU_COUNT(&set);
	return 1;
}

/* Bytes of weights that one token of decode reads on this rank. */
static uint64_t touched(const struct eng *e)
{
	const struct eng_conf *c = e->conf;
	const struct eng_shard *s = eng_own(e);
	uint64_t sum = e->ops->weight_bytes(e->w.head);

	for (uint32_t l = 0; l < c->n_layers; l++) {
		const struct eng_layer *o = &e->w.layer[l];
		const struct kern_weight *all[] = {
			o->wq_a,	  o->wq_b,	o->wkv,	     o->wo_b,
			o->gate,	  o->s1,	o->s2,	     o->s3,
			o->comp_kv,	  o->comp_gate, o->index_wk, o->index_wq,
			o->index_weights, o->engram_wkv
		};

		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			sum += all[i] == NULL ? 0 : e->ops->weight_bytes(all[i]);
		for (uint32_t g = 0; g < s->group_end - s->group0; g++)
			sum += e->ops->weight_bytes(o->wo_a[g]);
		if (s->n_leaf > 0)
			sum += c->topk *
			       (e->ops->weight_bytes(o->w1[0]) + e->ops->weight_bytes(o->w2[0]) +
				e->ops->weight_bytes(o->w3[0]));
		sum += 2 * sizeof(float) * (2 + c->copies) * c->copies * c->copies * c->dim;
	}
	return sum;
}

static void rope_tables(const struct eng_conf *c, struct kern_rope rope[2])
{
	kern_rope_init(&rope[0], c->rope_dim, c->rope_theta, false, 1, 1, 1, 1);
	kern_rope_init(&rope[1], c->rope_dim, c->crope_theta, true, c->yarn_factor, c->yarn_fast,
		       c->yarn_slow, c->yarn_orig);
}

/* Positions of a sequence and rows of a run: what was asked for, within the model and the engine. */
static uint32_t plan_ctx(const struct eng_open_args *a)
{
	uint32_t most = a->conf->max_pos;

	return a->max_ctx == 0 || a->max_ctx > most ? most : a->max_ctx;
}

static uint32_t plan_rows(const struct eng_open_args *a)
{
	uint32_t rows = a->prefill_chunk == 0 || a->prefill_chunk > ENG_RUN_MAX ? ENG_RUN_MAX
										: a->prefill_chunk;

	return rows < plan_ctx(a) ? rows : plan_ctx(a);
}

static int open_parts(struct eng *e, const struct eng_open_args *a, struct ds_err *err)
{
	const struct eng_conf *c = a->conf;
	uint32_t threads = a->n_threads == 0 ? processors() : a->n_threads;

	for (uint32_t r = 0; r < a->world; r++)
		if (eng_shard_plan(c, r, a->world, a->leaves, &e->shard[r], err) != 0)
			return -1;
	if ((e->ops = kern_open(a->kernels, err)) == NULL)
		return -1;
	if (a->profile) {
		if ((e->ctx.profile = kern_profile_open(e->ops, err)) == NULL)
			return -1;
		e->ops = kern_profile_ops(e->ctx.profile);
	}
	if (threads > 1 && (e->ctx.pool = kern_pool_open(threads, err)) == NULL)
		return -1;
	if (c->n_engram > 0 && engram_open(c, &e->engram, err) != 0)
		return -1;
	rope_tables(c, e->rope);
	if (eng_session_init(&e->seq, c, a->numerics, plan_ctx(a), plan_rows(a), err) != 0 ||
	    eng_work_init(e, plan_rows(a), err) != 0)
		return -1;
	if (eng_weights_load(c, eng_own(e), e->ops, &e->w, err) != 0)
		return -1;
	e->touched_bytes = touched(e);
	return 0;
}

struct eng *eng_open(const struct eng_open_args *a, struct ds_err *err)
{
	struct eng *e;

	if (a->world < 1 || a->world > TP_WORLD_MAX || a->rank >= a->world) {
		ds_err_set(err, DS_ERR_USAGE, 0, NULL, "open rank %u of %u", a->rank, a->world);
		ds_err_why(err, "the world is 1 to %d ranks", TP_WORLD_MAX);
		return NULL;
	}
	e = calloc(1, sizeof(*e));
	if (e == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "open the engine");
		return NULL;
	}
	e->conf = a->conf;
	e->rank = a->rank;
	e->world = a->world;
	e->leaves = a->leaves;
	e->ctx.numerics = a->numerics;
	e->tp = a->tp;
	e->bad.stage = -1;
	if (open_parts(e, a, err) != 0) {
		eng_close(e);
		return NULL;
	}
	return e;
}

void eng_close(struct eng *e)
{
	if (e == NULL)
		return;
	eng_weights_free(&e->w);
	eng_work_fini(&e->work);
	eng_session_fini(&e->seq);
	if (e->conf->n_engram > 0)
		engram_close(&e->engram);
	if (e->ctx.pool != NULL)
		kern_pool_close(e->ctx.pool);
	kern_profile_close(e->ctx.profile);
	free(e->digests);
	free(e);
}

void eng_profile(struct eng *e, const char *title, double wall_ms, void *f)
{
	if (e->ctx.profile == NULL)
		return;
	kern_profile_print(e->ctx.profile, title, wall_ms, e->ctx.pool, f);
	kern_profile_reset(e->ctx.profile);
}

void eng_set_tp(struct eng *e, struct tp *tp)
{
	e->tp = tp;
}

uint32_t eng_position(const struct eng *e)
{
	return e->seq.pos;
}

const struct eng_conf *eng_model(const struct eng *e)
{
	return e->conf;
}

/* ------------------------------------------------------------------ what ranks must agree on */

/*
 * SHA-256 of what is computed rather than read: rotary frequencies, and what the set's own sines
 * make of them at positions up to the longest; Engram primes.
 */
static int constants_hash(const struct eng_conf *c, const struct kern_ops *ops, char hex[65],
			  struct ds_err *err)
{
	struct kern_ctx exact = { .numerics = KERN_EXACT };
	struct kern_rope rope[2];
	uint8_t digest[32];
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	bool ok = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;

	rope_tables(c, rope);
	for (int t = 0; t < 2; t++) {
		ok = ok && EVP_DigestUpdate(md, rope[t].freq, sizeof(float) * c->rope_dim / 2) == 1;
		for (uint32_t i = 0; i < 64; i++) {
			uint32_t pos = (uint32_t)((uint64_t)(c->max_pos - 1) * i / 63);
			float x[2 * sizeof(rope[t].freq) / sizeof(float)];

			for (uint32_t d = 0; d < c->rope_dim; d++)
				x[d] = d % 2 == 0 ? 1.0f : 0.0f;
			ops->rope(&exact, &rope[t], x, 1, 1, c->rope_dim, &pos, false);
			ok = ok && EVP_DigestUpdate(md, x, sizeof(float) * c->rope_dim) == 1;
		}
	}
	if (c->n_engram > 0) {
		struct engram g = { 0 };

		if (engram_constants(c, &g, err) != 0) {
			EVP_MD_CTX_free(md);
			return -1;
		}
		ok = ok && EVP_DigestUpdate(md, g.prime, sizeof(g.prime)) == 1 &&
		     EVP_DigestUpdate(md, c->engram_mult, sizeof(c->engram_mult)) == 1;
	}
	ok = ok && EVP_DigestFinal_ex(md, digest, NULL) == 1;
	EVP_MD_CTX_free(md);
	if (!ok)
		return ds_err_set(err, DS_ERR_NOMEM, 0, NULL, "hash the model's constants");
	for (int b = 0; b < 32; b++)
		snprintf(hex + 2 * b, 3, "%02x", digest[b]);
	return 0;
}

int eng_state_text(const struct eng_open_args *a, char *out, size_t size, struct ds_err *err)
{
	const struct kern_ops *ops = kern_open(a->kernels, err);
	char model[65], constants[65];

	if (ops == NULL || eng_digest(a->conf, model, err) != 0 ||
	    constants_hash(a->conf, ops, constants, err) != 0)
		return -1;
	int n = snprintf(out, size,
			 "version=" DS_VERSION "\nstep=%d\nmodel=%s\nnumerics=%s\nleaves=%u\n"
			 "kernels=%s\nconstants=%s\nworld=%u\nbyte_order=%s\n"
			 "context=%u\nprefill_chunk=%u\n",
			 STEP_VERSION, model, a->numerics == KERN_NATIVE ? "native" : "exact",
			 a->leaves, ops->name, constants, a->world,
			 __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? "little" : "big", plan_ctx(a),
			 plan_rows(a));

	if (n < 0 || (size_t)n >= size)
		return ds_err_set(err, DS_ERR_BUG, 0, NULL, "write the state to compare");
	return 0;
}

/* ------------------------------------------------------------------ rank 0: steps */

static int each_follower(struct eng *e, const struct step *s, size_t len, struct ds_err *err)
{
	for (uint32_t r = 1; r < e->world; r++)
		if (tp_send(e->tp, TP_CONTROL, r, s, len, err) != 0)
			return -1;
	return 0;
}

/* Where a value first stopped being finite: lowest stage, own shares before sums, lowest rank. */
static bool worse(const struct eng_bad *a, const struct eng_bad *b)
{
	if (a->stage < 0 || b->stage < 0)
		return a->stage >= 0;
	return a->stage < b->stage || (a->stage == b->stage && a->own && !b->own);
}

static int not_finite(const struct eng_bad *bad, uint32_t rank, uint32_t pos, struct ds_err *err)
{
	char obj[64];

	snprintf(obj, sizeof(obj), "layer %d, rank %u", bad->stage / 2, rank);
	ds_err_set(err, DS_ERR_HOST, 0, obj, "compute position %u", pos);
	ds_err_why(err, "%s is not finite",
		   bad->stage % 2 == 0 ? "an attention output" : "an expert output");
	ds_err_fix(err, "the weights may be damaged: compare their checksums");
	return -1;
}

/* Reports of the followers after a run, and this rank's own: the worst, and @where it was. */
static int collect(struct eng *e, struct eng_bad *worst, uint32_t *where, struct ds_err *err)
{
	*worst = e->bad;
	*where = 0;
	for (uint32_t r = 1; r < e->world; r++) {
		struct step_report got;

		if (tp_recv(e->tp, TP_CONTROL, r, &got, sizeof(got), err) != 0)
			return -1;
		if (got.magic != STEP_MAGIC || got.stage >= 2 * (int32_t)e->conf->n_layers ||
		    got.pos != e->seq.pos) {
			ds_err_set(err, DS_ERR_PEER, 0, NULL, "read the report of rank %u", r);
			return ds_err_why(err, "position %u, expected %u", got.pos, e->seq.pos);
		}
		struct eng_bad bad = { .stage = got.stage, .own = got.own != 0 };

		if (worse(&bad, worst)) {
			*worst = bad;
			*where = r;
		}
	}
	return 0;
}

static int gather_logits(struct eng *e, float *logits, struct ds_err *err)
{
	const struct eng_shard *s = eng_own(e);

	memcpy(logits + s->vocab0, e->work.logits, (s->vocab_end - s->vocab0) * sizeof(float));
	for (uint32_t r = 1; r < e->world; r++) {
		s = &e->shard[r];
		if (s->vocab_end > s->vocab0 &&
		    tp_recv(e->tp, TP_HEAD, r, logits + s->vocab0,
			    (s->vocab_end - s->vocab0) * sizeof(float), err) != 0)
			return -1;
	}
	return 0;
}

static int run_chunk(struct eng *e, const uint32_t *tokens, uint32_t n, float *logits,
		     struct ds_err *err)
{
	struct eng_bad worst;
	uint32_t where;

	if (e->world > 1) {
		struct step s = { .magic = STEP_MAGIC,
				  .version = STEP_VERSION,
				  .op = STEP_RUN,
				  .pos = e->seq.pos,
				  .n = n,
				  .want_logits = logits != NULL };

		memcpy(s.token, tokens, n * sizeof(*tokens));
		if (each_follower(e, &s, STEP_HEAD + n * sizeof(*tokens), err) != 0)
			return -1;
	}
	/* Everything that was sent is received before a verdict, so that the next step finds no rest. */
	if (eng_forward(e, tokens, n, logits != NULL, err) != 0 ||
	    collect(e, &worst, &where, err) != 0 ||
	    (logits != NULL && gather_logits(e, logits, err) != 0))
		return -1;
	if (worst.stage >= 0)
		return not_finite(&worst, where, e->seq.pos - 1, err);
	if (logits == NULL || e->ops->finite(&e->ctx, logits, e->conf->vocab))
		return 0;
	ds_err_set(err, DS_ERR_HOST, 0, "head", "compute position %u", e->seq.pos - 1);
	return ds_err_why(err, "a logit is not finite although the last layer's stream is");
}

static int check_run(const struct eng *e, const uint32_t *tokens, uint32_t n, struct ds_err *err)
{
	char id[32];

	if (e->rank != 0 || (e->world > 1 && e->tp == NULL)) {
		ds_err_set(err, DS_ERR_PEER, 0, NULL, "run %u tokens", n);
		return ds_err_why(err, "this rank has no group of %u ranks to lead", e->world);
	}
	if (n == 0 || n > e->seq.max_ctx - e->seq.pos) {
		ds_err_set(err, DS_ERR_INPUT, 0, NULL, "run %u tokens behind %u", n, e->seq.pos);
		return ds_err_why(err, "a sequence holds 1 to %u tokens", e->seq.max_ctx);
	}
	for (uint32_t i = 0; i < n; i++)
		if (tokens[i] >= e->conf->vocab) {
			snprintf(id, sizeof(id), "token id %u", tokens[i]);
			ds_err_set(err, DS_ERR_INPUT, 0, id, "look up an embedding");
			return ds_err_why(err, "the vocabulary has ids 0 to %u",
					  e->conf->vocab - 1);
		}
	return 0;
}

int eng_run(struct eng *e, const uint32_t *tokens, uint32_t n, float *logits, struct ds_err *err)
{
	if (check_run(e, tokens, n, err) != 0)
		return -1;
	for (uint32_t at = 0; at < n;) {
		uint32_t some = n - at < e->work.rows ? n - at : e->work.rows;

		if (run_chunk(e, tokens + at, some, at + some == n ? logits : NULL, err) != 0) {
			e->seq.pos = 0; /* half a sequence is none */
			return -1;
		}
		at += some;
	}
	return 0;
}

int eng_reset(struct eng *e, struct ds_err *err)
{
	(void)err; /* the next step starts at position 0 and says so to the others */
	e->seq.pos = 0;
	return 0;
}

int eng_hash_layers(struct eng *e, void *f, struct ds_err *err)
{
	free(e->digests);
	e->digests = NULL;
	e->hash_file = f;
	if (f == NULL)
		return 0;
	e->digests = calloc((size_t)e->work.rows * e->conf->n_layers, 32);
	if (e->digests == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "hash layers");
	return 0;
}

/* ------------------------------------------------------------------ numbers for people */

void eng_stats(const struct eng *e, struct eng_stats *s)
{
	struct tp_health h = { 0 };

	memset(s, 0, sizeof(*s));
	s->weight_bytes = e->w.bytes;
	s->weight_read_bytes = e->w.read_bytes;
	s->cache_bytes = e->seq.bytes;
	s->touched_bytes = e->touched_bytes;
	if (e->tp != NULL) {
		tp_health(e->tp, &h);
		memcpy(s->exchange_bytes, h.sent, sizeof(s->exchange_bytes));
	}
}

int eng_stats_all(struct eng *e, struct eng_stats *s, struct ds_err *err)
{
	struct step ask = { .magic = STEP_MAGIC, .version = STEP_VERSION, .op = STEP_STATS };

	eng_stats(e, &s[0]);
	if (each_follower(e, &ask, STEP_HEAD, err) != 0)
		return -1;
	for (uint32_t r = 1; r < e->world; r++)
		if (tp_recv(e->tp, TP_CONTROL, r, &s[r], sizeof(s[r]), err) != 0)
			return -1;
	return 0;
}

/* ------------------------------------------------------------------ ranks > 0 */

static int follow_run(struct eng *e, const struct step *s, struct ds_err *err)
{
	const struct eng_shard *own = eng_own(e);
	struct step_report done = { .magic = STEP_MAGIC };

	if (eng_session_truncate(&e->seq, s->pos) != 0) {
		ds_err_set(err, DS_ERR_PEER, 0, NULL, "go back to position %u", s->pos);
		return ds_err_why(err, "the caches reach back %d positions from %u",
				  ENG_HALF_RING - 1, e->seq.pos);
	}
	if (eng_forward(e, s->token, s->n, s->want_logits != 0, err) != 0)
		return -1;
	done.stage = e->bad.stage;
	done.own = e->bad.own;
	done.pos = e->seq.pos;
	if (tp_send(e->tp, TP_CONTROL, 0, &done, sizeof(done), err) != 0)
		return -1;
	if (s->want_logits == 0 || own->vocab_end == own->vocab0)
		return 0;
	return tp_send(e->tp, TP_HEAD, 0, e->work.logits,
		       (own->vocab_end - own->vocab0) * sizeof(float), err);
}

int eng_follow(struct eng *e, bool (*stop)(void *), void *arg, struct ds_err *err)
{
	for (;;) {
		struct step s;
		struct eng_stats stats;
		size_t len;
		int rc = tp_recv_any(e->tp, 0, &s, sizeof(s), &len, stop, arg, err);

		if (rc != 0)
			return rc > 0 ? 0 : -1;
		const struct step_limits limits = { .rows = e->work.rows,
						    .max_ctx = e->seq.max_ctx,
						    .vocab = e->conf->vocab,
						    .pos = e->seq.pos };
		const char *fault = step_fault(&s, len, &limits);

		if (fault != NULL) {
			ds_err_set(err, DS_ERR_PEER, 0, NULL, "read a step of rank 0");
			return ds_err_why(err, "%s (%zu bytes)", fault, len);
		}
		if (s.op == STEP_STATS) {
			eng_stats(e, &stats);
			rc = tp_send(e->tp, TP_CONTROL, 0, &stats, sizeof(stats), err);
		} else {
			rc = follow_run(e, &s, err);
		}
		if (rc != 0)
			return -1;
	}
}
