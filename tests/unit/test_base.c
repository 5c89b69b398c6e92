/*
 * test_base.c - the shared base: errors, buffers, JSON writer, config reader, files, CRC.
 */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "err.h"
#include "file.h"
#include "ini.h"
#include "json.h"

static void test_err(void)
{
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL(
		ds_err_set(&err, DS_ERR_HOST, EINVAL, "enp1s0f0np0", "set link mtu %d", 9000), -1);
	ds_err_fix(&err, "compare maxmtu in: ip -d link show %s", "enp1s0f0np0");
	char line[900];
	CU_ASSERT_STRING_EQUAL(
		ds_err_line(&err, line, sizeof(line)),
		"set link mtu 9000 on enp1s0f0np0: Invalid argument; try: compare maxmtu in: ip -d link show enp1s0f0np0");
	ds_err_context(&err, "node %d", 2);
	CU_ASSERT_STRING_EQUAL(err.what, "node 2: set link mtu 9000");
	char path[400];
	memset(path, 'x', sizeof(path));
	strcpy(path + sizeof(path) - 10, "/tail.bin");
	ds_err_set(&err, DS_ERR_INPUT, 0, path, "read");
	CU_ASSERT_EQUAL(strlen(err.obj), sizeof(err.obj) - 1);
	CU_ASSERT_STRING_EQUAL(err.obj + strlen(err.obj) - 9, "/tail.bin");
	CU_ASSERT_EQUAL(strncmp(err.obj, "...x", 4), 0);
	CU_ASSERT_EQUAL(ds_err_set(NULL, DS_ERR_BUG, 0, NULL, "x"), -1);
}

static void test_json(void)
{
	struct ds_buf b = { 0 };
	struct ds_json j;
	ds_json_init(&j, &b, 0);
	ds_json_object(&j);
	ds_json_kstr(&j, "a", "q\"\\\n\t\x01\xc3\xa4\xff");
	ds_json_key(&j, "list");
	ds_json_array(&j);
	ds_json_int(&j, -5);
	ds_json_num(&j, 0.5, 6);
	ds_json_bool(&j, true);
	ds_json_str(&j, NULL);
	ds_json_object(&j);
	ds_json_end(&j);
	ds_json_end(&j);
	ds_json_kuint(&j, "u", UINT64_MAX);
	ds_json_end(&j);
	CU_ASSERT_STRING_EQUAL(
		b.data,
		"{\"a\": \"q\\\"\\\\\\n\\t\\u0001\xc3\xa4\xef\xbf\xbd\", \"list\": [-5, 0.5, true, null, {}], \"u\": 18446744073709551615}");
	ds_buf_fini(&b);
}

