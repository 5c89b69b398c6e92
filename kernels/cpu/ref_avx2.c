/*
 * ref_avx2.c - the "avx2" set: the reference's own files, built once more for processors with AVX2
 * and FMA, around the vectorised linears of linear_avx2.c.
 *
 * Same source, same operations, same bits; fma becomes one instruction instead of a call. Each
 * name below gets another one here, so that both builds can live in one program; a name forgotten
 * is a duplicate symbol at link time. ref/linear.c alone is not taken over.
 */
#if defined(__x86_64__)

#define ref_linear_run	   avx2_linear_run
#define ref_weight_prepare avx2_weight_prepare
#define ref_weight_free	   avx2_weight_free
#define ref_weight_bytes   avx2_weight_bytes

#define kern_ref_ops	 kern_avx2_ops
#define REF_SET_NAME	 "avx2"
#define ref_act_q8	 avx2_act_q8
#define ref_act_plain	 avx2_act_plain
#define ref_linear	 avx2_linear
#define ref_round	 avx2_round
#define ref_qdq		 avx2_qdq
#define ref_quantise	 avx2_quantise
#define ref_rms_norm	 avx2_rms_norm
#define ref_rope	 avx2_rope
#define ref_hc_predict	 avx2_hc_predict
#define ref_hc_mix	 avx2_hc_mix
#define ref_hc_update	 avx2_hc_update
#define ref_row_put	 avx2_row_put
#define ref_row_get	 avx2_row_get
#define ref_row_read	 avx2_row_read
#define ref_attention	 avx2_attention
#define ref_pool2	 avx2_pool2
#define ref_index_select avx2_index_select
#define ref_route	 avx2_route
#define ref_moe		 avx2_moe
#define ref_engram_gate	 avx2_engram_gate
#define ref_finite	 avx2_finite

/* NOLINTBEGIN(bugprone-suspicious-include): compiling these files again is this file's purpose. */
#include "../ref/attn.c"
#include "../ref/engram.c"
#include "../ref/hc.c"
#include "../ref/index.c"
#include "../ref/moe.c"
#include "../ref/norm.c"
#include "../ref/quant.c"
#include "../ref/rope.c"
#include "../ref/route.c"
#include "../ref/rows.c"
#include "../ref/table.c"
/* NOLINTEND(bugprone-suspicious-include) */

#endif
