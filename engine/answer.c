/*
 * answer.c - one answer between the owner thread and an HTTP thread.
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

static void choice_fini(struct api_choice *c)
{
	for (uint32_t i = 0; i < c->n_call; i++) {
		ds_buf_fini(&c->call[i].name);
		ds_buf_fini(&c->call[i].args);
	}
	free(c->call);
	ds_buf_fini(&c->reasoning);
	ds_buf_fini(&c->content);
	json_decref(c->logprobs);
}

static void job_free(struct sched_job *job)
{
	struct answer *a = (struct answer *)job;
	api_request_fini(&a->req);
	chat_prompt_fini(&a->prompt);
	ds_buf_fini(&a->stop.held);
	choice_fini(&a->choice);
	ds_buf_fini(&a->out);
	if (a->fd >= 0)
		close(a->fd);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

static const struct sched_job_ops job_ops = { .fail = job_fail, .free = job_free };

struct answer *answer_new(const struct api_format *format, struct api_request *req,
			  struct chat_prompt *prompt, const char *model, uint32_t max_tokens,
			  int fd, struct ds_err *err)
{
	struct answer *a = calloc(1, sizeof(*a));
	if (a == NULL || pthread_mutex_init(&a->lock, NULL) != 0) {
		free(a);
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "answer", "begin an answer");
		return NULL;
	}
	sched_job_init(&a->job, &job_ops);
	a->fd = -1;
	if (api_new_id(format->id_prefix, a->doc.head.id, err) != 0) {
		sched_job_put(&a->job);
		return NULL;
	}
	if (fd >= 0 && (a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
		ds_err_set(err, DS_ERR_HOST, errno, "the client's socket", "begin an answer");
		sched_job_put(&a->job);
		return NULL;
	}
	snprintf(a->doc.head.model, sizeof(a->doc.head.model), "%s", model);
	a->doc.head.created = (int64_t)time(NULL);
	a->doc.head.include_usage = req->include_usage;
	a->doc.format = format;
	a->doc.req = &a->req;
	a->doc.choice = &a->choice;
	a->doc.n = 1;
	a->doc.thinking = prompt->thinking;
	a->doc.prompt_tokens = (uint32_t)prompt->ids.n;
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
		a->doc.format->begin(&a->doc, &a->out);
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
}

/* A new call in the record; false without memory. */
static bool add_call(struct api_choice *c, const struct out_event *ev)
{
	if (c->n_call == API_CALLS_MAX)
		return false;
	if (c->call == NULL && (c->call = calloc(API_CALLS_MAX, sizeof(*c->call))) == NULL)
		return false;
	struct api_call *call = &c->call[c->n_call++];
	snprintf(call->id, sizeof(call->id), "%s", ev->id);
	ds_buf_put(&call->name, ev->text, ev->len);
	return !call->name.failed;
}

/* Adds to the record what the event says. Return: false without memory. */
static bool add(struct api_choice *c, const struct out_event *ev)
{
	struct ds_buf *b = ev->kind == OUT_REASONING ? &c->reasoning : &c->content;
	if (ev->kind == OUT_CALL)
		return add_call(c, ev);
	if (ev->kind == OUT_CALL_END || ev->kind == OUT_ARGS) {
		if (ev->call >= c->n_call)
			return false;
		b = &c->call[ev->call].args;
		c->call[ev->call].complete = ev->kind == OUT_CALL_END;
	}
	if (ev->kind != OUT_CALL_END)
		ds_buf_put(b, ev->text, ev->len);
	return !b->failed;
}

static void put_event(struct answer *a, const struct out_event *ev)
{
	pthread_mutex_lock(&a->lock);
	size_t before = a->out.len;
	bool added = add(&a->choice, ev);
	if (added && a->req.stream && !a->done)
		a->doc.format->event(&a->doc, &a->choice, ev, NULL, &a->out);
	if (a->out.len > before || a->out.failed)
		wake(a);
	pthread_mutex_unlock(&a->lock);
	if (!added)
		answer_fail(a, &(struct ds_err){ .kind = DS_ERR_NOMEM, .what = "collect text" });
}

static void say(struct answer *a, const struct ds_buf *text)
{
	if (text->len > 0)
		put_event(a, &(struct out_event){
				     .kind = OUT_CONTENT, .text = text->data, .len = text->len });
}

void answer_event(void *answer, const struct out_event *ev)
{
	struct answer *a = answer;
	if (a->stop.held.len > 0) {
		/* No stop string reaches across a call: what waited for the rest of one is content. */
		struct ds_buf rest = a->stop.held;
		a->stop.held = (struct ds_buf){ 0 };
		say(a, &rest);
		ds_buf_fini(&rest);
	}
	put_event(a, ev);
}

bool answer_content(struct answer *a, const char *text, size_t len)
{
	struct ds_buf visible = { 0 };
	bool hit = api_stop_put(&a->stop, text, len, &visible);
	say(a, &visible);
	if (visible.failed)
		answer_fail(a, &(struct ds_err){ .kind = DS_ERR_NOMEM, .what = "collect text" });
	ds_buf_fini(&visible);
	return hit;
}

void answer_end(struct answer *a, const char *finish, bool stopped_by_string,
		const struct api_usage *u)
{
	struct ds_buf rest = { 0 };
	if (stopped_by_string)
		ds_buf_fini(&a->stop.held);
	api_stop_end(&a->stop, &rest);
	say(a, &rest);
	pthread_mutex_lock(&a->lock);
	a->choice.finish = finish;
	a->choice.stop_string = stopped_by_string ? a->stop.hit : NULL;
	if (!a->done && a->req.stream) {
		a->doc.format->choice_end(&a->doc, &a->choice, &a->out);
		a->doc.format->end(&a->doc, u, &a->out);
	} else if (!a->done) {
		a->doc.format->whole(&a->doc, u, &a->out);
		a->status = 200;
	}
	if (!a->done) {
		a->done = true;
		a->broken |= rest.failed;
		wake(a);
	}
	pthread_mutex_unlock(&a->lock);
	ds_buf_fini(&rest);
}

void answer_fail(struct answer *a, const struct ds_err *err)
{
	struct api_error e;
	api_error_of(err, &e);
	pthread_mutex_lock(&a->lock);
	if (!a->done) {
		if (a->req.stream) {
			a->doc.format->error(&a->doc, &e, &a->out);
		} else {
			a->doc.format->error_body(&e, &a->out);
			ds_buf_putc(&a->out, '\n');
		}
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
		a->doc.format->ping(&a->doc, &a->out);
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
