/*
 * tp_rank.c - one rank that exchanges with another without end, for tests that cut its paths.
 *
 *   tp_rank RANK REPORT ADDR0 ADDR1
 *
 * REPORT is this node's host report, ADDR0 and ADDR1 are the rank.N addresses. Every 10 ms it prints
 *
 *   MS OPS GAP_MS  rail0 STATE TX RX RESENT DOWNS  rail1 STATE TX RX RESENT DOWNS
 *
 * where MS is CLOCK_BOOTTIME (as /proc/uptime), OPS the exchanges so far, GAP_MS the longest wait in
 * one. SIGTERM at rank 0 ends both; the exit status is 0 only if every byte was right.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tp_paths.h"

#define BIG	 200000
#define PRINT_US 10000

static volatile sig_atomic_t stop;
static atomic_uint ops, gap_ms;
static atomic_bool over;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

static int64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static size_t size_of(uint64_t rank, uint64_t op)
{
	return op % 8 == 7 ? BIG : 2 + (size_t)(mix(rank << 40 | op) % 24000);
}

static void fill(uint8_t *p, size_t n, uint64_t rank, uint64_t op)
{
	uint64_t x = mix(op << 8 | rank);
	for (size_t i = 1; i < n; i++) {
		if (i % 64 == 1)
			x = mix(x);
		p[i] = (uint8_t)(x >> (i % 8 * 8));
	}
}

static void *monitor(void *arg)
{
	static const char *const state[] = { "connecting", "ok", "down" };
	struct tp_health h;
	while (!atomic_load(&over)) {
		tp_health(arg, &h);
		char line[512];
		size_t n = (size_t)snprintf(line, sizeof(line), "%lld %u %u", (long long)now_ms(),
					    atomic_load(&ops), atomic_load(&gap_ms));
		for (uint32_t i = 0; i < h.peer[0].n_path && n < sizeof(line); i++) {
			const struct tp_path_health *p = &h.peer[0].path[i];
			n += (size_t)snprintf(line + n, sizeof(line) - n,
					      " %s %s %llu %llu %llu %u", p->name, state[p->state],
					      (unsigned long long)p->tx_bytes,
					      (unsigned long long)p->rx_bytes,
					      (unsigned long long)p->resent, p->downs);
		}
		puts(line);
		usleep(PRINT_US);
	}
	return NULL;
}

static int run(struct tp *tp, uint8_t *out, uint8_t *in, uint8_t *want)
{
	uint32_t me = tp_rank(tp), other = 1 - me;
	void *recv[2] = { in, in };
	struct ds_err err;
	for (uint64_t op = 0;; op++) {
		size_t len[2] = { size_of(0, op), size_of(1, op) };
		int64_t t0 = now_ms();
		fill(out, len[me], me, op);
		out[0] = (uint8_t)stop;
		if (tp_exchange(tp, TP_REDUCE, out, len[me], recv, len, &err) != 0) {
			ds_err_print(stderr, "tp_rank", &err);
			return 1;
		}
		fill(want, len[other], other, op);
		if (memcmp(in + 1, want + 1, len[other] - 1) != 0) {
			fprintf(stderr, "tp_rank: exchange %llu: wrong bytes\n",
				(unsigned long long)op);
			return 1;
		}
		int64_t took = now_ms() - t0;
		if (took > atomic_load(&gap_ms))
			atomic_store(&gap_ms, (unsigned int)took);
		atomic_store(&ops, (unsigned int)op + 1);
		if ((me == 0 ? out[0] : in[0]) != 0)
			return 0;
		usleep(300); /* stands for computing */
	}
}

static struct tp *open_group(char **argv, struct ds_err *err)
{
	struct tp_conf c = { .world = 2, .listen_fd = -1, .path_listen_fd = -1 };
	struct host_report r;
	const char *addr[] = { argv[3], argv[4] };
	c.rank = argv[1][0] == '1';
	c.connect_ms = 10000;
	snprintf(c.state, sizeof(c.state), "version=1\nworld=2\n");
	memset(c.secret, 7, sizeof(c.secret));
	if (host_report_read(argv[2], &r, err) != 0 || tp_paths_fill(&c, addr, &r, err) != 0)
		return NULL;
	return tp_open(&c, err);
}

int main(int argc, char **argv)
{
	struct ds_err err = { 0 };
	pthread_t thread;
	if (argc != 5) {
		fprintf(stderr, "usage: tp_rank RANK REPORT ADDR0 ADDR1\n");
		return 64;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGTERM, on_term);
	uint8_t *buf = malloc((size_t)3 * BIG);
	struct tp *tp = open_group(argv, &err);
	if (tp == NULL || buf == NULL || pthread_create(&thread, NULL, monitor, tp) != 0) {
		ds_err_print(stderr, "tp_rank", &err);
		return 1;
	}
	int rc = run(tp, buf, buf + BIG, buf + (size_t)2 * BIG);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	tp_close(tp);
	free(buf);
	return rc;
}
