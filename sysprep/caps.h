/*
 * caps.h - what power this process has in its hands, and when.
 *
 * dsprep reads, parses and plans with an empty effective set, raises one capability around one
 * operation, and drops everything for good before it prints results (style.md 2.3). Files of root
 * are written by ownership, which needs no capability. One thread; nothing here is for threads.
 */
#ifndef PREP_CAPS_H
#define PREP_CAPS_H

#include <stdbool.h>
#include <sys/capability.h>

#include "err.h"

#define PREP_CAP_NONE (-1) /* an operation that needs ownership only */

/**
 * prep_caps_begin() - empty the effective set, forbid new privileges through exec.
 * The permitted set stays, so that prep_caps_raise() works. Call it first in main(), for every
 * command. Threads: start-up only. Return: 0; -1 DS_ERR_HOST.
 */
int prep_caps_begin(struct ds_err *err);

/**
 * prep_caps_need_root() - refuse early and by name: effective uid 0 and CAP_NET_ADMIN permitted.
 * @what: the command, for the error. Return: 0; -1 DS_ERR_PERM.
 */
int prep_caps_need_root(const char *what, struct ds_err *err);

/** prep_caps_raise() - put @cap alone into the effective set. PREP_CAP_NONE raises nothing.
 *  Return: 0; -1 DS_ERR_PERM naming the capability. */
int prep_caps_raise(int cap, struct ds_err *err);
/** prep_caps_lower() - empty the effective set again. A process that cannot must not go on: it aborts. */
void prep_caps_lower(void);

/**
 * prep_caps_drop() - give up all sets, the bounding set included, for good; then look.
 * Return: 0; -1 DS_ERR_HOST if any set is not empty afterwards.
 */
int prep_caps_drop(struct ds_err *err);

#endif
