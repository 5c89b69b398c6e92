/*
 * test_tp.c - parts of the transport that need no socket: handshake, frames, state comparison,
 * host report, and the way from both to paths.
 */
#include <CUnit/CUnit.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostreport.h"
#include "tp_auth.h"
#include "tp_frame.h"
#include "tp_paths.h"

/* ---- handshake ----------------------------------------------------------------------------- */

static const uint8_t secret[TP_AUTH_KEY_BYTES] = { 1, 2, 3 };
static const struct tp_hello hello = { .kind = TP_HELLO_BOOT, .from = 1, .to = 0, .world = 2 };

static enum tp_refusal give_key(void *arg, const struct tp_hello *h, uint8_t key[TP_AUTH_KEY_BYTES])
{
	(void)h;
	memcpy(key, arg, TP_AUTH_KEY_BYTES);
	return TP_REFUSE_NONE;
}

/* Hands over what @from has to say; @flip: byte to damage on the way, -1 = none. */
static enum tp_hs_result hand(struct tp_hs *from, struct tp_hs *to, int flip)
{
	uint8_t buf[TP_HELLO_BYTES];
	size_t n = from->n_out;
	enum tp_hs_result res = TP_HS_MORE;
	memcpy(buf, from->out, n);
	from->n_out = 0;
	if (flip >= 0)
		buf[flip] ^= 0x10;
	for (size_t off = 0; off < n && res == TP_HS_MORE;) {
		size_t want = tp_hs_want(to);
		size_t part = want < n - off ? want : n - off;
		/* One byte at a time as well: the stream may be cut anywhere. */
		res = tp_hs_feed(to, buf + off, flip == -1 ? 1 : part);
		off += flip == -1 ? 1 : part;
	}
	return res;
}

