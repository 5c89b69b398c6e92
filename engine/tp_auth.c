/*
 * tp_auth.c - the handshake's bytes and proofs, and the comparison of two ranks' state texts.
 */
#include "tp_auth.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

/* Every message begins with magic (4), version (2), type, code. */
#define PREFIX 8
static const uint8_t magic[4] = { 'D', 'S', 'T', 'P' };

enum {
	MSG_CONNECT = 1, /* + enum tp_hello_kind * 2 */
	MSG_LISTEN = 2,	 /* + enum tp_hello_kind * 2 */
	MSG_PROOF = 8,
	MSG_REFUSE = 9,
};

/* Offsets in a hello. */
enum {
	AT_VERSION = 4,
	AT_TYPE = 6,
	AT_CODE = 7,
	AT_WORLD = 8,
	AT_FROM = 9,
	AT_TO = 10,
	AT_EPOCH = 12,
	AT_PATH = 16,
	AT_NONCE = 48,
};

enum {
	STAGE_HELLO,
	STAGE_PROOF,
	STAGE_FINISH,
	STAGE_OVER
};

static void put_prefix(uint8_t *p, uint8_t type, uint8_t code)
{
	memcpy(p, magic, sizeof(magic));
	p[AT_VERSION] = TP_AUTH_VERSION & 0xff;
	p[AT_VERSION + 1] = TP_AUTH_VERSION >> 8;
	p[AT_TYPE] = type;
	p[AT_CODE] = code;
}

/* The nonce is already in place. */
static void put_hello(uint8_t *p, const struct tp_hello *h, uint8_t role, uint32_t from,
		      uint32_t to)
{
	put_prefix(p, (uint8_t)(role + 2 * h->kind), 0);
	p[AT_WORLD] = (uint8_t)h->world;
	p[AT_FROM] = (uint8_t)from;
	p[AT_TO] = (uint8_t)to;
	p[AT_TO + 1] = 0;
	for (int i = 0; i < 4; i++)
		p[AT_EPOCH + i] = (uint8_t)(h->epoch >> (8 * i));
	memcpy(p + AT_PATH, h->path, sizeof(h->path));
}

static void get_hello(const uint8_t *p, struct tp_hello *h)
{
	*h = (struct tp_hello){
		.kind = p[AT_TYPE] > 2 ? TP_HELLO_PATH : TP_HELLO_BOOT,
		.world = p[AT_WORLD],
		.from = p[AT_FROM],
		.to = p[AT_TO],
	};
	for (int i = 0; i < 4; i++)
		h->epoch |= (uint32_t)p[AT_EPOCH + i] << (8 * i);
	memcpy(h->path, p + AT_PATH, sizeof(h->path) - 1);
}

/* Return: false when the library has no memory for it; then nobody is let in, but may try again. */
static bool mac(const struct tp_hs *hs, const char *label, uint8_t out[TP_AUTH_KEY_BYTES])
{
	uint8_t text[16 + 2 * TP_HELLO_BYTES] = { 0 };
	const uint8_t *c = hs->connector ? hs->mine : hs->theirs;
	const uint8_t *l = hs->connector ? hs->theirs : hs->mine;
	snprintf((char *)text, 16, "%s", label);
	memcpy(text + 16, c, TP_HELLO_BYTES);
	memcpy(text + 16 + TP_HELLO_BYTES, l, TP_HELLO_BYTES);
	unsigned int n = TP_AUTH_KEY_BYTES;
	if (HMAC(EVP_sha256(), hs->key, TP_AUTH_KEY_BYTES, text, sizeof(text), out, &n) != NULL)
		return true;
	ERR_clear_error(); /* its texts would stay for the life of the thread */
	return false;
}

static bool put_proof(struct tp_hs *hs, const char *label)
{
	put_prefix(hs->out, MSG_PROOF, 0);
	hs->n_out = TP_PROOF_BYTES;
	return mac(hs, label, hs->out + PREFIX);
}

static int fresh(struct tp_hs *hs, struct ds_err *err)
{
	*hs = (struct tp_hs){ 0 };
	if (RAND_bytes(hs->mine + AT_NONCE, TP_HELLO_BYTES - AT_NONCE) == 1)
		return 0;
	ERR_clear_error();
	return ds_err_set(err, DS_ERR_HOST, 0, NULL, "draw random bytes for a handshake");
}

int tp_hs_connect(struct tp_hs *hs, const struct tp_hello *h, const uint8_t key[TP_AUTH_KEY_BYTES],
		  struct ds_err *err)
{
	if (fresh(hs, err) != 0)
		return -1;
	hs->connector = true;
	hs->hello = *h;
	memcpy(hs->key, key, TP_AUTH_KEY_BYTES);
	put_hello(hs->mine, h, MSG_CONNECT, h->from, h->to);
	memcpy(hs->out, hs->mine, TP_HELLO_BYTES);
	hs->n_out = TP_HELLO_BYTES;
	return 0;
}

