/*
 * tp_tcp.c - the calls of tp.h over TCP: opening, closing, collectives, health.
 */
#include "tp_int.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLOSE_US 1000000 /* tp_close() waits so long for acknowledgements */

static const char *const kind_name[TP_KINDS] = {
	[TP_REDUCE] = "reduce",
	[TP_ENGRAM] = "engram",
	[TP_HEAD] = "head",
	[TP_CONTROL] = "control",
};

int64_t tp_now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- failure ------------------------------------------------------------------------------- */

/* What does not fit is cut off. */
static void set_culprit(struct tp *tp, const char *who, const char *why)
{
	char text[600];
	snprintf(text, sizeof(text), "%s: %s", who, why);
	memcpy(tp->culprit, text, sizeof(tp->culprit) - 1);
}

void tp_fail(struct tp *tp, const struct ds_err *err)
{
	if (tp->failed)
		return;
	tp->failed = true;
	tp->fail = *err;
	if (tp->culprit[0] == '\0')
		set_culprit(tp, err->what, err->why);
}

void tp_fail_peer(struct tp *tp, const struct tp_peer *p, const char *why)
{
	const struct tp_path_conf *pc = &p->path[p->last_path].conf;
	struct ds_err err;
	char obj[64], what[64], who[120];
	if (tp->failed)
		return;
	if (tp->in_call)
		snprintf(what, sizeof(what), "%s %llu", kind_name[tp->in_kind],
			 (unsigned long long)tp->n_call);
	else
		snprintf(what, sizeof(what), "keep the group");
	snprintf(obj, sizeof(obj), "rank %u", p->rank);
	ds_err_set(&err, DS_ERR_PEER, 0, obj, "%s", what);
	ds_err_why(&err, "%s; last path %s%s%s%s; last completed collective: %s", why, pc->name,
		   pc->netdev[0] != '\0' ? " (" : "", pc->netdev, pc->netdev[0] != '\0' ? ")" : "",
		   tp->last_call[0] != '\0' ? tp->last_call : "none");
	snprintf(who, sizeof(who), "rank %u, path %s, last completed %s", p->rank, pc->name,
		 tp->last_call[0] != '\0' ? tp->last_call : "none");
	set_culprit(tp, who, why);
	tp_fail(tp, &err);
}

/* ---- opening and closing ------------------------------------------------------------------- */

static int check_conf(const struct tp_conf *c, struct ds_err *err)
{
	bool good = c->world >= 1 && c->world <= TP_WORLD_MAX && c->rank < c->world &&
		    memchr(c->state, '\0', sizeof(c->state)) != NULL;
	for (uint32_t r = 0; r < c->world && good; r++)
		good = r == c->rank ||
		       (c->peer[r].n_path >= 1 && c->peer[r].n_path <= TP_PATHS_MAX);
	return good ? 0 : ds_err_set(err, DS_ERR_BUG, 0, NULL, "open a group of impossible shape");
}

static void path_init(struct tp *tp, struct tp_peer *p, uint32_t i)
{
	struct tp_path *pa = &p->path[i];
	struct sockaddr_in dst = { .sin_family = AF_INET };
	*pa = (struct tp_path){
		.conf = tp->c.peer[p->rank].path[i],
		.peer = p->rank,
		.idx = i,
		.fd = -1,
		.since = tp_now_us(),
	};
	dst.sin_addr = pa->conf.remote;
	dst.sin_port = htons(tp->c.path_port[p->rank]);
	tp_dial_init(&pa->dial, pa->conf.local, &dst);
}

