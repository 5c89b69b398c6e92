/*
 * test_model.c - config.json: what is let through, and what is refused by which field.
 */
#include <CUnit/CUnit.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define DEMO TESTS_DIR "/fixtures/demo-model"
#define TINY TESTS_DIR "/vectors/tiny-config.json"

static void demo_is_read(void)
{
	struct eng_conf c;
	struct ds_err err = { 0 };

	CU_ASSERT_EQUAL_FATAL(eng_conf_load(DEMO, &c, &err), 0);
	CU_ASSERT_STRING_EQUAL(c.name, "demo-model");
	CU_ASSERT_STRING_EQUAL(c.dir, DEMO);
	CU_ASSERT_EQUAL(c.vocab, 1280);
	CU_ASSERT_EQUAL(c.dim, 128);
	CU_ASSERT_EQUAL(c.inner, 128);
	CU_ASSERT_EQUAL(c.n_layers, 8);
	CU_ASSERT_EQUAL(c.max_pos, 4096);
	CU_ASSERT_EQUAL(c.image_token, 1279);
	CU_ASSERT_EQUAL(c.cand_layer, 4);
	CU_ASSERT_EQUAL(c.n_draft, 3);
	CU_ASSERT_EQUAL(c.engram_rows[1], 18428);
	CU_ASSERT_EQUAL(c.engram_mult[0][0], UINT64_C(7329756429936903));
	CU_ASSERT_EQUAL(c.engram_mult[1][3], UINT64_C(6831661873457945));
	CU_ASSERT_EQUAL(c.route_scale, 1.5f);
	CU_ASSERT_EQUAL(c.norm_eps, 1e-20f);
	CU_ASSERT_EQUAL(c.yarn_orig, 1024.0);
	CU_ASSERT_PTR_NULL(c.files);
}

static void sources_are_nearest_below(void)
{
	static const int32_t kv[8] = { -1, -1, 2, 2, 4, 4, 4, 4 };
	static const int32_t ix[8] = { -1, -1, 2, 2, 4, 4, 6, 6 };
	struct eng_conf c;
	struct ds_err err = { 0 };

	CU_ASSERT_EQUAL_FATAL(eng_conf_load(DEMO, &c, &err), 0);
	for (int l = 0; l < 8; l++) {
		CU_ASSERT_EQUAL(c.kv_source[l], kv[l]);
		CU_ASSERT_EQUAL(c.index_source[l], ix[l]);
	}
}

/* Sets or deletes (@value NULL) a field of the tiny config by its dotted path, and parses that. */
static int parse_with(const char *path, const char *value, struct eng_conf *c, struct ds_err *err)
{
	json_error_t je;
	json_t *root = json_load_file(TINY, 0, &je), *at = root;
	char part[64];

	CU_ASSERT_PTR_NOT_NULL_FATAL(root);
	for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
		snprintf(part, sizeof(part), "%.*s", (int)(dot - path), path);
		at = json_object_get(at, part);
		CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	}
	if (value == NULL) {
		json_object_del(at, path);
	} else {
		json_t *v = json_loads(value, JSON_DECODE_ANY, &je);
		CU_ASSERT_PTR_NOT_NULL_FATAL(v);
		json_object_set_new(at, path, v);
	}
	char *text = json_dumps(root, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	int rc = eng_conf_parse("config.json", text, strlen(text), c, err);
	free(text);
	json_decref(root);
	return rc;
}

