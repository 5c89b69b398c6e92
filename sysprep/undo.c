/*
 * undo.c - dsprep undo, and the walk back through a journal that apply uses too. It decides which
 * journals are due; how a single step is put back is in ops.c.
 */
#include "undo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caps.h"
#include "cmd.h"
#include "json.h"
#include "lock.h"
#include "session.h"
#include "state.h"

void prep_back_fini(struct prep_back *b)
{
	ds_buf_fini(&b->text);
	ds_buf_fini(&b->json);
}

/* ------------------------------- one step ------------------------------- */

static const char *outcome_text(const struct prep_op *op, enum prep_undone how)
{
	switch (how) {
	case PREP_UNDONE_RESTORED:
		return "undone";
	case PREP_UNDONE_ALREADY:
		return "already as before";
	case PREP_UNDONE_GONE:
		return op->kind == PREP_OP_HOST_REPORT ? "gone already" : "gone with its interface";
	case PREP_UNDONE_VOID:
		return "of another boot, forgotten by the kernel";
	case PREP_UNDONE_LEFT:
		return "LEFT, somebody else changed it";
	case PREP_UNDONE_NOT:
		break;
	}
	return "FAILED";
}

/* @why: detail of a step that was left, or the error of one that failed; NULL otherwise. */
static void tell(struct prep_back *b, const struct prep_journal *j, const struct prep_op *op,
		 enum prep_undone how, const char *why)
{
	char text[160];
	struct ds_json w;
	prep_op_text(op, text, sizeof(text));
	ds_buf_printf(&b->text, "  %s: %s%s%s%s\n", text, outcome_text(op, how),
		      why != NULL ? " (" : "", why != NULL ? why : "", why != NULL ? ")" : "");
	if (b->json.len > 0)
		ds_buf_putc(&b->json, ',');
	ds_json_init(&w, &b->json, 0);
	ds_json_object(&w);
	ds_json_kuint(&w, "id", j->id);
	ds_json_kstr(&w, "step", text);
	ds_json_kstr(&w, "interface", op->ifname[0] != '\0' ? op->ifname : NULL);
	ds_json_kstr(&w, "outcome", how == PREP_UNDONE_NOT ? "failed" : prep_undone_name(how));
	ds_json_kstr(&w, "why", why);
	ds_json_end(&w);
}

static bool same_boot(const struct prep_jseg *s, const struct prep_host *h)
{
	return strcmp(s->boot_id, h->boot_id) == 0;
}

struct walk {
	struct prep_access *a;
	const struct prep_host *h;
	struct prep_journal *j;
	struct prep_back *b;
	struct ds_err *err;
	bool failed; /* err holds the first failure */
};

static void note_failure(struct walk *w, const struct ds_err *e)
{
	if (!w->failed && w->err != NULL)
		*w->err = *e;
	w->failed = true;
}

/* Puts one step back in the kernel. Return: 0 with @how, -1. */
static int put_back(struct walk *w, unsigned int i, enum prep_undone *how, struct prep_op_state *s,
		    struct ds_err *e)
{
	const struct prep_jop *jo = &w->j->op[i];
	const struct prep_jseg *seg = &w->j->seg[jo->segment];
	if (!same_boot(seg, w->h) && jo->op.kind != PREP_OP_HOST_REPORT) {
		*how = PREP_UNDONE_VOID;
		return 0;
	}
	struct prep_op_ctx x;
	if (prep_op_ctx_init(&x, w->a, seg->management, e) != 0)
		return -1;
	x.save_fd = w->j->dir_fd;
	x.save_index = i;
	x.stale_report = !same_boot(seg, w->h);
	int rc = prep_op_undo(&x, &jo->op, how, s, e);
	prep_op_ctx_fini(&x);
	return rc;
}

/*
 * An address that comes back before the one that stood above it would take its place as primary.
 * So when restoring one failed, those below it on the interface wait for the next undo.
 */
static bool must_wait(const struct walk *w, unsigned int i)
{
	const struct prep_op *op = &w->j->op[i].op;
	for (unsigned int k = i + 1; op->kind == PREP_OP_ADDR_DEL && k < w->j->n_op; k++) {
		const struct prep_jop *above = &w->j->op[k];
		if (above->op.kind == PREP_OP_ADDR_DEL && above->undone == PREP_UNDONE_NOT &&
		    above->op.family == op->family && above->op.ifindex == op->ifindex)
			return true;
	}
	return false;
}