static struct tp_peer *peer_new(struct tp *tp, uint32_t rank)
{
	struct tp_peer *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	tp->peer[rank] = p;
	p->rank = rank;
	p->boot_fd = p->boot_dial.fd = -1;
	p->n_path = tp->c.peer[rank].n_path;
	for (uint32_t i = 0; i < p->n_path; i++)
		path_init(tp, p, i);
	p->boot_buf = malloc(TP_BOOT_BYTES);
	if (p->boot_buf == NULL || tp_msg_init(p) != 0)
		return NULL;
	for (uint32_t i = 0; i < p->n_path; i++) {
		p->path[i].rbuf = malloc(TP_RBUF_BYTES);
		p->path[i].txq = calloc(TP_TXQ_MAX, sizeof(struct tp_chunk *));
		if (p->path[i].rbuf == NULL || p->path[i].txq == NULL)
			return NULL;
	}
	return p;
}

static void peer_free(struct tp *tp, struct tp_peer *p)
{
	if (p == NULL)
		return;
	for (uint32_t i = 0; i < p->n_path; i++) {
		struct tp_path *pa = &p->path[i];
		for (; pa->txq != NULL && pa->txq_n > 0; pa->txq_n--) {
			tp_chunk_put(tp, pa->txq[pa->txq_head]);
			pa->txq_head = (pa->txq_head + 1) % TP_TXQ_MAX;
		}
		free(pa->rbuf);
		free(pa->txq);
	}
	tp_msg_fini(tp, p);
	free(p->boot_buf);
	OPENSSL_cleanse(p->session, sizeof(p->session));
	free(p);
}

static void tp_free(struct tp *tp)
{
	tp_io_close(tp);
	for (uint32_t r = 0; r < TP_WORLD_MAX; r++)
		peer_free(tp, tp->peer[r]);
	while (tp->pool != NULL) {
		struct tp_chunk *c = tp->pool;
		tp->pool = c->next;
		free(c);
	}
	for (uint32_t i = 0; i < TP_SPARE_MAX; i++)
		free(tp->spare[i].buf);
	tp_close_fd(&tp->c.listen_fd);
	tp_close_fd(&tp->c.path_listen_fd);
	pthread_cond_destroy(&tp->io_cond);
	pthread_mutex_destroy(&tp->lock);
	OPENSSL_cleanse(tp->c.secret, sizeof(tp->c.secret));
	free(tp);
}

static struct tp *tp_new(const struct tp_conf *c, struct ds_err *err)
{
	pthread_condattr_t attr;
	struct tp *tp = calloc(1, sizeof(*tp));
	if (tp == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "open a group");
		return NULL;
	}
	tp->c = *c;
	if (tp->c.path_dead_ms == 0)
		tp->c.path_dead_ms = 750;
	if (tp->c.rank_lost_ms == 0)
		tp->c.rank_lost_ms = 1500;
	if (tp->c.connect_ms == 0)
		tp->c.connect_ms = 30000;
	for (uint32_t i = 0; i < TP_PENDING_MAX; i++)
		tp->pend[i].fd = -1;
	pthread_mutex_init(&tp->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&tp->io_cond, &attr);
	pthread_condattr_destroy(&attr);
	tp->epfd = epoll_create1(EPOLL_CLOEXEC);
	tp->wakefd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return tp;
}

static int prepare(struct tp *tp, struct ds_err *err)
{
	if (tp->epfd < 0 || tp->wakefd < 0 || tp_watch(tp, tp->wakefd, EPOLLIN, TP_ON_WAKE, 0) != 0)
		return ds_err_set(err, DS_ERR_HOST, errno, NULL, "open a group's event queue");
	for (uint32_t r = 0; r < tp->c.world; r++)
		if (r != tp->c.rank && peer_new(tp, r) == NULL)
			return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL,
					  "allocate the buffers of rank %u", r);
	return tp_listen_all(tp, err);
}

/* Signals are the program's main thread's business. */
static int start_thread(struct tp *tp, struct ds_err *err)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(&tp->thread, NULL, tp_io_main, tp);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return ds_err_set(err, DS_ERR_HOST, rc, NULL, "start the transport's thread");
	tp->thread_on = true;
	return 0;
}

