/*
 * tp_io.c - paths and time: reading and writing frames, heartbeats, silence, the pump.
 *
 * tp_pump() is the one place that sleeps. It handles what epoll reports, then the timers: a peer's
 * bytes are always read before anybody is declared silent, so a rank that was stopped for a while
 * does not blame the others.
 */
#include "tp_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TIMERS_US      5000  /* how exact the timers are */
#define NAP_US	       20000 /* the I/O thread leaves the sockets to a compute thread that pumps */
#define NAP_WAITING_US 50000
#define IOV_MAX_HERE   16
#define READS_MAX      4 /* per path and event, so that one path cannot starve another */

int tp_watch(struct tp *tp, int fd, uint32_t events, uint32_t what, uint32_t index)
{
	struct epoll_event ev = { .events = events, .data.u64 = (uint64_t)what << 32 | index };
	if (epoll_ctl(tp->epfd, EPOLL_CTL_ADD, fd, &ev) == 0)
		return 0;
	return errno == EEXIST ? epoll_ctl(tp->epfd, EPOLL_CTL_MOD, fd, &ev) : -1;
}

void tp_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

uint32_t tp_path_index(const struct tp_path *pa)
{
	return pa->peer * TP_PATHS_MAX + pa->idx;
}

/* ---- paths --------------------------------------------------------------------------------- */

void tp_path_adopt(struct tp *tp, struct tp_path *pa, int fd)
{
	if (pa->state == TP_PATH_OK)
		tp_path_down(tp, pa, "a new connection took its place");
	int64_t now = tp_now_us();
	pa->fd = fd;
	pa->state = TP_PATH_OK;
	pa->ever = true;
	pa->suspect = false;
	pa->want_out = false;
	pa->since = pa->last_rx = pa->last_ack = now;
	pa->rlen = 0;
	if (tp_watch(tp, fd, EPOLLIN, TP_ON_PATH, tp_path_index(pa)) != 0) {
		tp_path_down(tp, pa, "it cannot be watched");
		return;
	}
	tp->peer[pa->peer]->last_rx = now;
	tp->peer[pa->peer]->last_path = pa->idx;
	tp_path_status(tp, pa, now);
	tp_msg_path_up(tp, tp->peer[pa->peer]);
}

void tp_path_down(struct tp *tp, struct tp_path *pa, const char *why)
{
	if (pa->state != TP_PATH_OK)
		return;
	tp_close_fd(&pa->fd);
	pa->state = TP_PATH_DOWN;
	pa->since = tp_now_us();
	pa->downs++;
	snprintf(pa->why, sizeof(pa->why), "%s", why);
	for (; pa->txq_n > 0; pa->txq_n--) {
		tp_chunk_put(tp, pa->txq[pa->txq_head]);
		pa->txq_head = (pa->txq_head + 1) % TP_TXQ_MAX;
	}
	pa->tx_off = 0;
	pa->rlen = 0;
	pa->n_ack = 0; /* the chunks come again on another path and are acknowledged there */
	pa->dial.next_try = 0;
	pa->dial.backoff_us = 0;
	tp_msg_path_lost(tp, pa);
}

void tp_path_status(struct tp *tp, struct tp_path *pa, int64_t now)
{
	struct tp_peer *p = tp->peer[pa->peer];
	struct tp_chunk *c = tp_chunk_new(tp);
	if (c == NULL)
		return; /* the next timer tries again */
	struct tp_status s = {
		.byte_limit = p->rx_taken + TP_WINDOW_BYTES,
		.op_limit = p->rx_op + TP_WINDOW_OPS,
		.waiting_ms = tp->wait_since != 0 ? (uint32_t)((now - tp->wait_since) / 1000) : 0,
		.n_ack = pa->n_ack,
	};
	memcpy(s.ack, pa->ack, pa->n_ack * sizeof(pa->ack[0]));
	struct tp_frame f = { .type = TP_FRAME_STATUS, .epoch = tp->epoch };
	f.len = (uint32_t)tp_status_put(c->frame + TP_FRAME_HDR, &s);
	c->len = (uint32_t)tp_frame_put(c->frame, &f);
	if (tp_txq_push(pa, c) == 0) {
		pa->n_ack = 0;
		pa->last_status = now;
		p->told_bytes = s.byte_limit;
		p->told_ops = s.op_limit;
	}
	tp_chunk_put(tp, c);
}

