/*
 * tp_form.c - forming a group: who is there, do all mean the same, which epoch is it.
 *
 * Every pair of ranks makes one bootstrap connection (the lower rank listens) that proves both know
 * the secret and yields the pair's session key. On it both send their STATE and compare. Rank 0,
 * having the states of all, names the epoch: one more than the highest that any of them has seen.
 * Then the paths are connected and the bootstrap connections closed.
 */
#include "tp_int.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PUMP_MS	      20
#define PATH_GRACE_US 1500000 /* a path that is not up so long after the start is left for later */
#define REFUSE_US     1000000 /* a rank that gives up waits so long for those it has to tell */
#define STATE_HEAD    8	      /* last epoch, reserved */

/* The highest epoch this process has been part of: a group that forms again gets a new one. */
static atomic_uint last_epoch;

static void boot_send(struct tp *tp, struct tp_peer *p, uint8_t type, const void *data, size_t len)
{
	uint8_t buf[TP_FRAME_HDR + STATE_HEAD + TP_STATE_BYTES_MAX];
	struct tp_frame f = { .type = type, .epoch = tp->epoch, .len = (uint32_t)len };
	if (p->boot_fd < 0 || len > sizeof(buf) - TP_FRAME_HDR)
		return;
	if (len > 0)
		memcpy(buf + TP_FRAME_HDR, data, len);
	size_t n = tp_frame_put(buf, &f);
	/* A fresh socket takes these few bytes at once; if not, the other side sees the end. */
	if (send(p->boot_fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
		shutdown(p->boot_fd, SHUT_RDWR);
}

static void send_state(struct tp *tp, struct tp_peer *p)
{
	uint8_t text[STATE_HEAD + TP_STATE_BYTES_MAX] = { 0 };
	uint32_t last = atomic_load(&last_epoch);
	size_t n = strlen(tp->c.state);
	for (int i = 0; i < 4; i++)
		text[i] = (uint8_t)(last >> (8 * i));
	memcpy(text + STATE_HEAD, tp->c.state, n);
	boot_send(tp, p, TP_FRAME_STATE, text, STATE_HEAD + n);
}

/* This rank gives up: the others shall know why, instead of seeing it vanish. */
static void tell_refusal(struct tp *tp, struct tp_peer *p)
{
	if (tp->refusal[0] == '\0' || p->boot_fd < 0 || p->told)
		return;
	boot_send(tp, p, TP_FRAME_REFUSE, tp->refusal, strlen(tp->refusal));
	p->told = true;
}

static void refuse_all(struct tp *tp, const struct ds_err *err)
{
	if (tp->refusal[0] != '\0')
		return;
	snprintf(tp->refusal, sizeof(tp->refusal), "%s: %s", err->what, err->why);
	tp->refused_at = tp_now_us();
	tp_fail(tp, err);
	for (uint32_t r = 0; r < tp->c.world; r++)
		if (tp->peer[r] != NULL)
			tell_refusal(tp, tp->peer[r]);
}

/* Some may still be on their way: wait a moment for them. */
static bool still_telling(const struct tp *tp, int64_t now)
{
	bool all = true;
	for (uint32_t r = 0; r < tp->c.world; r++)
		all = all && (tp->peer[r] == NULL || tp->peer[r]->told);
	return tp->refusal[0] != '\0' && !all && now - tp->refused_at < REFUSE_US;
}

void tp_form_boot(struct tp *tp, struct tp_peer *p, int fd,
		  const uint8_t session[TP_AUTH_KEY_BYTES])
{
	tp_close_fd(&p->boot_fd);
	p->boot_fd = fd;
	p->boot_len = 0;
	p->state_in = false;
	p->have_session = true;
	memcpy(p->session, session, TP_AUTH_KEY_BYTES);
	if (tp_watch(tp, fd, EPOLLIN, TP_ON_BOOT, p->rank) != 0) {
		tp_close_fd(&p->boot_fd);
		p->have_session = false;
		return;
	}
	send_state(tp, p);
	tell_refusal(tp, p);
}

static void take_state(struct tp *tp, struct tp_peer *p, const struct tp_frame *f)
{
	char text[TP_STATE_BYTES_MAX + 1];
	struct ds_err err;
	size_t n = f->len - STATE_HEAD;
	if (f->len < STATE_HEAD || n > TP_STATE_BYTES_MAX ||
	    memchr(f->payload + STATE_HEAD, '\0', n) != NULL) {
		tp_fail_peer(tp, p, "its state text is malformed");
		return;
	}
	memcpy(text, f->payload + STATE_HEAD, n);
	text[n] = '\0';
	p->last_epoch = 0;
	for (int i = 0; i < 4; i++)
		p->last_epoch |= (uint32_t)f->payload[i] << (8 * i);
	p->state_in = true;
	if (tp_state_diff(tp->c.state, tp->c.rank, text, p->rank, &err) != 0)
		refuse_all(tp, &err);
}

static void take_refusal(struct tp *tp, const struct tp_peer *p, const struct tp_frame *f)
{
	struct ds_err err;
	ds_err_set(&err, DS_ERR_PEER, 0, NULL, "form the group: rank %u gave up", p->rank);
	ds_err_why(&err, "%.*s", (int)(f->len < 250 ? f->len : 250), (const char *)f->payload);
	tp_fail(tp, &err);
}

static void boot_frame(struct tp *tp, struct tp_peer *p, const struct tp_frame *f)
{
	switch (f->type) {
	case TP_FRAME_STATE:
		take_state(tp, p, f);
		return;
	case TP_FRAME_REFUSE:
		take_refusal(tp, p, f);
		return;
	case TP_FRAME_START:
		if (p->rank == 0 && f->epoch != 0 && tp->epoch == 0)
			tp->epoch = f->epoch;
		return;
	default:
		tp_fail_peer(tp, p, "it sent a frame that does not belong to forming a group");
	}
}

/* Before the epoch is known a rank may die and come back; afterwards the paths tell. */
static void boot_lost(struct tp *tp, struct tp_peer *p)
{
	tp_close_fd(&p->boot_fd);
	if (tp->epoch == 0)
		p->have_session = p->state_in = false;
}

void tp_form_input(struct tp *tp, struct tp_peer *p)
{
	if (p->boot_fd < 0)
		return;
	ssize_t n = recv(p->boot_fd, p->boot_buf + p->boot_len, TP_BOOT_BYTES - p->boot_len,
			 MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		boot_lost(tp, p);
		return;
	}
	p->boot_len += (size_t)n;
	struct tp_frame f;
	const char *why = NULL;
	long used;
	while ((used = tp_frame_parse(p->boot_buf, p->boot_len, &f, &why)) > 0) {
		boot_frame(tp, p, &f);
		p->boot_len -= (size_t)used;
		memmove(p->boot_buf, p->boot_buf + used, p->boot_len);
	}
	if (used < 0 || p->boot_len == TP_BOOT_BYTES)
		boot_lost(tp, p);
}

static void peer_address(const struct tp *tp, uint32_t rank, char *buf, size_t size)
{
	const struct sockaddr_in *sa = &tp->c.peer[rank].addr;
	char text[INET_ADDRSTRLEN];
	snprintf(buf, size, "rank %u (%s:%u)", rank,
		 inet_ntop(AF_INET, &sa->sin_addr, text, sizeof(text)), ntohs(sa->sin_port));
}

static const char *refusal_fix(enum tp_refusal r)
{
	switch (r) {
	case TP_REFUSE_SECRET:
		return "copy the same secret file to every rank";
	case TP_REFUSE_VERSION:
		return "install the same dsengine on every rank";
	case TP_REFUSE_RANK:
	case TP_REFUSE_WORLD:
		return "give every rank the same rank.N lines and world, and its own rank number";
	default:
		return "";
	}
}

void tp_form_refused(struct tp *tp, struct tp_peer *p, const struct tp_hs *hs)
{
	/* These pass by themselves; the deadline reports them if they do not. */
	if (hs->refusal == TP_REFUSE_DUPLICATE || hs->refusal == TP_REFUSE_NOT_READY ||
	    hs->refusal == TP_REFUSE_GARBAGE)
		return;
	struct ds_err err;
	char obj[64];
	peer_address(tp, p->rank, obj, sizeof(obj));
	ds_err_set(&err, DS_ERR_PEER, 0, obj,
		   hs->by_peer ? "rank %u was refused" : "rank %u refused the listener",
		   tp->c.rank);
	if (hs->refusal == TP_REFUSE_VERSION)
		ds_err_why(&err, "it speaks protocol version %u, this rank %u", hs->peer_version,
			   TP_AUTH_VERSION);
	else
		ds_err_why(&err, "%s", tp_refusal_text(hs->refusal));
	ds_err_fix(&err, "%s", refusal_fix(hs->refusal));
	tp_fail(tp, &err);
}

void tp_form_done(struct tp *tp)
{
	for (uint32_t r = 0; r < tp->c.world; r++)
		if (tp->peer[r] != NULL)
			tp_close_fd(&tp->peer[r]->boot_fd);
}

/* Rank 0 has every state: name the epoch. */
static void start_if_complete(struct tp *tp)
{
	uint32_t last = atomic_load(&last_epoch);
	for (uint32_t r = 1; r < tp->c.world; r++) {
		if (!tp->peer[r]->state_in)
			return;
		if (tp->peer[r]->last_epoch > last)
			last = tp->peer[r]->last_epoch;
	}
	tp->epoch = last + 1 != 0 ? last + 1 : 1;
	for (uint32_t r = 1; r < tp->c.world; r++)
		boot_send(tp, tp->peer[r], TP_FRAME_START, NULL, 0);
}

static uint32_t paths_ok(const struct tp_peer *p)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->n_path; i++)
		n += p->path[i].state == TP_PATH_OK;
	return n;
}

