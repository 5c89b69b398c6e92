/*
 * test_http.c - what needs no socket: Host headers, answers between two threads, /health.
 */
#include <CUnit/CUnit.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"
#include "health.h"
#include "http.h"

static const struct host_case {
	const char *value;
	bool ok;
	const char *why;
} host_cases[] = {
	{ "localhost", true, "loopback by name" },
	{ "LocalHost:8000", true, "case and port do not matter" },
	{ "127.0.0.1:8000", true, "loopback" },
	{ "127.3.2.1", true, "all of 127/8" },
	{ "[::1]:8000", true, "loopback, IPv6" },
	{ "10.0.0.5:8000", true, "the address it listens on" },
	{ "10.200.0.1", true, "the address the client reached" },
	{ "spark-1", true, "this host's name" },
	{ "spark-1.local:80", true, "its multicast DNS name" },
	{ "ai.example.org", true, "allowed by the config" },
	{ "", false, "empty" },
	{ "evil.example", false, "another name" },
	{ "10.0.0.6", false, "another address" },
	{ "localhost.evil.example", false, "a name that begins alike" },
	{ "spark-1.local.evil.example", false, "the same" },
	{ "127.0.0.1.evil.example", false, "an address that is none" },
	{ "localhost:80@evil", false, "a port that is none" },
	{ "[::1", false, "no end" },
	{ "[::1]x", false, "text behind the address" },
	{ "ai.example", false, "a part of an allowed name" },
	{ "spark-1.locals", false, "not .local" },
};

static void test_host(void)
{
	for (size_t i = 0; i < sizeof(host_cases) / sizeof(host_cases[0]); i++) {
		const struct host_case *c = &host_cases[i];
		bool ok = http_host_allowed(c->value, "10.0.0.5", "10.200.0.1", "spark-1",
					    "x.y, ai.example.org") == c->ok;
		if (!ok)
			printf("\"%s\": %s\n", c->value, c->why);
		CU_ASSERT_TRUE(ok);
	}
	CU_ASSERT_FALSE(http_host_allowed(".local", "", "", "", ""));
}

static int n_sleep, n_wake;

static void tst_sleep(void *arg)
{
	(void)arg;
	n_sleep++;
}

static void tst_wake(void *arg)
{
	(void)arg;
	n_wake++;
}

