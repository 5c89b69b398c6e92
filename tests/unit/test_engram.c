/*
 * test_engram.c - primes, offsets and row ids against the reference values of pieces.json.
 */
#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engram.h"
#include "file.h"
#include "tiny_model.h"

#define VECTORS TESTS_DIR "/vectors"

static uint64_t at2(const json_t *j, size_t a, size_t b)
{
	return (uint64_t)json_integer_value(json_array_get(json_array_get(j, a), b));
}

/* A config with the constants of one set of pieces.json; token ids are the classes themselves. */
static void conf_of_set(const json_t *set, struct eng_conf *c)
{
	const json_t *mult = json_object_get(set, "multipliers");
	const json_t *layers = json_object_get(set, "layers");
	bool release = strcmp(json_string_value(json_object_get(set, "constants")), "release") == 0;

	memset(c, 0, sizeof(*c));
	c->n_engram = (uint32_t)json_array_size(layers);
	c->engram_orders = 1 + (uint32_t)json_array_size(json_object_get(set, "orders"));
	c->engram_heads = (uint32_t)json_integer_value(json_object_get(set, "heads"));
	c->engram_classes = (uint32_t)json_integer_value(json_object_get(set, "number_of_classes"));
	c->engram_pad = (uint32_t)json_integer_value(json_object_get(set, "pad_class"));
	c->vocab = c->engram_classes;
	c->engram_start = release ? 16000000 : 100;
	for (uint32_t i = 0; i < c->n_engram; i++) {
		c->engram_layer[i] = (uint32_t)json_integer_value(json_array_get(layers, i));
		c->engram_rows[i] = (uint64_t)json_integer_value(
			json_array_get(json_object_get(set, "table_rows"), i));
		for (uint32_t k = 0; k < c->engram_orders; k++)
			c->engram_mult[i][k] = strtoull(
				json_string_value(json_array_get(json_array_get(mult, i), k)), NULL,
				10);
	}
}

/* Counts the wrong row ids of one case; positions whose n-grams touch an image are not text. */
static uint32_t wrong_rows(const struct engram *g, const json_t *kase, uint32_t *compared)
{
	const json_t *classes = json_object_get(kase, "classes");
	const json_t *images = json_object_get(kase, "image_positions");
	const json_t *want = json_object_get(kase, "rows");
	size_t n = json_array_size(classes);
	uint32_t wrong = 0, token[64];
	bool image[64] = { false };

	CU_ASSERT_FATAL(n <= 64);
	for (size_t i = 0; i < n; i++)
		token[i] = (uint32_t)json_integer_value(json_array_get(classes, i));
	for (size_t i = 0; i < json_array_size(images); i++)
		image[json_integer_value(json_array_get(images, i))] = true;
	for (size_t p = 0; p < n; p++) {
		uint64_t row[ENGRAM_COLS_MAX];
		uint32_t have = 0;
		/* An image span hides what is before it, as the start of the text does. */
		while (have <= p && !image[p - have])
			have++;
		if (have == 0)
			continue;
		for (uint32_t l = 0; l < g->conf->n_engram; l++) {
			engram_rows(g, l, token + p + 1 - have, have, row);
			for (uint32_t k = 0; k < g->cols; k++, (*compared)++)
				wrong += row[k] != at2(json_array_get(want, p), l, k);
		}
	}
	return wrong;
}

static void check_set(const json_t *set)
{
	const json_t *primes = json_object_get(set, "primes"), *kase;
	uint32_t compared = 0, wrong = 0;
	struct ds_err err = { 0 };
	struct eng_conf c;
	struct engram g;
	size_t i;

	conf_of_set(set, &c);
	CU_ASSERT_EQUAL_FATAL(engram_constants(&c, &g, &err), 0);
	CU_ASSERT_EQUAL(g.cols, json_array_size(json_array_get(primes, 0)));
	for (uint32_t l = 0; l < c.n_engram; l++) {
		for (uint32_t k = 0; k < g.cols; k++)
			CU_ASSERT_EQUAL(g.prime[l][k], at2(primes, l, k));
		CU_ASSERT_EQUAL(g.offset[l][g.cols], c.engram_rows[l]);
	}
	g.map = malloc(c.vocab * sizeof(*g.map));
	CU_ASSERT_PTR_NOT_NULL_FATAL(g.map);
	for (uint32_t t = 0; t < c.vocab; t++)
		g.map[t] = (int32_t)t;
	json_array_foreach (json_object_get(set, "cases"), i, kase)
		wrong += wrong_rows(&g, kase, &compared);
	CU_ASSERT_EQUAL(wrong, 0);
	CU_ASSERT(compared > 100);
	engram_close(&g);
}

