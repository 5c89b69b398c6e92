/*
 * apply.c - dsprep apply: brings the host to the plan, one recorded step after the other, while
 * watching that the management interface stays.
 *
 * The life of an apply: lock; put back what a killed apply left; observe; plan; ask; begin a
 * journal; for each step intent, act, done, verify, verified; watch; verify all again; commit. Whatever goes wrong
 * before the commit, a signal included, walks the journal back at once. After a kill the next
 * dsprep finds a journal that was begun and not committed, and does the same.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "caps.h"
#include "cmd.h"
#include "file.h"
#include "journal.h"
#include "json.h"
#include "report.h"
#include "session.h"
#include "undo.h"
#include "watch.h"

#define LOOK_EVERY_MS	100
#define GID_WAIT_MS	3000
#define CONFIG_DIGEST	"crc32c:%08x"
#define PROGRESS_PREFIX "dsprep: "

struct apply {
	struct prep_opts *o;
	bool yes;
	struct prep_session s;
	struct prep_run run;
	struct prep_plan plan;
	struct prep_journals all;
	struct prep_journal made; /* a new journal; else `j` points into `all` */
	struct prep_journal *j;
	struct prep_op_ctx x;
	struct prep_watch watch;
	struct ds_buf report;
	struct prep_back back; /* what was put back, by a recovery or a revert */
	const char *result;    /* word for JSON */
	unsigned int id;
	bool lost; /* management was lost, or a signal came: exit 4 once reverted */
};