/* @n bytes went out: drop the frames that are complete. */
static void sent_bytes(struct tp *tp, struct tp_path *pa, size_t n)
{
	pa->tx_off += n;
	while (pa->txq_n > 0 && pa->tx_off >= pa->txq[pa->txq_head]->len) {
		struct tp_chunk *c = pa->txq[pa->txq_head];
		pa->tx_off -= c->len;
		pa->tx_bytes += c->payload;
		pa->txq_head = (pa->txq_head + 1) % TP_TXQ_MAX;
		pa->txq_n--;
		tp_chunk_put(tp, c);
	}
}

static void want_out(struct tp *tp, struct tp_path *pa, bool want)
{
	if (pa->want_out == want)
		return;
	pa->want_out = want;
	tp_watch(tp, pa->fd, EPOLLIN | (want ? EPOLLOUT : 0), TP_ON_PATH, tp_path_index(pa));
}

static void path_input(struct tp *tp, struct tp_path *pa);

/* A reset may come right behind a goodbye: read what is there before closing. */
static void write_failed(struct tp *tp, struct tp_path *pa, int sys)
{
	char text[64];
	path_input(tp, pa);
	tp_path_down(tp, pa, strerror_r(sys, text, sizeof(text)));
}

void tp_path_flush(struct tp *tp, struct tp_path *pa)
{
	while (pa->txq_n > 0) {
		struct iovec iov[IOV_MAX_HERE];
		struct msghdr msg = { .msg_iov = iov };
		for (; msg.msg_iovlen < IOV_MAX_HERE && msg.msg_iovlen < pa->txq_n;
		     msg.msg_iovlen++) {
			struct tp_chunk *c = pa->txq[(pa->txq_head + msg.msg_iovlen) % TP_TXQ_MAX];
			size_t skip = msg.msg_iovlen == 0 ? pa->tx_off : 0;
			iov[msg.msg_iovlen].iov_base = c->frame + skip;
			iov[msg.msg_iovlen].iov_len = c->len - skip;
		}
		ssize_t n = sendmsg(pa->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			want_out(tp, pa, true);
			return;
		}
		if (n < 0) {
			write_failed(tp, pa, errno);
			return;
		}
		sent_bytes(tp, pa, (size_t)n);
	}
	want_out(tp, pa, false);
}

static void goodbye_arrived(struct tp *tp, struct tp_peer *p)
{
	p->gone = true;
	if (tp->in_call)
		return; /* the call looks itself whether it still needs this rank */
	snprintf(tp->culprit, sizeof(tp->culprit), "rank %u left the group in an orderly way",
		 p->rank);
}

/* Return: false when the path is no longer what it was. */
static bool path_frame(struct tp *tp, struct tp_path *pa, const struct tp_frame *f, int64_t now)
{
	struct tp_peer *p = tp->peer[pa->peer];
	const char *why = NULL;
	pa->last_rx = p->last_rx = now;
	p->last_path = pa->idx;
	if (f->epoch != tp->epoch) {
		tp_path_down(tp, pa, "a frame of a stale epoch arrived");
		return false;
	}
	switch (f->type) {
	case TP_FRAME_DATA:
		why = tp_msg_data(tp, pa, f, now);
		break;
	case TP_FRAME_STATUS:
		why = tp_msg_status(tp, pa, f, now);
		break;
	case TP_FRAME_GOODBYE:
		goodbye_arrived(tp, p);
		break;
	default:
		why = "it sent a frame that does not belong on a path";
	}
	if (why != NULL)
		tp_fail_peer(tp, p, why);
	return why == NULL;
}

static bool path_parse(struct tp *tp, struct tp_path *pa, int64_t now)
{
	size_t off = 0;
	struct tp_frame f;
	const char *why = NULL;
	long n;
	while ((n = tp_frame_parse(pa->rbuf + off, pa->rlen - off, &f, &why)) > 0) {
		if (!path_frame(tp, pa, &f, now))
			return false;
		off += (size_t)n;
	}
	if (n < 0) {
		tp_path_down(tp, pa, why);
		return false;
	}
	pa->rlen -= off;
	if (off > 0 && pa->rlen > 0)
		memmove(pa->rbuf, pa->rbuf + off, pa->rlen);
	return true;
}

static void path_input(struct tp *tp, struct tp_path *pa)
{
	for (int i = 0; i < READS_MAX && pa->state == TP_PATH_OK; i++) {
		size_t space = TP_RBUF_BYTES - pa->rlen;
		ssize_t n = recv(pa->fd, pa->rbuf + pa->rlen, space, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			char text[64];
			tp_path_down(tp, pa,
				     n == 0 ? "the other side closed it"
					    : strerror_r(errno, text, sizeof(text)));
			return;
		}
		pa->rlen += (size_t)n;
		if (!path_parse(tp, pa, tp_now_us()) || (size_t)n < space)
			return;
	}
}

