/*
 * test_journal.c - the journal: what was written is read, what was damaged is refused by name, what
 * was cut off is dropped; and the argument checks of operations, which a journal must pass too.
 */
#include <CUnit/CUnit.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access.h"
#include "file.h"
#include "journal.h"

/* ------------------------------- a journal on disk ------------------------------- */

static char root[] = "/tmp/ds-journal-XXXXXX";

static int make_root(void)
{
	strcpy(root + strlen(root) - 6, "XXXXXX");
	return mkdtemp(root) != NULL ? 0 : -1;
}

static void remove_tree(const char *name)
{
	/* Only what these tests make: a few levels of directories, a few files. */
	char path[PATH_MAX];
	static const char *const files[] = { "1/log",	    "1/committed", "2/log",
					     "2/committed", "1",	   "2" };
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/var/lib/dsprep/journal/%s", name, files[i]);
		remove(path);
	}
	static const char *const dirs[] = { "var/lib/dsprep/journal", "var/lib/dsprep", "var/lib",
					    "var", "" };
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", name, dirs[i]);
		rmdir(path);
	}
}

static const struct prep_jseg segment = { .boot_id = "6f1d",
					  .netns = 4026531840u,
					  .management = "enP7s7",
					  .config = "crc32c:0badcafe",
					  .time = 1790000000 };

static struct prep_op op_of(enum prep_op_kind kind)
{
	struct prep_op op = { .kind = kind, .ifname = "enp1s0f0np0", .ifindex = 7 };
	switch (kind) {
	case PREP_OP_LINK_MTU:
		op.value = 9000;
		op.old = 1500;
		break;
	case PREP_OP_SYSCTL:
		op.sysctl = PREP_SC_RP_FILTER;
		op.value = 2;
		break;
	case PREP_OP_ADDR_ADD:
		op.family = AF_INET;
		op.prefix = 24;
		inet_pton(AF_INET, "10.200.0.1", &op.addr);
		break;
	case PREP_OP_ADDR_DEL:
		op.family = AF_INET6;
		op.prefix = 64;
		inet_pton(AF_INET6, "fe80::1", &op.addr);
		op.addr_flags = 0x80;
		op.addr_scope = 253;
		op.addr_proto = 3;
		op.addr_lft[0] = op.addr_lft[1] = UINT32_MAX;
		op.addr_metric = 4000000000u;
		strcpy(op.addr_label, "en0:x");
		op.n_route = PREP_OP_ROUTES_MAX;
		for (int i = 0; i < PREP_OP_ROUTES_MAX; i++)
			op.route[i] = (struct prep_op_route){
				.table = UINT32_MAX,
				.metric = UINT32_MAX,
				.onlink = i % 2 != 0,
				.dst_len = (uint8_t)(i + 17),
				.scope = 253,
				.protocol = 186,
				.tos = 252,
				.dst.s_addr = htonl(0xfefdfc80u + (uint32_t)i),
				.gateway.s_addr = htonl(0xdeadbeefu),
				.prefsrc.s_addr = htonl(0xdddddddd),
			};
		break;
	case PREP_OP_HOST_REPORT:
		op.ifname[0] = '\0';
		op.ifindex = 0;
		op.value = 1LL << 40 | 5;
		op.old = -1;
		break;
	default:
		op.value = 1;
		break;
	}
	return op;
}

static bool same_routes(const struct prep_op *a, const struct prep_op *b)
{
	bool same = a->n_route == b->n_route;
	for (int i = 0; same && i < a->n_route; i++) {
		const struct prep_op_route *x = &a->route[i], *y = &b->route[i];
		same = x->table == y->table && x->metric == y->metric && x->onlink == y->onlink &&
		       x->dst_len == y->dst_len && x->scope == y->scope &&
		       x->protocol == y->protocol && x->tos == y->tos &&
		       x->dst.s_addr == y->dst.s_addr && x->gateway.s_addr == y->gateway.s_addr &&
		       x->prefsrc.s_addr == y->prefsrc.s_addr;
	}
	return same;
}

