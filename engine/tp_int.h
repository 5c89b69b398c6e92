/*
 * tp_int.h - the inside of the tcp transport: what its files share.
 *
 *   tp_tcp.c   the calls of tp.h
 *   tp_form.c  forming the group: bootstrap connections, state, epoch
 *   tp_conn.c  connections: listening, dialling, handshakes
 *   tp_io.c    paths: reading, writing, timers, the pump
 *   tp_msg.c   messages: chunks, striping, acknowledgements, reassembly
 *
 * Everything below is covered by tp->lock. Whoever waits, the compute thread inside a call or the
 * I/O thread, runs tp_pump(), which gives the lock up only while it sleeps in epoll_wait(). The
 * compute thread pumps by itself while it waits, because a hand-over between threads costs more than
 * a small exchange; the I/O thread steps back as long as the compute thread pumps, and takes over
 * when it computes.
 */
#ifndef ENG_TP_INT_H
#define ENG_TP_INT_H

#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tp.h"
#include "tp_auth.h"
#include "tp_frame.h"

#define TP_PENDING_MAX	  16	  /* connections that have not proven themselves */
#define TP_AUTH_US	  2000000 /* how long one may take to do so */
#define TP_DIAL_US	  700000  /* connect and handshake of one attempt to a path */
#define TP_BOOT_DIAL_US	  2000000 /* the same for a bootstrap connection */
#define TP_BACKOFF_MAX_US 500000  /* between two attempts */
#define TP_HEARTBEAT_US	  250000
#define TP_RESEND_US	  250000      /* a chunk unacknowledged for so long takes another path */
#define TP_ACK_DELAY_US	  5000	      /* acknowledgements ride on data, or wait so long */
#define TP_STALL_US	  2000000     /* all ranks wait in one collective: nobody will move */
#define TP_WINDOW_BYTES	  (32u << 20) /* payload a receiver holds before anybody asks for it */
#define TP_WINDOW_OPS	  256	      /* messages, likewise */
#define TP_WINDOW_SEQS	  1024	      /* chunks sent and not acknowledged */
#define TP_TXQ_MAX	  (2 * TP_WINDOW_SEQS)
#define TP_RBUF_BYTES	  (2 * (TP_FRAME_HDR + TP_CHUNK_MAX))
#define TP_LISTEN_MAX	  (2 + TP_WORLD_MAX * TP_PATHS_MAX)
#define TP_SPARE_MAX	  8

/* One frame on its way out; a chunk keeps its bytes until the peer has acknowledged them. */
struct tp_chunk {
	struct tp_chunk *next; /* in the free list */
	uint64_t seq;	       /* 0: not a chunk, sent once */
	int64_t sent_us;
	uint32_t path;	       /* index of the path it went to last; TP_NO_PATH */
	uint32_t refs;	       /* queues, and the table of unacknowledged ones */
	uint32_t len, payload; /* bytes of the frame; of its payload if it is data */
	uint8_t frame[TP_FRAME_HDR + TP_CHUNK_MAX];
};
#define TP_NO_PATH UINT32_MAX

/* A connection being made by this rank. fd is -1 between attempts. */
struct tp_dial {
	int fd;
	bool connected;
	struct sockaddr_in src, dst;
	int64_t deadline, next_try, backoff_us;
	struct tp_hs hs;
	enum tp_refusal refusal; /* the last one; for messages */
	int sys;		 /* errno of the last attempt; for messages */
};

/* A connection that came in and has not proven itself. */
struct tp_pend {
	int fd;
	int64_t deadline;
	struct in_addr from;
	struct tp_hs hs;
};

struct tp_path {
	struct tp_path_conf conf;
	uint32_t peer, idx;
	enum tp_path_state state;
	int fd;	       /* -1 unless state is TP_PATH_OK */
	bool want_out; /* EPOLLOUT is armed */
	bool suspect;  /* a chunk stayed unacknowledged: others first */
	bool ever;     /* it was ok once in this group */
	struct tp_dial dial;
	int64_t since, last_rx, last_status, last_ack;
	uint8_t *rbuf; /* [TP_RBUF_BYTES] */
	size_t rlen;
	struct tp_chunk **txq; /* ring [TP_TXQ_MAX] */
	uint32_t txq_head, txq_n;
	size_t tx_off; /* bytes of the first frame that are out */
	uint64_t ack[TP_STATUS_ACKS_MAX];
	uint32_t n_ack;
	int64_t ack_since;
	bool credit_due;
	uint64_t
		sched_bytes; /* payload given to this path since the set of healthy paths changed */
	uint64_t tx_bytes, rx_bytes, resent;
	uint32_t downs;
	char why[96]; /* of the last time it went down */
};

/* A message on its way in. */
struct tp_rx {
	bool started;
	uint8_t kind;
	uint32_t total, got;
	uint8_t *buf; /* owned, if nobody had asked when it began */
	size_t cap;
	uint8_t *dest; /* the caller's; bytes count as taken from then on */
	size_t dest_len;
};

