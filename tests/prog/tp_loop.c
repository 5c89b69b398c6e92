/*
 * tp_loop.c - the tcp transport between processes on loopback: data, refusals, strangers, loss.
 *
 * Each case forks its ranks; a rank's verdict is its exit status. Paths are two loopback addresses,
 * so that one rank has two ways to the other without any network of its own.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tp.h"
#include "tp_auth.h"
#include "tp_frame.h"

#define CASE_S 40 /* no case may take longer */

static int failures;

static void verdict(bool good, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs(good ? "ok " : "not ok ", stdout);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	failures += !good;
}

static int64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void sleep_ms(int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
	nanosleep(&ts, NULL);
}

/* A port that was free a moment ago. */
static uint16_t free_port(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) != 0) {
		perror("tp_loop: port");
		exit(1);
	}
	close(fd);
	return ntohs(sa.sin_port);
}

static struct tp_conf conf[TP_WORLD_MAX];

static void make_conf(uint32_t world, uint32_t n_path)
{
	struct tp_conf c = { .world = world, .listen_fd = -1, .path_listen_fd = -1 };
	c.connect_ms = 8000;
	memset(c.secret, 0x5a, sizeof(c.secret));
	snprintf(c.state, sizeof(c.state), "version=1\nmodel=abc\nworld=%u\n", world);
	for (uint32_t r = 0; r < world; r++) {
		struct tp_peer_conf *p = &c.peer[r];
		c.path_port[r] = free_port();
		p->addr.sin_family = AF_INET;
		p->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		p->addr.sin_port = htons(free_port());
		p->n_path = n_path;
		for (uint32_t i = 0; i < n_path; i++) {
			snprintf(p->path[i].name, sizeof(p->path[i].name), "rail%u", i);
			p->path[i].local.s_addr = p->path[i].remote.s_addr =
				htonl(INADDR_LOOPBACK + i);
		}
	}
	for (uint32_t r = 0; r < world; r++) {
		conf[r] = c;
		conf[r].rank = r;
	}
}

typedef int (*rank_fn)(uint32_t rank);

static pid_t start(rank_fn fn, uint32_t rank)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	alarm(CASE_S);
	exit(fn(rank));
}

/* Every rank must end with status 0. */
static bool all_good(const pid_t *pid, uint32_t n)
{
	bool good = true;
	for (uint32_t r = 0; r < n; r++) {
		int st = -1;
		if (pid[r] <= 0 || waitpid(pid[r], &st, 0) != pid[r])
			return false;
		if (!WIFEXITED(st) || WEXITSTATUS(st) != 0) {
			printf("   rank %u: %s %d\n", r, WIFSIGNALED(st) ? "signal" : "status",
			       WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st));
			good = false;
		}
	}
	return good;
}

static bool run_ranks(uint32_t world, rank_fn fn)
{
	pid_t pid[TP_WORLD_MAX];
	for (uint32_t r = 0; r < world; r++)
		pid[r] = start(fn, r);
	return all_good(pid, world);
}