int tp_hs_listen(struct tp_hs *hs, tp_hs_key_fn fn, void *arg, struct ds_err *err)
{
	if (fresh(hs, err) != 0)
		return -1;
	hs->key_fn = fn;
	hs->arg = arg;
	return 0;
}

/* Length of the message whose prefix is there. */
static size_t message_bytes(const struct tp_hs *hs)
{
	if (hs->in[AT_TYPE] == MSG_REFUSE)
		return TP_REFUSAL_BYTES;
	return hs->stage == STAGE_HELLO ? TP_HELLO_BYTES : TP_PROOF_BYTES;
}

size_t tp_hs_want(const struct tp_hs *hs)
{
	return (hs->n_in < PREFIX ? PREFIX : message_bytes(hs)) - hs->n_in;
}

static enum tp_hs_result refuse(struct tp_hs *hs, enum tp_refusal r)
{
	hs->refusal = r;
	hs->stage = STAGE_OVER;
	hs->n_out = 0;
	/* Whoever does not speak the protocol gets no answer; a connector just hangs up. */
	if (!hs->connector && r != TP_REFUSE_GARBAGE) {
		put_prefix(hs->out, MSG_REFUSE, (uint8_t)r);
		hs->n_out = TP_REFUSAL_BYTES;
	}
	return TP_HS_REFUSED;
}

/* The first eight bytes of a message: is it one, and of this stage? */
static enum tp_refusal check_prefix(struct tp_hs *hs)
{
	const uint8_t *p = hs->in;
	if (memcmp(p, magic, sizeof(magic)) != 0)
		return TP_REFUSE_GARBAGE;
	hs->peer_version = p[AT_VERSION] | (unsigned int)p[AT_VERSION + 1] << 8;
	if (hs->connector && p[AT_TYPE] == MSG_REFUSE) {
		hs->by_peer = true;
		return p[AT_CODE] > TP_REFUSE_GARBAGE && p[AT_CODE] < TP_REFUSALS
			       ? (enum tp_refusal)p[AT_CODE]
			       : TP_REFUSE_GARBAGE;
	}
	if (hs->peer_version != TP_AUTH_VERSION)
		return TP_REFUSE_VERSION;
	if (hs->stage == STAGE_PROOF)
		return p[AT_TYPE] == MSG_PROOF ? TP_REFUSE_NONE : TP_REFUSE_GARBAGE;
	uint8_t want = hs->connector ? MSG_LISTEN : MSG_CONNECT;
	uint8_t other = hs->connector ? MSG_CONNECT : MSG_LISTEN;
	if (p[AT_TYPE] == other || p[AT_TYPE] == other + 2)
		return TP_REFUSE_REFLECTED;
	if (p[AT_TYPE] != want && p[AT_TYPE] != want + 2)
		return TP_REFUSE_GARBAGE;
	return TP_REFUSE_NONE;
}

static enum tp_hs_result take_hello(struct tp_hs *hs)
{
	struct tp_hello h;
	memcpy(hs->theirs, hs->in, TP_HELLO_BYTES);
	get_hello(hs->theirs, &h);
	if (hs->connector) {
		if (CRYPTO_memcmp(hs->theirs + AT_NONCE, hs->mine + AT_NONCE,
				  TP_HELLO_BYTES - AT_NONCE) == 0)
			return refuse(hs, TP_REFUSE_REFLECTED);
		if (h.kind != hs->hello.kind || h.from != hs->hello.to || h.to != hs->hello.from)
			return refuse(hs, TP_REFUSE_RANK);
		if (h.world != hs->hello.world)
			return refuse(hs, TP_REFUSE_WORLD);
		if (!put_proof(hs, "connector"))
			return refuse(hs, TP_REFUSE_NOT_READY);
	} else {
		hs->hello = h;
		enum tp_refusal r = hs->key_fn(hs->arg, &h, hs->key);
		if (r != TP_REFUSE_NONE)
			return refuse(hs, r);
		put_hello(hs->mine, &h, MSG_LISTEN, h.to, h.from);
		memcpy(hs->out, hs->mine, TP_HELLO_BYTES);
		hs->n_out = TP_HELLO_BYTES;
	}
	hs->stage = STAGE_PROOF;
	return TP_HS_MORE;
}

static enum tp_hs_result take_proof(struct tp_hs *hs)
{
	uint8_t want[TP_AUTH_KEY_BYTES];
	if (!mac(hs, hs->connector ? "listener" : "connector", want))
		return refuse(hs, TP_REFUSE_NOT_READY);
	bool good = CRYPTO_memcmp(want, hs->in + PREFIX, sizeof(want)) == 0;
	OPENSSL_cleanse(want, sizeof(want));
	if (!good)
		return refuse(hs, TP_REFUSE_SECRET);
	if (!mac(hs, "session", hs->session))
		return refuse(hs, TP_REFUSE_NOT_READY);
	hs->stage = hs->connector ? STAGE_OVER : STAGE_FINISH;
	return hs->connector ? TP_HS_DONE : TP_HS_VERIFIED;
}