static struct answer *make(const char *body, int fd)
{
	struct api_request r;
	struct chat_prompt p = { 0 };
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL_FATAL(api_request_parse(body, strlen(body), &r, &err), 0);
	struct answer *a = answer_new(&api_chat_format, &r, &p, "m", 10, fd, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	n_sleep = n_wake = 0;
	return a;
}

#define MSG "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* Takes all there is, as the HTTP side would, in small pieces. */
static ssize_t take_all(struct answer *a, char *out, size_t size)
{
	size_t n = 0;
	for (;;) {
		ssize_t got = answer_take(a, out + n, size - n - 1 < 7 ? size - n - 1 : 7,
					  tst_sleep, tst_wake, NULL);
		if (got > 0)
			n += (size_t)got;
		out[n] = '\0';
		if (got <= 0)
			return got;
	}
}

static void put(struct answer *a, const char *content, bool *hit)
{
	*hit = answer_content(a, content, strlen(content));
}

static void test_stream(void)
{
	struct answer *a = make("{" MSG ",\"stream\":true,\"stop\":\"END\"}", -1);
	struct api_usage u = { .prompt = 1, .completion = 2 };
	char out[8192];
	bool hit;
	CU_ASSERT_EQUAL(take_all(a, out, sizeof(out)), 0);
	CU_ASSERT_EQUAL(n_sleep, 1);
	answer_start(a);
	CU_ASSERT_EQUAL(n_wake, 1);
	put(a, "one E", &hit);
	CU_ASSERT_FALSE(hit);
	CU_ASSERT_EQUAL(n_wake, 1); /* it was awake: no second wake */
	CU_ASSERT_EQUAL(take_all(a, out, sizeof(out)), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(out, "\"content\": \"one \""));
	put(a, "NDx", &hit);
	CU_ASSERT_TRUE(hit);
	answer_end(a, "stop", true, &u);
	CU_ASSERT_EQUAL(take_all(a, out, sizeof(out)), -1);
	CU_ASSERT_PTR_NULL(strstr(out, "END"));
	CU_ASSERT_PTR_NOT_NULL(strstr(out, "\"finish_reason\": \"stop\""));
	CU_ASSERT_STRING_EQUAL(out + strlen(out) - 16, "\n\ndata: [DONE]\n\n");
	answer_fail(a, &(struct ds_err){ .kind = DS_ERR_PEER }); /* too late: nothing is added */
	CU_ASSERT_EQUAL(take_all(a, out, sizeof(out)), -1);
	CU_ASSERT_STRING_EQUAL(out, "");
	sched_job_put(&a->job);
}

static void test_stream_error(void)
{
	struct answer *a = make("{" MSG ",\"stream\":true}", -1);
	struct ds_err err = { 0 };
	char out[8192];
	ds_err_set(&err, DS_ERR_PEER, 0, "rank 1", "compute");
	answer_start(a);
	answer_fail(a, &err);
	CU_ASSERT_EQUAL(take_all(a, out, sizeof(out)), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(out, "data: {\"error\": {\"message\": \"compute on rank 1"));
	CU_ASSERT_STRING_EQUAL(out + strlen(out) - 14, "data: [DONE]\n\n");
	sched_job_put(&a->job);
}

static void test_whole(void)
{
	struct answer *a = make("{" MSG "}", -1);
	struct api_usage u = { .prompt = 1, .completion = 2 };
	bool hit;
	CU_ASSERT_FALSE(answer_wait(a, tst_sleep, tst_wake, NULL));
	answer_start(a);
	put(a, "text", &hit);
	CU_ASSERT_EQUAL(n_wake, 0);
	answer_end(a, "length", false, &u);
	CU_ASSERT_EQUAL(n_wake, 1);
	CU_ASSERT_TRUE(answer_wait(a, tst_sleep, tst_wake, NULL));
	CU_ASSERT_EQUAL(a->status, 200);
	json_t *o = json_loads(a->out.data, 0, NULL);
	const json_t *m =
		json_object_get(json_array_get(json_object_get(o, "choices"), 0), "message");
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(m, "content")), "text");
	json_decref(o);
	sched_job_put(&a->job);
}

static void test_ping(void)
{
	struct answer *a = make("{" MSG ",\"stream\":true}", -1);
	char out[256];
	int64_t t = a->last_ms;
	CU_ASSERT_EQUAL(take_all(a, out, sizeof(out)), 0);
	answer_ping(a, t + ANSWER_PING_MS - 1);
	CU_ASSERT_EQUAL(n_wake, 0);
	answer_ping(a, t + ANSWER_PING_MS);
	CU_ASSERT_EQUAL(n_wake, 1);
	answer_ping(a, t + 10 * ANSWER_PING_MS); /* not taken yet: one is enough */
	CU_ASSERT_EQUAL(take_all(a, out, sizeof(out)), 0);
	CU_ASSERT_STRING_EQUAL(out, ": keep-alive\n\n");
	sched_job_put(&a->job);
}

static void test_gone(void)
{
	int s[2];
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	struct answer *a = make("{" MSG "}", s[0]);
	CU_ASSERT_FALSE(answer_gone(a));
	close(s[1]);
	CU_ASSERT_TRUE(answer_gone(a));
	CU_ASSERT_FALSE(answer_wait(a, tst_sleep, tst_wake, NULL));
	answer_left(a);
	CU_ASSERT_EQUAL(n_wake, 1);
	CU_ASSERT_TRUE(a->broken);
	answer_forget(a);
	CU_ASSERT_FALSE(answer_gone(a)); /* its socket is let go; only cancelling tells now */
	sched_job_put(&a->job);
	close(s[0]);
}

