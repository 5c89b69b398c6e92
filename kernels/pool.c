/*
 * pool.c - the threads of one rank.
 *
 * A pool has one owner, who hands out one job at a time and takes part in it. A job is published
 * by raising `turn` and ends when `busy` is back at zero; both are atomics, so that a worker that is
 * still awake sees the next operation of a step without a system call. After a few microseconds
 * without work it sleeps on a condition variable. The mutex covers only going to sleep and waking.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "pool.h"

#define SPINS	    100	  /* pauses before sleeping: a few microseconds */
#define WORTH_WHILE 40000 /* multiply-adds per thread below which waking one does not pay */

struct kern_pool {
	unsigned int n_threads, n_started; /* with the owner; workers running */
	pthread_t thread[KERN_THREADS_MAX];
	pthread_mutex_t lock; /* covers sleeping and waking, not the job */
	pthread_cond_t wake, done;
	atomic_uint turn; /* raised once per job; written by the owner */
	atomic_uint busy; /* workers that have not finished this turn */
	atomic_bool quit;
	/* the job: written before turn is raised, read after it is seen */
	kern_task *task;
	void *arg;
	uint32_t items, parts;
};

struct worker_start {
	struct kern_pool *pool;
	unsigned int part;
};

static inline void pause_a_little(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

static void run_part(const struct kern_pool *p, uint32_t part)
{
	uint32_t first = (uint32_t)((uint64_t)p->items * part / p->parts);
	uint32_t end = (uint32_t)((uint64_t)p->items * (part + 1) / p->parts);

	if (first < end)
		p->task(p->arg, part, first, end);
}

/* Wait until the turn is no longer @seen: awake for a moment, then asleep. Return: the new turn. */
static unsigned int next_turn(struct kern_pool *p, unsigned int seen)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(&p->turn) != seen)
			return atomic_load(&p->turn);
		pause_a_little();
	}
	pthread_mutex_lock(&p->lock);
	while (atomic_load(&p->turn) == seen)
		pthread_cond_wait(&p->wake, &p->lock);
	pthread_mutex_unlock(&p->lock);
	return atomic_load(&p->turn);
}

static void *worker(void *arg)
{
	struct worker_start start = *(struct worker_start *)arg;
	struct kern_pool *p = start.pool;
	unsigned int turn = 0;

	free(arg);
	for (;;) {
		turn = next_turn(p, turn);
		if (atomic_load(&p->quit))
			return NULL;
		if (start.part < p->parts)
			run_part(p, start.part);
		if (atomic_fetch_sub(&p->busy, 1) == 1) {
			pthread_mutex_lock(&p->lock);
			pthread_cond_signal(&p->done);
			pthread_mutex_unlock(&p->lock);
		}
	}
}

static void raise_turn(struct kern_pool *p)
{
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->turn, 1);
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

static void wait_done(struct kern_pool *p)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(&p->busy) == 0)
			return;
		pause_a_little();
	}
	pthread_mutex_lock(&p->lock);
	while (atomic_load(&p->busy) != 0)
		pthread_cond_wait(&p->done, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

void kern_parallel(struct kern_pool *pool, uint32_t items, uint64_t cost, kern_task *task,
		   void *arg)
{
	uint64_t parts = items * cost / WORTH_WHILE;

	if (items == 0)
		return;
	if (parts > items)
		parts = items;
	if (parts > kern_pool_threads(pool))
		parts = kern_pool_threads(pool);
	if (parts <= 1) {
		task(arg, 0, 0, items);
		return;
	}
	pool->task = task;
	pool->arg = arg;
	pool->items = items;
	pool->parts = (uint32_t)parts;
	atomic_store(&pool->busy, pool->n_started);
	raise_turn(pool);
	run_part(pool, 0);
	wait_done(pool);
}

/* Start worker @part with every signal blocked: signals belong to the program's own threads. */
static int start_worker(struct kern_pool *p, unsigned int part)
{
	struct worker_start *start = malloc(sizeof(*start));
	sigset_t all, before;
	int rc;

	if (start == NULL)
		return ENOMEM;
	*start = (struct worker_start){ .pool = p, .part = part };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&p->thread[p->n_started], NULL, worker, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0)
		free(start);
	else
		p->n_started++;
	return rc;
}

struct kern_pool *kern_pool_open(unsigned int n_threads, struct ds_err *err)
{
	struct kern_pool *p;

	if (n_threads < 1 || n_threads > KERN_THREADS_MAX) {
		ds_err_set(err, DS_ERR_USAGE, 0, NULL, "start %u threads", n_threads);
		ds_err_why(err, "1 to %d are possible", KERN_THREADS_MAX);
		return NULL;
	}
	if ((p = calloc(1, sizeof(*p))) == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "thread pool", "allocate");
		return NULL;
	}
	p->n_threads = n_threads;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	pthread_cond_init(&p->done, NULL);
	for (unsigned int i = 1; i < n_threads; i++) {
		int rc = start_worker(p, i);

		if (rc != 0) {
			ds_err_set(err, rc == ENOMEM ? DS_ERR_NOMEM : DS_ERR_HOST, rc,
				   "thread pool", "start thread %u of %u", i + 1, n_threads);
			ds_err_fix(err, "ask for fewer threads, or raise the limit (ulimit -u)");
			kern_pool_close(p);
			return NULL;
		}
	}
	return p;
}

void kern_pool_close(struct kern_pool *pool)
{
	if (pool == NULL)
		return;
	atomic_store(&pool->quit, true);
	raise_turn(pool);
	for (unsigned int i = 0; i < pool->n_started; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

unsigned int kern_pool_threads(const struct kern_pool *pool)
{
	return pool == NULL ? 1 : pool->n_threads;
}
