/*
 * profile.h - where a step's time goes: a kernel set that measures every operation of another one.
 */
#ifndef KERN_PROFILE_H
#define KERN_PROFILE_H

#include <stdio.h>

#include "kernels.h"

struct kern_profile;

/**
 * kern_profile_open() - @ops measured: kern_profile_ops() is a set with the same name, results and
 * weights. Returns owned (kern_profile_close()); NULL with DS_ERR_NOMEM.
 */
struct kern_profile *kern_profile_open(const struct kern_ops *ops, struct ds_err *err);
void kern_profile_close(struct kern_profile *p);

/** kern_profile_ops() - the measuring set; needs kern_ctx.profile = @p. View, as long as @p lives. */
const struct kern_ops *kern_profile_ops(const struct kern_profile *p);

/** kern_profile_reset() - forget what was measured. Threads: the owner of the kern_ctx. */
void kern_profile_reset(struct kern_profile *p);

/**
 * kern_profile_print() - a table by operation: calls, milliseconds, share, stored bytes that it must read,
 * multiply-adds, and the share of the nearer roof; the roofs are measured now, on @pool.
 * @wall_ms: of everything; what no operation took is shown as "between operations"
 */
void kern_profile_print(struct kern_profile *p, const char *title, double wall_ms,
			struct kern_pool *pool, FILE *f);

#endif
