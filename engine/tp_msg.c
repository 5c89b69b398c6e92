/*
 * tp_msg.c - messages: cut into chunks, spread over the healthy paths, kept until acknowledged, put
 * together again at the other end.
 *
 * Every chunk has a number per direction. The receiver acknowledges numbers one by one, on the path
 * where the chunk came in, and remembers them, so that a chunk that travels twice counts once.
 * A sender may be ahead of its receiver by TP_WINDOW_BYTES and TP_WINDOW_OPS; a receiver that has
 * said where a message goes takes it whatever its size.
 */
#include "tp_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A message up to this size is one chunk: a second system call costs more than it saves. */
#define SPLIT_BYTES 16384
#define SPARE_BYTES (4u << 20) /* larger buffers are not kept */
/* A sender within its credit cannot have more than this begun: one long message each, asked for and not. */
#define EARLY_MAX ((size_t)2 * (TP_WINDOW_BYTES + TP_MSG_MAX))

int tp_msg_init(struct tp_peer *p)
{
	p->unacked = calloc(TP_WINDOW_SEQS, sizeof(struct tp_chunk *));
	if (p->unacked == NULL)
		return -1;
	p->next_seq = p->low_seq = p->seen_low = 1;
	p->tx_byte_limit = p->told_bytes = TP_WINDOW_BYTES;
	p->tx_op_limit = p->told_ops = TP_WINDOW_OPS;
	return 0;
}

void tp_msg_fini(struct tp *tp, struct tp_peer *p)
{
	for (uint32_t i = 0; p->unacked != NULL && i < TP_WINDOW_SEQS; i++)
		if (p->unacked[i] != NULL)
			tp_chunk_put(tp, p->unacked[i]);
	free(p->unacked);
	for (uint32_t i = 0; i < TP_WINDOW_OPS; i++)
		free(p->rx[i].buf);
}

struct tp_chunk *tp_chunk_new(struct tp *tp)
{
	struct tp_chunk *c = tp->pool;
	if (c != NULL)
		tp->pool = c->next;
	else if ((c = malloc(sizeof(*c))) == NULL)
		return NULL;
	c->next = NULL;
	c->seq = 0;
	c->sent_us = 0;
	c->path = TP_NO_PATH;
	c->refs = 1;
	c->len = c->payload = 0;
	return c;
}

void tp_chunk_put(struct tp *tp, struct tp_chunk *c)
{
	if (--c->refs > 0)
		return;
	c->next = tp->pool;
	tp->pool = c;
}

int tp_txq_push(struct tp_path *pa, struct tp_chunk *c)
{
	if (pa->txq_n == TP_TXQ_MAX)
		return -1;
	pa->txq[(pa->txq_head + pa->txq_n++) % TP_TXQ_MAX] = c;
	c->refs++;
	return 0;
}

/* ---- out ----------------------------------------------------------------------------------- */

/* The healthy path with the fewest bytes so far; suspects only if there is nothing else. */
static struct tp_path *choose(struct tp_peer *p, uint32_t except)
{
	struct tp_path *best = NULL;
	for (uint32_t i = 0; i < p->n_path; i++) {
		struct tp_path *pa = &p->path[i];
		if (i == except || pa->state != TP_PATH_OK || pa->txq_n == TP_TXQ_MAX)
			continue;
		if (best == NULL || pa->suspect < best->suspect ||
		    (pa->suspect == best->suspect && pa->sched_bytes < best->sched_bytes))
			best = pa;
	}
	return best;
}

static void assign(struct tp *tp, struct tp_peer *p, struct tp_chunk *c, uint32_t except,
		   int64_t now)
{
	struct tp_path *pa = choose(p, except);
	c->path = TP_NO_PATH;
	if (pa == NULL)
		return;
	if (pa->n_ack > 0) /* acknowledgements ride along */
		tp_path_status(tp, pa, now);
	if (tp_txq_push(pa, c) != 0)
		return;
	if (c->sent_us != 0)
		pa->resent++;
	c->path = pa->idx;
	c->sent_us = now;
	pa->sched_bytes += c->payload;
}

static bool has_room(const struct tp_peer *p, uint32_t n)
{
	return p->next_seq - p->low_seq < TP_WINDOW_SEQS && p->tx_op < p->tx_op_limit &&
	       p->tx_bytes + n <= p->tx_byte_limit;
}