static int complain(uint32_t rank, const char *where, const struct ds_err *err)
{
	char line[900];
	printf("   rank %u: %s: %s\n", rank, where, ds_err_line(err, line, sizeof(line)));
	return 1;
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Bytes that depend on who sends which message: any mix-up shows. */
static void fill(uint8_t *p, size_t n, uint64_t from, uint64_t op)
{
	uint64_t x = mix(from << 32 | op);
	for (size_t i = 0; i < n; i++) {
		if (i % 8 == 0)
			x = mix(x);
		p[i] = (uint8_t)(x >> (8 * (i % 8)));
	}
}

static bool same(const uint8_t *p, size_t n, uint64_t from, uint64_t op, uint8_t *tmp)
{
	fill(tmp, n, from, op);
	return memcmp(p, tmp, n) == 0;
}

#define BIG (4u << 20)

/* 1 byte to 4 MiB, small ones more often; ranks agree on it without talking. */
static size_t size_of(uint64_t rank, uint64_t op)
{
	uint64_t x = mix(rank * 7919 + op * 104729 + 17);
	size_t top = (size_t)1 << (x % 23);
	size_t n = 1 + (size_t)(mix(x) % top);
	return n > BIG ? BIG : n;
}

static int exchange_many(struct tp *tp, uint32_t n_op)
{
	uint32_t me = tp_rank(tp), world = tp_world(tp);
	uint8_t *buf[TP_WORLD_MAX] = { 0 }, *out = malloc(BIG), *tmp = malloc(BIG);
	struct ds_err err;
	int bad = out == NULL || tmp == NULL;
	for (uint32_t r = 0; r < world; r++)
		bad |= (buf[r] = malloc(BIG)) == NULL;
	for (uint64_t op = 0; op < n_op && !bad; op++) {
		size_t len[TP_WORLD_MAX];
		for (uint32_t r = 0; r < world; r++)
			len[r] = op % 5 == 4 && r == op % world ? 0 : size_of(r, op);
		fill(out, len[me], me, op);
		if (tp_exchange(tp, (enum tp_kind)(op % TP_KINDS), out, len[me], (void *const *)buf,
				len, &err) != 0)
			bad = complain(me, "exchange", &err);
		for (uint32_t r = 0; r < world && !bad; r++)
			if (r != me && !same(buf[r], len[r], r, op, tmp))
				bad = printf("   rank %u: exchange %llu: bytes of rank %u differ\n",
					     me, (unsigned long long)op, r) > 0;
	}
	for (uint32_t r = 0; r < world; r++)
		free(buf[r]);
	free(out);
	free(tmp);
	return bad;
}

static int rank_exchange(uint32_t rank)
{
	struct ds_err err;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	int bad = exchange_many(tp, 120);
	tp_close(tp);
	return bad;
}

static int rank_exchange_30(uint32_t rank)
{
	struct ds_err err;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	int bad = exchange_many(tp, 30);
	tp_close(tp);
	return bad;
}

static void case_exchange(uint32_t world, uint32_t n_path)
{
	make_conf(world, n_path);
	verdict(run_ranks(world, rank_exchange),
		"120 exchanges of 1 B to 4 MiB at world %u over %u path(s)", world, n_path);
}

/* What ranks, helpers and the case itself tell each other. */
struct shared {
	volatile int64_t at_ms;
	volatile uint32_t flag, epoch;
	atomic_uint done; /* ranks that have finished what comes before a death */
};
static struct shared *shared;

/* Bounded wait for somebody's signal. */
static bool await_flag(uint32_t value, int ms)
{
	for (int64_t end = now_ms() + ms; now_ms() < end; sleep_ms(2))
		if (shared->flag >= value)
			return true;
	return false;
}

/* The case's own process waits for this line in an error of @err. */
static bool says(const struct ds_err *err, const char *text)
{
	char line[900];
	if (strstr(ds_err_line(err, line, sizeof(line)), text) != NULL)
		return true;
	printf("   expected \"%s\" in: %s\n", text, line);
	return false;
}

/* ---- messages in order --------------------------------------------------------------------- */

#define EARLY_N	  400	      /* more than a receiver holds unasked */
#define EARLY_BIG (48u << 20) /* likewise */

static int order_rank0(struct tp *tp, uint8_t *buf, struct ds_err *err)
{
	for (uint64_t op = 0; op < EARLY_N; op++) {
		size_t n = 1 + (size_t)(mix(op) % 300);
		fill(buf, n, 0, op);
		if (tp_send(tp, TP_CONTROL, 1, buf, n, err) != 0)
			return complain(0, "send", err);
	}
	fill(buf, EARLY_BIG, 0, 1000);
	if (tp_send(tp, TP_HEAD, 1, buf, EARLY_BIG, err) != 0)
		return complain(0, "send", err);
	return 0;
}

static int order_rank1(struct tp *tp, uint8_t *buf, uint8_t *tmp, struct ds_err *err)
{
	sleep_ms(300); /* so that the sender meets its limit */
	for (uint64_t op = 0; op < EARLY_N; op++) {
		size_t n = 1 + (size_t)(mix(op) % 300), got = n;
		int rc = op % 2 == 0 ? tp_recv(tp, TP_CONTROL, 0, buf, n, err)
				     : tp_recv_any(tp, 0, buf, 300, &got, NULL, NULL, err);
		if (rc != 0)
			return complain(1, "recv", err);
		if (got != n || !same(buf, n, 0, op, tmp))
			return printf("   message %llu differs\n", (unsigned long long)op) > 0;
	}
	sleep_ms(300);
	if (tp_recv(tp, TP_HEAD, 0, buf, EARLY_BIG, err) != 0)
		return complain(1, "recv", err);
	return !same(buf, EARLY_BIG, 0, 1000, tmp);
}

static int rank_order(uint32_t rank)
{
	struct ds_err err;
	uint8_t *buf = malloc(EARLY_BIG), *tmp = malloc(EARLY_BIG);
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL || buf == NULL || tmp == NULL)
		return complain(rank, "open", &err);
	int bad = rank == 0 ? order_rank0(tp, buf, &err) : order_rank1(tp, buf, tmp, &err);
	tp_close(tp); /* rank 0 leaves at once: nothing it sent may be lost */
	free(buf);
	free(tmp);
	return bad;
}

