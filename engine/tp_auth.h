/*
 * tp_auth.h - who may join: the handshake that opens every connection between ranks.
 *
 * Four messages, the connector speaks first and proves itself first, so that a stranger never gets
 * a MAC out of a rank:
 *
 *   connector -> listener   hello   kind, ranks, world, epoch, path, nonce
 *   listener  -> connector  hello   the same with the roles turned, its own nonce
 *   connector -> listener   proof   HMAC-SHA-256(key, "connector", both hellos)
 *   listener  -> connector  proof   HMAC-SHA-256(key, "listener", both hellos), or a refusal
 *
 * The key is the shared secret for a bootstrap connection, and the pair's session key for a path
 * connection. Since roles, ranks, epoch, path and both nonces are under the MAC, nothing of one
 * connection can be used on another one, nor be sent back to where it came from. This file sees
 * bytes only; sockets, deadlines and the number of pending connections are tp_conn.c's.
 */
#ifndef ENG_TP_AUTH_H
#define ENG_TP_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "tp.h"

#define TP_AUTH_VERSION	  1
#define TP_AUTH_KEY_BYTES 32
#define TP_HELLO_BYTES	  80
#define TP_PROOF_BYTES	  40
#define TP_REFUSAL_BYTES  8

enum tp_hello_kind {
	TP_HELLO_BOOT,
	TP_HELLO_PATH
};

/* What the connector says about the connection. */
struct tp_hello {
	enum tp_hello_kind kind;
	uint32_t from, to; /* ranks: the connector's, the listener's */
	uint32_t world;
	uint32_t epoch; /* 0 on bootstrap connections */
	char path[32];	/* name of the path; "" on bootstrap connections */
};

enum tp_refusal {
	TP_REFUSE_NONE,
	TP_REFUSE_GARBAGE,   /* no handshake at all: closed without an answer */
	TP_REFUSE_VERSION,   /* another protocol version */
	TP_REFUSE_SECRET,    /* the proof is wrong: another secret or session */
	TP_REFUSE_REFLECTED, /* our own role or nonce came back */
	TP_REFUSE_EPOCH,     /* a connection of an earlier (or unknown) group */
	TP_REFUSE_DUPLICATE, /* that rank is connected already */
	TP_REFUSE_RANK,	     /* addressed to another rank, or from one that may not connect here */
	TP_REFUSE_WORLD,     /* another number of ranks */
	TP_REFUSE_PATH,	     /* no such path between the two */
	TP_REFUSE_NOT_READY, /* the group is not that far yet: try again */
	TP_REFUSALS
};

enum tp_hs_result {
	TP_HS_MORE,	/* send what is in out, then read more */
	TP_HS_VERIFIED, /* listener only: the connector proved itself, call tp_hs_finish() */
	TP_HS_DONE,	/* both sides are proven; session holds the derived key */
	TP_HS_REFUSED	/* refusal says why; send what is in out, then close */
};

/**
 * tp_hs_key_fn - listener: which key must the connector of @h know?
 * @key: out. Return: TP_REFUSE_NONE, or the reason to refuse it before any proof.
 */
typedef enum tp_refusal (*tp_hs_key_fn)(void *arg, const struct tp_hello *h,
					uint8_t key[TP_AUTH_KEY_BYTES]);

struct tp_hs {
	bool connector;
	bool by_peer;		   /* the refusal came from the other side */
	unsigned int peer_version; /* of a version refusal */
	enum tp_refusal refusal;
	struct tp_hello hello;
	uint8_t session[TP_AUTH_KEY_BYTES];
	uint8_t out[TP_HELLO_BYTES]; /* to be sent now; emptied by the caller (n_out = 0) */
	size_t n_out;

	/* private */
	int stage;
	tp_hs_key_fn key_fn;
	void *arg;
	uint8_t key[TP_AUTH_KEY_BYTES];
	uint8_t mine[TP_HELLO_BYTES], theirs[TP_HELLO_BYTES];
	uint8_t in[TP_HELLO_BYTES];
	size_t n_in;
};

/** tp_hs_connect() - begin as connector; out holds the first message. Return: 0; -1 (random bytes). */
int tp_hs_connect(struct tp_hs *hs, const struct tp_hello *h, const uint8_t key[TP_AUTH_KEY_BYTES],
		  struct ds_err *err);
/** tp_hs_listen() - begin as listener. @fn: borrowed with @arg until the handshake ends. */
int tp_hs_listen(struct tp_hs *hs, tp_hs_key_fn fn, void *arg, struct ds_err *err);
/**
 * tp_hs_want() - how many bytes to read next, 1..TP_HELLO_BYTES; never a byte beyond the handshake,
 * so at most 120 bytes are taken from a connection that has not proven itself.
 */
size_t tp_hs_want(const struct tp_hs *hs);
/** tp_hs_feed() - @n <= tp_hs_want() bytes that arrived. */
enum tp_hs_result tp_hs_feed(struct tp_hs *hs, const uint8_t *data, size_t n);
/** tp_hs_finish() - listener, after VERIFIED: accept (NONE) or refuse. Return: DONE or REFUSED. */
enum tp_hs_result tp_hs_finish(struct tp_hs *hs, enum tp_refusal refusal);
/** tp_hs_wipe() - forget the keys. */
void tp_hs_wipe(struct tp_hs *hs);

/** tp_refusal_text() - static words, to stand behind "refused: ". */
const char *tp_refusal_text(enum tp_refusal r);

/**
 * tp_state_diff() - compare the "key=value" lines of two ranks.
 * Return: 0 equal (in any order); -1 with DS_ERR_PEER naming the first differing key, both values,
 * both ranks.
 */
int tp_state_diff(const char *a, uint32_t rank_a, const char *b, uint32_t rank_b,
		  struct ds_err *err);

#endif
