/*
 * tp_io.c - sockets of the tcp transport: listening, dialling, handshakes, paths, timers.
 *
 * tp_pump() is the one place that sleeps. It handles what epoll reports, then the timers: a peer's
 * bytes are always read before anybody is declared silent, so a rank that was stopped for a while
 * does not blame the others.
 */
#include "tp_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TIMERS_US      5000  /* how exact the timers are */
#define NAP_US	       20000 /* the I/O thread leaves the sockets to a compute thread that pumps */
#define NAP_WAITING_US 50000
#define REST_US	       100000
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

static uint32_t path_index(const struct tp_path *pa)
{
	return pa->peer * TP_PATHS_MAX + pa->idx;
}

static void set_common(const struct tp *tp, int fd)
{
	int on = 1;
	unsigned int ms = tp->c.path_dead_ms;
	/* Best effort: without them the transport is slower to notice, not wrong. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

/* ---- listening ----------------------------------------------------------------------------- */

static int listen_at(struct tp *tp, struct in_addr addr, uint16_t port, bool free_bind,
		     struct ds_err *err)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr = addr, .sin_port = port };
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char obj[48], text[INET_ADDRSTRLEN];
	snprintf(obj, sizeof(obj), "%s:%u", inet_ntop(AF_INET, &addr, text, sizeof(text)),
		 ntohs(port));
	if (fd < 0)
		return ds_err_set(err, DS_ERR_HOST, errno, obj, "open a listening socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* A rail that is missing today may come back tomorrow: listen on its address all the same. */
	if (free_bind)
		setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || listen(fd, 64) != 0) {
		ds_err_set(err, DS_ERR_HOST, errno, obj, "rank %u: listen", tp->c.rank);
		if (err != NULL && err->sys == EADDRINUSE)
			ds_err_fix(err, "stop what listens there, or change rank.%u", tp->c.rank);
		else if (err != NULL && err->sys == EADDRNOTAVAIL)
			ds_err_fix(err, "give rank.%u an address of this host", tp->c.rank);
		close(fd);
		return -1;
	}
	tp->listen_fd[tp->n_listen++] = fd;
	return 0;
}

static bool listens_at(struct tp *tp, struct in_addr addr, uint16_t port)
{
	for (uint32_t i = 0; i < tp->n_listen; i++) {
		struct sockaddr_in sa = { 0 };
		socklen_t n = sizeof(sa);
		if (getsockname(tp->listen_fd[i], (struct sockaddr *)&sa, &n) == 0 &&
		    sa.sin_port == port &&
		    (sa.sin_addr.s_addr == addr.s_addr || sa.sin_addr.s_addr == INADDR_ANY))
			return true;
	}
	return false;
}

static int listen_paths(struct tp *tp, struct ds_err *err)
{
	uint16_t port = htons(tp->c.path_port[tp->c.rank]);
	for (uint32_t r = 0; r < tp->c.rank; r++)
		for (uint32_t i = 0; i < tp->c.peer[r].n_path; i++) {
			struct in_addr a = tp->c.peer[r].path[i].local;
			if (a.s_addr == INADDR_ANY)
				a = tp->c.peer[tp->c.rank].addr.sin_addr;
			if (!listens_at(tp, a, port) && listen_at(tp, a, port, true, err) != 0)
				return -1;
		}
	return 0;
}

int tp_listen_all(struct tp *tp, struct ds_err *err)
{
	struct tp_conf *c = &tp->c;
	const struct sockaddr_in *own = &c->peer[c->rank].addr;
	if (c->listen_fd >= 0)
		tp->listen_fd[tp->n_listen++] = c->listen_fd;
	else if (c->rank + 1 < c->world &&
		 listen_at(tp, own->sin_addr, own->sin_port, false, err) != 0)
		return -1;
	if (c->path_listen_fd >= 0)
		tp->listen_fd[tp->n_listen++] = c->path_listen_fd;
	else if (listen_paths(tp, err) != 0)
		return -1;
	c->listen_fd = c->path_listen_fd = -1;
	for (uint32_t i = 0; i < tp->n_listen; i++) /* those of the caller may be blocking ones */
		if (fcntl(tp->listen_fd[i], F_SETFL, O_NONBLOCK) != 0 ||
		    tp_watch(tp, tp->listen_fd[i], EPOLLIN, TP_ON_LISTEN, i) != 0)
			return ds_err_set(err, DS_ERR_HOST, errno, NULL, "watch a listener");
	return 0;
}