static bool stands(const struct tp *tp, int64_t epoch_at, int64_t now)
{
	if (tp->epoch == 0)
		return false;
	for (uint32_t r = 0; r < tp->c.world; r++) {
		const struct tp_peer *p = tp->peer[r];
		if (p == NULL)
			continue;
		uint32_t ok = paths_ok(p);
		if (ok == 0 || (ok < p->n_path && now - epoch_at < PATH_GRACE_US))
			return false;
	}
	return true;
}

/* Why is rank @p not there yet? In words, after its address. */
static void say_missing(const struct tp *tp, const struct tp_peer *p, char *buf, size_t size)
{
	const struct tp_dial *d = &p->boot_dial;
	char text[64];
	if (p->have_session && tp->epoch == 0) {
		snprintf(buf, size, "it is there and waits for the others");
	} else if (p->have_session) {
		d = &p->path[0].dial;
		snprintf(buf, size, "no path came up (%s: %s)", p->path[0].conf.name,
			 d->refusal != TP_REFUSE_NONE ? tp_refusal_text(d->refusal)
			 : d->sys != 0		      ? strerror_r(d->sys, text, sizeof(text))
						      : "nothing came");
	} else if (tp->c.rank < p->rank) {
		snprintf(buf, size, "it has not connected");
	} else {
		snprintf(buf, size, "%s",
			 d->refusal != TP_REFUSE_NONE ? tp_refusal_text(d->refusal)
			 : d->sys != 0		      ? strerror_r(d->sys, text, sizeof(text))
						      : "it does not answer");
	}
}

