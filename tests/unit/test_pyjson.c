/*
 * test_pyjson.c - JSON as Python's json module writes it.
 *
 * The table's right side is what json.dumps(json.loads(left), ensure_ascii=False) of Python 3.11 gave.
 */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pyjson.h"

/* clang-format off */
static const struct {
	const char *in, *out; /* out NULL = the same */
} dumps[] = {
	{ "{}", NULL }, { "[]", NULL }, { "null", NULL }, { "true", NULL }, { "false", NULL }, { "\"\"", NULL },
	{ "[1,2 , 3]", "[1, 2, 3]" },
	{ "{\"b\":1,\"a\":{\"z\":[],\"y\":{}}}", "{\"b\": 1, \"a\": {\"z\": [], \"y\": {}}}" },
	{ "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2}" },
	{ "\"\\u00e9\\/\\u0001\\b\\f\\n\\r\\t\\\\\\\"\\u007f\\u2028\\ud83d\\ude00\"", "\"\u00e9/\\u0001\\b\\f\\n\\r\\t\\\\\\\"\x7f\u2028\U0001f600\"" },
	{ "\"\\u0000a\"", NULL },
	{ "0", NULL }, { "-0", "0" }, { "0.0", NULL }, { "-0.0", NULL }, { "1.0", NULL }, { "1.50", "1.5" },
	{ "1E5", "100000.0" }, { "1e-5", "1e-05" }, { "0.0001", NULL }, { "0.00001", "1e-05" }, { "0.000123", NULL },
	{ "1e15", "1000000000000000.0" }, { "1e16", "1e+16" }, { "9999999999999998.0", NULL }, { "123456789012345678.0", "1.2345678901234568e+17" },
	{ "0.1", NULL }, { "0.30000000000000004", NULL }, { "3.14159", NULL }, { "100", NULL }, { "1e2", "100.0" },
	{ "5e-324", NULL }, { "2.5e-320", NULL }, { "2.2250738585072014e-308", NULL }, { "1.7976931348623157e308", "1.7976931348623157e+308" },
	{ "5.684341886080802e-14", NULL }, { "9007199254740993", NULL }, { "9007199254740993.0", "9007199254740992.0" }, { "1e-400", "0.0" },
	{ "9223372036854775807", NULL }, { "-9223372036854775808", NULL }, { "9223372036854775808", NULL }, { "-9223372036854775809", NULL },
	{ "18446744073709551615", NULL }, { "[340282366920938463463374607431768211456,\"9223372036854775808\\\\\\\"9223372036854775808\"]",
	  "[340282366920938463463374607431768211456, \"9223372036854775808\\\\\\\"9223372036854775808\"]" },
	{ "{\"18446744073709551615\":18446744073709551615,\"x\":[-18446744073709551616,1.5]}",
	  "{\"18446744073709551615\": 18446744073709551615, \"x\": [-18446744073709551616, 1.5]}" },
};
static const char *const refused[] = {
	"", "{", "1e400", "[18446744073709551615,1e400]", "18446744073709551615x", "01", "-", "[1,]", "NaN", "\"\\ud800\"", "18446744073709551615 1",
	"-018446744073709551615", "\"18446744073709551615",
};
/* clang-format on */

static void test_dumps(void)
{
	for (size_t i = 0; i < sizeof(dumps) / sizeof(dumps[0]); i++) {
		json_error_t at;
		struct ds_buf b = { 0 };
		const char *want = dumps[i].out != NULL ? dumps[i].out : dumps[i].in;
		json_t *v = pyjson_load(dumps[i].in, strlen(dumps[i].in), JSON_DECODE_ANY, &at);
		if (v != NULL)
			pyjson_dump(v, &b);
		bool same = v != NULL && b.len == strlen(want) && memcmp(b.data, want, b.len) == 0;
		if (!same)
			printf("   %s: got %s, expected %s (%s)\n", dumps[i].in,
			       b.data != NULL ? b.data : "nothing", want, v == NULL ? at.text : "");
		CU_ASSERT(same);
		ds_buf_fini(&b);
		json_decref(v);
	}
}

static void test_refused(void)
{
	char *many = malloc(5002);

	CU_ASSERT_PTR_NOT_NULL_FATAL(many);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		json_error_t at;
		json_t *v = pyjson_load(refused[i], strlen(refused[i]), JSON_DECODE_ANY, &at);
		if (v != NULL)
			printf("   %s: was taken\n", refused[i]);
		CU_ASSERT(v == NULL && at.text[0] != '\0');
		json_decref(v);
	}
	memset(many, '7', 5001);
	many[5001] = '\0';
	json_error_t at;
	CU_ASSERT_PTR_NULL(pyjson_load(many, 5001, JSON_DECODE_ANY, &at));
	json_t *v = pyjson_load(many, 4300, JSON_DECODE_ANY, &at);
	CU_ASSERT(v != NULL && pyjson_integer(v) != NULL && strlen(pyjson_integer(v)) == 4300);
	json_decref(v);
	free(many);
}

/* What is printed reads back as the same number, and no shorter text does. */
static void test_floats(void)
{
	uint64_t state = 88172645463325252u;

	for (int i = 0; i < 100000; i++) {
		struct ds_buf b = { 0 };
		char shorter[40];
		double x;
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		uint64_t bits = i % 4 == 0 ? state & ~UINT64_C(0xfffffffffffff)
					   : state; /* also powers of two */
		memcpy(&x, &bits, sizeof(x));
		if (!isfinite(x))
			continue;
		json_t *v = json_real(x);
		pyjson_dump(v, &b);
		json_decref(v);
		int digits = 0;
		for (const char *p = b.data; *p != '\0' && *p != 'e'; p++)
			digits += *p >= '0' && *p <= '9' && (digits > 0 || *p != '0');
		if (strtod(b.data, NULL) != x)
			printf("   %a printed as %s\n", x, b.data);
		CU_ASSERT_EQUAL(strtod(b.data, NULL), x);
		if (digits > 1 && strchr(b.data, 'e') != NULL) {
			snprintf(shorter, sizeof(shorter), "%.*e", digits - 2, x);
			CU_ASSERT_NOT_EQUAL(strtod(shorter, NULL), x);
		}
		ds_buf_fini(&b);
	}
}

static CU_TestInfo tests[] = {
	{ "values print as Python prints them", test_dumps },
	{ "what is not JSON is refused, long integers or not", test_refused },
	{ "floats print with the fewest digits that give them back", test_floats },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo pyjson_suite = { .pName = "engine/pyjson", .pTests = tests };
