/*
 * test_plan.c - golden plans: tests/golden/NAME.conf and NAME.host in, NAME.ok out, byte for byte.
 *
 * NAME.ok holds the plan as people see it, or the error object and its exit status. To accept new
 * results after reading them: GOLDEN_WRITE=1 build/tests/unit/runner plan.
 */
#include <CUnit/CUnit.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf.h"
#include "file.h"
#include "host_text.h"
#include "plan.h"

#define GOLDEN TESTS_DIR "/golden"

static int slurp(const char *name, const char *ext, struct ds_buf *out)
{
	char path[256];
	struct ds_err err;
	snprintf(path, sizeof(path), GOLDEN "/%s.%s", name, ext);
	return ds_file_read(AT_FDCWD, path, 0, 65536, out, &err);
}

static void print_error(const struct ds_err *err, struct ds_buf *out)
{
	ds_buf_printf(out, "%s\n  on %s\n  why %s\n", err->what, err->obj, err->why);
	if (err->fix[0] != '\0')
		ds_buf_printf(out, "  try %s\n", err->fix);
	ds_buf_printf(out, "exit %d\n", ds_err_exit_code(err));
}

/* The plan's text for one case. */
static void run_case(const char *name, struct ds_buf *out)
{
	struct ds_buf conf = { 0 }, host = { 0 };
	struct prep_conf c;
	struct prep_host h = { 0 };
	struct prep_plan p;
	struct ds_err err = { 0 };
	char file[128];
	snprintf(file, sizeof(file), "%s.conf", name);
	if (slurp(name, "conf", &conf) != 0 || slurp(name, "host", &host) != 0) {
		ds_buf_puts(out, "cannot read the case\n");
	} else if (tst_host_text(host.data, &h) != 0) {
		ds_buf_puts(out, "a line of the host is wrong\n");
	} else if (prep_conf_parse(file, conf.data, conf.len, &c, &err) != 0 ||
		   prep_plan_make(&c, &h, true, &p, &err) != 0) {
		print_error(&err, out);
	} else {
		prep_plan_print(&p, &h, false, out);
		prep_plan_fini(&p);
	}
	prep_host_fini(&h);
	ds_buf_fini(&conf);
	ds_buf_fini(&host);
}