/* ---- handshakes ---------------------------------------------------------------------------- */

/* Handshake messages are small and the socket is fresh: what does not go out at once is a fault. */
static int hs_send(int fd, struct tp_hs *hs)
{
	size_t n = hs->n_out;
	hs->n_out = 0;
	if (n == 0)
		return 0;
	return send(fd, hs->out, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n ? 0 : -1;
}

/* Return: MORE to wait, or the end; *closed when the connection broke instead. */
static enum tp_hs_result hs_read(int fd, struct tp_hs *hs, bool *closed)
{
	uint8_t buf[TP_HELLO_BYTES];
	*closed = false;
	for (;;) {
		ssize_t n = recv(fd, buf, tp_hs_want(hs), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return TP_HS_MORE;
		if (n <= 0) {
			*closed = true;
			return TP_HS_REFUSED;
		}
		enum tp_hs_result res = tp_hs_feed(hs, buf, (size_t)n);
		if (res == TP_HS_VERIFIED)
			return res;
		if (hs_send(fd, hs) != 0) {
			*closed = true;
			return TP_HS_REFUSED;
		}
		if (res != TP_HS_MORE)
			return res;
	}
}

static struct tp_path *path_by_name(struct tp_peer *p, const char *name)
{
	for (uint32_t i = 0; i < p->n_path; i++)
		if (strcmp(p->path[i].conf.name, name) == 0)
			return &p->path[i];
	return NULL;
}

/* tp_hs_key_fn: what must this connector know? */
static enum tp_refusal key_for(void *arg, const struct tp_hello *h, uint8_t key[TP_AUTH_KEY_BYTES])
{
	struct tp *tp = arg;
	if (h->world != tp->c.world)
		return TP_REFUSE_WORLD;
	if (h->to != tp->c.rank || h->from >= tp->c.world || h->from == tp->c.rank)
		return TP_REFUSE_RANK;
	if ((h->kind == TP_HELLO_BOOT) != (h->from > tp->c.rank))
		return TP_REFUSE_RANK;
	if (h->kind == TP_HELLO_BOOT) {
		memcpy(key, tp->c.secret, TP_AUTH_KEY_BYTES);
		return TP_REFUSE_NONE;
	}
	struct tp_peer *p = tp->peer[h->from];
	if (tp->epoch == 0 || !p->have_session || tp->failed)
		return TP_REFUSE_NOT_READY;
	if (h->epoch != tp->epoch)
		return TP_REFUSE_EPOCH;
	if (path_by_name(p, h->path) == NULL)
		return TP_REFUSE_PATH;
	memcpy(key, p->session, TP_AUTH_KEY_BYTES);
	return TP_REFUSE_NONE;
}

static void path_adopt(struct tp *tp, struct tp_path *pa, int fd)
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
	if (tp_watch(tp, fd, EPOLLIN, TP_ON_PATH, path_index(pa)) != 0) {
		tp_path_down(tp, pa, "it cannot be watched");
		return;
	}
	tp->peer[pa->peer]->last_rx = now;
	tp->peer[pa->peer]->last_path = pa->idx;
	tp_path_status(tp, pa, now);
	tp_msg_path_up(tp, tp->peer[pa->peer]);
}

static void pend_drop(struct tp_pend *pe)
{
	tp_close_fd(&pe->fd);
	tp_hs_wipe(&pe->hs);
}

static void note_refused(struct tp *tp, const struct tp_pend *pe)
{
	if (pe->hs.refusal == TP_REFUSE_NOT_READY)
		return;
	tp->n_refused++;
	tp->last_refusal = pe->hs.refusal;
	tp->last_refused = pe->from;
}

/* The connector proved itself. Is there a place for it? */
static void pend_verified(struct tp *tp, struct tp_pend *pe)
{
	const struct tp_hello *h = &pe->hs.hello;
	struct tp_peer *p = tp->peer[h->from];
	bool twice = h->kind == TP_HELLO_BOOT && p->have_session;
	enum tp_hs_result res = tp_hs_finish(&pe->hs, twice ? TP_REFUSE_DUPLICATE : TP_REFUSE_NONE);
	int fd = pe->fd;
	bool sent = hs_send(fd, &pe->hs) == 0;
	if (res != TP_HS_DONE || !sent) {
		note_refused(tp, pe);
		pend_drop(pe);
		return;
	}
	pe->fd = -1;
	if (h->kind == TP_HELLO_BOOT)
		tp_form_boot(tp, p, fd, pe->hs.session);
	else
		path_adopt(tp, path_by_name(p, h->path), fd);
	tp_hs_wipe(&pe->hs);
}

static void pend_input(struct tp *tp, struct tp_pend *pe)
{
	bool closed;
	if (pe->fd < 0)
		return;
	enum tp_hs_result res = hs_read(pe->fd, &pe->hs, &closed);
	if (res == TP_HS_VERIFIED) {
		pend_verified(tp, pe);
	} else if (res == TP_HS_REFUSED) {
		if (!closed)
			note_refused(tp, pe);
		pend_drop(pe);
	}
}

static uint32_t pend_count(const struct tp *tp, struct in_addr from)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < TP_PENDING_MAX; i++)
		n += tp->pend[i].fd >= 0 && tp->pend[i].from.s_addr == from.s_addr;
	return n;
}

