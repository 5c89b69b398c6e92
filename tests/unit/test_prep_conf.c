/*
 * test_prep_conf.c - dsprep.conf: values, defaults, every refusal with its place, and the round
 * trip through the printed form.
 */
#include <CUnit/CUnit.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "conf.h"

#define OK "[cluster]\nnode=1\nmanagement=m0\n"

/* clang-format off */
static const struct {
	const char *text, *obj; /* obj NULL: accepted */
	const char *why;        /* part of the message, or what the case shows */
} cases[] = {
	{ OK, NULL, "defaults are enough" },
	{ OK "shape=switch\nnodes=16\ncage=1\nsubnets=10.0.0.0/8\nmtu=1500\n[apply]\nsettle_s=1\n", NULL, "all keys" },
	{ OK "shape=triangle\n", NULL, "nodes follow the shape" },
	{ OK "shape=ring\nsubnets=10.0.0.0/21\n", NULL, "exactly enough subnets" },
	{ "", "x section [cluster]", "which node this is" },
	{ "[cluster]\nnode=1\n", "x section [cluster]", "names the management interface" },
	{ "[cluster]\nnode=3\nmanagement=m0\n", "x line 2", "but there are 2 nodes" },
	{ "[cluster]\nnode=0\nmanagement=m0\n", "x line 2", "outside 1..16" },
	{ OK "shape=star\n", "x line 4", "none of: pair, triangle, ring, switch" },
	{ OK "shape=switch\n", "x section [cluster]", "no fixed number of nodes" },
	{ OK "shape=ring\nnodes=3\n", "x line 5", "a ring has 4" },
	{ OK "nodes=17\n", "x line 4", "outside 2..16" },
	{ OK "cage=2\n", "x line 4", "none of: auto, 0, 1" },
	{ OK "cage=0\ncage=0\n", "x line 5", "line 4 already" },
	{ OK "shape=triangle\ncage=0\n", "x line 5", "uses both cages" },
	{ OK "shape=ring\nsubnets=10.0.0.0/22\n", "x line 5", "room for 4 networks of /24, a ring needs 8" },
	{ OK "subnets=10.200.0.0\n", "x line 4", "no IPv4 network" },
	{ OK "subnets=10.200.0.0/\n", "x line 4", "no IPv4 network" },
	{ OK "subnets=10.200.0.0/16x\n", "x line 4", "no IPv4 network" },
	{ OK "subnets=10.200.0.0/-1\n", "x line 4", "no IPv4 network" },
	{ OK "subnets=10.200.0/16\n", "x line 4", "no IPv4 network" },
	{ OK "subnets=fd00::/16\n", "x line 4", "no IPv4 network" },
	{ OK "subnets=10.200.0.0/24\n", "x line 4", "outside 8..23" },
	{ OK "subnets=10.200.1.0/16\n", "x line 4", "bits set behind" },
	{ OK "subnets=224.0.0.0/8\n", "x line 4", "cannot be used" },
	{ OK "subnets=127.0.0.0/8\n", "x line 4", "cannot be used" },
	{ OK "subnets=169.254.0.0/16\n", "x line 4", "cannot be used" },
	{ OK "subnets=10.0.0.0/16\nsubnets=10.1.0.0/16\n", "x line 5", "line 4 already" },
	{ OK "mtu=1279\n", "x line 4", "outside 1280..9978 bytes" },
	{ OK "mtu=9k\n", "x line 4", "not a whole number" },
	{ OK "management=m1\n", "x line 4", "line 3 already" },
	{ "[cluster]\nnode=1\nmanagement=averylonginterface\n", "x line 3", "no interface name" },
	{ "[cluster]\nnode=1\nmanagement=../x\n", "x line 3", "no interface name" },
	{ "[cluster]\nnode=1\nmanagement=..\n", "x line 3", "no interface name" },
	{ OK "[apply]\nsettle_s=0\n", "x line 5", "outside 1..120 s" },
	{ OK "[apply]\nconfirm_s=10\n", "x line 5", "unknown" },
	{ OK "[kernel]\naccept=6.17\n", "x line 5", "section [kernel] is unknown" },
	{ OK "colour=red\n", "x line 4", "unknown" },
};
/* clang-format on */

