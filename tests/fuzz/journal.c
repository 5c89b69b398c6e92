/*
 * journal.c - fuzz target: any bytes as a journal's log, as they are and with their checksums made
 * right, so that what lies behind the checksum is reached too.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "journal.h"

static void parse(const void *data, size_t len, size_t committed, uint32_t crc)
{
	struct prep_journal j = { .id = 1, .path = "log", .dir_fd = -1, .fd = -1 };
	struct ds_err err = { 0 };
	char *copy = malloc(len + (len == 0));
	if (copy == NULL)
		return;
	memcpy(copy, data, len);
	if (prep_journal_parse(&j, copy, len, committed, crc, &err) == 0) {
		/* What is accepted is safe to act on: every operation passes its checks. */
		for (unsigned int i = 0; i < j.n_op; i++)
			if (prep_op_check(&j.op[i].op, &err) != 0 || j.op[i].segment >= j.n_seg)
				abort();
		(void)prep_journal_unfinished(&j);
		(void)prep_journal_standing(&j);
	} else if (err.kind == DS_ERR_NONE || err.why[0] == '\0') {
		abort();
	}
	prep_journal_fini(&j);
	free(copy);
}

/* Lines of the input become records with right lengths and checksums. */
static void parse_lines(const uint8_t *data, size_t size)
{
	unsigned char *log = malloc(size * 9 + 16);
	size_t n = 0;
	if (log == NULL)
		return;
	while (size > 0) {
		const uint8_t *nl = memchr(data, '\n', size);
		size_t len = nl != NULL ? (size_t)(nl - data) : size;
		unsigned int u = len > 0xffff ? 0xffff : (unsigned int)len, x = u ^ 0xffff;
		uint32_t crc = ds_crc32c(0, data, u);
		const unsigned char head[] = { u & 0xff,	 u >> 8,     x & 0xff,
					       x >> 8,		 crc & 0xff, crc >> 8 & 0xff,
					       crc >> 16 & 0xff, crc >> 24 };
		memcpy(log + n, head, sizeof(head));
		memcpy(log + n + sizeof(head), data, u);
		n += sizeof(head) + u;
		size_t used = len + (nl != NULL);
		data += used;
		size -= used;
	}
	parse(log, n, 0, 0);
	parse(log, n, n, ds_crc32c(0, log, n));
	free(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	parse(data, size, 0, 0);
	parse_lines(data, size);
	return 0;
}
