/*
 * tp_msg.c - any sequence of chunks and statuses from an authenticated peer, with calls of the
 * compute thread in between: no byte lands outside its message, memory stays bounded.
 *
 * Input: records of 8 bytes, the first byte says what happens. Frames are made with a right checksum
 * and go through the parser, as on a path.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tp_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WANT 1000 /* bytes of the message that the compute thread asks for */

/* A group of two with one healthy path whose writes go nowhere. */
static struct tp *group(void)
{
	struct tp *tp = calloc(1, sizeof(*tp));
	struct tp_peer *p = calloc(1, sizeof(*p));
	if (tp == NULL || p == NULL || tp_msg_init(p) != 0)
		exit(1);
	tp->c.world = 2;
	tp->epoch = 1;
	tp->peer[1] = p;
	p->rank = 1;
	p->n_path = 2;
	for (uint32_t i = 0; i < 2; i++) {
		p->path[i].peer = 1;
		p->path[i].idx = i;
		p->path[i].fd = -1;
		p->path[i].state = TP_PATH_OK;
		if ((p->path[i].txq = calloc(TP_TXQ_MAX, sizeof(struct tp_chunk *))) == NULL)
			exit(1);
	}
	return tp;
}

static void drain(struct tp *tp)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct tp_path *pa = &tp->peer[1]->path[i];
		for (; pa->txq_n > 0; pa->txq_n--) {
			tp_chunk_put(tp, pa->txq[pa->txq_head]);
			pa->txq_head = (pa->txq_head + 1) % TP_TXQ_MAX;
		}
	}
}

static void release(struct tp *tp)
{
	drain(tp);
	for (uint32_t i = 0; i < 2; i++)
		free(tp->peer[1]->path[i].txq);
	tp_msg_fini(tp, tp->peer[1]);
	free(tp->peer[1]);
	while (tp->pool != NULL) {
		struct tp_chunk *c = tp->pool;
		tp->pool = c->next;
		free(c);
	}
	for (uint32_t i = 0; i < TP_SPARE_MAX; i++)
		free(tp->spare[i].buf);
	free(tp);
}

static const char *frame(struct tp *tp, const uint8_t *r, int64_t now)
{
	static uint8_t buf[TP_FRAME_HDR + TP_CHUNK_MAX];
	const char *why = NULL;
	struct tp_peer *p = tp->peer[1];
	struct tp_frame got, f = {
		.type = r[0] & 1 ? TP_FRAME_DATA : TP_FRAME_STATUS,
		.kind = r[1] & 3,
		.epoch = 1,
	};
	if (f.type == TP_FRAME_DATA) {
		f.seq = p->seen_low + r[2] - (r[2] > 250 ? 255 : 0);
		f.op = p->rx_op + (r[3] & 15) - (r[3] > 240);
		f.total = r[1] & 4 ? WANT : (uint32_t)r[4] << (r[5] & 17);
		f.offset = (uint32_t)r[6] * 4;
		f.len = r[7] & 0x80 ? f.total - f.offset : r[7];
		f.len = f.len > TP_CHUNK_MAX ? TP_CHUNK_MAX : f.len;
	} else {
		struct tp_status s = { .byte_limit = r[2], .op_limit = r[3], .n_ack = r[4] & 63 };
		for (uint32_t i = 0; i < s.n_ack; i++)
			s.ack[i] = (uint64_t)i * r[5] + r[6];
		f.len = (uint32_t)tp_status_put(buf + TP_FRAME_HDR, &s) - (r[7] == 1);
	}
	long n = tp_frame_parse(buf, tp_frame_put(buf, &f), &got, &why);
	if (n <= 0)
		return why;
	struct tp_path *pa = &p->path[r[0] >> 1 & 1];
	return got.type == TP_FRAME_DATA ? tp_msg_data(tp, pa, &got, now)
					 : tp_msg_status(tp, pa, &got, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tp *tp = group();
	struct tp_peer *p = tp->peer[1];
	uint8_t *want = malloc(WANT), out[3000] = { 0 };
	const char *why = NULL;
	int64_t now = 1;
	for (; want != NULL && size >= 8 && why == NULL; data += 8, size -= 8, now += 60000) {
		switch (data[0] >> 5) {
		case 0: /* the compute thread asks, or takes what it asked for */
			if (tp_msg_here(p) && tp_msg_next(p)->dest != NULL &&
			    tp_msg_next(p)->total == WANT)
				tp_msg_take(tp, p);
			else if (tp_msg_next(p)->dest == NULL)
				tp_msg_post(tp, p, want, WANT);
			break;
		case 1: /* it sends, if that does not wait */
			if (p->next_seq - p->low_seq < TP_WINDOW_SEQS / 2 &&
			    p->tx_op + 2 < p->tx_op_limit &&
			    p->tx_bytes + sizeof(out) < p->tx_byte_limit) {
				p->path[0].state = p->path[1].state = TP_PATH_DOWN;
				tp_msg_send(tp, p, TP_REDUCE, out, 1 + data[1] * 11u);
				p->path[0].state = p->path[1].state = TP_PATH_OK;
				tp_msg_path_up(tp, p);
			}
			break;
		case 2: /* time passes */
			tp_msg_overdue(tp, p, now + (int64_t)data[1] * 10000);
			break;
		default:
			why = frame(tp, data, now);
		}
		drain(tp);
		if (p->early_bytes > (size_t)2 * (TP_WINDOW_BYTES + TP_MSG_MAX))
			abort();
	}
	release(tp);
	free(want);
	return 0;
}
