/*
 * health.c - what /health says.
 */
#include "health.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "json.h"

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int health_init(struct health *h, uint32_t world, struct ds_err *err)
{
	*h = (struct health){ .world = world, .since_ms = now_ms() };
	if (pthread_mutex_init(&h->lock, NULL) != 0)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "health", "make a lock");
	return 0;
}

void health_fini(struct health *h)
{
	pthread_mutex_destroy(&h->lock);
}

void health_set(struct health *h, enum health_status status, const struct ds_err *why)
{
	pthread_mutex_lock(&h->lock);
	if (h->status != status)
		h->since_ms = now_ms();
	h->status = status;
	h->why[0] = '\0';
	if (why != NULL)
		ds_err_line(why, h->why, sizeof(h->why));
	pthread_mutex_unlock(&h->lock);
}

void health_lend(struct health *h, struct tp *tp)
{
	pthread_mutex_lock(&h->lock);
	if (tp != NULL) {
		tp_health(tp, &h->last);
		h->epoch = h->last.epoch;
		h->has_last = false;
	} else if (h->tp != NULL) {
		tp_health(h->tp, &h->last);
		h->last_ms = now_ms();
		h->has_last = true;
	}
	h->tp = tp;
	pthread_mutex_unlock(&h->lock);
}

bool health_group_failed(struct health *h, struct tp_health *out)
{
	bool failed = false;
	pthread_mutex_lock(&h->lock);
	if (h->tp != NULL) {
		tp_health(h->tp, out);
		failed = out->failed;
	}
	pthread_mutex_unlock(&h->lock);
	return failed;
}

/* ---------------------------------- JSON ---------------------------------- */

static const char *path_word(enum tp_path_state s)
{
	switch (s) {
	case TP_PATH_CONNECTING:
		return "connecting";
	case TP_PATH_OK:
		return "ok";
	case TP_PATH_DOWN:
		return "down";
	}
	return "unknown";
}

static void put_path(struct ds_json *j, const struct tp_path_health *p)
{
	ds_json_object(j);
	ds_json_kstr(j, "name", p->name);
	ds_json_kstr(j, "netdev", p->netdev[0] != '\0' ? p->netdev : NULL);
	ds_json_kstr(j, "state", path_word(p->state));
	ds_json_kint(j, "since_ms", p->since_ms);
	ds_json_kuint(j, "tx_bytes", p->tx_bytes);
	ds_json_kuint(j, "rx_bytes", p->rx_bytes);
	ds_json_kuint(j, "resent", p->resent);
	ds_json_kuint(j, "downs", p->downs);
	ds_json_end(j);
}

static const struct tp_peer_health *peer_of(const struct tp_health *t, uint32_t rank)
{
	for (uint32_t i = 0; t != NULL && i < t->n_peer; i++)
		if (t->peer[i].rank == rank)
			return &t->peer[i];
	return NULL;
}

/* @t: NULL before the first group; then the other ranks are only awaited. */
static void put_ranks(struct ds_json *j, const struct health *h, const struct tp_health *t)
{
	ds_json_key(j, "ranks");
	ds_json_array(j);
	for (uint32_t r = 0; r < h->world; r++) {
		const struct tp_peer_health *p = peer_of(t, r);
		const char *state = r == 0	    ? "ok"
				    : p == NULL	    ? "awaited"
				    : p->lost	    ? "lost"
				    : h->tp == NULL ? "awaited"
						    : "ok";
		ds_json_object(j);
		ds_json_kuint(j, "rank", r);
		ds_json_kstr(j, "state", state);
		ds_json_key(j, "paths");
		ds_json_array(j);
		for (uint32_t i = 0; p != NULL && i < p->n_path; i++)
			put_path(j, &p->path[i]);
		ds_json_end(j);
		ds_json_end(j);
	}
	ds_json_end(j);
}

/* The path to blame: of a lost rank the one that spoke last, else the first that is not ok. */
static const struct tp_path_health *worst_path(const struct tp_peer_health *p)
{
	if (p->lost && p->last_path < p->n_path && p->path[p->last_path].state != TP_PATH_OK)
		return &p->path[p->last_path];
	for (uint32_t i = 0; i < p->n_path; i++)
		if (p->path[i].state != TP_PATH_OK)
			return &p->path[i];
	return NULL;
}

static void put_culprit(struct ds_json *j, const struct health *h, const struct tp_health *t)
{
	const struct tp_peer_health *guilty = NULL;
	for (uint32_t i = 0; t != NULL && i < t->n_peer; i++)
		if (t->peer[i].lost || (guilty == NULL && worst_path(&t->peer[i]) != NULL))
			guilty = &t->peer[i];
	bool words = h->why[0] != '\0' || (t != NULL && t->culprit[0] != '\0');
	if (guilty == NULL && !words) {
		ds_json_knull(j, "culprit");
		return;
	}
	const struct tp_path_health *path = guilty != NULL ? worst_path(guilty) : NULL;
	int64_t since = path != NULL && !guilty->lost ? path->since_ms : now_ms() - h->since_ms;
	ds_json_key(j, "culprit");
	ds_json_object(j);
	if (guilty != NULL)
		ds_json_kuint(j, "rank", guilty->rank);
	else
		ds_json_knull(j, "rank");
	ds_json_kstr(j, "path", path != NULL ? path->name : NULL);
	bool called = t != NULL && t->failed && t->last_call[0] != '\0';
	ds_json_kstr(j, "collective", called ? t->last_call : NULL);
	ds_json_kint(j, "since_ms", since);
	ds_json_kstr(j, "text", h->why[0] != '\0' ? h->why : t != NULL ? t->culprit : NULL);
	ds_json_end(j);
}

/* What a client sees: a lost rank counts before the owner thread has noticed it. */
static const char *status_word(const struct health *h, const struct tp_health *t)
{
	switch (h->status) {
	case HEALTH_LOADING:
		return "loading";
	case HEALTH_DRAINING:
		return "draining";
	case HEALTH_FAILED:
		return "failed";
	case HEALTH_OK:
		break;
	}
	if (t != NULL && t->failed)
		return "failed";
	return t != NULL && t->degraded ? "degraded" : "ok";
}

/* The group that failed, as old as it is by now. */
static void recall(const struct health *h, struct tp_health *out)
{
	int64_t age = now_ms() - h->last_ms;
	*out = h->last;
	for (uint32_t i = 0; i < out->n_peer; i++)
		for (uint32_t k = 0; k < out->peer[i].n_path; k++)
			out->peer[i].path[k].since_ms += age;
}

unsigned int health_put(struct health *h, bool word_only, struct ds_buf *out)
{
	struct ds_json j;
	struct tp_health now;
	const struct tp_health *t = NULL;
	pthread_mutex_lock(&h->lock);
	if (h->tp != NULL) {
		tp_health(h->tp, &now);
		t = &now;
	} else if (h->has_last) {
		recall(h, &now);
		t = &now;
	}
	const char *word = status_word(h, t);
	bool good = strcmp(word, "ok") == 0 || strcmp(word, "degraded") == 0;
	ds_json_init(&j, out, 0);
	ds_json_object(&j);
	ds_json_kint(&j, "format", 1);
	ds_json_kstr(&j, "status", word);
	if (!word_only) {
		ds_json_kuint(&j, "epoch", h->epoch);
		if (strcmp(word, "ok") == 0)
			ds_json_knull(&j, "culprit");
		else
			put_culprit(&j, h, t);
		put_ranks(&j, h, t);
	}
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
	pthread_mutex_unlock(&h->lock);
	return good ? 200 : 503;
}
