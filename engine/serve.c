/*
 * serve.c - `dsengine serve`: start and stop order of the daemon.
 *
 * Bytes of config, secret and keys are read first; then root is given up; only then anything is
 * parsed. Rank 0 has three kinds of threads: this one waits for signals and looks after waiting
 * clients, the library's answer HTTP, and the owner thread alone touches engine and group. Other
 * ranks have one thread that follows rank 0. A group that breaks is formed again with the weights
 * kept; caches are gone on all ranks alike.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmd.h"
#include "complete.h"
#include "engine.h"
#include "group.h"
#include "health.h"
#include "http.h"
#include "log.h"
#include "priv.h"
#include "scheduler.h"
#include "settings.h"

#define TICK_MS	    200
#define DRAIN_MS    5000 /* what the running answer gets after a stop signal */
#define FLUSH_MS    2000 /* what clients get to take the last bytes */
#define REFUSED_MAX 3	 /* refusals in a row before the first group, then the mistake is ours */

struct serve {
	struct eng_options opt;
	struct eng_settings set;
	/* read early, parsed late */
	struct ds_buf conf_text, secret, keys;
	bool has_conf, has_secret, has_keys;

	struct eng_conf conf;
	char tokenizer[4200];
	struct tok *tok;
	struct eng *eng;
	struct group group;
	struct complete complete;
	struct sched sched;
	struct health health;
	struct http *http;
	struct http_model model;

	pthread_t owner;
	atomic_bool stop;    /* the owner thread should end */
	atomic_bool ended;   /* it has */
	struct ds_err fatal; /* why, if not because of a stop; read after the join */
};

static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
	(void)sig;
	if (signals < 2)
		signals = signals + 1;
}

/* ---------------------------------- before root is given up ---------------------------------- */

/* @must: an absent file is an error. Only root needs this; others read later what they still can. */
static int read_early(const char *path, bool must, struct ds_buf *out, bool *has,
		      struct ds_err *err)
{
	struct ds_err why = { 0 };
	*has = priv_read(path, out, &why) == 0;
	if (*has || (!must && why.sys == ENOENT))
		return 0;
	*err = why;
	return -1;
}

static int read_files(struct serve *s, struct ds_err *err)
{
	const struct eng_options *o = &s->opt;
	const char *conf = o->conf_file != NULL ? o->conf_file : ENG_CONF_FILE;
	if (read_early(conf, o->conf_file != NULL, &s->conf_text, &s->has_conf, err) != 0)
		return -1;
	if (o->key_file != NULL && read_early(o->key_file, true, &s->keys, &s->has_keys, err) != 0)
		return -1;
	if (o->secret_file != NULL)
		return read_early(o->secret_file, true, &s->secret, &s->has_secret, err);
	return priv_is_root() ? read_early(ENG_SECRET_FILE, false, &s->secret, &s->has_secret, err)
			      : 0;
}

/* ---------------------------------- settings and secret ---------------------------------- */

/* A secret that everybody may read is none. Root's copy was checked by its owner and mode too. */
static int check_private(const char *path, struct ds_err *err)
{
	struct stat st;
	if (stat(path, &st) != 0 || (st.st_mode & S_IROTH) == 0)
		return 0; /* not there or not ours to see: reading it says so, or was done already */
	ds_err_set(err, DS_ERR_INPUT, 0, path, "read a secret");
	ds_err_why(err, "everybody may read it, mode %04o", (unsigned int)st.st_mode & 07777);
	return ds_err_fix(err, "chmod 0640 it");
}

static int late_secret(struct serve *s, struct ds_err *err)
{
	const char *path = s->set.secret_file;
	/* The early copy is of the option's file or the default one; the config may name another. */
	bool early = s->has_secret &&
		     (s->opt.secret_file != NULL || strcmp(path, ENG_SECRET_FILE) == 0);
	if (check_private(path, err) != 0)
		return -1;
	if (!early && priv_read(path, &s->secret, err) != 0)
		return ds_err_fix(
			err,
			"dsengine keygen %s makes one; the user of this process must be able to read it",
			path);
	if (s->secret.len == TP_SECRET_BYTES)
		return 0;
	ds_err_set(err, DS_ERR_INPUT, 0, path, "read the secret");
	ds_err_why(err, "%zu bytes; it must have %d", s->secret.len, TP_SECRET_BYTES);
	return ds_err_fix(err, "dsengine keygen makes one");
}

