/*
 * session.c - the common beginning and end of the commands that change the host.
 */
#include "session.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "caps.h"
#include "lock.h"
#include "state.h"

static volatile sig_atomic_t got_signal;

static void on_signal(int sig)
{
	if (got_signal == 0)
		got_signal = sig;
}

int prep_session_signal(void)
{
	return got_signal;
}

/*
 * Also where a caller left one ignored or blocked: an apply must be stoppable, and must stop
 * cleanly. A reader that goes away, or a limit on file sizes, must not kill us between intent and
 * record either: the write fails, and that is handled.
 */
static void catch_signals(void)
{
	static const int signals[] = { SIGHUP, SIGINT, SIGTERM };
	struct sigaction sa = { .sa_handler = on_signal };
	sigset_t ours;
	got_signal = 0;
	sigemptyset(&ours);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		sigaction(signals[i], &sa, NULL);
		sigaddset(&ours, signals[i]);
	}
	sigprocmask(SIG_UNBLOCK, &ours, NULL);
	sa.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &sa, NULL);
	sigaction(SIGXFSZ, &sa, NULL);
}

static int held(pid_t holder)
{
	struct ds_err err;

	ds_err_set(&err, DS_ERR_HOST, 0, "/run/dsprep/lock", "lock");
	if (holder > 0)
		ds_err_why(&err, "another dsprep holds it: pid %d", (int)holder);
	else
		ds_err_why(&err, "another dsprep holds it, outside this pid namespace");
	ds_err_fix(&err, "wait until it ends, then run this again");
	ds_err_print(stderr, "dsprep", &err);
	return PREP_EXIT_LOCKED;
}

int prep_session_begin(struct prep_session *s, const struct prep_opts *o, const char *what)
{
	struct ds_err err = { 0 };
	*s = (struct prep_session){ .lock_fd = -1 };
	if (prep_caps_need_root(what, &err) != 0)
		return prep_fail(&err);
	s->access = prep_access_live(o->root, &err);
	if (s->access == NULL) {
		err.kind = DS_ERR_USAGE;
		return prep_fail(&err);
	}
	int run_fd = prep_state_run(s->access, &err);
	if (run_fd < 0)
		return prep_fail(&err);
	pid_t holder = 0;
	catch_signals();
	int rc = prep_lock_take(run_fd, &s->lock_fd, &holder, &err);
	close(run_fd);
	return rc == 0 ? 0 : rc < 0 ? prep_fail(&err) : held(holder);
}

void prep_session_end(struct prep_session *s)
{
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	if (s->access != NULL)
		prep_access_close(s->access);
	*s = (struct prep_session){ .lock_fd = -1 };
}
