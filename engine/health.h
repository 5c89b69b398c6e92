/*
 * health.h - what /health says: the state that the owner thread sets, and the paths as the
 * transport sees them at the moment of asking.
 *
 * The owner thread lends the group to this object and takes it back before it closes it, so that
 * HTTP threads never look at a closed one.
 */
#ifndef ENG_HEALTH_H
#define ENG_HEALTH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "tp.h"

enum health_status {
	HEALTH_LOADING,	 /* never ready so far */
	HEALTH_OK,	 /* answers; the paths may make it "degraded" */
	HEALTH_DRAINING, /* told to stop */
	HEALTH_FAILED	 /* a rank is lost; waiting for it */
};

struct health {
	pthread_mutex_t lock; /* covers everything below */
	enum health_status status;
	uint32_t world, epoch;
	struct tp *tp;	       /* lent; NULL while there is no group */
	struct tp_health last; /* of the group that failed, kept until the next one stands */
	int64_t last_ms;       /* CLOCK_MONOTONIC when it was taken */
	bool has_last;
	char why[512];	  /* of LOADING and FAILED, in words; "" = nothing to add */
	int64_t since_ms; /* CLOCK_MONOTONIC of the last change of status */
};

/** health_init() - LOADING. Return: 0; -1 DS_ERR_NOMEM. */
int health_init(struct health *h, uint32_t world, struct ds_err *err);
void health_fini(struct health *h);

/** health_set() - a new status; @why: NULL = nothing to add. Threads: any thread. */
void health_set(struct health *h, enum health_status status, const struct ds_err *why);
/** health_lend() - @tp may be asked from now on; NULL takes it back. Threads: any thread. */
void health_lend(struct health *h, struct tp *tp);
/** health_group_failed() - whether the lent group lost a rank. Threads: any thread. */
bool health_group_failed(struct health *h, struct tp_health *out);

/**
 * health_put() - the JSON object of design.md 4.1.
 * @word_only: leave out everything but the status (for clients without a key)
 * Return: the HTTP status: 200 for ok and degraded, else 503. Threads: any thread.
 */
unsigned int health_put(struct health *h, bool word_only, struct ds_buf *out);

#endif
