/*
 * http.c - libmicrohttpd glue: the checks before a body is read, and the way back.
 *
 * A few threads of the library run every callback here. A connection whose answer has nothing to
 * say is suspended and costs no thread; answer.c wakes it.
 */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"
#include "json.h"
#include "log.h"

#define HTTP_THREADS   2
#define HTTP_SILENT_S  10 /* of a connection whose first request has not come */
#define HTTP_TIMEOUT_S 60 /* of one that sent a request and then neither sends nor takes anything */
#define STREAM_BLOCK   16384
#define RETRY_AFTER    "5"

struct http {
	struct http_args a;
	char host[64], host_name[256], allowed[1024];
	uint8_t key[HTTP_KEYS_MAX][SHA256_DIGEST_LENGTH]; /* digests: equal lengths to compare */
	size_t n_key;
	struct MHD_Daemon *daemon;
	_Atomic(const struct http_model *) model;
	atomic_size_t body_bytes; /* of all bodies that are arriving */
	pthread_mutex_t lock;	  /* covers the list below */
	struct answer *live;	  /* answers with a client; each holds a reference */
};

/* A path that takes a conversation. */
struct endpoint {
	const char *path;
	const struct api_format *format;
	const struct api_way *way; /* NULL: chat/completions itself */
	bool counts;		   /* answers with the prompt's length alone */
};

static const struct endpoint endpoints[] = {
	{ "/v1/chat/completions", &api_chat_format, NULL, false },
	{ "/v1/responses", &api_responses_format, &api_responses_way, false },
	{ "/v1/messages", &api_messages_format, &api_messages_way, false },
	{ "/v1/messages/count_tokens", &api_messages_format, &api_count_way, true },
};

static const struct endpoint *find_endpoint(const char *path)
{
	for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++)
		if (strcmp(path, endpoints[i].path) == 0)
			return &endpoints[i];
	return NULL;
}

/* One request on a connection. */
struct exchange {
	struct http *h;
	const struct endpoint *to; /* NULL = another path */
	bool called;		   /* the library has called once */
	bool begun;		   /* the checks of the header are done */
	bool too_big;		   /* the body went over API_BODY_MAX */
	size_t counted;		   /* in h->body_bytes */
	uint32_t counted_tokens;
	struct ds_buf body;
	struct answer *answer; /* a reference; also in h->live */
};

/* ---------------------------------- plain responses ---------------------------------- */

