/*
 * tp_conn.c - how a connection between two ranks comes to be: listening, dialling, proving.
 *
 * A connection that came in is a stranger (struct tp_pend) until its handshake is through; one that
 * this rank makes is a struct tp_dial, tried again until it stands. What has proven itself is handed
 * to tp_form.c (bootstrap) or tp_io.c (paths).
 */
#include "tp_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define REST_US 100000 /* listeners, when there are no descriptors left */

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

void tp_pend_drop(struct tp_pend *pe)
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
		tp_pend_drop(pe);
		return;
	}
	pe->fd = -1;
	if (h->kind == TP_HELLO_BOOT)
		tp_form_boot(tp, p, fd, pe->hs.session);
	else
		tp_path_adopt(tp, path_by_name(p, h->path), fd);
	tp_hs_wipe(&pe->hs);
}

void tp_pend_input(struct tp *tp, struct tp_pend *pe)
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
		tp_pend_drop(pe);
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
	tp_pend_drop(worst);
	return worst;
}

void tp_listeners_rest(struct tp *tp, bool rest)
{
	for (uint32_t i = 0; i < tp->n_listen; i++)
		tp_watch(tp, tp->listen_fd[i], rest ? 0 : EPOLLIN, TP_ON_LISTEN, i);
	tp->listen_resume = rest ? tp_now_us() + REST_US : 0;
}

void tp_accept(struct tp *tp, int listen_fd)
{
	for (int i = 0; i < TP_PENDING_MAX; i++) {
		struct sockaddr_in sa = { 0 };
		socklen_t n = sizeof(sa);
		int fd = accept4(listen_fd, (struct sockaddr *)&sa, &n,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS)
				tp_listeners_rest(tp, true);
			return;
		}
		struct tp_pend *pe = pend_slot(tp);
		pe->fd = fd;
		pe->from = sa.sin_addr;
		pe->deadline = tp_now_us() + TP_AUTH_US;
		set_common(tp, fd);
		if (tp_hs_listen(&pe->hs, key_for, tp, NULL) != 0 ||
		    tp_watch(tp, fd, EPOLLIN, TP_ON_PEND, (uint32_t)(pe - tp->pend)) != 0)
			tp_pend_drop(pe);
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
void tp_dial_event(struct tp *tp, struct tp_peer *p, struct tp_path *pa)
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
			      pa != NULL ? tp_path_index(pa) : p->rank) != 0))
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
		tp_path_adopt(tp, pa, fd);
	tp_hs_wipe(&d->hs);
}

void tp_dial_timer(struct tp *tp, struct tp_dial *d, uint32_t what, uint32_t index, int64_t now)
{
	if (d->fd >= 0 && now >= d->deadline)
		dial_failed(d, ETIMEDOUT, now);
	if (d->fd < 0 && now >= d->next_try)
		dial_start(tp, d, what, index, now);
}