static bool same_op(const struct prep_op *a, const struct prep_op *b)
{
	return a->kind == b->kind && strcmp(a->ifname, b->ifname) == 0 &&
	       a->ifindex == b->ifindex && a->sysctl == b->sysctl && a->value == b->value &&
	       a->old == b->old && a->family == b->family && a->prefix == b->prefix &&
	       memcmp(&a->addr, &b->addr, sizeof(a->addr)) == 0 && a->addr_flags == b->addr_flags &&
	       a->addr_scope == b->addr_scope && a->addr_proto == b->addr_proto &&
	       a->addr_metric == b->addr_metric && a->addr_lft[0] == b->addr_lft[0] &&
	       a->addr_lft[1] == b->addr_lft[1] && a->addr_peer.s_addr == b->addr_peer.s_addr &&
	       a->addr_brd.s_addr == b->addr_brd.s_addr &&
	       strcmp(a->addr_label, b->addr_label) == 0 && same_routes(a, b);
}

#define N_KINDS 6

/* Writes a whole apply: begin, then intent, done, verified of one operation of each kind. */
static void write_apply(struct prep_journal *j)
{
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL(prep_journal_begin(j, &segment, &err), 0);
	for (int kind = 1; kind <= N_KINDS; kind++) {
		struct prep_op op = op_of((enum prep_op_kind)kind);
		unsigned int index = 99;
		CU_ASSERT_EQUAL(prep_journal_intent(j, &op, &index, &err), 0);
		CU_ASSERT_EQUAL(prep_journal_done(j, index, &err), 0);
		CU_ASSERT_EQUAL(prep_journal_verified(j, index, &err), 0);
	}
}

static void read_file(const char *name, struct ds_buf *b)
{
	char path[PATH_MAX];
	struct ds_err err = { 0 };
	snprintf(path, sizeof(path), "%s/var/lib/dsprep/journal/%s", root, name);
	CU_ASSERT_EQUAL(ds_file_read(AT_FDCWD, path, 0, 1 << 20, b, &err), 0);
}

/* The bytes of a log as write_apply() makes it. */
static void log_bytes(struct ds_buf *b)
{
	struct ds_err err = { 0 };
	struct prep_journals all;
	struct prep_journal j;
	CU_ASSERT_EQUAL_FATAL(make_root(), 0);
	struct prep_access *a = prep_access_live(root, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, true, &all, &err), 0);
	CU_ASSERT_EQUAL_FATAL(prep_journal_create(&all, &j, &err), 0);
	write_apply(&j);
	read_file("1/log", b);
	CU_ASSERT_EQUAL(j.len, b->len);
	CU_ASSERT_EQUAL(j.crc, ds_crc32c(0, b->data, b->len));
	prep_journal_fini(&j);
	prep_journals_close(&all);
	prep_access_close(a);
	remove_tree(root);
}

static int parse(const void *data, size_t len, size_t committed, uint32_t crc,
		 struct prep_journal *j, struct ds_err *err)
{
	*j = (struct prep_journal){
		.id = 1, .path = "/var/lib/dsprep/journal/1/log", .dir_fd = -1, .fd = -1
	};
	*err = (struct ds_err){ 0 };
	/* An exact-size copy: a byte too far is a report under the address sanitizer. */
	char *copy = malloc(len + (len == 0));
	CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
	memcpy(copy, data, len);
	int rc = prep_journal_parse(j, copy, len, committed, crc, err);
	free(copy);
	return rc;
}

