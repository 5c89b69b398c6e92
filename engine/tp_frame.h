/*
 * tp_frame.h - the unit that travels on a path: 48 bytes of header, then the payload.
 *
 * All numbers are little-endian. The CRC-32C covers the header (without itself) and the payload. A
 * frame is parsed only on a connection that has authenticated itself; it is untrusted all the same.
 */
#ifndef ENG_TP_FRAME_H
#define ENG_TP_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define TP_FRAME_VERSION   1
#define TP_FRAME_HDR	   48
#define TP_CHUNK_MAX	   65536	/* payload bytes of one frame */
#define TP_MSG_MAX	   (256u << 20) /* bytes of one message */
#define TP_STATUS_ACKS_MAX 64

enum tp_frame_type {
	TP_FRAME_DATA = 1,    /* one chunk of a message */
	TP_FRAME_STATUS = 2,  /* heartbeat, acknowledgements, credit */
	TP_FRAME_GOODBYE = 3, /* orderly end; everything before it was acknowledged */
	TP_FRAME_STATE = 4,   /* formation: what both sides must agree on */
	TP_FRAME_START = 5,   /* formation: rank 0 names the epoch (in the header) */
	TP_FRAME_REFUSE = 6,  /* formation: the reason why this rank gives up, as text */
};

struct tp_frame {
	uint8_t type, kind; /* kind: enum tp_kind, of DATA */
	uint32_t epoch;
	uint32_t len;		/* payload bytes */
	uint64_t seq;		/* of the chunk, per direction, from 1; 0 in other types */
	uint64_t op;		/* of the message, per direction, from 0 */
	uint32_t total, offset; /* bytes of the message; where this chunk goes */
	const uint8_t *payload; /* [len] borrowed from the buffer that was parsed */
};

/* The payload of STATUS. */
struct tp_status {
	uint64_t byte_limit; /* payload bytes the receiver of this may have sent, from the start */
	uint64_t op_limit;   /* messages below this number may be started */
	uint32_t
		waiting_ms; /* how long the sender has been waiting in a collective; 0 = it is not */
	uint32_t n_ack;
	uint64_t ack[TP_STATUS_ACKS_MAX]; /* chunks that arrived */
};

/**
 * tp_frame_put() - write header and checksum; the payload is already at @buf + TP_FRAME_HDR.
 * @buf: [TP_FRAME_HDR + f->len]; f->payload is ignored. Return: bytes of the whole frame.
 */
size_t tp_frame_put(uint8_t *buf, const struct tp_frame *f);

/**
 * tp_frame_parse() - look at the beginning of @buf.
 * @why: out: a static text when the bytes are no frame
 * Return: bytes of the frame that @f describes (view into @buf); 0 = more bytes are needed; -1 = the
 * bytes are no frame of this protocol, the connection cannot be used any longer.
 */
long tp_frame_parse(const uint8_t *buf, size_t len, struct tp_frame *f, const char **why);

/** tp_status_put() - @s as payload into @buf [24 + 8 * n_ack]. Return: bytes. */
size_t tp_status_put(uint8_t *buf, const struct tp_status *s);
/** tp_status_parse() - Return: 0; -1 if the payload is not a status. */
int tp_status_parse(const uint8_t *buf, size_t len, struct tp_status *s);

#endif