struct tp_peer {
	uint32_t rank;
	/* formation */
	int boot_fd;
	struct tp_dial boot_dial;
	uint8_t *boot_buf; /* [TP_BOOT_BYTES] */
	size_t boot_len;
	bool have_session, state_in;
	bool told; /* it was sent our refusal */
	uint8_t session[TP_AUTH_KEY_BYTES];
	uint32_t last_epoch;
	/* life */
	bool gone; /* said goodbye */
	uint32_t n_path;
	struct tp_path path[TP_PATHS_MAX];
	int64_t last_rx;
	uint32_t last_path;
	uint32_t waiting_ms; /* as of its last status */
	int64_t waiting_at;
	/* out */
	uint64_t next_seq, low_seq; /* low_seq: the oldest unacknowledged one */
	struct tp_chunk **unacked;  /* [TP_WINDOW_SEQS], by seq */
	uint64_t tx_op, tx_bytes, tx_op_limit, tx_byte_limit;
	/* in */
	uint64_t seen_low;		      /* every seq below was received */
	uint8_t seen[2 * TP_WINDOW_SEQS / 8]; /* bits from seen_low on, by seq */
	uint64_t rx_op;			      /* the next message to be handed out */
	uint64_t rx_taken;	       /* payload bytes handed out, or put where they belong */
	uint64_t rx_bytes;	       /* payload bytes received, repeats not counted */
	size_t early_bytes;	       /* in buffers of messages that came unasked */
	uint64_t told_bytes, told_ops; /* limits as told last */
	struct tp_rx rx[TP_WINDOW_OPS];
};

#define TP_BOOT_BYTES (2 * (TP_FRAME_HDR + 8 + TP_STATE_BYTES_MAX))

struct tp {
	pthread_mutex_t lock;
	pthread_cond_t io_cond;
	pthread_t thread;
	bool thread_on, stop, io_urgent;
	bool waiting;	   /* the compute thread is inside tp_pump() */
	int64_t last_pump; /* when it left it */
	struct tp_conf c;
	uint32_t epoch; /* 0 until the group agreed on one */
	bool formed;
	int epfd, wakefd;
	int listen_fd[TP_LISTEN_MAX];
	uint32_t n_listen;
	int64_t listen_resume; /* out of descriptors: listeners rest until then; 0 = they do not */
	int64_t timers_at;
	struct tp_pend pend[TP_PENDING_MAX];
	struct tp_peer *peer[TP_WORLD_MAX]; /* NULL at the own rank */
	struct tp_chunk *pool;
	struct {
		uint8_t *buf;
		size_t cap;
	} spare[TP_SPARE_MAX]; /* buffers for early messages */

	bool failed;
	struct ds_err fail;
	char culprit[128];
	uint64_t sent[TP_KINDS];
	uint64_t n_call;      /* collectives begun */
	enum tp_kind in_kind; /* of the present one */
	bool in_call;
	int64_t wait_since; /* when the present collective began to wait; 0 = it does not */
	int64_t stall_since;
	char last_call[48]; /* the last one that was completed, in words */

	/* refusals of strangers while forming; for the timeout's message */
	char refusal[384]; /* why this rank gives up, for the others; "" = it does not */
	int64_t refused_at;
	uint32_t n_refused;
	enum tp_refusal last_refusal;
	struct in_addr last_refused;
};

/* tp_tcp.c */
int64_t tp_now_us(void);
/** tp_fail() - the group is over: every pending and later call returns @err. Only the first counts. */
void tp_fail(struct tp *tp, const struct ds_err *err);
/** tp_fail_peer() - the same for a rank that is lost or breaks the protocol. */
void tp_fail_peer(struct tp *tp, const struct tp_peer *p, const char *why);

/* tp_io.c */
/** tp_pump() - wait at most @timeout_ms for something to happen, and do what is due. Lock held. */
void tp_pump(struct tp *tp, int timeout_ms);
/** tp_wait() - the compute thread waits for something to happen, a moment at most. Lock held. */
void tp_wait(struct tp *tp);
/** tp_io_main() - the I/O thread. @arg: struct tp. */
void *tp_io_main(void *arg);
/** tp_watch() - put a descriptor under epoll. Return: 0; -1 with errno. */
int tp_watch(struct tp *tp, int fd, uint32_t events, uint32_t what, uint32_t index);
/** tp_close_fd() - close and mark closed; -1 is allowed. */
void tp_close_fd(int *fd);
void tp_path_down(struct tp *tp, struct tp_path *pa, const char *why);
/** tp_path_flush() - write what the socket takes. */
void tp_path_flush(struct tp *tp, struct tp_path *pa);
/** tp_path_status() - queue heartbeat, acknowledgements and credit. */
void tp_path_status(struct tp *tp, struct tp_path *pa, int64_t now);
/** tp_io_close() - close every descriptor. */
void tp_io_close(struct tp *tp);