static void case_order(void)
{
	make_conf(2, 2);
	verdict(run_ranks(2, rank_order),
		"messages sent long before they are asked for arrive in order, then 48 MiB");
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

static bool stop_now(void *arg)
{
	return ++*(int *)arg > 2;
}

static int rank_goodbye(uint32_t rank)
{
	struct ds_err err;
	uint8_t buf[64];
	size_t len = 0;
	int polls = 0;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	if (rank == 0) {
		sleep_ms(400);
		int rc = tp_send(tp, TP_CONTROL, 1, "last", 4, &err);
		tp_close(tp);
		return rc;
	}
	int64_t t0 = now_ms();
	if (tp_recv_any(tp, 0, buf, sizeof(buf), &len, stop_now, &polls, &err) != 1 ||
	    now_ms() - t0 > 750)
		return printf("   stop was not asked every 250 ms\n") > 0;
	if (tp_recv_any(tp, 0, buf, sizeof(buf), &len, never, NULL, &err) != 0 || len != 4)
		return complain(1, "recv_any", &err);
	if (tp_recv_any(tp, 0, buf, sizeof(buf), &len, never, NULL, &err) != 1)
		return complain(1, "recv_any at the end", &err);
	/* Whoever needs the rank that left gets an error that says so. */
	bool good = tp_recv(tp, TP_REDUCE, 0, buf, 4, &err) == -1 && err.kind == DS_ERR_PEER &&
		    says(&err, "left the group in an orderly way");
	tp_close(tp);
	return !good;
}

static void case_goodbye(void)
{
	make_conf(2, 2);
	verdict(run_ranks(2, rank_goodbye),
		"an orderly end: the last message arrives, then recv_any says closed");
}

static int rank_mismatch(uint32_t rank)
{
	struct ds_err err;
	uint8_t buf[64] = { 0 };
	void *recv[TP_WORLD_MAX] = { buf, buf };
	size_t len[TP_WORLD_MAX] = { 8, 8 };
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	bool good;
	if (rank == 0) {
		good = tp_exchange(tp, TP_REDUCE, buf, 8, recv, len, &err) == -1 &&
		       says(&err, "it sent 16 bytes of reduce, 8 of reduce were expected") &&
		       err.kind == DS_ERR_PEER && tp_send(tp, TP_CONTROL, 1, buf, 1, &err) == -1;
	} else {
		tp_exchange(tp, TP_REDUCE, buf, 16, recv, len, &err);
		sleep_ms(300);
		good = true;
	}
	tp_close(tp);
	return !good;
}

static void case_mismatch(void)
{
	make_conf(2, 1);
	verdict(run_ranks(2, rank_mismatch), "a message of another length than expected is named");
}

/* ---- refusals ------------------------------------------------------------------------------ */

static int rank_secret(uint32_t rank)
{
	struct ds_err err;
	conf[rank].connect_ms = 1500;
	if (rank == 1)
		conf[1].secret[31] ^= 1;
	if (tp_open(&conf[rank], &err) != NULL)
		return 1;
	if (rank == 1)
		return !(err.kind == DS_ERR_PEER && says(&err, "rank 0 (127.0.0.1:") &&
			 says(&err, "the shared secret differs"));
	return !(err.kind == DS_ERR_TIMEOUT && says(&err, "rank 1 (127.0.0.1:") &&
		 says(&err, "1 refused, last 127.0.0.1: the shared secret differs"));
}

static int rank_state(uint32_t rank)
{
	struct ds_err err;
	if (rank == 1)
		strcpy(conf[1].state, "version=1\nmodel=abd\nworld=3\n");
	if (tp_open(&conf[rank], &err) != NULL)
		return 1;
	if (err.kind != DS_ERR_PEER || !says(&err, "model"))
		return 1;
	/* Rank 2 agrees with rank 0, but nobody may start without rank 1. */
	return !(says(&err, "\"abc\" on rank") && says(&err, "\"abd\" on rank 1"));
}

static void case_refusals(void)
{
	make_conf(2, 1);
	verdict(run_ranks(2, rank_secret), "a wrong secret is refused by name on both sides");
	make_conf(3, 1);
	verdict(run_ranks(3, rank_state),
		"a state difference names key, both values and both ranks on every rank");
}

/* A listener that sends back what it gets. */
static int mirror(uint32_t rank)
{
	(void)rank;
	struct sockaddr_in sa = conf[0].peer[0].addr;
	uint8_t buf[256];
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || listen(fd, 4) != 0)
		return 1;
	int c = accept(fd, NULL, NULL);
	for (ssize_t n = 0; c >= 0 && (n = recv(c, buf, sizeof(buf), 0)) > 0;)
		if (send(c, buf, (size_t)n, MSG_NOSIGNAL) != n)
			break;
	return 0;
}