static void test_round_trip(void)
{
	struct ds_err err = { 0 };
	struct prep_journals all;
	struct prep_journal j;
	CU_ASSERT_EQUAL_FATAL(make_root(), 0);
	struct prep_access *a = prep_access_live(root, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(prep_journals_open(a, false, &all, &err), 0);
	CU_ASSERT_EQUAL(all.n, 0);
	prep_journals_close(&all);
	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, true, &all, &err), 0);
	CU_ASSERT_EQUAL_FATAL(prep_journal_create(&all, &j, &err), 0);
	write_apply(&j);
	prep_journal_fini(&j);
	prep_journals_close(&all);

	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, false, &all, &err), 0);
	CU_ASSERT_EQUAL_FATAL(all.n, 1);
	struct prep_journal *r = &all.j[0];
	CU_ASSERT_EQUAL_FATAL(r->n_op, N_KINDS);
	CU_ASSERT_TRUE(prep_journal_unfinished(r));
	CU_ASSERT_FALSE(prep_journal_standing(r));
	for (unsigned int i = 0; i < N_KINDS; i++) {
		struct prep_op want = op_of((enum prep_op_kind)(i + 1));
		CU_ASSERT_TRUE(same_op(&r->op[i].op, &want));
		CU_ASSERT_TRUE(r->op[i].done && r->op[i].verified);
	}
	CU_ASSERT_STRING_EQUAL(r->seg[0].boot_id, segment.boot_id);
	CU_ASSERT_EQUAL(r->seg[0].netns, segment.netns);
	CU_ASSERT_STRING_EQUAL(r->seg[0].management, segment.management);

	/* Committed, continued, the continuation reverted, all undone, closed. */
	CU_ASSERT_EQUAL(prep_journal_commit(r, &err), 0);
	CU_ASSERT_FALSE(prep_journal_unfinished(r));
	CU_ASSERT_EQUAL(prep_journal_begin(r, &segment, &err), 0);
	CU_ASSERT_TRUE(prep_journal_unfinished(r) && prep_journal_standing(r));
	CU_ASSERT_EQUAL(prep_journal_reverted(r, &err), 0);
	CU_ASSERT_FALSE(prep_journal_unfinished(r));
	for (unsigned int i = N_KINDS; i-- > 0;)
		CU_ASSERT_EQUAL(prep_journal_undone(r, i, PREP_UNDONE_RESTORED, &err), 0);
	CU_ASSERT_TRUE(prep_journal_standing(r));
	CU_ASSERT_EQUAL(prep_journal_closed(r, &err), 0);
	prep_journals_close(&all);
	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, false, &all, &err), 0);
	CU_ASSERT_EQUAL(all.n, 1);
	CU_ASSERT_TRUE(all.j[0].closed && !prep_journal_standing(&all.j[0]));
	CU_ASSERT_EQUAL(all.j[0].op[2].undone, PREP_UNDONE_RESTORED);
	prep_journals_close(&all);
	prep_access_close(a);
	remove_tree(root);
}

static void test_every_length(void)
{
	struct ds_buf b = { 0 };
	struct ds_err err;
	struct prep_journal j;
	log_bytes(&b);
	uint32_t crc = ds_crc32c(0, b.data, b.len);
	CU_ASSERT_EQUAL(parse(b.data, b.len, b.len, crc, &j, &err), 0);
	prep_journal_fini(&j);
	for (size_t n = 0; n < b.len; n++) {
		/* A kill cut it off: the whole records before are good. */
		if (parse(b.data, n, 0, 0, &j, &err) != 0 || j.len > n || j.len + j.torn != n)
			CU_FAIL("a log that was cut off");
		prep_journal_fini(&j);
		/* Its apply had ended: then it is damage, and named. */
		if (parse(b.data, n, b.len, crc, &j, &err) == 0 || err.kind != DS_ERR_INPUT ||
		    strstr(err.obj, "journal/1/log") == NULL)
			CU_FAIL("a committed log that was cut short");
	}
	/* Blocks that a power cut left unwritten. */
	static const char zeros[600];
	size_t cut = b.len - 20;
	ds_buf_reset(&b);
	log_bytes(&b);
	struct ds_buf z = { 0 };
	ds_buf_put(&z, b.data, cut);
	ds_buf_put(&z, zeros, sizeof(zeros));
	CU_ASSERT_EQUAL(parse(z.data, z.len, 0, 0, &j, &err), 0);
	CU_ASSERT_TRUE(j.len <= cut && j.torn >= sizeof(zeros));
	CU_ASSERT_EQUAL(j.n_op, N_KINDS);
	prep_journal_fini(&j);
	ds_buf_fini(&z);
	ds_buf_fini(&b);
}