static json_t *health_json(struct health *h, unsigned int want)
{
	struct ds_buf b = { 0 };
	CU_ASSERT_EQUAL(health_put(h, false, &b), want);
	json_t *o = json_loads(b.data, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(o, "format")), 1);
	ds_buf_fini(&b);
	return o;
}

static bool word_is(const json_t *o, const char *key, const char *want)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s != NULL && strcmp(s, want) == 0;
}

static void test_health(void)
{
	struct health h;
	struct ds_err why = { 0 };
	struct ds_buf b = { 0 };
	CU_ASSERT_EQUAL_FATAL(health_init(&h, 2, NULL), 0);
	json_t *o = health_json(&h, 503);
	CU_ASSERT_TRUE(word_is(o, "status", "loading"));
	CU_ASSERT_TRUE(json_is_null(json_object_get(o, "culprit")));
	CU_ASSERT_EQUAL(json_array_size(json_object_get(o, "ranks")), 2);
	json_decref(o);
	health_set(&h, HEALTH_OK, NULL);
	o = health_json(&h, 200);
	CU_ASSERT_TRUE(word_is(o, "status", "ok"));
	json_decref(o);
	/* What stays of a group that was lost. */
	h.has_last = true;
	h.last = (struct tp_health){ .failed = true, .n_peer = 1, .last_call = "reduce 7" };
	h.last.peer[0] =
		(struct tp_peer_health){ .rank = 1, .lost = true, .n_path = 2, .last_path = 1 };
	h.last.peer[0].path[0] =
		(struct tp_path_health){ .name = "rail0", .state = TP_PATH_DOWN, .since_ms = 900 };
	h.last.peer[0].path[1] =
		(struct tp_path_health){ .name = "rail1", .state = TP_PATH_DOWN, .since_ms = 900 };
	h.last_ms = answer_now_ms() - 60000;
	ds_err_set(&why, DS_ERR_PEER, 0, "rank 1", "keep the group together");
	health_set(&h, HEALTH_FAILED, &why);
	o = health_json(&h, 503);
	const json_t *c = json_object_get(o, "culprit");
	CU_ASSERT_TRUE(word_is(o, "status", "failed"));
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(c, "rank")), 1);
	CU_ASSERT_TRUE(word_is(c, "path", "rail1")); /* the one that went last */
	CU_ASSERT_TRUE(word_is(c, "collective", "reduce 7"));
	CU_ASSERT_TRUE(json_is_integer(json_object_get(c, "since_ms")));
	const json_t *lost = json_array_get(json_object_get(o, "ranks"), 1);
	CU_ASSERT_TRUE(word_is(lost, "state", "lost"));
	/* Down for 900 ms when it was lost, a minute ago. */
	const json_t *path = json_array_get(json_object_get(lost, "paths"), 0);
	CU_ASSERT_TRUE(json_integer_value(json_object_get(path, "since_ms")) >= 60900);
	json_decref(o);
	CU_ASSERT_EQUAL(health_put(&h, true, &b), 503);
	CU_ASSERT_STRING_EQUAL(b.data, "{\"format\": 1, \"status\": \"failed\"}\n");
	ds_buf_fini(&b);
	health_fini(&h);
}

static CU_TestInfo http_tests[] = {
	{ "Host headers: this server's own names only", test_host },
	{ "a stream: sleep, wake, stop string, end", test_stream },
	{ "a stream that fails ends with an error event and [DONE]", test_stream_error },
	{ "a whole answer wakes its client once", test_whole },
	{ "a silent stream gets a comment every five seconds, one at a time", test_ping },
	{ "a client that closes is noticed", test_gone },
	{ "/health: loading, ok, failed with its culprit, word only", test_health },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo http_suite = { .pName = "engine/http", .pTests = http_tests };
