/*
 * out_parse.c - any bytes and marks as an answer: events in order, arguments that are JSON, the same for
 * every way to cut the bytes.
 *
 * Input: one byte of options, then the answer; bytes 1, 2 and 3 are the marks, 4 is where it is cut.
 */
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "out_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_json[] =
	"[{\"name\":\"w\",\"parameters\":{\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
	"\"on\":{\"type\":[\"boolean\",\"null\"]},\"list\":{\"anyOf\":[{\"type\":\"array\"},{\"enum\":[1]}]}}}}]";

struct heard {
	struct ds_buf all, args;
	bool any, open; /* a call is open */
	enum out_kind kind;
	uint32_t calls;
};

static void check_utf8(const char *s, size_t len)
{
	for (int n; len > 0; s += n, len -= (size_t)n)
		if ((n = ds_utf8_len(s, len)) <= 0)
			abort();
}

static void check_args(const struct ds_buf *b)
{
	json_t *v = json_loadb(b->data, b->len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);

	if (!json_is_object(v))
		abort();
	json_decref(v);
}

static void hear(void *arg, const struct out_event *ev)
{
	struct heard *h = arg;
	bool joins = h->any && h->kind == ev->kind &&
		     (ev->kind <= OUT_CONTENT || ev->kind == OUT_ARGS);

	check_utf8(ev->text, ev->len);
	if ((ev->kind == OUT_ARGS || ev->kind == OUT_CALL_END) &&
	    (!h->open || ev->call + 1 != h->calls))
		abort();
	if (ev->kind <= OUT_CONTENT && h->calls > 0)
		abort(); /* nothing is said behind a call */
	if (ev->kind == OUT_CALL) {
		if (ev->call != h->calls++ || ev->len == 0)
			abort();
		h->open = true;
		ds_buf_reset(&h->args);
	}
	if (ev->kind == OUT_ARGS)
		ds_buf_put(&h->args, ev->text, ev->len);
	if (ev->kind == OUT_CALL_END) {
		check_args(&h->args);
		h->open = false;
	}
	if (!joins)
		ds_buf_printf(&h->all, "|%d|", (int)ev->kind);
	ds_buf_put(&h->all, ev->text, ev->len);
	h->any = true;
	h->kind = ev->kind;
}

static void run(const uint8_t *data, size_t size, const json_t *tools, bool bytewise,
		struct heard *h)
{
	struct out_parse_opts o = { .thinking = data[0] & 1,
				    .calls = data[0] & 2,
				    .open = data[0] & 4,
				    .tools = data[0] & 8 ? tools : NULL };
	struct out_parse p;

	*h = (struct heard){ 0 };
	out_parse_init(&p, NULL, &o, hear, h);
	for (size_t i = 1, n; i < size; i += n) {
		n = 1;
		if (data[i] >= 1 && data[i] <= 3) {
			out_parse_mark(&p, (enum out_mark)(data[i] - 1));
			continue;
		}
		while (!bytewise && i + n < size && (data[i + n] < 1 || data[i + n] > 4) &&
		       data[i] != 4)
			n++;
		if (data[i] != 4)
			out_parse_bytes(&p, (const char *)data + i, n);
	}
	out_parse_end(&p, data[0] & 16);
	if (p.failed || p.n_calls != h->calls || p.n_complete > p.n_calls)
		abort();
	out_parse_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static json_t *tools;
	struct heard a, b;

	if (tools == NULL)
		tools = json_loads(tools_json, 0, NULL);
	if (size == 0)
		return 0;
	run(data, size, tools, false, &a);
	run(data, size, tools, true, &b);
	if (a.all.len != b.all.len ||
	    (a.all.len > 0 && memcmp(a.all.data, b.all.data, a.all.len) != 0))
		abort();
	ds_buf_fini(&a.all);
	ds_buf_fini(&a.args);
	ds_buf_fini(&b.all);
	ds_buf_fini(&b.args);
	return 0;
}