static enum MHD_Result respond(struct MHD_Connection *c, unsigned int status, const char *type,
			       struct ds_buf *body, const char *header, const char *value)
{
	size_t len = body->len;
	char *data = ds_buf_take(body);
	if (data == NULL)
		return MHD_NO;
	struct MHD_Response *r = MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
	if (r == NULL) {
		free(data);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", type);
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(r, "Cache-Control", "no-store");
	if (header != NULL)
		MHD_add_response_header(r, header, value);
	if (status == 503)
		MHD_add_response_header(r, "Retry-After", RETRY_AFTER);
	enum MHD_Result rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

/* In the shape of the endpoint that was asked. */
static enum MHD_Result respond_error(const struct exchange *x, struct MHD_Connection *c,
				     const struct api_error *e, const char *header,
				     const char *value)
{
	struct ds_buf b = { 0 };
	if (x->to != NULL)
		x->to->format->error_body(e, &b);
	else
		api_put_error(&b, e);
	ds_buf_putc(&b, '\n');
	return respond(c, e->status, "application/json", &b, header, value);
}

/* An error that has no ds_err: @code may be NULL. */
static enum MHD_Result refuse(const struct exchange *x, struct MHD_Connection *c,
			      unsigned int status, const char *code, const char *message)
{
	struct api_error e = { .status = status, .code = code };
	e.type = status >= 500 ? "server_error" : "invalid_request_error";
	snprintf(e.message, sizeof(e.message), "%s", message);
	const char *header = status == 401 ? "WWW-Authenticate" : NULL;
	return respond_error(x, c, &e, header, "Bearer");
}

/* ---------------------------------- who may ask ---------------------------------- */

static bool same_name(const char *name, size_t len, const char *want)
{
	return len > 0 && strlen(want) == len && strncasecmp(name, want, len) == 0;
}

static bool in_list(const char *name, size_t len, const char *list)
{
	while (*list != '\0') {
		size_t n = strcspn(list, ", ");
		if (n == len && n > 0 && strncasecmp(name, list, n) == 0)
			return true;
		list += n;
		list += strspn(list, ", ");
	}
	return false;
}

static bool is_loopback(const char *name, size_t len)
{
	char text[64];
	struct in_addr v4;
	struct in6_addr v6;
	if (len >= sizeof(text))
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	if (inet_pton(AF_INET, text, &v4) == 1)
		return (ntohl(v4.s_addr) >> 24) == 127;
	return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/*
 * A page in a browser can make a name of its own point at this machine; the Host header then
 * carries that name. Names that only this host answers to are therefore the ones that pass.
 */
bool http_host_allowed(const char *value, const char *bound, const char *local,
		       const char *host_name, const char *allowed)
{
	const char *name = value;
	size_t len = strcspn(value, ":");
	const char *rest = value + len;
	if (value[0] == '[') {
		name = value + 1;
		len = strcspn(name, "]");
		if (name[len] != ']')
			return false;
		rest = name + len + 1;
	}
	if (rest[0] != '\0' &&
	    (rest[0] != ':' || strspn(rest + 1, "0123456789") != strlen(rest + 1)))
		return false;
	if (same_name(name, len, "localhost") || is_loopback(name, len))
		return true;
	if (same_name(name, len, bound) || same_name(name, len, local) ||
	    in_list(name, len, allowed))
		return true;
	if (same_name(name, len, host_name))
		return true;
	/* The multicast DNS name of this host; ".local" cannot be had in the ordinary DNS (RFC 6762). */
	size_t own = strlen(host_name);
	return own > 0 && len == own + 6 && strncasecmp(name, host_name, own) == 0 &&
	       strncasecmp(name + own, ".local", 6) == 0;
}

/* The address of this host that the client reached, as text; "" if it cannot be told. */
static void local_address(struct MHD_Connection *c, char *out, size_t size)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	out[0] = '\0';
	if (i == NULL || getsockname(i->connect_fd, (struct sockaddr *)&ss, &len) != 0)
		return;
	const void *addr = &((const struct sockaddr_in *)&ss)->sin_addr;
	if (ss.ss_family == AF_INET6) {
		const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&ss)->sin6_addr;
		bool mapped = IN6_IS_ADDR_V4MAPPED(v6);
		addr = mapped ? (const void *)&v6->s6_addr[12] : (const void *)v6;
		ss.ss_family = mapped ? AF_INET : AF_INET6;
	}
	if (inet_ntop(ss.ss_family, addr, out, (socklen_t)size) == NULL)
		out[0] = '\0';
}

struct header_check {
	const struct http *h;
	char local[64];
	bool bad_host;
	unsigned int lengths; /* headers that say where the body ends */
};

static enum MHD_Result check_header(void *arg, enum MHD_ValueKind kind, const char *key,
				    const char *value)
{
	struct header_check *k = arg;
	(void)kind;
	if (strcasecmp(key, "Host") == 0 &&
	    (value == NULL ||
	     !http_host_allowed(value, k->h->host, k->local, k->h->host_name, k->h->allowed)))
		k->bad_host = true;
	k->lengths += strcasecmp(key, "Content-Length") == 0 ||
		      strcasecmp(key, "Transfer-Encoding") == 0;
	return MHD_YES;
}

/* Every key is compared, and digests have one length, so the time tells nothing. */
static bool key_good(const struct http *h, const char *given)
{
	uint8_t d[SHA256_DIGEST_LENGTH];
	unsigned int good = 0;
	SHA256((const unsigned char *)given, strlen(given), d);
	for (size_t i = 0; i < h->n_key; i++)
		good |= CRYPTO_memcmp(d, h->key[i], sizeof(d)) == 0;
	return good != 0;
}

static bool has_key(const struct http *h, struct MHD_Connection *c)
{
	const char *v = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
	if (h->n_key == 0)
		return true;
	if (v != NULL && strncasecmp(v, "Bearer ", 7) == 0)
		return key_good(h, v + 7 + strspn(v + 7, " "));
	v = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-api-key");
	return v != NULL && key_good(h, v);
}

/* ---------------------------------- chat ---------------------------------- */

static void wake_connection(void *arg)
{
	MHD_resume_connection(arg);
}

static void sleep_connection(void *arg)
{
	MHD_suspend_connection(arg);
}

struct stream {
	struct answer *a;
	struct MHD_Connection *c;
};

static ssize_t stream_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct stream *s = arg;
	(void)pos;
	ssize_t n = answer_take(s->a, buf, max, sleep_connection, wake_connection, s->c);
	if (n == -1)
		return MHD_CONTENT_READER_END_OF_STREAM;
	return n == -2 ? MHD_CONTENT_READER_END_WITH_ERROR : n;
}

