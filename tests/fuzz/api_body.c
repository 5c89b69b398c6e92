/*
 * api_body.c - any bytes as the body of POST /v1/chat/completions: an answer or an error that names
 * a field, and stop strings that never show, however the text is cut.
 */
#include <stdlib.h>
#include <string.h>

#include "api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The request's own bytes serve as content, in pieces of one to eight bytes. */
static void feed(const struct api_request *r, const uint8_t *data, size_t size)
{
	struct api_stop s = { .req = r };
	struct ds_buf out = { 0 };
	bool hit = false;
	for (size_t at = 0; at < size && !hit;) {
		size_t step = 1 + (data[at] & 7);
		if (step > size - at)
			step = size - at;
		hit = api_stop_put(&s, (const char *)data + at, step, &out);
		at += step;
	}
	if (!hit)
		api_stop_end(&s, &out);
	for (uint32_t i = 0; i < r->n_stop; i++)
		if (out.len > 0 && memmem(out.data, out.len, r->stop[i], r->stop_len[i]) != NULL)
			abort();
	ds_buf_fini(&s.held);
	ds_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct api_request r;
	struct ds_err err = { 0 };
	char *exact = malloc(size > 0 ? size : 1);
	if (exact == NULL)
		return 0;
	memcpy(exact, data, size);
	if (api_request_parse(exact, size, &r, &err) == 0) {
		feed(&r, data, size);
		api_request_fini(&r);
	} else {
		struct api_error e;
		struct ds_buf out = { 0 };
		api_error_of(&err, &e);
		api_put_error(&out, &e);
		if (err.why[0] == '\0' || out.len == 0)
			abort();
		ds_buf_fini(&out);
	}
	free(exact);
	return 0;
}
