/*
 * tp_latency.c - time of one exchange between two processes on loopback, by size and paths.
 *
 * Prints the median and the 99th percentile of tp_exchange() with both ranks doing nothing else,
 * beside a bare TCP ping-pong of the same bytes in the same run: what the transport adds.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tp.h"

#define ROUNDS 2000
#define WARM   200

static const size_t sizes[] = { 64, 1024, 16384, 40960, 262144 };
#define N_SIZE (sizeof(sizes) / sizeof(sizes[0]))

static double now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void report(const char *what, size_t bytes, double *us)
{
	qsort(us, ROUNDS, sizeof(us[0]), by_value);
	printf("%-22s %7zu bytes  median %7.1f us  p99 %7.1f us\n", what, bytes, us[ROUNDS / 2],
	       us[ROUNDS * 99 / 100]);
}

static int listener(uint32_t offset, uint16_t *port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK + offset),
				  .sin_port = htons(*port) };
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || listen(fd, 8) != 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) != 0) {
		perror("tp_latency: listen");
		exit(1);
	}
	*port = ntohs(sa.sin_port);
	return fd;
}

static int run_rank(const struct tp_conf *c, const char *name)
{
	struct ds_err err;
	static double us[ROUNDS];
	uint8_t *out = calloc(1, sizes[N_SIZE - 1]), *in = calloc(1, sizes[N_SIZE - 1]);
	struct tp *tp = tp_open(c, &err);
	if (tp == NULL || out == NULL || in == NULL) {
		ds_err_print(stderr, "tp_latency", &err);
		return 1;
	}
	void *recv[2] = { in, in };
	for (size_t s = 0; s < N_SIZE; s++) {
		size_t len[2] = { sizes[s], sizes[s] };
		for (int i = -WARM; i < ROUNDS; i++) {
			double t0 = now_us();
			if (tp_exchange(tp, TP_REDUCE, out, sizes[s], recv, len, &err) != 0) {
				ds_err_print(stderr, "tp_latency", &err);
				return 1;
			}
			if (i >= 0)
				us[i] = now_us() - t0;
		}
		if (c->rank == 0)
			report(name, sizes[s], us);
	}
	tp_close(tp);
	free(out);
	free(in);
	return 0;
}

static int measure(uint32_t n_path)
{
	struct tp_conf c = { .world = 2, .connect_ms = 5000 };
	uint16_t boot = 0, port = 0;
	char name[32];
	snprintf(name, sizeof(name), "exchange, %u path%s", n_path, n_path > 1 ? "s" : "");
	c.listen_fd = listener(0, &boot);
	c.path_listen_fd = listener(0, &port);
	int second = n_path > 1 ? listener(1, &port) : -1;
	close(second); /* the transport opens it itself where it has a single descriptor */
	for (uint32_t r = 0; r < 2; r++) {
		c.path_port[r] = port;
		c.peer[r].addr = (struct sockaddr_in){ .sin_family = AF_INET,
						       .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
						       .sin_port = htons(boot) };
		c.peer[r].n_path = n_path;
		for (uint32_t i = 0; i < n_path; i++) {
			struct tp_path_conf *p = &c.peer[r].path[i];
			snprintf(p->name, sizeof(p->name), "rail%u", i);
			p->local.s_addr = p->remote.s_addr = htonl(INADDR_LOOPBACK + i);
		}
	}
	if (n_path > 1) {
		close(c.path_listen_fd);
		c.path_listen_fd = -1;
	}
	fflush(stdout);
	pid_t pid = fork();
	c.rank = pid == 0;
	int *mine = pid == 0 ? &c.listen_fd : &c.path_listen_fd;
	if (*mine >= 0)
		close(*mine); /* rank 0 listens for the group, rank 1 for paths */
	*mine = -1;
	if (pid == 0)
		_exit(run_rank(&c, name));
	int rc = run_rank(&c, name), st = 1;
	waitpid(pid, &st, 0);
	return rc != 0 || st != 0;
}

/* Both sides send, then receive, as an exchange does. */
static int bare_side(int fd, int first)
{
	static uint8_t buf[262144];
	static double us[ROUNDS];
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (size_t s = 0; s < N_SIZE; s++) {
		for (int i = -WARM; i < ROUNDS; i++) {
			double t0 = now_us();
			if (send(fd, buf, sizes[s], MSG_NOSIGNAL) != (ssize_t)sizes[s] ||
			    recv(fd, buf, sizes[s], MSG_WAITALL) != (ssize_t)sizes[s])
				return 1;
			if (i >= 0)
				us[i] = now_us() - t0;
		}
		if (first)
			report("bare TCP", sizes[s], us);
	}
	return 0;
}

static int bare(void)
{
	uint16_t port = 0;
	int l = listener(0, &port), st = 1;
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(port) };
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0)
			_exit(1);
		_exit(bare_side(fd, 0));
	}
	int fd = accept(l, NULL, NULL);
	int rc = bare_side(fd, 1);
	close(fd);
	close(l);
	waitpid(pid, &st, 0);
	return rc != 0 || st != 0;
}

int main(void)
{
	return bare() != 0 || measure(1) != 0 || measure(2) != 0;
}
