/*
 * channel.h - the vector layer: 32 floats, one channel of a panel of 32 outputs.
 *
 * Each kernel set has one file channel_SET.h that says how 32 floats live in that processor's
 * registers and how stored codes become floats there. Everything else in this folder is written once,
 * in these words. All of them are exact or one IEEE operation per element, so sets cannot differ:
 *
 *   struct channel       32 floats
 *   ch_load, ch_store    from and to float [32], 64-byte aligned
 *   ch_all(v)            32 times v
 *   ch_mul(c, x)         c * x, x one number
 *   ch_fma(c, x, acc)    fma(c, x, acc), x one number
 *   ch_fma_each(c, d, acc)  fma(c, d, acc), element by element
 *   ch_f32, ch_bf16(at)  one channel as it lies in a panel, [32] in the order of ch_place()
 *   ch_fp8(at)           E4M3 codes times 2^-8 (fp16 is the way there); no NaN codes
 *   ch_fp4(at, high)     E2M1 codes in the low or high nibbles of [32] bytes
 *   ch_scales(at)        E8M0 bytes [32]; none of them 0 or 255
 *   ch_place(fmt, o)     where output o lies among the 32 codes of a channel
 *   CH_BLOCKS            blocks of one row whose sums run side by side: one chain of fma would wait
 *   CH_ROWS              rows that share a channel once it is in registers
 */
#ifndef KERN_CHANNEL_H
#define KERN_CHANNEL_H

#include "../kernels.h"

#define CH_INLINE static inline __attribute__((always_inline))

#if defined(KERN_SET_avx512)
#include "channel_avx512.h"
#elif defined(KERN_SET_avx2)
#include "channel_avx2.h"
#elif defined(KERN_SET_neon)
#include "channel_neon.h"
#else
#include "channel_scalar.h"
#endif

#endif