/* clang-format off */
static const struct refusal {
	const char *path, *value; /* NULL: the field is absent */
	const char *names;	  /* what the message must contain */
} refusals[] = {
	{ "model_type", "\"deepseek_v4\"", "model_type: \"deepseek_v4\"" },
	{ "bos_token_id", "512", "bos_token_id: 512 is outside the vocabulary" },
	{ "image_token_id", "99999", "image_token_id" },
	{ "image_token_id", "\"x\"", "image_token_id: must be an integer" },
	{ "text_config", NULL, "text_config: missing" },
	{ "text_config", "[]", "text_config: must be an object" },
	{ "vision_config", "3", "vision_config" },
	{ "quantization_config", NULL, "quantization_config" },
	{ "quantization_config.expert_dtype", "\"nvfp4\"", "quantization_config.expert_dtype" },
	{ "quantization_config.weight_block_size", "[128,128]", "quantization_config.weight_block_size" },
	{ "quantization_config.weight_block_size", "[32]", "1 entries where 2" },
	{ "text_config.vocab_size", NULL, "text_config.vocab_size: missing" },
	{ "text_config.vocab_size", "0", "text_config.vocab_size" },
	{ "text_config.vocab_size", "-5", "text_config.vocab_size" },
	{ "text_config.vocab_size", "512.0", "text_config.vocab_size: must be an integer" },
	{ "text_config.vocab_size", "9223372036854775807", "text_config.vocab_size" },
	{ "text_config.hidden_size", "250", "text_config.hidden_size: 250 is not a multiple of 32" },
	{ "text_config.hidden_size", "null", "text_config.hidden_size" },
	{ "text_config.moe_intermediate_size", "48", "moe_intermediate_size" },
	{ "text_config.num_hidden_layers", "65", "num_hidden_layers: 65 is outside 1..64" },
	{ "text_config.num_hidden_layers", "7", "compress_ratios: 11 entries where 10" },
	{ "text_config.num_key_value_heads", "2", "num_key_value_heads" },
	{ "text_config.head_dim", "40", "head_dim" },
	{ "text_config.qk_rope_head_dim", "33", "qk_rope_head_dim" },
	{ "text_config.qk_rope_head_dim", "64", "qk_rope_head_dim: 64 is more than index_head_dim" },
	{ "text_config.o_lora_rank", "16", "o_lora_rank" },
	{ "text_config.hidden_act", "\"gelu\"", "hidden_act" },
	{ "text_config.tie_word_embeddings", "true", "tie_word_embeddings" },
	{ "text_config.norm_topk_prob", "\"true\"", "norm_topk_prob: must be true or false" },
	{ "text_config.rms_norm_eps", "0", "rms_norm_eps" },
	{ "text_config.gate_temp", "2.0", "gate_temp" },
	{ "text_config.n_shared_experts", "2", "n_shared_experts" },
	{ "text_config.num_experts_per_tok", "9", "num_experts_per_tok: 9 is more than n_routed_experts" },
	{ "text_config.rope_scaling", "null", "rope_scaling" },
	{ "text_config.rope_scaling.rope_type", "\"linear\"", "rope_scaling.rope_type" },
	{ "text_config.rope_scaling.beta_fast", "1", "rope_scaling.beta_fast: 1 is not above" },
	{ "text_config.compress_ratios", "[0,0,2,2,1,1,1,1,0,0]", "compress_ratios: 10 entries" },
	{ "text_config.compress_ratios", "[0,0,2,2,1,1,1,1,0,0,1]", "compress_ratios: entry 10 belongs to a draft" },
	{ "text_config.compress_ratios", "[0,0,2,2,1,1,1,3,0,0,0]", "compress_ratios: entry 7, 3" },
	{ "text_config.compress_ratios", "[0,0,2,1,1,1,1,1,0,0,0]", "layer 3 has ratio 1, its source layer 2 has 2" },
	{ "text_config.compress_ratios", "[0,1,2,2,1,1,1,1,0,0,0]", "layer 1 has ratio 1 and no source" },
	{ "text_config.kv_source_layer_ids", "[4,2]", "not ascending" },
	{ "text_config.kv_source_layer_ids", "[2,2]", "not ascending" },
	{ "text_config.kv_source_layer_ids", "[1,2,4]", "layer 1 has compress ratio 0" },
	{ "text_config.kv_source_layer_ids", "[2,4,8]", "kv_source_layer_ids: entry 2, 8" },
	{ "text_config.kv_source_layer_ids", "[2,4,7]", "layer 7 is a kv source and must be listed" },
	{ "text_config.kv_source_layer_ids", "[2]", "layer 4 has ratio 1, its source layer 2 has 2" },
	{ "text_config.index_source_layer_ids", "[2,6]", "index_source_layer_ids: layer 4 is a kv source" },
	{ "text_config.index_source_layer_ids", "\"2\"", "index_source_layer_ids: must be a list" },
	{ "text_config.candidate_source_layer_id", "5", "candidate_source_layer_id: layer 5 is not in" },
	{ "text_config.candidate_source_layer_id", "2", "candidate_source_layer_id: layer 4 in kv_source" },
	{ "text_config.candidate_topk_blocks", "2", "fewer than index_topk" },
	{ "text_config.index_topk", "10", "candidate_topk_blocks: (3 - 1) * candidate_block_size 4 + 1 = 9" },
	{ "text_config.engram_layer_ids", NULL, "engram_layer_ids: missing" },
	{ "text_config.engram_layer_ids", "[1,2,3,4,5]", "engram_layer_ids: 5 entries, at most 4" },
	{ "text_config.engram_num_embeddings", "[660]", "engram_num_embeddings: 1 entries" },
	{ "text_config.engram_head_dim", "16", "engram_head_dim" },
	{ "text_config.engram_pad_token_id", "512", "engram_pad_token_id" },
	{ "text_config.engram_compressed_vocab_size", "1000", "engram_compressed_vocab_size" },
	{ "text_config.engram_n_heads", "64", "engram_n_heads" },
	{ "text_config.engram_multipliers", NULL, "engram_multipliers: missing, and only known" },
	{ "text_config.engram_multipliers", "[]", "engram_multipliers: must be a list of 2 rows" },
	{ "text_config.engram_multipliers", "[[\"1\",\"2\",\"3\"],[\"1\",\"2\",\"3\",\"4\"]]", "row 0 must hold 4" },
	{ "text_config.engram_multipliers", "[[1,2,3,4],[1,2,3,4]]", "row 0 entry 0 must be a string" },
	{ "text_config.engram_multipliers", "[[\"1\",\"2\",\"3\",\"-4\"],[\"1\",\"2\",\"3\",\"4\"]]", "row 0 entry 3" },
	{ "text_config.engram_multipliers", "[[\"1\",\"2\",\"3\",\"36028797018963969\"],[\"1\",\"2\",\"3\",\"4\"]]", "above 36028797018963967" },
	{ "text_config.engram_multipliers", "[[\"1\",\"2\",\"3\",\"99999999999999999999999\"],[\"1\",\"2\",\"3\",\"4\"]]", "above" },
	{ "text_config.dspark_block_size", NULL, "dspark_block_size: missing" },
	{ "text_config.dspark_target_layer_ids", "[8]", "dspark_target_layer_ids" },
};
/* clang-format on */

