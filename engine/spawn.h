/*
 * spawn.h - all ranks of a world forked on this machine, joined over loopback TCP.
 *
 * The parent is rank 0. Sockets and the secret are made before the fork, so nothing has to be told
 * and no port can be taken in between. Children die with their parent. Each child tells the parent
 * over a pipe that it is ready, or what went wrong: the first real cause is what the user reads, not
 * the loss of contact that follows from it.
 */
#ifndef ENG_SPAWN_H
#define ENG_SPAWN_H

#include <sys/types.h>

#include "tp.h"

struct spawn {
	uint32_t world;
	struct tp_conf conf; /* addresses, ports and secret; rank and sockets per rank */
	int listen_fd[TP_WORLD_MAX], path_fd[TP_WORLD_MAX];
	int report[TP_WORLD_MAX]; /* parent: read end; child: [own rank] is the write end */
	pid_t pid[TP_WORLD_MAX];  /* parent only; 0 = none */
};

/**
 * spawn_fork() - make sockets and secret, fork ranks 1 .. world - 1.
 * @s: out; spawn_end() in the parent, also after a failure
 * Return: this process's rank; -1 DS_ERR_HOST. Threads: start-up only, before any other thread.
 */
int spawn_fork(struct spawn *s, uint32_t world, struct ds_err *err);

/** spawn_tp() - what @rank passes to tp_open(); takes that rank's sockets out of @s. */
void spawn_tp(struct spawn *s, uint32_t rank, struct tp_conf *out);

/** spawn_report() - child: tell the parent of success (kind DS_ERR_NONE) or of a failure. */
void spawn_report(struct spawn *s, uint32_t rank, const struct ds_err *err);

/** spawn_ready() - parent: wait for every child's first report. Return: 0; -1 with the first failure. */
int spawn_ready(struct spawn *s, struct ds_err *err);

/**
 * spawn_end() - parent: wait for the children, 5 s at most, then kill them; close everything.
 * @err: this rank's failure so far, or kind DS_ERR_NONE; replaced by a child's when that is the
 *       cause (a child's own failure, where ours is only that we lost it)
 * Return: 0 when all ended well; -1.
 */
int spawn_end(struct spawn *s, struct ds_err *err);

#endif
