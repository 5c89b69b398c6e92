/*
 * test_settings.c - settings of serve: file, options over it, and what must hold between them.
 */
#include <CUnit/CUnit.h>
#include <string.h>

#include "settings.h"
#include "kernels.h"

#define ARGV_MAX 12

/* Options and file to settings; @argv is NULL-terminated, without the command's name. */
static int load(const char *const *argv, const char *text, struct eng_settings *s,
		struct ds_err *err)
{
	char *av[ARGV_MAX + 1] = { "serve" };
	int ac = 1;
	struct eng_options o;
	for (; argv != NULL && *argv != NULL && ac < ARGV_MAX; argv++)
		av[ac++] = (char *)*argv;
	ds_err_clear(err);
	if (eng_options_parse(ac, av, &o, err) != 0)
		return -1;
	return eng_settings_load("f.conf", text, text != NULL ? strlen(text) : 0, &o, s, err);
}

static void test_defaults(void)
{
	struct eng_settings s;
	struct ds_err err;
	CU_ASSERT_EQUAL_FATAL(load((const char *[]){ "-m", "/m", NULL }, NULL, &s, &err), 0);
	CU_ASSERT_STRING_EQUAL(s.model, "/m");
	CU_ASSERT_STRING_EQUAL(s.host, "127.0.0.1");
	CU_ASSERT_STRING_EQUAL(s.secret_file, "/etc/dsengine/secret");
	CU_ASSERT_EQUAL(s.port, 8000);
	CU_ASSERT_EQUAL(s.world, 1);
	CU_ASSERT_EQUAL(s.rank, 0);
	CU_ASSERT_EQUAL(s.numerics, KERN_NATIVE);
	CU_ASSERT_FALSE(s.insecure_no_auth);
}

static void test_file_and_options(void)
{
	static const char text[] = "[engine]\n"
				   "model = /file ; comment\n"
				   "numerics = exact\n"
				   "port = 8001\n"
				   "world = 2\n"
				   "rank.0 = 10.200.0.1\n"
				   "rank.1 = 10.200.0.2:9001\n";
	static const char *const argv[] = { "--port=8002",     "--rank", "1",
					    "--max-model-len", "512",	 NULL };
	struct eng_settings s;
	struct ds_err err;
	CU_ASSERT_EQUAL_FATAL(load(argv, text, &s, &err), 0);
	CU_ASSERT_STRING_EQUAL(s.model, "/file");
	CU_ASSERT_EQUAL(s.port, 8002);
	CU_ASSERT_EQUAL(s.rank, 1);
	CU_ASSERT_EQUAL(s.context, 512);
	CU_ASSERT_EQUAL(s.numerics, KERN_EXACT);
	CU_ASSERT_STRING_EQUAL(s.addr[0], "10.200.0.1:8700");
	CU_ASSERT_STRING_EQUAL(s.addr[1], "10.200.0.2:9001");
}

#define M "[engine]\nmodel = /m\n"

static const struct bad_case {
	const char *argv[6], *text, *obj, *why;
} bad_cases[] = {
	{ { "--draft", "on" }, M, "--draft", "no such option" },
	{ { "--spawn", "2" }, M, "--spawn", "no such option" },
	{ { "-x" }, M, "-x", "no such option" },
	{ { "--por", "1" }, M, "--por", "no such option" },
	{ { "--port" }, M, "--port", "needs a value" },
	{ { "--port=" }, M, "--port", "needs a value" },
	{ { "--insecure-no-auth=1" }, M, "--insecure-no-auth=1", "takes no value" },
	{ { "--port", "0" }, M, "--port", "port = 0 is outside 1..65535" },
	{ { "--port", "80a" }, M, "--port", "\"80a\" is not a whole number" },
	{ { "--numerics", "fast" }, M, "--numerics", "none of: native, exact" },
	{ { NULL }, "", "model", "no model directory" },
	{ { NULL }, M "prot = 1\n", "f.conf line 3", "key \"prot\" is unknown" },
	{ { NULL }, M "model = /n\n", "f.conf line 3", "given on line 2 already" },
	{ { NULL }, M "port =\n", "f.conf line 3", "has no value" },
	{ { NULL }, M "rank.2 = h\n", "f.conf line 3", "numbered from 0 to 1" },
	{ { NULL }, M "rank.x = h\n", "f.conf line 3", "numbered from 0 to 1" },
	{ { NULL }, M "rank.0 = :1\n", "f.conf line 3", "no HOST" },
	{ { NULL }, M "rank.0 = h:0\n", "f.conf line 3", "outside 1..65535" },
	{ { NULL }, M "rank.0 = a\nrank.0 = b\n", "f.conf line 4", "given already" },
	{ { NULL }, M "world = 3\n", "f.conf line 3", "outside 1..2" },
	{ { NULL }, M "world = 2\nrank.0 = a\n", "rank.1", "needs its address" },
	{ { "--rank", "1" }, M, "rank", "not below the world" },
	{ { "--host", "localhost" }, M, "host", "not a numeric" },
	{ { "--host", "0.0.0.0" }, M, "host", "open to the network" },
	{ { "--host", "192.168.1.5" }, M, "host", "open to the network" },
	{ { "--host=::" }, M, "host", "open to the network" },
};

static void test_bad(void)
{
	for (size_t i = 0; i < sizeof(bad_cases) / sizeof(bad_cases[0]); i++) {
		const struct bad_case *c = &bad_cases[i];
		struct eng_settings s;
		struct ds_err err;
		int rc = load(c->argv, c->text, &s, &err);
		bool ok = rc == -1 && err.kind == DS_ERR_USAGE && strstr(err.obj, c->obj) != NULL &&
			  strstr(err.why, c->why) != NULL;
		if (!ok)
			printf("row %zu: got %d, %s: %s; wanted %s: %s\n", i, rc, err.obj, err.why,
			       c->obj, c->why);
		CU_ASSERT_TRUE(ok);
	}
}

static void test_open_address(void)
{
	struct eng_settings s;
	struct ds_err err;
	static const char *const with_key[] = { "--host", "0.0.0.0", "--api-key-file", "k", NULL };
	static const char *const insecure[] = { "--host", "0.0.0.0", "--insecure-no-auth", NULL };
	static const char *const loop6[] = { "--host", "::1", NULL };
	CU_ASSERT_EQUAL(load(with_key, M, &s, &err), 0);
	CU_ASSERT_EQUAL(load(insecure, M, &s, &err), 0);
	CU_ASSERT_EQUAL(load(loop6, M, &s, &err), 0);
	CU_ASSERT_TRUE(eng_host_is_loopback("127.8.0.1"));
	CU_ASSERT_FALSE(eng_host_is_loopback("10.0.0.1"));
	CU_ASSERT_FALSE(eng_host_is_loopback("::ffff:10.0.0.1"));
}

static CU_TestInfo conf_tests[] = {
	{ "defaults bind to loopback and world 1", test_defaults },
	{ "options override the file, aliases name the same rows", test_file_and_options },
	{ "mistakes name file and line, or the option", test_bad },
	{ "an open address needs keys or an explicit word", test_open_address },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo settings_suite = { .pName = "engine/settings", .pTests = conf_tests };
