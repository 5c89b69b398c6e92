/*
 * test_safetensors.c - headers that lie, indexes that disagree, and the files that are right.
 */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors.h"
#include "tiny_model.h"

#define DEMO  TESTS_DIR "/fixtures/demo-model"
#define INDEX "model.safetensors.index.json"

static char dir[64]; /* of one test */

static void make_dir(void)
{
	strcpy(dir, "/tmp/dsengine-st-XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
}

static void put(const char *name, const void *data, size_t len)
{
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f = fopen(path, "w"));
	CU_ASSERT_EQUAL(fwrite(data, 1, len, f), len);
	fclose(f);
}

/* A file with this header, @claim as its length (0: the true one) and @data zero bytes. */
static void put_st(const char *name, const char *header, uint64_t claim, size_t data)
{
	static uint8_t file[4096];
	size_t len = strlen(header);
	uint64_t say = claim == 0 ? len : claim;

	CU_ASSERT_FATAL(8 + len + data <= sizeof(file));
	memset(file, 0, sizeof(file));
	for (int i = 0; i < 8; i++)
		file[i] = (uint8_t)(say >> (8 * i));
	memcpy(file + 8, header, len);
	put(name, file, 8 + len + data);
}

#define T(dtype, shape, a, b) \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #a "," #b "]}"

