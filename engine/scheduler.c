/*
 * scheduler.c - the queue of jobs in front of the engine's owner thread.
 */
#include "scheduler.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

int sched_init(struct sched *s, struct ds_err *err)
{
	*s = (struct sched){ 0 };
	pthread_condattr_t attr;
	if (pthread_mutex_init(&s->lock, NULL) != 0)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "queue", "make a lock");
	int rc = pthread_condattr_init(&attr);
	if (rc == 0) {
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		rc = pthread_cond_init(&s->more, &attr);
		pthread_condattr_destroy(&attr);
	}
	if (rc != 0) {
		pthread_mutex_destroy(&s->lock);
		return ds_err_set(err, DS_ERR_NOMEM, rc, "queue", "make a condition");
	}
	return 0;
}

void sched_fini(struct sched *s)
{
	assert(s->head == NULL && s->running == NULL);
	pthread_cond_destroy(&s->more);
	pthread_mutex_destroy(&s->lock);
}

void sched_job_init(struct sched_job *job, const struct sched_job_ops *ops)
{
	*job = (struct sched_job){ .ops = ops };
	atomic_init(&job->refs, 1);
	atomic_init(&job->cancelled, false);
}

void sched_job_get(struct sched_job *job)
{
	atomic_fetch_add(&job->refs, 1);
}

void sched_job_put(struct sched_job *job)
{
	if (atomic_fetch_sub(&job->refs, 1) == 1)
		job->ops->free(job);
}

int sched_submit(struct sched *s, struct sched_job *job, struct ds_err *err)
{
	int rc = 0;
	pthread_mutex_lock(&s->lock);
	assert(job->state == SCHED_NEW);
	if (s->closed) {
		if (err != NULL)
			*err = s->why;
		rc = -1;
	} else if (s->n_waiting >= SCHED_WAITING_MAX) {
		ds_err_set(err, DS_ERR_TIMEOUT, 0, NULL, "queue the request");
		ds_err_why(err, "%d requests wait already", SCHED_WAITING_MAX);
		rc = ds_err_fix(err, "send it again later");
	} else {
		sched_job_get(job);
		job->state = SCHED_WAITING;
		job->next = NULL;
		if (s->tail != NULL)
			s->tail->next = job;
		else
			s->head = job;
		s->tail = job;
		s->n_waiting++;
		pthread_cond_signal(&s->more);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

struct sched_job *sched_next(struct sched *s, unsigned int timeout_ms)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&s->lock);
	assert(s->running == NULL);
	int rc = 0;
	while (s->head == NULL && rc == 0)
		rc = pthread_cond_timedwait(&s->more, &s->lock, &until);
	struct sched_job *job = s->head;
	if (job != NULL) {
		s->head = job->next;
		if (s->head == NULL)
			s->tail = NULL;
		s->n_waiting--;
		job->next = NULL;
		job->state = SCHED_RUNNING;
		s->running = job;
	}
	pthread_mutex_unlock(&s->lock);
	return job;
}

void sched_done(struct sched *s, struct sched_job *job)
{
	pthread_mutex_lock(&s->lock);
	assert(s->running == job);
	s->running = NULL;
	job->state = SCHED_OUT;
	pthread_mutex_unlock(&s->lock);
	sched_job_put(job);
}

/* Take a waiting job out of the list. The lock is held; at most SCHED_WAITING_MAX are walked. */
static void unlink_job(struct sched *s, struct sched_job *job)
{
	struct sched_job *before = NULL;
	for (struct sched_job *j = s->head; j != job; j = j->next)
		before = j;
	if (before != NULL)
		before->next = job->next;
	else
		s->head = job->next;
	if (s->tail == job)
		s->tail = before;
	s->n_waiting--;
	job->next = NULL;
	job->state = SCHED_OUT;
}

void sched_cancel(struct sched *s, struct sched_job *job)
{
	bool waited = false;
	pthread_mutex_lock(&s->lock);
	atomic_store(&job->cancelled, true);
	if (job->state == SCHED_WAITING) {
		unlink_job(s, job);
		waited = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (waited)
		sched_job_put(job);
}

void sched_close(struct sched *s, const struct ds_err *why)
{
	pthread_mutex_lock(&s->lock);
	s->closed = true;
	s->why = *why;
	struct sched_job *list = s->head;
	for (struct sched_job *j = list; j != NULL; j = j->next)
		j->state = SCHED_OUT;
	s->head = s->tail = NULL;
	s->n_waiting = 0;
	pthread_mutex_unlock(&s->lock);
	while (list != NULL) {
		struct sched_job *j = list;
		list = j->next; /* nobody else touches it any more: the job is out */
		j->next = NULL;
		j->ops->fail(j, why);
		sched_job_put(j);
	}
}

void sched_open(struct sched *s)
{
	pthread_mutex_lock(&s->lock);
	s->closed = false;
	pthread_mutex_unlock(&s->lock);
}

void sched_cancel_running(struct sched *s)
{
	pthread_mutex_lock(&s->lock);
	if (s->running != NULL)
		atomic_store(&s->running->cancelled, true);
	pthread_mutex_unlock(&s->lock);
}

void sched_load(struct sched *s, size_t *waiting, size_t *running)
{
	pthread_mutex_lock(&s->lock);
	*waiting = s->n_waiting;
	*running = s->running != NULL;
	pthread_mutex_unlock(&s->lock);
}