static void test_every_bit(void)
{
	struct ds_buf b = { 0 };
	struct ds_err err;
	struct prep_journal j;
	log_bytes(&b);
	unsigned int accepted = 0, unnamed = 0;
	for (size_t i = 0; i < b.len * 8; i++) {
		b.data[i / 8] ^= (char)(1 << i % 8);
		if (parse(b.data, b.len, 0, 0, &j, &err) == 0) {
			accepted++;
			prep_journal_fini(&j);
		} else if (strstr(err.obj, "journal/1/log") == NULL || err.fix[0] == '\0') {
			unnamed++;
		}
		b.data[i / 8] ^= (char)(1 << i % 8);
	}
	CU_ASSERT_EQUAL(accepted, 0);
	CU_ASSERT_EQUAL(unnamed, 0);
	ds_buf_fini(&b);
}

/* ------------------------------- hand-made records ------------------------------- */

static void put(struct ds_buf *b, const char *json)
{
	unsigned int n = (unsigned int)strlen(json), x = n ^ 0xffff;
	uint32_t crc = ds_crc32c(0, json, n);
	const unsigned char head[] = { n & 0xff,   n >> 8,	    x & 0xff,	      x >> 8 & 0xff,
				       crc & 0xff, crc >> 8 & 0xff, crc >> 16 & 0xff, crc >> 24 };
	ds_buf_put(b, head, sizeof(head));
	ds_buf_put(b, json, n);
}

#define BEGIN                                                                                   \
	"{\"state\":\"begin\",\"format\":1,\"boot_id\":\"b\",\"netns\":1,\"management\":\"m\"," \
	"\"config\":\"c\",\"time\":1}"
#define MTU(n, ifname)                                                              \
	"{\"state\":\"intent\",\"op\":" #n ",\"kind\":2,\"ifname\":\"" ifname "\"," \
	"\"ifindex\":7,\"value\":9000,\"old\":1500}"
#define DONE(n) "{\"state\":\"done\",\"op\":" #n "}"

