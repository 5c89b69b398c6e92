/*
 * tok_ids.c - ids of many texts, for comparing with other tokenizers: tok_ids TOKENIZER.json [plain].
 *
 * Reads records of a little-endian 32-bit length and that many bytes from stdin, and prints one line of ids for
 * each. Added tokens are matched unless "plain" is given.
 */
#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer.h"

static int one(const struct tok *t, char *text, uint32_t len, bool specials, struct ds_err *err)
{
	struct tok_ids ids = { 0 };
	int rc = tok_encode(t, text, len, specials, &ids, err);

	for (size_t i = 0; rc == 0 && i < ids.n; i++)
		printf("%s%u", i > 0 ? " " : "", ids.id[i]);
	putchar('\n');
	tok_ids_fini(&ids);
	return rc;
}

int main(int argc, char **argv)
{
	bool specials = argc < 3 || strcmp(argv[2], "plain") != 0;
	struct ds_err err = { 0 };
	struct tok *t = argc > 1 ? tok_open(argv[1], &err) : NULL;
	uint32_t len;
	int rc = t == NULL;

	while (rc == 0 && fread(&len, sizeof(len), 1, stdin) == 1) {
		len = le32toh(len);
		char *text = malloc((size_t)len + 1);
		if (text == NULL || fread(text, 1, len, stdin) != len ||
		    one(t, text, len, specials, &err) != 0)
			rc = 1;
		free(text);
	}
	if (err.kind != DS_ERR_NONE)
		ds_err_print(stderr, "tok_ids", &err);
	tok_close(t);
	return rc;
}
