/*
 * test_kern_vectors.c - single operations against tests/vectors: quantisers bit by bit, rotary
 * tables, hyper-connection coefficients, routing, selection, and attention over many keys.
 *
 * Every test runs on each kernel set that this processor has.
 */
#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "kern_math.h"
#include "kernels.h"

typedef void set_test(const struct kern_ops *ops, const json_t *data);

/* Run @test for every set that runs here with the JSON file @name. */
static void on_sets(const char *name, set_test *test)
{
	char path[256];
	json_error_t jerr;
	json_t *data;

	snprintf(path, sizeof(path), "%s/vectors/%s", TESTS_DIR, name);
	data = json_load_file(path, 0, &jerr);
	CU_ASSERT_PTR_NOT_NULL_FATAL(data);
	for (const char *const *set = kern_sets(); *set != NULL; set++) {
		const struct kern_ops *ops = kern_open(*set, NULL);

		if (ops != NULL)
			test(ops, data);
	}
	json_decref(data);
}

static const char *text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static uint32_t whole(const json_t *o, const char *key)
{
	return (uint32_t)json_integer_value(json_object_get(o, key));
}

static float real(const json_t *o, const char *key)
{
	return (float)json_number_value(json_object_get(o, key));
}

/* Numbers of an array, null as -inf. Return: how many. */
static uint32_t reals(const json_t *a, float *v, uint32_t most)
{
	uint32_t n = (uint32_t)json_array_size(a);

	CU_ASSERT_FATAL(n <= most);
	for (uint32_t i = 0; i < n; i++) {
		const json_t *e = json_array_get(a, i);

		v[i] = json_is_null(e) ? -INFINITY : (float)json_number_value(e);
	}
	return n;
}

/* Whether @a holds exactly these ids, behind which only -1 may follow up to @n. */
static bool same_ids(const json_t *a, const int32_t *id, uint32_t n)
{
	size_t have = json_array_size(a);

	for (uint32_t i = 0; i < n; i++)
		if (id[i] != (i < have ? (int32_t)json_integer_value(json_array_get(a, i)) : -1))
			return false;
	return have <= n;
}

/* ------------------------------------------------------------------ quantisers */

/* Space-separated hexadecimal words. */
static uint32_t words(const char *s, uint32_t *v, uint32_t most)
{
	uint32_t n = 0;

	for (char *end; n < most; s = end) {
		unsigned long w = strtoul(s, &end, 16);

		if (end == s)
			break;
		v[n++] = (uint32_t)w;
	}
	return n;
}

/* Stored bytes of a row of one group: codes, then the scale. */
static void check_row(const json_t *one, enum kern_row_fmt fmt, const uint8_t *row, uint32_t group)
{
	uint32_t byte[32], scale = (uint32_t)strtoul(text(one, "scale"), NULL, 16);
	const char *codes = text(one, "codes");

	if (fmt == KERN_ROW_Q8) {
		CU_ASSERT_EQUAL_FATAL(words(codes, byte, 32), 32);
		for (uint32_t i = 0; i < 32; i++)
			CU_ASSERT_EQUAL(row[i], byte[i]);
		CU_ASSERT_EQUAL(row[32], scale);
		return;
	}
	for (uint32_t i = 0; i < group; i++) {
		char digit[2] = { codes[i], '\0' };

		CU_ASSERT_EQUAL(row[i / 2] >> (i % 2 * 4) & 15, (int)strtoul(digit, NULL, 16));
	}
	CU_ASSERT_EQUAL(row[16], scale); /* 32 channels are 16 bytes of pairs */
}

