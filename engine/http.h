/*
 * http.h - the server's outside: libmicrohttpd, who may ask, and which answer goes to whom.
 *
 * It checks Host, Origin, key, method, type and size, turns a body into an answer (answer.h) in the
 * scheduler's queue, and carries its bytes to the client. It never touches the engine.
 */
#ifndef ENG_HTTP_H
#define ENG_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "health.h"
#include "scheduler.h"
#include "tokenizer.h"

#define HTTP_CONNECTIONS_MAX 1500 /* each may take two descriptors; well above the queue */
#define HTTP_BODIES_MAX	     (256u * 1024 * 1024) /* bytes of all bodies that are arriving */
#define HTTP_KEYS_MAX	     64

/* What the HTTP side knows of the model, once it is known. */
struct http_model {
	const struct tok *tok;
	char name[128];
	uint32_t context;    /* positions */
	uint32_t max_tokens; /* for requests that name no limit */
	int64_t created;
};

struct http_args {
	const char *host; /* numeric address */
	uint16_t port;
	const char *allowed_hosts; /* comma separated; "" = none */
	const char *keys;	   /* one a line, [keys_len]; NULL = no keys */
	size_t keys_len;
	struct sched *sched; /* borrowed, like the rest, until http_stop() */
	struct health *health;
};

struct http;

/**
 * http_start() - listen and answer. Until http_set_model(), chat requests get 503.
 * @a: copied; what it points to is borrowed, but for the strings
 * Return: owned (http_stop()); NULL: DS_ERR_HOST (the address), DS_ERR_INPUT (the keys), DS_ERR_NOMEM.
 */
struct http *http_start(const struct http_args *a, struct ds_err *err);

/** http_set_model() - @m: borrowed from now on. Threads: any thread. */
void http_set_model(struct http *h, const struct http_model *m);

/**
 * http_tick() - look after clients that wait: silent streams get a comment, jobs whose client went
 * away are cancelled. Call it a few times a second. Threads: one.
 */
void http_tick(struct http *h);

/** http_busy() - answers that still have a client. Threads: any thread. */
size_t http_busy(struct http *h);

/**
 * http_stop() - stop listening, end every connection, free. NULL is allowed.
 * The scheduler must be closed and every job ended: no answer may be asleep.
 */
void http_stop(struct http *h);

/** http_host_allowed() - whether a Host header's value names this server; for tests. */
bool http_host_allowed(const char *value, const char *bound, const char *local,
		       const char *host_name, const char *allowed);

#endif
