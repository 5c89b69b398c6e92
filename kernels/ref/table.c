/*
 * table.c - the reference set as kernels.h wants it.
 */
#include "ref.h"

#ifndef REF_SET_NAME
#define REF_SET_NAME "ref"
#endif

const struct kern_ops kern_ref_ops = {
	.name = REF_SET_NAME,
	.weight_prepare = ref_weight_prepare,
	.weight_free = ref_weight_free,
	.weight_bytes = ref_weight_bytes,
	.act_q8 = ref_act_q8,
	.act_plain = ref_act_plain,
	.linear = ref_linear,
	.round = ref_round,
	.qdq = ref_qdq,
	.rms_norm = ref_rms_norm,
	.rope = ref_rope,
	.hc_predict = ref_hc_predict,
	.hc_mix = ref_hc_mix,
	.hc_update = ref_hc_update,
	.row_put = ref_row_put,
	.row_get = ref_row_get,
	.attention = ref_attention,
	.pool2 = ref_pool2,
	.index_select = ref_index_select,
	.route = ref_route,
	.moe = ref_moe,
	.engram_gate = ref_engram_gate,
	.finite = ref_finite,
};
