/*
 * test_doctor.c - the doctor's text readers, and every check on made-up hosts: memory checks read a
 * tree of files, network checks an observed host written as text.
 */
#include <CUnit/CUnit.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"
#include "host_text.h"
#include "ktext.h"

/* ----------------------------- text readers ----------------------------- */

static void test_ktext(void)
{
	static const char mem[] =
		"MemTotal:  1 kB\nCmaTotal:        12 kB\nCmaFree: 7 MB\nCma: 3 kB";
	static const char lim[] =
		"Limit          Soft Limit  Hard Limit  Units\n"
		"Max locked memory         8388608              unlimited  bytes\n"
		"Max file locks            unlimited            unlimited  locks\n"
		"Max pending signals       99999999999999999999999 1 signals\n";
	uint64_t v = 0;
	char value[8];
	CU_ASSERT(prep_kt_meminfo(mem, strlen(mem), "CmaTotal", &v) && v == 12);
	CU_ASSERT_FALSE(prep_kt_meminfo(mem, strlen(mem), "CmaFree", &v)); /* not kB */
	CU_ASSERT_FALSE(prep_kt_meminfo(mem, strlen(mem), "CmaTot", &v));
	CU_ASSERT(prep_kt_meminfo(mem, strlen(mem), "Cma", &v) && v == 3); /* no newline */
	CU_ASSERT(prep_kt_limit(lim, strlen(lim), "Max locked memory", &v) && v == 8388608);
	CU_ASSERT(prep_kt_limit(lim, strlen(lim), "Max file locks", &v) &&
		  v == PREP_BYTES_INFINITE);
	CU_ASSERT_FALSE(prep_kt_limit(lim, strlen(lim), "Max pending signals", &v));
	CU_ASSERT_FALSE(prep_kt_limit(lim, strlen(lim), "Max cpu time", &v));
	CU_ASSERT(prep_kt_cmdline("a kho=on b kho=off\n", 19, "kho", value, sizeof(value)) &&
		  strcmp(value, "off") == 0);
	CU_ASSERT(prep_kt_cmdline("kho", 3, "kho", value, sizeof(value)) && value[0] == '\0');
	CU_ASSERT_FALSE(prep_kt_cmdline("khoo=1 xkho=1", 13, "kho", value, sizeof(value)));
	CU_ASSERT(prep_kt_cmdline("kho=123456789012", 16, "kho", value, sizeof(value)) &&
		  strcmp(value, "1234567") == 0);
	CU_ASSERT(prep_kt_kconfig("# CONFIG_A is not set\nCONFIG_B=y\n", 33, "CONFIG_B"));
	CU_ASSERT_FALSE(prep_kt_kconfig("# CONFIG_A is not set\nCONFIG_BC=y\n", 34, "CONFIG_B"));
}