static void wrong_fields_are_named(void)
{
	struct eng_conf c;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refusal *r = &refusals[i];
		struct ds_err err = { 0 };
		int rc = parse_with(r->path, r->value, &c, &err);
		bool ok = rc == -1 && err.kind == DS_ERR_INPUT &&
			  strstr(err.why, r->names) != NULL && strcmp(err.obj, "config.json") == 0;
		if (!ok)
			printf("\n  %s = %s: rc %d, why \"%s\", expected \"%s\"", r->path,
			       r->value == NULL ? "(absent)" : r->value, rc, err.why, r->names);
		CU_ASSERT(ok);
	}
}

/* clang-format off */
static const struct acceptance {
	const char *path, *value, *why;
} acceptances[] = {
	{ "image_token_id", NULL, "a model without images" },
	{ "text_config.attention_bias", "false", "said or not" },
	{ "text_config.swiglu_limit", "10", "an integer where a real is meant" },
	{ "text_config.some_new_field", "{\"a\":[1]}", "unknown fields are somebody else's" },
	{ "text_config.candidate_source_layer_id", "null", "no second level" },
	{ "text_config.engram_layer_ids", "[]", "no Engram" },
	{ "text_config.o_groups", "3", "the plan refuses it, naming the world" },
	{ "text_config.gate_temp", "1.0", "the only value" },
};
/* clang-format on */