struct tp *tp_open(const struct tp_conf *c, struct ds_err *err)
{
	struct tp *tp = check_conf(c, err) == 0 ? tp_new(c, err) : NULL;
	if (tp == NULL) {
		int fd[2] = { c->listen_fd, c->path_listen_fd }; /* taken, whatever happens */
		tp_close_fd(&fd[0]);
		tp_close_fd(&fd[1]);
		return NULL;
	}
	int rc = prepare(tp, err);
	if (rc == 0) {
		pthread_mutex_lock(&tp->lock);
		rc = tp_form(tp, err);
		pthread_mutex_unlock(&tp->lock);
	}
	if (rc == 0)
		rc = start_thread(tp, err);
	if (rc != 0) {
		tp_free(tp);
		return NULL;
	}
	return tp;
}

static bool all_acknowledged(const struct tp *tp)
{
	for (uint32_t r = 0; r < tp->c.world; r++) {
		const struct tp_peer *p = tp->peer[r];
		if (p != NULL && !p->gone && p->low_seq != p->next_seq)
			return false;
	}
	return true;
}

static void say_goodbye(struct tp *tp)
{
	for (uint32_t r = 0; r < tp->c.world; r++) {
		struct tp_peer *p = tp->peer[r];
		for (uint32_t i = 0; p != NULL && i < p->n_path; i++) {
			struct tp_path *pa = &p->path[i];
			struct tp_chunk *c = pa->state == TP_PATH_OK ? tp_chunk_new(tp) : NULL;
			if (c == NULL)
				continue;
			struct tp_frame f = { .type = TP_FRAME_GOODBYE, .epoch = tp->epoch };
			tp_path_status(tp, pa, tp_now_us());
			c->len = (uint32_t)tp_frame_put(c->frame, &f);
			if (tp_txq_push(pa, c) == 0)
				tp_path_flush(tp, pa);
			tp_chunk_put(tp, c);
			if (pa->state == TP_PATH_OK)
				shutdown(pa->fd, SHUT_WR);
		}
	}
}

void tp_close(struct tp *tp)
{
	if (tp == NULL)
		return;
	pthread_mutex_lock(&tp->lock);
	int64_t deadline = tp_now_us() + CLOSE_US;
	while (!tp->failed && !all_acknowledged(tp) && tp_now_us() < deadline)
		tp_wait(tp);
	tp->stop = true;
	pthread_cond_signal(&tp->io_cond);
	uint64_t one = 1;
	if (write(tp->wakefd, &one, sizeof(one)) < 0)
		tp->stop = true; /* it looks by itself within its next timeout */
	pthread_mutex_unlock(&tp->lock);
	if (tp->thread_on)
		pthread_join(tp->thread, NULL);
	pthread_mutex_lock(&tp->lock);
	say_goodbye(tp);
	pthread_mutex_unlock(&tp->lock);
	tp_free(tp);
}

uint32_t tp_rank(const struct tp *tp)
{
	return tp->c.rank;
}

uint32_t tp_world(const struct tp *tp)
{
	return tp->c.world;
}

/* ---- collectives --------------------------------------------------------------------------- */

static void call_begin(struct tp *tp, enum tp_kind kind)
{
	pthread_mutex_lock(&tp->lock);
	tp->in_call = true;
	tp->in_kind = kind;
	tp->n_call++;
}

/* Leaves the lock. Return: 0, or -1 with the group's failure. */
static int call_end(struct tp *tp, struct ds_err *err)
{
	bool queued = false;
	for (uint32_t r = 0; r < tp->c.world; r++) {
		struct tp_peer *p = tp->peer[r];
		if (p == NULL)
			continue;
		tp_msg_unpost(p);
		for (uint32_t i = 0; i < p->n_path; i++)
			queued = queued || p->path[i].txq_n > 0;
	}
	if (!tp->failed)
		snprintf(tp->last_call, sizeof(tp->last_call), "%s %llu", kind_name[tp->in_kind],
			 (unsigned long long)tp->n_call);
	else if (err != NULL)
		*err = tp->fail;
	tp->in_call = false;
	tp->wait_since = 0;
	if (queued) { /* what the socket did not take yet must not wait for the next call */
		tp->io_urgent = true;
		pthread_cond_signal(&tp->io_cond);
	}
	int rc = tp->failed ? -1 : 0;
	pthread_mutex_unlock(&tp->lock);
	return rc;
}