static int late_keys(struct serve *s, struct ds_err *err)
{
	if (s->set.key_file[0] == '\0')
		return 0;
	if (check_private(s->set.key_file, err) != 0)
		return -1;
	if (!s->has_keys && priv_read(s->set.key_file, &s->keys, err) != 0)
		return -1;
	s->has_keys = true;
	return 0;
}

static int read_settings(struct serve *s, struct ds_err *err)
{
	const char *file = s->opt.conf_file != NULL ? s->opt.conf_file : ENG_CONF_FILE;
	const char *text = s->has_conf ? s->conf_text.data : NULL;
	if (ds_log_setup(s->opt.log, err) != 0)
		return -1;
	if (eng_settings_load(file, text, s->conf_text.len, &s->opt, &s->set, err) != 0)
		return -1;
	if (s->set.world > 1 && late_secret(s, err) != 0)
		return -1;
	return s->set.rank == 0 ? late_keys(s, err) : 0;
}

/* ---------------------------------- model and group ---------------------------------- */

static bool stopping(void *arg)
{
	const struct serve *s = arg;
	return signals > 0 || atomic_load(&s->stop);
}

/* The owner thread ends on the flag, not on the signal: main drains first. */
static bool owner_stops(const struct serve *s)
{
	return atomic_load(&s->stop);
}

static void pause_ms(unsigned int ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };
	nanosleep(&t, NULL);
}

static int open_model(struct serve *s, struct ds_err *err)
{
	const struct eng_settings *set = &s->set;
	if (eng_conf_load(set->model, &s->conf, err) != 0)
		return -1;
	snprintf(s->tokenizer, sizeof(s->tokenizer), "%s/tokenizer.json", set->model);
	if (set->rank == 0 && (s->tok = tok_open(s->tokenizer, err)) == NULL)
		return -1;
	return set->world > 1
		       ? group_init(&s->group, set, &s->conf, (const uint8_t *)s->secret.data, err)
		       : 0;
}

static uint32_t context_of(const struct serve *s)
{
	uint32_t c = (uint32_t)s->set.context;
	return c != 0 && c < s->conf.max_pos ? c : s->conf.max_pos;
}

static int load_weights(struct serve *s, struct ds_err *err)
{
	const struct eng_settings *set = &s->set;
	struct eng_open_args a = {
		.conf = &s->conf,
		.kernels = set->kernels[0] != '\0' ? set->kernels : NULL,
		.numerics = (enum kern_numerics)set->numerics,
		.rank = (uint32_t)set->rank,
		.world = (uint32_t)set->world,
		.leaves = KERN_LEAVES_MAX,
		.n_threads = (uint32_t)set->threads,
		.max_ctx = context_of(s),
		.prefill_chunk = (uint32_t)set->prefill_chunk,
		.tp = s->group.tp,
	};
	s->eng = eng_open(&a, err);
	return s->eng != NULL ? 0 : -1;
}

/*
 * Whether another attempt may go better. What cannot be had before the first group (another model
 * on the other side, an address that is not ours) is a mistake that somebody has to mend. Once a
 * group stood, the same is a state of the host that passes: dsprep takes addresses away and gives
 * them back, descriptors and memory run short for a while, and the weights are worth the wait.
 */
static bool may_pass(enum ds_err_kind kind, bool first, int refused)
{
	if (kind == DS_ERR_PEER)
		return !first || refused < REFUSED_MAX;
	return !first && (kind == DS_ERR_HOST || kind == DS_ERR_NOMEM || kind == DS_ERR_PERM);
}