static void other_fields_may_vary(void)
{
	for (size_t i = 0; i < sizeof(acceptances) / sizeof(acceptances[0]); i++) {
		struct eng_conf c;
		struct ds_err err = { 0 };
		int rc = parse_with(acceptances[i].path, acceptances[i].value, &c, &err);
		if (rc != 0)
			printf("\n  %s (%s): %s", acceptances[i].path, acceptances[i].why, err.why);
		CU_ASSERT_EQUAL(rc, 0);
	}
}

static void text_that_is_no_config(void)
{
	static const char *const texts[] = {
		"",	 "{",  "[]",
		"null",	 "3",  "{\"model_type\":\"deepseek_v41\",\"model_type\":1}",
		"{}\n{", "\0", "{\"model_type\":\"\xff\"}"
	};
	struct eng_conf c = { .vocab = 77 };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct ds_err err = { 0 };
		CU_ASSERT_EQUAL(eng_conf_parse("f", texts[i], strlen(texts[i]), &c, &err), -1);
		CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	}
	CU_ASSERT_EQUAL(c.vocab, 77); /* untouched on failure */
}

static void release_multipliers_are_built_in(void)
{
	json_error_t je;
	json_t *root = json_load_file(TINY, 0, &je), *t = json_object_get(root, "text_config");
	struct eng_conf c;
	struct ds_err err = { 0 };

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	json_object_set_new(t, "vocab_size", json_integer(129280));
	json_object_set_new(t, "num_hidden_layers", json_integer(15));
	json_object_set_new(t, "num_nextn_predict_layers", json_integer(0));
	json_object_set_new(t, "compress_ratios",
			    json_loads("[0,0,2,2,1,1,1,1,0,0,0,0,0,0,0]", 0, &je));
	json_object_set_new(t, "engram_layer_ids", json_loads("[1,14]", 0, &je));
	json_object_set_new(t, "engram_num_embeddings",
			    json_loads("[384006168,384016682]", 0, &je));
	json_object_set_new(t, "engram_compressed_vocab_size", json_integer(99092));
	json_object_del(t, "engram_multipliers");
	char *text = json_dumps(root, 0);
	CU_ASSERT_EQUAL(eng_conf_parse("f", text, strlen(text), &c, &err), 0);
	CU_ASSERT_EQUAL(c.engram_mult[0][0], UINT64_C(76632096046245));
	CU_ASSERT_EQUAL(c.engram_mult[1][3], UINT64_C(82619226485591));
	free(text);
	json_decref(root);
}

static void directory_errors(void)
{
	struct eng_conf c;
	struct ds_err err = { 0 };

	CU_ASSERT_EQUAL(eng_conf_load(TESTS_DIR "/no-such-model", &c, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.obj, "no-such-model"));
	ds_err_clear(&err);
	CU_ASSERT_EQUAL(eng_conf_load(TESTS_DIR "/unit", &c, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.obj, "unit/config.json"));
}

static CU_TestInfo model_tests[] = {
	{ "the demo model's config is read", demo_is_read },
	{ "layers use the nearest source at or below", sources_are_nearest_below },
	{ "a wrong field is refused and named", wrong_fields_are_named },
	{ "fields that do not matter may vary", other_fields_may_vary },
	{ "text that is no config is refused", text_that_is_no_config },
	{ "the release's multipliers are built in", release_multipliers_are_built_in },
	{ "missing directory, missing file", directory_errors },
	CU_TEST_INFO_NULL
};

CU_SuiteInfo model_suite = { .pName = "engine/model", .pTests = model_tests };