static void quantiser(const struct kern_ops *ops, const json_t *cases, enum kern_quant kind,
		      enum kern_row_fmt fmt, uint32_t group)
{
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };
	size_t i;
	json_t *one;

	CU_ASSERT(json_array_size(cases) > 20);
	json_array_foreach (cases, i, one) {
		uint32_t in[32], want[32];
		float x[32], back[32];
		uint8_t row[64] = { 0 };
		struct kern_cache c = { .fmt = fmt, .width = 32, .ring = 1, .data = row };

		CU_ASSERT_EQUAL_FATAL(words(text(one, "in"), in, 32), group);
		CU_ASSERT_EQUAL_FATAL(words(text(one, "value"), want, 32), group);
		for (uint32_t k = 0; k < 32; k++)
			x[k] = kern_bf16_to_f32((uint16_t)in[k % group]);
		ops->row_put(&ctx, &c, 0, x, 1);
		check_row(one, fmt, row, group);
		ops->row_get(&ctx, &c, 0, 1, back);
		ops->qdq(&ctx, kind, x, 1, 32);
		CU_ASSERT_EQUAL(memcmp(x, back, sizeof(x)), 0);
		for (uint32_t k = 0; k < 32; k++)
			if (kern_bits(x[k]) != want[k % group] << 16) {
				CU_FAIL("value of a quantised group");
				printf("   %s %s: channel %u is %08x, want %04x0000\n", ops->name,
				       text(one, "case"), k, kern_bits(x[k]), want[k % group]);
			}
	}
}

static void quantisers(const struct kern_ops *ops, const json_t *data)
{
	quantiser(ops, json_object_get(data, "q8"), KERN_Q8, KERN_ROW_Q8, 32);
	quantiser(ops, json_object_get(data, "q4_index"), KERN_Q4IDX, KERN_ROW_Q4IDX, 32);
	quantiser(ops, json_object_get(data, "q4_kv"), KERN_Q4KV, KERN_ROW_Q4KV, 16);
}

static void test_quantisers(void)
{
	on_sets("quantizers.json", quantisers);
}

/* act_q8() gives the same codes and scales, as floats. */
static void activations(const struct kern_ops *ops, const json_t *data)
{
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };
	size_t i;
	json_t *one;

	json_array_foreach (json_object_get(data, "q8"), i, one) {
		uint32_t in[32], code[32];
		float x[32], q[32], scale = 0.0f;
		struct kern_act a = { .q = q, .scale = &scale };

		words(text(one, "in"), in, 32);
		words(text(one, "codes"), code, 32);
		for (uint32_t k = 0; k < 32; k++)
			x[k] = kern_bf16_to_f32((uint16_t)in[k]);
		ops->act_q8(&ctx, x, 1, 32, &a);
		CU_ASSERT_EQUAL(scale,
				kern_e8m0_to_f32((uint8_t)strtoul(text(one, "scale"), NULL, 16)));
		for (uint32_t k = 0; k < 32; k++)
			CU_ASSERT_EQUAL(kern_bits(q[k]),
					kern_bits(kern_e4m3_to_f32((uint8_t)code[k])));
	}
}

static void test_activations(void)
{
	on_sets("quantizers.json", activations);
}

static void singles(const struct kern_ops *ops, const json_t *data)
{
	size_t i;
	json_t *one;

	(void)ops;
	json_array_foreach (json_object_get(data, "bf16"), i, one)
		CU_ASSERT_EQUAL(kern_f32_to_bf16(kern_from_bits(
					(uint32_t)strtoul(text(one, "in"), NULL, 16))),
				strtoul(text(one, "out"), NULL, 16));
	json_array_foreach (json_object_get(data, "pow2ceil"), i, one)
		CU_ASSERT_EQUAL(
			kern_pow2ceil(kern_from_bits((uint32_t)strtoul(text(one, "in"), NULL, 16))),
			strtoul(text(one, "e8m0"), NULL, 16));
	json_array_foreach (json_object_get(data, "e4m3"), i, one)
		CU_ASSERT_EQUAL(
			kern_to_e4m3(kern_from_bits((uint32_t)strtoul(text(one, "in"), NULL, 16))),
			strtoul(text(one, "code"), NULL, 16));
	json_array_foreach (json_object_get(data, "e2m1"), i, one)
		CU_ASSERT_EQUAL(
			kern_to_e2m1(kern_from_bits((uint32_t)strtoul(text(one, "in"), NULL, 16))),
			strtoul(text(one, "code"), NULL, 16));
	for (unsigned int c = 0; c < 256; c++) { /* every code survives the way back */
		float v = kern_e4m3_to_f32((uint8_t)c);

		CU_ASSERT(isnan(v) ? (c & 0x7f) == 0x7f : kern_to_e4m3(v) == c);
		CU_ASSERT(c == 255 ? isnan(kern_e8m0_to_f32(255))
				   : kern_e8m0_to_f32((uint8_t)c) == ldexpf(1.0f, (int)c - 127));
		CU_ASSERT(c > 15 || kern_to_e2m1(kern_e2m1_to_f32((uint8_t)c)) == c);
	}
}

