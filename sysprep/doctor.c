/*
 * doctor.c - runs the table of checks, keeps their verdicts, prints them and sums them up.
 */
#include "doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

static const char *const kind_words[] = { "pass", "finding", "not-applicable", "undetermined" };
static const char *const severity_words[] = { "info", "warning", "error", "critical" };

/* An interface's name may hold control bytes; a terminal must not obey them. */
static void clean(char *s)
{
	for (; *s != '\0'; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

struct prep_verdict *prep_say(struct prep_doctor *d, const struct prep_check *check,
			      enum prep_verdict_kind kind, const char *subject, const char *fmt,
			      ...)
{
	static struct prep_verdict scratch;
	struct prep_verdict *v = &scratch;
	if (d->n == d->cap) {
		size_t cap = d->cap == 0 ? 16 : d->cap * 2;
		struct prep_verdict *more = realloc(d->verdict, cap * sizeof(*more));
		if (more != NULL) {
			d->verdict = more;
			d->cap = cap;
		}
	}
	if (d->n < d->cap)
		v = &d->verdict[d->n++];
	else
		d->nomem = true;
	*v = (struct prep_verdict){ .check = check, .kind = kind, .severity = check->severity };
	snprintf(v->subject, sizeof(v->subject), "%s", subject);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(v->summary, sizeof(v->summary), fmt, ap);
	va_end(ap);
	clean(v->subject);
	clean(v->summary);
	return v;
}

void prep_evidence(struct prep_verdict *v, const char *what, const char *from, const char *fmt, ...)
{
	if (v->n_evidence == PREP_EVIDENCE_MAX)
		return;
	int i = v->n_evidence++;
	snprintf(v->evidence[i].what, sizeof(v->evidence[i].what), "%s", what);
	snprintf(v->evidence[i].from, sizeof(v->evidence[i].from), "%s", from);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(v->evidence[i].value, sizeof(v->evidence[i].value), fmt, ap);
	va_end(ap);
	clean(v->evidence[i].what);
	clean(v->evidence[i].value);
}

int prep_doctor_run(struct prep_doctor *d, struct ds_err *err)
{
	size_t n;
	const struct prep_check *checks = prep_checks(&n);
	for (size_t i = 0; i < n; i++)
		checks[i].run(d, &checks[i]);
	int rc = d->nomem ? ENOMEM : prep_access_short(d->access);
	if (rc != 0)
		return ds_err_set(err, rc == ENOMEM ? DS_ERR_NOMEM : DS_ERR_HOST, rc, NULL,
				  "check this host");
	return 0;
}

void prep_doctor_fini(struct prep_doctor *d)
{
	free(d->verdict);
	d->verdict = NULL;
	d->n = d->cap = 0;
}

/* ----------------------------- sums ----------------------------- */

struct counts {
	unsigned int severity[4], kind[4];
	bool matters; /* an undetermined one does */
};

static struct counts count(const struct prep_doctor *d)
{
	struct counts c = { 0 };
	for (size_t i = 0; i < d->n; i++) {
		const struct prep_verdict *v = &d->verdict[i];
		c.kind[v->kind]++;
		if (v->kind == PREP_V_FINDING)
			c.severity[v->severity]++;
		if (v->kind == PREP_V_UNDETERMINED)
			c.matters |= v->check->matters;
	}
	return c;
}

int prep_doctor_exit(const struct prep_doctor *d)
{
	struct counts c = count(d);
	if (c.severity[PREP_SEV_CRITICAL] + c.severity[PREP_SEV_ERROR] > 0)
		return 2;
	if (c.matters)
		return 3;
	return c.severity[PREP_SEV_WARNING] > 0 ? 1 : 0;
}

/* How the fabric interfaces were told: all by one of the two (design.md 3.1); none: NONE. */
static enum prep_identified identified(const struct prep_doctor *d)
{
	for (uint32_t i = 0; i < d->host->n_link; i++)
		if (d->host->link[i].identified != PREP_ID_NONE)
			return d->host->link[i].identified;
	return PREP_ID_NONE;
}

/* ----------------------------- text ----------------------------- */

static void print_finding(const struct prep_verdict *v, bool color, struct ds_buf *out)
{
	static const char *const colors[] = { "\033[36m", "\033[33m", "\033[31m", "\033[1;31m" };
	ds_buf_printf(out, "%s%s%s %s, %s: %s\n", color ? colors[v->severity] : "",
		      severity_words[v->severity], color ? "\033[0m" : "", v->check->id, v->subject,
		      v->summary);
	for (int i = 0; i < v->n_evidence; i++)
		ds_buf_printf(out, "    %s = %s (%s)\n", v->evidence[i].what, v->evidence[i].value,
			      v->evidence[i].from);
	if (v->follows_from != NULL)
		ds_buf_printf(out, "    follows from: %s\n", v->follows_from);
	for (int i = 0; i < 2; i++)
		if (v->remedy[i][0] != '\0')
			ds_buf_printf(out, "    try: %s\n", v->remedy[i]);
	if (v->fixed_by_apply)
		ds_buf_puts(out, "    fixed by: sudo dsprep apply\n");
}

/* What could not be seen, on one line. */
static void print_undetermined(const struct prep_doctor *d, struct ds_buf *out)
{
	bool any = false;
	for (size_t i = 0; i < d->n; i++) {
		const struct prep_verdict *v = &d->verdict[i];
		if (v->kind != PREP_V_UNDETERMINED)
			continue;
		ds_buf_printf(out, "%s %s (%s)", any ? ";" : "undetermined:", v->check->id,
			      v->summary);
		any = true;
	}
	if (any)
		ds_buf_putc(out, '\n');
}

void prep_doctor_print(const struct prep_doctor *d, bool all, bool color, struct ds_buf *out)
{
	for (int severity = PREP_SEV_CRITICAL; severity >= PREP_SEV_INFO; severity--)
		for (size_t i = 0; i < d->n; i++)
			if (d->verdict[i].kind == PREP_V_FINDING &&
			    (int)d->verdict[i].severity == severity)
				print_finding(&d->verdict[i], color, out);
	for (size_t i = 0; all && i < d->n; i++) {
		const struct prep_verdict *v = &d->verdict[i];
		if (v->kind == PREP_V_PASS || v->kind == PREP_V_NOT_APPLICABLE)
			ds_buf_printf(out, "%s %s, %s: %s\n", kind_words[v->kind], v->check->id,
				      v->subject, v->summary);
	}
	print_undetermined(d, out);
	if (identified(d) == PREP_ID_NAME)
		ds_buf_puts(out, "fabric interfaces identified by name, not by PCI id\n");
	struct counts c = count(d);
	ds_buf_printf(
		out,
		"%u critical, %u error, %u warning, %u info; %u passed, %u not applicable, %u undetermined\n",
		c.severity[PREP_SEV_CRITICAL], c.severity[PREP_SEV_ERROR],
		c.severity[PREP_SEV_WARNING], c.severity[PREP_SEV_INFO], c.kind[PREP_V_PASS],
		c.kind[PREP_V_NOT_APPLICABLE], c.kind[PREP_V_UNDETERMINED]);
}

/* ----------------------------- JSON ----------------------------- */

static void json_verdict(struct ds_json *j, const struct prep_verdict *v)
{
	ds_json_object(j);
	ds_json_kstr(j, "id", v->check->id);
	ds_json_kstr(j, "verdict", kind_words[v->kind]);
	if (v->kind == PREP_V_FINDING)
		ds_json_kstr(j, "severity", severity_words[v->severity]);
	ds_json_kstr(j, "subject", v->subject);
	ds_json_kstr(j, "summary", v->summary);
	if (v->kind == PREP_V_UNDETERMINED) {
		ds_json_kstr(j, "why", v->summary);
		ds_json_kbool(j, "matters", v->check->matters);
	}
	ds_json_key(j, "evidence");
	ds_json_array(j);
	for (int i = 0; i < v->n_evidence; i++) {
		ds_json_object(j);
		ds_json_kstr(j, "what", v->evidence[i].what);
		ds_json_kstr(j, "value", v->evidence[i].value);
		ds_json_kstr(j, "from", v->evidence[i].from);
		ds_json_end(j);
	}
	ds_json_end(j);
	ds_json_key(j, "follows_from");
	ds_json_array(j);
	if (v->follows_from != NULL)
		ds_json_str(j, v->follows_from);
	ds_json_end(j);
	ds_json_key(j, "remedy");
	ds_json_array(j);
	for (int i = 0; i < 2; i++)
		if (v->remedy[i][0] != '\0')
			ds_json_str(j, v->remedy[i]);
	ds_json_end(j);
	ds_json_kbool(j, "fixed_by_apply", v->fixed_by_apply);
	ds_json_kstr(j, "source", v->check->source);
	ds_json_end(j);
}

void prep_doctor_json(const struct prep_doctor *d, const char *time, struct ds_buf *out)
{
	static const char *const kinds[] = { "pass", NULL, "not_applicable", "undetermined" };
	struct counts c = count(d);
	struct ds_json j;
	char node[32] = "local";
	/* A host name is personal; the node's number is all that a reader needs. */
	if (d->conf != NULL)
		snprintf(node, sizeof(node), "node%d", (int)d->conf->node);
	ds_json_init(&j, out, 2);
	ds_json_object(&j);
	ds_json_kint(&j, "format", 1);
	ds_json_kstr(&j, "node", node);
	ds_json_kstr(&j, "time", time);
	ds_json_kstr(&j, "identified_by",
		     identified(d) == PREP_ID_PCI    ? "pci"
		     : identified(d) == PREP_ID_NAME ? "name"
						     : NULL);
	if (d->refused != NULL)
		ds_json_kstr(&j, "plan_refused", d->refused);
	ds_json_key(&j, "checks");
	ds_json_array(&j);
	for (size_t i = 0; i < d->n; i++)
		json_verdict(&j, &d->verdict[i]);
	ds_json_end(&j);
	ds_json_key(&j, "summary");
	ds_json_object(&j);
	for (int i = PREP_SEV_CRITICAL; i >= PREP_SEV_INFO; i--)
		ds_json_kuint(&j, severity_words[i], c.severity[i]);
	for (int i = 0; i < 4; i++)
		if (kinds[i] != NULL)
			ds_json_kuint(&j, kinds[i], c.kind[i]);
	ds_json_end(&j);
	ds_json_kint(&j, "exit", prep_doctor_exit(d));
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
}