/*
 * The seventeenth pushes one out: the oldest of the address that holds most of them. An honest
 * handshake takes a moment and is alone, so neither idle connections nor a flood keeps it out.
 */
static struct tp_pend *pend_slot(struct tp *tp)
{
	struct tp_pend *worst = NULL;
	uint32_t worst_n = 0;
	for (uint32_t i = 0; i < TP_PENDING_MAX; i++) {
		struct tp_pend *pe = &tp->pend[i];
		if (pe->fd < 0)
			return pe;
		uint32_t n = pend_count(tp, pe->from);
		if (worst == NULL || n > worst_n ||
		    (n == worst_n && pe->deadline < worst->deadline)) {
			worst = pe;
			worst_n = n;
		}
	}
	pend_drop(worst);
	return worst;
}

static void listeners_rest(struct tp *tp, bool rest)
{
	for (uint32_t i = 0; i < tp->n_listen; i++)
		tp_watch(tp, tp->listen_fd[i], rest ? 0 : EPOLLIN, TP_ON_LISTEN, i);
	tp->listen_resume = rest ? tp_now_us() + REST_US : 0;
}

static void accept_some(struct tp *tp, int listen_fd)
{
	for (int i = 0; i < TP_PENDING_MAX; i++) {
		struct sockaddr_in sa = { 0 };
		socklen_t n = sizeof(sa);
		int fd = accept4(listen_fd, (struct sockaddr *)&sa, &n,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS)
				listeners_rest(tp, true);
			return;
		}
		struct tp_pend *pe = pend_slot(tp);
		pe->fd = fd;
		pe->from = sa.sin_addr;
		pe->deadline = tp_now_us() + TP_AUTH_US;
		set_common(tp, fd);
		if (tp_hs_listen(&pe->hs, key_for, tp, NULL) != 0 ||
		    tp_watch(tp, fd, EPOLLIN, TP_ON_PEND, (uint32_t)(pe - tp->pend)) != 0)
			pend_drop(pe);
	}
}

/* ---- dialling ------------------------------------------------------------------------------ */

void tp_dial_init(struct tp_dial *d, struct in_addr src, const struct sockaddr_in *dst)
{
	*d = (struct tp_dial){ .fd = -1 };
	d->src = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = src };
	d->dst = *dst;
	d->dst.sin_family = AF_INET;
}

static void dial_failed(struct tp_dial *d, int sys, int64_t now)
{
	tp_close_fd(&d->fd);
	tp_hs_wipe(&d->hs);
	d->sys = sys;
	d->backoff_us = d->backoff_us == 0 ? 20000 : d->backoff_us * 2;
	if (d->backoff_us > TP_BACKOFF_MAX_US)
		d->backoff_us = TP_BACKOFF_MAX_US;
	d->next_try = now + d->backoff_us;
}