static void test_singles(void)
{
	on_sets("quantizers.json", singles);
}

/* A NaN or an infinity must not become an ordinary number on the way through a cache. */
static void test_poison(void)
{
	static const struct {
		enum kern_row_fmt fmt;
		uint32_t group;
	} row[] = { { KERN_ROW_Q8, 32 }, { KERN_ROW_Q4KV, 16 }, { KERN_ROW_Q4IDX, 32 } };
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	const struct kern_ops *ops = kern_open("ref", NULL);
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };

	for (size_t f = 0; f < 3; f++)
		for (size_t b = 0; b < 3; b++) {
			float x[64], y[64];
			uint8_t data[128];
			struct kern_cache c = {
				.fmt = row[f].fmt, .width = 64, .ring = 1, .data = data
			};

			for (int i = 0; i < 64; i++)
				x[i] = i == 33 ? bad[b] : 6.0f;
			ops->row_put(&ctx, &c, 0, x, 1);
			ops->row_get(&ctx, &c, 0, 1, y);
			for (uint32_t i = 0; i < 64; i++)
				CU_ASSERT(i / row[f].group == 33 / row[f].group ? isnan(y[i])
										: y[i] == 6.0f);
		}
}

/* ------------------------------------------------------------------ rotary tables */

static void rope_of(const json_t *t, struct kern_rope *r)
{
	bool yarn = json_is_true(json_object_get(t, "yarn"));

	kern_rope_init(r, whole(t, "rope_dim"),
		       whole(t, yarn ? "compress_rope_theta" : "rope_theta"), yarn,
		       whole(t, "factor"), whole(t, "beta_fast"), whole(t, "beta_slow"),
		       whole(t, "original"));
}

/* Cosine and sine of every recorded angle, seen through the rotation of (1, 0). */
static void rope_table(const struct kern_ops *ops, const json_t *t)
{
	struct kern_ctx ctx = { .numerics = KERN_EXACT };
	struct kern_rope r;
	uint32_t bits[128], pairs, p;
	const json_t *positions = json_object_get(t, "positions");

	rope_of(t, &r);
	pairs = r.dim / 2;
	CU_ASSERT_EQUAL_FATAL(words(text(t, "frequency_bits"), bits, 128), pairs);
	for (uint32_t i = 0; i < pairs; i++)
		CU_ASSERT_EQUAL(kern_bits(r.freq[i]), bits[i]);
	for (size_t at = 0; at < json_array_size(positions); at++) {
		float x[256], c[128], s[128];

		p = (uint32_t)json_integer_value(json_array_get(positions, at));
		for (uint32_t i = 0; i < pairs; i++) {
			x[2 * i] = 1.0f;
			x[2 * i + 1] = 0.0f;
		}
		ops->rope(&ctx, &r, x, 1, 1, r.dim, &p, false);
		reals(json_array_get(json_object_get(t, "cos"), at), c, 128);
		reals(json_array_get(json_object_get(t, "sin"), at), s, 128);
		for (uint32_t i = 0; i < pairs; i++) {
			CU_ASSERT_DOUBLE_EQUAL(x[2 * i], c[i], 6.1e-8);
			CU_ASSERT_DOUBLE_EQUAL(x[2 * i + 1], s[i], 6.1e-8);
		}
	}
}