static void test_utf8(void)
{
	static const struct {
		const char *s;
		size_t len;
		int want;
		const char *why;
	} cases[] = {
		{ "a", 1, 1, "ASCII" },
		{ "\xc3\xa4", 2, 2, "two bytes" },
		{ "\xf0\x9f\x99\x82", 4, 4, "four bytes" },
		{ "\xf0\x9f\x99", 3, -1, "cut off" },
		{ "\xc0\x80", 2, 0, "overlong" },
		{ "\xed\xa0\x80", 3, 0, "surrogate" },
		{ "\xf4\x90\x80\x80", 4, 0, "above U+10FFFF" },
		{ "\x80", 1, 0, "stray continuation" },
		{ "\xe2\x28", 2, 0, "wrong second byte" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (ds_utf8_len(cases[i].s, cases[i].len) != cases[i].want)
			CU_FAIL(cases[i].why);
}

struct conf {
	int64_t mtu;
	bool on;
	char name[8];
	int shape;
};
static const char *const shapes[] = { "pair", "ring", NULL };
static const struct ds_setting rows[] = {
	{ "net", "mtu", DS_SET_INT, "bytes", "9000", 68, 65535, NULL, offsetof(struct conf, mtu), 0,
	  NULL, "MTU" },
	{ "net", "on", DS_SET_BOOL, "", "yes", 0, 0, NULL, offsetof(struct conf, on), 0, NULL,
	  "on" },
	{ "net", "name", DS_SET_STR, "", NULL, 0, 0, NULL, offsetof(struct conf, name), 8, NULL,
	  "name" },
	{ "net", "shape", DS_SET_ENUM, "", "pair", 0, 0, shapes, offsetof(struct conf, shape), 0,
	  NULL, "shape" },
};

static void test_settings(void)
{
	static const struct {
		const char *text;
		size_t len;
		int rc;
		const char *want;
		const char *why;
	} cases[] = {
		{ "[net]\nmtu = 1500 ; comment\nname=a;b\nshape = ring\non = no\n", 0, 0, NULL,
		  "plain" },
		{ "", 0, 0, NULL, "empty is defaults" },
		{ "[net]\nmtu = 9k\n", 0, -1, "x.conf line 2", "suffix" },
		{ "[net]\nmtu = 67\n", 0, -1, "x.conf line 2", "too small" },
		{ "[net]\nmtu =\n", 0, -1, "x.conf line 2", "empty value" },
		{ "[net]\nmtu = 99999999999999999999\n", 0, -1, "x.conf line 2", "overflow" },
		{ "mtu = 9000\n", 0, -1, "x.conf line 1", "before a section" },
		{ "[net]\n\nmtu = 1500\nmtu = 1500\n", 0, -1, "x.conf line 4", "twice" },
		{ "[net]\nmtuu = 1500\n", 0, -1, "x.conf line 2", "unknown key" },
		{ "[nat]\nmtu = 1500\n", 0, -1, "x.conf line 2", "unknown section" },
		{ "[net\n", 0, -1, "x.conf line 1", "open header" },
		{ "[net]\nmtu\n", 0, -1, "x.conf line 2", "no equals" },
		{ "[net]\nname = toolongname\n", 0, -1, "x.conf line 2", "long string" },
		{ "[net]\nm\0u = 1\n", 13, -1, "x.conf line 2", "NUL" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct conf c = { 0 };
		struct ds_err err = { 0 };
		size_t len = cases[i].len != 0 ? cases[i].len : strlen(cases[i].text);
		int rc = ds_settings_load(rows, 4, &c, "x.conf", cases[i].text, len, NULL, &err);
		if (rc != cases[i].rc ||
		    (cases[i].want != NULL && strcmp(err.obj, cases[i].want) != 0))
			CU_FAIL(cases[i].why);
		if (rc == 0 && i == 0) {
			CU_ASSERT_EQUAL(c.mtu, 1500);
			CU_ASSERT_STRING_EQUAL(c.name, "a;b");
			CU_ASSERT_EQUAL(c.shape, 1);
			CU_ASSERT_FALSE(c.on);
		}
		if (rc == 0 && i == 1)
			CU_ASSERT_EQUAL(c.mtu, 9000);
		if (i == 8)
			CU_ASSERT_STRING_EQUAL(err.fix, "did you mean \"mtu\"?");
	}
}

static void test_files(void)
{
	char dir[] = "/tmp/ds-base-XXXXXX";
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ds_err err = { 0 };
	struct ds_buf b = { 0 };
	CU_ASSERT_EQUAL(ds_file_write(fd, "a", 0640, "one", 3, &err), 0);
	CU_ASSERT_EQUAL(fchmodat(fd, "a", 0604, 0), 0);
	CU_ASSERT_EQUAL(ds_file_write(fd, "a", 0640, "two!", 4, &err), 0);
	struct stat st;
	CU_ASSERT_EQUAL(fstatat(fd, "a", &st, 0), 0);
	CU_ASSERT_EQUAL(st.st_mode & 07777, 0604); /* mode of an existing file is kept */
	CU_ASSERT_EQUAL(ds_file_read(fd, "a", 0, 100, &b, &err), 0);
	CU_ASSERT_STRING_EQUAL(b.data, "two!");
	CU_ASSERT_EQUAL(ds_file_read(fd, "a", 0, 3, &b, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	CU_ASSERT_EQUAL(symlinkat("a", fd, "link"), 0);
	CU_ASSERT_EQUAL(ds_file_write(fd, "link", 0600, "x", 1, &err), -1);
	CU_ASSERT_EQUAL(mkfifoat(fd, "fifo", 0600), 0);
	CU_ASSERT_EQUAL(ds_file_write(fd, "fifo", 0600, "x", 1, &err), -1);
	CU_ASSERT_EQUAL(ds_file_read(fd, "fifo", 0, 10, &b, &err), -1);
	CU_ASSERT_EQUAL(ds_file_read(fd, "none", 0, 10, &b, &err), -1);
	CU_ASSERT_EQUAL(err.sys, ENOENT);
	CU_ASSERT_EQUAL(faccessat(fd, ".a.new", F_OK, 0), -1);
	static const char *const names[] = { "a", "link", "fifo" };
	for (size_t i = 0; i < 3; i++)
		unlinkat(fd, names[i], 0);
	close(fd);
	rmdir(dir);
	ds_buf_fini(&b);
}

static void test_crc(void)
{
	CU_ASSERT_EQUAL(ds_crc32c(0, "123456789", 9), 0xe3069283u);
	CU_ASSERT_EQUAL(ds_crc32c(ds_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
	char zeros[32] = { 0 };
	CU_ASSERT_EQUAL(ds_crc32c(0, zeros, 32), 0x8a9136aau); /* RFC 3720 B.4 */
	/* Whatever instructions do it, every length and alignment is the sum made bit by bit. */
	unsigned char b[80];
	for (unsigned int i = 0; i < sizeof(b); i++)
		b[i] = (unsigned char)(i * 37 + 11);
	for (unsigned int from = 0; from < 8; from++)
		for (unsigned int n = 0; n <= 64; n++) {
			uint32_t c = ~0u;
			for (unsigned int i = 0; i < n * 8; i++)
				c = c >> 1 ^
				    ((c ^ b[from + i / 8] >> (i % 8)) & 1 ? 0x82f63b78u : 0);
			CU_ASSERT_EQUAL(ds_crc32c(0, b + from, n), ~c);
		}
}

static CU_TestInfo tests[] = {
	{ "an error keeps the tail of its object and prints on one line", test_err },
	{ "the JSON writer nests, escapes and repairs", test_json },
	{ "UTF-8 lengths: valid, cut off, invalid", test_utf8 },
	{ "settings: values, bounds, file and line of every mistake", test_settings },
	{ "files are replaced whole and only where they are regular", test_files },
	{ "CRC-32C of RFC 3720", test_crc },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo base_suite = { .pName = "sysprep/base", .pTests = tests };