static void begin(struct tp_hs *c, struct tp_hs *l, uint8_t *listener_key)
{
	CU_ASSERT_EQUAL_FATAL(tp_hs_connect(c, &hello, secret, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tp_hs_listen(l, give_key, listener_key, NULL), 0);
}

static void test_hs_good(void)
{
	struct tp_hs c, l;
	uint8_t key[TP_AUTH_KEY_BYTES];
	memcpy(key, secret, sizeof(key));
	begin(&c, &l, key);
	CU_ASSERT_EQUAL(hand(&c, &l, -1), TP_HS_MORE);
	CU_ASSERT_EQUAL(hand(&l, &c, -1), TP_HS_MORE);
	CU_ASSERT_EQUAL(hand(&c, &l, -1), TP_HS_VERIFIED);
	CU_ASSERT_EQUAL(tp_hs_finish(&l, TP_REFUSE_NONE), TP_HS_DONE);
	CU_ASSERT_EQUAL(hand(&l, &c, -1), TP_HS_DONE);
	CU_ASSERT_EQUAL(memcmp(c.session, l.session, sizeof(c.session)), 0);
	CU_ASSERT_EQUAL(l.hello.from, 1);
	/* Another run gives another session. */
	struct tp_hs c2, l2;
	begin(&c2, &l2, key);
	hand(&c2, &l2, -1);
	hand(&l2, &c2, -1);
	hand(&c2, &l2, -1);
	CU_ASSERT_NOT_EQUAL(memcmp(c.session, l2.session, sizeof(c.session)), 0);
	CU_ASSERT_EQUAL(tp_hs_finish(&l2, TP_REFUSE_DUPLICATE), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(hand(&l2, &c2, -1), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(c2.refusal, TP_REFUSE_DUPLICATE);
	CU_ASSERT_TRUE(c2.by_peer);
}

static void test_hs_secret(void)
{
	struct tp_hs c, l;
	uint8_t key[TP_AUTH_KEY_BYTES] = { 9 };
	begin(&c, &l, key);
	hand(&c, &l, -1);
	hand(&l, &c, -1);
	CU_ASSERT_EQUAL(hand(&c, &l, -1), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(l.refusal, TP_REFUSE_SECRET);
	CU_ASSERT_EQUAL(hand(&l, &c, -1), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(c.refusal, TP_REFUSE_SECRET);
}

/* Whatever byte changes on the way, nobody ends up authenticated. */
static void test_hs_flips(void)
{
	uint8_t key[TP_AUTH_KEY_BYTES];
	memcpy(key, secret, sizeof(key));
	for (int message = 0; message < 4; message++)
		for (int at = 0; at < (message < 2 ? TP_HELLO_BYTES : TP_PROOF_BYTES); at++) {
			struct tp_hs c, l;
			if (message >= 2 && at == 7)
				continue; /* the unused code of a proof */
			begin(&c, &l, key);
			enum tp_hs_result rl = hand(&c, &l, message == 0 ? at : -2);
			enum tp_hs_result rc =
				rl == TP_HS_MORE ? hand(&l, &c, message == 1 ? at : -2) : rl;
			if (rc == TP_HS_MORE)
				rl = hand(&c, &l, message == 2 ? at : -2);
			if (rl == TP_HS_VERIFIED) {
				tp_hs_finish(&l, TP_REFUSE_NONE);
				rc = hand(&l, &c, message == 3 ? at : -2);
			}
			CU_ASSERT_NOT_EQUAL(rc, TP_HS_DONE);
		}
}

static void test_hs_reflected(void)
{
	struct tp_hs c, l, l2;
	uint8_t key[TP_AUTH_KEY_BYTES], buf[TP_HELLO_BYTES];
	memcpy(key, secret, sizeof(key));
	/* A listener that only sends back what it gets. */
	begin(&c, &l, key);
	memcpy(buf, c.out, sizeof(buf));
	CU_ASSERT_EQUAL(tp_hs_feed(&c, buf, 8), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(c.refusal, TP_REFUSE_REFLECTED);
	/* The same with the role changed: the nonce is still ours. */
	begin(&c, &l, key);
	memcpy(buf, c.out, sizeof(buf));
	buf[6] = 2;
	CU_ASSERT_EQUAL(tp_hs_feed(&c, buf, 8), TP_HS_MORE);
	CU_ASSERT_EQUAL(tp_hs_feed(&c, buf + 8, sizeof(buf) - 8), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(c.refusal, TP_REFUSE_REFLECTED);
	/* A listener's hello, sent to another listener. */
	begin(&c, &l, key);
	hand(&c, &l, -1);
	tp_hs_listen(&l2, give_key, key, NULL);
	CU_ASSERT_EQUAL(tp_hs_feed(&l2, l.out, 8), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(l2.refusal, TP_REFUSE_REFLECTED);
	/* A proof of one connection, used on another one. */
	struct tp_hs c2;
	begin(&c, &l, key);
	begin(&c2, &l2, key);
	hand(&c, &l, -1);
	hand(&l, &c, -1);
	hand(&c2, &l2, -1);
	CU_ASSERT_EQUAL(hand(&c, &l2, -2), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(l2.refusal, TP_REFUSE_SECRET);
}

static void test_hs_version(void)
{
	struct tp_hs c, l;
	uint8_t key[TP_AUTH_KEY_BYTES] = { 0 };
	begin(&c, &l, key);
	c.out[4] = 7;
	CU_ASSERT_EQUAL(hand(&c, &l, -2), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(l.refusal, TP_REFUSE_VERSION);
	CU_ASSERT_EQUAL(l.peer_version, 7);
	l.out[4] = 7; /* the other one answers in its own version */
	CU_ASSERT_EQUAL(hand(&l, &c, -2), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(c.refusal, TP_REFUSE_VERSION);
	CU_ASSERT_EQUAL(c.peer_version, 7);
	/* What is no handshake gets no answer. */
	tp_hs_listen(&l, give_key, key, NULL);
	CU_ASSERT_EQUAL(tp_hs_feed(&l, (const uint8_t *)"GET / HT", 8), TP_HS_REFUSED);
	CU_ASSERT_EQUAL(l.n_out, 0);
}

static void test_state(void)
{
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL(tp_state_diff("a=1\nb=2\n", 0, "b=2\na=1", 1, &err), 0);
	CU_ASSERT_EQUAL(
		tp_state_diff("a=1\nnumerics=native\n", 0, "a=1\nnumerics=exact\n", 1, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_PEER);
	CU_ASSERT_STRING_EQUAL(err.what, "form the group: ranks 0 and 1 differ in numerics");
	CU_ASSERT_STRING_EQUAL(err.why, "numerics is \"native\" on rank 0 and \"exact\" on rank 1");
	CU_ASSERT_EQUAL(tp_state_diff("a=1\n", 0, "a=1\nplan=x\n", 2, &err), -1);
	CU_ASSERT_STRING_EQUAL(err.why, "plan is \"x\" on rank 2 and \"\" on rank 0");
	CU_ASSERT_EQUAL(tp_state_diff("a=1\nbroken", 0, "a=1", 1, &err), -1);
	CU_ASSERT_EQUAL(tp_state_diff("a=1", 0, "a=12", 1, &err), -1);
	CU_ASSERT_EQUAL(tp_state_diff("", 0, "", 1, &err), 0);
}

/* ---- frames -------------------------------------------------------------------------------- */

static void test_frame(void)
{
	uint8_t buf[TP_FRAME_HDR + 64];
	const char *why = NULL;
	struct tp_frame got;
	struct tp_frame f = {
		.type = TP_FRAME_DATA,
		.kind = TP_HEAD,
		.epoch = 3,
		.len = 64,
		.seq = 1ull << 40,
		.op = 77,
		.total = 200,
		.offset = 136,
	};
	for (int i = 0; i < 64; i++)
		buf[TP_FRAME_HDR + i] = (uint8_t)(i * 7);
	CU_ASSERT_EQUAL(tp_frame_put(buf, &f), sizeof(buf));
	CU_ASSERT_EQUAL(tp_frame_parse(buf, sizeof(buf), &got, &why), (long)sizeof(buf));
	CU_ASSERT_EQUAL(got.seq, f.seq);
	CU_ASSERT_EQUAL(got.op, 77);
	CU_ASSERT_EQUAL(got.offset, 136);
	for (size_t n = 0; n < sizeof(buf); n++)
		CU_ASSERT_EQUAL(tp_frame_parse(buf, n, &got, &why), 0);
	for (size_t i = 0; i < sizeof(buf); i++) {
		buf[i] ^= 1;
		long n = tp_frame_parse(buf, sizeof(buf), &got, &why);
		/* A changed length may also mean that more bytes are awaited. */
		CU_ASSERT_TRUE(n == -1 || (n == 0 && i >= 12 && i < 16));
		buf[i] ^= 1;
	}
	f.offset = 137;
	tp_frame_put(buf, &f);
	CU_ASSERT_EQUAL(tp_frame_parse(buf, sizeof(buf), &got, &why), -1);
	CU_ASSERT_STRING_EQUAL(why, "chunk does not fit its message");
}

static void test_status(void)
{
	uint8_t buf[24 + 8 * TP_STATUS_ACKS_MAX];
	struct tp_status s = {
		.byte_limit = 1ull << 35, .op_limit = 9, .waiting_ms = 5, .n_ack = 2
	};
	struct tp_status got;
	s.ack[1] = 1ull << 50;
	size_t n = tp_status_put(buf, &s);
	CU_ASSERT_EQUAL(n, 40);
	CU_ASSERT_EQUAL(tp_status_parse(buf, n, &got), 0);
	CU_ASSERT_EQUAL(got.ack[1], s.ack[1]);
	CU_ASSERT_EQUAL(got.byte_limit, s.byte_limit);
	CU_ASSERT_EQUAL(tp_status_parse(buf, n - 1, &got), -1);
	buf[20] = TP_STATUS_ACKS_MAX + 1;
	CU_ASSERT_EQUAL(tp_status_parse(buf, sizeof(buf), &got), -1);
}

/* ---- host report --------------------------------------------------------------------------- */

#define RAIL(rail, net, own, peer)                                                           \
	"{\"rail\":" rail ",\"cage\":0,\"edge\":\"1-2\",\"netdev\":\"" net                   \
	"\",\"ifindex\":3,\"ibdev\":null,\"port\":1,\"gid\":null,\"ipv4\":\"" own            \
	"\",\"mtu\":9000,\"identified_by\":\"name\",\"peers\":[{\"node\":2,\"ipv4\":\"" peer \
	"\"}]}"
#define HEAD(node)                                                                        \
	"{\"format\":1,\"boot_id\":\"x y\",\"generation\":7,\"node\":" node               \
	",\"nodes\":2,\"shape\":\"pair\",\"kernel\":{\"release\":\"6.17.0-1032-nvidia\"," \
	"\"verdict\":null},\"rails\":["
static const char good_report[] = HEAD("1")
	RAIL("0", "enp1s0f0np0", "10.200.0.1/24",
	     "10.200.0.2") "," RAIL("1", "enP2p1s0f0np0", "10.200.1.1/24", "10.200.1.2") "]}";

static void test_report(void)
{
	struct host_report r;
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL_FATAL(
		host_report_parse("host.json", good_report, strlen(good_report), &r, &err), 0);
	CU_ASSERT_EQUAL(r.node, 1);
	CU_ASSERT_EQUAL(r.n_rail, 2);
	CU_ASSERT_EQUAL(r.rail[1].ipv4.s_addr, inet_addr("10.200.1.1"));
	CU_ASSERT_EQUAL(r.rail[1].prefix, 24);
	CU_ASSERT_STRING_EQUAL(r.rail[0].netdev, "enp1s0f0np0");
	CU_ASSERT_STRING_EQUAL(r.rail[0].ibdev, "");
	CU_ASSERT_EQUAL(r.rail[0].peer[0].ipv4.s_addr, inet_addr("10.200.0.2"));
	CU_ASSERT_STRING_EQUAL(r.release, "6.17.0-1032-nvidia");
	CU_ASSERT_EQUAL(host_report_read("/nonexistent/host.json", &r, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_HOST);
	CU_ASSERT_EQUAL(err.sys, 2);
}

static void test_report_bad(void)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{ "", "the file is no JSON" },
		{ "[]", "the file is not a JSON object" },
		{ "{\"format\":2}", "format is 2, not 1 to 1" },
		{ "{\"format\":1,\"format\":1}", "the file is no JSON" },
		{ "{\"format\":1,\"node\":0,\"nodes\":2}", "node is 0" },
		{ "{\"format\":1,\"node\":3,\"nodes\":2,\"rails\":[]}", "node is 3 of 2" },
		{ "{\"format\":1,\"node\":1,\"nodes\":2}", "rails is not a list" },
		{ HEAD("1") "3]}", "rails[0].it is not an object" },
		{ HEAD("1") RAIL("2", "a", "10.0.0.1/24", "10.0.0.2") "]}", "rails[0].rail is 2" },
		{ HEAD("1") RAIL("0", "a/b", "10.0.0.1/24", "10.0.0.2") "]}",
		  "rails[0].netdev has characters" },
		{ HEAD("1") RAIL("0", "a2345678901234567", "10.0.0.1/24", "10.0.0.2") "]}",
		  "rails[0].netdev has 17 characters" },
		{ HEAD("1") RAIL("0", "a", "10.0.0.1", "10.0.0.2") "]}",
		  "rails[0].ipv4 has no prefix length" },
		{ HEAD("1") RAIL("0", "a", "10.0.0.1/33", "10.0.0.2") "]}",
		  "rails[0].ipv4 has a prefix length that is not" },
		{ HEAD("1") RAIL("0", "a", "10.0.0.1/2x", "10.0.0.2") "]}",
		  "rails[0].ipv4 has a prefix length that is not" },
		{ HEAD("1") RAIL("0", "a", "10.0.0.1/24", "10.0.0.256") "]}",
		  "rails[0].peers[0].ipv4 is no IPv4 address" },
		{ HEAD("1") RAIL("0", "a", "127.0.0.1/8", "10.0.0.2") "]}",
		  "rails[0].ipv4 is no address of a link" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct host_report r = { .node = 99 };
		struct ds_err err = { 0 };
		int rc = host_report_parse("f", rows[i].text, strlen(rows[i].text), &r, &err);
		bool good = rc == -1 && err.kind == DS_ERR_INPUT && r.node == 99 &&
			    strncmp(err.why, rows[i].why, strlen(rows[i].why)) == 0;
		if (!good)
			printf("   row %zu: %d, \"%s\", expected \"%s\"\n", i, rc, err.why,
			       rows[i].why);
		CU_ASSERT_TRUE(good);
	}
}

/* ---- paths --------------------------------------------------------------------------------- */

static int fill(struct tp_conf *c, uint32_t rank, const char *a0, const char *a1,
		const char *report, struct ds_err *err)
{
	const char *addr[] = { a0, a1 };
	struct host_report r;
	*c = (struct tp_conf){ .rank = rank, .world = 2 };
	if (report != NULL && host_report_parse("host.json", report, strlen(report), &r, err) != 0)
		return -1;
	return tp_paths_fill(c, addr, report != NULL ? &r : NULL, err);
}

static void test_paths(void)
{
	struct tp_conf c;
	struct ds_err err = { 0 };
	CU_ASSERT_EQUAL(fill(&c, 0, "10.200.0.1", "10.200.0.2:9999", good_report, &err), 0);
	CU_ASSERT_EQUAL(c.peer[1].n_path, 2);
	CU_ASSERT_STRING_EQUAL(c.peer[1].path[0].name, "rail0");
	CU_ASSERT_STRING_EQUAL(c.peer[1].path[1].netdev, "enP2p1s0f0np0");
	CU_ASSERT_EQUAL(c.peer[1].path[1].local.s_addr, inet_addr("10.200.1.1"));
	CU_ASSERT_EQUAL(c.peer[1].path[1].remote.s_addr, inet_addr("10.200.1.2"));
	CU_ASSERT_EQUAL(ntohs(c.peer[1].addr.sin_port), 9999);
	CU_ASSERT_EQUAL(ntohs(c.peer[0].addr.sin_port), 8700);
	CU_ASSERT_EQUAL(c.path_port[1], 8701);
	/* Management addresses that no report knows: rank r on node r + 1. */
	CU_ASSERT_EQUAL(fill(&c, 0, "192.0.2.1", "192.0.2.2", good_report, &err), 0);
	CU_ASSERT_EQUAL(c.peer[1].n_path, 2);
	/* Without a report, and on one machine: the addresses themselves. */
	CU_ASSERT_EQUAL(fill(&c, 1, "192.0.2.1:9000", "192.0.2.2:9001", NULL, &err), 0);
	CU_ASSERT_EQUAL(c.peer[0].n_path, 1);
	CU_ASSERT_STRING_EQUAL(c.peer[0].path[0].name, "rank");
	CU_ASSERT_EQUAL(c.peer[0].path[0].remote.s_addr, inet_addr("192.0.2.1"));
	CU_ASSERT_EQUAL(c.path_port[1], 9001);
	CU_ASSERT_EQUAL(fill(&c, 1, "127.0.0.1", "127.0.0.1", good_report, &err), 0);
	CU_ASSERT_STRING_EQUAL(c.peer[0].path[0].name, "rank");
}

static void test_paths_bad(void)
{
	static const struct {
		uint32_t rank;
		const char *a0, *a1, *why;
	} rows[] = {
		{ 1, "10.200.0.1", "192.0.2.2", "rank 1 belongs on node 2, this is node 1" },
		{ 0, "10.200.0.1", "10.200.1.1", "both ranks would run on node 1" },
		{ 0, "192.0.2.1:8700", "192.0.2.1:8700", "two ranks have this address" },
		{ 0, "192.0.2.1:0", "192.0.2.2", "the port is not 1 to 65535" },
		{ 0, "192.0.2.1:x", "192.0.2.2", "the port is not 1 to 65535" },
		{ 0, "192.0.2.1", "192.0.2.2:655360", "the port is not 1 to 65535" },
		{ 0, "fd00::1", "192.0.2.2", "this is not HOST:PORT" },
		{ 0, ":8700", "192.0.2.2", "this is not HOST:PORT" },
		{ 0, "0.0.0.0", "192.0.2.2", "other ranks cannot reach this address" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tp_conf c;
		struct ds_err err = { 0 };
		int rc = fill(&c, rows[i].rank, rows[i].a0, rows[i].a1, good_report, &err);
		if (rc != -1 || strcmp(err.why, rows[i].why) != 0)
			printf("   row %zu: %d, \"%s\"\n", i, rc, err.why);
		CU_ASSERT_EQUAL(rc, -1);
		CU_ASSERT_EQUAL(err.kind, DS_ERR_USAGE);
		CU_ASSERT_STRING_EQUAL(err.why, rows[i].why);
	}
}

static CU_TestInfo tp_tests[] = {
	{ "handshake: both sides prove themselves and share a fresh session", test_hs_good },
	{ "handshake: another secret is refused by name", test_hs_secret },
	{ "handshake: a changed byte anywhere authenticates nobody", test_hs_flips },
	{ "handshake: nothing can be reflected or moved", test_hs_reflected },
	{ "handshake: another version is named, garbage gets no answer", test_hs_version },
	{ "state: the differing key, both values and both ranks are named", test_state },
	{ "frame: round trip; every cut and every flipped bit is noticed", test_frame },
	{ "frame: status round trip and bounds", test_status },
	{ "host report: a pair's report is read", test_report },
	{ "host report: what is wrong is named by field", test_report_bad },
	{ "paths: rails of the peer's node, else rank.N", test_paths },
	{ "paths: contradictions are named", test_paths_bad },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo tp_suite = { .pName = "engine/tp", .pTests = tp_tests };