/* ---- timers -------------------------------------------------------------------------------- */

static void path_timer(struct tp *tp, struct tp_peer *p, struct tp_path *pa, int64_t now)
{
	if (pa->state != TP_PATH_OK) {
		if (tp->c.rank < p->rank && tp->epoch != 0 && p->have_session && !p->gone &&
		    !tp->failed && !tp->stop)
			tp_dial_timer(tp, &pa->dial, TP_ON_PATH_DIAL, tp_path_index(pa), now);
		return;
	}
	if (now - pa->last_rx > (int64_t)tp->c.path_dead_ms * 1000) {
		char why[64];
		snprintf(why, sizeof(why), "no frame for %u ms", tp->c.path_dead_ms);
		tp_path_down(tp, pa, why);
		return;
	}
	if (now - pa->last_status >= TP_HEARTBEAT_US ||
	    (pa->n_ack > 0 && now - pa->ack_since >= TP_ACK_DELAY_US))
		tp_path_status(tp, pa, now);
}

static void peer_timer(struct tp *tp, struct tp_peer *p, int64_t now)
{
	uint32_t n_ok = 0;
	if (!p->have_session && tp->c.rank > p->rank && (!tp->failed || tp->refusal[0] != '\0'))
		tp_dial_timer(tp, &p->boot_dial, TP_ON_BOOT_DIAL, p->rank, now);
	for (uint32_t i = 0; i < p->n_path; i++) {
		path_timer(tp, p, &p->path[i], now);
		n_ok += p->path[i].state == TP_PATH_OK;
	}
	tp_msg_overdue(tp, p, now);
	if (tp->formed && !p->gone && n_ok == 0 &&
	    now - p->last_rx > (int64_t)tp->c.rank_lost_ms * 1000) {
		char why[96];
		snprintf(why, sizeof(why), "no frame for %lld ms on its last path",
			 (long long)(now - p->last_rx) / 1000);
		tp_fail_peer(tp, p, why);
	}
}

/* All ranks wait in one collective: some message went astray in a way nobody foresaw. */
static void stall_timer(struct tp *tp, int64_t now)
{
	bool all = tp->formed && tp->wait_since != 0 && now - tp->wait_since > TP_STALL_US;
	const struct tp_peer *one = NULL;
	for (uint32_t r = 0; r < tp->c.world && all; r++) {
		const struct tp_peer *p = tp->peer[r];
		if (p == NULL)
			continue;
		one = p;
		all = p->waiting_ms >= TP_STALL_US / 1000 &&
		      now - p->waiting_at < (int64_t)2 * TP_HEARTBEAT_US;
	}
	if (!all || one == NULL) {
		tp->stall_since = 0;
		return;
	}
	if (tp->stall_since == 0)
		tp->stall_since = now;
	if (now - tp->stall_since > (int64_t)2 * TP_HEARTBEAT_US)
		tp_fail_peer(tp, one, "all ranks have been waiting for each other for 2 s");
}

static void timers(struct tp *tp, int64_t now)
{
	if (now < tp->timers_at)
		return;
	tp->timers_at = now + TIMERS_US;
	if (tp->listen_resume != 0 && now >= tp->listen_resume)
		tp_listeners_rest(tp, false);
	for (uint32_t i = 0; i < TP_PENDING_MAX; i++)
		if (tp->pend[i].fd >= 0 && now >= tp->pend[i].deadline)
			tp_pend_drop(&tp->pend[i]);
	for (uint32_t r = 0; r < tp->c.world; r++)
		if (tp->peer[r] != NULL)
			peer_timer(tp, tp->peer[r], now);
	stall_timer(tp, now);
}

/* ---- the pump ------------------------------------------------------------------------------ */

