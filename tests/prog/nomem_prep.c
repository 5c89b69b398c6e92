/*
 * nomem_prep.c - the read side of dsprep with every allocation failing once.
 *
 * The Nth allocation of a whole run (observe this host, parse a config, plan, check, print) fails,
 * for N = 1, 2, ... until a run needs fewer. Each run must either report the want of memory or print
 * the same bytes as without it, and must return everything it took. Reads this machine, changes
 * nothing.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "host.h"
#include "plan.h"
#include "failmalloc.h"

#ifdef FAILMALLOC_ABSENT

int main(void)
{
	puts("skip every allocation fails once: a sanitizer has its own allocator");
	return 77;
}

#else

static const char conf_text[] = "[cluster]\nnode = 1\nmanagement = m0\n";

/* A node with two rails, one of them without its address, beside whatever this machine is. */
static struct prep_link links[] = {
	{ .ifindex = 2, .name = "m0", .flags = IFF_UP, .carrier = 1, .mtu = 1500 },
	{ .ifindex = 3, .name = "enp1s0f0np0", .flags = IFF_UP, .carrier = 1, .mtu = 9000 },
	{ .ifindex = 4, .name = "enP2p1s0f0np0", .flags = IFF_UP, .carrier = 1, .mtu = 9000 },
};
static struct prep_addr addrs[] = {
	{ .ifindex = 3,
	  .family = AF_INET,
	  .prefix = 24,
	  .flags = 0x80,
	  .local.v4.s_addr = 0x0100c80a },
};

static int check_and_print(struct prep_access *a, const struct prep_host *h, struct ds_buf *out,
			   struct ds_err *err)
{
	struct prep_conf c;
	struct prep_plan p;
	if (prep_conf_parse("x", conf_text, strlen(conf_text), &c, err) != 0)
		return -1;
	prep_conf_print(&c, out);
	if (prep_plan_make(&c, h, false, &p, err) != 0)
		return -1;
	prep_plan_print(&p, h, false, out);
	prep_plan_json(&p, h, out);
	struct prep_doctor d = { .access = a, .host = h, .conf = &c, .plan = &p };
	int rc = prep_doctor_run(&d, err);
	if (rc == 0)
		prep_doctor_json(&d, "", out);
	prep_doctor_fini(&d);
	prep_plan_fini(&p);
	return rc;
}

/* Return: 0 with @out complete; -1 with @err. */
static int run(struct ds_buf *out, struct ds_err *err)
{
	struct prep_host seen, made = { .n_link = 3, .n_addr = 1, .link = links, .addr = addrs };
	struct prep_access *a = prep_access_live(NULL, err);
	if (a == NULL)
		return -1;
	int rc = prep_host_read(a, &seen, err);
	if (rc == 0) {
		for (uint32_t i = 0; i < seen.n_link; i++)
			ds_buf_printf(out, "%s %u %s\n", seen.link[i].name, seen.link[i].mtu,
				      seen.link[i].pci);
		ds_buf_printf(out, "%u addresses, %u routes, %u functions, first %d\n", seen.n_addr,
			      seen.n_route, seen.n_function, seen.initial_netns);
		prep_host_fini(&seen);
		prep_host_identify(&made);
		rc = check_and_print(a, &made, out, err);
	}
	prep_access_close(a);
	if (rc == 0 && out->failed)
		rc = ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "print");
	return rc;
}

/* Return: whether the run with the @n th allocation failing is as it should be. */
static bool one(long n, const struct ds_buf *want, bool *reached)
{
	struct ds_buf out = { 0 };
	struct ds_err err = { 0 };
	long before = fm_alive;
	fm_left = n;
	int rc = run(&out, &err);
	*reached = fm_left < 0;
	fm_left = -1;
	/* libnl reports its own want of memory in its own words. */
	bool told = err.kind == DS_ERR_NOMEM || strcasestr(err.why, "out of memory") != NULL;
	bool same = rc == 0 && out.len == want->len && memcmp(out.data, want->data, out.len) == 0;
	ds_buf_fini(&out);
	if ((rc == 0 ? same : told) && fm_alive == before)
		return true;
	printf("# allocation %ld: rc %d, %s, %ld blocks left; %s: %s\n", n, rc,
	       same ? "same output" : "other output", fm_alive - before, err.what, err.why);
	return false;
}

int main(void)
{
	struct ds_buf want = { 0 }, warm = { 0 };
	struct ds_err err = { 0 };
	/* Libraries keep something from their first use. */
	if (run(&warm, &err) != 0 || run(&want, &err) != 0) {
		printf("not ok a run without failures: %s: %s\n", err.what, err.why);
		return 1;
	}
	bool fine = true, reached = true;
	long n = 0;
	for (; reached && n < 100000; n++)
		fine &= one(n, &want, &reached);
	ds_buf_fini(&want);
	ds_buf_fini(&warm);
	printf("%s every allocation of observing, planning and checking fails once (%ld)\n",
	       fine && n > 50 && !reached ? "ok" : "not ok", n);
	return fine ? 0 : 1;
}

#endif