static void dial_start(struct tp *tp, struct tp_dial *d, uint32_t what, uint32_t index, int64_t now)
{
	int on = 1;
	d->connected = false;
	d->deadline = now + (what == TP_ON_BOOT_DIAL ? TP_BOOT_DIAL_US : TP_DIAL_US);
	d->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (d->fd < 0) {
		dial_failed(d, errno, now);
		return;
	}
	set_common(tp, d->fd);
	setsockopt(d->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if ((d->src.sin_addr.s_addr != INADDR_ANY &&
	     bind(d->fd, (struct sockaddr *)&d->src, sizeof(d->src)) != 0) ||
	    (connect(d->fd, (struct sockaddr *)&d->dst, sizeof(d->dst)) != 0 &&
	     errno != EINPROGRESS) ||
	    tp_watch(tp, d->fd, EPOLLOUT, what, index) != 0)
		dial_failed(d, errno, now);
}

static int dial_hello(struct tp *tp, struct tp_dial *d, const struct tp_peer *p,
		      const struct tp_path *pa)
{
	struct tp_hello h = {
		.kind = pa != NULL ? TP_HELLO_PATH : TP_HELLO_BOOT,
		.from = tp->c.rank,
		.to = p->rank,
		.world = tp->c.world,
		.epoch = pa != NULL ? tp->epoch : 0,
	};
	if (pa != NULL)
		memcpy(h.path, pa->conf.name, sizeof(h.path));
	if (tp_hs_connect(&d->hs, &h, pa != NULL ? p->session : tp->c.secret, NULL) != 0)
		return -1;
	return hs_send(d->fd, &d->hs);
}

/* The connection attempt ended one way or the other, or the listener answered. */
static void dial_event(struct tp *tp, struct tp_peer *p, struct tp_path *pa)
{
	struct tp_dial *d = pa != NULL ? &pa->dial : &p->boot_dial;
	int64_t now = tp_now_us();
	if (d->fd < 0)
		return;
	if (!d->connected) {
		int sys = 0;
		socklen_t n = sizeof(sys);
		getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &sys, &n);
		if (sys == 0 &&
		    (dial_hello(tp, d, p, pa) != 0 ||
		     tp_watch(tp, d->fd, EPOLLIN, pa != NULL ? TP_ON_PATH_DIAL : TP_ON_BOOT_DIAL,
			      pa != NULL ? path_index(pa) : p->rank) != 0))
			sys = EPIPE;
		if (sys != 0)
			dial_failed(d, sys, now);
		else
			d->connected = true;
		return;
	}
	bool closed;
	enum tp_hs_result res = hs_read(d->fd, &d->hs, &closed);
	if (res == TP_HS_MORE)
		return;
	if (res == TP_HS_REFUSED) {
		d->refusal = closed ? TP_REFUSE_NONE : d->hs.refusal;
		if (!closed && pa == NULL)
			tp_form_refused(tp, p, &d->hs);
		dial_failed(d, closed ? ECONNRESET : 0, now);
		return;
	}
	int fd = d->fd;
	d->fd = -1;
	d->backoff_us = 0;
	d->sys = 0;
	d->refusal = TP_REFUSE_NONE;
	if (pa == NULL)
		tp_form_boot(tp, p, fd, d->hs.session);
	else
		path_adopt(tp, pa, fd);
	tp_hs_wipe(&d->hs);
}

static void dial_timer(struct tp *tp, struct tp_dial *d, uint32_t what, uint32_t index, int64_t now)
{
	if (d->fd >= 0 && now >= d->deadline)
		dial_failed(d, ETIMEDOUT, now);
	if (d->fd < 0 && now >= d->next_try)
		dial_start(tp, d, what, index, now);
}

/* ---- paths --------------------------------------------------------------------------------- */

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
	tp_watch(tp, pa->fd, EPOLLIN | (want ? EPOLLOUT : 0), TP_ON_PATH, path_index(pa));
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
			dial_timer(tp, &pa->dial, TP_ON_PATH_DIAL, path_index(pa), now);
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
		dial_timer(tp, &p->boot_dial, TP_ON_BOOT_DIAL, p->rank, now);
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
		listeners_rest(tp, false);
	for (uint32_t i = 0; i < TP_PENDING_MAX; i++)
		if (tp->pend[i].fd >= 0 && now >= tp->pend[i].deadline)
			pend_drop(&tp->pend[i]);
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
		accept_some(tp, tp->listen_fd[index]);
		break;
	case TP_ON_PEND:
		pend_input(tp, &tp->pend[index]);
		break;
	case TP_ON_BOOT:
		tp_form_input(tp, tp->peer[index]);
		break;
	case TP_ON_BOOT_DIAL:
		dial_event(tp, tp->peer[index], NULL);
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
		dial_event(tp, tp->peer[rank], &tp->peer[rank]->path[index % TP_PATHS_MAX]);
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
		pend_drop(&tp->pend[i]);
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
