/*
 * set.c - one kernel set: the reference's own files, built for one family of processors, around the
 * panel linears of linear.c.
 *
 * The Makefile builds this file once per set, with KERN_SET as its name and that processor's compiler
 * flags. Same source, same operations, same bits; what differs is the vector layer (channel.h), and that
 * fma is one instruction where there is one. Each name below gets the set's own, so that all sets live
 * in one program; a name forgotten is a duplicate symbol at link time. ref/linear.c alone is not taken
 * over.
 */
#ifndef KERN_SET
#define KERN_SET scalar
#endif

#define SET_JOIN_(a, b) a##_##b
#define SET_JOIN(a, b)	SET_JOIN_(a, b)
#define SET_TEXT_(a)	#a
#define SET_TEXT(a)	SET_TEXT_(a)
#define SET(name)	SET_JOIN(KERN_SET, name)

#define REF_SET_NAME SET_TEXT(KERN_SET)
#define kern_ref_ops SET_JOIN(SET_JOIN(kern, KERN_SET), ops)

#define ref_linear_run	   SET(linear_run)
#define ref_weight_prepare SET(weight_prepare)
#define ref_weight_free	   SET(weight_free)
#define ref_weight_bytes   SET(weight_bytes)
#define ref_act_q8	   SET(act_q8)
#define ref_act_plain	   SET(act_plain)
#define ref_linear	   SET(linear)
#define ref_round	   SET(round)
#define ref_qdq		   SET(qdq)
#define ref_quantise	   SET(quantise)
#define ref_rms_norm	   SET(rms_norm)
#define ref_rope	   SET(rope)
#define ref_hc_predict	   SET(hc_predict)
#define ref_hc_mix	   SET(hc_mix)
#define ref_hc_update	   SET(hc_update)
#define ref_row_put	   SET(row_put)
#define ref_row_get	   SET(row_get)
#define ref_row_read	   SET(row_read)
#define ref_attention	   SET(attention)
#define ref_pool2	   SET(pool2)
#define ref_index_select   SET(index_select)
#define ref_route	   SET(route)
#define ref_moe		   SET(moe)
#define ref_engram_gate	   SET(engram_gate)
#define ref_finite	   SET(finite)

/* NOLINTBEGIN(bugprone-suspicious-include): compiling these files again is this file's purpose. */
#include "linear.c"

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
