/*
 * scheduler.h - who is next: requests wait in arrival order for the one thread that owns the engine.
 *
 * HTTP threads submit jobs and may cancel them; the owner thread takes them one at a time. The
 * queue knows nothing of tokens. A job is embedded in the caller's object, which lives as long as
 * anybody holds a reference.
 */
#ifndef ENG_SCHEDULER_H
#define ENG_SCHEDULER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define SCHED_WAITING_MAX 128 /* jobs behind the running one */

struct sched_job;

/* What the queue asks of a job's owner. Both are called without the queue's lock. */
struct sched_job_ops {
	/* the job was thrown out while it waited: tell its client; @err says why */
	void (*fail)(struct sched_job *job, const struct ds_err *err);
	void (*free)(struct sched_job *job); /* the last reference is gone */
};

struct sched_job {
	const struct sched_job_ops *ops;
	atomic_uint refs;
	atomic_bool cancelled; /* the running job looks at it between two steps */
	enum {
		SCHED_NEW,
		SCHED_WAITING,
		SCHED_RUNNING,
		SCHED_OUT
	} state;		/* under the queue's lock */
	struct sched_job *next; /* under the queue's lock */
};

struct sched {
	pthread_mutex_t lock; /* covers everything below */
	pthread_cond_t more;
	struct sched_job *head, *tail, *running;
	size_t n_waiting;
	bool closed;
	struct ds_err why; /* why it is closed */
};

/** sched_init() - an open, empty queue. Return: 0; -1 DS_ERR_NOMEM. */
int sched_init(struct sched *s, struct ds_err *err);
/** sched_fini() - the queue must be empty. */
void sched_fini(struct sched *s);

/** sched_job_init() - one reference, the caller's. */
void sched_job_init(struct sched_job *job, const struct sched_job_ops *ops);
void sched_job_get(struct sched_job *job);
void sched_job_put(struct sched_job *job);

/**
 * sched_submit() - append @job; the queue takes a reference of its own.
 * Threads: any thread. Return: 0; -1: DS_ERR_TIMEOUT when SCHED_WAITING_MAX jobs wait already, or the
 * reason given to sched_close().
 */
int sched_submit(struct sched *s, struct sched_job *job, struct ds_err *err);

/**
 * sched_next() - the oldest waiting job, now running; NULL after @timeout_ms without one.
 * Threads: owner only. The caller ends it with sched_done().
 */
struct sched_job *sched_next(struct sched *s, unsigned int timeout_ms);
/** sched_done() - the running job ended; drops the queue's reference. Threads: owner only. */
void sched_done(struct sched *s, struct sched_job *job);

/**
 * sched_cancel() - nobody wants @job any more: a waiting one leaves the queue, a running one is
 * marked. Threads: any thread that holds a reference.
 */
void sched_cancel(struct sched *s, struct sched_job *job);

/**
 * sched_close() - refuse new jobs and fail the waiting ones, both with @why; the running job goes on.
 * sched_open() - accept again. sched_cancel_running() marks the running one. Threads: any thread.
 */
void sched_close(struct sched *s, const struct ds_err *why);
void sched_open(struct sched *s);
void sched_cancel_running(struct sched *s);

/** sched_load() - jobs waiting and running at this moment. Threads: any thread. */
void sched_load(struct sched *s, size_t *waiting, size_t *running);

#endif
