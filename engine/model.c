/*
 * model.c - config.json to struct eng_conf, or a refusal that names the field.
 *
 * Scalars are rows of one table: where they stand, their type, their bounds, where they go. Lists
 * and the rules between fields follow as code, in the order of model.md 1.2 and 1.3. A field that
 * changes the arithmetic and has only one value that we compute must have that value; fields that
 * do not matter here (architectures, initializer_range) may say anything.
 */
#include "model.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "jsonin.h"

#define CONF_BYTES_MAX (1 << 20)

/* What the release's hashes were drawn with (model.md 4.11.2): they exceed 2^53. */
static const uint64_t release_mult[2][4] = {
	{ 76632096046245, 4839876093313, 35959672319349, 73987337458391 },
	{ 67716810739261, 51510806800915, 30921347202721, 82619226485591 },
};

enum where {
	AT_TOP,
	AT_QUANT,
	AT_TEXT,
	AT_ROPE,
	AT_PLACES
};

/* How the place is called in messages, with the dot that follows. */
static const char *const place_name[AT_PLACES] = { "", "quantization_config.", "text_config.",
						   "text_config.rope_scaling." };

enum type {
	T_U32,
	T_U64,
	T_I32, /* may be absent or null: -1 */
	T_F32,
	T_F64,
	T_CHECK /* bounds only, stored nowhere */
};

struct num_row {
	const char *key;
	enum where at;
	enum type type;
	size_t off;
	double min, max;
	uint32_t unit; /* must be a multiple of it; 0 = any */
	bool may_miss; /* absent: the field keeps zero */
};

#define OFF(f) offsetof(struct eng_conf, f)

/* clang-format off */
static const struct num_row rows[] = {
	{ "bos_token_id",                     AT_TOP,  T_U32,   OFF(bos),         0,     1 << 24,            0,  false },
	{ "eos_token_id",                     AT_TOP,  T_U32,   OFF(eos),         0,     1 << 24,            0,  false },
	{ "pad_token_id",                     AT_TOP,  T_U32,   OFF(pad),         0,     1 << 24,            0,  false },
	{ "image_token_id",                   AT_TOP,  T_I32,   OFF(image_token), 0,     1 << 24,            0,  true },
	{ "vocab_size",                       AT_TEXT, T_U32,   OFF(vocab),       2,     1 << 24,            0,  false },
	{ "hidden_size",                      AT_TEXT, T_U32,   OFF(dim),         32,    65536,              32, false },
	{ "moe_intermediate_size",            AT_TEXT, T_U32,   OFF(inner),       32,    65536,              32, false },
	{ "num_hidden_layers",                AT_TEXT, T_U32,   OFF(n_layers),    1,     ENG_LAYERS_MAX,     0,  false },
	{ "num_attention_heads",              AT_TEXT, T_U32,   OFF(n_heads),     1,     1024,               0,  false },
	{ "num_key_value_heads",              AT_TEXT, T_CHECK, 0,                1,     1,                  0,  false },
	{ "head_dim",                         AT_TEXT, T_U32,   OFF(head_dim),    32,    4096,               32, false },
	{ "qk_rope_head_dim",                 AT_TEXT, T_U32,   OFF(rope_dim),    2,     256,                2,  false },
	{ "q_lora_rank",                      AT_TEXT, T_U32,   OFF(q_rank),      32,    65536,              32, false },
	{ "o_groups",                         AT_TEXT, T_U32,   OFF(o_groups),    1,     1024,               0,  false },
	{ "o_lora_rank",                      AT_TEXT, T_U32,   OFF(o_rank),      32,    65536,              32, false },
	{ "swiglu_limit",                     AT_TEXT, T_F32,   OFF(limit),       1e-3,  1e6,                0,  false },
	{ "rms_norm_eps",                     AT_TEXT, T_F32,   OFF(norm_eps),    1e-30, 1e-2,               0,  false },
	{ "max_position_embeddings",          AT_TEXT, T_U32,   OFF(max_pos),     1,     1 << 24,            0,  false },
	{ "rope_theta",                       AT_TEXT, T_F64,   OFF(rope_theta),  1.5,   1e12,               0,  false },
	{ "compress_rope_theta",              AT_TEXT, T_F64,   OFF(crope_theta), 1.5,   1e12,               0,  false },
	{ "factor",                           AT_ROPE, T_F64,   OFF(yarn_factor), 1,     1e6,                0,  false },
	{ "beta_fast",                        AT_ROPE, T_F64,   OFF(yarn_fast),   1e-3,  1e6,                0,  false },
	{ "beta_slow",                        AT_ROPE, T_F64,   OFF(yarn_slow),   1e-3,  1e6,                0,  false },
	{ "original_max_position_embeddings", AT_ROPE, T_F64,   OFF(yarn_orig),   1,     1 << 24,            0,  false },
	{ "n_routed_experts",                 AT_TEXT, T_U32,   OFF(n_experts),   1,     4096,               0,  false },
	{ "num_experts_per_tok",              AT_TEXT, T_U32,   OFF(topk),        1,     64,                 0,  false },
	{ "n_shared_experts",                 AT_TEXT, T_CHECK, 0,                1,     1,                  0,  false },
	{ "routed_scaling_factor",            AT_TEXT, T_F32,   OFF(route_scale), 1e-6,  1e6,                0,  false },
	{ "gate_temp",                        AT_TEXT, T_CHECK, 0,                1,     1,                  0,  true },
	{ "attention_dropout",                AT_TEXT, T_CHECK, 0,                0,     0,                  0,  true },
	{ "sliding_window",                   AT_TEXT, T_U32,   OFF(window),      1,     65536,              0,  false },
	{ "index_n_heads",                    AT_TEXT, T_U32,   OFF(index_heads), 1,     1024,               0,  false },
	{ "index_head_dim",                   AT_TEXT, T_U32,   OFF(index_dim),   32,    4096,               32, false },
	{ "index_topk",                       AT_TEXT, T_U32,   OFF(index_topk),  1,     65536,              0,  false },
	{ "candidate_source_layer_id",        AT_TEXT, T_I32,   OFF(cand_layer),  0,     ENG_LAYERS_MAX - 1, 0,  true },
	{ "hc_mult",                          AT_TEXT, T_U32,   OFF(copies),      1,     ENG_COPIES_MAX,     0,  false },
	{ "hc_sinkhorn_iters",                AT_TEXT, T_U32,   OFF(hc_iters),    1,     1000,               0,  false },
	{ "hc_eps",                           AT_TEXT, T_F32,   OFF(hc_eps),      1e-30, 1e-2,               0,  false },
	{ "num_nextn_predict_layers",         AT_TEXT, T_U32,   OFF(n_draft),     0,     16,                 0,  true },
};