static int rank_mirrored(uint32_t rank)
{
	struct ds_err err;
	conf[rank].connect_ms = 3000;
	if (tp_open(&conf[rank], &err) != NULL)
		return 1;
	return !(err.kind == DS_ERR_PEER && says(&err, "our own handshake was reflected to us"));
}

static void case_reflection(void)
{
	make_conf(2, 1);
	pid_t pid[2] = { start(mirror, 0), start(rank_mirrored, 1) };
	verdict(all_good(pid, 2), "a reflected handshake is refused by name");
}

/* ---- strangers ----------------------------------------------------------------------------- */

static int dial(const struct sockaddr_in *sa)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (int i = 0; i < 100; i++) {
		if (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0)
			return fd;
		sleep_ms(10);
		close(fd);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	close(fd);
	return -1;
}

/* Milliseconds until the other side hangs up; -1 = it answered, -2 = it did not hang up. */
static int hangs_up_after(int fd, int limit_ms)
{
	struct pollfd pf = { .fd = fd, .events = POLLIN };
	uint8_t buf[256];
	int64_t t0 = now_ms();
	if (poll(&pf, 1, limit_ms) != 1)
		return -2;
	return recv(fd, buf, sizeof(buf), 0) > 0 ? -1 : (int)(now_ms() - t0);
}

static int rank_among_strangers(uint32_t rank)
{
	struct ds_err err;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	int bad = exchange_many(tp, 60);
	if (rank == 0)
		shared->flag = 1;
	/* Rank 0 stays until the strangers are through; rank 1 hears from it. */
	uint8_t b = 0;
	if (rank == 0)
		bad |= !await_flag(2, 15000) || tp_send(tp, TP_CONTROL, 1, &b, 1, &err) != 0;
	else
		bad |= tp_recv(tp, TP_CONTROL, 0, &b, 1, &err) != 0;
	tp_close(tp);
	return bad;
}

