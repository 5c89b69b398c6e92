/*
 * tp_frame.c - bytes of frames: writing them, and believing none that arrive.
 */
#include "tp_frame.h"

#include <endian.h>
#include <string.h>

#include "file.h"
#include "tp.h"

#define MAGIC 0x31465344u /* "DSF1" */

/* Offsets of the header's fields. */
enum {
	AT_MAGIC = 0,
	AT_VERSION = 4,
	AT_TYPE = 5,
	AT_KIND = 6,
	AT_ZERO = 7,
	AT_EPOCH = 8,
	AT_LEN = 12,
	AT_SEQ = 16,
	AT_OP = 24,
	AT_TOTAL = 32,
	AT_OFFSET = 36,
	AT_ZERO4 = 40,
	AT_CRC = 44,
};

static void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static uint32_t frame_crc(const uint8_t *buf, size_t len)
{
	return ds_crc32c(ds_crc32c(0, buf, AT_CRC), buf + TP_FRAME_HDR, len);
}

size_t tp_frame_put(uint8_t *buf, const struct tp_frame *f)
{
	put32(buf + AT_MAGIC, MAGIC);
	buf[AT_VERSION] = TP_FRAME_VERSION;
	buf[AT_TYPE] = f->type;
	buf[AT_KIND] = f->kind;
	buf[AT_ZERO] = 0;
	put32(buf + AT_EPOCH, f->epoch);
	put32(buf + AT_LEN, f->len);
	put64(buf + AT_SEQ, f->seq);
	put64(buf + AT_OP, f->op);
	put32(buf + AT_TOTAL, f->total);
	put32(buf + AT_OFFSET, f->offset);
	put32(buf + AT_ZERO4, 0);
	put32(buf + AT_CRC, frame_crc(buf, f->len));
	return TP_FRAME_HDR + f->len;
}

/* What can be said of a header before its payload is there. */
static const char *header_fault(const uint8_t *buf, const struct tp_frame *f)
{
	if (get32(buf + AT_MAGIC) != MAGIC)
		return "no frame begins here (wrong magic)";
	if (buf[AT_VERSION] != TP_FRAME_VERSION)
		return "frame of another version";
	if (f->type < TP_FRAME_DATA || f->type > TP_FRAME_REFUSE)
		return "frame of unknown type";
	if (buf[AT_ZERO] != 0 || get32(buf + AT_ZERO4) != 0)
		return "reserved bytes of a frame are not zero";
	if (f->len > TP_CHUNK_MAX)
		return "frame longer than the limit";
	if (f->type != TP_FRAME_DATA)
		return NULL;
	if (f->kind >= TP_KINDS || f->seq == 0)
		return "chunk of unknown kind or without a number";
	if (f->len == 0 || f->total > TP_MSG_MAX || f->offset > f->total ||
	    f->len > f->total - f->offset)
		return "chunk does not fit its message";
	return NULL;
}

long tp_frame_parse(const uint8_t *buf, size_t len, struct tp_frame *f, const char **why)
{
	if (len < TP_FRAME_HDR)
		return 0;
	*f = (struct tp_frame){
		.type = buf[AT_TYPE],
		.kind = buf[AT_KIND],
		.epoch = get32(buf + AT_EPOCH),
		.len = get32(buf + AT_LEN),
		.seq = get64(buf + AT_SEQ),
		.op = get64(buf + AT_OP),
		.total = get32(buf + AT_TOTAL),
		.offset = get32(buf + AT_OFFSET),
		.payload = buf + TP_FRAME_HDR,
	};
	if ((*why = header_fault(buf, f)) != NULL)
		return -1;
	if (len < TP_FRAME_HDR + (size_t)f->len)
		return 0;
	if (get32(buf + AT_CRC) != frame_crc(buf, f->len)) {
		*why = "checksum of a frame is wrong";
		return -1;
	}
	return (long)(TP_FRAME_HDR + f->len);
}

size_t tp_status_put(uint8_t *buf, const struct tp_status *s)
{
	put64(buf, s->byte_limit);
	put64(buf + 8, s->op_limit);
	put32(buf + 16, s->waiting_ms);
	put32(buf + 20, s->n_ack);
	for (uint32_t i = 0; i < s->n_ack; i++)
		put64(buf + 24 + (size_t)8 * i, s->ack[i]);
	return 24 + (size_t)8 * s->n_ack;
}

int tp_status_parse(const uint8_t *buf, size_t len, struct tp_status *s)
{
	if (len < 24)
		return -1;
	s->byte_limit = get64(buf);
	s->op_limit = get64(buf + 8);
	s->waiting_ms = get32(buf + 16);
	s->n_ack = get32(buf + 20);
	if (s->n_ack > TP_STATUS_ACKS_MAX || len != 24 + (size_t)8 * s->n_ack)
		return -1;
	for (uint32_t i = 0; i < s->n_ack; i++)
		s->ack[i] = get64(buf + 24 + (size_t)8 * i);
	return 0;
}