static void compare(const char *name)
{
	struct ds_buf got = { 0 }, again = { 0 }, want = { 0 };
	struct ds_err err;
	run_case(name, &got);
	run_case(name, &again);
	if (getenv("GOLDEN_WRITE") != NULL) {
		char file[128];
		int fd = open(GOLDEN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		snprintf(file, sizeof(file), "%s.ok", name);
		CU_ASSERT_EQUAL(ds_file_write(fd, file, 0644, got.data, got.len, &err), 0);
	}
	CU_ASSERT(got.len == again.len && memcmp(got.data, again.data, got.len) == 0);
	if (slurp(name, "ok", &want) != 0 || got.len != want.len ||
	    memcmp(got.data, want.data, got.len) != 0) {
		printf("# %s: got\n%s# %s: want\n%s", name, got.data, name,
		       want.data != NULL ? want.data : "(no file)\n");
		CU_FAIL("a golden plan differs");
	}
	ds_buf_fini(&got);
	ds_buf_fini(&again);
	ds_buf_fini(&want);
}

static void test_golden(void)
{
	DIR *dir = opendir(GOLDEN);
	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	int n = 0;
	const struct dirent *e;
	while ((e = readdir(dir)) != NULL) {
		char name[64];
		size_t len = strlen(e->d_name);
		if (len <= 5 || len >= sizeof(name) || strcmp(e->d_name + len - 5, ".conf") != 0)
			continue;
		memcpy(name, e->d_name, len - 5);
		name[len - 5] = '\0';
		compare(name);
		n++;
	}
	closedir(dir);
	CU_ASSERT(n >= 20);
}

/* What an applied operation does to the observed host, as far as a plan can see it. */
static void apply_op(const struct prep_op *op, struct prep_host *h)
{
	for (uint32_t i = 0; i < h->n_link; i++) {
		struct prep_link *l = &h->link[i];
		if (op->ifindex != l->ifindex)
			continue;
		if (op->kind == PREP_OP_LINK_UP)
			l->flags |= IFF_UP;
		else if (op->kind == PREP_OP_LINK_MTU)
			l->mtu = (uint32_t)op->value;
		else if (op->kind == PREP_OP_SYSCTL)
			l->sysctl[op->sysctl] = (int)op->value;
	}
	if (op->kind == PREP_OP_ADDR_ADD) {
		struct prep_addr *a = &h->addr[h->n_addr++];
		*a = (struct prep_addr){ .ifindex = op->ifindex,
					 .family = op->family,
					 .prefix = op->prefix,
					 .flags = 0x80 };
		memcpy(&a->local, &op->addr, 4);
		struct prep_route *r = &h->route[h->n_route++];
		*r = (struct prep_route){
			.table = 254, .family = AF_INET, .dst_len = op->prefix, .oif = op->ifindex
		};
		memcpy(&r->dst, &op->addr, 4);
	}
	for (uint32_t i = 0; op->kind == PREP_OP_ADDR_DEL && i < h->n_addr; i++) {
		struct prep_addr *a = &h->addr[i];
		if (a->ifindex == op->ifindex && a->family == op->family &&
		    memcmp(&a->local, &op->addr, a->family == AF_INET ? 4 : 16) == 0)
			*a = h->addr[--h->n_addr];
	}
}

static void test_idempotent(void)
{
	static const char *const names[] = { "pair-fresh", "foreign-addresses", "triangle-node2",
					     "ring-node4", "switch-three" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct ds_buf conf = { 0 }, host = { 0 };
		struct prep_conf c;
		struct prep_host h;
		struct prep_plan p, second;
		struct ds_err err = { 0 };
		CU_ASSERT_EQUAL_FATAL(slurp(names[i], "conf", &conf), 0);
		CU_ASSERT_EQUAL_FATAL(slurp(names[i], "host", &host), 0);
		CU_ASSERT_EQUAL_FATAL(tst_host_text(host.data, &h), 0);
		CU_ASSERT_EQUAL_FATAL(prep_conf_parse("x", conf.data, conf.len, &c, &err), 0);
		CU_ASSERT_EQUAL_FATAL(prep_plan_make(&c, &h, true, &p, &err), 0);
		CU_ASSERT(p.n_op > 0);
		for (int k = 0; k < p.n_op; k++)
			apply_op(&p.op[k], &h);
		CU_ASSERT_EQUAL_FATAL(prep_plan_make(&c, &h, true, &second, &err), 0);
		CU_ASSERT_EQUAL(second.n_op, 0);
		CU_ASSERT_FALSE(second.changes_network);
		prep_plan_fini(&second);
		/* Only the report is missing: one operation, and none of the network. */
		CU_ASSERT_EQUAL_FATAL(prep_plan_make(&c, &h, false, &second, &err), 0);
		CU_ASSERT_EQUAL(second.n_op, 1);
		CU_ASSERT_EQUAL(second.op[0].kind, PREP_OP_HOST_REPORT);
		CU_ASSERT_FALSE(second.changes_network);
		prep_plan_fini(&second);
		prep_plan_fini(&p);
		prep_host_fini(&h);
		ds_buf_fini(&conf);
		ds_buf_fini(&host);
	}
}

/* No address of the two ends may differ: what one node calls its peer is what the peer calls itself. */
static void test_ends_agree(void)
{
	static const struct {
		const char *shape;
		int nodes;
	} shapes[] = { { "pair", 2 }, { "triangle", 3 }, { "ring", 4 }, { "switch", 16 } };
	static const char host_text[] =
		"link m0 up carrier\n"
		"link enp1s0f0np0 up carrier\nlink enP2p1s0f0np0 up carrier\n"
		"link enp1s0f1np1 up carrier\nlink enP2p1s0f1np1 up carrier\n";
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		struct prep_plan plan[17] = { 0 };
		struct prep_host h;
		CU_ASSERT_EQUAL_FATAL(tst_host_text(host_text, &h), 0);
		for (int n = 1; n <= shapes[s].nodes; n++) {
			char text[200];
			struct prep_conf c;
			struct ds_err err;
			bool one = shapes[s].nodes == 2 || shapes[s].nodes == 16;
			snprintf(text, sizeof(text),
				 "[cluster]\nshape=%s\nnodes=%d\nnode=%d\nmanagement=m0\n%s",
				 shapes[s].shape, shapes[s].nodes, n, one ? "cage = 1\n" : "");
			CU_ASSERT_EQUAL_FATAL(prep_conf_parse("x", text, strlen(text), &c, &err),
					      0);
			CU_ASSERT_EQUAL_FATAL(prep_plan_make(&c, &h, true, &plan[n], &err), 0);
		}
		int n_end = 0;
		for (int n = 1; n <= shapes[s].nodes; n++) {
			for (int i = 0; i < plan[n].n_rail; i++) {
				const struct prep_rail *r = &plan[n].rail[i];
				for (int k = 0; k < r->n_peer; k++) {
					const struct prep_plan *q = &plan[r->peer[k].node];
					bool found = false;
					for (int j = 0; j < q->n_rail; j++)
						found |= q->rail[j].addr.s_addr ==
								 r->peer[k].addr.s_addr &&
							 q->rail[j].rail == r->rail &&
							 strcmp(q->rail[j].edge, r->edge) == 0 &&
							 (shapes[s].nodes == 2 ||
							  shapes[s].nodes == 16 ||
							  q->rail[j].cage == 1 - r->cage);
					CU_ASSERT(found);
					n_end++;
				}
			}
		}
		/* Directed peers over two rails: 2 * edges * 2, and all pairs behind a switch. */
		static const int want[] = { 4, 12, 16, 2 * 16 * 15 };
		CU_ASSERT_EQUAL(n_end, want[s]);
		for (int n = 1; n <= shapes[s].nodes; n++)
			prep_plan_fini(&plan[n]);
		prep_host_fini(&h);
	}
}

static void test_overlap(void)
{
	static const struct {
		const char *a;
		unsigned int a_len;
		const char *b;
		unsigned int b_len;
		bool want;
	} cases[] = {
		{ "10.200.0.1", 24, "10.200.0.254", 32, true },
		{ "10.200.0.1", 24, "10.200.1.1", 24, false },
		{ "10.200.1.0", 24, "10.200.0.0", 16, true },
		{ "10.200.0.0", 24, "0.0.0.0", 0, true },
		{ "172.17.0.1", 16, "172.18.0.1", 16, false },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct in_addr a, b;
		inet_pton(AF_INET, cases[i].a, &a);
		inet_pton(AF_INET, cases[i].b, &b);
		CU_ASSERT_EQUAL(prep_nets_overlap(a, cases[i].a_len, b, cases[i].b_len),
				cases[i].want);
		CU_ASSERT_EQUAL(prep_nets_overlap(b, cases[i].b_len, a, cases[i].a_len),
				cases[i].want);
	}
}

static CU_TestInfo plan_tests[] = {
	{ "golden plans, byte for byte and twice the same", test_golden },
	{ "after its operations a plan is empty; a missing report is one operation",
	  test_idempotent },
	{ "both ends of every path agree on addresses, rails and cages", test_ends_agree },
	{ "networks overlap with masks applied", test_overlap },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo plan_suite = { .pName = "sysprep/plan", .pTests = plan_tests };
