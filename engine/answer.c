/*
 * answer.c - one chat answer between the owner thread and an HTTP thread.
 */
#include "answer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t answer_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void job_fail(struct sched_job *job, const struct ds_err *err)
{
	answer_fail((struct answer *)job, err);
}

static void job_free(struct sched_job *job)
{
	struct answer *a = (struct answer *)job;
	api_request_fini(&a->req);
	chat_prompt_fini(&a->prompt);
	ds_buf_fini(&a->stop.held);
	ds_buf_fini(&a->reasoning);
	ds_buf_fini(&a->content);
	ds_buf_fini(&a->out);
	if (a->fd >= 0)
		close(a->fd);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

static const struct sched_job_ops job_ops = { .fail = job_fail, .free = job_free };

struct answer *answer_new(struct api_request *req, struct chat_prompt *prompt, const char *model,
			  uint32_t max_tokens, int fd, struct ds_err *err)
{
	struct answer *a = calloc(1, sizeof(*a));
	if (a == NULL || pthread_mutex_init(&a->lock, NULL) != 0) {
		free(a);
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "answer", "begin an answer");
		return NULL;
	}
	sched_job_init(&a->job, &job_ops);
	a->fd = -1;
	if (api_new_id("chatcmpl-", a->head.id, err) != 0) {
		sched_job_put(&a->job);
		return NULL;
	}
	if (fd >= 0 && (a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
		ds_err_set(err, DS_ERR_HOST, errno, "the client's socket", "begin an answer");
		sched_job_put(&a->job);
		return NULL;
	}
	snprintf(a->head.model, sizeof(a->head.model), "%s", model);
	a->head.created = (int64_t)time(NULL);
	a->head.include_usage = req->include_usage;
	a->max_tokens = max_tokens;
	a->last_ms = answer_now_ms();
	a->req = *req;
	a->prompt = *prompt;
	memset(req, 0, sizeof(*req));
	memset(prompt, 0, sizeof(*prompt));
	a->stop.req = &a->req;
	return a;
}

/* Something changed for the client. The lock is held. */
static void wake(struct answer *a)
{
	if (a->out.failed)
		a->broken = true;
	a->last_ms = answer_now_ms();
	void (*fn)(void *) = a->wake;
	a->wake = NULL;
	if (fn != NULL)
		fn(a->wake_arg);
}

void answer_start(struct answer *a)
{
	pthread_mutex_lock(&a->lock);
	a->started = true;
	if (a->req.stream && !a->done) {
		api_put_chunk(&a->out, &a->head, &(struct api_text){ .role = true }, NULL);
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
}

static void put_event(struct answer *a, const struct ds_buf *reasoning,
		      const struct ds_buf *content)
{
	if (reasoning->len == 0 && content->len == 0)
		return;
	pthread_mutex_lock(&a->lock);
	if (!a->done) {
		struct api_text t = { .reasoning = reasoning, .content = content };
		api_put_chunk(&a->out, &a->head, &t, NULL);
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
}

bool answer_text(struct answer *a, const struct ds_buf *reasoning, const struct ds_buf *content)
{
	if (!a->req.stream) {
		ds_buf_put(&a->reasoning, reasoning->data, reasoning->len);
		return api_stop_put(&a->stop, content->data, content->len, &a->content);
	}
	struct ds_buf visible = { 0 };
	bool hit = api_stop_put(&a->stop, content->data, content->len, &visible);
	put_event(a, reasoning, &visible);
	if (visible.failed)
		answer_fail(a, &(struct ds_err){ .kind = DS_ERR_NOMEM, .what = "collect text" });
	ds_buf_fini(&visible);
	return hit;
}

static void end_stream(struct answer *a, const char *finish, const struct api_usage *u)
{
	struct ds_buf rest = { 0 };
	api_stop_end(&a->stop, &rest);
	pthread_mutex_lock(&a->lock);
	if (!a->done) {
		if (rest.len > 0)
			api_put_chunk(&a->out, &a->head, &(struct api_text){ .content = &rest },
				      NULL);
		api_put_chunk(&a->out, &a->head, &(struct api_text){ .finish = finish }, u);
		if (a->req.include_usage)
			api_put_usage(&a->out, &a->head, u);
		ds_buf_puts(&a->out, "data: [DONE]\n\n");
		a->done = true;
		a->broken |= rest.failed;
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
	ds_buf_fini(&rest);
}

void answer_end(struct answer *a, const char *finish, bool stopped_by_string,
		const struct api_usage *u)
{
	if (stopped_by_string)
		ds_buf_fini(&a->stop.held);
	if (a->req.stream) {
		end_stream(a, finish, u);
		return;
	}
	api_stop_end(&a->stop, &a->content);
	struct api_text t = { .reasoning = &a->reasoning,
			      .content = &a->content,
			      .finish = finish };
	pthread_mutex_lock(&a->lock);
	if (!a->done) {
		api_put_answer(&a->out, &a->head, &t, a->prompt.thinking, u);
		a->status = 200;
		a->done = true;
		a->broken |= a->reasoning.failed || a->content.failed;
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
}

void answer_fail(struct answer *a, const struct ds_err *err)
{
	struct api_error e;
	api_error_of(err, &e);
	pthread_mutex_lock(&a->lock);
	if (!a->done) {
		if (a->req.stream)
			ds_buf_puts(&a->out, "data: ");
		api_put_error(&a->out, &e);
		ds_buf_puts(&a->out, a->req.stream ? "\n\ndata: [DONE]\n\n" : "\n");
		a->status = e.status;
		a->done = true;
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
}

void answer_left(struct answer *a)
{
	pthread_mutex_lock(&a->lock);
	if (!a->done) {
		a->done = true;
		a->broken = true; /* what was put so far is no whole answer */
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
}

/*
 * A client that closes its end, or only its sending half, sends a FIN. No client of this API sends
 * half and then waits, so both mean that nobody reads any more.
 */
bool answer_gone(struct answer *a)
{
	if (atomic_load(&a->job.cancelled))
		return true;
	pthread_mutex_lock(&a->lock);
	struct pollfd p = { .fd = a->fd, .events = POLLRDHUP };
	bool gone = a->fd >= 0 && poll(&p, 1, 0) > 0 &&
		    (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
	pthread_mutex_unlock(&a->lock);
	return gone;
}

static bool fall_asleep(struct answer *a, void (*sleep)(void *), void (*wake_fn)(void *), void *arg)
{
	a->wake = wake_fn;
	a->wake_arg = arg;
	sleep(arg);
	return false;
}

ssize_t answer_take(struct answer *a, char *buf, size_t max, void (*sleep)(void *),
		    void (*wake_fn)(void *), void *arg)
{
	pthread_mutex_lock(&a->lock);
	size_t n = a->out.len - a->taken;
	ssize_t got = 0;
	if (a->broken) {
		got = -2;
	} else if (n > 0) {
		n = n < max ? n : max;
		memcpy(buf, a->out.data + a->taken, n);
		a->taken += n;
		if (a->taken == a->out.len) {
			ds_buf_reset(&a->out);
			a->taken = 0;
		}
		got = (ssize_t)n;
	} else if (a->done) {
		got = -1;
	} else {
		fall_asleep(a, sleep, wake_fn, arg);
	}
	pthread_mutex_unlock(&a->lock);
	return got;
}

bool answer_wait(struct answer *a, void (*sleep)(void *), void (*wake_fn)(void *), void *arg)
{
	pthread_mutex_lock(&a->lock);
	bool done = a->done || fall_asleep(a, sleep, wake_fn, arg);
	pthread_mutex_unlock(&a->lock);
	return done;
}

void answer_ping(struct answer *a, int64_t now_ms)
{
	pthread_mutex_lock(&a->lock);
	bool idle = a->out.len ==
		    a->taken; /* else the client is slow, and a comment would pile up */
	if (a->req.stream && !a->done && idle && now_ms - a->last_ms >= ANSWER_PING_MS) {
		ds_buf_puts(&a->out, ": keep-alive\n\n");
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
}

void answer_forget(struct answer *a)
{
	pthread_mutex_lock(&a->lock);
	a->wake = NULL;
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	pthread_mutex_unlock(&a->lock);
}