/* clang-format off */
static const struct header_case {
	const char *header;
	uint64_t claim;
	size_t data;
	const char *says; /* part of the reason; NULL: accepted */
	const char *tensor; /* named in the object, or NULL */
} header_cases[] = {
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 0, 8, NULL, NULL },
	{ "{\"a\":" T("F32", "[]", 0, 4) "}   ", 0, 4, NULL, NULL },
	{ "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" T("I8", "[2,3]", 0, 6) "}", 0, 6, NULL, NULL },
	{ "{\"b\":" T("I8", "[4]", 2, 6) ",\"a\":" T("BF16", "[1]", 0, 2) "}", 0, 6, NULL, NULL },
	{ "{\"a\":" T("F32", "[0,7]", 0, 0) ",\"b\":" T("F8_E8M0", "[1]", 0, 1) "}", 0, 1, NULL, NULL },
	{ "{}", 0, 0, NULL, NULL },
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 1ULL << 62, 8, "header length 4611686018427387904 is above", NULL },
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 5000, 8, "header length 5000, but", NULL },
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 1, 8, "header length 1", NULL },
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 30, 8, "not JSON, line 1", NULL },
	{ "GGUF", 0x46554747, 0, "GGUF", NULL },
	{ "[]", 0, 0, "not a JSON object", NULL },
	{ "{\"a\":3}", 0, 0, "must be an object", "a" },
	{ "{\"\":" T("I8", "[1]", 0, 1) "}", 0, 1, "a name must have", NULL },
	{ "{\"a\":" T("I8", "[1]", 0, 1) ",\"a\":" T("I8", "[1]", 1, 2) "}", 0, 2, "duplicate object key", NULL },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, 4, "data_offsets must be two", "a" },
	{ "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 0, 4, "shape must be a list", "a" },
	{ "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, "dtype must be a string", "a" },
	{ "{\"a\":" T("F4", "[1]", 0, 4) "}", 0, 4, "unknown dtype \"F4\"", "a" },
	{ "{\"a\":" T("F32", "[-1]", 0, 4) "}", 0, 4, "shape entry 0", "a" },
	{ "{\"a\":" T("F32", "[1.0]", 0, 4) "}", 0, 4, "shape entry 0", "a" },
	{ "{\"a\":" T("I8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 0, 1, "at most 8", "a" },
	{ "{\"a\":" T("F32", "[4294967296,4294967296]", 0, 4) "}", 0, 4, "more than 2^64", "a" },
	{ "{\"a\":" T("F32", "[2]", 0, 4) "}", 0, 4, "span 4 bytes, shape and dtype F32 need 8", "a" },
	{ "{\"a\":" T("BF16", "[4]", 0, 4) "}", 0, 4, "span 4 bytes", "a" },
	{ "{\"a\":" T("F32", "[1]", 4, 0) "}", 0, 4, "before they begin", "a" },
	{ "{\"a\":" T("F32", "[1]", -4, 0) "}", 0, 4, "at least 0", "a" },
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 0, 7, "data ends at 8, the file holds 7", "a" },
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 0, 9, "1 bytes at the end belong to no tensor", NULL },
	{ "{\"a\":" T("I8", "[4]", 0, 4) ",\"b\":" T("I8", "[4]", 2, 6) "}", 0, 6, "overlaps that of a", "b" },
	{ "{\"a\":" T("I8", "[4]", 0, 4) ",\"b\":" T("I8", "[4]", 0, 4) "}", 0, 4, "overlaps", NULL },
	{ "{\"a\":" T("I8", "[4]", 0, 4) ",\"b\":" T("I8", "[4]", 6, 10) "}", 0, 10, "hole of 2 bytes", "b" },
	{ "{\"a\":" T("I8", "[4]", 1, 5) "}", 0, 5, "hole of 1 bytes", "a" },
	{ "{\"a\":{\"b\":{\"c\":{\"d\":{}}}}}", 0, 0, "nested deeper than 4", NULL },
	{ "{\"__metadata__\":[],\"a\":" T("I8", "[1]", 0, 1) "}", 0, 1, "__metadata__ must be an object", NULL },
	{ "{\"__metadata__\":{\"x\":1},\"a\":" T("I8", "[1]", 0, 1) "}", 0, 1, "__metadata__.x must be a string", NULL },
	{ "{\"\\u0000\":" T("I8", "[1]", 0, 1) "}", 0, 1, "not JSON, line 1", NULL },
};
/* clang-format on */

static void headers_are_checked(void)
{
	char path[128], want[160];

	make_dir();
	snprintf(path, sizeof(path), "%s/x.safetensors", dir);
	for (size_t i = 0; i < sizeof(header_cases) / sizeof(header_cases[0]); i++) {
		const struct header_case *k = &header_cases[i];
		struct ds_err err = { 0 };
		struct st_set s;
		put_st("x.safetensors", k->header, k->claim, k->data);
		int rc = st_open_file(path, &s, &err);
		bool ok = k->says == NULL ? rc == 0
					  : rc == -1 && err.kind == DS_ERR_INPUT &&
						    strstr(err.why, k->says) != NULL;
		snprintf(want, sizeof(want), "%s%s%s", path, k->tensor == NULL ? "" : ": ",
			 k->tensor == NULL ? "" : k->tensor);
		if (k->says != NULL && strncmp(err.obj, want, strlen(want)) != 0)
			ok = false;
		if (!ok)
			printf("\n  %s: rc %d, on \"%s\", why \"%s\"", k->header, rc, err.obj,
			       err.why);
		CU_ASSERT(ok);
		if (rc == 0)
			st_close(&s);
	}
	test_dir_remove(dir);
}

static void costly_headers_are_refused(void)
{
	struct ds_err err = { 0 };
	struct st_set s;
	char path[128], *text = malloc(30000);

	make_dir();
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	strcpy(text, "12345678[");
	for (int i = 0; i < 9000; i++)
		strcpy(text + 9 + (size_t)i * 3, "[],");
	strcpy(text + 9 + 27000, "[]]");
	size_t len = strlen(text + 8);
	for (int i = 0; i < 8; i++)
		text[i] = (char)(len >> (8 * i));
	put("x.safetensors", text, 8 + len);
	snprintf(path, sizeof(path), "%s/x.safetensors", dir);
	CU_ASSERT_EQUAL(st_open_file(path, &s, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "not a list of tensors"));
	free(text);
	test_dir_remove(dir);
}

static void every_dtype_has_its_size(void)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} want[] = { { "BF16", 2 }, { "F32", 4 }, { "F8_E4M3", 1 }, { "F8_E8M0", 1 },
		     { "I8", 1 },   { "I32", 4 }, { "F64", 8 },	    { "BOOL", 1 } };
	char path[128], header[160];

	make_dir();
	snprintf(path, sizeof(path), "%s/x.safetensors", dir);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct ds_err err = { 0 };
		struct st_set s;
		snprintf(header, sizeof(header),
			 "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%u]}}",
			 want[i].name, 3 * want[i].bytes);
		put_st("x.safetensors", header, 0, (size_t)3 * want[i].bytes);
		CU_ASSERT_EQUAL_FATAL(st_open_file(path, &s, &err), 0);
		CU_ASSERT_STRING_EQUAL(st_dtype_name(s.tensor[0].dtype), want[i].name);
		CU_ASSERT_EQUAL(st_dtype_bytes(s.tensor[0].dtype), want[i].bytes);
		st_close(&s);
	}
	test_dir_remove(dir);
}

