/*
 * sets.h - the operation tables that open.c chooses from. Only a file that runs everywhere may
 * hold a function called before the choice.
 */
#ifndef KERN_SETS_H
#define KERN_SETS_H

#include "kernels.h"

extern const struct kern_ops kern_ref_ops;
extern const struct kern_ops kern_scalar_ops;
extern const struct kern_ops kern_avx2_ops, kern_avx512_ops; /* x86-64 */
extern const struct kern_ops kern_neon_ops;		     /* AArch64 */

#endif
