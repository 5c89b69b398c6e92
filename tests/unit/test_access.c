/*
 * test_access.c - the accessor stays inside its root, opens regular files only and tells what is
 * not there from what it may not see.
 */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access.h"

static char top[64]; /* top/root is the root, top/secret stands outside */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void put(const char *path, const char *text, size_t len)
{
	char full[256];
	snprintf(full, sizeof(full), "%s/%s", top, path);
	FILE *f = fopen(full, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(text, 1, len, f), len);
	fclose(f);
}

static void point(const char *target, const char *path)
{
	char full[256];
	snprintf(full, sizeof(full), "%s/%s", top, path);
	CU_ASSERT_EQUAL(symlink(target, full), 0);
}

static void make_tree(void)
{
	static const char *const dirs[] = { "root",	    "root/etc",	 "root/etc/conf.d",
					    "root/usr",	    "root/proc", "root/proc/self",
					    "root/usr/lib", "root/boot" };
	static char big[1024 * 1024 + 1];
	strcpy(top, "/tmp/ds-access-XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(top));
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		char full[256];
		snprintf(full, sizeof(full), "%s/%s", top, dirs[i]);
		CU_ASSERT_EQUAL(mkdir(full, 0755), 0);
	}
	put("secret", "secret\n", 7);
	put("root/etc/plain", "one\ntwo\n", 8);
	put("root/etc/empty", "", 0);
	put("root/usr/lib/file", "inside\n", 7);
	put("root/boot/most", big, sizeof(big) - 1);
	put("root/boot/more", big, sizeof(big));
	put("root/etc/conf.d/b", "", 0);
	put("root/etc/conf.d/a", "", 0);
	put("root/proc/version", "recorded\n", 9);
	point("usr/lib", "root/lib");
	point("/usr/lib/file", "root/etc/absolute");
	point("../../secret", "root/etc/climbs");
	point("/secret", "root/etc/leaves");
	point("loop", "root/etc/loop");
	char full[256];
	snprintf(full, sizeof(full), "%s/root/etc/fifo", top);
	CU_ASSERT_EQUAL(mkfifo(full, 0644), 0);
}

static void test_reading(void)
{
	static const struct {
		const char *path;
		int rc;
		const char *line;
	} cases[] = {
		{ "/etc/plain", 0, "one" },	  { "/etc/empty", 0, "" },
		{ "/lib/file", 0, "inside" },	  /* a relative link inside */
		{ "/etc/absolute", 0, "inside" }, /* an absolute one counts from the root */
		{ "/etc/climbs", ENOENT, "" },	  /* .. ends at the root */
		{ "/etc/leaves", ENOENT, "" },	  { "/etc/../../secret", ENOENT, "" },
		{ "/etc/loop", ELOOP, "" },	  { "/etc/fifo", EINVAL, "" },
		{ "/etc/conf.d", EISDIR, "" },	  { "/etc/none", ENOENT, "" },
		{ "/etc/plain/x", ENOTDIR, "" },  { "/boot/more", EFBIG, "" },
	};
	char root[96], line[32];
	struct ds_err err;
	struct ds_buf b = { 0 };
	make_tree();
	snprintf(root, sizeof(root), "%s/root", top);
	struct prep_access *a = prep_access_live(root, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int rc = prep_read_line(a, cases[i].path, line, sizeof(line));
		if (rc != cases[i].rc || strcmp(line, cases[i].line) != 0) {
			printf("# %s: %d \"%s\"\n", cases[i].path, rc, line);
			CU_FAIL("a path reads otherwise");
		}
	}
	CU_ASSERT_EQUAL(prep_read(a, "/boot/most", &b), 0);
	CU_ASSERT_EQUAL(b.len, 1024 * 1024);
	CU_ASSERT_EQUAL(prep_read_line(a, "/etc/plain", line, 3), 0);
	CU_ASSERT_STRING_EQUAL(line, "on"); /* cut to fit */
	CU_ASSERT_FALSE(prep_root_is_live(a));
	/* /proc is not below the root, unless everything is. */
	CU_ASSERT_EQUAL(prep_read_line(a, "/proc/version", line, sizeof(line)), 0);
	CU_ASSERT_STRING_NOT_EQUAL(line, "recorded");
	CU_ASSERT_EQUAL(prep_access_short(a), 0);
	prep_access_close(a);
	a = prep_access_tree(root, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(prep_read_line(a, "/proc/version", line, sizeof(line)), 0);
	CU_ASSERT_STRING_EQUAL(line, "recorded");
	prep_access_close(a);
	ds_buf_fini(&b);
	CU_ASSERT_EQUAL(nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

struct names {
	char text[64];
	int stop_at;
};

static int take_name(const char *name, void *arg)
{
	struct names *n = arg;
	strcat(n->text, name);
	strcat(n->text, " ");
	return n->stop_at > 0 && --n->stop_at == 0 ? -5 : 0;
}

static void test_listing(void)
{
	char root[96], target[32];
	struct ds_err err;
	struct names n = { 0 };
	make_tree();
	snprintf(root, sizeof(root), "%s/root", top);
	struct prep_access *a = prep_access_live(root, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(prep_list(a, "/etc/conf.d", take_name, &n), 0);
	CU_ASSERT_STRING_EQUAL(n.text, "a b ");
	n = (struct names){ .stop_at = 1 };
	CU_ASSERT_EQUAL(prep_list(a, "/etc/conf.d", take_name, &n), -5);
	CU_ASSERT_STRING_EQUAL(n.text, "a ");
	CU_ASSERT_EQUAL(prep_list(a, "/etc/none", take_name, &n), ENOENT);
	CU_ASSERT_EQUAL(prep_list(a, "/etc/plain", take_name, &n), ENOTDIR);
	CU_ASSERT_EQUAL(prep_link_target(a, "/etc/climbs", target, sizeof(target)), 0);
	CU_ASSERT_STRING_EQUAL(target, "../../secret");
	CU_ASSERT_EQUAL(prep_link_target(a, "/etc/plain", target, sizeof(target)), EINVAL);
	CU_ASSERT_EQUAL(prep_link_target(a, "/etc/none", target, sizeof(target)), ENOENT);
	CU_ASSERT_EQUAL(prep_link_target(a, "/proc/self/ns/net", target, sizeof(target)), 0);
	CU_ASSERT_EQUAL(strncmp(target, "net:[", 5), 0);
	prep_access_close(a);
	CU_ASSERT_EQUAL(nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
	CU_ASSERT_PTR_NULL(prep_access_live(root, &err)); /* gone */
	CU_ASSERT_EQUAL(err.kind, DS_ERR_USAGE);
	CU_ASSERT_STRING_EQUAL(err.obj, root);
}

static CU_TestInfo access_tests[] = {
	{ "reading stays inside the root and takes regular files only", test_reading },
	{ "listing is sorted; links tell their targets", test_listing },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo access_suite = { .pName = "sysprep/access", .pTests = access_tests };
