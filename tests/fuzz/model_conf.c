/*
 * model_conf.c - fuzz target: config.json, and what follows from it without a checkpoint.
 */
#include <stdlib.h>

#include "engram.h"
#include "model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t worlds[][2] = { { 1, 4 }, { 2, 4 }, { 4, 4 }, { 1, 3 }, { 3, 3 } };
	struct ds_err err = { 0 };
	struct eng_conf c;
	struct engram g;
	struct eng_shard s;

	if (eng_conf_parse("config.json", (const char *)data, size, &c, &err) != 0) {
		if (err.kind == DS_ERR_NONE || err.why[0] == '\0')
			abort(); /* a refusal must say why */
		return 0;
	}
	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		for (uint32_t r = 0; r < worlds[i][0]; r++) {
			if (eng_shard_plan(&c, r, worlds[i][0], worlds[i][1], &s, &err) != 0)
				continue;
			if (s.group_end > c.o_groups || s.head_end > c.n_heads ||
			    s.inner_end > c.inner || s.vocab_end > c.vocab)
				abort();
		}
	}
	engram_constants(&c, &g, &err);
	return 0;
}