static void step_back(struct walk *w, unsigned int i)
{
	const struct prep_op *op = &w->j->op[i].op;
	struct prep_op_state s = { 0 };
	struct ds_err e = { 0 };
	enum prep_undone how = PREP_UNDONE_NOT;
	char line[600];
	w->b->n_step++;
	if (must_wait(w, i)) {
		tell(w->b, w->j, op, PREP_UNDONE_NOT, "it waits for the address above it");
		w->b->n_failed++;
		return;
	}
	prep_test_point("undo step");
	if (put_back(w, i, &how, &s, &e) != 0) {
		tell(w->b, w->j, op, PREP_UNDONE_NOT, ds_err_line(&e, line, sizeof(line)));
		w->b->n_failed++;
		note_failure(w, &e);
		return;
	}
	prep_test_point("undo done");
	if (prep_journal_undone(w->j, i, how, &e) != 0)
		note_failure(w, &e);
	prep_test_point("undo recorded");
	w->b->n_restored += how == PREP_UNDONE_RESTORED;
	w->b->n_left += how == PREP_UNDONE_LEFT;
	tell(w->b, w->j, op, how, how == PREP_UNDONE_LEFT ? s.detail : NULL);
}

int prep_back_refuse(const struct prep_journal *j, const struct prep_host *h, struct ds_err *err)
{
	for (unsigned int i = 0; i < j->n_seg; i++) {
		const struct prep_jseg *s = &j->seg[i];
		if (s->reverted || !same_boot(s, h) || s->netns == h->netns)
			continue;
		ds_err_set(err, DS_ERR_HOST, 0, j->path, "undo %u", j->id);
		ds_err_why(err, "it is of network namespace %llu, and this is %llu",
			   (unsigned long long)s->netns, (unsigned long long)h->netns);
		return ds_err_fix(err, "run it in that namespace (ip netns exec); if the namespace "
				       "is gone, move the journal's directory away");
	}
	return 0;
}

/* Restored addresses are checked for duplicates by the kernel, all at the same time. */
static void wait_usable(struct walk *w, unsigned int from)
{
	struct prep_op_ctx x;
	if (prep_op_ctx_init(&x, w->a, "", NULL) != 0)
		return;
	for (unsigned int i = 0; i < w->j->n_op; i++) {
		const struct prep_jop *jo = &w->j->op[i];
		if (jo->segment >= from &&
		    (jo->undone == PREP_UNDONE_RESTORED || jo->undone == PREP_UNDONE_ALREADY))
			(void)prep_op_wait_usable(&x, &jo->op, NULL);
	}
	prep_op_ctx_fini(&x);
}

int prep_back_journal(struct prep_access *a, const struct prep_host *h, struct prep_journal *j,
		      unsigned int from, struct prep_back *b, struct ds_err *err)
{
	struct walk w = { a, h, j, b, err, false };
	for (unsigned int i = j->n_op; i-- > 0;)
		if (j->op[i].segment >= from && j->op[i].undone == PREP_UNDONE_NOT)
			step_back(&w, i);
	wait_usable(&w, from);
	return w.failed ? -1 : 0;
}

int prep_back_unfinished(struct prep_access *a, const struct prep_host *h, struct prep_journal *j,
			 struct prep_back *b, struct ds_err *err)
{
	if (prep_back_refuse(j, h, err) != 0 ||
	    prep_back_journal(a, h, j, j->n_seg - 1, b, err) != 0 ||
	    prep_journal_reverted(j, err) != 0)
		return -1;
	prep_test_point("reverted");
	return j->committed == 0 ? prep_journal_closed(j, err) : 0;
}

/* ------------------------------- the command ------------------------------- */

struct undo {
	struct prep_opts *o;
	struct prep_session s;
	struct prep_host host;
	struct prep_journals all;
	struct prep_back back;
	bool every;	   /* --all */
	unsigned int id;   /* 0 = the newest */
	struct ds_buf ids; /* JSON numbers of what was undone */
};

static bool in_force(const struct prep_journal *j)
{
	return !j->closed && (prep_journal_standing(j) || prep_journal_unfinished(j));
}

static int undo_one(struct undo *u, struct prep_journal *j, struct ds_err *err)
{
	if (prep_back_refuse(j, &u->host, err) != 0)
		return -1;
	ds_buf_printf(&u->back.text, "undo of apply %u:\n", j->id);
	ds_buf_printf(&u->ids, "%s%u", u->ids.len > 0 ? ", " : "", j->id);
	if (prep_back_journal(u->s.access, &u->host, j, 0, &u->back, err) != 0)
		return -1;
	return prep_journal_closed(j, err);
}

