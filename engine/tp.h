/*
 * tp.h - moving bytes between ranks: group formation, exchange, broadcast, path health.
 *
 * A group is `world` ranks, one process each, connected by one or more *paths* per peer. A message
 * survives the loss of a path: chunks stay with the sender until they are acknowledged and are sent
 * again on another path; the receiver drops repeats. A transport never adds numbers: who needs a sum
 * calls kern_leaf_sum() on what arrived, so every transport gives the same bits.
 *
 * Threads: every call below is for the rank's compute thread (one), except tp_health(), which any
 * thread may call. An I/O thread inside moves frames and heartbeats, so a rank that computes for
 * long is not lost.
 */
#ifndef ENG_TP_H
#define ENG_TP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define TP_WORLD_MAX	   4
#define TP_PATHS_MAX	   4
#define TP_SECRET_BYTES	   32
#define TP_STATE_BYTES_MAX 4096

/* One end-to-end way to a peer. Addresses are this rank's and the peer's, IPv4. */
struct tp_path_conf {
	char name[32];		      /* "rail0", "rail1", or "rank" without a host report */
	char netdev[16];	      /* for messages; "" if unknown */
	struct in_addr local, remote; /* local 0.0.0.0 = let the kernel choose */
};

struct tp_peer_conf {
	struct sockaddr_in addr; /* rank.N of the config: bootstrap address */
	uint32_t n_path;	 /* >= 1 */
	struct tp_path_conf path[TP_PATHS_MAX];
};

struct tp_conf {
	uint32_t rank, world;
	uint8_t secret[TP_SECRET_BYTES];
	struct tp_peer_conf peer[TP_WORLD_MAX]; /* [rank] is this rank's own bootstrap address */
	uint16_t path_port[TP_WORLD_MAX];	/* path listener of rank r (8700 + r by default) */
	int listen_fd, path_listen_fd; /* already listening sockets (taken), or -1: open them */
	/*
	 * What both sides must agree on, as "key=value" lines (version, model digest, numerics, leaves,
	 * kernel set, constants hash, world, plan). A difference is a refusal that names the key, both
	 * values and both ranks.
	 */
	char state[TP_STATE_BYTES_MAX];
	uint32_t connect_ms;   /* deadline for forming the group, e.g. 30,000 */
	uint32_t path_dead_ms; /* a path without a frame for so long is down (default 750) */
	uint32_t rank_lost_ms; /* a rank without a frame on its last path (default 1,500) */
};

struct tp;

/**
 * tp_open() - form the group: authenticate, compare state, connect every path. Blocks until all
 * peers are there or @connect_ms passed.
 * @c: copied; its sockets are taken in every case. Returns owned (tp_close()); NULL with DS_ERR_PEER (refusal, names both sides),
 * DS_ERR_TIMEOUT (names the ranks that are missing and their addresses), DS_ERR_HOST.
 */
struct tp *tp_open(const struct tp_conf *c, struct ds_err *err);
/** tp_close() - say goodbye to the peers and free; NULL is allowed. Peers see an orderly end. */
void tp_close(struct tp *tp);

uint32_t tp_rank(const struct tp *tp);
uint32_t tp_world(const struct tp *tp);

/**
 * tp_exchange() - all to all: every rank sends the same @len bytes to every other rank.
 * @kind: what for; counted separately
 * @recv: [world]; [r] receives rank r's bytes; [own rank] is ignored; a NULL entry is an error
 * @recv_len: [world] bytes that rank r sends; 0 = it sends nothing (and nothing is awaited)
 * Return: 0; -1 with DS_ERR_PEER naming the lost rank, its last path and the collective.
 */
enum tp_kind {
	TP_REDUCE,
	TP_ENGRAM,
	TP_HEAD,
	TP_CONTROL,
	TP_KINDS
};
int tp_exchange(struct tp *tp, enum tp_kind kind, const void *send, size_t len, void *const *recv,
		const size_t *recv_len, struct ds_err *err);

/**
 * tp_send() / tp_recv() - one message to or from one rank, in order per direction.
 * @len: bytes, at most 256 MiB; must match on both sides; 0 = nothing is sent or awaited
 *
 * tp_send() copies and returns; it waits only for a receiver that is 32 MiB or 256 messages behind.
 */
int tp_send(struct tp *tp, enum tp_kind kind, uint32_t to, const void *data, size_t len,
	    struct ds_err *err);
int tp_recv(struct tp *tp, enum tp_kind kind, uint32_t from, void *data, size_t len,
	    struct ds_err *err);

/**
 * tp_recv_any() - wait for a control message of variable length from rank 0 (an idle rank's loop).
 * @buf: [cap]; @len: out. @stop: polled at least every 250 ms; true ends the wait with return 1.
 * Return: 0; 1 stopped or the peer closed in an orderly way; -1 on error.
 */
int tp_recv_any(struct tp *tp, uint32_t from, void *buf, size_t cap, size_t *len,
		bool (*stop)(void *), void *arg, struct ds_err *err);

enum tp_path_state {
	TP_PATH_CONNECTING,
	TP_PATH_OK,
	TP_PATH_DOWN
};

struct tp_path_health {
	char name[32], netdev[16];
	enum tp_path_state state;
	uint64_t tx_bytes, rx_bytes; /* payload of data chunks on this path */
	uint64_t resent;  /* chunks sent again because another path went down, or was silent */
	uint32_t downs;	  /* times it went from ok to down */
	int64_t since_ms; /* milliseconds in the present state */
};

struct tp_peer_health {
	uint32_t rank;
	bool lost;
	uint32_t n_path;
	uint32_t last_path; /* index of the one that its last frame came on */
	struct tp_path_health path[TP_PATHS_MAX];
};

struct tp_health {
	uint32_t world, epoch;
	uint32_t n_peer;
	struct tp_peer_health peer[TP_WORLD_MAX];
	uint64_t sent
		[TP_KINDS]; /* payload bytes that this rank handed in, per kind, once per peer */
	bool degraded;	    /* a path is not ok; the rank behind it may be */
	bool failed;	    /* a rank is lost */
	char culprit[128];  /* rank, path and last collective, in words; "" if none */
	char last_call[48]; /* the last collective that was completed; "" if none was */
};

/** tp_health() - a snapshot. Threads: any thread. */
void tp_health(struct tp *tp, struct tp_health *out);

#endif
