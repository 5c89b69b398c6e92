/*
 * roof.h - what this machine can do at most: bytes read and fused multiply-adds, per second.
 *
 * Every share that a bench or a profile prints has one of these two as its denominator, measured in
 * the same run on the same threads.
 */
#ifndef KERN_ROOF_H
#define KERN_ROOF_H

#include <stdint.h>

#include "kernels.h"

/**
 * kern_roof_read() - bytes per second of the best of @passes sums over @bytes of memory, with the widest
 * loads of this processor. @bytes: a multiple of 64 KiB, well above the last-level cache to be memory's
 * Return: 0 when there is no memory for it.
 */
double kern_roof_read(struct kern_pool *pool, uint64_t bytes, int passes);

/** kern_roof_fma() - fp32 multiply-adds per second of independent chains in the widest registers. */
double kern_roof_fma(struct kern_pool *pool);

/** kern_roof_bits() - width of those loads and registers. */
int kern_roof_bits(void);

#endif