/* Attempts until the group stands. Return: 0; 1 told to stop; -1. */
static int form(struct serve *s, bool first, bool (*stop)(const struct serve *), struct ds_err *err)
{
	int refused = 0;
	char said[sizeof(err->why)] = "";
	while (!stop(s)) {
		ds_err_clear(err);
		if (group_form(&s->group, err) == 0)
			return 0;
		if (strcmp(said, err->why) != 0)
			ds_log_err(DS_LOG_WARN, "group", err);
		/* A failed group's own culprit stays on view until the next group stands. */
		if (s->set.rank == 0 && first)
			health_set(&s->health, HEALTH_LOADING, err);
		snprintf(said, sizeof(said), "%s", err->why);
		if (err->kind == DS_ERR_TIMEOUT)
			continue;
		if (!may_pass(err->kind, first, ++refused))
			return -1;
		pause_ms(500);
	}
	return 1;
}

/* ---------------------------------- rank 0: the owner thread ---------------------------------- */

static int become_ready(struct serve *s, struct ds_err *err)
{
	struct eng_stats all[TP_WORLD_MAX];
	if (s->set.world > 1) {
		health_lend(&s->health, s->group.tp);
		eng_set_tp(s->eng, s->group.tp);
		/* The others answer once their weights are there: only then is this server ready. */
		if (eng_stats_all(s->eng, all, err) != 0)
			return -1;
	}
	health_set(&s->health, HEALTH_OK, NULL);
	sched_open(&s->sched);
	ds_log(DS_LOG_INFO, "serve", "ready model=%s world=%d", s->model.name, (int)s->set.world);
	return 0;
}

static void lose_group(struct serve *s, const struct ds_err *why)
{
	struct ds_err err = *why;
	sched_close(&s->sched, &err);
	health_lend(&s->health, NULL);
	health_set(&s->health, HEALTH_FAILED, &err);
	ds_log_err(DS_LOG_ERROR, "group", &err);
	eng_set_tp(s->eng, NULL);
	group_leave(&s->group);
}

/* Return: 0; 1 told to stop; -1. */
static int regroup(struct serve *s, struct ds_err *why)
{
	for (;;) {
		struct ds_err err = { 0 };
		lose_group(s, why);
		int rc = form(s, false, owner_stops, &err);
		if (rc == 0 && become_ready(s, &err) == 0)
			return 0;
		if (rc > 0)
			return rc;
		*why = err;
		if (err.kind != DS_ERR_PEER)
			return -1;
	}
}

static int group_broken(struct serve *s, struct ds_err *err)
{
	struct tp_health t;
	if (!health_group_failed(&s->health, &t))
		return 0;
	ds_err_set(err, DS_ERR_PEER, 0, NULL, "keep the group together");
	return ds_err_why(err, "%s", t.culprit);
}

static int serve_jobs(struct serve *s, struct ds_err *err)
{
	while (!owner_stops(s)) {
		struct sched_job *job = sched_next(&s->sched, TICK_MS);
		int rc = 0;
		if (job != NULL) {
			struct answer *a = (struct answer *)job;
			rc = complete_run(&s->complete, a, err);
			sched_done(&s->sched, job);
		}
		if (rc == 0 && s->set.world > 1)
			rc = group_broken(s, err);
		if (rc != 0 && regroup(s, err) < 0)
			return -1;
	}
	return 0;
}

static int own(struct serve *s, struct ds_err *err)
{
	if (open_model(s, err) != 0)
		return -1;
	const char *name = s->set.name[0] != '\0' ? s->set.name : s->conf.name;
	snprintf(s->model.name, sizeof(s->model.name), "%s", name);
	s->model.tok = s->tok;
	s->model.context = context_of(s);
	s->model.max_tokens = (uint32_t)s->set.max_tokens;
	s->model.created = (int64_t)time(NULL);
	http_set_model(s->http, &s->model);
	if (s->set.world > 1) {
		int rc = form(s, true, owner_stops, err);
		if (rc != 0)
			return rc > 0 ? 0 : -1;
	}
	if (load_weights(s, err) != 0 ||
	    complete_init(&s->complete, s->eng, s->tok, (uint32_t)s->set.prefill_chunk,
			  s->set.time_limit_s * 1000, err) != 0)
		return -1;
	if (become_ready(s, err) != 0 && (err->kind != DS_ERR_PEER || regroup(s, err) < 0))
		return -1;
	return serve_jobs(s, err);
}