#define A "{\"a\":" T("I8", "[1]", 0, 1) "}"
#define B "{\"b\":" T("I8", "[2]", 0, 2) "}"

/* clang-format off */
static const struct index_case {
	const char *one, *two;	/* headers of 1.safetensors, 2.safetensors; NULL: absent */
	size_t data[2];
	const char *index;	/* NULL: absent */
	const char *says, *on;	/* NULL: accepted */
} index_cases[] = {
	{ A, B, { 1, 2 }, NULL, NULL, NULL },
	{ A, B, { 1, 2 }, "{\"metadata\":{\"total_size\":3},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", NULL, NULL },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", NULL, NULL },
	{ A, A, { 1, 1 }, NULL, "1.safetensors holds a tensor of this name", "2.safetensors: a" },
	{ A, A, { 1, 1 }, "{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", "holds a tensor of this name", ": a" },
	{ A, NULL, { 1, 0 }, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", "missing shard: \"2.safetensors\", named for tensor \"b\"", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"2.safetensors\"}}", "missing tensor: \"c\" is not in 2.safetensors", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}", "\"a\" is in 1.safetensors, the index says 2.safetensors", INDEX },
	{ A, "{\"b\":" T("I8", "[1]", 0, 1) ",\"d\":" T("I8", "[1]", 1, 2) "}", { 1, 2 }, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", "weight_map lacks \"d\"", INDEX },
	{ A, B, { 1, 2 }, "{\"metadata\":{\"total_size\":4},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", "total_size is 4, the tensors have 3", INDEX },
	{ A, B, { 1, 2 }, "{\"metadata\":{\"total_size\":\"3\"},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", "total_size must be a number", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "missing shard", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "missing shard", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":3}}", "must be a file name", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{}}", "weight_map must be an object", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}", "duplicate object key", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":", "line 1", INDEX },
	{ A, B, { 1, 2 }, "", "line 1", INDEX },
	{ A, B, { 1, 2 }, "[[[[[]]]]]", "nested deeper", INDEX },
	{ A, B, { 1, 2 }, "{\"weight_map\":{\"a\":\"" INDEX "\"}}", "not a JSON object|header length", INDEX },
	{ NULL, NULL, { 0, 0 }, NULL, "no *.safetensors file", "" },
	{ A, B, { 1, 1 }, NULL, "the file holds 1 bytes of data: truncated", "2.safetensors: b" },
};
/* clang-format on */

/* Any of the parts of @says between bars. */
static bool says_any(const char *text, const char *says)
{
	char part[128];

	for (const char *end; says != NULL; says = end == NULL ? NULL : end + 1) {
		end = strchr(says, '|');
		snprintf(part, sizeof(part), "%.*s", (int)(end ? end - says : 120), says);
		if (strstr(text, part) != NULL)
			return true;
	}
	return false;
}

static void run_index_case(const struct index_case *k)
{
	struct ds_err err = { 0 };
	struct eng_dir *d;
	struct st_set s;

	make_dir();
	if (k->one != NULL)
		put_st("1.safetensors", k->one, 0, k->data[0]);
	if (k->two != NULL)
		put_st("2.safetensors", k->two, 0, k->data[1]);
	if (k->index != NULL)
		put(INDEX, k->index, strlen(k->index));
	CU_ASSERT_PTR_NOT_NULL_FATAL(d = eng_dir_open(dir, &err));
	int rc = st_open_dir(d, &s, &err);
	bool ok = k->says == NULL
			  ? rc == 0 && s.n_tensor == 2
			  : rc == -1 && err.kind == DS_ERR_INPUT && says_any(err.why, k->says) &&
				    strstr(err.obj, k->on) != NULL;
	if (!ok)
		printf("\n  index %s: rc %d, on \"%s\", why \"%s\"", k->index ? k->index : "-", rc,
		       err.obj, err.why);
	CU_ASSERT(ok);
	if (rc == 0)
		st_close(&s);
	eng_dir_close(d);
	test_dir_remove(dir);
}

static void indexes_are_checked(void)
{
	for (size_t i = 0; i < sizeof(index_cases) / sizeof(index_cases[0]); i++)
		run_index_case(&index_cases[i]);
}

