/*
 * spawn.c - forking ranks and collecting them again.
 */
#include "spawn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define END_MS 5000 /* for children to end by themselves after the group has closed */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A listening socket on 127.0.0.1; the kernel chooses the port. */
static int listen_local(struct sockaddr_in *addr, struct ds_err *err)
{
	socklen_t len = sizeof(*addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	*addr = (struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)addr, sizeof(*addr)) != 0 ||
	    listen(fd, 16) != 0 || getsockname(fd, (struct sockaddr *)addr, &len) != 0) {
		ds_err_set(err, DS_ERR_HOST, errno, "127.0.0.1", "listen for ranks");
		close_fd(&fd);
	}
	return fd;
}

static int make_sockets(struct spawn *s, struct ds_err *err)
{
	for (uint32_t r = 0; r < s->world; r++) {
		struct tp_peer_conf *p = &s->conf.peer[r];
		struct sockaddr_in path;

		if ((s->listen_fd[r] = listen_local(&p->addr, err)) < 0 ||
		    (s->path_fd[r] = listen_local(&path, err)) < 0)
			return -1;
		s->conf.path_port[r] = ntohs(path.sin_port);
		p->n_path = 1;
		strcpy(p->path[0].name, "lo");
		strcpy(p->path[0].netdev, "lo");
		p->path[0].local.s_addr = htonl(INADDR_LOOPBACK);
		p->path[0].remote.s_addr = htonl(INADDR_LOOPBACK);
	}
	return 0;
}

/* In the child: keep this rank's sockets and its end of the pipe, and die with the parent. */
static void become_child(struct spawn *s, uint32_t rank, int report, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	for (uint32_t r = 0; r < s->world; r++) {
		if (r != rank) {
			close_fd(&s->listen_fd[r]);
			close_fd(&s->path_fd[r]);
		}
		close_fd(&s->report[r]);
		s->pid[r] = 0;
	}
	s->report[rank] = report;
}

int spawn_fork(struct spawn *s, uint32_t world, struct ds_err *err)
{
	pid_t parent = getpid();

	*s = (struct spawn){ .world = world,
			     .conf = { .world = world,
				       .connect_ms = 30000,
				       .path_dead_ms = 750,
				       .rank_lost_ms = 1500 } };
	for (int r = 0; r < TP_WORLD_MAX; r++)
		s->listen_fd[r] = s->path_fd[r] = s->report[r] = -1;
	if (getrandom(s->conf.secret, sizeof(s->conf.secret), 0) != sizeof(s->conf.secret))
		return ds_err_set(err, DS_ERR_HOST, errno, NULL, "make a secret for this run");
	if (make_sockets(s, err) != 0)
		return -1;
	for (uint32_t r = 1; r < world; r++) {
		int pipe_fd[2];

		if (pipe2(pipe_fd, O_CLOEXEC) != 0)
			return ds_err_set(err, DS_ERR_HOST, errno, NULL, "make a pipe");
		pid_t pid = fork();

		if (pid == 0) {
			close(pipe_fd[0]);
			become_child(s, r, pipe_fd[1], parent);
			return (int)r;
		}
		close(pipe_fd[1]);
		s->report[r] = pipe_fd[0];
		if (pid < 0)
			return ds_err_set(err, DS_ERR_HOST, errno, NULL, "fork rank %u", r);
		s->pid[r] = pid;
	}
	for (uint32_t r = 1; r < world; r++) {
		close_fd(&s->listen_fd[r]);
		close_fd(&s->path_fd[r]);
	}
	return 0;
}

void spawn_tp(struct spawn *s, uint32_t rank, struct tp_conf *out)
{
	*out = s->conf;
	out->rank = rank;
	out->listen_fd = s->listen_fd[rank];
	out->path_listen_fd = s->path_fd[rank];
	s->listen_fd[rank] = s->path_fd[rank] = -1;
}