static void rope(const struct kern_ops *ops, const json_t *data)
{
	const json_t *all = json_object_get(data, "rope"), *turn = json_object_get(all, "rotation");
	const json_t *tables = json_object_get(all, "tables"), *t = NULL;
	struct kern_ctx ctx = { .numerics = KERN_EXACT };
	uint32_t pos = whole(turn, "position"), n;
	float x[256], want[256];
	struct kern_rope r;

	for (size_t i = 0; i < json_array_size(tables); i++) {
		const json_t *one = json_array_get(tables, i);

		rope_table(ops, one);
		if (strcmp(text(one, "constants"), text(turn, "constants")) == 0 &&
		    json_is_true(json_object_get(one, "yarn")) ==
			    json_is_true(json_object_get(turn, "yarn")))
			t = one;
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	rope_of(t, &r);
	n = reals(json_object_get(turn, "in"), x, 256);
	ops->rope(&ctx, &r, x, 1, 1, n, &pos, false);
	reals(json_object_get(turn, "out"), want, 256);
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT_DOUBLE_EQUAL(x[i], want[i], 5e-7);
	ops->rope(&ctx, &r, x, 1, 1, n, &pos, true);
	reals(json_object_get(turn, "inverse_of_out"), want, 256);
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT_DOUBLE_EQUAL(x[i], want[i], 5e-7);
}

static void test_rope(void)
{
	on_sets("pieces.json", rope);
}

/*
 * Each output is one fma of one rounded product, whatever the compiler thinks of it: volatile keeps
 * the expected steps apart, where a vectoriser may fuse what the language forbids it to.
 */
static void rope_steps(const struct kern_ops *ops, const json_t *data)
{
	struct kern_ctx ctx = { .numerics = KERN_EXACT };
	struct kern_rope r;
	float x[6 * 64], y[6 * 64];
	uint32_t pos = 1234567 % 65521;

	(void)data;
	kern_rope_init(&r, 64, 10000.0, false, 1.0, 1.0, 1.0, 1.0);
	for (uint32_t i = 0; i < 6 * 64; i++)
		y[i] = x[i] = (float)(i * 2654435761U >> 8) * 0x1p-24f - 0.3f;
	ops->rope(&ctx, &r, y, 1, 6, 64, &pos, false);
	for (uint32_t i = 0; i < 6 * 64; i += 2) {
		double sine, cosine;
		volatile float c, s, product;

		kern_sincos((float)pos * r.freq[i % 64 / 2], &sine, &cosine);
		c = (float)cosine;
		s = (float)sine;
		product = x[i + 1] * s;
		CU_ASSERT_EQUAL(y[i], fmaf(x[i], c, -product));
		product = x[i + 1] * c;
		CU_ASSERT_EQUAL(y[i + 1], fmaf(x[i], s, product));
	}
}

static void test_rope_steps(void)
{
	on_sets("pieces.json", rope_steps);
}

/* The power that the tables start from, correctly rounded for any number of channels. */
static void test_power(void)
{
	static const uint32_t dim[] = { 2, 6, 16, 20, 32, 64, 80, 96, 128, 256 };

	for (size_t k = 0; k < sizeof(dim) / sizeof(dim[0]); k++) {
		struct kern_rope r;

		kern_rope_init(&r, dim[k], 160000.0, false, 1.0, 1.0, 1.0, 1.0);
		for (uint32_t i = 0; i < dim[k] / 2; i++) {
			float e = (float)(2 * i) / (float)dim[k];
			float want = 1.0f / (float)powl(160000.0L, (long double)e);

			CU_ASSERT_EQUAL(r.freq[i], want);
		}
	}
}

/* ------------------------------------------------------------------ hyper-connections */

/* A stream of ones has a root mean square of one, so rows of fn that hold the mixes give them. */
static void sinkhorn(const struct kern_ops *ops, const json_t *data)
{
	const json_t *all = json_object_get(data, "sinkhorn"),
		     *cases = json_object_get(all, "cases");
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };

	for (size_t k = 0; k < json_array_size(cases); k++) {
		const json_t *one = json_array_get(cases, k);
		float mixes[24], base[24], scale[3], fn[24 * 16] = { 0 }, x[16], want[16];
		float pre[4], post[4], comb[16];
		struct kern_hc w = { .copies = 4,
				     .dim = 4,
				     .iters = whole(all, "iterations"),
				     .eps = real(all, "eps"),
				     .norm_eps = 1e-20f,
				     .fn = fn,
				     .base = base,
				     .scale = scale };

		reals(json_object_get(one, "mixes"), mixes, 24);
		reals(json_object_get(one, "base"), base, 24);
		reals(json_object_get(one, "scale"), scale, 3);
		for (int i = 0; i < 16; i++)
			x[i] = 1.0f;
		for (size_t i = 0; i < 24; i++)
			fn[i * 16 + i % 16] = mixes[i];
		ops->hc_predict(&ctx, &w, x, 1, pre, post, comb);
		reals(json_object_get(one, "pre"), want, 16);
		for (int i = 0; i < 4; i++)
			CU_ASSERT_DOUBLE_EQUAL(pre[i], want[i], 3e-7);
		reals(json_object_get(one, "post"), want, 16);
		for (int i = 0; i < 4; i++)
			CU_ASSERT_DOUBLE_EQUAL(post[i], want[i], 5e-7);
		for (size_t i = 0; i < 4; i++) {
			reals(json_array_get(json_object_get(one, "comb"), i), want, 16);
			for (size_t j = 0; j < 4; j++)
				CU_ASSERT_DOUBLE_EQUAL(comb[4 * i + j], want[j], 1e-6);
		}
	}
}

