/*
 * pool.h - how operations of the CPU family use the threads of a rank.
 *
 * An operation cuts its outputs (rows, panels, heads) into items; kern_parallel() gives each
 * thread one contiguous range. Where the cut lies never changes a bit, because no item's result
 * depends on another's. Small work stays on the calling thread: waking another costs more.
 */
#ifndef KERN_POOL_H
#define KERN_POOL_H

#include "kernels.h"

#define KERN_THREADS_MAX 256

/* Does items [first, end) of @arg; @part (0..KERN_THREADS_MAX - 1) names the thread's own scratch. */
typedef void kern_task(void *arg, uint32_t part, uint32_t first, uint32_t end);

/**
 * kern_parallel() - do @items items, on as many threads as the work is worth.
 * @cost: multiply-adds of one item, roughly
 * Returns when all are done. Threads: owner of @pool only, not from inside a task.
 */
void kern_parallel(struct kern_pool *pool, uint32_t items, uint64_t cost, kern_task *task,
		   void *arg);

#endif
