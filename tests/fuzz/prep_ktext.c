/*
 * prep_ktext.c - any bytes as /proc/meminfo, /proc/PID/limits, /proc/cmdline, a kernel config and a
 * unit file: an answer or none, without a byte read too far.
 */
#include <stdlib.h>
#include <string.h>

#include "ktext.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t v;
	char value[8];
	char *copy = malloc(size); /* of exactly that size, without a NUL behind it */
	if (size > 0)
		memcpy(copy, data, size);
	(void)prep_kt_meminfo(copy, size, "CmaFree", &v);
	(void)prep_kt_limit(copy, size, "Max locked memory", &v);
	(void)prep_kt_kconfig(copy, size, "CONFIG_CMA");
	(void)prep_kt_unit_bytes(copy, size, "LimitMEMLOCK", &v);
	memset(value, 'x', sizeof(value));
	if (prep_kt_cmdline(copy, size, "kho", value, sizeof(value)) &&
	    memchr(value, '\0', sizeof(value)) == NULL)
		abort();
	free(copy);
	return 0;
}