static void test_refusals(void)
{
	static const struct {
		const char *rec[4];
		const char *why; /* in the error; NULL: accepted */
	} cases[] = {
		{ { BEGIN, MTU(0, "en0"), DONE(0) }, NULL },
		{ { BEGIN, MTU(0, "en0"), "{\"state\":\"undone\",\"op\":0,\"how\":\"left\"}" },
		  NULL },
		{ { BEGIN, "{\"state\":\"closed\"}" }, NULL },
		{ { MTU(0, "en0") }, "beginning" },
		{ { "{\"state\":\"begin\",\"format\":2}" }, "newer" },
		{ { BEGIN, "{\"state\":\"begin\",\"format\":9}" }, "newer" },
		{ { "{\"state\":\"begin\",\"format\":0}" }, "format" },
		{ { "{\"state\":\"begin\",\"format\":1}" }, "lacks" },
		{ { BEGIN, MTU(1, "en0") }, "order" },
		{ { BEGIN, MTU(0, "en0"), MTU(0, "en0") }, "order" },
		{ { BEGIN, DONE(0) }, "not begun" },
		{ { BEGIN, MTU(0, "en0"), DONE(0), DONE(0) }, "order" },
		{ { BEGIN, MTU(0, "en0"), "{\"state\":\"verified\",\"op\":0}" }, "order" },
		{ { BEGIN, MTU(0, "en0"), "{\"state\":\"undone\",\"op\":0,\"how\":\"so\"}" },
		  "word" },
		{ { BEGIN, MTU(0, "en0"), "{\"state\":\"later\",\"op\":0}" }, "unknown state" },
		{ { BEGIN, MTU(0, "../../en0") }, "interface name" },
		{ { BEGIN, MTU(0, "all") }, "interface name" },
		{ { BEGIN, MTU(0, "") }, "interface name" },
		{ { BEGIN,
		    "{\"state\":\"intent\",\"op\":0,\"kind\":99,\"ifname\":\"a\",\"ifindex\":7,"
		    "\"value\":1,\"old\":0}" },
		  "unknown kind" },
		{ { BEGIN,
		    "{\"state\":\"intent\",\"op\":0,\"kind\":5,\"ifname\":\"a\",\"ifindex\":7,"
		    "\"value\":1,\"old\":0,\"sysctl\":\"ipv4/forwarding\"}" },
		  "sysctl" },
		{ { BEGIN, "{\"state\":\"closed\"}", "{\"state\":\"closed\"}" }, "after the last" },
		{ { BEGIN, "[1]" }, "JSON" },
		{ { BEGIN, "{\"state\":\"done\",\"op\":0,\"op\":0}" }, "JSON" },
		{ { BEGIN, "{}" }, "without state" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ds_buf b = { 0 };
		struct ds_err err;
		struct prep_journal j;
		for (size_t k = 0; k < 4 && cases[i].rec[k] != NULL; k++)
			put(&b, cases[i].rec[k]);
		int rc = parse(b.data, b.len, 0, 0, &j, &err);
		if (rc == 0)
			prep_journal_fini(&j);
		if ((rc == 0) != (cases[i].why == NULL) ||
		    (rc != 0 && strstr(err.why, cases[i].why) == NULL)) {
			fprintf(stderr, "case %zu: rc %d, why \"%s\"\n", i, rc, err.why);
			CU_FAIL("hand-made records");
		}
		ds_buf_fini(&b);
	}
}

/* Writes @len bytes as the log of journal 1. */
static void set_log(const char *data, size_t len)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/var/lib/dsprep/journal/1/log", root);
	FILE *f = fopen(path, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(data, 1, len, f), len);
	CU_ASSERT_EQUAL(fclose(f), 0);
}

static void test_torn_then_appended(void)
{
	struct ds_err err = { 0 };
	struct prep_journals all;
	struct prep_journal j;
	struct ds_buf b = { 0 };
	CU_ASSERT_EQUAL_FATAL(make_root(), 0);
	struct prep_access *a = prep_access_live(root, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, true, &all, &err), 0);
	CU_ASSERT_EQUAL_FATAL(prep_journal_create(&all, &j, &err), 0);
	write_apply(&j);
	prep_journal_fini(&j);
	prep_journals_close(&all);
	read_file("1/log", &b);
	set_log(b.data, b.len - 3);

	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, false, &all, &err), 0);
	CU_ASSERT_EQUAL_FATAL(all.n, 1);
	CU_ASSERT_TRUE(all.j[0].torn > 0);
	CU_ASSERT_FALSE(all.j[0].op[N_KINDS - 1].verified);
	CU_ASSERT_EQUAL(prep_journal_undone(&all.j[0], N_KINDS - 1, PREP_UNDONE_GONE, &err), 0);
	prep_journals_close(&all);
	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, false, &all, &err), 0);
	CU_ASSERT_EQUAL(all.j[0].torn, 0);
	CU_ASSERT_EQUAL(all.j[0].op[N_KINDS - 1].undone, PREP_UNDONE_GONE);
	prep_journals_close(&all);

	/* Nothing whole in it: an apply that was killed before it did anything, and its number is
	 * not used again. */
	set_log(b.data, 11);
	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, false, &all, &err), 0);
	CU_ASSERT_EQUAL(all.n, 0);
	CU_ASSERT_EQUAL(all.last_id, 1);
	prep_journals_close(&all);
	prep_access_close(a);
	remove_tree(root);
	ds_buf_fini(&b);
}

