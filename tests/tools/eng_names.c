/*
 * eng_names.c - what dsengine's settings table says, one line a fact, for the test of the man pages.
 *
 * "key NAME", "default NAME VALUE", "bounds NAME LOW HIGH".
 */
#include <inttypes.h>
#include <stdio.h>

#include "settings.h"

int main(void)
{
	size_t n;
	const struct ds_setting *r = eng_settings_rows(&n);
	for (size_t i = 0; i < n; i++) {
		printf("key %s\n", r[i].key);
		if (r[i].def != NULL)
			printf("default %s %s\n", r[i].key, r[i].def);
		if (r[i].type == DS_SET_INT)
			printf("bounds %s %" PRId64 " %" PRId64 "\n", r[i].key, r[i].min, r[i].max);
	}
	return 0;
}