static void test_cases(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct prep_conf c = { .node = -7 };
		struct ds_err err = { 0 };
		int rc = prep_conf_parse("x", cases[i].text, strlen(cases[i].text), &c, &err);
		bool want = cases[i].obj == NULL;
		bool fine = (rc == 0) == want &&
			    (want || (strcmp(err.obj, cases[i].obj) == 0 &&
				      strstr(err.why, cases[i].why) != NULL &&
				      err.kind == DS_ERR_USAGE && c.node == -7));
		if (!fine) {
			printf("# \"%s\": rc %d, on %s: %s; expected %s\n", cases[i].text, rc,
			       err.obj, err.why, cases[i].why);
			CU_FAIL("a config case differs");
		}
	}
}

static void test_values(void)
{
	static const char text[] = OK "subnets = 172.20.8.0/23 ; ours\n[apply]\nsettle_s = 7\n";
	struct prep_conf c;
	struct ds_err err;
	CU_ASSERT_EQUAL_FATAL(prep_conf_parse("x", text, strlen(text), &c, &err), 0);
	CU_ASSERT_EQUAL(c.shape, PREP_PAIR);
	CU_ASSERT_EQUAL(c.nodes, 2);
	CU_ASSERT_EQUAL(c.node, 1);
	CU_ASSERT_EQUAL(c.cage, -1);
	CU_ASSERT_EQUAL(ntohl(c.subnets.s_addr), 0xac140800);
	CU_ASSERT_EQUAL(c.subnets_len, 23);
	CU_ASSERT_EQUAL(c.mtu, 9000);
	CU_ASSERT_EQUAL(c.settle_s, 7);
	CU_ASSERT_STRING_EQUAL(c.management, "m0");
	CU_ASSERT_EQUAL(c.line_management, 3);
	CU_ASSERT_EQUAL(c.line_subnets, 4);
	CU_ASSERT_EQUAL(c.line_cage, 0);
}

static void test_round_trip(void)
{
	static const char *const texts[] = {
		OK,
		"[cluster]\nnode=9\nnodes=12\nshape=switch\ncage=1\nmanagement=w\nmtu=1500\n",
		"[cluster]\nnode=4\nshape=ring\nsubnets=192.168.0.0/20\nmanagement=enP7s7\n",
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct prep_conf a, b;
		struct ds_err err;
		struct ds_buf text = { 0 }, again = { 0 };
		CU_ASSERT_EQUAL_FATAL(prep_conf_parse("x", texts[i], strlen(texts[i]), &a, &err),
				      0);
		prep_conf_print(&a, &text);
		CU_ASSERT_EQUAL_FATAL(prep_conf_parse("x", text.data, text.len, &b, &err), 0);
		prep_conf_print(&b, &again);
		CU_ASSERT_STRING_EQUAL(text.data, again.data);
		CU_ASSERT_EQUAL(a.nodes, b.nodes);
		CU_ASSERT_EQUAL(a.subnets.s_addr, b.subnets.s_addr);
		/* Complete: every key of the table stands in it. */
		size_t n;
		const struct ds_setting *rows = prep_conf_table(&n);
		for (size_t r = 0; r < n; r++) {
			char key[64];
			snprintf(key, sizeof(key), "\n%s = ", rows[r].key);
			CU_ASSERT_PTR_NOT_NULL(strstr(text.data, key));
		}
		ds_buf_fini(&text);
		ds_buf_fini(&again);
	}
}

static CU_TestInfo conf_tests[] = {
	{ "every refusal names its line and its bound", test_cases },
	{ "values, defaults and lines", test_values },
	{ "the printed config is complete and reads back the same", test_round_trip },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo prep_conf_suite = { .pName = "sysprep/conf", .pTests = conf_tests };