static void test_unit_bytes(void)
{
	static const struct {
		const char *text;
		bool found;
		uint64_t bytes;
		const char *why;
	} cases[] = {
		{ "[Service]\nLimitMEMLOCK=infinity\n", true, PREP_BYTES_INFINITE, "infinity" },
		{ "[Service]\nLimitMEMLOCK = 8M\n", true, 8 << 20, "suffix" },
		{ "[Service]\nLimitMEMLOCK=64K:infinity\n", true, 65536, "soft:hard" },
		{ "[Service]\nLimitMEMLOCK=1\nLimitMEMLOCK=2\n", true, 2, "the last wins" },
		{ "[Unit]\nLimitMEMLOCK=1\n", false, 0, "another section" },
		{ "[Service]\n#LimitMEMLOCK=1\n", false, 0, "comment" },
		{ "[Service]\nLimitMEMLOCKX=1\n", false, 0, "another key" },
		{ "[Service]\nLimitMEMLOCK=8MB\n", false, 0, "no such unit" },
		{ "[Service]\nLimitMEMLOCK=99999999999999T\n", false, 0, "overflow" },
		{ "[Service]\nLimitMEMLOCK=\n", false, 0, "empty" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t v = 0;
		bool found = prep_kt_unit_bytes(cases[i].text, strlen(cases[i].text),
						"LimitMEMLOCK", &v);
		if (found != cases[i].found || (found && v != cases[i].bytes))
			CU_FAIL(cases[i].why);
	}
}

/* ----------------------------- memory checks ----------------------------- */

static char tree[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void tree_begin(void)
{
	strcpy(tree, "/tmp/ds-doctor-XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(tree));
}

static void tree_end(void)
{
	CU_ASSERT_EQUAL(nftw(tree, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* Puts a file, or with @text NULL a directory, and its parents into the tree. */
static void put(const char *path, const char *text)
{
	char full[200];
	snprintf(full, sizeof(full), "%s/%s", tree, path);
	for (char *p = full + strlen(tree) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
		*p = '\0';
		mkdir(full, 0755);
	}
	if (text == NULL) {
		mkdir(full, 0755);
		return;
	}
	FILE *f = fopen(full, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
}

/* The first verdict of @id; NULL = none. The doctor's facts must be set. */
static const struct prep_verdict *verdict(const struct prep_doctor *d, const char *id,
					  const char *subject)
{
	for (size_t i = 0; i < d->n; i++)
		if (strcmp(d->verdict[i].check->id, id) == 0 &&
		    (subject == NULL || strcmp(d->verdict[i].subject, subject) == 0))
			return &d->verdict[i];
	return NULL;
}

/* Runs all checks on the tree and @host_text ("" = no fabric). @d: out, prep_doctor_fini() it. */
static struct prep_host host;
static void run_tree(struct prep_doctor *d, const char *host_text)
{
	struct ds_err err;
	CU_ASSERT_EQUAL_FATAL(tst_host_text(host_text, &host), 0);
	struct prep_access *a = prep_access_tree(tree, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	*d = (struct prep_doctor){ .access = a, .host = &host };
	CU_ASSERT_EQUAL(prep_doctor_run(d, &err), 0);
	prep_access_close(a);
	d->access = NULL;
}

static void end_run(struct prep_doctor *d)
{
	prep_doctor_fini(d);
	prep_host_fini(&host);
}

#define KHO_Y "CONFIG_CMA=y\nCONFIG_KEXEC_HANDOVER=y\nCONFIG_KEXEC_HANDOVER_ENABLE_DEFAULT=y\n"
#define KHO_N \
	"CONFIG_CMA=y\nCONFIG_KEXEC_HANDOVER=y\n# CONFIG_KEXEC_HANDOVER_ENABLE_DEFAULT is not set\n"

static void test_kho(void)
{
	static const struct {
		const char *meminfo, *cmdline, *config;
		bool debugfs;
		enum prep_verdict_kind kind;
		enum prep_severity severity;
		const char *why;
	} cases[] = {
		{ "CmaTotal: 131072 kB\nCmaFree: 100 kB\n", "quiet", KHO_N, false, PREP_V_PASS, 0,
		  "healthy 6.17" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "kho=off", KHO_Y, false, PREP_V_PASS, 0,
		  "healthy 7.0 with kho=off" },
		{ "CmaTotal: 0 kB\nCmaFree: 940604 kB\n", "quiet", KHO_Y, false, PREP_V_FINDING,
		  PREP_SEV_CRITICAL, "scratch in use" },
		{ "CmaTotal: 131072 kB\nCmaFree: 9800000 kB\n", "kho=off", KHO_N, false,
		  PREP_V_FINDING, PREP_SEV_CRITICAL, "whatever the configuration says" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "quiet", KHO_Y, false, PREP_V_FINDING,
		  PREP_SEV_WARNING, "on without evidence" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "kho=on", KHO_N, false, PREP_V_FINDING,
		  PREP_SEV_WARNING, "switched on by hand" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "kho=OFF", KHO_Y, false, PREP_V_PASS, 0,
		  "the kernel takes capitals" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "kho=of", KHO_Y, false, PREP_V_PASS, 0,
		  "the kernel reads two letters of a word in o" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "kho=perhaps", KHO_N, false, PREP_V_PASS, 0,
		  "no word of the kernel's: the default stands" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "kho", KHO_Y, false, PREP_V_FINDING,
		  PREP_SEV_WARNING, "no word at all: the default stands" },
		{ "CmaTotal: 9 kB\nCmaFree: 0 kB\n", "quiet", KHO_N, true, PREP_V_FINDING,
		  PREP_SEV_WARNING, "debugfs proves it" },
		{ "CmaTotal: 0 kB\nCmaFree: 0 kB\n", "quiet", NULL, false, PREP_V_UNDETERMINED, 0,
		  "no kernel config" },
		{ "MemTotal: 1 kB\n", "quiet", "CONFIG_MMU=y\n", false, PREP_V_FINDING,
		  PREP_SEV_INFO, "kernel without CMA" },
		{ "MemTotal: 1 kB\n", "quiet", NULL, false, PREP_V_UNDETERMINED, 0,
		  "nothing known" },
		{ "MemTotal: 1 kB\n", "quiet", KHO_Y, false, PREP_V_UNDETERMINED, 0,
		  "CMA on, lines absent" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct prep_doctor d;
		tree_begin();
		put("proc/meminfo", cases[i].meminfo);
		put("proc/cmdline", cases[i].cmdline);
		put("proc/sys/kernel/osrelease", "7.0.0-test\n");
		if (cases[i].config != NULL)
			put("boot/config-7.0.0-test", cases[i].config);
		if (cases[i].debugfs)
			put("sys/kernel/debug/kho/out", NULL);
		run_tree(&d, "link m0 up");
		const struct prep_verdict *v = verdict(&d, "kho-scratch", "node");
		bool fine = v != NULL && v->kind == cases[i].kind &&
			    (v->kind != PREP_V_FINDING || v->severity == cases[i].severity);
		int want = cases[i].kind == PREP_V_UNDETERMINED	    ? 3
			   : cases[i].kind != PREP_V_FINDING	    ? 0
			   : cases[i].severity == PREP_SEV_CRITICAL ? 2
			   : cases[i].severity == PREP_SEV_WARNING  ? 1
								    : 0;
		if (!fine || prep_doctor_exit(&d) != want) {
			printf("# %s: kind %d severity %d exit %d\n", cases[i].why,
			       v != NULL ? (int)v->kind : -1, v != NULL ? (int)v->severity : -1,
			       prep_doctor_exit(&d));
			CU_FAIL("a kho-scratch case differs");
		}
		end_run(&d);
		tree_end();
	}
}

static void test_memlock(void)
{
	static const char limits[] = "Max locked memory         %s              8388608  bytes\n";
	static const struct {
		const char *path, *text; /* one more file, beside an RDMA device */
		enum prep_verdict_kind kind;
		enum prep_severity severity;
		const char *subject;
	} cases[] = {
		{ "proc/77/limits", "unlimited", PREP_V_PASS, 0, "dsengine 77" },
		{ "proc/77/limits", "8388608", PREP_V_FINDING, PREP_SEV_CRITICAL, "dsengine 77" },
		{ "proc/77/limits", "65536", PREP_V_FINDING, PREP_SEV_CRITICAL, "dsengine 77" },
		{ "proc/77/limits", "536870912", PREP_V_FINDING, PREP_SEV_WARNING, "dsengine 77" },
		{ "proc/77/limits", "1073741824", PREP_V_PASS, 0, "dsengine 77" },
		{ "proc/77/limits", "?", PREP_V_UNDETERMINED, 0, "dsengine 77" },
		{ "etc/systemd/system/dsengine.service", "[Service]\nLimitMEMLOCK=infinity\n",
		  PREP_V_PASS, 0, "dsengine.service" },
		{ "etc/systemd/system/dsengine.service.d/m.conf", "[Service]\nLimitMEMLOCK=8M\n",
		  PREP_V_FINDING, PREP_SEV_CRITICAL, "dsengine.service" },
		{ "usr/lib/systemd/system/dsengine.service", "[Service]\nUser=x\n",
		  PREP_V_UNDETERMINED, 0, "node" },
		{ "proc/uptime", "1\n", PREP_V_UNDETERMINED, 0, "node" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct prep_doctor d;
		char text[120];
		tree_begin();
		put("sys/class/infiniband/rocep1s0f0", NULL);
		bool process = strcmp(cases[i].path, "proc/77/limits") == 0;
		put("proc/1/comm", "systemd\n");
		if (process)
			put("proc/77/comm", "dsengine\n");
		snprintf(text, sizeof(text), limits, cases[i].text);
		put(cases[i].path, process ? text : cases[i].text);
		run_tree(&d, "link m0 up");
		const struct prep_verdict *v = verdict(&d, "memlock-low", NULL);
		if (v == NULL || v->kind != cases[i].kind ||
		    strcmp(v->subject, cases[i].subject) != 0 ||
		    (v->kind == PREP_V_FINDING && v->severity != cases[i].severity)) {
			printf("# case %zu: %s\n", i, v != NULL ? v->summary : "none");
			CU_FAIL("a memlock-low case differs");
		}
		end_run(&d);
		tree_end();
	}
	/* A drop-in is stronger than the unit; without an RDMA device the question does not arise. */
	struct prep_doctor d;
	tree_begin();
	put("sys/class/infiniband/rocep1s0f0", NULL);
	put("usr/lib/systemd/system/dsengine.service", "[Service]\nLimitMEMLOCK=8M\n");
	put("etc/systemd/system/dsengine.service.d/m.conf", "[Service]\nLimitMEMLOCK=infinity\n");
	run_tree(&d, "link m0 up");
	CU_ASSERT_EQUAL(verdict(&d, "memlock-low", NULL)->kind, PREP_V_PASS);
	end_run(&d);
	/* The name decides the order, whatever the directory; an equal name in /etc takes its place. */
	put("usr/lib/systemd/system/dsengine.service.d/z.conf", "[Service]\nLimitMEMLOCK=8M\n");
	run_tree(&d, "link m0 up");
	CU_ASSERT_EQUAL(verdict(&d, "memlock-low", NULL)->kind, PREP_V_FINDING);
	end_run(&d);
	put("etc/systemd/system/dsengine.service.d/z.conf", "");
	run_tree(&d, "link m0 up");
	CU_ASSERT_EQUAL(verdict(&d, "memlock-low", NULL)->kind, PREP_V_PASS);
	end_run(&d);
	tree_end();
	tree_begin();
	put("proc/77/comm", "dsengine\n");
	put("proc/77/limits", "Max locked memory  8388608 8388608 bytes\n");
	run_tree(&d, "link m0 up");
	CU_ASSERT_EQUAL(verdict(&d, "memlock-low", NULL)->kind, PREP_V_NOT_APPLICABLE);
	end_run(&d);
	tree_end();
}

/* ----------------------------- network checks ----------------------------- */

#define M0    "link m0 up carrier\naddr m0 192.168.7.2/24\n"
#define R0    "link enp1s0f0np0 up carrier mtu=9000 tuned\n"
#define R1    "link enP2p1s0f0np0 up carrier mtu=9000 tuned\n"
#define A0    "addr enp1s0f0np0 10.200.0.1/24\nroute 10.200.0.0/24 enp1s0f0np0\n"
#define A1    "addr enP2p1s0f0np0 10.200.1.1/24\nroute 10.200.1.0/24 enP2p1s0f0np0\n"
#define C1    "link enp1s0f1np1 up\nlink enP2p1s0f1np1 up\n"
#define C1C   "link enp1s0f1np1 up carrier mtu=9000\nlink enP2p1s0f1np1 up carrier mtu=9000\n"
#define AUTO  "[cluster]\nnode=1\nmanagement=m0\n"
#define CAGE0 AUTO "cage=0\n"
#define N0    "enp1s0f0np0"
#define N1    "enP2p1s0f0np0"

/* One expectation per row; "" as subject: no finding of that id at all. */
static const struct net_case {
	const char *conf, *host, *id, *subject;
	enum prep_severity severity;
	int exit;
	bool fixed;
	const char *follows, *why;
} net_cases[] = {
	/* clang-format off */
	{ CAGE0, M0 R0 R1 A0 A1, "", "", 0, 0, false, NULL, "healthy" },
	{ NULL,  M0 R0 R1 A0 A1, "", "", 0, 0, false, NULL, "healthy without a config" },
	{ AUTO,  M0 R0 R1 C1 A0 A1, "no-carrier", "", 0, 0, false, NULL, "an empty second cage is no fault" },
	{ CAGE0, M0 R0 R1 C1C A0 A1, "twin-unaddressed", "", 0, 0, false, NULL, "a second cable that the plan does not use" },
	{ NULL,  M0, "no-carrier", "", 0, 0, false, NULL, "no fabric at all" },
	{ CAGE0, M0 "link " N0 " up mtu=9000 tuned\n" R1 A0 A1, "no-carrier", N0, PREP_SEV_ERROR, 2, false, NULL, "cable out" },
	{ CAGE0, M0 "link " N0 " mtu=9000 tuned\n" R1 A0 A1, "no-carrier", N0, PREP_SEV_ERROR, 2, true, NULL, "administratively down" },
	{ CAGE0, M0 "link " N0 " mtu=9000 tuned\n" R1 A0 A1, "twin-unaddressed", N0, PREP_SEV_ERROR, 2, true, NULL, "a twin that is down" },
	{ NULL,  M0 "link " N0 " up mtu=9000\nlink " N1 " up mtu=9000\n" C1, "no-carrier", "node", PREP_SEV_INFO, 0, false, NULL, "nothing cabled, nothing asked for" },
	{ AUTO,  M0 "link " N0 " up mtu=9000\nlink " N1 " up mtu=9000\n" C1, "no-carrier", "node", PREP_SEV_ERROR, 2, false, NULL, "one finding for the node" },
	{ AUTO,  M0 "link " N0 " up mtu=9000\nlink " N1 " up mtu=9000\n" C1 A1, "no-carrier", N0, PREP_SEV_ERROR, 2, false, NULL, "the cage with addresses is meant" },
	{ CAGE0, M0 R0 R1 A0, "twin-unaddressed", N1, PREP_SEV_ERROR, 2, true, NULL, "no address" },
	{ NULL,  M0 R0 R1 A0, "twin-unaddressed", N1, PREP_SEV_ERROR, 2, false, NULL, "no address, no config" },
	{ CAGE0, M0 R0 R1 A0 A1 "addr " N1 " 10.9.9.9/24\n", "twin-unaddressed", N1, PREP_SEV_ERROR, 2, true, NULL, "two addresses" },
	{ CAGE0, M0 R0 R1 A0 "addr " N1 " 10.9.9.9/24\n", "twin-unaddressed", N1, PREP_SEV_ERROR, 2, true, NULL, "another address than planned" },
	{ CAGE0, M0 R0 R1 A0 "addr " N1 " 10.200.1.1/24\n", "twin-unaddressed", N1, PREP_SEV_ERROR, 2, true, NULL, "an address without its route" },
	{ NULL,  M0 R0 A0, "twin-unaddressed", "cage 0", PREP_SEV_ERROR, 2, false, NULL, "the twin is not there" },
	{ NULL,  M0 R0 R1 "addr " N0 " 192.168.100.10/24\naddr " N1 " 192.168.100.14/24\n", "twins-one-subnet", N0, PREP_SEV_ERROR, 2, false, NULL, "one /24 for both" },
	{ CAGE0, M0 R0 R1 "addr " N0 " 192.168.100.10/24\naddr " N1 " 192.168.0.14/16\n", "twins-one-subnet", N0, PREP_SEV_ERROR, 2, true, NULL, "masks applied" },
	{ NULL,  M0 R0 R1 "addr " N0 " 169.254.3.4/16\naddr " N1 " 169.254.5.6/16\n", "link-local-only", N1, PREP_SEV_WARNING, 2, false, NULL, "both link-local" },
	{ NULL,  M0 R0 R1 "addr " N0 " 169.254.3.4/16\naddr " N1 " 169.254.5.6/16\n", "twins-one-subnet", N0, PREP_SEV_ERROR, 2, false, "link-local-only", "and one network, which follows" },
	{ NULL,  M0 R0 R1 A0 "addr " N1 " 169.254.5.6/16\n", "link-local-only", N1, PREP_SEV_WARNING, 1, false, NULL, "one link-local: a warning" },
	{ NULL,  M0 R0 R1 A0 "addr " N1 " 10.200.0.1/24\n", "address-duplicate", N1, PREP_SEV_CRITICAL, 2, false, NULL, "one address twice" },
	{ NULL,  M0 R0 R1 A0 "addr " N1 " 10.200.0.1/24\n", "twins-one-subnet", N0, PREP_SEV_ERROR, 2, false, "address-duplicate", "which explains the other" },
	{ NULL,  M0 R0 R1 A0 A1 "link docker0 up\naddr docker0 10.200.0.1/16\n", "address-duplicate", N0, PREP_SEV_CRITICAL, 2, false, NULL, "docker0" },
	{ CAGE0, M0 R0 R1 "link docker0 up\naddr docker0 10.200.1.99/25\n", "address-duplicate", "docker0", PREP_SEV_CRITICAL, 2, false, NULL, "planned, taken" },
	{ CAGE0, M0 R0 "link " N1 " up carrier mtu=1500 tuned\n" A0 A1, "mtu-mismatch", N1, PREP_SEV_ERROR, 2, true, NULL, "not the config's" },
	{ NULL,  M0 R0 "link " N1 " up carrier mtu=1500 tuned\n" A0 A1, "mtu-mismatch", N1, PREP_SEV_ERROR, 2, false, NULL, "twins differ" },
	{ NULL,  M0 "link " N0 " up carrier\nlink " N1 " up carrier\n" A0 A1, "mtu-mismatch", "", 0, 0, false, NULL, "1500 on both, no config" },
	/* clang-format on */
};

static void net_case(const struct net_case *c)
{
	struct prep_doctor d = { 0 };
	struct prep_conf conf;
	struct prep_plan plan = { 0 };
	struct ds_err err;
	CU_ASSERT_EQUAL_FATAL(tst_host_text(c->host, &host), 0);
	struct prep_access *a = prep_access_tree(tree, &err);
	d = (struct prep_doctor){ .access = a, .host = &host };
	if (c->conf != NULL) {
		CU_ASSERT_EQUAL_FATAL(prep_conf_parse("x", c->conf, strlen(c->conf), &conf, &err),
				      0);
		d.conf = &conf;
		if (prep_plan_make(&conf, &host, true, &plan, &err) == 0)
			d.plan = &plan;
	}
	CU_ASSERT_EQUAL(prep_doctor_run(&d, &err), 0);
	const struct prep_verdict *found = NULL;
	for (size_t i = 0; i < d.n && found == NULL; i++) {
		const struct prep_verdict *v = &d.verdict[i];
		bool of_id = c->id[0] == '\0' || strcmp(v->check->id, c->id) == 0;
		bool of_subject = c->subject[0] == '\0' || strcmp(v->subject, c->subject) == 0;
		if (v->kind == PREP_V_FINDING && of_id && of_subject)
			found = v;
	}
	bool fine = c->subject[0] == '\0'
			    ? found == NULL
			    : found != NULL && found->severity == c->severity &&
				      found->fixed_by_apply == c->fixed &&
				      (c->follows == NULL ||
				       (found->follows_from != NULL &&
					strcmp(found->follows_from, c->follows) == 0)) &&
				      (found->fixed_by_apply || found->remedy[0][0] != '\0' ||
				       found->severity == PREP_SEV_INFO);
	if (!fine || prep_doctor_exit(&d) != c->exit) {
		struct ds_buf out = { 0 };
		prep_doctor_print(&d, true, false, &out);
		printf("# %s: exit %d, want %d\n%s", c->why, prep_doctor_exit(&d), c->exit,
		       out.data);
		ds_buf_fini(&out);
		CU_FAIL("a network case differs");
	}
	prep_plan_fini(&plan);
	prep_doctor_fini(&d);
	prep_host_fini(&host);
	prep_access_close(a);
}

static void test_net(void)
{
	tree_begin();
	put("proc/meminfo", "CmaTotal: 0 kB\nCmaFree: 0 kB\n");
	put("proc/cmdline", "kho=off\n");
	for (size_t i = 0; i < sizeof(net_cases) / sizeof(net_cases[0]); i++)
		net_case(&net_cases[i]);
	tree_end();
}

/* ----------------------------- output ----------------------------- */

static void test_json(void)
{
	struct prep_doctor d;
	tree_begin();
	put("proc/meminfo", "CmaTotal: 0 kB\nCmaFree: 940604 kB\n");
	run_tree(&d, M0 R0 R1 A0 "addr " N1 " 169.254.5.6/16\n");
	struct ds_buf out = { 0 };
	prep_doctor_json(&d, "2026-01-02T03:04:05Z", &out);
	json_error_t e;
	json_t *j = json_loads(out.data, 0, &e);
	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(j, "format")), 1);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(j, "exit")), 2);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(j, "time")),
			       "2026-01-02T03:04:05Z");
	const json_t *sum = json_object_get(j, "summary");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(sum, "critical")), 1);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(sum, "warning")), 1);
	const json_t *first = json_array_get(json_object_get(j, "checks"), 0);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(first, "id")), "kho-scratch");
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(first, "verdict")), "finding");
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(first, "severity")), "critical");
	const json_t *ev = json_array_get(json_object_get(first, "evidence"), 1);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(ev, "what")), "CmaFree");
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(ev, "value")), "940604 kB");
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(ev, "from")), "proc/meminfo");
	/* One entry per (id, subject), and every check of the table speaks. */
	size_t n;
	const struct prep_check *checks = prep_checks(&n);
	for (size_t i = 0; i < n; i++)
		CU_ASSERT_PTR_NOT_NULL(verdict(&d, checks[i].id, NULL));
	for (size_t i = 0; i < d.n; i++)
		CU_ASSERT_PTR_EQUAL(verdict(&d, d.verdict[i].check->id, d.verdict[i].subject),
				    &d.verdict[i]);
	json_decref(j);
	ds_buf_fini(&out);
	end_run(&d);
	tree_end();
}