static void *owner_main(void *arg)
{
	struct serve *s = arg;
	struct ds_err err = { 0 };
	if (own(s, &err) != 0)
		s->fatal = err;
	atomic_store(&s->ended, true);
	return NULL;
}

/* ---------------------------------- rank 0: the main thread ---------------------------------- */

static struct ds_err closed_because(const char *why)
{
	struct ds_err err = { 0 };
	ds_err_set(&err, DS_ERR_PEER, 0, NULL, "answer");
	ds_err_why(&err, "%s", why);
	return err;
}

/* Ticks until @done or a number of milliseconds passed. */
static void tick_until(struct serve *s, bool (*done)(struct serve *), int ms)
{
	for (int t = 0; t < ms && !done(s); t += 20) {
		http_tick(s->http);
		pause_ms(20);
	}
}

static bool none_running(struct serve *s)
{
	size_t waiting, running;
	sched_load(&s->sched, &waiting, &running);
	return running == 0 || signals > 1 || atomic_load(&s->ended);
}

static bool none_busy(struct serve *s)
{
	return http_busy(s->http) == 0;
}

/* Waiting requests are told at once, the running one may end, then its client may read the end. */
static void drain(struct serve *s)
{
	struct ds_err why = closed_because("this server is stopping");
	health_set(&s->health, HEALTH_DRAINING, NULL);
	sched_close(&s->sched, &why);
	tick_until(s, none_running, DRAIN_MS);
	atomic_store(&s->stop, true);
	sched_cancel_running(&s->sched);
}