static void test_sinkhorn(void)
{
	on_sets("pieces.json", sinkhorn);
}

/* ------------------------------------------------------------------ routing and selection */

static void routing(const struct kern_ops *ops, const json_t *data)
{
	const json_t *cases = json_object_get(data, "routing");
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };

	for (size_t k = 0; k < json_array_size(cases); k++) {
		const json_t *one = json_array_get(cases, k);
		uint32_t active = whole(one, "active"), experts;
		float logits[64], bias[64], weight[64], want[64];
		int32_t ids[64];

		experts = reals(json_object_get(one, "logits"), logits, 64);
		reals(json_object_get(one, "bias"), bias, 64);
		ops->route(&ctx, logits, bias, 1, experts, active, real(one, "route_scale"), ids,
			   weight);
		CU_ASSERT(same_ids(json_object_get(one, "experts"), ids, active));
		reals(json_object_get(one, "weights"), want, 64);
		for (uint32_t i = 0; i < active; i++)
			CU_ASSERT_DOUBLE_EQUAL(weight[i], want[i], 3e-7 * fmax(1.0, want[i]));
	}
}

static void test_routing(void)
{
	on_sets("pieces.json", routing);
}

/*
 * Any score s, from two heads: relu(s) with weight 1 and relu(-s) with weight -1. Keys hold the
 * score in their first channel.
 */
