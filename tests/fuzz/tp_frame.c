/*
 * tp_frame.c - any bytes as a stream of frames: what is accepted says nothing beyond its bounds, and
 * writing it again gives the same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tp_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const uint8_t *buf, long n, const struct tp_frame *f)
{
	uint8_t *out = malloc((size_t)n);
	if (out == NULL)
		return;
	memcpy(out + TP_FRAME_HDR, f->payload, f->len);
	if (tp_frame_put(out, f) != (size_t)n || memcmp(out, buf, (size_t)n) != 0)
		abort();
	free(out);
}

static void status(const uint8_t *payload, size_t len)
{
	struct tp_status s;
	uint8_t out[24 + 8 * TP_STATUS_ACKS_MAX];
	uint8_t *exact = malloc(len + (len == 0));
	if (exact == NULL)
		return;
	memcpy(exact, payload, len);
	if (tp_status_parse(exact, len, &s) == 0 &&
	    (tp_status_put(out, &s) != len || memcmp(out, exact, len) != 0))
		abort();
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tp_frame f;
	const char *why = NULL;
	size_t off = 0;
	long n = 0;
	uint8_t *buf = malloc(size + (size == 0));
	if (buf == NULL)
		return 0;
	memcpy(buf, data, size);
	/* Few inputs have a right checksum: give every header the one it needs, on half of them. */
	if (size >= TP_FRAME_HDR && data[7] == 0xff) {
		buf[7] = 0;
		struct tp_frame h = { .type = buf[5], .kind = buf[6] };
		memcpy(&h.epoch, buf + 8, 4);
		memcpy(&h.seq, buf + 16, 8);
		memcpy(&h.op, buf + 24, 8);
		memcpy(&h.total, buf + 32, 4);
		memcpy(&h.offset, buf + 36, 4);
		h.len = (uint32_t)(size - TP_FRAME_HDR < TP_CHUNK_MAX ? size - TP_FRAME_HDR
								      : TP_CHUNK_MAX);
		tp_frame_put(buf, &h);
	}
	while ((n = tp_frame_parse(buf + off, size - off, &f, &why)) > 0) {
		if ((size_t)n > size - off || f.len > TP_CHUNK_MAX)
			abort();
		if (f.type == TP_FRAME_DATA && (f.offset > f.total || f.len > f.total - f.offset))
			abort();
		again(buf + off, n, &f);
		off += (size_t)n;
	}
	if (n < 0 && why == NULL)
		abort();
	status(data, size);
	free(buf);
	return 0;
}