static void case_strangers(void)
{
	uint8_t junk[600];
	int idle[24], held = 0;
	make_conf(2, 1);
	shared->flag = 0;
	pid_t pid[2] = { start(rank_among_strangers, 0), 0 };
	const struct sockaddr_in *sa = &conf[0].peer[0].addr;
	for (int i = 0; i < 24; i++)
		held += (idle[i] = dial(sa)) >= 0;
	int waited = hangs_up_after(idle[23], 4000);
	for (int i = 0; i < 24; i++)
		close(idle[i]);
	for (int i = 0; i < 24; i++)
		idle[i] = dial(sa);
	pid[1] = start(rank_among_strangers, 1);
	verdict(held == 24 && await_flag(1, 15000),
		"a group forms while 24 idle connections are held against its listener");
	verdict(waited >= 1500 && waited <= 3000, "an idle stranger is cut off after 2 s (%d ms)",
		waited);
	memset(junk, 'x', sizeof(junk));
	int fd = dial(sa);
	ssize_t n = send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
	int cut = hangs_up_after(fd, 1500);
	verdict(n > 0 && cut >= 0, "garbage is cut off without an answer (%d ms)", cut);
	shared->flag = 2;
	close(fd);
	for (int i = 0; i < 24; i++)
		close(idle[i]);
	verdict(all_good(pid, 2), "the group works on among strangers");
}

/* Says @h to @sa. Return: the refusal that comes back, or -1. */
static int refusal_of(const struct sockaddr_in *sa, const struct tp_hello *h, unsigned int version)
{
	struct tp_hs hs;
	uint8_t key[TP_AUTH_KEY_BYTES] = { 0 }, buf[TP_HELLO_BYTES];
	int fd = dial(sa), r = -1;
	if (fd < 0 || tp_hs_connect(&hs, h, key, NULL) != 0)
		return -1;
	hs.out[4] = (uint8_t)version;
	if (send(fd, hs.out, hs.n_out, MSG_NOSIGNAL) == (ssize_t)hs.n_out &&
	    recv(fd, buf, TP_REFUSAL_BYTES, MSG_WAITALL) == TP_REFUSAL_BYTES &&
	    tp_hs_feed(&hs, buf, TP_REFUSAL_BYTES) == TP_HS_REFUSED)
		r = (int)hs.refusal;
	close(fd);
	return r;
}

static int rank_epoch(uint32_t rank)
{
	struct ds_err err;
	struct tp_health h;
	uint8_t b = 0;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	tp_health(tp, &h);
	shared->epoch = h.epoch;
	if (rank == 0)
		shared->flag = 1;
	bool good = rank == 0 ? await_flag(2, 10000) && tp_send(tp, TP_CONTROL, 1, &b, 1, &err) == 0
			      : tp_recv(tp, TP_CONTROL, 0, &b, 1, &err) == 0;
	tp_close(tp);
	return !good;
}

static int rank_twin(uint32_t rank)
{
	struct ds_err err;
	conf[rank].connect_ms = 1200;
	conf[rank].path_port[rank] = free_port();
	if (tp_open(&conf[rank], &err) != NULL)
		return 1;
	return !says(&err, "duplicate rank");
}

static void case_epoch(void)
{
	make_conf(2, 1);
	shared->flag = 0;
	pid_t pid[2] = { start(rank_epoch, 0), start(rank_epoch, 1) };
	bool up = await_flag(1, 10000);
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr = conf[0].peer[1].path[0].remote,
				  .sin_port = htons(conf[0].path_port[1]) };
	struct tp_hello h = { .kind = TP_HELLO_PATH,
			      .from = 0,
			      .to = 1,
			      .world = 2,
			      .epoch = shared->epoch - 1,
			      .path = "rail0" };
	int r = refusal_of(&at, &h, TP_AUTH_VERSION);
	verdict(up && r == TP_REFUSE_EPOCH,
		"a path connection of a stale epoch is refused by name");
	h.epoch = shared->epoch;
	strcpy(h.path, "rail7");
	r = refusal_of(&at, &h, TP_AUTH_VERSION);
	verdict(r == TP_REFUSE_PATH, "a path that nobody knows is refused by name");
	r = refusal_of(&at, &h, 9);
	verdict(r == TP_REFUSE_VERSION, "another protocol version is refused by name");
	h = (struct tp_hello){ .kind = TP_HELLO_BOOT, .from = 1, .to = 0, .world = 3 };
	r = refusal_of(&conf[0].peer[0].addr, &h, TP_AUTH_VERSION);
	verdict(r == TP_REFUSE_WORLD, "another world is refused by name");
	h = (struct tp_hello){ .kind = TP_HELLO_BOOT, .from = 0, .to = 0, .world = 2 };
	r = refusal_of(&conf[0].peer[0].addr, &h, TP_AUTH_VERSION);
	verdict(r == TP_REFUSE_RANK, "a rank that may not connect here is refused by name");
	pid_t twin = start(rank_twin, 1);
	verdict(all_good(&twin, 1), "a second rank 1 is refused as duplicate");
	shared->flag = 2;
	verdict(all_good(pid, 2), "the group works on after refusals");
}

