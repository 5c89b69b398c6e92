/*
 * pathwatch.c - says in the log, on every rank, when a path goes down and when it is back.
 *
 * The transport does not log (it returns errors) and the loss of one path is no error: work goes on
 * on the other. Somebody still has to say so, on the rank that saw it; rank 0's /health shows rank
 * 0's side only. Looking is cheap, and a flap between two looks shows in the `downs` count.
 */
#include "pathwatch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"

#define LOOK_MS 100

struct pathwatch {
	struct tp *tp;
	pthread_t thread;
	pthread_mutex_t lock; /* covers stop */
	pthread_cond_t wake;
	bool stop;
	struct tp_health seen; /* the thread's own */
};

/* A path of the same peer that still carries; NULL = none. */
static const struct tp_path_health *other_path(const struct tp_peer_health *p, uint32_t not_this)
{
	for (uint32_t i = 0; i < p->n_path; i++)
		if (i != not_this && p->path[i].state == TP_PATH_OK)
			return &p->path[i];
	return NULL;
}

static void say(const struct tp_peer_health *p, uint32_t i, const struct tp_path_health *was)
{
	const struct tp_path_health *now = &p->path[i], *other = other_path(p, i);
	unsigned long long resent = 0;

	for (uint32_t k = 0; k < p->n_path; k++)
		resent += p->path[k].resent;
	if (now->downs != was->downs)
		ds_log(DS_LOG_WARN, "net",
		       "path down peer=%u path=%s netdev=%s downs=%u resent=%llu: %s%s", p->rank,
		       now->name, now->netdev, now->downs, resent,
		       other != NULL ? "continuing on " : "no other path is left",
		       other != NULL ? other->name : "");
	if (now->state == TP_PATH_OK && (was->state != TP_PATH_OK || now->downs != was->downs) &&
	    now->downs > 0)
		ds_log(DS_LOG_INFO, "net", "path ok again peer=%u path=%s netdev=%s resent=%llu",
		       p->rank, now->name, now->netdev, resent);
}

static void look(struct pathwatch *w)
{
	struct tp_health now;

	tp_health(w->tp, &now);
	for (uint32_t r = 0; r < now.n_peer; r++)
		for (uint32_t i = 0; i < now.peer[r].n_path; i++)
			say(&now.peer[r], i, &w->seen.peer[r].path[i]);
	w->seen = now;
}

static void *watch(void *arg)
{
	struct pathwatch *w = arg;
	bool stop = false;

	while (!stop) {
		struct timespec until;

		look(w);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOOK_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_mutex_lock(&w->lock);
		while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
			continue;
		stop = w->stop;
		pthread_mutex_unlock(&w->lock);
	}
	look(w);
	return NULL;
}

struct pathwatch *pathwatch_start(struct tp *tp, struct ds_err *err)
{
	struct pathwatch *w = calloc(1, sizeof(*w));
	pthread_condattr_t attr;

	if (w == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "watch the paths");
		return NULL;
	}
	w->tp = tp;
	tp_health(tp, &w->seen);
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	int rc = pthread_create(&w->thread, NULL, watch, w);

	if (rc == 0)
		return w;
	ds_err_set(err, DS_ERR_HOST, rc, NULL, "start a thread to watch the paths");
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return NULL;
}

void pathwatch_stop(struct pathwatch *w)
{
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
