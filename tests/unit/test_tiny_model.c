/*
 * test_tiny_model.c - the generated tiny checkpoint has the tensors and hashes of the reference.
 */
#include <CUnit/CUnit.h>
#include <jansson.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"
#include "tiny_model.h"

static void hex16(const uint8_t *data, size_t len, char *hex)
{
	uint8_t sum[SHA256_DIGEST_LENGTH];

	SHA256(data, len, sum);
	for (int i = 0; i < 8; i++)
		sprintf(hex + (size_t)i * 2, "%02x", sum[i]);
}

/* One row of tiny-tensors.json: name, dtype, shape, first digits of the hash. */
static bool row_matches(struct st_set *s, const json_t *row)
{
	const json_t *shape = json_array_get(row, 2);
	const struct st_tensor *t = st_find(s, json_string_value(json_array_get(row, 0)));
	struct ds_err err = { 0 };
	char hex[17];

	if (t == NULL || t->n_dim != json_array_size(shape) ||
	    strcmp(st_dtype_name(t->dtype), json_string_value(json_array_get(row, 1))) != 0)
		return false;
	for (uint32_t i = 0; i < t->n_dim; i++) {
		if (t->dim[i] != (uint64_t)json_integer_value(json_array_get(shape, i)))
			return false;
	}
	uint8_t *data = malloc(t->bytes);
	bool ok = data != NULL && st_read(s, t, 0, data, t->bytes, &err) == 0;
	if (ok)
		hex16(data, t->bytes, hex);
	free(data);
	return ok && strcmp(hex, json_string_value(json_array_get(row, 3))) == 0;
}

static void every_tensor_matches(void)
{
	json_error_t je;
	json_t *rows = json_load_file(TESTS_DIR "/vectors/tiny-tensors.json", 0, &je), *row;
	struct ds_err err = { 0 };
	struct st_set s;
	char dir[128];
	size_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
	CU_ASSERT_EQUAL_FATAL(tiny_model_temp(dir, sizeof(dir), &err), 0);
	struct eng_dir *d = eng_dir_open(dir, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL_FATAL(st_open_dir(d, &s, &err), 0);
	CU_ASSERT_EQUAL(json_array_size(rows), 826);
	CU_ASSERT_EQUAL(s.n_tensor, json_array_size(rows));
	json_array_foreach (rows, i, row) {
		bool ok = row_matches(&s, row);
		if (!ok)
			printf("\n  %s differs", json_string_value(json_array_get(row, 0)));
		CU_ASSERT(ok);
	}
	st_close(&s);
	eng_dir_close(d);
	test_dir_remove(dir);
	json_decref(rows);
}

static CU_TestInfo tiny_model_tests[] = { { "every tensor has the reference's shape and hash",
					    every_tensor_matches },
					  CU_TEST_INFO_NULL };

CU_SuiteInfo tiny_model_suite = { .pName = "tests/tiny_model", .pTests = tiny_model_tests };
