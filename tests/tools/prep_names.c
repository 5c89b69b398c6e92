/*
 * prep_names.c - prints what dsprep's tables hold, one "KIND FIELDS" a line, so that the man pages
 * can be held against the code.
 */
#include <inttypes.h>
#include <stdio.h>

#include "conf.h"
#include "doctor.h"
#include "ops.h"

int main(void)
{
	size_t n;
	const struct ds_setting *rows = prep_conf_table(&n);
	for (size_t i = 0; i < n; i++) {
		printf("key %s %s\n", rows[i].section, rows[i].key);
		if (rows[i].def != NULL)
			printf("default %s %s\n", rows[i].key, rows[i].def);
		if (rows[i].type == DS_SET_INT)
			printf("bounds %s %" PRId64 " to %" PRId64 "\n", rows[i].key, rows[i].min,
			       rows[i].max);
	}
	const struct prep_check *checks = prep_checks(&n);
	for (size_t i = 0; i < n; i++)
		printf("check %s\n", checks[i].id);
	const struct prep_op_row *ops = prep_op_rows(&n);
	for (size_t i = 0; i < n; i++)
		printf("op %s\n", ops[i].name);
	return 0;
}
