/*
 * watch.h - the management interface: what it had before an apply, and whether it still has it.
 */
#ifndef PREP_WATCH_H
#define PREP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "access.h"
#include "host.h"

#define PREP_WATCH_LOST_MS 2000 /* gone for longer than this at a stretch is lost */

struct prep_watch {
	struct prep_access *access; /* borrowed */
	struct prep_link link;	    /* as before */
	uint32_t n_addr, n_route;
	struct prep_addr *addr; /* owned; addresses it had */
	struct prep_route
		*route;	       /* owned; its routes of the main table; of IPv6 the default ones */
	int64_t gone_since_ms; /* CLOCK_BOOTTIME; 0 = all is there */
	char gone[160];	       /* what is missing, for the message */
};

/** prep_watch_begin() - remember what @ifname has in @h. Return: 0; -1 (no such interface, NOMEM). */
int prep_watch_begin(struct prep_watch *w, struct prep_access *a, const struct prep_host *h,
		     const char *ifname, struct ds_err *err);
void prep_watch_end(struct prep_watch *w);

/**
 * prep_watch_look() - look once. Call it at least every few hundred milliseconds.
 * Return: true if something it had has been gone for more than PREP_WATCH_LOST_MS at every look
 * since; @w->gone says what. What cannot be read counts as gone: nobody knows that it is there.
 */
bool prep_watch_look(struct prep_watch *w);

/** prep_now_ms() - CLOCK_BOOTTIME in milliseconds: a suspended machine's time counts. */
int64_t prep_now_ms(void);

#endif
