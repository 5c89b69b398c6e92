/*
 * linear_avx2.h - the linears of the "avx2" set; the rest of the set is kernels/ref/, see
 * ref_avx2.c. The functions take the place of their ref_ namesakes, described in ref.h.
 */
#ifndef KERN_LINEAR_AVX2_H
#define KERN_LINEAR_AVX2_H

#include "../ref/ref.h"

void avx2_linear_run(struct kern_ctx *ctx, const struct ref_linear_job *job);
struct kern_weight *avx2_weight_prepare(const struct kern_matrix *m, struct ds_err *err);
void avx2_weight_free(struct kern_weight *w);
size_t avx2_weight_bytes(const struct kern_weight *w);

#endif