/* The next message of @p is here, or never will be. */
static bool arrived(struct tp *tp, struct tp_peer *p, enum tp_kind kind, size_t len)
{
	const struct tp_rx *r = tp_msg_next(p);
	char why[96];
	if (r->started && (r->kind != kind || r->total != len)) {
		snprintf(why, sizeof(why), "it sent %u bytes of %s, %zu of %s were expected",
			 r->total, kind_name[r->kind], len, kind_name[kind]);
		tp_fail_peer(tp, p, why);
	} else if (!tp_msg_here(p) && p->gone) {
		tp_fail_peer(tp, p, "it left the group in an orderly way");
	}
	return tp_msg_here(p);
}

static void wait_for(struct tp *tp, struct tp_peer *p, enum tp_kind kind, size_t len)
{
	while (!arrived(tp, p, kind, len) && !tp->failed) {
		if (tp->wait_since == 0)
			tp->wait_since = tp_now_us();
		tp_wait(tp);
	}
	if (!tp->failed)
		tp_msg_take(tp, p);
}

static bool too_long(size_t len, struct ds_err *err)
{
	if (len <= TP_MSG_MAX)
		return false;
	ds_err_set(err, DS_ERR_BUG, 0, NULL, "send or receive a message of %zu bytes", len);
	ds_err_why(err, "the limit is %u bytes", TP_MSG_MAX);
	return true;
}

int tp_exchange(struct tp *tp, enum tp_kind kind, const void *send, size_t len, void *const *recv,
		const size_t *recv_len, struct ds_err *err)
{
	if (too_long(len, err))
		return -1;
	for (uint32_t r = 0; r < tp->c.world; r++) {
		if (r == tp->c.rank || recv_len[r] == 0)
			continue;
		if (recv[r] == NULL)
			return ds_err_set(err, DS_ERR_BUG, 0, NULL,
					  "exchange without room for rank %u", r);
		if (too_long(recv_len[r], err))
			return -1;
	}
	call_begin(tp, kind);
	for (uint32_t r = 0; r < tp->c.world; r++)
		if (tp->peer[r] != NULL && recv_len[r] > 0)
			tp_msg_post(tp, tp->peer[r], recv[r], recv_len[r]);
	for (uint32_t r = 0; r < tp->c.world && len > 0; r++)
		if (tp->peer[r] != NULL && tp_msg_send(tp, tp->peer[r], kind, send, len) != 0)
			break;
	for (uint32_t r = 0; r < tp->c.world && !tp->failed; r++)
		if (tp->peer[r] != NULL && recv_len[r] > 0)
			wait_for(tp, tp->peer[r], kind, recv_len[r]);
	return call_end(tp, err);
}

static struct tp_peer *peer_of(struct tp *tp, uint32_t rank, struct ds_err *err)
{
	if (rank < tp->c.world && tp->peer[rank] != NULL)
		return tp->peer[rank];
	ds_err_set(err, DS_ERR_BUG, 0, NULL, "talk to rank %u of %u", rank, tp->c.world);
	return NULL;
}

int tp_send(struct tp *tp, enum tp_kind kind, uint32_t to, const void *data, size_t len,
	    struct ds_err *err)
{
	struct tp_peer *p = peer_of(tp, to, err);
	if (p == NULL || too_long(len, err))
		return -1;
	if (len == 0)
		return 0;
	call_begin(tp, kind);
	if (p->gone)
		tp_fail_peer(tp, p, "it left the group in an orderly way");
	if (!tp->failed)
		tp_msg_send(tp, p, kind, data, len);
	return call_end(tp, err);
}