static void choose(const struct kern_ops *ops, const float *scores, uint32_t visible, uint32_t topk,
		   const int32_t *blocks_in, int32_t *blocks_out, uint32_t n_blocks, uint32_t size,
		   int32_t *sel)
{
	struct kern_ctx ctx = { .numerics = KERN_EXACT };
	float q[64] = { 0 }, weight[2] = { 1.0f, -1.0f }, keys[64 * 32] = { 0 }, *scratch;
	struct kern_cache c = {
		.fmt = KERN_ROW_F32, .width = 32, .ring = 64, .data = (uint8_t *)keys
	};
	struct kern_index_args a = { .n = 1,
				     .heads = 2,
				     .dim = 32,
				     .topk = topk,
				     .q = q,
				     .weight = weight,
				     .keys = &c,
				     .visible = &visible,
				     .blocks_in = blocks_in,
				     .blocks_out = blocks_out,
				     .n_blocks = n_blocks,
				     .block_size = size,
				     .sel = sel };

	q[0] = 1.0f;
	q[32] = -1.0f;
	for (uint32_t i = 0; i < visible; i++)
		keys[(size_t)i * 32] = scores[i];
	scratch = kern_alloc(kern_index_scratch(1, topk, n_blocks) * sizeof(float), "test", NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(scratch);
	a.scratch = scratch;
	ops->index_select(&ctx, &a);
	kern_free(scratch);
}

static void top_k(const struct kern_ops *ops, const json_t *data)
{
	const json_t *all = json_object_get(data, "top_k"),
		     *cases = json_object_get(all, "selection");
	float scores[64];
	int32_t sel[64], blocks[64];

	for (size_t k = 0; k < json_array_size(cases); k++) {
		const json_t *one = json_array_get(cases, k);
		uint32_t count = whole(one, "count");

		reals(json_object_get(one, "scores"), scores, 64);
		choose(ops, scores, whole(one, "visible"), count, NULL, NULL, 0, 0, sel);
		CU_ASSERT(same_ids(json_object_get(one, "selected"), sel, count));
	}
	cases = json_object_get(all, "candidates");
	for (size_t k = 0; k < json_array_size(cases); k++) {
		const json_t *one = json_array_get(cases, k), *kept;
		uint32_t count = whole(one, "count"), visible = whole(one, "visible");
		uint32_t n_blocks = whole(one, "blocks"), size = whole(one, "block_size");
		uint32_t entries = 0;

		reals(json_object_get(one, "scores"), scores, 64);
		choose(ops, scores, visible, count, NULL, blocks, n_blocks, size, sel);
		CU_ASSERT(same_ids(json_object_get(one, "selected_by_the_source"), sel, count));
		kept = json_object_get(one, "kept_entries");
		for (uint32_t b = 0; b < n_blocks && blocks[b] >= 0; b++)
			for (uint32_t e = (uint32_t)blocks[b] * size;
			     e < ((uint32_t)blocks[b] + 1) * size && e < visible; e++)
				CU_ASSERT_EQUAL(json_integer_value(json_array_get(kept, entries++)),
						e);
		CU_ASSERT_EQUAL(entries, json_array_size(kept));
		choose(ops, scores, visible, count, blocks, NULL, n_blocks, size, sel);
		CU_ASSERT(same_ids(json_object_get(one, "selected_inside"), sel, count));
	}
}

static void test_top_k(void)
{
	on_sets("pieces.json", top_k);
}

/* ------------------------------------------------------------------ attention over many keys */

/* tiny-modules.safetensors, read whole: its header and the bytes behind it. */
struct tensors {
	uint8_t *file;
	const uint8_t *body;
	json_t *head;
};

static struct tensors tensors_open(void)
{
	struct tensors t = { 0 };
	FILE *f = fopen(TESTS_DIR "/vectors/tiny-modules.safetensors", "rb");
	uint64_t head_bytes;
	long size = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_FATAL(fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 8);
	rewind(f);
	t.file = malloc((size_t)size);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t.file);
	CU_ASSERT_EQUAL_FATAL(fread(t.file, 1, (size_t)size, f), (size_t)size);
	fclose(f);
	memcpy(&head_bytes, t.file, 8);
	t.head = json_loadb((const char *)t.file + 8, head_bytes, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t.head);
	t.body = t.file + 8 + head_bytes;
	return t;
}

/* Tensor "attention.CASE.PART": its shape and 4-byte elements, BF16 widened. Free the result. */
static void *tensor(const struct tensors *t, const char *label, const char *part, uint32_t shape[3])
{
	char name[128];
	const json_t *e, *dims;
	const uint8_t *raw;
	size_t n = 1;
	uint32_t *v;
	bool half;

	snprintf(name, sizeof(name), "attention.%s.%s", label, part);
	e = json_object_get(t->head, name);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	dims = json_object_get(e, "shape");
	for (size_t i = 0; i < json_array_size(dims) && i < 3; i++) {
		shape[i] = (uint32_t)json_integer_value(json_array_get(dims, i));
		n *= shape[i];
	}
	raw = t->body + json_integer_value(json_array_get(json_object_get(e, "data_offsets"), 0));
	half = strcmp(text(e, "dtype"), "BF16") == 0;
	v = malloc(n * sizeof(*v));
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	for (size_t i = 0; i < n; i++) {
		uint16_t h;

		memcpy(half ? (void *)&h : (void *)&v[i], raw + i * (half ? 2 : 4), half ? 2 : 4);
		if (half)
			v[i] = (uint32_t)h << 16;
	}
	return v;
}