/* ---- loss ---------------------------------------------------------------------------------- */

/*
 * A death resets connections, and what lies in them is lost with it: whoever dies waits until the
 * other one has everything.
 */
static void await_both(void)
{
	atomic_fetch_add(&shared->done, 1);
	for (int i = 0; i < 10000 && atomic_load(&shared->done) < 2; i++)
		usleep(1000);
}

static int rank_killed(uint32_t rank)
{
	struct ds_err err;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	if (exchange_many(tp, 10) != 0)
		return 1;
	await_both();
	if (rank == 1) {
		shared->at_ms = now_ms();
		raise(SIGKILL);
	}
	uint8_t buf[8] = { 0 };
	int rc = tp_recv(tp, TP_REDUCE, 1, buf, sizeof(buf), &err);
	int64_t took = now_ms() - shared->at_ms;
	struct tp_health h;
	tp_health(tp, &h);
	bool good = rc == -1 && err.kind == DS_ERR_PEER && took <= 2000 && says(&err, "rank 1") &&
		    says(&err, "last path rail") && says(&err, "last completed collective: ") &&
		    h.failed && h.peer[0].lost && strstr(h.culprit, "rank 1, path rail") != NULL &&
		    tp_send(tp, TP_CONTROL, 1, buf, 1, &err) == -1;
	printf("   noticed after %lld ms: %s\n", (long long)took, h.culprit);
	tp_close(tp);
	/* The survivor forms a new group with a rank 1 that was started again. */
	shared->flag = 1;
	struct tp *again = tp_open(&conf[0], &err);
	if (again == NULL)
		return complain(0, "open again", &err);
	struct tp_health h2;
	tp_health(again, &h2);
	good = good && h2.epoch > h.epoch && !h2.failed && exchange_many(again, 30) == 0;
	tp_close(again);
	return !good;
}

/* The head dies: the other one keeps going and meets it again under a new epoch. */
static int rank_bereft(uint32_t rank)
{
	struct ds_err err;
	struct tp_health h = { 0 }, h2 = { 0 };
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	if (exchange_many(tp, 10) != 0)
		return 1;
	tp_health(tp, &h);
	await_both();
	if (rank == 0)
		raise(SIGKILL);
	uint8_t buf[8];
	size_t len;
	bool good = tp_recv_any(tp, 0, buf, sizeof(buf), &len, never, NULL, &err) == -1 &&
		    err.kind == DS_ERR_PEER && says(&err, "rank 0");
	tp_close(tp);
	shared->flag = 1;
	tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open again", &err);
	tp_health(tp, &h2);
	good = good && h2.epoch > h.epoch && exchange_many(tp, 30) == 0;
	tp_close(tp);
	return !good;
}

static void case_bereft(void)
{
	make_conf(2, 2);
	shared->flag = 0;
	atomic_store(&shared->done, 0);
	pid_t pid[2] = { start(rank_bereft, 0), start(rank_bereft, 1) };
	int st = 0;
	bool killed = waitpid(pid[0], &st, 0) == pid[0] && WIFSIGNALED(st) && await_flag(1, 6000);
	pid[0] = start(rank_exchange_30, 0);
	verdict(all_good(pid, 2) && killed,
		"when rank 0 dies the other notices and forms a new epoch with it");
}