/* `undo ID`: known, and the newest that stands. Return: 0 go on; 1 it is undone already; -1. */
static int check_id(const struct undo *u, struct ds_err *err)
{
	const struct prep_journal *found = NULL;
	char newer[128] = "";
	for (unsigned int i = 0; i < u->all.n; i++) {
		const struct prep_journal *j = &u->all.j[i];
		size_t n = strlen(newer);
		if (j->id == u->id)
			found = j;
		else if (j->id > u->id && in_force(j))
			snprintf(newer + n, sizeof(newer) - n, "%s%u", n > 0 ? ", " : "", j->id);
	}
	if (found == NULL) {
		ds_err_set(err, DS_ERR_USAGE, 0, PREP_JOURNAL_DIR, "undo %u", u->id);
		ds_err_why(err, "there is no apply of that number");
		return ds_err_fix(err, "dsprep undo takes the newest one");
	}
	if (!in_force(found))
		return 1;
	if (newer[0] == '\0')
		return 0;
	ds_err_set(err, DS_ERR_HOST, 0, found->path, "undo %u", u->id);
	ds_err_why(err, "newer applies stand on it: %s", newer);
	return ds_err_fix(err, "undo those first, or all of them: dsprep undo --all");
}

/* Undoes what is due, newest first. Return: 0, -1. */
static int undo_due(struct undo *u, struct ds_err *err)
{
	int rc = u->id != 0 ? check_id(u, err) : 0;
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	for (unsigned int i = u->all.n; i-- > 0;) {
		struct prep_journal *j = &u->all.j[i];
		if (!in_force(j) || (u->id != 0 && j->id != u->id))
			continue;
		if (undo_one(u, j, err) != 0)
			return -1;
		if (!u->every)
			break;
	}
	return 0;
}

static int print_result(struct undo *u, const char *result)
{
	struct ds_buf out = { 0 };
	struct prep_back *b = &u->back;
	if (u->o->json) {
		ds_buf_printf(&out,
			      "{\"format\": 1, \"result\": \"%s\", \"undone\": [%s], "
			      "\"restored\": %u, \"left\": %u, \"failed\": %u, \"steps\": [%s]}\n",
			      result, u->ids.len > 0 ? u->ids.data : "", b->n_restored, b->n_left,
			      b->n_failed, b->json.len > 0 ? b->json.data : "");
	} else if (!u->o->quiet || b->n_left > 0) {
		if (b->text.len > 0)
			ds_buf_put(&out, b->text.data, b->text.len);
		if (u->ids.len == 0)
			ds_buf_puts(&out, "nothing to undo\n");
		else
			ds_buf_printf(&out, "%u steps: %u put back, %u left, %u failed\n",
				      b->n_step, b->n_restored, b->n_left, b->n_failed);
	}
	out.failed |= b->text.failed || b->json.failed || u->ids.failed;
	return prep_out(&out);
}

/* Everything under the lock. Return: exit status. */
static int undo_locked(struct undo *u)
{
	struct ds_err err = { 0 };
	if (prep_journals_open(u->s.access, false, &u->all, &err) != 0)
		return prep_fail(&err);
	int rc = prep_host_read(u->s.access, &u->host, &err);
	if (rc == 0)
		rc = undo_due(u, &err);
	prep_journals_close(&u->all);
	prep_host_fini(&u->host);
	struct ds_err drop = { 0 };
	if (prep_caps_drop(&drop) != 0)
		return prep_fail(&drop);
	int code = rc != 0 ? prep_fail(&err) : u->back.n_left > 0 ? PREP_EXIT_FAILED : PREP_EXIT_OK;
	const char *result = rc != 0		  ? "failed"
			     : u->ids.len == 0	  ? "nothing"
			     : u->back.n_left > 0 ? "left"
						  : "undone";
	int out = print_result(u, result);
	return code != 0 ? code : out;
}

static int parse_id(const char *text, unsigned int *id)
{
	char *end;
	errno = 0;
	unsigned long v = strtoul(text, &end, 10);
	if (text[0] < '1' || text[0] > '9' || *end != '\0' || errno != 0 || v > PREP_JOURNAL_ID_MAX)
		return prep_usage("\"%.40s\" is no number of an apply", text);
	*id = (unsigned int)v;
	return 0;
}

int cmd_undo(struct prep_opts *o, int argc, char **argv)
{
	enum {
		OPT_ALL = 1
	};
	static const struct option own[] = { { "all", no_argument, NULL, OPT_ALL }, { 0 } };
	struct undo u = { .o = o };
	int c;
	while ((c = prep_getopt(o, argc, argv, own)) != -1) {
		if (c != OPT_ALL)
			return PREP_EXIT_USAGE;
		u.every = true;
	}
	if (optind < argc && parse_id(argv[optind++], &u.id) != 0)
		return PREP_EXIT_USAGE;
	if (optind < argc)
		return prep_usage("undo takes one number, not also \"%.40s\"", argv[optind]);
	if (u.every && u.id != 0)
		return prep_usage("undo takes a number or --all, not both");
	if (o->dry_run)
		return prep_usage("-n is for apply; undo has no plan to show");
	int rc = prep_session_begin(&u.s, o, "undo");
	if (rc == 0)
		rc = undo_locked(&u);
	prep_session_end(&u.s);
	prep_back_fini(&u.back);
	ds_buf_fini(&u.ids);
	return rc;
}