enum tp_hs_result tp_hs_feed(struct tp_hs *hs, const uint8_t *data, size_t n)
{
	if (hs->stage >= STAGE_FINISH || n > tp_hs_want(hs))
		return refuse(hs, TP_REFUSE_GARBAGE);
	memcpy(hs->in + hs->n_in, data, n);
	hs->n_in += n;
	if (hs->n_in < PREFIX)
		return TP_HS_MORE;
	enum tp_refusal r = check_prefix(hs);
	if (r != TP_REFUSE_NONE)
		return refuse(hs, r);
	if (hs->n_in < message_bytes(hs))
		return TP_HS_MORE;
	hs->n_in = 0;
	return hs->stage == STAGE_HELLO ? take_hello(hs) : take_proof(hs);
}

enum tp_hs_result tp_hs_finish(struct tp_hs *hs, enum tp_refusal refusal)
{
	if (hs->stage != STAGE_FINISH)
		return refuse(hs, TP_REFUSE_GARBAGE);
	if (refusal != TP_REFUSE_NONE)
		return refuse(hs, refusal);
	if (!put_proof(hs, "listener"))
		return refuse(hs, TP_REFUSE_NOT_READY);
	hs->stage = STAGE_OVER;
	return TP_HS_DONE;
}

void tp_hs_wipe(struct tp_hs *hs)
{
	OPENSSL_cleanse(hs->key, sizeof(hs->key));
	OPENSSL_cleanse(hs->session, sizeof(hs->session));
}

const char *tp_refusal_text(enum tp_refusal r)
{
	static const char *const text[TP_REFUSALS] = {
		[TP_REFUSE_NONE] = "nothing",
		[TP_REFUSE_GARBAGE] = "what came is no handshake of this program",
		[TP_REFUSE_VERSION] = "the other side speaks another protocol version",
		[TP_REFUSE_SECRET] = "the shared secret differs",
		[TP_REFUSE_REFLECTED] = "our own handshake was reflected to us",
		[TP_REFUSE_EPOCH] = "the connection belongs to a stale epoch",
		[TP_REFUSE_DUPLICATE] = "that rank is connected already (duplicate rank)",
		[TP_REFUSE_RANK] = "the rank numbers do not fit this connection",
		[TP_REFUSE_WORLD] = "the number of ranks (world) differs",
		[TP_REFUSE_PATH] = "the two ranks know no path of that name",
		[TP_REFUSE_NOT_READY] = "the group is still forming",
	};
	return (unsigned int)r < TP_REFUSALS ? text[r] : "an unknown reason";
}

/* ------------------------------------------------------------------------------------------ */

/* Finds "key=" at the start of a line; the value ends at the newline or the end. */
static const char *state_value(const char *text, const char *key, size_t n_key, size_t *n)
{
	for (const char *line = text; line != NULL && *line != '\0';) {
		const char *end = strchrnul(line, '\n');
		if ((size_t)(end - line) > n_key && line[n_key] == '=' &&
		    memcmp(line, key, n_key) == 0) {
			*n = (size_t)(end - line) - n_key - 1;
			return line + n_key + 1;
		}
		line = *end == '\n' ? end + 1 : NULL;
	}
	*n = 0;
	return NULL;
}

static int state_differs(const char *key, size_t n_key, const char *va, size_t na, uint32_t rank_a,
			 const char *vb, size_t nb, uint32_t rank_b, struct ds_err *err)
{
	ds_err_set(err, DS_ERR_PEER, 0, NULL, "form the group: ranks %u and %u differ in %.*s",
		   rank_a, rank_b, (int)(n_key < 40 ? n_key : 40), key);
	ds_err_why(err, "%.*s is \"%.*s\" on rank %u and \"%.*s\" on rank %u",
		   (int)(n_key < 40 ? n_key : 40), key, (int)(na < 80 ? na : 80),
		   va != NULL ? va : "", rank_a, (int)(nb < 80 ? nb : 80), vb != NULL ? vb : "",
		   rank_b);
	return ds_err_fix(err, "start all ranks with the same program, model and options");
}

/* Every key of @a must have the same value in @b. */
static int one_way(const char *a, uint32_t rank_a, const char *b, uint32_t rank_b,
		   struct ds_err *err)
{
	for (const char *line = a; line != NULL && *line != '\0';) {
		const char *end = strchrnul(line, '\n');
		const char *eq = memchr(line, '=', (size_t)(end - line));
		size_t n_key = (size_t)((eq != NULL ? eq : end) - line), na, nb;
		const char *va = state_value(a, line, n_key, &na);
		const char *vb = state_value(b, line, n_key, &nb);
		if (n_key > 0 && (va == NULL || vb == NULL || na != nb || memcmp(va, vb, na) != 0))
			return state_differs(line, n_key, va, na, rank_a, vb, nb, rank_b, err);
		line = *end == '\n' ? end + 1 : NULL;
	}
	return 0;
}

int tp_state_diff(const char *a, uint32_t rank_a, const char *b, uint32_t rank_b,
		  struct ds_err *err)
{
	if (one_way(a, rank_a, b, rank_b, err) != 0)
		return -1;
	return one_way(b, rank_b, a, rank_a, err);
}