static void rows_match_reference(void)
{
	json_error_t je;
	json_t *root = json_load_file(VECTORS "/pieces.json", 0, &je), *set;
	size_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(root);
	const json_t *sets = json_object_get(json_object_get(root, "engram_rows"), "sets");
	CU_ASSERT(json_array_size(sets) >= 2);
	json_array_foreach (sets, i, set)
		check_set(set);
	json_decref(root);
}

/* model.md 8.3: the tiny model's prompt at position 47, through the real map. */
static void tiny_rows_at_47(void)
{
	static const uint64_t want[2][6] = { { 61, 139, 206, 360, 429, 598 },
					     { 111, 159, 357, 418, 616, 831 } };
	struct ds_err err = { 0 };
	uint32_t prompt[48];
	uint64_t row[ENGRAM_COLS_MAX];
	struct eng_conf c;
	struct engram g;
	char dir[128];

	for (uint32_t i = 0; i < 48; i++)
		prompt[i] = (7 * i * i + 31 * i + 5) % 509;
	CU_ASSERT_EQUAL_FATAL(tiny_model_temp(dir, sizeof(dir), &err), 0);
	CU_ASSERT_EQUAL_FATAL(eng_conf_load(dir, &c, &err), 0);
	CU_ASSERT_EQUAL_FATAL(engram_open(&c, &g, &err), 0);
	for (uint32_t l = 0; l < 2; l++) {
		engram_rows(&g, l, prompt, 48, row);
		for (uint32_t k = 0; k < 6; k++)
			CU_ASSERT_EQUAL(row[k], want[l][k]);
		/* Only the last four tokens matter. */
		uint64_t again[ENGRAM_COLS_MAX];
		engram_rows(&g, l, prompt + 44, 4, again);
		CU_ASSERT_EQUAL(memcmp(row, again, 6 * sizeof(row[0])), 0);
	}
	engram_close(&g);
	test_dir_remove(dir);
}

static void table_rows_must_fit(void)
{
	struct ds_err err = { 0 };
	struct eng_conf c;
	struct engram g;

	CU_ASSERT_EQUAL_FATAL(eng_conf_load(TESTS_DIR "/fixtures/demo-model", &c, &err), 0);
	CU_ASSERT_EQUAL(engram_constants(&c, &g, &err), 0);
	c.engram_rows[1]++;
	CU_ASSERT_EQUAL(engram_constants(&c, &g, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "engram_num_embeddings: layer 2 has 18429 rows"));
}

static void write_map(const char *dir, size_t len, uint32_t bad)
{
	static uint8_t map[2048];
	char path[256];
	FILE *f;

	for (size_t i = 0; i < 512; i++) {
		memset(map + i * 4, i == bad ? 0xff : 0, 4);
		map[i * 4] = i == bad ? 0xff : (uint8_t)(i / 2);
	}
	snprintf(path, sizeof(path), "%s/engram_token_map.bin", dir);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f = fopen(path, "w"));
	CU_ASSERT_EQUAL(fwrite(map, 1, len, f), len);
	fclose(f);
}

static void map_is_checked(void)
{
	struct ds_err err = { 0 };
	struct eng_conf c;
	struct engram g;
	char dir[128], path[256];

	CU_ASSERT_EQUAL_FATAL(tiny_model_temp(dir, sizeof(dir), &err), 0);
	CU_ASSERT_EQUAL_FATAL(eng_conf_load(dir, &c, &err), 0);
	write_map(dir, 2048, 300);
	CU_ASSERT_EQUAL(engram_open(&c, &g, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "token 300 has class -1"));
	CU_ASSERT_PTR_NULL(g.map);
	write_map(dir, 2047, 999);
	CU_ASSERT_EQUAL(engram_open(&c, &g, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "2047 bytes where vocab_size 512 needs 2048"));
	snprintf(path, sizeof(path), "%s/engram_token_map.bin", dir);
	CU_ASSERT_EQUAL(unlink(path), 0);
	CU_ASSERT_EQUAL(engram_open(&c, &g, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.obj, "engram_token_map.bin"));
	CU_ASSERT(err.fix[0] != '\0');
	test_dir_remove(dir);
}

static CU_TestInfo engram_tests[] = {
	{ "primes and row ids equal the reference", rows_match_reference },
	{ "rows of the tiny prompt at position 47", tiny_rows_at_47 },
	{ "table rows must equal the sum of the primes", table_rows_must_fit },
	{ "a missing, short or wrong token map is named", map_is_checked },
	CU_TEST_INFO_NULL
};

CU_SuiteInfo engram_suite = { .pName = "engine/engram", .pTests = engram_tests };
