/*
 * safetensors.c - fuzz target: the bytes are a shard; one byte in front chooses how it is opened.
 *
 * Even: one file by path. Odd: a directory of it and an index, which is what follows the first
 * newline; so index and header are both the fuzzer's.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];

static void clean_up(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/a.safetensors", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
	unlink(path);
	rmdir(dir);
}

static void put(const char *name, const uint8_t *data, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	close(fd);
}

/* Whatever was accepted must be readable to its last byte. */
static void read_all(struct st_set *s)
{
	struct ds_err err = { 0 };
	uint8_t part[64];

	for (size_t i = 0; i < s->n_tensor; i++) {
		const struct st_tensor *t = &s->tensor[i];
		size_t n = t->bytes < sizeof(part) ? (size_t)t->bytes : sizeof(part);
		if (st_find(s, t->name) != t || st_read(s, t, t->bytes - n, part, n, &err) != 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ds_err err = { 0 };
	struct eng_dir *d = NULL;
	struct st_set s;
	int rc;

	if (dir[0] == '\0') {
		const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
		snprintf(dir, sizeof(dir), "%s/fuzz-st-XXXXXX", tmp);
		if (mkdtemp(dir) == NULL)
			abort();
		atexit(clean_up);
	}
	if (size == 0)
		return 0;
	bool with_index = data[0] & 1;
	const uint8_t *nl = with_index ? memchr(data, '\n', size) : NULL;
	size_t first = nl == NULL ? size : (size_t)(nl - data);
	if (nl != NULL) {
		put("model.safetensors.index.json", data + 1, first > 1 ? first - 1 : 0);
		put("a.safetensors", nl + 1, size - first - 1);
		d = eng_dir_open(dir, &err);
		if (d == NULL)
			abort();
		rc = st_open_dir(d, &s, &err);
	} else {
		char path[128];
		put("a.safetensors", data + 1, size - 1);
		snprintf(path, sizeof(path), "%s/a.safetensors", dir);
		rc = st_open_file(path, &s, &err);
	}
	if (rc == 0) {
		read_all(&s);
		st_close(&s);
	} else if (err.kind == DS_ERR_NONE || err.why[0] == '\0') {
		abort(); /* a refusal must say why */
	}
	eng_dir_close(d);
	return 0;
}
