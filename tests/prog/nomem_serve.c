/*
 * nomem_serve.c - a request and its answer with every allocation failing once.
 *
 * The Nth allocation of a whole course (parse the body, begin an answer, give text, end it, take the
 * bytes) fails, for N = 1, 2, ... until a course needs fewer. Each must give the whole answer, report
 * DS_ERR_NOMEM, or be marked broken, so that a client never takes half an answer for a whole one; and
 * each must return everything it took. jansson's own allocations are left alone.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "failmalloc.h"

#ifdef FAILMALLOC_ABSENT

int main(void)
{
	puts("skip every allocation of an answer fails once: a sanitizer has its own allocator");
	return 77;
}

#else

static void nothing(void *arg)
{
	(void)arg;
}

enum outcome {
	WHOLE,
	TOLD, /* an error, or a mark that no client mistakes */
	WRONG
};

static enum outcome take(struct answer *a, size_t *len)
{
	static char all[16384];
	ssize_t n;
	*len = 0;
	if (!a->req.stream) {
		*len = a->out.len;
		return a->broken || !a->done || a->status != 200 ? TOLD : WHOLE;
	}
	while ((n = answer_take(a, all + *len, sizeof(all) - 1 - *len, nothing, nothing, NULL)) > 0)
		*len += (size_t)n;
	all[*len] = '\0';
	if (n == -2 || (n == -1 && strstr(all, "data: {\"error\"") != NULL))
		return TOLD;
	return n == -1 ? WHOLE : WRONG;
}

static void give(struct answer *a, const char *reasoning, const char *content)
{
	answer_event(a, &(struct out_event){ .kind = OUT_REASONING,
					     .text = reasoning,
					     .len = strlen(reasoning) });
	answer_content(a, content, strlen(content));
}

static enum outcome course(const char *body, size_t *len)
{
	struct api_request r;
	struct chat_prompt p = { .thinking = true };
	struct ds_err err = { 0 };
	struct api_usage u = { .prompt = 3, .completion = 4 };
	if (api_request_parse(body, strlen(body), &r, &err) != 0)
		return err.kind == DS_ERR_NOMEM ? TOLD : WRONG;
	struct answer *a = answer_new(&api_chat_format, &r, &p, "m", 9, -1, &err);
	if (a == NULL) {
		api_request_fini(&r);
		return err.kind == DS_ERR_NOMEM ? TOLD : WRONG;
	}
	answer_start(a);
	give(a, "some thought", "");
	give(a, "", "text that goes on until E");
	give(a, "", "N comes, and is no end");
	answer_end(a, "length", false, &u);
	enum outcome o = take(a, len);
	sched_job_put(&a->job);
	return o;
}

/* Return: the number of allocations that were made to fail; -1 wrong. */
static long every(const char *body)
{
	size_t want, len;
	if (course(body, &want) != WHOLE || want == 0)
		return -1;
	for (long n = 0; n < 10000; n++) {
		long before = fm_alive;
		fm_left = n;
		enum outcome o = course(body, &len);
		bool came = fm_left < 0;
		fm_left = -1;
		if (o == WRONG || fm_alive != before || (o == WHOLE && len != want)) {
			printf("   allocation %ld: outcome %d, %zu bytes, %ld blocks kept\n", n,
			       (int)o, len, fm_alive - before);
			return -1;
		}
		if (!came)
			return n;
	}
	return -1;
}

int main(void)
{
	static const char *const bodies[] = {
		"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,\"stop\":[\"END\",\"Z\"],"
		"\"stream_options\":{\"include_usage\":true}}",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stop\":\"END\"}",
	};
	int bad = 0;
	json_set_alloc_funcs(fm_steady_malloc, free);
	for (size_t i = 0; i < 2; i++) {
		long n = every(bodies[i]);
		printf("%sok every one of %ld allocations of %s fails once\n", n > 5 ? "" : "not ",
		       n, i == 0 ? "a stream" : "a whole answer");
		bad |= n <= 5;
	}
	return bad;
}

#endif