static void say(const struct apply *ap, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Progress, for people: stderr, one line at a time, nothing when quiet. */
static void say(const struct apply *ap, const char *fmt, ...)
{
	if (ap->o->quiet)
		return;
	va_list v;
	va_start(v, fmt);
	fputs(PROGRESS_PREFIX, stderr);
	vfprintf(stderr, fmt, v);
	fputc('\n', stderr);
	va_end(v);
}

/* ------------------------------- what a killed apply left ------------------------------- */

static int recover(struct apply *ap, struct ds_err *err)
{
	for (unsigned int i = ap->all.n; i-- > 0;) {
		struct prep_journal *j = &ap->all.j[i];
		if (!prep_journal_unfinished(j))
			continue;
		say(ap, "apply %u did not end; putting back its %u steps", j->id, j->n_op);
		if (prep_back_unfinished(ap->s.access, &ap->run.host, j, &ap->back, err) != 0)
			return ds_err_context(err, "apply %u was killed", j->id);
		if (ap->back.n_left > 0)
			say(ap, "%u steps were changed by somebody else since and were left",
			    ap->back.n_left);
	}
	return 0;
}

/* ------------------------------- which journal ------------------------------- */

/* The address that the kernel makes may be another one each time; that it goes is the same step. */
static bool same_step(const struct prep_op *a, const struct prep_op *b)
{
	if (a->kind != b->kind || a->family != b->family || strcmp(a->ifname, b->ifname) != 0)
		return false;
	if (b->kind == PREP_OP_ADDR_DEL && b->family == AF_INET6)
		return true;
	return a->value == b->value && a->prefix == b->prefix &&
	       memcmp(&a->addr, &b->addr, sizeof(a->addr)) == 0 &&
	       (a->kind != PREP_OP_SYSCTL || a->sysctl == b->sysctl);
}

static bool holds(const struct prep_journal *j, const struct prep_op *op)
{
	if (op->kind == PREP_OP_HOST_REPORT)
		return true;
	for (unsigned int i = 0; i < j->n_op; i++)
		if (same_step(&j->op[i].op, op))
			return true;
	return false;
}

/*
 * An apply that only restores what the newest standing one already holds (after a boot, or a
 * hot-plug) continues that one's journal, so that one undo takes back both.
 */
static struct prep_journal *to_continue(struct apply *ap)
{
	struct prep_journal *newest = NULL;
	for (unsigned int i = 0; i < ap->all.n; i++)
		if (prep_journal_standing(&ap->all.j[i]))
			newest = &ap->all.j[i];
	if (newest == NULL || newest->n_seg >= PREP_JOURNAL_SEGS_MAX ||
	    newest->n_op + (unsigned int)ap->plan.n_op > PREP_JOURNAL_OPS_MAX ||
	    prep_back_refuse(newest, &ap->run.host, NULL) != 0)
		return NULL;
	for (int i = 0; i < ap->plan.n_op; i++)
		if (!holds(newest, &ap->plan.op[i]))
			return NULL;
	return newest;
}

static int begin_journal(struct apply *ap, struct ds_err *err)
{
	prep_journals_close(&ap->all);
	if (prep_journals_open(ap->s.access, true, &ap->all, err) != 0)
		return -1;
	ap->j = to_continue(ap);
	if (ap->j == NULL) {
		if (prep_journal_create(&ap->all, &ap->made, err) != 0)
			return -1;
		ap->j = &ap->made;
	}
	ap->id = ap->j->id;
	struct prep_jseg seg = { .netns = ap->run.host.netns, .time = (int64_t)time(NULL) };
	snprintf(seg.boot_id, sizeof(seg.boot_id), "%s", ap->run.host.boot_id);
	snprintf(seg.management, sizeof(seg.management), "%s", ap->plan.management);
	snprintf(seg.config, sizeof(seg.config), CONFIG_DIGEST,
		 ds_crc32c(0, ap->run.conf_text.data, ap->run.conf_text.len));
	return prep_journal_begin(ap->j, &seg, err);
}

/* ------------------------------- the steps ------------------------------- */

/* Return: 0; -1 with ap->lost set when it is time to revert. */
static int check_stop(struct apply *ap, struct ds_err *err)
{
	int sig = prep_session_signal();
	if (sig != 0) {
		ap->lost = true;
		ds_err_set(err, DS_ERR_HOST, 0, NULL, "apply");
		return ds_err_why(err, "SIG%s came", sigabbrev_np(sig));
	}
	if (!ap->plan.changes_network || !prep_watch_look(&ap->watch))
		return 0;
	ap->lost = true;
	ds_err_set(err, DS_ERR_HOST, 0, ap->plan.management, "keep the management interface");
	ds_err_why(err, "%s gone for more than %d s", ap->watch.gone, PREP_WATCH_LOST_MS / 1000);
	return ds_err_fix(err, "see what happened: ip -d addr show %s; journalctl -k",
			  ap->plan.management);
}

/* The report is made only now: its GIDs exist once the addresses do. */
static int make_report(struct apply *ap, struct ds_err *err)
{
	uint64_t generation = 0;
	int64_t until = prep_now_ms() + GID_WAIT_MS;
	while (!prep_report_settled(ap->s.access, &ap->plan, &ap->run.host) &&
	       prep_now_ms() < until && prep_session_signal() == 0)
		poll(NULL, 0, LOOK_EVERY_MS);
	prep_report_current(ap->s.access, &ap->run.conf, &ap->plan, &ap->run.host, &generation);
	if (generation == 0)
		generation = ap->id - 1; /* the number of applies: grows over reboots */
	return prep_report_make(ap->s.access, &ap->run.conf, &ap->plan, &ap->run.host,
				generation + 1, &ap->report, err);
}

/*
 * The routes of an interface are kept with the first removal of an IPv4 address from it: undone
 * last of them, it restores the routes when all addresses are back.
 */
static bool first_removal(const struct apply *ap, const struct prep_op *op)
{
	for (const struct prep_op *o = ap->plan.op; o < op; o++)
		if (o->kind == op->kind && o->family == op->family && o->ifindex == op->ifindex)
			return false;
	return op->kind == PREP_OP_ADDR_DEL && op->family == AF_INET;
}

static int run_step(struct apply *ap, struct prep_op *op, struct ds_err *err)
{
	unsigned int index = 0;
	if (op->kind == PREP_OP_HOST_REPORT && make_report(ap, err) != 0)
		return -1;
	ap->x.save_fd = ap->j->dir_fd;
	ap->x.save_index = ap->j->n_op;
	ap->x.report = &ap->report;
	ap->x.keep_routes = first_removal(ap, op);
	if (prep_op_prepare(&ap->x, op, err) != 0)
		return -1;
	prep_test_point("intent");
	if (prep_journal_intent(ap->j, op, &index, err) != 0)
		return -1;
	prep_test_point("act");
	if (prep_op_do(&ap->x, op, err) != 0)
		return -1;
	prep_test_point("done");
	if (prep_journal_done(ap->j, index, err) != 0)
		return -1;
	prep_test_point("verify");
	if (prep_op_verify(&ap->x, op, err) != 0)
		return -1;
	return prep_journal_verified(ap->j, index, err);
}

static int run_steps(struct apply *ap, struct ds_err *err)
{
	for (int i = 0; i < ap->plan.n_op; i++) {
		char text[160];
		if (check_stop(ap, err) != 0 || run_step(ap, &ap->plan.op[i], err) != 0)
			return -1;
		say(ap, "[%d/%d] %s", i + 1, ap->plan.n_op,
		    prep_op_text(&ap->plan.op[i], text, sizeof(text)));
	}
	return 0;
}

static int settle(struct apply *ap, struct ds_err *err)
{
	if (!ap->plan.changes_network)
		return check_stop(ap, err);
	int64_t until = prep_now_ms() + ap->run.conf.settle_s * 1000;
	say(ap, "watching %s for %" PRId64 " s", ap->plan.management, ap->run.conf.settle_s);
	/* Something missing at the end is given its two seconds to come back, or is lost. */
	while (prep_now_ms() < until || ap->watch.gone_since_ms != 0) {
		if (check_stop(ap, err) != 0)
			return -1;
		poll(NULL, 0, LOOK_EVERY_MS);
	}
	return check_stop(ap, err);
}

/* While we watched, another manager may have set the rails back; that must not pass for applied. */
static int verify_all(struct apply *ap, struct ds_err *err)
{
	for (int i = 0; i < ap->plan.n_op; i++)
		if (prep_op_verify(&ap->x, &ap->plan.op[i], err) != 0)
			return -1;
	return 0;
}

/* All that can fail; on failure the caller walks back. */
static int carry_out(struct apply *ap, struct ds_err *err)
{
	if (run_steps(ap, err) != 0)
		return -1;
	prep_test_point("settle");
	if (settle(ap, err) != 0 || verify_all(ap, err) != 0)
		return -1;
	prep_test_point("commit");
	if (prep_journal_commit(ap->j, err) != 0)
		return -1;
	prep_test_point("committed");
	return 0;
}

/* Return: exit status; everything is said. */
static int revert(struct apply *ap, const struct ds_err *why)
{
	struct ds_err err = { 0 };
	prep_fail(why);
	say(ap, "putting back %u steps", ap->j->n_op);
	if (prep_back_unfinished(ap->s.access, &ap->run.host, ap->j, &ap->back, &err) != 0) {
		ap->result = "failed";
		prep_fail(&err);
		if (ap->back.n_failed > 0)
			say(ap, "not everything is back; run: dsprep undo");
		else
			say(ap,
			    "everything is back, but the journal could not be told; run: dsprep undo");
		return PREP_EXIT_FAILED;
	}
	ap->result = ap->lost ? "reverted" : "undone";
	return ap->lost && ap->back.n_left == 0 ? PREP_EXIT_REVERTED : PREP_EXIT_FAILED;
}

/* ------------------------------- the command ------------------------------- */

/* Shows the plan and asks on the terminal, unless told not to. Return: whether to go on. */
static bool ask(struct apply *ap)
{
	if (ap->yes)
		return true;
	struct ds_buf text = { 0 };
	char answer[16] = "";
	prep_plan_print(&ap->plan, &ap->run.host, ap->o->color, &text);
	if (!text.failed)
		fputs(text.data, ap->o->json ? stderr : stdout);
	ds_buf_fini(&text);
	fflush(stdout);
	fprintf(stderr, "Apply these %d operations? [y/N] ", ap->plan.n_op);
	ssize_t n = read(STDIN_FILENO, answer, sizeof(answer) - 1);
	return n > 0 && (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0);
}

static int print_result(struct apply *ap)
{
	struct ds_buf out = { 0 };
	struct ds_json w;
	if (!ap->o->json) {
		if (ap->back.text.len > 0 && !ap->o->quiet)
			ds_buf_put(&out, ap->back.text.data, ap->back.text.len);
		if (strcmp(ap->result, "nothing") == 0 && !ap->o->quiet)
			ds_buf_puts(&out, "nothing to do\n");
		if (strcmp(ap->result, "applied") == 0 && !ap->o->quiet)
			ds_buf_printf(
				&out,
				"applied %d operations as %u; to take them back: dsprep undo\n",
				ap->plan.n_op, ap->id);
		return prep_out(&out);
	}
	ds_json_init(&w, &out, 0);
	ds_json_object(&w);
	ds_json_kint(&w, "format", 1);
	ds_json_kstr(&w, "result", ap->result);
	ds_json_key(&w, "id");
	if (ap->id != 0)
		ds_json_uint(&w, ap->id);
	else
		ds_json_null(&w);
	ds_json_key(&w, "operations");
	ds_json_array(&w);
	for (int i = 0; i < ap->plan.n_op; i++) {
		char text[160];
		ds_json_str(&w, prep_op_text(&ap->plan.op[i], text, sizeof(text)));
	}
	ds_json_end(&w);
	ds_json_key(&w, "put_back");
	struct ds_buf steps = { 0 };
	ds_buf_printf(&steps, "[%s]", ap->back.json.len > 0 ? ap->back.json.data : "");
	ds_json_raw(&w, steps.failed ? "null" : steps.data);
	ds_buf_fini(&steps);
	ds_json_end(&w);
	ds_buf_putc(&out, '\n');
	return prep_out(&out);
}

/* From the plan on. Return: exit status. */
static int apply_plan(struct apply *ap)
{
	struct ds_err err = { 0 };
	ap->result = "nothing";
	if (ap->plan.n_op == 0)
		return PREP_EXIT_OK;
	ap->result = "refused";
	if (!ask(ap)) {
		fprintf(stderr, PROGRESS_PREFIX "nothing was changed\n");
		return PREP_EXIT_FAILED;
	}
	ap->result = "failed";
	if (prep_watch_begin(&ap->watch, ap->s.access, &ap->run.host, ap->plan.management, &err) !=
		    0 ||
	    prep_op_ctx_init(&ap->x, ap->s.access, ap->plan.management, &err) != 0 ||
	    begin_journal(ap, &err) != 0)
		return prep_fail(&err);
	prep_test_point("begun");
	if (carry_out(ap, &err) != 0)
		return revert(ap, &err);
	ap->result = "applied";
	return PREP_EXIT_OK;
}

/* Under the lock: what was observed before it may be old, and is read again. */
static int observe_again(struct apply *ap, struct ds_err *err)
{
	prep_host_fini(&ap->run.host);
	return prep_host_read(ap->s.access, &ap->run.host, err);
}

static int apply_locked(struct apply *ap)
{
	struct ds_err err = { 0 };
	ap->result = "failed";
	if (observe_again(ap, &err) != 0 ||
	    prep_journals_open(ap->s.access, false, &ap->all, &err) != 0 ||
	    recover(ap, &err) != 0 || (ap->back.n_step > 0 && observe_again(ap, &err) != 0) ||
	    prep_run_plan(&ap->run, &ap->plan, &err) != 0)
		return prep_fail(&err);
	return apply_plan(ap);
}

static int usage_without_terminal(void)
{
	struct ds_err err;
	ds_err_set(&err, DS_ERR_USAGE, 0, NULL, "apply");
	ds_err_why(&err, "it asks before it changes anything, and there is no terminal to ask on");
	ds_err_fix(&err, "look at: dsprep plan; then: dsprep apply --yes");
	return prep_fail(&err);
}

static int show_plan_only(struct prep_opts *o)
{
	char name[] = "plan";
	char *argv[] = { name, NULL };
	optind = 0;
	return cmd_plan(o, 1, argv);
}

static int apply_here(struct apply *ap)
{
	struct ds_err err = { 0 };
	int rc = prep_run_begin(ap->o, &ap->run);
	if (rc != 0)
		return rc;
	rc = prep_session_begin(&ap->s, ap->o, "apply");
	if (rc == 0) {
		rc = apply_locked(ap);
		if (prep_caps_drop(&err) != 0)
			rc = prep_fail(&err);
		int out = print_result(ap);
		rc = rc != 0 ? rc : out;
	}
	if (ap->j == &ap->made)
		prep_journal_fini(&ap->made);
	prep_journals_close(&ap->all);
	prep_op_ctx_fini(&ap->x);
	prep_watch_end(&ap->watch);
	prep_plan_fini(&ap->plan);
	prep_back_fini(&ap->back);
	ds_buf_fini(&ap->report);
	prep_session_end(&ap->s);
	prep_run_end(&ap->run);
	return rc;
}

int cmd_apply(struct prep_opts *o, int argc, char **argv)
{
	enum {
		OPT_YES = 1
	};
	static const struct option own[] = { { "yes", no_argument, NULL, OPT_YES }, { 0 } };
	struct apply ap = { .o = o, .all = { .dir_fd = -1 }, .result = "failed" };
	struct ds_err err = { 0 };
	int c;
	while ((c = prep_getopt(o, argc, argv, own)) != -1) {
		if (c != OPT_YES)
			return PREP_EXIT_USAGE;
		ap.yes = true;
	}
	if (optind < argc)
		return prep_usage("apply takes no argument \"%.40s\"", argv[optind]);
	if (o->dry_run)
		return show_plan_only(o);
	if (!ap.yes && !isatty(STDIN_FILENO))
		return usage_without_terminal();
	if (prep_caps_need_root("apply", &err) != 0)
		return prep_fail(&err);
	return apply_here(&ap);
}