static void test_masked(void)
{
	struct prep_doctor d;
	tree_begin();
	run_tree(&d, M0 R0 R1 "addr " N0
			      " 203.0.113.5/24\nlink wlan0 up\naddr wlan0 203.0.113.77/24\n");
	struct ds_buf out = { 0 };
	prep_doctor_json(&d, "", &out);
	prep_doctor_print(&d, true, false, &out);
	CU_ASSERT_PTR_NOT_NULL_FATAL(out.data);
	CU_ASSERT_PTR_NOT_NULL(strstr(out.data, "address-duplicate"));
	CU_ASSERT_PTR_NULL(strstr(out.data, "203.0.113"));
	CU_ASSERT_PTR_NULL(strchr(out.data, '\033'));
	prep_doctor_print(&d, true, true, &out);
	CU_ASSERT_PTR_NOT_NULL(strstr(out.data, "\033[1;31mcritical\033[0m address-duplicate"));
	ds_buf_fini(&out);
	end_run(&d);
	tree_end();
}

static CU_TestInfo doctor_tests[] = {
	{ "meminfo, limits, command line, kernel config", test_ktext },
	{ "sizes in unit files", test_unit_bytes },
	{ "kho-scratch: the decision table", test_kho },
	{ "memlock-low: process, unit, drop-in", test_memlock },
	{ "network checks on made-up hosts", test_net },
	{ "JSON: format, one entry per id and subject, sums", test_json },
	{ "public addresses stay out of the verdicts", test_masked },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo doctor_suite = { .pName = "sysprep/doctor", .pTests = doctor_tests };
