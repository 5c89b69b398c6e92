/*
 * run.c - what plan, apply and doctor begin with: root, config, observed host; and, when there is
 * no config, the one that fits what is seen.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <string.h>

#include "cmd.h"
#include "file.h"
#include "json.h"
#include "report.h"

#define CONF_BYTES_MAX (64 * 1024)

int prep_conf_load(const struct prep_opts *o, struct prep_access *a, struct prep_conf *c,
		   struct ds_buf *text, struct ds_err *err)
{
	const char *file = o->conf != NULL ? o->conf : PREP_CONF_FILE;
	int rc = 0;
	if (o->conf != NULL)
		rc = ds_file_read(AT_FDCWD, file, 0, CONF_BYTES_MAX, text, err) == 0 ? 0 : -1;
	else if ((rc = prep_read(a, file, text)) != 0)
		ds_err_set(err, DS_ERR_HOST, rc, file, "read config");
	if (rc != 0) {
		/* A config that is not there, or is no file, is the caller's to correct: exit 64. */
		err->kind = err->sys == EACCES ? DS_ERR_PERM : DS_ERR_USAGE;
		return -1;
	}
	return prep_conf_parse(file, text->data != NULL ? text->data : "", text->len, c, err);
}

/* ----------------------------- no config ----------------------------- */

static bool subnets_free(const struct prep_host *h, struct in_addr net, unsigned int len)
{
	for (uint32_t i = 0; i < h->n_addr; i++) {
		const struct prep_link *l = prep_host_ifindex(h, h->addr[i].ifindex);
		if (h->addr[i].family == AF_INET && l != NULL && l->identified == PREP_ID_NONE &&
		    prep_nets_overlap(net, len, h->addr[i].local.v4, h->addr[i].prefix))
			return false;
	}
	for (uint32_t i = 0; i < h->n_route; i++) {
		const struct prep_route *r = &h->route[i];
		const struct prep_link *l = prep_host_ifindex(h, r->oif);
		if (r->family == AF_INET && r->dst_len >= 8 &&
		    (l == NULL || l->identified == PREP_ID_NONE) &&
		    prep_nets_overlap(net, len, r->dst, r->dst_len))
			return false;
	}
	return true;
}

void prep_conf_suggest(const struct prep_host *h, int node, struct prep_conf *c)
{
	*c = (struct prep_conf){ .shape = PREP_PAIR,
				 .nodes = 2,
				 .node = node,
				 .cage = -1,
				 .subnets_len = 16,
				 .mtu = 9000,
				 .settle_s = 20 };
	for (uint32_t second = 200; second < 255; second++) {
		c->subnets.s_addr = htonl(10u << 24 | second << 16);
		if (subnets_free(h, c->subnets, c->subnets_len))
			break;
	}
	const struct prep_link *d = prep_host_default_link(h);
	if (d != NULL && d->identified == PREP_ID_NONE)
		strcpy(c->management, d->name);
}

static void say_seen(const struct prep_host *h)
{
	static const char *const by[] = { "", "PCI id", "name" };
	bool any = false;
	for (uint32_t i = 0; i < h->n_link; i++) {
		const struct prep_link *l = &h->link[i];
		if (l->identified == PREP_ID_NONE)
			continue;
		any = true;
		fprintf(stderr, "        seen: %s, cage %d, rail %d, %s, known by %s\n", l->name,
			l->cage, l->rail,
			l->carrier > 0	  ? "carrier"
			: l->carrier == 0 ? "no carrier"
					  : "down",
			by[l->identified]);
	}
	if (!any)
		fprintf(stderr, "        seen: no fabric interface\n");
}

/* Prints the config that fits, and how to write it. */
static int no_config(const struct prep_opts *o, const struct prep_host *h)
{
	struct prep_conf c;
	struct ds_buf text = { 0 }, out = { 0 };
	struct ds_err err;
	const char *file = o->conf != NULL ? o->conf : PREP_CONF_FILE;
	prep_conf_suggest(h, 1, &c);
	prep_conf_print(&c, &text);
	ds_err_set(&err, DS_ERR_USAGE, ENOENT, file, "read config");
	ds_err_fix(&err,
		   "sudo dsprep%s%s%s%s plan --write-config --node N, N being this node's number",
		   o->conf != NULL ? " -c " : "", o->conf != NULL ? o->conf : "",
		   o->root != NULL ? " --root " : "", o->root != NULL ? o->root : "");
	int rc = prep_fail(&err);
	say_seen(h);
	if (c.management[0] == '\0')
		fprintf(stderr,
			"        no default route tells which interface is management: fill in that line\n");
	fprintf(stderr, "        it would write this:\n");
	if (o->json) {
		struct ds_json j;
		ds_json_init(&j, &out, 2);
		ds_json_object(&j);
		ds_json_kint(&j, "format", 1);
		ds_json_kstr(&j, "config_file", file);
		ds_json_kstr(&j, "config", text.data);
		ds_json_end(&j);
		ds_buf_putc(&out, '\n');
	} else {
		ds_buf_puts(&out, text.data != NULL ? text.data : "");
	}
	out.failed |= text.failed;
	ds_buf_fini(&text);
	(void)prep_out(&out);
	return rc;
}

/* ----------------------------- runs ----------------------------- */

int prep_run_begin(const struct prep_opts *o, struct prep_run *r)
{
	struct ds_err err = { 0 };
	int rc = 0;
	*r = (struct prep_run){ 0 };
	r->access = prep_access_live(o->root, &err);
	if (r->access == NULL)
		return prep_fail(&err);
	bool have = prep_conf_load(o, r->access, &r->conf, &r->conf_text, &err) == 0;
	bool absent = !have && err.sys == ENOENT;
	/* A config that is there and wrong is said before anything is looked at. */
	if ((!have && !absent) || prep_host_read(r->access, &r->host, &err) != 0)
		rc = prep_fail(&err);
	else if (absent)
		rc = no_config(o, &r->host);
	if (rc != 0)
		prep_run_end(r);
	return rc;
}

void prep_run_end(struct prep_run *r)
{
	prep_host_fini(&r->host);
	ds_buf_fini(&r->conf_text);
	prep_access_close(r->access);
	*r = (struct prep_run){ 0 };
}

int prep_run_plan(struct prep_run *r, struct prep_plan *p, struct ds_err *err)
{
	if (prep_plan_make(&r->conf, &r->host, true, p, err) != 0)
		return -1;
	/* The report names the plan's rails, so it can be judged only now. */
	if (prep_report_current(r->access, &r->conf, p, &r->host, NULL))
		return 0;
	prep_plan_fini(p);
	return prep_plan_make(&r->conf, &r->host, false, p, err);
}
