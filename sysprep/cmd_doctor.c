/*
 * cmd_doctor.c - dsprep doctor and dsprep explain: gather the facts, run the checks, print. Changes
 * nothing and needs no privilege.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmd.h"
#include "doctor.h"
#include "json.h"

/* A config is welcome, not needed: its absence is fine unless it was named on the command line. */
static int take_config(const struct prep_opts *o, struct prep_run *r, bool *have,
		       struct ds_err *err)
{
	*have = prep_conf_load(o, r->access, &r->conf, &r->conf_text, err) == 0;
	if (*have || (o->conf == NULL && err->sys == ENOENT))
		return 0;
	return -1;
}

static int report(const struct prep_opts *o, const struct prep_doctor *d)
{
	struct ds_buf out = { 0 };
	if (o->json) {
		char text[32];
		time_t now = time(NULL);
		struct tm tm;
		gmtime_r(&now, &tm);
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
		prep_doctor_json(d, text, &out);
	} else {
		prep_doctor_print(d, o->verbose, o->color, &out);
	}
	int rc = prep_out(&out);
	return rc != 0 ? rc : prep_doctor_exit(d);
}

static int examine(const struct prep_opts *o, struct prep_run *r)
{
	struct ds_err err = { 0 };
	bool have_conf = false;
	if (take_config(o, r, &have_conf, &err) != 0 ||
	    prep_host_read(r->access, &r->host, &err) != 0)
		return prep_fail(&err);
	struct prep_plan plan = { 0 };
	char refused[900] = "";
	/* A config that does not fit the host is plan's to refuse; here it is said, and we go on. */
	bool planned = have_conf && prep_run_plan(r, &plan, &err) == 0;
	if (have_conf && !planned) {
		ds_err_line(&err, refused, sizeof(refused));
		ds_err_print(stderr, "dsprep", &err);
	}
	struct prep_doctor d = { .access = r->access,
				 .host = &r->host,
				 .conf = have_conf ? &r->conf : NULL,
				 .plan = planned ? &plan : NULL,
				 .refused = refused[0] != '\0' ? refused : NULL };
	int rc = prep_doctor_run(&d, &err) == 0 ? report(o, &d) : prep_fail(&err);
	prep_doctor_fini(&d);
	prep_plan_fini(&plan);
	return rc;
}

static int only_globals(struct prep_opts *o, int argc, char **argv)
{
	static const struct option none[] = { { 0 } };
	return prep_getopt(o, argc, argv, none) == -1 ? 0 : -1;
}

int cmd_doctor(struct prep_opts *o, int argc, char **argv)
{
	struct prep_run r = { 0 };
	struct ds_err err = { 0 };
	if (only_globals(o, argc, argv) != 0)
		return PREP_EXIT_USAGE;
	if (optind < argc)
		return prep_usage("doctor takes no argument \"%.40s\"", argv[optind]);
	r.access = prep_access_live(o->root, &err);
	if (r.access == NULL)
		return prep_fail(&err);
	int rc = examine(o, &r);
	prep_run_end(&r);
	return rc;
}

/* ----------------------------- explain ----------------------------- */

static void explain_json(const struct prep_check *c, const char *severity, struct ds_buf *out)
{
	struct ds_json j;
	ds_json_init(&j, out, 2);
	ds_json_object(&j);
	ds_json_kint(&j, "format", 1);
	ds_json_kstr(&j, "id", c->id);
	ds_json_kstr(&j, "severity", severity);
	ds_json_kstr(&j, "meaning", c->meaning);
	ds_json_kstr(&j, "cure", c->cure);
	ds_json_key(&j, "reads");
	ds_json_array(&j);
	for (size_t i = 0; c->reads[i] != NULL; i++)
		ds_json_str(&j, c->reads[i]);
	ds_json_end(&j);
	ds_json_kbool(&j, "matters", c->matters);
	ds_json_kstr(&j, "source", c->source);
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
}

static int explain(const struct prep_opts *o, const struct prep_check *c)
{
	static const char *const words[] = { "info", "warning", "error", "critical" };
	struct ds_buf out = { 0 };
	if (o->json) {
		explain_json(c, words[c->severity], &out);
		return prep_out(&out);
	}
	ds_buf_printf(&out, "%s (%s)\n%s\n%s\nreads:", c->id, words[c->severity], c->meaning,
		      c->cure);
	for (size_t i = 0; c->reads[i] != NULL; i++)
		ds_buf_printf(&out, "%s %s", i > 0 ? "," : "", c->reads[i]);
	ds_buf_printf(&out, "\nundetermined %s\nsource: %s\n",
		      c->matters ? "matters: the exit status is then 3"
				 : "does not matter to the exit status",
		      c->source);
	return prep_out(&out);
}

int cmd_explain(struct prep_opts *o, int argc, char **argv)
{
	size_t n;
	const struct prep_check *checks = prep_checks(&n);
	if (only_globals(o, argc, argv) != 0)
		return PREP_EXIT_USAGE;
	if (optind + 1 != argc)
		return prep_usage("explain takes one check id");
	for (size_t i = 0; i < n; i++)
		if (strcmp(argv[optind], checks[i].id) == 0)
			return explain(o, &checks[i]);
	struct ds_buf ids = { 0 };
	for (size_t i = 0; i < n; i++)
		ds_buf_printf(&ids, "%s%s", i > 0 ? ", " : "", checks[i].id);
	int rc = prep_usage("\"%.40s\" is no check; there are %s", argv[optind],
			    ids.data != NULL ? ids.data : "none");
	ds_buf_fini(&ids);
	return rc;
}