static void case_killed(void)
{
	make_conf(2, 2);
	shared->flag = 0;
	atomic_store(&shared->done, 0);
	pid_t pid[2] = { start(rank_killed, 0), start(rank_killed, 1) };
	int st = 0;
	bool killed = waitpid(pid[1], &st, 0) == pid[1] && WIFSIGNALED(st) && await_flag(1, 6000);
	pid[1] = start(rank_exchange_30, 1);
	verdict(all_good(pid, 2) && killed,
		"a killed rank is named within 2 s; the group forms again under a new epoch");
}

static int rank_busy(uint32_t rank)
{
	struct ds_err err;
	uint8_t b = 0;
	struct tp_health h;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	int rc;
	if (rank == 1) {
		sleep_ms(3500); /* computes */
		rc = tp_send(tp, TP_CONTROL, 0, &b, 1, &err);
	} else {
		rc = tp_recv(tp, TP_CONTROL, 1, &b, 1, &err);
	}
	tp_health(tp, &h);
	for (uint32_t i = 0; i < h.peer[0].n_path; i++)
		rc |= h.peer[0].path[i].downs != 0;
	tp_close(tp);
	return rc != 0;
}

static int rank_stalled(uint32_t rank)
{
	struct ds_err err;
	uint8_t b = 0;
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL)
		return complain(rank, "open", &err);
	int64_t t0 = now_ms();
	bool good = tp_recv(tp, TP_REDUCE, 1 - rank, &b, 1, &err) == -1 &&
		    err.kind == DS_ERR_PEER && says(&err, "waiting for each other") &&
		    now_ms() - t0 < 5000;
	sleep_ms(600); /* so that the other one finds out by itself, not by our goodbye */
	tp_close(tp);
	return !good;
}

static void case_waiting(void)
{
	make_conf(2, 2);
	verdict(run_ranks(2, rank_busy), "a rank that computes for long is not lost");
	make_conf(2, 1);
	verdict(run_ranks(2, rank_stalled), "ranks that wait for each other for 2 s fail");
}

/* ---- a path through a relay ---------------------------------------------------------------- */

/*
 * Stands between rank 0 and the address of rail1 at rank 1: stopping it silences the path without
 * a reset, killing it resets, and told so it damages a byte.
 */