static void flush_peer(struct tp *tp, struct tp_peer *p)
{
	for (uint32_t i = 0; i < p->n_path; i++)
		if (p->path[i].state == TP_PATH_OK)
			tp_path_flush(tp, &p->path[i]);
}

static int send_chunk(struct tp *tp, struct tp_peer *p, const struct tp_frame *f)
{
	while (!tp->failed && !has_room(p, f->len)) {
		flush_peer(tp, p);
		if (!has_room(p, f->len))
			tp_wait(tp);
		if (p->gone)
			tp_fail_peer(tp, p, "it left the group in an orderly way");
	}
	if (tp->failed)
		return -1;
	struct tp_chunk *c = tp_chunk_new(tp);
	if (c == NULL) {
		struct ds_err err;
		ds_err_set(&err, DS_ERR_NOMEM, ENOMEM, NULL, "queue a chunk for rank %u", p->rank);
		tp_fail(tp, &err);
		return -1;
	}
	struct tp_frame out = *f;
	out.seq = c->seq = p->next_seq++;
	memcpy(c->frame + TP_FRAME_HDR, f->payload, f->len);
	c->payload = f->len;
	c->len = (uint32_t)tp_frame_put(c->frame, &out);
	p->unacked[c->seq % TP_WINDOW_SEQS] = c;
	p->tx_bytes += f->len;
	assign(tp, p, c, TP_NO_PATH, tp_now_us());
	return 0;
}

/* Halves (thirds, ...) as long as they are worth a frame of their own. */
static uint32_t piece_bytes(const struct tp_peer *p, size_t len)
{
	uint32_t n_ok = 0;
	for (uint32_t i = 0; i < p->n_path; i++)
		n_ok += p->path[i].state == TP_PATH_OK;
	if (len <= SPLIT_BYTES || n_ok < 2)
		return TP_CHUNK_MAX;
	size_t piece = (len + n_ok - 1) / n_ok;
	return piece < TP_CHUNK_MAX ? (uint32_t)piece : TP_CHUNK_MAX;
}

int tp_msg_send(struct tp *tp, struct tp_peer *p, enum tp_kind kind, const void *data, size_t len)
{
	uint32_t piece = piece_bytes(p, len);
	struct tp_frame f = {
		.type = TP_FRAME_DATA,
		.kind = (uint8_t)kind,
		.epoch = tp->epoch,
		.op = p->tx_op,
		.total = (uint32_t)len,
	};
	for (size_t off = 0; off < len; off += f.len) {
		f.offset = (uint32_t)off;
		f.len = (uint32_t)(len - off < piece ? len - off : piece);
		f.payload = (const uint8_t *)data + off;
		if (send_chunk(tp, p, &f) != 0)
			return -1;
	}
	p->tx_op++;
	tp->sent[kind] += len;
	flush_peer(tp, p);
	return 0;
}

static void acknowledge(struct tp *tp, struct tp_peer *p, uint64_t seq)
{
	if (seq < p->low_seq || seq >= p->next_seq)
		return;
	struct tp_chunk **slot = &p->unacked[seq % TP_WINDOW_SEQS];
	if (*slot == NULL)
		return;
	tp_chunk_put(tp, *slot);
	*slot = NULL;
	while (p->low_seq < p->next_seq && p->unacked[p->low_seq % TP_WINDOW_SEQS] == NULL)
		p->low_seq++;
}

const char *tp_msg_status(struct tp *tp, struct tp_path *pa, const struct tp_frame *f, int64_t now)
{
	struct tp_peer *p = tp->peer[pa->peer];
	struct tp_status s;
	if (tp_status_parse(f->payload, f->len, &s) != 0)
		return "its status frame is malformed";
	p->waiting_ms = s.waiting_ms;
	p->waiting_at = now;
	/* Limits only grow; an older frame may arrive later on the other path. */
	if (s.byte_limit > p->tx_byte_limit)
		p->tx_byte_limit = s.byte_limit;
	if (s.op_limit > p->tx_op_limit)
		p->tx_op_limit = s.op_limit;
	for (uint32_t i = 0; i < s.n_ack; i++)
		acknowledge(tp, p, s.ack[i]);
	if (s.n_ack > 0) {
		pa->last_ack = now;
		pa->suspect = false;
	}
	return NULL;
}