static int timed_out(const struct tp *tp, struct ds_err *err)
{
	char obj[256] = "", why[256] = "", one[128];
	size_t n_obj = 0, n_why = 0;
	for (uint32_t r = 0; r < tp->c.world; r++) {
		const struct tp_peer *p = tp->peer[r];
		if (p == NULL || (paths_ok(p) > 0 && tp->epoch != 0) ||
		    (p->have_session && tp->epoch == 0 && tp->c.rank == 0))
			continue;
		peer_address(tp, r, one, sizeof(one));
		n_obj += (size_t)snprintf(obj + n_obj, sizeof(obj) - n_obj, "%s%s",
					  n_obj > 0 ? ", " : "", one);
		say_missing(tp, p, one, sizeof(one));
		n_why += (size_t)snprintf(why + n_why, sizeof(why) - n_why, "%srank %u: %s",
					  n_why > 0 ? "; " : "", r, one);
		if (n_obj >= sizeof(obj) || n_why >= sizeof(why))
			break;
	}
	ds_err_set(err, DS_ERR_TIMEOUT, 0, obj, "rank %u: form the group within %u ms", tp->c.rank,
		   tp->c.connect_ms);
	if (tp->n_refused > 0 && n_why < sizeof(why))
		snprintf(why + n_why, sizeof(why) - n_why, "; %u refused, last %s: %s",
			 tp->n_refused, inet_ntop(AF_INET, &tp->last_refused, one, sizeof(one)),
			 tp_refusal_text(tp->last_refusal));
	ds_err_why(err, "%s", why);
	return ds_err_fix(err, "%s",
			  tp->n_refused > 0
				  ? refusal_fix(tp->last_refusal)
				  : "start the missing ranks; check rank.N on every node");
}

int tp_form(struct tp *tp, struct ds_err *err)
{
	int64_t begun = tp_now_us(), epoch_at = 0;
	for (uint32_t r = 0; r < tp->c.rank; r++)
		tp_dial_init(&tp->peer[r]->boot_dial, (struct in_addr){ INADDR_ANY },
			     &tp->c.peer[r].addr);
	for (;;) {
		int64_t now = tp_now_us();
		bool late = now - begun > (int64_t)tp->c.connect_ms * 1000;
		if (tp->failed && (late || !still_telling(tp, now))) {
			if (err != NULL)
				*err = tp->fail;
			return -1;
		}
		if (tp->c.rank == 0 && tp->epoch == 0 && !tp->failed)
			start_if_complete(tp);
		if (tp->epoch != 0 && epoch_at == 0)
			epoch_at = now;
		if (!tp->failed && stands(tp, epoch_at, now))
			break;
		if (late)
			return timed_out(tp, err);
		tp_pump(tp, PUMP_MS);
	}
	atomic_store(&last_epoch, tp->epoch);
	tp->formed = true;
	tp_form_done(tp);
	return 0;
}