static int relay(uint32_t rank)
{
	(void)rank;
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(conf[0].path_port[1]) };
	struct sockaddr_in out = in;
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 9);
	out.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	uint8_t buf[4096];
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) != 0 || listen(fd, 4) != 0)
		return 1;
	for (int i = 0; i < 1000; i++) {
		struct pollfd pf[2] = { { .fd = accept(fd, NULL, NULL), .events = POLLIN },
					{ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
					  .events = POLLIN } };
		setsockopt(pf[0].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(pf[1].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (connect(pf[1].fd, (struct sockaddr *)&out, sizeof(out)) != 0)
			pf[1].events = 0;
		for (bool open = pf[1].events != 0; open && poll(pf, 2, -1) > 0;)
			for (int k = 0; k < 2 && open; k++) {
				if (pf[k].revents == 0)
					continue;
				ssize_t n = recv(pf[k].fd, buf, sizeof(buf), 0);
				if (n > 0 && shared->flag == 77) {
					buf[n / 2] ^= 4;
					shared->flag = 78;
				}
				open = n > 0 &&
				       send(pf[1 - k].fd, buf, (size_t)n, MSG_NOSIGNAL) == n;
			}
		close(pf[0].fd);
		close(pf[1].fd);
	}
	return 0;
}

/* Exchanges until told to end (rank 0 decides), and shows its path states. */
static int rank_relayed(uint32_t rank)
{
	struct ds_err err;
	struct tp_health h;
	size_t n = 24000, len[2] = { n, n };
	uint8_t *out = malloc(n), *in = malloc(n), *tmp = malloc(n);
	void *recv[2] = { in, in };
	struct tp *tp = tp_open(&conf[rank], &err);
	if (tp == NULL || out == NULL || in == NULL || tmp == NULL)
		return complain(rank, "open", &err);
	int bad = 0;
	bool last = false;
	for (uint64_t op = 0; !bad && !last; op++) {
		fill(out, n, rank, op);
		out[0] = shared->flag == 99; /* rank 0's says whether this is the last one */
		if (tp_exchange(tp, TP_REDUCE, out, n, recv, len, &err) != 0)
			bad = complain(rank, "exchange", &err);
		last = rank == 0 ? out[0] : in[0];
		fill(tmp, n, 1 - rank, op);
		bad |= memcmp(in + 1, tmp + 1, n - 1) != 0;
		tp_health(tp, &h);
		const struct tp_path_health *ph = &h.peer[0].path[1];
		if (rank == 0) {
			shared->at_ms = now_ms();
			shared->epoch = ph->state == TP_PATH_OK ? ph->downs * 2 : ph->downs * 2 + 1;
		}
		sleep_ms(1);
	}
	uint64_t a = h.peer[0].path[0].tx_bytes, b = h.peer[0].path[1].tx_bytes;
	uint64_t resent = h.peer[0].path[0].resent + h.peer[0].path[1].resent;
	printf("   rank %u: rail0 %llu, rail1 %llu bytes, %llu sent again, %u times down\n", rank,
	       (unsigned long long)a, (unsigned long long)b, (unsigned long long)resent,
	       h.peer[0].path[1].downs);
	tp_close(tp);
	free(out);
	free(in);
	free(tmp);
	return bad || b == 0 || h.peer[0].path[1].downs < 3;
}

/* Rank 0's view of rail1: twice the number of losses, odd while it is down. */
static bool await_path(uint32_t value, int ms)
{
	for (int64_t end = now_ms() + ms; now_ms() < end; sleep_ms(2))
		if (shared->epoch == value)
			return true;
	printf("   path state %u, expected %u\n", shared->epoch, value);
	return false;
}

static bool progressing(void)
{
	int64_t before = shared->at_ms;
	sleep_ms(300);
	return shared->at_ms > before;
}

static void case_relay(void)
{
	make_conf(2, 2);
	shared->flag = 0;
	shared->epoch = 1;
	conf[0].peer[1].path[1].remote.s_addr = htonl(INADDR_LOOPBACK + 9);
	pid_t mid = start(relay, 0);
	pid_t pid[2] = { start(rank_relayed, 0), start(rank_relayed, 1) };
	bool up = await_path(0, 8000);
	sleep_ms(200);
	kill(mid, SIGSTOP);
	verdict(up && await_path(3, 2000) && progressing(),
		"a path that falls silent is noticed within 2 s, the other carries on");
	kill(mid, SIGCONT);
	verdict(await_path(2, 5000), "it is ok again within 5 s after it speaks");
	shared->flag = 77;
	verdict(await_path(4, 5000), "a damaged byte costs the connection, not the data");
	kill(mid, SIGKILL);
	waitpid(mid, NULL, 0);
	verdict(await_path(7, 2000) && progressing(),
		"a reset path is noticed, the other carries on");
	mid = start(relay, 0);
	verdict(await_path(6, 5000), "it is ok again within 5 s after it listens");
	sleep_ms(300);
	shared->flag = 99;
	verdict(all_good(pid, 2), "nothing was lost, repeated or changed meanwhile");
	kill(mid, SIGKILL);
	waitpid(mid, NULL, 0);
}

static void case_exchanges(void)
{
	case_exchange(2, 1);
	case_exchange(2, 2);
	case_exchange(3, 2);
	case_exchange(4, 1);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "exchange", case_exchanges },	 { "order", case_order },
	{ "goodbye", case_goodbye },	 { "mismatch", case_mismatch },
	{ "refusals", case_refusals },	 { "reflection", case_reflection },
	{ "strangers", case_strangers }, { "epoch", case_epoch },
	{ "killed", case_killed },	 { "bereft", case_bereft },
	{ "waiting", case_waiting },	 { "relay", case_relay },
};

/* One argument chooses a case. */
int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_DFL); /* the transport must never raise it */
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("tp_loop: mmap");
		return 1;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (argc < 2 || strcmp(argv[1], cases[i].name) == 0)
			cases[i].run();
	return failures != 0;
}
