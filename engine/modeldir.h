/*
 * modeldir.h - the files of a model directory, opened once and read by position.
 *
 * A command that starts as root opens its model before it gives root up and parses it afterwards
 * (design 4.1), so opening and reading are two steps. Everything that reads a model goes through
 * this object and never through a path a second time.
 */
#ifndef ENG_MODELDIR_H
#define ENG_MODELDIR_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define ENG_DIR_FILES_MAX 512 /* files kept open; the release has 48 shards */
#define ENG_DIR_NAME_MAX  256

struct eng_dir_file {
	char name[ENG_DIR_NAME_MAX];
	int fd;
	uint64_t size; /* bytes, when it was opened */
};

struct eng_dir {
	char path[4096]; /* as given, for messages */
	uint32_t n;
	struct eng_dir_file file[]; /* sorted by name */
};

/**
 * eng_dir_open() - open the files of @path that a model may consist of; reads and parses nothing.
 * They are config.json, tokenizer.json, tokenizer_config.json, engram_token_map.bin,
 * model.safetensors.index.json and *.safetensors. Others are left alone. A link is followed, but
 * what is not a regular file is refused.
 * Return: owned (eng_dir_close()); NULL with DS_ERR_INPUT, DS_ERR_HOST, DS_ERR_PERM or DS_ERR_NOMEM.
 */
struct eng_dir *eng_dir_open(const char *path, struct ds_err *err);
/** eng_dir_close() - close every file; NULL is allowed. */
void eng_dir_close(struct eng_dir *d);

/** eng_dir_find() - a file by name; NULL if it is not there. Returns view (until eng_dir_close()). */
const struct eng_dir_file *eng_dir_find(const struct eng_dir *d, const char *name);

/**
 * eng_dir_read() - the whole of @name into @out, by pread: may be called again, in any process.
 * @max: bytes; a longer file is DS_ERR_INPUT. An absent one is DS_ERR_INPUT with err->sys ENOENT.
 */
int eng_dir_read(const struct eng_dir *d, const char *name, size_t max, struct ds_buf *out,
		 struct ds_err *err);

/** eng_dir_obj() - "PATH/NAME" for messages, the tail if it is too long. Return: @buf. */
char *eng_dir_obj(const struct eng_dir *d, const char *name, char *buf, size_t size);

/** eng_pread() - exactly @len bytes at @off; EINTR is retried. Return: 0; -1 errno set, 0 = file ended. */
int eng_pread(int fd, void *buf, size_t len, uint64_t off);

#endif