void tp_msg_path_up(struct tp *tp, struct tp_peer *p)
{
	int64_t now = tp_now_us();
	for (uint32_t i = 0; i < p->n_path; i++)
		p->path[i].sched_bytes = 0;
	for (uint64_t seq = p->low_seq; seq < p->next_seq; seq++) {
		struct tp_chunk *c = p->unacked[seq % TP_WINDOW_SEQS];
		if (c != NULL && c->path == TP_NO_PATH)
			assign(tp, p, c, TP_NO_PATH, now);
	}
}

void tp_msg_path_lost(struct tp *tp, struct tp_path *pa)
{
	struct tp_peer *p = tp->peer[pa->peer];
	int64_t now = tp_now_us();
	for (uint64_t seq = p->low_seq; seq < p->next_seq; seq++) {
		struct tp_chunk *c = p->unacked[seq % TP_WINDOW_SEQS];
		if (c != NULL && c->path == pa->idx)
			assign(tp, p, c, TP_NO_PATH, now);
	}
}

/* Is the path silent about this chunk, and is there a better one? */
static bool overdue(struct tp_peer *p, const struct tp_chunk *c, int64_t now)
{
	struct tp_path *pa = &p->path[c->path];
	int64_t since = c->sent_us > pa->last_ack ? c->sent_us : pa->last_ack;
	if (now - since < TP_RESEND_US)
		return false;
	struct tp_path *other = choose(p, c->path);
	return other != NULL && !other->suspect;
}

void tp_msg_overdue(struct tp *tp, struct tp_peer *p, int64_t now)
{
	for (uint64_t seq = p->low_seq; seq < p->next_seq; seq++) {
		struct tp_chunk *c = p->unacked[seq % TP_WINDOW_SEQS];
		if (c == NULL)
			continue;
		if (c->path == TP_NO_PATH) {
			assign(tp, p, c, TP_NO_PATH, now);
		} else if (overdue(p, c, now)) {
			p->path[c->path].suspect = true;
			assign(tp, p, c, c->path, now);
		}
	}
}

/* ---- in ------------------------------------------------------------------------------------ */

/* A buffer for a message that nobody has asked for yet. */
static const char *early_buf(struct tp *tp, struct tp_peer *p, struct tp_rx *r)
{
	if (p->early_bytes + r->total > EARLY_MAX)
		return "it began more messages than it may";
	uint32_t at = 0;
	while (at < TP_SPARE_MAX && tp->spare[at].cap < r->total)
		at++;
	if (at < TP_SPARE_MAX) {
		r->buf = tp->spare[at].buf;
		r->cap = tp->spare[at].cap;
		tp->spare[at].buf = NULL;
		tp->spare[at].cap = 0;
	} else {
		r->cap = ((size_t)r->total + 4095) & ~(size_t)4095;
		r->buf = malloc(r->cap);
	}
	if (r->buf == NULL)
		return "there is no memory for a message of it";
	p->early_bytes += r->total;
	return NULL;
}

static void early_buf_put(struct tp *tp, struct tp_peer *p, struct tp_rx *r)
{
	p->early_bytes -= r->total;
	uint32_t at = TP_SPARE_MAX;
	for (uint32_t i = 0; i < TP_SPARE_MAX && r->cap <= SPARE_BYTES; i++)
		if (tp->spare[i].buf == NULL)
			at = i;
	if (at < TP_SPARE_MAX) {
		tp->spare[at].buf = r->buf;
		tp->spare[at].cap = r->cap;
	} else {
		free(r->buf);
	}
	r->buf = NULL;
	r->cap = 0;
}

static bool seen(const struct tp_peer *p, uint64_t seq)
{
	uint64_t bit = seq % (2 * TP_WINDOW_SEQS);
	return seq < p->seen_low || (p->seen[bit / 8] >> (bit % 8) & 1) != 0;
}

