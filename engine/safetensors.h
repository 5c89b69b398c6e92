/*
 * safetensors.h - the tensors of a checkpoint by name: where their bytes lie, and reading ranges.
 *
 * Untrusted input. Nothing in a header is believed before it is checked against the file's size;
 * the data after it is only ever read by position into the caller's memory. Format: 8 bytes of
 * little-endian header length H, H bytes of JSON {name: {dtype, shape, data_offsets}}, data.
 */
#ifndef ENG_SAFETENSORS_H
#define ENG_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "modeldir.h"

#define ST_DIMS_MAX	    8
#define ST_HEADER_BYTES_MAX (100u << 20)

enum st_dtype {
	ST_BOOL,
	ST_U8,
	ST_I8,
	ST_F8_E4M3,
	ST_F8_E5M2,
	ST_F8_E8M0,
	ST_I16,
	ST_U16,
	ST_F16,
	ST_BF16,
	ST_I32,
	ST_U32,
	ST_F32,
	ST_I64,
	ST_U64,
	ST_F64,
	ST_DTYPES
};

struct st_tensor {
	char *name;
	enum st_dtype dtype;
	uint32_t n_dim, shard; /* shard: index into the set's files */
	uint64_t dim[ST_DIMS_MAX];
	uint64_t begin; /* bytes from the start of the file */
	uint64_t bytes;
};

struct st_shard {
	char *name; /* file name, for messages with the directory in front */
	int fd;	    /* borrowed from the directory, or owned when the set was opened by path */
	uint64_t size, data0;			  /* file size; where data begins */
	uint64_t behind0, behind_end, behind_sum; /* read since the page cache was last dropped */
};

/* All tensors of one file or of one model directory. Sorted by name once opened. */
struct st_set {
	char *path; /* file or directory, for messages */
	struct st_shard *shard;
	uint32_t n_shard;
	struct st_tensor *tensor;
	size_t n_tensor, cap;
	uint64_t total_bytes; /* data of all tensors */
	uint64_t read_bytes;  /* tensor bytes read through st_read() */
	bool one_file;
};

/** st_dtype_name() - as in the header, "BF16"; static. st_dtype_bytes() - per element. */
const char *st_dtype_name(enum st_dtype t);
uint32_t st_dtype_bytes(enum st_dtype t);

/**
 * st_open_file() - one safetensors file by path. @s: out; free with st_close(), after failures too.
 * Return: 0; -1 DS_ERR_INPUT naming file, tensor and reason, DS_ERR_HOST, DS_ERR_PERM, DS_ERR_NOMEM.
 */
int st_open_file(const char *path, struct st_set *s, struct ds_err *err);

/**
 * st_open_dir() - a model directory: by model.safetensors.index.json if it has one, else every
 * *.safetensors file in it. Refused besides what st_open_file() refuses: a shard that the index
 * names and the directory lacks, a tensor in another shard than the index says or in two shards,
 * one that only the index or only a shard knows, another total_size than the tensors have.
 * @d: borrowed until st_close()
 */
int st_open_dir(const struct eng_dir *d, struct st_set *s, struct ds_err *err);
void st_close(struct st_set *s);

/** st_find() - a tensor by name, NULL if there is none. Returns view (until st_close()). */
const struct st_tensor *st_find(const struct st_set *s, const char *name);

/**
 * st_read() - bytes [@off, @off + @len) of a tensor into @buf; adds to read_bytes.
 * Drops what it read from the page cache, in steps, when the set is large: weights are read once.
 * Return: 0; -1 DS_ERR_INPUT (the file ended early), DS_ERR_HOST. Threads: owner of @s only.
 */
int st_read(struct st_set *s, const struct st_tensor *t, uint64_t off, void *buf, size_t len,
	    struct ds_err *err);

/** st_obj() - "FILE: TENSOR" for messages; @t may be NULL. Return: @buf. */
char *st_obj(const struct st_set *s, const struct st_tensor *t, char *buf, size_t size);

/**
 * st_parse_header() - one header of @len bytes, for a file whose data section has @data_bytes.
 * Appends to @s (tensors of shard @shard, positions from @data0). For st_open_*() and fuzzing.
 */
int st_parse_header(struct st_set *s, uint32_t shard, const char *json, size_t len, uint64_t data0,
		    uint64_t data_bytes, struct ds_err *err);

#endif
