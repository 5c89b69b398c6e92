/*
 * answer.h - one answer on its way from the owner thread to a client.
 *
 * The owner thread adds text and ends it; an HTTP thread takes bytes out and sleeps while there are
 * none. This is the only object that both touch. It is a job of the scheduler (first member), so it
 * lives until the last of client, queue and owner lets go.
 */
#ifndef ENG_ANSWER_H
#define ENG_ANSWER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api_format.h"
#include "chat.h"
#include "scheduler.h"

#define ANSWER_PING_MS 5000 /* a stream that says nothing for so long gets a comment */

struct answer {
	struct sched_job job;	   /* first: the scheduler's view */
	struct api_request req;	   /* owned */
	struct chat_prompt prompt; /* owned */
	struct api_doc doc; /* the answer in its endpoint's format; its state under the lock */
	uint32_t max_tokens;
	struct answer *next; /* in the server's list of live answers; under that list's lock */

	/* owner thread only */
	struct api_stop stop;
	bool started;

	pthread_mutex_t lock;	  /* covers everything below */
	struct api_choice choice; /* what it has said so far */
	struct ds_buf out;	  /* bytes for the client: events, or the whole body */
	size_t taken;		  /* of them, by the client */
	bool done;		  /* nothing more will come */
	bool broken;		  /* memory ran out: what is there is not whole */
	unsigned int status;	  /* of HTTP, for an answer that is not streamed; 0 = not done */
	int fd;		      /* a duplicate of the client's socket, to see it go; -1 = closed */
	int64_t last_ms;      /* when something was put out last, CLOCK_MONOTONIC */
	void (*wake)(void *); /* set while the HTTP side sleeps; called once, with the lock held */
	void *wake_arg;
};

int64_t answer_now_ms(void);

/**
 * answer_new() - one reference, the caller's (sched_job_put(&a->job)).
 * @format: of the endpoint that was asked; @req, @prompt: taken (zeroed) on success; @fd: the client's socket, duplicated; -1 = none
 * Return: NULL with DS_ERR_NOMEM or DS_ERR_HOST; @req and @prompt are then still the caller's.
 */
struct answer *answer_new(const struct api_format *format, struct api_request *req,
			  struct chat_prompt *prompt, const char *model, uint32_t max_tokens,
			  int fd, struct ds_err *err);

/* ---- owner thread ---- */

/** answer_start() - a stream says its beginning. */
void answer_start(struct answer *a);
/** answer_event() - what the answer says next, content apart. @answer: a struct answer */
void answer_event(void *answer, const struct out_event *ev);
/** answer_content() - more content, looked through for stop strings. Return: true when one ended it: answer_end() with "stop" is due. */
bool answer_content(struct answer *a, const char *text, size_t len);
/** answer_end() - the orderly end. @finish: "stop", "length" or "tool_calls" (static). */
void answer_end(struct answer *a, const char *finish, bool stopped_by_string,
		const struct api_usage *u);
/** answer_fail() - an error: a body with its status, or an event and the end. Threads: any thread. */
void answer_fail(struct answer *a, const struct ds_err *err);

/** answer_left() - end it without a word: nobody is there to read one. Threads: any thread. */
void answer_left(struct answer *a);

/** answer_gone() - nobody waits any more: cancelled, or the client's end is closed. Threads: any. */
bool answer_gone(struct answer *a);

/* ---- HTTP side ---- */

/**
 * answer_take() - up to @max bytes of a stream; when there are none and more may come, @sleep is called
 * with the lock held (so that no wake can be missed) and 0 is returned.
 * Return: bytes; 0 asleep; -1 the end; -2 broken.
 */
ssize_t answer_take(struct answer *a, char *buf, size_t max, void (*sleep)(void *),
		    void (*wake)(void *), void *arg);
/** answer_wait() - for a whole body: true when it is done; else @sleep as above and false. */
bool answer_wait(struct answer *a, void (*sleep)(void *), void (*wake)(void *), void *arg);
/** answer_ping() - a sign of life when a stream was silent for ANSWER_PING_MS and its client takes what comes. */
void answer_ping(struct answer *a, int64_t now_ms);
/** answer_forget() - the client's connection ends: no more wakes, its socket is let go. */
void answer_forget(struct answer *a);

#endif