static void test_foreign_files(void)
{
	struct ds_err err = { 0 };
	struct prep_journals all;
	struct prep_journal j;
	char path[PATH_MAX];
	CU_ASSERT_EQUAL_FATAL(make_root(), 0);
	struct prep_access *a = prep_access_live(root, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL_FATAL(prep_journals_open(a, true, &all, &err), 0);
	CU_ASSERT_EQUAL_FATAL(prep_journal_create(&all, &j, &err), 0);
	write_apply(&j);
	prep_journal_fini(&j);
	prep_journals_close(&all);
	snprintf(path, sizeof(path), "%s/var/lib/dsprep/journal/1/log", root);
	CU_ASSERT_EQUAL(chmod(path, 0666), 0);
	CU_ASSERT_EQUAL(prep_journals_open(a, false, &all, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.obj, "journal/1/log"));
	CU_ASSERT_EQUAL(remove(path), 0);
	CU_ASSERT_EQUAL(symlink("/etc/passwd", path), 0);
	CU_ASSERT_EQUAL(prep_journals_open(a, false, &all, &err), -1);
	CU_ASSERT_EQUAL(remove(path), 0);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	CU_ASSERT_EQUAL(prep_journals_open(a, false, &all, &err), -1);
	prep_access_close(a);
	remove_tree(root);
}

/* ------------------------------- arguments of operations ------------------------------- */

static void test_op_checks(void)
{
	struct ds_err err;
	size_t n;
	const struct prep_op_row *rows = prep_op_rows(&n);
	CU_ASSERT_EQUAL(n, N_KINDS);
	for (size_t i = 0; i < n; i++) {
		struct prep_op op = op_of(rows[i].kind);
		CU_ASSERT_EQUAL(prep_op_check(&op, &err), 0);
		CU_ASSERT_PTR_EQUAL(prep_op_row((int)rows[i].kind), &rows[i]);
		CU_ASSERT_TRUE(rows[i].observe != NULL && rows[i].act != NULL &&
			       rows[i].back != NULL && strlen(rows[i].man) > 20);
	}
	CU_ASSERT_PTR_NULL(prep_op_row(0));
	CU_ASSERT_PTR_NULL(prep_op_row(7));
	static const char *const names[] = { "", ".", "..", "all", "default", "a/b", "a b", "a:1" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct prep_op op = op_of(PREP_OP_LINK_UP);
		snprintf(op.ifname, sizeof(op.ifname), "%s", names[i]);
		CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	}
	struct prep_op op = op_of(PREP_OP_LINK_UP);
	op.ifindex = 1;
	CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	memset(op.ifname, 'x', sizeof(op.ifname)); /* not terminated */
	op.ifindex = 7;
	CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	op = op_of(PREP_OP_LINK_MTU);
	op.value = 67;
	CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	op.value = 65536;
	CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	op = op_of(PREP_OP_SYSCTL);
	op.sysctl = PREP_SC_N;
	CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	static const char *const addrs[] = { "0.0.0.1", "127.0.0.1", "224.0.0.1",
					     "255.255.255.255" };
	for (size_t i = 0; i < sizeof(addrs) / sizeof(addrs[0]); i++) {
		op = op_of(PREP_OP_ADDR_ADD);
		inet_pton(AF_INET, addrs[i], &op.addr);
		CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	}
	op = op_of(PREP_OP_ADDR_DEL);
	inet_pton(AF_INET6, "2001:db8::1", &op.addr);
	CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
	op = op_of(PREP_OP_ADDR_DEL);
	op.kind = PREP_OP_ADDR_ADD; /* IPv6 is never added but to restore */
	CU_ASSERT_EQUAL(prep_op_check(&op, &err), -1);
}

static CU_TestInfo tests[] = {
	{ "what was written is read, through commit, continuation and close", test_round_trip },
	{ "a log of every length: cut off is dropped, committed is refused", test_every_length },
	{ "a log with any single bit flipped is refused by name", test_every_bit },
	{ "records that make no sense are refused, each with its reason", test_refusals },
	{ "a torn record is cut away by the next append", test_torn_then_appended },
	{ "files that others could write, symlinks and FIFOs are refused", test_foreign_files },
	{ "operations check their arguments", test_op_checks },
	CU_TEST_INFO_NULL,
};
CU_SuiteInfo journal_suite = { .pName = "sysprep/journal", .pTests = tests };