void spawn_report(struct spawn *s, uint32_t rank, const struct ds_err *err)
{
	ssize_t n;

	/* Smaller than PIPE_BUF, so it goes whole; if the parent is gone nobody wants it. */
	do
		n = write(s->report[rank], err, sizeof(*err));
	while (n < 0 && errno == EINTR);
}

/* One report of @r. Return: 1 read; 0 the child ended without one; -1 nothing came in @ms. */
static int next_report(struct spawn *s, uint32_t r, int ms, struct ds_err *out)
{
	struct pollfd p = { .fd = s->report[r], .events = POLLIN };
	ssize_t n;
	int rc;

	do
		rc = poll(&p, 1, ms);
	while (rc < 0 && errno == EINTR);
	if (rc <= 0)
		return -1;
	do
		n = read(s->report[r], out, sizeof(*out));
	while (n < 0 && errno == EINTR);
	return n == sizeof(*out);
}

int spawn_ready(struct spawn *s, struct ds_err *err)
{
	for (uint32_t r = 1; r < s->world; r++) {
		struct ds_err got;

		if (next_report(s, r, -1, &got) != 1) {
			ds_err_set(err, DS_ERR_PEER, 0, NULL, "start rank %u", r);
			return ds_err_why(err, "its process ended before it was ready");
		}
		if (got.kind != DS_ERR_NONE) {
			*err = got;
			return ds_err_context(err, "rank %u", r);
		}
	}
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Wait for one child until @deadline, then kill it. Return: whether it ended by itself; @status. */
static bool reap(pid_t pid, int64_t deadline, int *status)
{
	for (;;) {
		pid_t got = waitpid(pid, status, WNOHANG);

		if (got == pid || (got < 0 && errno != EINTR))
			return true;
		if (now_ms() >= deadline)
			break;
		poll(NULL, 0, 5);
	}
	kill(pid, SIGKILL);
	while (waitpid(pid, status, 0) < 0 && errno == EINTR)
		;
	return false;
}

/* What child @r left behind, turned into an error if it is the better explanation. */
static void explain(struct spawn *s, uint32_t r, int status, struct ds_err *err)
{
	struct ds_err got;

	while (s->report[r] >= 0 && next_report(s, r, 0, &got) == 1) {
		if (got.kind == DS_ERR_NONE ||
		    (err->kind != DS_ERR_NONE &&
		     (err->kind != DS_ERR_PEER || got.kind == DS_ERR_PEER)))
			continue;
		*err = got;
		ds_err_context(err, "rank %u", r);
	}
	bool lost = err->kind == DS_ERR_NONE || err->kind == DS_ERR_PEER;

	if (lost && WIFSIGNALED(status)) {
		ds_err_set(err, DS_ERR_PEER, 0, NULL, "wait for rank %u", r);
		ds_err_why(err, "its process was ended by signal %d", WTERMSIG(status));
	} else if (err->kind == DS_ERR_NONE && WEXITSTATUS(status) != 0) {
		ds_err_set(err, DS_ERR_PEER, 0, NULL, "wait for rank %u", r);
		ds_err_why(err, "its process ended with status %d", WEXITSTATUS(status));
	}
}

int spawn_end(struct spawn *s, struct ds_err *err)
{
	/* After a failure there is nothing to wait for: only an explanation that is on its way. */
	int64_t deadline = now_ms() + (err->kind == DS_ERR_NONE ? END_MS : END_MS / 5);

	for (uint32_t r = 0; r < s->world; r++) {
		int status = 0;

		close_fd(&s->listen_fd[r]);
		close_fd(&s->path_fd[r]);
		if (s->pid[r] > 0) {
			/* One that we had to kill ends as it must: that explains nothing. */
			if (!reap(s->pid[r], deadline, &status) && err->kind != DS_ERR_NONE)
				status = 0;
			explain(s, r, status, err);
		}
		close_fd(&s->report[r]);
		s->pid[r] = 0;
	}
	return err->kind == DS_ERR_NONE ? 0 : -1;
}
