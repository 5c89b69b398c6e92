/*
 * prompt_ids.c (fuzz) - a file of token ids: every accepted text gives as many ids as it has numbers.
 */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "genargs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tok_ids ids = { 0 };
	struct ds_err err = { 0 };
	char *text = malloc(size); /* exactly as long: one byte too far is a report */
	size_t numbers = 0;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	int rc = gen_ids_parse("fuzz", text, size, &ids, &err);

	for (size_t i = 0; i < size; i++)
		numbers += isdigit((unsigned char)text[i]) &&
			   (i == 0 || !isdigit((unsigned char)text[i - 1]));
	assert(rc == 0 ? ids.n == numbers : err.kind == DS_ERR_INPUT && err.why[0] != '\0');
	tok_ids_fini(&ids);
	free(text);
	return 0;
}