static void event(struct tp *tp, const struct epoll_event *ev)
{
	uint32_t index = (uint32_t)ev->data.u64;
	uint32_t rank = index / TP_PATHS_MAX;
	switch ((enum tp_watch)(ev->data.u64 >> 32)) {
	case TP_ON_WAKE: {
		uint64_t n;
		if (read(tp->wakefd, &n, sizeof(n)) < 0)
			break; /* somebody else took it */
		break;
	}
	case TP_ON_LISTEN:
		tp_accept(tp, tp->listen_fd[index]);
		break;
	case TP_ON_PEND:
		tp_pend_input(tp, &tp->pend[index]);
		break;
	case TP_ON_BOOT:
		tp_form_input(tp, tp->peer[index]);
		break;
	case TP_ON_BOOT_DIAL:
		tp_dial_event(tp, tp->peer[index], NULL);
		break;
	case TP_ON_PATH: {
		struct tp_path *pa = &tp->peer[rank]->path[index % TP_PATHS_MAX];
		if (pa->state == TP_PATH_OK && (ev->events & ~(uint32_t)EPOLLOUT) != 0)
			path_input(tp, pa);
		if (pa->state == TP_PATH_OK && (ev->events & EPOLLOUT) != 0)
			tp_path_flush(tp, pa);
		break;
	}
	case TP_ON_PATH_DIAL:
		tp_dial_event(tp, tp->peer[rank], &tp->peer[rank]->path[index % TP_PATHS_MAX]);
		break;
	}
}

/* Writes what the events and timers queued; acknowledgements alone wait for company. */
static void flush_all(struct tp *tp)
{
	for (uint32_t r = 0; r < tp->c.world; r++)
		for (uint32_t i = 0; tp->peer[r] != NULL && i < tp->peer[r]->n_path; i++) {
			struct tp_path *pa = &tp->peer[r]->path[i];
			if (pa->state == TP_PATH_OK && pa->txq_n > 0 && !pa->want_out)
				tp_path_flush(tp, pa);
		}
}

void tp_pump(struct tp *tp, int timeout_ms)
{
	struct epoll_event ev[32];
	pthread_mutex_unlock(&tp->lock);
	int n = epoll_wait(tp->epfd, ev, sizeof(ev) / sizeof(ev[0]), timeout_ms);
	pthread_mutex_lock(&tp->lock);
	for (int i = 0; i < n; i++)
		event(tp, &ev[i]);
	timers(tp, tp_now_us());
	flush_all(tp);
}

static int sleep_ms(const struct tp *tp)
{
	for (uint32_t r = 0; r < tp->c.world; r++)
		for (uint32_t i = 0; tp->peer[r] != NULL && i < tp->peer[r]->n_path; i++)
			if (tp->peer[r]->path[i].n_ack > 0)
				return TP_ACK_DELAY_US / 1000;
	return 50;
}

void tp_wait(struct tp *tp)
{
	tp->waiting = true;
	tp_pump(tp, sleep_ms(tp));
	tp->waiting = false;
	tp->last_pump = tp_now_us();
}

static void nap(struct tp *tp, int64_t us)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += us * 1000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_nsec -= 1000000000;
		ts.tv_sec++;
	}
	pthread_cond_timedwait(&tp->io_cond, &tp->lock, &ts);
}

void *tp_io_main(void *arg)
{
	struct tp *tp = arg;
	pthread_mutex_lock(&tp->lock);
	while (!tp->stop) {
		if (tp->waiting && !tp->io_urgent) {
			nap(tp, NAP_WAITING_US);
			continue;
		}
		if (tp_now_us() - tp->last_pump < NAP_US && !tp->io_urgent) {
			nap(tp, NAP_US);
			continue;
		}
		tp->io_urgent = false;
		tp_pump(tp, sleep_ms(tp));
		/* What arrived may be what the compute thread went to sleep for meanwhile. */
		uint64_t one = 1;
		if (tp->waiting && write(tp->wakefd, &one, sizeof(one)) < 0 && errno != EAGAIN)
			tp->io_urgent = true;
	}
	pthread_mutex_unlock(&tp->lock);
	return NULL;
}

void tp_io_close(struct tp *tp)
{
	for (uint32_t i = 0; i < tp->n_listen; i++)
		tp_close_fd(&tp->listen_fd[i]);
	for (uint32_t i = 0; i < TP_PENDING_MAX; i++)
		tp_pend_drop(&tp->pend[i]);
	for (uint32_t r = 0; r < tp->c.world; r++) {
		struct tp_peer *p = tp->peer[r];
		if (p == NULL)
			continue;
		tp_close_fd(&p->boot_fd);
		tp_close_fd(&p->boot_dial.fd);
		tp_hs_wipe(&p->boot_dial.hs);
		for (uint32_t i = 0; i < p->n_path; i++) {
			tp_close_fd(&p->path[i].dial.fd);
			tp_hs_wipe(&p->path[i].dial.hs);
			tp_close_fd(&p->path[i].fd);
		}
	}
	tp_close_fd(&tp->wakefd);
	tp_close_fd(&tp->epfd);
}