static int start_lead(struct serve *s, struct ds_err *err)
{
	struct ds_err loading = closed_because("the model is loading; see /health");
	struct http_args ha = {
		.host = s->set.host,
		.port = (uint16_t)s->set.port,
		.allowed_hosts = s->set.allowed_hosts,
		.keys = s->has_keys ? s->keys.data : NULL,
		.keys_len = s->keys.len,
		.sched = &s->sched,
		.health = &s->health,
	};
	if (sched_init(&s->sched, err) != 0)
		return -1;
	sched_close(&s->sched, &loading);
	if (health_init(&s->health, (uint32_t)s->set.world, err) != 0)
		goto fini_sched;
	/* Signals are this thread's; threads made below inherit the mask. */
	sigset_t term, old;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigaddset(&term, SIGINT);
	sigaddset(&term, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &term, &old);
	int rc = -1;
	if ((s->http = http_start(&ha, err)) == NULL)
		goto fini_health;
	ds_log(DS_LOG_INFO, "serve", "listening on %s port %d", s->set.host, (int)s->set.port);
	rc = pthread_create(&s->owner, NULL, owner_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		return 0;
	ds_err_set(err, DS_ERR_NOMEM, rc, "owner thread", "start");
	http_stop(s->http);
fini_health:
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	health_fini(&s->health);
fini_sched:
	sched_fini(&s->sched);
	return -1;
}

/* Order: no more jobs, the owner's end, the clients' last bytes, the server's end. */
static int lead(struct serve *s, struct ds_err *err)
{
	if (start_lead(s, err) != 0)
		return -1;
	while (signals == 0 && !atomic_load(&s->ended)) {
		http_tick(s->http);
		pause_ms(TICK_MS); /* a signal cuts it short */
	}
	bool by_signal = signals > 0;
	drain(s);
	pthread_join(s->owner, NULL);
	tick_until(s, none_busy, FLUSH_MS);
	http_stop(s->http);
	complete_fini(&s->complete);
	health_fini(&s->health);
	sched_fini(&s->sched);
	if (s->fatal.kind == DS_ERR_NONE)
		return 0;
	*err = s->fatal;
	return by_signal && err->kind == DS_ERR_PEER ? 0 : -1;
}

/* ---------------------------------- ranks above 0 ---------------------------------- */

static bool rank_stops(const struct serve *s)
{
	return stopping((void *)s);
}

/* One group's life. Return: 0 go on; 1 told to stop; -1. */
static int follow_once(struct serve *s, bool first, struct ds_err *err)
{
	int rc = form(s, first, rank_stops, err);
	if (rc != 0)
		return rc;
	if (s->eng == NULL && load_weights(s, err) != 0)
		return -1;
	eng_set_tp(s->eng, s->group.tp);
	ds_log(DS_LOG_INFO, "serve", "following rank 0 as rank=%d", (int)s->set.rank);
	rc = eng_follow(s->eng, stopping, s, err);
	eng_set_tp(s->eng, NULL);
	group_leave(&s->group);
	if (stopping(s))
		return 1;
	if (rc != 0 && err->kind != DS_ERR_PEER)
		return -1;
	if (rc != 0)
		ds_log_err(DS_LOG_WARN, "group", err);
	ds_log(DS_LOG_INFO, "serve", "rank 0 is gone; the weights stay, waiting for it");
	return 0;
}

static int follow(struct serve *s, struct ds_err *err)
{
	int rc = open_model(s, err);
	for (bool first = true; rc == 0; first = false)
		rc = follow_once(s, first, err);
	return rc > 0 ? 0 : -1;
}

/* ---------------------------------- the command ---------------------------------- */

static int catch_signals(struct ds_err *err)
{
	struct sigaction a = { .sa_handler = on_signal };
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigemptyset(&a.sa_mask);
	if (sigaction(SIGTERM, &a, NULL) != 0 || sigaction(SIGINT, &a, NULL) != 0 ||
	    sigaction(SIGHUP, &a, NULL) != 0 || /* its terminal is closed */
	    sigaction(SIGPIPE, &ignore, NULL) != 0)
		return ds_err_set(err, DS_ERR_HOST, errno, "signals", "set handlers");
	return 0;
}

/* A waiting request holds two descriptors; the usual soft limit of 1024 is enough, lower ones are not. */
static void raise_descriptors(void)
{
	struct rlimit rl;
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < 4096) {
		rl.rlim_cur = rl.rlim_max < 4096 ? rl.rlim_max : 4096;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
}

static void fini(struct serve *s)
{
	group_fini(&s->group);
	eng_close(s->eng);
	tok_close(s->tok);
	if (s->secret.data != NULL)
		explicit_bzero(s->secret.data, s->secret.len);
	if (s->keys.data != NULL)
		explicit_bzero(s->keys.data, s->keys.len);
	ds_buf_fini(&s->secret);
	ds_buf_fini(&s->keys);
	ds_buf_fini(&s->conf_text);
	free(s);
}

static int run(struct serve *s, struct ds_err *err)
{
	if (read_files(s, err) != 0 || priv_drop(s->opt.user, PRIV_SERVE, err) != 0)
		return -1;
	raise_descriptors();
	if (read_settings(s, err) != 0 || catch_signals(err) != 0)
		return -1;
	return s->set.rank == 0 ? lead(s, err) : follow(s, err);
}

int cmd_serve(int argc, char **argv)
{
	struct ds_err err = { 0 };
	struct serve *s = calloc(1, sizeof(*s));
	if (s == NULL) {
		ds_err_set(&err, DS_ERR_NOMEM, ENOMEM, NULL, "start");
		return cmd_fail(&err);
	}
	int rc = eng_options_parse(argc, argv, &s->opt, &err);
	if (rc == 0 && s->opt.help)
		eng_options_help(stdout);
	else if (rc == 0)
		rc = run(s, &err);
	fini(s);
	return rc == 0 ? 0 : cmd_fail(&err);
}