int tp_recv(struct tp *tp, enum tp_kind kind, uint32_t from, void *data, size_t len,
	    struct ds_err *err)
{
	struct tp_peer *p = peer_of(tp, from, err);
	if (p == NULL || too_long(len, err))
		return -1;
	if (len == 0)
		return 0;
	call_begin(tp, kind);
	tp_msg_post(tp, p, data, len);
	if (!tp->failed)
		wait_for(tp, p, kind, len);
	return call_end(tp, err);
}

/* Return: 1 when the wait for a message ended without one. */
static int any_arrived(struct tp *tp, struct tp_peer *p, size_t cap, bool (*stop)(void *),
		       void *arg)
{
	while (!tp->failed) {
		const struct tp_rx *r = tp_msg_next(p);
		if (r->started && (r->kind != TP_CONTROL || r->total > cap)) {
			tp_fail_peer(tp, p, "it sent what is no control message of this place");
			break;
		}
		if (tp_msg_here(p))
			return 0;
		if (p->gone || (stop != NULL && stop(arg)))
			return 1;
		tp_wait(tp);
	}
	return 0;
}

int tp_recv_any(struct tp *tp, uint32_t from, void *buf, size_t cap, size_t *len,
		bool (*stop)(void *), void *arg, struct ds_err *err)
{
	struct tp_peer *p = peer_of(tp, from, err);
	if (p == NULL)
		return -1;
	call_begin(tp, TP_CONTROL);
	int end = any_arrived(tp, p, cap, stop, arg);
	if (!tp->failed && end == 0) {
		*len = tp_msg_next(p)->total;
		tp_msg_post(tp, p, buf, *len);
		tp_msg_take(tp, p);
	}
	return call_end(tp, err) != 0 ? -1 : end;
}

/* ---- health -------------------------------------------------------------------------------- */

static void peer_health(const struct tp *tp, const struct tp_peer *p, struct tp_health *out,
			int64_t now)
{
	struct tp_peer_health *h = &out->peer[out->n_peer++];
	uint32_t n_ok = 0;
	h->rank = p->rank;
	h->n_path = p->n_path;
	h->last_path = p->last_path;
	for (uint32_t i = 0; i < p->n_path; i++) {
		const struct tp_path *pa = &p->path[i];
		struct tp_path_health *ph = &h->path[i];
		memcpy(ph->name, pa->conf.name, sizeof(ph->name));
		memcpy(ph->netdev, pa->conf.netdev, sizeof(ph->netdev));
		ph->state = pa->state;
		ph->tx_bytes = pa->tx_bytes;
		ph->rx_bytes = pa->rx_bytes;
		ph->resent = pa->resent;
		ph->downs = pa->downs;
		ph->since_ms = (now - pa->since) / 1000;
		n_ok += pa->state == TP_PATH_OK;
	}
	h->lost = p->gone || (n_ok == 0 && now - p->last_rx > (int64_t)tp->c.rank_lost_ms * 1000);
	if (n_ok < p->n_path)
		out->degraded = true;
	if (h->lost)
		out->failed = true;
}

void tp_health(struct tp *tp, struct tp_health *out)
{
	int64_t now = tp_now_us();
	*out = (struct tp_health){ 0 };
	pthread_mutex_lock(&tp->lock);
	out->world = tp->c.world;
	out->epoch = tp->epoch;
	out->failed = tp->failed;
	for (uint32_t r = 0; r < tp->c.world; r++)
		if (tp->peer[r] != NULL)
			peer_health(tp, tp->peer[r], out, now);
	memcpy(out->sent, tp->sent, sizeof(out->sent));
	memcpy(out->culprit, tp->culprit, sizeof(out->culprit));
	memcpy(out->last_call, tp->last_call, sizeof(out->last_call));
	pthread_mutex_unlock(&tp->lock);
}