/** tp_path_adopt() - @fd has proven to be the connection of @pa. Takes @fd. */
void tp_path_adopt(struct tp *tp, struct tp_path *pa, int fd);
/** tp_path_index() - the index of its epoll events. */
uint32_t tp_path_index(const struct tp_path *pa);

/* tp_conn.c */
/** tp_listen_all() - open what tp_conf does not bring. Return: 0; -1 DS_ERR_HOST. */
int tp_listen_all(struct tp *tp, struct ds_err *err);
/** tp_listeners_rest() - stop listening for a moment, or go on. */
void tp_listeners_rest(struct tp *tp, bool rest);
/** tp_accept() - somebody knocks. */
void tp_accept(struct tp *tp, int listen_fd);
/** tp_pend_input() / tp_pend_drop() - a stranger says something; hang up. */
void tp_pend_input(struct tp *tp, struct tp_pend *pe);
void tp_pend_drop(struct tp_pend *pe);
/** tp_dial_init() - from @src (0.0.0.0: the kernel chooses) to @dst; nothing is begun yet. */
void tp_dial_init(struct tp_dial *d, struct in_addr src, const struct sockaddr_in *dst);
/** tp_dial_event() - the connection to @p made progress. @pa: NULL for the bootstrap connection. */
void tp_dial_event(struct tp *tp, struct tp_peer *p, struct tp_path *pa);
/** tp_dial_timer() - begin an attempt, or give one up. @what, @index: of its epoll events. */
void tp_dial_timer(struct tp *tp, struct tp_dial *d, uint32_t what, uint32_t index, int64_t now);

/* What an epoll event is about. */
enum tp_watch {
	TP_ON_WAKE,
	TP_ON_LISTEN,
	TP_ON_PEND,
	TP_ON_BOOT,
	TP_ON_BOOT_DIAL,
	TP_ON_PATH,
	TP_ON_PATH_DIAL
};

/* tp_form.c */
/** tp_form() - until the group stands. Lock held. */
int tp_form(struct tp *tp, struct ds_err *err);
/** tp_form_boot() - a bootstrap connection has proven itself. Takes @fd. */
void tp_form_boot(struct tp *tp, struct tp_peer *p, int fd,
		  const uint8_t session[TP_AUTH_KEY_BYTES]);
/** tp_form_input() - a bootstrap connection has something to read. */
void tp_form_input(struct tp *tp, struct tp_peer *p);
/** tp_form_refused() - the listener of @p refused this rank. */
void tp_form_refused(struct tp *tp, struct tp_peer *p, const struct tp_hs *hs);
/** tp_form_done() - close the bootstrap connections. */
void tp_form_done(struct tp *tp);

/* tp_msg.c */
/** tp_msg_init() / tp_msg_fini() - tables of one peer. */
int tp_msg_init(struct tp_peer *p);
void tp_msg_fini(struct tp *tp, struct tp_peer *p);
/** tp_msg_send() - cut @data into chunks and queue them; waits for room. Return: 0; -1 failed. */
int tp_msg_send(struct tp *tp, struct tp_peer *p, enum tp_kind kind, const void *data, size_t len);
/** tp_msg_post() - say where the next message of @p goes. */
void tp_msg_post(struct tp *tp, struct tp_peer *p, void *dest, size_t len);
/** tp_msg_next() - the slot of the next message of @p. Return: view, valid until it is taken. */
struct tp_rx *tp_msg_next(struct tp_peer *p);
/** tp_msg_here() - the next message of @p is complete. */
bool tp_msg_here(struct tp_peer *p);
/** tp_msg_take() - finish the next message, which is here and was posted. */
void tp_msg_take(struct tp *tp, struct tp_peer *p);
/** tp_msg_unpost() - the caller's buffer must not be touched any longer. */
void tp_msg_unpost(struct tp_peer *p);
/** tp_msg_data() / tp_msg_status() - a frame arrived on @pa. Return: NULL, or what is wrong with it. */
const char *tp_msg_data(struct tp *tp, struct tp_path *pa, const struct tp_frame *f, int64_t now);
const char *tp_msg_status(struct tp *tp, struct tp_path *pa, const struct tp_frame *f, int64_t now);
/** tp_msg_path_up() / tp_msg_path_lost() - chunks move to where they can travel. */
void tp_msg_path_up(struct tp *tp, struct tp_peer *p);
void tp_msg_path_lost(struct tp *tp, struct tp_path *pa);
/** tp_msg_overdue() - chunks that stayed unacknowledged for too long take another path. */
void tp_msg_overdue(struct tp *tp, struct tp_peer *p, int64_t now);
/** tp_chunk_new() - Returns a frame with one reference; NULL without memory. */
struct tp_chunk *tp_chunk_new(struct tp *tp);
void tp_chunk_put(struct tp *tp, struct tp_chunk *c);
/** tp_txq_push() - takes a reference of its own. Return: 0; -1 if the queue is full. */
int tp_txq_push(struct tp_path *pa, struct tp_chunk *c);

#endif