static void stream_free(void *arg)
{
	struct stream *s = arg;
	sched_job_put(&s->a->job);
	free(s);
}

static enum MHD_Result begin_stream(struct exchange *x, struct MHD_Connection *c)
{
	struct stream *s = malloc(sizeof(*s));
	if (s == NULL)
		return MHD_NO;
	*s = (struct stream){ x->answer, c };
	sched_job_get(&x->answer->job);
	struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK,
								   stream_read, s, stream_free);
	if (r == NULL) {
		stream_free(s);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", "text/event-stream");
	MHD_add_response_header(r, "Cache-Control", "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* a proxy must not collect events */
	enum MHD_Result rc = MHD_queue_response(c, 200, r);
	MHD_destroy_response(r);
	return rc;
}

/* The prompt must leave room for one token; a limit beyond the room is the room. */
static int check_length(const struct http_model *m, const struct api_request *r, size_t prompt,
			uint32_t *max_tokens, struct api_error *e)
{
	if (prompt > m->context) {
		*e = (struct api_error){ .status = 400,
					 .type = "invalid_request_error",
					 .code = "context_length_exceeded",
					 .param = "messages" };
		snprintf(
			e->message, sizeof(e->message),
			"This model's maximum context length is %u tokens. However, your messages resulted in %zu tokens. Please reduce the length of the messages.",
			m->context, prompt);
		return -1;
	}
	uint32_t room = m->context - (uint32_t)prompt + 1; /* the last token needs no position */
	uint32_t want = r->max_tokens != 0 ? r->max_tokens : m->max_tokens;
	*max_tokens = want < room ? want : room;
	return 0;
}

static void list_add(struct http *h, struct answer *a)
{
	pthread_mutex_lock(&h->lock);
	a->next = h->live;
	h->live = a;
	pthread_mutex_unlock(&h->lock);
}

static void list_remove(struct http *h, struct answer *a)
{
	pthread_mutex_lock(&h->lock);
	for (struct answer **p = &h->live; *p != NULL; p = &(*p)->next) {
		if (*p == a) {
			*p = a->next;
			break;
		}
	}
	pthread_mutex_unlock(&h->lock);
}

static int make_answer(struct exchange *x, struct MHD_Connection *c, struct api_request *r,
		       struct chat_prompt *p, struct api_error *e)
{
	const struct http_model *m = atomic_load(&x->h->model);
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct ds_err err = { 0 };
	uint32_t max_tokens;
	if (api_request_check_ids(r, tok_size(m->tok), &err) != 0) {
		api_error_of(&err, e);
		return -1;
	}
	if (check_length(m, r, p->ids.n, &max_tokens, e) != 0) {
		api_own_path(x->to->way, e->param, sizeof(e->param));
		return -1;
	}
	/* It may wait for long; what it waits with is the ids alone. */
	json_decref(r->body);
	r->body = NULL;
	ds_buf_fini(&p->text);
	struct answer *a = answer_new(x->to->format, r, p, m->name, max_tokens,
				      i != NULL ? i->connect_fd : -1, &err);
	if (a == NULL || sched_submit(x->h->a.sched, &a->job, &err) != 0) {
		if (a != NULL)
			sched_job_put(&a->job);
		api_error_of(&err, e);
		return -1;
	}
	x->answer = a;
	list_add(x->h, a);
	return 0;
}

/* The whole body is here. */
static int start_chat(struct exchange *x, struct MHD_Connection *c, struct api_error *e)
{
	const struct http_model *m = atomic_load(&x->h->model);
	struct api_request r;
	struct chat_prompt p = { 0 };
	struct ds_err err = { 0 };
	if (m == NULL) {
		*e = (struct api_error){ .status = 503,
					 .type = "server_error",
					 .code = "loading",
					 .message = "the model is loading; see /health" };
		return -1;
	}
	if (api_request_parse_by(x->to->way, x->body.data != NULL ? x->body.data : "", x->body.len,
				 &r, &err) != 0) {
		api_error_of(&err, e);
		return -1;
	}
	int rc = chat_encode(m->tok, r.body, true, &p, &err);
	if (rc != 0) {
		api_own_path(x->to->way, err.obj, sizeof(err.obj));
		api_error_of(&err, e);
	} else if (x->to->counts)
		x->counted_tokens = (uint32_t)p.ids.n;
	else
		rc = make_answer(x, c, &r, &p, e);
	chat_prompt_fini(&p);
	api_request_fini(&r);
	return rc;
}

static void forget_body(struct exchange *x)
{
	atomic_fetch_sub(&x->h->body_bytes, x->counted);
	x->counted = 0;
	ds_buf_fini(&x->body);
}

static enum MHD_Result end_chat(struct exchange *x, struct MHD_Connection *c)
{
	if (!answer_wait(x->answer, sleep_connection, wake_connection, c))
		return MHD_YES;
	struct ds_buf b = { 0 };
	pthread_mutex_lock(&x->answer->lock);
	bool broken = x->answer->broken;
	unsigned int status = x->answer->status;
	if (!broken)
		ds_buf_put(&b, x->answer->out.data, x->answer->out.len);
	pthread_mutex_unlock(&x->answer->lock);
	if (broken)
		return refuse(x, c, 500, "internal_error", "out of memory for the answer");
	return respond(c, status, "application/json", &b, NULL, NULL);
}

/* Called with each part of the body, at its end, and again when an answer is done. */
static enum MHD_Result go_on(struct exchange *x, struct MHD_Connection *c, const char *data,
			     size_t *size)
{
	if (*size > 0) {
		size_t n = *size;
		*size = 0;
		if (x->body.len + n > API_BODY_MAX)
			x->too_big = true;
		if (atomic_fetch_add(&x->h->body_bytes, n) + n > HTTP_BODIES_MAX)
			x->too_big = true;
		x->counted += n;
		if (x->counted > 2 * (size_t)API_BODY_MAX)
			return MHD_NO; /* somebody who does not stop: no more patience */
		if (!x->too_big)
			ds_buf_put(&x->body, data, n);
		return MHD_YES;
	}
	if (x->answer != NULL)
		return end_chat(x, c);
	struct api_error e;
	if (x->too_big || x->body.failed) {
		forget_body(x);
		return refuse(x, c, 413, "body_too_large", "the body is larger than 8 MiB");
	}
	int rc = start_chat(x, c, &e);
	forget_body(x);
	if (rc != 0)
		return respond_error(x, c, &e, NULL, NULL);
	if (x->to->counts) {
		struct ds_buf b = { 0 };
		api_messages_put_count(&b, x->counted_tokens);
		return respond(c, 200, "application/json", &b, NULL, NULL);
	}
	return x->answer->req.stream ? begin_stream(x, c) : end_chat(x, c);
}

/* ---------------------------------- routes ---------------------------------- */

static enum MHD_Result get_health(struct http *h, struct MHD_Connection *c)
{
	struct ds_buf b = { 0 };
	unsigned int status = health_put(h->a.health, !has_key(h, c), &b);
	return respond(c, status, "application/json", &b, NULL, NULL);
}

/* @name: NULL for the list. */
static enum MHD_Result get_models(const struct exchange *x, struct MHD_Connection *c,
				  const char *name)
{
	const struct http_model *m = atomic_load(&x->h->model);
	struct ds_buf b = { 0 };
	if (m == NULL)
		return refuse(x, c, 503, "loading", "the model is loading; see /health");
	if (name != NULL && strcmp(name, m->name) != 0) {
		struct api_error e = { .status = 404,
				       .type = "invalid_request_error",
				       .code = "model_not_found",
				       .param = "model" };
		snprintf(e.message, sizeof(e.message),
			 "the model \"%.200s\" is not served here; this server has \"%s\"", name,
			 m->name);
		return respond_error(x, c, &e, NULL, NULL);
	}
	if (name != NULL)
		api_put_model(&b, m->name, m->created, m->context);
	else
		api_put_models(&b, m->name, m->created, m->context);
	return respond(c, 200, "application/json", &b, NULL, NULL);
}

static bool is_json(struct MHD_Connection *c)
{
	const char *v = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Type");
	size_t n = strlen("application/json");
	return v != NULL && strncasecmp(v, "application/json", n) == 0 &&
	       (v[n] == '\0' || v[n] == ';' || v[n] == ' ');
}

static bool length_too_big(struct MHD_Connection *c)
{
	const char *v = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
	return v != NULL && strtoull(v, NULL, 10) > API_BODY_MAX;
}

static enum MHD_Result wrong_method(const struct exchange *x, struct MHD_Connection *c,
				    const char *allow)
{
	struct api_error e = { .status = 405,
			       .type = "invalid_request_error",
			       .code = "method_not_allowed" };
	snprintf(e.message, sizeof(e.message), "this path takes %s", allow);
	return respond_error(x, c, &e, "Allow", allow);
}

/* Everything that can be said before the body. Return: MHD_YES with nothing queued = go on. */
static enum MHD_Result begin(struct exchange *x, struct MHD_Connection *c, const char *url,
			     const char *method)
{
	struct http *h = x->h;
	struct header_check k = { .h = h };
	x->to = find_endpoint(url);
	local_address(c, k.local, sizeof(k.local));
	MHD_get_connection_values(c, MHD_HEADER_KIND, check_header, &k);
	/* A proxy in front may believe the other one and see other requests than we do. */
	if (k.lengths > 1)
		return refuse(x, c, 400, "ambiguous_length",
			      "the request has more than one length for its body");
	if (k.bad_host)
		return refuse(
			x, c, 403, "host_not_allowed",
			"the Host header names another server; --allowed-hosts NAME lets it pass");
	if (MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin") != NULL)
		return refuse(x, c, 403, "origin_not_allowed",
			      "requests from web pages are not allowed");
	bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
	if (strcmp(url, "/health") == 0)
		return get ? get_health(h, c) : wrong_method(x, c, "GET");
	if (!has_key(h, c))
		return refuse(x, c, 401, "invalid_api_key", "a valid API key is needed");
	if (strcmp(url, "/v1/models") == 0)
		return get ? get_models(x, c, NULL) : wrong_method(x, c, "GET");
	if (strncmp(url, "/v1/models/", 11) == 0 && url[11] != '\0')
		return get ? get_models(x, c, url + 11) : wrong_method(x, c, "GET");
	if (x->to == NULL)
		return refuse(
			x, c, 404, "not_found",
			"no such path; there are /health, /v1/models, /v1/chat/completions, /v1/responses and /v1/messages");
	if (strcmp(method, "POST") != 0)
		return wrong_method(x, c, "POST");
	if (!is_json(c))
		return refuse(x, c, 415, "unsupported_media_type",
			      "the Content-Type must be application/json");
	if (length_too_big(c))
		return refuse(x, c, 413, "body_too_large", "the body is larger than 8 MiB");
	return MHD_YES;
}

/* A GET says nothing with a body, but it may bring one; an answer in the midst of it is refused. */
static bool has_body(struct MHD_Connection *c, const char *method)
{
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return true;
	const char *v = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
	return (v != NULL && strspn(v, "0") != strlen(v)) ||
	       MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Transfer-Encoding") != NULL;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *size, void **state)
{
	struct exchange *x = *state;
	(void)version;
	if (x == NULL) {
		x = calloc(1, sizeof(*x));
		if (x == NULL)
			return MHD_NO;
		x->h = cls;
		*state = x;
		MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT,
					  (unsigned int)HTTP_TIMEOUT_S);
	}
	/*
	 * The library calls first with the header alone. An answer at that point ends the connection,
	 * which is right in front of a body that nobody will read; without a body it can wait.
	 */
	if (!x->called && !has_body(c, method)) {
		x->called = true;
		return MHD_YES;
	}
	if (!x->begun) {
		x->called = x->begun = true;
		return begin(x, c, url, method);
	}
	return go_on(x, c, data, size);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **state,
			 enum MHD_RequestTerminationCode why)
{
	struct exchange *x = *state;
	(void)cls;
	(void)c;
	(void)why;
	if (x == NULL)
		return;
	*state = NULL;
	if (x->answer != NULL) {
		list_remove(x->h, x->answer);
		answer_forget(x->answer);
		sched_cancel(x->h->a.sched, &x->answer->job); /* harmless when it has ended */
		sched_job_put(&x->answer->job);
	}
	forget_body(x);
	free(x);
}

/* ---------------------------------- start and stop ---------------------------------- */

static int read_keys(struct http *h, const char *text, size_t len, struct ds_err *err)
{
	for (size_t at = 0; text != NULL && at < len;) {
		const char *nl = memchr(text + at, '\n', len - at);
		size_t n = nl != NULL ? (size_t)(nl - text) - at : len - at;
		const char *key = text + at;
		at += n + 1;
		while (n > 0 && strchr(" \t\r", key[n - 1]) != NULL)
			n--;
		if (n == 0 || key[0] == '#')
			continue;
		if (h->n_key == HTTP_KEYS_MAX || memchr(key, '\0', n) != NULL) {
			ds_err_set(err, DS_ERR_INPUT, 0, "API keys", "read");
			return ds_err_why(err, "more than %d keys, or a NUL byte", HTTP_KEYS_MAX);
		}
		SHA256((const unsigned char *)key, n, h->key[h->n_key++]);
	}
	if (text != NULL && h->n_key == 0) {
		ds_err_set(err, DS_ERR_INPUT, 0, "API keys", "read");
		return ds_err_why(err, "the key file has no key");
	}
	return 0;
}

static int open_listener(const struct http_args *a, struct ds_err *err)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(a->port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(a->port) };
	bool is4 = inet_pton(AF_INET, a->host, &v4.sin_addr) == 1;
	char obj[96];
	snprintf(obj, sizeof(obj), is4 ? "%s:%u" : "[%s]:%u", a->host, (unsigned int)a->port);
	if (!is4 && inet_pton(AF_INET6, a->host, &v6.sin6_addr) != 1)
		return ds_err_set(err, DS_ERR_USAGE, EINVAL, obj, "listen");
	int fd = socket(is4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const struct sockaddr *addr = is4 ? (const struct sockaddr *)&v4
					  : (const struct sockaddr *)&v6;
	int one = 1;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    bind(fd, addr, is4 ? sizeof(v4) : sizeof(v6)) != 0 || listen(fd, 256) != 0) {
		ds_err_set(err, errno == EACCES ? DS_ERR_PERM : DS_ERR_HOST, errno, obj, "listen");
		if (errno == EADDRINUSE)
			ds_err_fix(err,
				   "choose another --port, or stop what listens there: ss -ltnp");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/* The library's own words, about single connections; never a request's content. */
static void on_library_log(void *arg, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
static void on_library_log(void *arg, const char *fmt, va_list ap)
{
	char text[256];
	(void)arg;
	if (!ds_log_on(DS_LOG_DEBUG, "http"))
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	ds_log(DS_LOG_DEBUG, "http", "%s", text);
}

static int start_daemon(struct http *h, struct ds_err *err)
{
	int fd = open_listener(&h->a, err);
	if (fd < 0)
		return -1;
	unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
			     MHD_USE_ERROR_LOG;
	if (strchr(h->host, ':') != NULL)
		flags |= MHD_USE_IPv6;
	/* clang-format off */
	h->daemon = MHD_start_daemon(flags, h->a.port, NULL, NULL, on_request, h,
		MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_THREAD_POOL_SIZE, (unsigned int)HTTP_THREADS,
		MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)HTTP_CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)HTTP_SILENT_S,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
		MHD_OPTION_END);
	/* clang-format on */
	if (h->daemon != NULL)
		return 0;
	close(fd);
	return ds_err_set(err, DS_ERR_HOST, errno, h->host, "start the HTTP server");
}

struct http *http_start(const struct http_args *a, struct ds_err *err)
{
	struct http *h = calloc(1, sizeof(*h));
	if (h == NULL || pthread_mutex_init(&h->lock, NULL) != 0) {
		free(h);
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, a->host, "start the HTTP server");
		return NULL;
	}
	h->a = *a;
	snprintf(h->host, sizeof(h->host), "%s", a->host);
	snprintf(h->allowed, sizeof(h->allowed), "%s", a->allowed_hosts);
	h->a.host = h->host;
	h->a.allowed_hosts = h->allowed;
	if (gethostname(h->host_name, sizeof(h->host_name) - 1) != 0)
		h->host_name[0] = '\0';
	if (read_keys(h, a->keys, a->keys_len, err) != 0 || start_daemon(h, err) != 0) {
		pthread_mutex_destroy(&h->lock);
		free(h);
		return NULL;
	}
	return h;
}

void http_set_model(struct http *h, const struct http_model *m)
{
	atomic_store(&h->model, m);
}

void http_tick(struct http *h)
{
	int64_t now = answer_now_ms();
	pthread_mutex_lock(&h->lock);
	for (struct answer *a = h->live; a != NULL; a = a->next) {
		if (answer_gone(a)) {
			sched_cancel(h->a.sched, &a->job);
			answer_left(a); /* else its connection would sleep for ever */
		} else {
			answer_ping(a, now);
		}
	}
	pthread_mutex_unlock(&h->lock);
}

size_t http_busy(struct http *h)
{
	size_t n = 0;
	pthread_mutex_lock(&h->lock);
	for (const struct answer *a = h->live; a != NULL; a = a->next)
		n++;
	pthread_mutex_unlock(&h->lock);
	return n;
}

void http_stop(struct http *h)
{
	if (h == NULL)
		return;
	MHD_stop_daemon(h->daemon);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
