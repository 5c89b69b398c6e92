/*
 * nomem_tp.c - the Nth allocation of one rank fails while a group is opened, used and closed.
 *
 * Every failure must end in an error that says so, or be survived (a library's cache, a heartbeat
 * that goes out a moment later); no memory and no descriptor stays behind. malloc and its kin are
 * replaced for the whole program; the other rank is a process of its own and has all it wants.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tp.h"
#include "failmalloc.h"

#ifdef FAILMALLOC_ABSENT

int main(void)
{
	puts("skip every failed allocation of the transport is an error: a sanitizer has its own allocator");
	return 77;
}

#else

#define N_MAX 400

static int open_fds(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d != NULL)
		closedir(d);
	return n;
}

static int listener(uint16_t *port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || listen(fd, 8) != 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) != 0)
		return -1;
	*port = ntohs(sa.sin_port);
	return fd;
}

/* Opens, exchanges a small and a large message with an early one in between, closes. */
static int session(const struct tp_conf *c, struct ds_err *err)
{
	static uint8_t out[100000], in[100000];
	void *recv[2] = { in, in };
	size_t len[2] = { sizeof(out), sizeof(out) }, one[2] = { 100, 100 };
	struct tp *tp = tp_open(c, err);
	int rc = tp == NULL ? -1 : 0;
	if (rc == 0 && c->rank == 1)
		rc = tp_send(tp, TP_CONTROL, 0, out, 5000, err);
	if (rc == 0 && c->rank == 0)
		usleep(30000); /* so that it arrives unasked */
	if (rc == 0 && c->rank == 0)
		rc = tp_recv(tp, TP_CONTROL, 1, in, 5000, err);
	if (rc == 0)
		rc = tp_exchange(tp, TP_REDUCE, out, 100, recv, one, err);
	if (rc == 0)
		rc = tp_exchange(tp, TP_REDUCE, out, sizeof(out), recv, len, err);
	tp_close(tp);
	return rc;
}

static int once(long nth, struct ds_err *err)
{
	struct tp_conf c = { .world = 2, .connect_ms = 600, .state = "version=1\n" };
	uint16_t boot = 0, port = 0;
	c.listen_fd = listener(&boot);
	c.path_listen_fd = listener(&port);
	for (uint32_t r = 0; r < 2; r++) {
		c.path_port[r] = port;
		c.peer[r].n_path = 1;
		strcpy(c.peer[r].path[0].name, "rank");
		c.peer[r].path[0].remote.s_addr = htonl(INADDR_LOOPBACK);
		c.peer[r].addr.sin_family = AF_INET;
		c.peer[r].addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		c.peer[r].addr.sin_port = htons(boot);
	}
	pid_t pid = fork();
	if (pid == 0) {
		struct ds_err ignored;
		close(c.listen_fd);
		c.listen_fd = -1;
		c.rank = 1;
		alarm(10);
		_exit(session(&c, &ignored) != 0);
	}
	close(c.path_listen_fd);
	c.path_listen_fd = -1;
	atomic_store(&fm_failed, false);
	atomic_store(&fm_left, nth);
	int rc = session(&c, err);
	atomic_store(&fm_left, -1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return rc;
}

int main(void)
{
	struct ds_err err = { 0 };
	int bad = 0, errors = 0;
	long nth = 0;
	/* Twice without failure, so that libraries have made what they keep. */
	if (once(-1, &err) != 0 || once(-1, &err) != 0) {
		ds_err_print(stderr, "nomem_tp", &err);
		return 1;
	}
	for (; nth < N_MAX; nth++) {
		long before = atomic_load(&fm_alive);
		int fds = open_fds();
		err = (struct ds_err){ 0 };
		int rc = once(nth, &err);
		long kept = atomic_load(&fm_alive) - before;
		if (!atomic_load(&fm_failed))
			break;
		errors += rc != 0;
		if (kept > 0 || open_fds() != fds || (rc != 0 && err.kind == DS_ERR_NONE)) {
			printf("   allocation %ld: returned %d, %ld blocks kept, error \"%s\"\n",
			       nth, rc, kept, err.what);
			bad++;
		}
	}
	printf("%s every failed allocation of the transport is an error or survived (%ld, %d errors)\n",
	       bad == 0 && nth > 10 && nth < N_MAX && errors > 5 ? "ok" : "not ok", nth, errors);
	return bad != 0 || nth <= 10 || nth == N_MAX || errors <= 5;
}

#endif