static const struct num_row cand_rows[] = {
	{ "candidate_topk_blocks", AT_TEXT, T_U32, OFF(cand_blocks), 1, 65536, 0, false },
	{ "candidate_block_size",  AT_TEXT, T_U32, OFF(cand_size),   1, 65536, 0, false },
};

static const struct num_row engram_table[] = {
	{ "engram_max_ngram_size",        AT_TEXT, T_U32, OFF(engram_orders),  2,  ENG_ORDERS_MAX, 0,  false },
	{ "engram_vocab_size",            AT_TEXT, T_U64, OFF(engram_start),   2,  4294967296.0,   0,  false },
	{ "engram_n_heads",               AT_TEXT, T_U32, OFF(engram_heads),   1,  64,             0,  false },
	{ "engram_head_dim",              AT_TEXT, T_U32, OFF(engram_dim),     32, 4096,           32, false },
	{ "engram_compressed_vocab_size", AT_TEXT, T_U32, OFF(engram_classes), 1,  1 << 24,        0,  false },
};

static const struct num_row draft_rows[] = {
	{ "dspark_block_size",          AT_TEXT, T_CHECK, 0, 1, 64,      0, false },
	{ "dspark_noise_token_id",      AT_TEXT, T_CHECK, 0, 0, 1 << 24, 0, false },
	{ "dspark_markov_rank",         AT_TEXT, T_CHECK, 0, 1, 65536,   0, false },
	{ "dspark_n_routed_experts",    AT_TEXT, T_CHECK, 0, 1, 4096,    0, false },
	{ "dspark_num_experts_per_tok", AT_TEXT, T_CHECK, 0, 1, 64,      0, false },
};