static void odd_files_are_refused(void)
{
	struct ds_err err = { 0 };
	char path[128];
	struct st_set s;

	make_dir();
	snprintf(path, sizeof(path), "%s/fifo.safetensors", dir);
	CU_ASSERT_EQUAL_FATAL(mkfifo(path, 0600), 0);
	CU_ASSERT_PTR_NULL(eng_dir_open(dir, &err)); /* and does not hang */
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "not a regular file"));
	CU_ASSERT_EQUAL(st_open_file(path, &s, &err), -1);
	CU_ASSERT_EQUAL(st_open_file(dir, &s, &err), -1);
	CU_ASSERT_EQUAL(st_open_file("/nonexistent", &s, &err), -1);
	CU_ASSERT_EQUAL(err.sys, ENOENT);
	put("short.safetensors", "1234", 4);
	snprintf(path, sizeof(path), "%s/short.safetensors", dir);
	CU_ASSERT_EQUAL(st_open_file(path, &s, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "4 bytes: too short"));
	test_dir_remove(dir);
}

static void demo_opens_and_reads(void)
{
	struct ds_err err = { 0 };
	struct eng_dir *d = eng_dir_open(DEMO, &err);
	uint8_t part[16], whole[256];
	struct st_set s;

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL_FATAL(st_open_dir(d, &s, &err), 0);
	CU_ASSERT_EQUAL(s.n_tensor, 826);
	CU_ASSERT_EQUAL(s.total_bytes, 6680984);
	for (size_t i = 1; i < s.n_tensor; i++)
		CU_ASSERT(strcmp(s.tensor[i - 1].name, s.tensor[i].name) < 0);
	const struct st_tensor *t = st_find(&s, "norm.weight");
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_EQUAL(t->dtype, ST_BF16);
	CU_ASSERT_EQUAL(t->bytes, 256);
	CU_ASSERT_PTR_NULL(st_find(&s, "norm.weighs"));
	CU_ASSERT_EQUAL(st_read(&s, t, 0, whole, 256, &err), 0);
	CU_ASSERT_EQUAL(st_read(&s, t, 240, part, 16, &err), 0);
	CU_ASSERT_EQUAL(memcmp(part, whole + 240, 16), 0);
	CU_ASSERT_EQUAL(s.read_bytes, 272);
	CU_ASSERT_EQUAL(st_read(&s, t, 241, part, 16, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_BUG);
	st_close(&s);
	eng_dir_close(d);
}

static void vectors_open(void)
{
	struct ds_err err = { 0 };
	struct st_set s;

	CU_ASSERT_EQUAL_FATAL(st_open_file(TESTS_DIR "/vectors/tiny-modules.safetensors", &s, &err),
			      0);
	CU_ASSERT_EQUAL(s.n_tensor, 366);
	CU_ASSERT_PTR_NOT_NULL(st_find(&s, "prefill.layers.0.in"));
	st_close(&s);
}

static void a_file_that_shrinks(void)
{
	struct ds_err err = { 0 };
	struct st_set s;
	uint8_t byte[8];
	char path[128];

	make_dir();
	put_st("x.safetensors", "{\"a\":" T("I8", "[8]", 0, 8) "}", 0, 8);
	snprintf(path, sizeof(path), "%s/x.safetensors", dir);
	CU_ASSERT_EQUAL_FATAL(st_open_file(path, &s, &err), 0);
	CU_ASSERT_EQUAL(truncate(path, 20), 0);
	CU_ASSERT_EQUAL(st_read(&s, &s.tensor[0], 0, byte, 8, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.obj, "x.safetensors: a"));
	st_close(&s);
	test_dir_remove(dir);
}

static CU_TestInfo safetensors_tests[] = {
	{ "headers: lengths, offsets, shapes, names", headers_are_checked },
	{ "a header of many values is refused before it is parsed", costly_headers_are_refused },
	{ "dtypes and their sizes", every_dtype_has_its_size },
	{ "indexes: shards, tensors, totals", indexes_are_checked },
	{ "FIFOs, directories and short files", odd_files_are_refused },
	{ "the demo model opens, ranges are read and counted", demo_opens_and_reads },
	{ "the reference modules open", vectors_open },
	{ "a file that became shorter is named", a_file_that_shrinks },
	CU_TEST_INFO_NULL
};

CU_SuiteInfo safetensors_suite = { .pName = "engine/safetensors", .pTests = safetensors_tests };