static void mark_seen(struct tp_peer *p, uint64_t seq)
{
	uint64_t bit = seq % (2 * TP_WINDOW_SEQS);
	p->seen[bit / 8] |= (uint8_t)(1u << (bit % 8));
	/* Bits below seen_low are cleared as it passes, ready for numbers one turn later. */
	for (bit = p->seen_low % (2 * TP_WINDOW_SEQS); (p->seen[bit / 8] >> (bit % 8) & 1) != 0;
	     bit = p->seen_low % (2 * TP_WINDOW_SEQS)) {
		p->seen[bit / 8] &= (uint8_t)(0xffu ^ 1u << (bit % 8));
		p->seen_low++;
	}
}

static void queue_ack(struct tp *tp, struct tp_path *pa, uint64_t seq, int64_t now)
{
	if (pa->n_ack == TP_STATUS_ACKS_MAX)
		tp_path_status(tp, pa, now);
	if (pa->n_ack == TP_STATUS_ACKS_MAX)
		return; /* its queue is full: the chunk comes again, and so does the chance */
	if (pa->n_ack == 0)
		pa->ack_since = now;
	pa->ack[pa->n_ack++] = seq;
}

static const char *place(struct tp *tp, struct tp_peer *p, const struct tp_frame *f)
{
	struct tp_rx *r = &p->rx[f->op % TP_WINDOW_OPS];
	if (!r->started) {
		r->started = true;
		r->kind = f->kind;
		r->total = f->total;
		r->got = 0;
		const char *why = NULL;
		if (r->dest == NULL || r->dest_len != f->total)
			why = early_buf(tp, p, r);
		if (why != NULL)
			return why;
	}
	if (r->kind != f->kind || r->total != f->total || f->len > r->total - r->got)
		return "its chunks contradict each other";
	memcpy((r->buf != NULL ? r->buf : r->dest) + f->offset, f->payload, f->len);
	r->got += f->len;
	if (r->dest != NULL)
		p->rx_taken += f->len;
	return NULL;
}

const char *tp_msg_data(struct tp *tp, struct tp_path *pa, const struct tp_frame *f, int64_t now)
{
	struct tp_peer *p = tp->peer[pa->peer];
	if (tp->failed)
		return NULL;
	if (f->seq >= p->seen_low + (uint64_t)2 * TP_WINDOW_SEQS)
		return "it sent a chunk beyond the window";
	if (!seen(p, f->seq)) {
		if (f->op < p->rx_op || f->op - p->rx_op >= TP_WINDOW_OPS)
			return "it sent a message out of order";
		if (p->rx_bytes + f->len > p->told_bytes)
			return "it sent more than it may";
		const char *why = place(tp, p, f);
		if (why != NULL)
			return why;
		p->rx_bytes += f->len;
		mark_seen(p, f->seq);
	}
	pa->rx_bytes += f->len;
	queue_ack(tp, pa, f->seq, now);
	return NULL;
}

/* A sender that stands at its limit must learn soon that there is room again. */
static void tell_credit(struct tp *tp, struct tp_peer *p)
{
	if (p->rx_taken + TP_WINDOW_BYTES - p->told_bytes < TP_WINDOW_BYTES / 2 &&
	    p->rx_op + TP_WINDOW_OPS - p->told_ops < TP_WINDOW_OPS / 2)
		return;
	struct tp_path *pa = choose(p, TP_NO_PATH);
	if (pa != NULL)
		tp_path_status(tp, pa, tp_now_us());
}

struct tp_rx *tp_msg_next(struct tp_peer *p)
{
	return &p->rx[p->rx_op % TP_WINDOW_OPS];
}

bool tp_msg_here(struct tp_peer *p)
{
	const struct tp_rx *r = tp_msg_next(p);
	return r->started && r->got == r->total;
}

void tp_msg_post(struct tp *tp, struct tp_peer *p, void *dest, size_t len)
{
	struct tp_rx *r = tp_msg_next(p);
	r->dest = dest;
	r->dest_len = len;
	if (r->started)
		p->rx_taken += r->got;
	tell_credit(tp, p);
}

void tp_msg_take(struct tp *tp, struct tp_peer *p)
{
	struct tp_rx *r = tp_msg_next(p);
	if (r->buf != NULL) {
		memcpy(r->dest, r->buf, r->total);
		early_buf_put(tp, p, r);
	}
	*r = (struct tp_rx){ 0 };
	p->rx_op++;
	tell_credit(tp, p);
}

void tp_msg_unpost(struct tp_peer *p)
{
	tp_msg_next(p)->dest = NULL;
}