/* Words and truths that the arithmetic is written for. */
static const struct word_row {
	const char *key, *value; /* "true" and "false" are the JSON words */
	enum where at;
	bool may_miss;
} words[] = {
	{ "model_type",          "deepseek_v41", AT_TOP,   false },
	{ "quant_method",        "fp8",          AT_QUANT, false },
	{ "scale_fmt",           "ue8m0",        AT_QUANT, false },
	{ "expert_dtype",        "fp4",          AT_QUANT, false },
	{ "activation_scheme",   "dynamic",      AT_QUANT, true },
	{ "hidden_act",          "silu",         AT_TEXT,  true },
	{ "scoring_func",        "sqrtsoftplus", AT_TEXT,  true },
	{ "topk_method",         "noaux_tc",     AT_TEXT,  true },
	{ "norm_topk_prob",      "true",         AT_TEXT,  true },
	{ "attention_bias",      "false",        AT_TEXT,  true },
	{ "tie_word_embeddings", "false",        AT_TEXT,  true },
};
/* clang-format on */

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* One parse: the object of each place, the result, and where a refusal goes. */
struct reader {
	const char *file;
	const json_t *place[AT_PLACES];
	struct eng_conf *c;
	struct ds_err *err;
};

/* Every refusal of a value ends here, so that all name file and field alike. */
static int refuse(const struct reader *r, enum where at, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static int refuse(const struct reader *r, enum where at, const char *key, const char *fmt, ...)
{
	char why[192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ds_err_set(r->err, DS_ERR_INPUT, 0, r->file, "read model config");
	return ds_err_why(r->err, "%s%s: %s", place_name[at], key, why);
}

static void store(struct eng_conf *c, const struct num_row *row, double v, json_int_t i)
{
	char *to = (char *)c + row->off;

	switch (row->type) {
	case T_U32:
		*(uint32_t *)(void *)to = (uint32_t)i;
		break;
	case T_I32:
		*(int32_t *)(void *)to = (int32_t)i;
		break;
	case T_U64:
		*(uint64_t *)(void *)to = (uint64_t)i;
		break;
	case T_F32:
		*(float *)(void *)to = (float)v;
		break;
	case T_F64:
		*(double *)(void *)to = v;
		break;
	case T_CHECK:
		break;
	}
}

static int read_num(const struct reader *r, const struct num_row *row)
{
	const json_t *j = json_object_get(r->place[row->at], row->key);
	bool real = row->type == T_F32 || row->type == T_F64 || row->type == T_CHECK;

	if (row->may_miss && (j == NULL || json_is_null(j))) {
		if (row->type == T_I32)
			store(r->c, row, -1, -1);
		return 0;
	}
	if (j == NULL)
		return refuse(r, row->at, row->key, "missing");
	if (!json_is_integer(j) && !(real && json_is_real(j)))
		return refuse(r, row->at, row->key, "must be %s", real ? "a number" : "an integer");
	double v = json_number_value(j);
	json_int_t i = json_is_integer(j) ? json_integer_value(j) : 0;
	if (!(v >= row->min && v <= row->max))
		return refuse(r, row->at, row->key, "%.15g is outside %.15g..%.15g", v, row->min,
			      row->max);
	if (row->unit != 0 && i % row->unit != 0)
		return refuse(r, row->at, row->key, "%.15g is not a multiple of %u", v, row->unit);
	store(r->c, row, v, i);
	return 0;
}

static int read_nums(const struct reader *r, const struct num_row *table, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (read_num(r, &table[i]) != 0)
			return -1;
	}
	return 0;
}

static int check_word(const struct reader *r, const struct word_row *row)
{
	const json_t *j = json_object_get(r->place[row->at], row->key);
	const char *have = json_is_string(j)  ? json_string_value(j)
			   : json_is_true(j)  ? "true"
			   : json_is_false(j) ? "false"
					      : NULL;
	bool truth = strcmp(row->value, "true") == 0 || strcmp(row->value, "false") == 0;

	if (j == NULL && row->may_miss)
		return 0;
	if (j == NULL)
		return refuse(r, row->at, row->key, "missing; only \"%s\" is supported",
			      row->value);
	if (have == NULL || truth != json_is_boolean(j))
		return refuse(r, row->at, row->key, "must be %s",
			      truth ? "true or false" : "a string");
	if (strcmp(have, row->value) != 0)
		return refuse(r, row->at, row->key, "\"%.60s\" is not supported, only \"%s\" is",
			      have, row->value);
	return 0;
}

/* The objects that fields live in, and the words in them. */
static int read_places(struct reader *r, const json_t *root)
{
	static const struct {
		enum where at, in;
		const char *key;
	} places[] = {
		{ AT_QUANT, AT_TOP, "quantization_config" },
		{ AT_TEXT, AT_TOP, "text_config" },
		{ AT_ROPE, AT_TEXT, "rope_scaling" },
	};

	r->place[AT_TOP] = root;
	for (size_t i = 0; i < COUNT(places); i++) {
		const json_t *j = json_object_get(r->place[places[i].in], places[i].key);
		if (!json_is_object(j))
			return refuse(r, places[i].in, places[i].key, "%s",
				      j == NULL ? "missing" : "must be an object");
		r->place[places[i].at] = j;
	}
	for (size_t i = 0; i < COUNT(words); i++) {
		if (check_word(r, &words[i]) != 0)
			return -1;
	}
	const json_t *vision = json_object_get(root, "vision_config");
	if (vision != NULL && !json_is_null(vision) && !json_is_object(vision))
		return refuse(r, AT_TOP, "vision_config", "must be an object");
	return 0;
}

/* A list of integers into @out. @want: its length, or -1 for up to @max. Return: length, -1. */
static int read_list(const struct reader *r, enum where at, const char *key, int want, int max,
		     int64_t low, int64_t high, int64_t *out)
{
	const json_t *list = json_object_get(r->place[at], key);

	if (!json_is_array(list))
		return refuse(r, at, key, "%s", list == NULL ? "missing" : "must be a list");
	size_t n = json_array_size(list);
	if (want >= 0 && n != (size_t)want)
		return refuse(r, at, key, "%zu entries where %d are needed", n, want);
	if (n > (size_t)max)
		return refuse(r, at, key, "%zu entries, at most %d are supported", n, max);
	for (size_t i = 0; i < n; i++) {
		const json_t *j = json_array_get(list, i);
		if (!json_is_integer(j))
			return refuse(r, at, key, "entry %zu must be an integer", i);
		out[i] = json_integer_value(j);
		if (out[i] < low || out[i] > high)
			return refuse(r, at, key, "entry %zu, %lld, is outside %lld..%lld", i,
				      (long long)out[i], (long long)low, (long long)high);
	}
	return (int)n;
}

/* A list of backbone layers, strictly ascending. Return: length, -1. */
static int read_layers(const struct reader *r, const char *key, int max, int64_t *out)
{
	int n = read_list(r, AT_TEXT, key, -1, max, 0, (int64_t)r->c->n_layers - 1, out);

	for (int i = 1; i < n; i++) {
		if (out[i] <= out[i - 1])
			return refuse(r, AT_TEXT, key, "layer %lld after layer %lld: not ascending",
				      (long long)out[i], (long long)out[i - 1]);
	}
	return n;
}

static int read_quant(const struct reader *r)
{
	int64_t block[2];

	if (read_list(r, AT_QUANT, "weight_block_size", 2, 2, KERN_BLOCK, KERN_BLOCK, block) < 0)
		return -1;
	/* "rope_type" is the newer name; both may be there, neither may differ. */
	static const char *const keys[] = { "rope_type", "type" };
	bool any = false;
	for (size_t i = 0; i < COUNT(keys); i++) {
		const struct word_row row = { keys[i], "yarn", AT_ROPE, true };
		any = any || json_object_get(r->place[AT_ROPE], keys[i]) != NULL;
		if (check_word(r, &row) != 0)
			return -1;
	}
	if (!any)
		return refuse(r, AT_ROPE, "rope_type", "missing; only \"yarn\" is supported");
	if (!(r->c->yarn_fast > r->c->yarn_slow))
		return refuse(r, AT_ROPE, "beta_fast", "%g is not above beta_slow, %g",
			      r->c->yarn_fast, r->c->yarn_slow);
	return 0;
}

/* Relations between widths. Heads against groups is the plan's business: it names the world. */
static int check_widths(const struct reader *r)
{
	const struct eng_conf *c = r->c;
	const struct {
		const char *key;
		uint32_t id;
	} ids[] = { { "bos_token_id", c->bos },
		    { "eos_token_id", c->eos },
		    { "pad_token_id", c->pad } };

	if (c->rope_dim > c->head_dim)
		return refuse(r, AT_TEXT, "qk_rope_head_dim", "%u is more than head_dim, %u",
			      c->rope_dim, c->head_dim);
	if (c->rope_dim > c->index_dim)
		return refuse(r, AT_TEXT, "qk_rope_head_dim", "%u is more than index_head_dim, %u",
			      c->rope_dim, c->index_dim);
	if (c->topk > c->n_experts)
		return refuse(r, AT_TEXT, "num_experts_per_tok",
			      "%u is more than n_routed_experts, %u", c->topk, c->n_experts);
	for (size_t i = 0; i < COUNT(ids); i++) {
		if (ids[i].id >= c->vocab)
			return refuse(r, AT_TOP, ids[i].key, "%u is outside the vocabulary of %u",
				      ids[i].id, c->vocab);
	}
	if (c->image_token >= 0 && (uint32_t)c->image_token >= c->vocab)
		return refuse(r, AT_TOP, "image_token_id", "%d is outside the vocabulary of %u",
			      c->image_token, c->vocab);
	return 0;
}

/* compress_ratios: one per backbone layer, then one per draft layer, which have none. */
static int read_ratios(const struct reader *r)
{
	struct eng_conf *c = r->c;
	int64_t v[ENG_LAYERS_MAX + 16];
	int want = (int)(c->n_layers + c->n_draft);

	if (read_list(r, AT_TEXT, "compress_ratios", want, ENG_LAYERS_MAX + 16, 0, 2, v) < 0)
		return -1;
	for (uint32_t l = 0; l < c->n_layers; l++)
		c->ratio[l] = (uint32_t)v[l];
	for (int i = (int)c->n_layers; i < want; i++) {
		if (v[i] != 0)
			return refuse(r, AT_TEXT, "compress_ratios",
				      "entry %d belongs to a draft layer and must be 0", i);
	}
	return 0;
}

/* The source lists turned into "nearest at or below" per layer, with the rules of model.md 1.3. */
static int read_sources(const struct reader *r)
{
	static const char kv_key[] = "kv_source_layer_ids", ix_key[] = "index_source_layer_ids";
	struct eng_conf *c = r->c;
	int64_t kv[ENG_SOURCES_MAX], ix[ENG_SOURCES_MAX];
	int n_kv = read_layers(r, kv_key, ENG_SOURCES_MAX, kv);
	int n_ix = n_kv < 0 ? -1 : read_layers(r, ix_key, ENG_SOURCES_MAX, ix);
	int32_t kv_at = -1, ix_at = -1;

	if (n_ix < 0)
		return -1;
	for (uint32_t l = 0, a = 0, b = 0; l < c->n_layers; l++) {
		bool kv_src = (int)a < n_kv && kv[a] == l, ix_src = (int)b < n_ix && ix[b] == l;
		if (kv_src)
			kv_at = (int32_t)kv[a++];
		if (ix_src)
			ix_at = (int32_t)ix[b++];
		c->kv_source[l] = c->index_source[l] = -1;
		if (c->ratio[l] == 0 && (kv_src || ix_src))
			return refuse(r, AT_TEXT, kv_src ? kv_key : ix_key,
				      "layer %u has compress ratio 0 and cannot be a source", l);
		if (c->ratio[l] == 0)
			continue;
		if (kv_at < 0)
			return refuse(r, AT_TEXT, kv_key,
				      "layer %u has ratio %u and no source at or below it", l,
				      c->ratio[l]);
		if (c->ratio[kv_at] != c->ratio[l])
			return refuse(r, AT_TEXT, "compress_ratios",
				      "layer %u has ratio %u, its source layer %d has %u", l,
				      c->ratio[l], kv_at, c->ratio[kv_at]);
		/* A selection made before the entries' own source would count other entries. */
		if (ix_at < kv_at)
			return refuse(r, AT_TEXT, ix_key,
				      "layer %d is a kv source and must be listed too", kv_at);
		c->kv_source[l] = kv_at;
		c->index_source[l] = ix_at;
	}
	return 0;
}

static int read_candidates(const struct reader *r)
{
	static const char key[] = "candidate_source_layer_id";
	struct eng_conf *c = r->c;
	int32_t l = c->cand_layer;

	if (l < 0)
		return 0;
	if (read_nums(r, cand_rows, COUNT(cand_rows)) != 0)
		return -1;
	if ((uint32_t)l >= c->n_layers)
		return refuse(r, AT_TEXT, key, "%d, but there are %u layers", l, c->n_layers);
	if (c->kv_source[l] != l)
		return refuse(r, AT_TEXT, key, "layer %d is not in kv_source_layer_ids", l);
	if (c->kv_source[c->n_layers - 1] > l)
		return refuse(r, AT_TEXT, key, "layer %d in kv_source_layer_ids comes after it",
			      c->kv_source[c->n_layers - 1]);
	/* The newest block may hold one entry: fewer blocks could not fill a selection (4.6.5). */
	uint64_t pool = (uint64_t)(c->cand_blocks - 1) * c->cand_size + 1;
	if (pool < c->index_topk)
		return refuse(
			r, AT_TEXT, "candidate_topk_blocks",
			"(%u - 1) * candidate_block_size %u + 1 = %llu, fewer than index_topk, %u",
			c->cand_blocks, c->cand_size, (unsigned long long)pool, c->index_topk);
	return 0;
}

/* The official name, or the one that REF-CFG and other readers use (model.md 9.9). */
static int read_engram_pad(const struct reader *r)
{
	static const struct num_row pad_rows[] = {
		{ "engram_pad_token_id", AT_TEXT, T_U32, OFF(engram_pad), 0, 1 << 24, 0, false },
		{ "engram_pad_id", AT_TEXT, T_U32, OFF(engram_pad), 0, 1 << 24, 0, false },
	};
	bool other = json_object_get(r->place[AT_TEXT], pad_rows[0].key) == NULL &&
		     json_object_get(r->place[AT_TEXT], pad_rows[1].key) != NULL;

	if (read_num(r, &pad_rows[other]) != 0)
		return -1;
	if (r->c->engram_pad >= r->c->vocab)
		return refuse(r, AT_TEXT, pad_rows[other].key, "%u is outside the vocabulary of %u",
			      r->c->engram_pad, r->c->vocab);
	return 0;
}

/* One multiplier: decimal digits only. Products with a class must stay below 2^63 (4.11.3). */
static int read_mult(const struct reader *r, const json_t *j, uint32_t layer, uint32_t at)
{
	static const char key[] = "engram_multipliers";
	uint64_t most = (uint64_t)INT64_MAX / r->c->engram_classes, v = 0;
	const char *s = json_string_value(j);

	if (s == NULL || s[0] == '\0' || strspn(s, "0123456789") != strlen(s))
		return refuse(r, AT_TEXT, key, "row %u entry %u must be a string of decimal digits",
			      layer, at);
	for (; *s != '\0'; s++) {
		uint64_t digit = (uint64_t)(*s - '0');
		if (v > (most - digit) / 10)
			return refuse(r, AT_TEXT, key,
				      "row %u entry %u is above %llu, the most for %u classes",
				      layer, at, (unsigned long long)most, r->c->engram_classes);
		v = v * 10 + digit;
	}
	if (v == 0)
		return refuse(r, AT_TEXT, key, "row %u entry %u must not be 0", layer, at);
	r->c->engram_mult[layer][at] = v;
	return 0;
}

static int read_mults(const struct reader *r)
{
	static const char key[] = "engram_multipliers";
	struct eng_conf *c = r->c;
	const json_t *list = json_object_get(r->place[AT_TEXT], key);

	if (list == NULL || json_is_null(list)) {
		if (c->n_engram != 2 || c->engram_layer[0] != 1 || c->engram_layer[1] != 14 ||
		    c->engram_classes != 99092 || c->engram_orders != 4)
			return refuse(
				r, AT_TEXT, key,
				"missing, and only known for the release's layers and classes");
		for (int i = 0; i < 2; i++)
			memcpy(c->engram_mult[i], release_mult[i], sizeof(release_mult[i]));
		return 0;
	}
	if (!json_is_array(list) || json_array_size(list) != c->n_engram)
		return refuse(r, AT_TEXT, key, "must be a list of %u rows, one per Engram layer",
			      c->n_engram);
	for (uint32_t i = 0; i < c->n_engram; i++) {
		const json_t *row = json_array_get(list, i);
		if (!json_is_array(row) || json_array_size(row) != c->engram_orders)
			return refuse(r, AT_TEXT, key, "row %u must hold %u decimal strings", i,
				      c->engram_orders);
		for (uint32_t k = 0; k < c->engram_orders; k++) {
			if (read_mult(r, json_array_get(row, k), i, k) != 0)
				return -1;
		}
	}
	return 0;
}

static int read_engram(const struct reader *r)
{
	struct eng_conf *c = r->c;
	int64_t v[ENG_ENGRAM_MAX];
	int n = read_layers(r, "engram_layer_ids", ENG_ENGRAM_MAX, v);

	if (n <= 0)
		return n;
	c->n_engram = (uint32_t)n;
	for (int i = 0; i < n; i++)
		c->engram_layer[i] = (uint32_t)v[i];
	if (read_list(r, AT_TEXT, "engram_num_embeddings", n, ENG_ENGRAM_MAX, 1, 1LL << 40, v) < 0)
		return -1;
	for (int i = 0; i < n; i++)
		c->engram_rows[i] = (uint64_t)v[i];
	if (read_nums(r, engram_table, COUNT(engram_table)) != 0 || read_engram_pad(r) != 0)
		return -1;
	if (c->engram_classes > c->vocab)
		return refuse(r, AT_TEXT, "engram_compressed_vocab_size",
			      "%u is more than vocab_size, %u", c->engram_classes, c->vocab);
	if ((c->engram_orders - 1) * c->engram_heads > 64)
		return refuse(r, AT_TEXT, "engram_n_heads",
			      "%u heads for each of %u orders: at most 64 columns are supported",
			      c->engram_heads, c->engram_orders - 1);
	return read_mults(r);
}

/* Draft layers are not run here; a config that is wrong about them is wrong all the same. */
static int read_draft(const struct reader *r)
{
	int64_t taps[ENG_LAYERS_MAX];

	if (r->c->n_draft == 0)
		return 0;
	if (read_nums(r, draft_rows, COUNT(draft_rows)) != 0)
		return -1;
	return read_layers(r, "dspark_target_layer_ids", ENG_LAYERS_MAX, taps) < 0 ? -1 : 0;
}

static int read_conf(struct reader *r, const json_t *root)
{
	if (read_places(r, root) != 0 || read_nums(r, rows, COUNT(rows)) != 0)
		return -1;
	if (read_quant(r) != 0 || check_widths(r) != 0 || read_ratios(r) != 0)
		return -1;
	if (read_sources(r) != 0 || read_candidates(r) != 0)
		return -1;
	return read_engram(r) != 0 || read_draft(r) != 0 ? -1 : 0;
}

int eng_conf_parse(const char *file, const char *text, size_t len, struct eng_conf *c,
		   struct ds_err *err)
{
	struct eng_conf conf = { 0 };
	struct reader r = { .file = file, .c = &conf, .err = err };
	json_t *root = eng_json_load(text, len, file, "read model config", err);

	if (root == NULL)
		return -1;
	int rc = -1;
	if (!json_is_object(root)) {
		ds_err_set(err, DS_ERR_INPUT, 0, file, "read model config");
		ds_err_why(err, "not a JSON object");
	} else {
		rc = read_conf(&r, root);
	}
	json_decref(root);
	if (rc == 0)
		*c = conf;
	return rc;
}

/* The last component of @dir, or of what "." and ".." stand for. */
static void name_from_dir(const char *dir, char *name, size_t size)
{
	char real[PATH_MAX];
	const char *last = strrchr(dir, '/');

	last = last == NULL ? dir : last + 1;
	if ((last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) &&
	    realpath(dir, real) != NULL)
		last = strrchr(real, '/') + 1;
	snprintf(name, size, "%s", last);
}

int eng_conf_read(const struct eng_dir *d, struct eng_conf *c, struct ds_err *err)
{
	struct ds_buf text = { 0 };
	char obj[256];
	int rc = eng_dir_read(d, "config.json", CONF_BYTES_MAX, &text, err);

	eng_dir_obj(d, "config.json", obj, sizeof(obj));
	if (rc == 0)
		rc = eng_conf_parse(obj, text.data, text.len, c, err);
	ds_buf_fini(&text);
	if (rc != 0)
		return -1;
	snprintf(c->dir, sizeof(c->dir), "%s", d->path);
	name_from_dir(c->dir, c->name, sizeof(c->name));
	c->files = d;
	return 0;
}

int eng_conf_load(const char *dir, struct eng_conf *c, struct ds_err *err)
{
	struct eng_dir *d = eng_dir_open(dir, err);
	int rc = d == NULL ? -1 : eng_conf_read(d, c, err);

	if (rc == 0)
		c->files = NULL; /* the directory is closed here; readers open it again */
	eng_dir_close(d);
	return rc;
}
