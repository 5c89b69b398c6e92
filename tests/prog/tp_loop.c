/*
 * tp_loop.c - the tcp transport between processes on loopback: data, refusals, strangers, loss.
 *
 * Each case forks its ranks; a rank's verdict is its exit status. Paths are two loopback addresses,
 * so that one rank has two ways to the other without any network of its own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
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

static void case_exchange(uint32_t world, uint32_t n_path)
{
	make_conf(world, n_path);
	verdict(run_ranks(world, rank_exchange),
		"120 exchanges of 1 B to 4 MiB at world %u over %u path(s)", world, n_path);
}

int main(void)
{
	signal(SIGPIPE, SIG_DFL); /* the transport must never raise it */
	setvbuf(stdout, NULL, _IOLBF, 0);
	case_exchange(2, 1);
	case_exchange(2, 2);
	case_exchange(3, 2);
	case_exchange(4, 1);
	return failures != 0;
}