static void attention_case(const struct tensors *t, const struct kern_ops *ops, const char *label)
{
	struct kern_ctx ctx = { .numerics = KERN_NATIVE };
	uint32_t qs[3], ks[3], is[3], ss[3], hs[3];
	float *q = tensor(t, label, "q", qs), *keys = tensor(t, label, "keys", ks);
	int32_t *index = tensor(t, label, "index", is);
	float *sink = tensor(t, label, "sink", ss), *want = tensor(t, label, "heads", hs);
	size_t n = (size_t)qs[0] * qs[1] * qs[2], same = 0;
	float *out = malloc(n * sizeof(float));
	uint32_t pos[16] = { 0 };
	double square = 0.0, worst = 0.0;
	struct kern_cache c = {
		.fmt = KERN_ROW_F32, .width = ks[1], .ring = ks[0], .data = (uint8_t *)keys
	};
	/* No window: the slots are the listed keys, holes where the list has -1. */
	struct kern_attn_args a = { .n = qs[0],
				    .heads = qs[1],
				    .width = qs[2],
				    .q = q,
				    .pos = pos,
				    .win = &c,
				    .comp = &c,
				    .sel = index,
				    .n_sel = is[1],
				    .sink = sink,
				    .out = out };

	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	ops->attention(&ctx, &a);
	for (size_t i = 0; i < n; i++) {
		same += kern_bits(out[i]) == kern_bits(want[i]);
		square += (double)want[i] * want[i];
		worst = isnan(out[i]) ? INFINITY : fmax(worst, fabs((double)out[i] - want[i]));
	}
	worst /= sqrt(square / (double)n);
	CU_ASSERT((double)same >= 0.99 * (double)n && worst <= 0.02);
	if ((double)same < 0.99 * (double)n || worst > 0.02)
		printf("   %s attention.%s: %zu of %zu equal, worst %g of the RMS\n", ops->name,
		       label, same, n, worst);
	free(q);
	free(keys);
	free(index);
	free(sink);
	free(want);
	free(out);
}

static void attention(const struct kern_ops *ops, const json_t *data)
{
	static const char *const labels[] = { "rising", "gaps", "sinks", "release" };
	struct tensors t = tensors_open();

	(void)data;
	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
		attention_case(&t, ops, labels[i]);
	json_decref(t.head);
	free(t.file);
}

static void test_attention(void)
{
	on_sets("pieces.json", attention);
}

static CU_TestInfo kern_vectors_tests[] = {
	{ "the three quantisers: codes, scales, values, stored rows", test_quantisers },
	{ "quantised activations of linears", test_activations },
	{ "bf16, pow2ceil, E4M3, E2M1, E8M0: single values and every code", test_singles },
	{ "a NaN or an infinity poisons its group in every cache format", test_poison },
	{ "rotary frequencies bit by bit, cosines, a rotation and its inverse", test_rope },
	{ "a rotation is one fma of one rounded product", test_rope_steps },
	{ "rotary powers are correctly rounded for any width", test_power },
	{ "hyper-connection coefficients from given mixes", test_sinkhorn },
	{ "routing: ids and weights, ties, one active expert", test_routing },
	{ "selection and candidate blocks, ties included", test_top_k },
	{ "attention over 70 to 640 keys: rising maxima, holes, sinks", test_attention },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo kern_vectors_suite = { .pName = "kernels/vectors", .pTests = kern_vectors_tests };
