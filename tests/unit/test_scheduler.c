/*
 * test_scheduler.c - the queue: arrival order, its limit, cancellation, closing, references.
 */
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler.h"

struct tst_job {
	struct sched_job job;
	int number;
	int failed;
	enum ds_err_kind kind;
};

static int n_free;

static void job_fail(struct sched_job *j, const struct ds_err *err)
{
	struct tst_job *t = (struct tst_job *)j;
	t->failed++;
	t->kind = err->kind;
}

static void job_free(struct sched_job *j)
{
	(void)j;
	n_free++;
}

static const struct sched_job_ops ops = { job_fail, job_free };

static void make(struct tst_job *t, int n)
{
	n_free = 0;
	for (int i = 0; i < n; i++) {
		memset(&t[i], 0, sizeof(t[i]));
		sched_job_init(&t[i].job, &ops);
		t[i].number = i;
	}
}

static int next_number(struct sched *s)
{
	struct sched_job *j = sched_next(s, 0);
	if (j == NULL)
		return -1;
	int n = ((struct tst_job *)j)->number;
	sched_done(s, j);
	return n;
}

static void test_order(void)
{
	struct sched s;
	struct tst_job t[3];
	CU_ASSERT_EQUAL_FATAL(sched_init(&s, NULL), 0);
	make(t, 3);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(sched_submit(&s, &t[i].job, NULL), 0);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(next_number(&s), i);
	CU_ASSERT_EQUAL(next_number(&s), -1);
	CU_ASSERT_EQUAL(n_free, 0); /* ours are left */
	for (int i = 0; i < 3; i++)
		sched_job_put(&t[i].job);
	CU_ASSERT_EQUAL(n_free, 3);
	sched_fini(&s);
}

static void test_limit(void)
{
	enum {
		N = SCHED_WAITING_MAX + 2
	};
	struct sched s;
	struct tst_job *t = calloc(N, sizeof(*t));
	struct ds_err err = { 0 };
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_EQUAL_FATAL(sched_init(&s, NULL), 0);
	make(t, N);
	sched_submit(&s, &t[0].job, NULL);
	struct sched_job *running = sched_next(&s, 0);
	for (int i = 1; i <= SCHED_WAITING_MAX; i++)
		CU_ASSERT_EQUAL(sched_submit(&s, &t[i].job, &err), 0);
	CU_ASSERT_EQUAL(sched_submit(&s, &t[N - 1].job, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_TIMEOUT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "128"));
	sched_cancel(&s, &t[5].job); /* one leaves, one fits again */
	CU_ASSERT_EQUAL(sched_submit(&s, &t[N - 1].job, &err), 0);
	sched_done(&s, running);
	for (int i = 1; i < N; i++)
		if (i != 5)
			CU_ASSERT_EQUAL(next_number(&s), i);
	for (int i = 0; i < N; i++)
		sched_job_put(&t[i].job);
	CU_ASSERT_EQUAL(n_free, N);
	sched_fini(&s);
	free(t);
}

static void test_cancel(void)
{
	static const int orders[][3] = { { 0, 1, 2 }, { 1, 0, 2 }, { 2, 1, 0 } };
	for (size_t k = 0; k < sizeof(orders) / sizeof(orders[0]); k++) {
		struct sched s;
		struct tst_job t[3];
		size_t waiting, running;
		CU_ASSERT_EQUAL_FATAL(sched_init(&s, NULL), 0);
		make(t, 3);
		for (int i = 0; i < 3; i++)
			sched_submit(&s, &t[i].job, NULL);
		sched_cancel(&s, &t[orders[k][0]].job);
		sched_cancel(&s, &t[orders[k][1]].job);
		sched_load(&s, &waiting, &running);
		CU_ASSERT_EQUAL(waiting, 1);
		CU_ASSERT_EQUAL(next_number(&s), orders[k][2]);
		sched_cancel(&s, &t[orders[k][2]].job); /* too late: nothing happens */
		for (int i = 0; i < 3; i++)
			sched_job_put(&t[i].job);
		CU_ASSERT_EQUAL(n_free, 3);
		sched_fini(&s);
	}
}

static void test_cancel_running(void)
{
	struct sched s;
	struct tst_job t[1];
	CU_ASSERT_EQUAL_FATAL(sched_init(&s, NULL), 0);
	make(t, 1);
	sched_submit(&s, &t[0].job, NULL);
	struct sched_job *j = sched_next(&s, 0);
	CU_ASSERT_FALSE(atomic_load(&j->cancelled));
	sched_cancel(&s, j);
	CU_ASSERT_TRUE(atomic_load(&j->cancelled));
	sched_job_put(&t[0].job); /* the client is gone, the owner still has it */
	CU_ASSERT_EQUAL(n_free, 0);
	sched_done(&s, j);
	CU_ASSERT_EQUAL(n_free, 1);
	sched_fini(&s);
}

static void test_close(void)
{
	struct sched s;
	struct tst_job t[4];
	struct ds_err why = { 0 }, err = { 0 };
	CU_ASSERT_EQUAL_FATAL(sched_init(&s, NULL), 0);
	make(t, 4);
	for (int i = 0; i < 3; i++)
		sched_submit(&s, &t[i].job, NULL);
	struct sched_job *running = sched_next(&s, 0);
	ds_err_set(&why, DS_ERR_PEER, 0, "rank 1", "wait for it");
	sched_close(&s, &why);
	CU_ASSERT_EQUAL(t[0].failed, 0); /* running: its owner decides */
	CU_ASSERT_EQUAL(t[1].failed, 1);
	CU_ASSERT_EQUAL(t[2].failed, 1);
	CU_ASSERT_EQUAL(t[2].kind, DS_ERR_PEER);
	CU_ASSERT_EQUAL(sched_submit(&s, &t[3].job, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_PEER);
	sched_done(&s, running);
	sched_open(&s);
	CU_ASSERT_EQUAL(sched_submit(&s, &t[3].job, &err), 0);
	CU_ASSERT_EQUAL(next_number(&s), 3);
	for (int i = 0; i < 4; i++)
		sched_job_put(&t[i].job);
	CU_ASSERT_EQUAL(n_free, 4);
	sched_fini(&s);
}

/* A job that comes while the owner waits wakes it. */
static struct sched woken;
static struct tst_job late;

static void *submit_late(void *arg)
{
	usleep(20000);
	sched_submit(&woken, &late.job, NULL);
	return arg;
}

static void test_wake(void)
{
	pthread_t th;
	CU_ASSERT_EQUAL_FATAL(sched_init(&woken, NULL), 0);
	make(&late, 1);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&th, NULL, submit_late, NULL), 0);
	struct sched_job *j = sched_next(&woken, 10000);
	pthread_join(th, NULL);
	CU_ASSERT_PTR_EQUAL(j, &late.job);
	if (j != NULL)
		sched_done(&woken, j);
	sched_job_put(&late.job);
	sched_fini(&woken);
}

static CU_TestInfo scheduler_tests[] = {
	{ "jobs come out in arrival order", test_order },
	{ "128 wait, the next is refused until one leaves", test_limit },
	{ "a cancelled job leaves the queue wherever it stands", test_cancel },
	{ "a running job is marked, and outlives its client", test_cancel_running },
	{ "closing fails the waiting ones and refuses new ones with the reason", test_close },
	{ "the waiting owner is woken", test_wake },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo scheduler_suite = { .pName = "engine/scheduler", .pTests = scheduler_tests };
