/*
 * pyjson.c - JSON text to a value and back to text: the second reading must be the first, and print the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pyjson.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ds_buf one = { 0 }, two = { 0 };
	json_error_t at;
	char *exact = malloc(size + 1);

	if (exact == NULL)
		return 0;
	memcpy(exact, data, size);
	json_t *v = pyjson_load(exact, size, JSON_DECODE_ANY, &at);
	free(exact);
	if (v == NULL)
		return 0;
	pyjson_dump(v, &one);
	json_t *again = pyjson_load(one.data, one.len, JSON_DECODE_ANY, &at);
	if (again == NULL || !json_equal(v, again))
		abort();
	pyjson_dump(again, &two);
	if (one.len != two.len || memcmp(one.data, two.data, one.len) != 0)
		abort();
	ds_buf_fini(&one);
	ds_buf_fini(&two);
	json_decref(v);
	json_decref(again);
	return 0;
}
