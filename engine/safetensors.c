/*
 * safetensors.c - headers and index of a checkpoint, checked until a position can be believed.
 *
 * A header is parsed by jansson and turned into a flat table at once. Before that, a scan of its
 * bytes bounds what the parse may cost: nesting, and the number of values for its length. After it,
 * the tensors of a file sorted by position must tile the data section: no overlap, no hole, no rest.
 */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jsonin.h"

#define INDEX_FILE	"model.safetensors.index.json"
#define INDEX_BYTES_MAX (64u << 20)
#define NAME_BYTES_MAX	512
#define HEADER_DEPTH	4
#define DROP_STEP	(16u << 20)
/* Below this the whole checkpoint may stay cached: dropping it would only slow the next start. */
#define DROP_MIN (256u << 20)

static const struct {
	const char *name;
	uint32_t bytes;
} dtypes[ST_DTYPES] = {
	[ST_BOOL] = { "BOOL", 1 },	 [ST_U8] = { "U8", 1 },
	[ST_I8] = { "I8", 1 },		 [ST_F8_E4M3] = { "F8_E4M3", 1 },
	[ST_F8_E5M2] = { "F8_E5M2", 1 }, [ST_F8_E8M0] = { "F8_E8M0", 1 },
	[ST_I16] = { "I16", 2 },	 [ST_U16] = { "U16", 2 },
	[ST_F16] = { "F16", 2 },	 [ST_BF16] = { "BF16", 2 },
	[ST_I32] = { "I32", 4 },	 [ST_U32] = { "U32", 4 },
	[ST_F32] = { "F32", 4 },	 [ST_I64] = { "I64", 8 },
	[ST_U64] = { "U64", 8 },	 [ST_F64] = { "F64", 8 },
};

const char *st_dtype_name(enum st_dtype t)
{
	return dtypes[t].name;
}

uint32_t st_dtype_bytes(enum st_dtype t)
{
	return dtypes[t].bytes;
}

/* "DIR/SHARD" or the file's own path; the tail when it is too long. */
static void shard_obj(const struct st_set *s, uint32_t shard, const char *tensor, char *buf,
		      size_t size)
{
	const char *file = s->one_file || s->n_shard == 0 ? "" : s->shard[shard].name;
	const char *slash = file[0] == '\0' ? "" : "/", *sep = tensor == NULL ? "" : ": ";
	size_t rest = strlen(slash) + strlen(file) + strlen(sep) +
		      (tensor == NULL ? 0 : strnlen(tensor, 96)) + 1;
	size_t len = strlen(s->path), room = rest < size ? size - rest : 0;

	snprintf(buf, size, "%s%s%s%s%.96s", s->path + (len > room ? len - room : 0), slash, file,
		 sep, tensor == NULL ? "" : tensor);
}

char *st_obj(const struct st_set *s, const struct st_tensor *t, char *buf, size_t size)
{
	if (t == NULL)
		snprintf(buf, size, "%s", s->path);
	else
		shard_obj(s, t->shard, t->name, buf, size);
	return buf;
}

/* Every refusal of a header names file and tensor (NULL: the header itself) like this. */
static int refuse(const struct st_set *s, uint32_t shard, const char *tensor, struct ds_err *err,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static int refuse(const struct st_set *s, uint32_t shard, const char *tensor, struct ds_err *err,
		  const char *fmt, ...)
{
	char obj[256], why[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	shard_obj(s, shard, tensor, obj, sizeof(obj));
	ds_err_set(err, DS_ERR_INPUT, 0, obj, "read safetensors header");
	return ds_err_why(err, "%s", why);
}

static int no_memory(const struct st_set *s, struct ds_err *err)
{
	return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, s->path, "read safetensors header");
}

/*
 * What jansson would build from @json, at most: a value costs it some sixty bytes and takes six
 * bytes of any honest header. Depth is 3 there; jansson's own limit is in the thousands.
 * Return: false with the reason in @why.
 */
static bool scan_cost(const char *json, size_t len, char *why, size_t size)
{
	size_t values = 0, depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		char ch = json[i];
		if (in_string) {
			i += ch == '\\';
			in_string = ch != '"';
			continue;
		}
		in_string = ch == '"';
		values += ch == '{' || ch == '[' || ch == ',';
		if (ch == '{' || ch == '[')
			depth++;
		else if ((ch == '}' || ch == ']') && depth > 0)
			depth--;
		if (depth > HEADER_DEPTH) {
			snprintf(why, size, "JSON nested deeper than %d at byte %zu", HEADER_DEPTH,
				 i);
			return false;
		}
	}
	snprintf(why, size, "%zu values in %zu bytes: not a list of tensors", values, len);
	return values <= len / 6 + 64;
}

static int read_shape(struct st_set *s, uint32_t shard, struct st_tensor *t, const json_t *shape,
		      struct ds_err *err)
{
	uint64_t n = dtypes[t->dtype].bytes;

	if (!json_is_array(shape) || json_array_size(shape) > ST_DIMS_MAX)
		return refuse(s, shard, t->name, err, "shape must be a list of at most %d numbers",
			      ST_DIMS_MAX);
	t->n_dim = (uint32_t)json_array_size(shape);
	for (uint32_t i = 0; i < t->n_dim; i++) {
		const json_t *j = json_array_get(shape, i);
		if (!json_is_integer(j) || json_integer_value(j) < 0)
			return refuse(s, shard, t->name, err,
				      "shape entry %u must be an integer of at least 0", i);
		t->dim[i] = (uint64_t)json_integer_value(j);
		if (__builtin_mul_overflow(n, t->dim[i], &n))
			return refuse(s, shard, t->name, err, "shape needs more than 2^64 bytes");
	}
	t->bytes = n;
	return 0;
}

/* data_offsets against the shape, the dtype and the data section. */
static int read_offsets(struct st_set *s, uint32_t shard, struct st_tensor *t, const json_t *j,
			uint64_t data0, uint64_t data_bytes, struct ds_err *err)
{
	const json_t *a = json_array_get(j, 0), *b = json_array_get(j, 1);

	if (json_array_size(j) != 2 || !json_is_integer(a) || !json_is_integer(b) ||
	    json_integer_value(a) < 0 || json_integer_value(b) < 0)
		return refuse(s, shard, t->name, err,
			      "data_offsets must be two integers of at least 0");
	uint64_t begin = (uint64_t)json_integer_value(a), end = (uint64_t)json_integer_value(b);
	if (end < begin)
		return refuse(s, shard, t->name, err,
			      "data_offsets end at %" PRIu64 ", before they begin at %" PRIu64, end,
			      begin);
	if (end > data_bytes)
		return refuse(s, shard, t->name, err,
			      "data ends at %" PRIu64 ", the file holds %" PRIu64
			      " bytes of data: truncated, or a wrong offset",
			      end, data_bytes);
	if (end - begin != t->bytes)
		return refuse(s, shard, t->name, err,
			      "data_offsets span %" PRIu64
			      " bytes, shape and dtype %s need %" PRIu64,
			      end - begin, dtypes[t->dtype].name, t->bytes);
	t->begin = data0 + begin;
	return 0;
}

static int read_dtype(struct st_set *s, uint32_t shard, struct st_tensor *t, const json_t *j,
		      struct ds_err *err)
{
	const char *name = json_string_value(j);

	if (name == NULL)
		return refuse(s, shard, t->name, err, "dtype must be a string");
	for (int i = 0; i < ST_DTYPES; i++) {
		if (strcmp(dtypes[i].name, name) == 0) {
			t->dtype = (enum st_dtype)i;
			return 0;
		}
	}
	return refuse(s, shard, t->name, err, "unknown dtype \"%.32s\"", name);
}

static int grow(struct st_set *s, struct ds_err *err)
{
	if (s->n_tensor < s->cap)
		return 0;
	size_t cap = s->cap == 0 ? 256 : s->cap * 2;
	struct st_tensor *p = realloc(s->tensor, cap * sizeof(*p));
	if (p == NULL)
		return no_memory(s, err);
	s->tensor = p;
	s->cap = cap;
	return 0;
}

static int add_tensor(struct st_set *s, uint32_t shard, const char *name, const json_t *j,
		      uint64_t data0, uint64_t data_bytes, struct ds_err *err)
{
	if (name[0] == '\0' || strlen(name) > NAME_BYTES_MAX)
		return refuse(s, shard, name, err, "a name must have 1 to %d bytes",
			      NAME_BYTES_MAX);
	if (!json_is_object(j))
		return refuse(s, shard, name, err, "must be an object");
	if (grow(s, err) != 0)
		return -1;
	struct st_tensor *t = &s->tensor[s->n_tensor];
	*t = (struct st_tensor){ .name = strdup(name), .shard = shard };
	if (t->name == NULL)
		return no_memory(s, err);
	s->n_tensor++;
	if (read_dtype(s, shard, t, json_object_get(j, "dtype"), err) != 0 ||
	    read_shape(s, shard, t, json_object_get(j, "shape"), err) != 0)
		return -1;
	return read_offsets(s, shard, t, json_object_get(j, "data_offsets"), data0, data_bytes,
			    err);
}

static int by_begin(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors from @first on, all of one shard, must tile its data. */
static int check_tiling(struct st_set *s, uint32_t shard, size_t first, uint64_t data0,
			uint64_t data_bytes, struct ds_err *err)
{
	uint64_t at = data0;

	if (s->n_tensor > first)
		qsort(s->tensor + first, s->n_tensor - first, sizeof(*s->tensor), by_begin);
	for (size_t i = first; i < s->n_tensor; i++) {
		const struct st_tensor *t = &s->tensor[i];
		if (t->begin < at)
			return refuse(s, shard, t->name, err, "its data overlaps that of %.96s",
				      s->tensor[i - 1].name);
		if (t->begin > at)
			return refuse(s, shard, t->name, err,
				      "a hole of %" PRIu64 " bytes before its data", t->begin - at);
		at = t->begin + t->bytes;
	}
	if (at != data0 + data_bytes)
		return refuse(s, shard, NULL, err,
			      "%" PRIu64 " bytes at the end belong to no tensor",
			      data0 + data_bytes - at);
	return 0;
}

static int check_metadata(const struct st_set *s, uint32_t shard, json_t *meta, struct ds_err *err)
{
	const char *key;
	json_t *v;

	if (!json_is_object(meta))
		return refuse(s, shard, NULL, err, "__metadata__ must be an object");
	json_object_foreach (meta, key, v) {
		if (!json_is_string(v))
			return refuse(s, shard, NULL, err, "__metadata__.%.64s must be a string",
				      key);
	}
	return 0;
}

static json_t *parse_json(const struct st_set *s, uint32_t shard, const char *json, size_t len,
			  struct ds_err *err)
{
	char obj[256];

	shard_obj(s, shard, NULL, obj, sizeof(obj));
	json_t *root = eng_json_load(json, len, obj, "read safetensors header", err);
	if (root == NULL || json_is_object(root))
		return root;
	refuse(s, shard, NULL, err, "not a JSON object");
	json_decref(root);
	return NULL;
}

int st_parse_header(struct st_set *s, uint32_t shard, const char *json, size_t len, uint64_t data0,
		    uint64_t data_bytes, struct ds_err *err)
{
	size_t first = s->n_tensor;
	const char *name;
	char why[128];
	json_t *j;
	int rc = 0;

	if (!scan_cost(json, len, why, sizeof(why)))
		return refuse(s, shard, NULL, err, "%s", why);
	json_t *root = parse_json(s, shard, json, len, err);
	if (root == NULL)
		return -1;
	json_object_foreach (root, name, j) {
		if (strcmp(name, "__metadata__") == 0)
			rc = check_metadata(s, shard, j, err);
		else
			rc = add_tensor(s, shard, name, j, data0, data_bytes, err);
		if (rc != 0)
			break;
	}
	json_decref(root);
	return rc != 0 ? -1 : check_tiling(s, shard, first, data0, data_bytes, err);
}

/* ------------------------------------------------------------------ files */

static int io_fail(const struct st_set *s, uint32_t shard, const char *tensor, const char *what,
		   struct ds_err *err)
{
	int e = errno;
	char obj[256];

	shard_obj(s, shard, tensor, obj, sizeof(obj));
	if (e != 0)
		return ds_err_set(err, DS_ERR_HOST, e, obj, "%s", what);
	ds_err_set(err, DS_ERR_INPUT, 0, obj, "%s", what);
	return ds_err_why(err, "the file ended early: it became shorter");
}

static int read_header(struct st_set *s, uint32_t shard, struct ds_err *err)
{
	struct st_shard *f = &s->shard[shard];
	uint8_t raw[8];
	uint64_t len = 0;

	if (f->size < 8)
		return refuse(s, shard, NULL, err, "%" PRIu64 " bytes: too short for a header",
			      f->size);
	if (eng_pread(f->fd, raw, 8, 0) != 0)
		return io_fail(s, shard, NULL, "read safetensors header", err);
	for (int i = 7; i >= 0; i--)
		len = len << 8 | raw[i];
	if (memcmp(raw, "GGUF", 4) == 0)
		return refuse(s, shard, NULL, err, "this is a GGUF file, not safetensors");
	if (len > ST_HEADER_BYTES_MAX)
		return refuse(s, shard, NULL, err,
			      "header length %" PRIu64 " is above %u: not a safetensors file", len,
			      ST_HEADER_BYTES_MAX);
	if (len < 2 || len > f->size - 8)
		return refuse(s, shard, NULL, err,
			      "header length %" PRIu64 ", but %" PRIu64
			      " bytes follow: truncated, or not a safetensors file",
			      len, f->size - 8);
	char *json = malloc(len);
	if (json == NULL)
		return no_memory(s, err);
	int rc = -1;
	f->data0 = 8 + len;
	if (eng_pread(f->fd, json, len, 8) != 0)
		io_fail(s, shard, NULL, "read safetensors header", err);
	else
		rc = st_parse_header(s, shard, json, len, f->data0, f->size - f->data0, err);
	free(json);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* Sorts all tensors by name; a name may occur once in the whole set. */
static int sort_names(struct st_set *s, struct ds_err *err)
{
	char other[256];

	if (s->n_tensor > 1)
		qsort(s->tensor, s->n_tensor, sizeof(*s->tensor), by_name);
	for (size_t i = 1; i < s->n_tensor; i++) {
		const struct st_tensor *a = &s->tensor[i - 1], *b = &s->tensor[i];
		if (strcmp(a->name, b->name) != 0)
			continue;
		snprintf(other, sizeof(other), "%.200s", s->shard[a->shard].name);
		return refuse(s, b->shard, b->name, err, "%s holds a tensor of this name too",
			      other);
	}
	return 0;
}

static int add_shard(struct st_set *s, const char *name, int fd, uint64_t size, struct ds_err *err)
{
	struct st_shard *f = &s->shard[s->n_shard];

	*f = (struct st_shard){ .name = strdup(name), .fd = fd, .size = size };
	if (f->name == NULL)
		return no_memory(s, err);
	s->n_shard++;
	return 0;
}

static int find_shard(const struct st_set *s, const char *name)
{
	for (uint32_t i = 0; i < s->n_shard; i++) {
		if (strcmp(s->shard[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

static int index_fail(const struct st_set *s, struct ds_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int index_fail(const struct st_set *s, struct ds_err *err, const char *fmt, ...)
{
	char obj[256], why[256];
	size_t len = strlen(s->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	snprintf(obj, sizeof(obj), "%s/%s", s->path + (len > 200 ? len - 200 : 0), INDEX_FILE);
	ds_err_set(err, DS_ERR_INPUT, 0, obj, "read shard index");
	return ds_err_why(err, "%s", why);
}

/* The shards that weight_map names, each once, in the order of first appearance. */
static int shards_of_index(struct st_set *s, const struct eng_dir *d, json_t *map,
			   struct ds_err *err)
{
	const char *tensor;
	json_t *j;

	json_object_foreach (map, tensor, j) {
		const char *file = json_string_value(j);
		if (file == NULL)
			return index_fail(s, err, "weight_map[\"%.96s\"] must be a file name",
					  tensor);
		if (find_shard(s, file) >= 0)
			continue;
		const struct eng_dir_file *f = eng_dir_find(d, file);
		if (f == NULL)
			return index_fail(
				s, err,
				"missing shard: \"%.80s\", named for tensor \"%.80s\", is not there",
				file, tensor);
		if (add_shard(s, f->name, f->fd, f->size, err) != 0)
			return -1;
	}
	return 0;
}

/* After the headers: index and shards must know the same tensors in the same places. */
static int check_index(struct st_set *s, json_t *map, struct ds_err *err)
{
	const char *name;
	json_t *j;

	json_object_foreach (map, name, j) {
		const struct st_tensor *t = st_find(s, name);
		if (t == NULL)
			return index_fail(s, err, "missing tensor: \"%.80s\" is not in %.80s", name,
					  json_string_value(j));
		if (strcmp(s->shard[t->shard].name, json_string_value(j)) != 0)
			return index_fail(s, err, "\"%.80s\" is in %.60s, the index says %.60s",
					  name, s->shard[t->shard].name, json_string_value(j));
	}
	for (size_t i = 0; i < s->n_tensor; i++) {
		if (json_object_get(map, s->tensor[i].name) == NULL)
			return index_fail(s, err, "weight_map lacks \"%.80s\", which %.60s holds",
					  s->tensor[i].name, s->shard[s->tensor[i].shard].name);
	}
	return 0;
}

static int check_total(const struct st_set *s, const json_t *root, struct ds_err *err)
{
	const json_t *meta = json_object_get(root, "metadata");
	const json_t *total = json_object_get(meta, "total_size");

	if (total == NULL)
		return 0;
	if (!json_is_number(total))
		return index_fail(s, err, "metadata.total_size must be a number");
	if (json_number_value(total) != (double)s->total_bytes)
		return index_fail(s, err,
				  "metadata.total_size is %.0f, the tensors have %" PRIu64 " bytes",
				  json_number_value(total), s->total_bytes);
	return 0;
}

static int read_headers(struct st_set *s, struct ds_err *err)
{
	for (uint32_t i = 0; i < s->n_shard; i++) {
		if (read_header(s, i, err) != 0)
			return -1;
		s->total_bytes += s->shard[i].size - s->shard[i].data0;
	}
	return sort_names(s, err);
}

static int open_by_index(struct st_set *s, const struct eng_dir *d, struct ds_err *err)
{
	struct ds_buf text = { 0 };
	json_t *root = NULL, *map;
	char why[128], obj[256];
	int rc = -1;

	if (eng_dir_read(d, INDEX_FILE, INDEX_BYTES_MAX, &text, err) != 0)
		goto out;
	if (!scan_cost(text.data, text.len, why, sizeof(why))) {
		index_fail(s, err, "%s", why);
		goto out;
	}
	eng_dir_obj(d, INDEX_FILE, obj, sizeof(obj));
	if ((root = eng_json_load(text.data, text.len, obj, "read shard index", err)) == NULL)
		goto out;
	ds_buf_fini(&text);
	map = json_object_get(root, "weight_map");
	if (!json_is_object(map) || json_object_size(map) == 0) {
		index_fail(s, err, "weight_map must be an object that names tensors");
		goto out;
	}
	if (shards_of_index(s, d, map, err) != 0 || read_headers(s, err) != 0 ||
	    check_index(s, map, err) != 0 || check_total(s, root, err) != 0)
		goto out;
	rc = 0;
out:
	ds_buf_fini(&text);
	json_decref(root);
	return rc;
}

static int open_all(struct st_set *s, const struct eng_dir *d, struct ds_err *err)
{
	for (uint32_t i = 0; i < d->n; i++) {
		const char *dot = strrchr(d->file[i].name, '.');
		if (dot == NULL || strcmp(dot, ".safetensors") != 0)
			continue;
		if (add_shard(s, d->file[i].name, d->file[i].fd, d->file[i].size, err) != 0)
			return -1;
	}
	if (s->n_shard > 0)
		return read_headers(s, err);
	ds_err_set(err, DS_ERR_INPUT, 0, s->path, "open checkpoint");
	return ds_err_why(err, "no *.safetensors file in this directory");
}

static int set_init(struct st_set *s, const char *path, uint32_t shards, struct ds_err *err)
{
	*s = (struct st_set){ .path = strdup(path),
			      .shard = calloc(shards + 1, sizeof(struct st_shard)) };
	if (s->path != NULL && s->shard != NULL)
		return 0;
	free(s->path);
	free(s->shard);
	*s = (struct st_set){ 0 };
	no_memory(s, err);
	return -1;
}

int st_open_dir(const struct eng_dir *d, struct st_set *s, struct ds_err *err)
{
	if (set_init(s, d->path, d->n, err) != 0)
		return -1;
	int rc = eng_dir_find(d, INDEX_FILE) != NULL ? open_by_index(s, d, err)
						     : open_all(s, d, err);
	if (rc != 0)
		st_close(s);
	return rc;
}

int st_open_file(const char *path, struct st_set *s, struct ds_err *err)
{
	struct stat st;

	if (set_init(s, path, 1, err) != 0)
		return -1;
	s->one_file = true;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) != 0) {
		int e = errno;
		ds_err_set(err, e == EACCES || e == EPERM ? DS_ERR_PERM : DS_ERR_HOST, e, path,
			   "open safetensors file");
	} else if (!S_ISREG(st.st_mode)) {
		ds_err_set(err, DS_ERR_INPUT, 0, path, "open safetensors file");
		ds_err_why(err, "not a regular file");
	} else if (add_shard(s, path, fd, (uint64_t)st.st_size, err) == 0) {
		if (read_headers(s, err) == 0)
			return 0;
		fd = -1; /* the set's now */
	}
	if (fd >= 0)
		close(fd);
	st_close(s);
	return -1;
}

/* Forgets what was read so far: on unified memory the page cache competes with the model. */
static void drop_behind(struct st_shard *f)
{
	if (f->behind_end > f->behind0)
		posix_fadvise(f->fd, (off_t)f->behind0, (off_t)(f->behind_end - f->behind0),
			      POSIX_FADV_DONTNEED);
	f->behind0 = f->behind_end = f->behind_sum = 0;
}

void st_close(struct st_set *s)
{
	for (uint32_t i = 0; i < s->n_shard; i++) {
		drop_behind(&s->shard[i]);
		if (s->one_file)
			close(s->shard[i].fd);
		free(s->shard[i].name);
	}
	for (size_t i = 0; i < s->n_tensor; i++)
		free(s->tensor[i].name);
	free(s->shard);
	free(s->tensor);
	free(s->path);
	memset(s, 0, sizeof(*s));
}

const struct st_tensor *st_find(const struct st_set *s, const char *name)
{
	size_t lo = 0, hi = s->n_tensor;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(s->tensor[mid].name, name);
		if (c == 0)
			return &s->tensor[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

int st_read(struct st_set *s, const struct st_tensor *t, uint64_t off, void *buf, size_t len,
	    struct ds_err *err)
{
	struct st_shard *f = &s->shard[t->shard];
	uint64_t at = t->begin + off;
	char obj[256];

	if (off > t->bytes || len > t->bytes - off) {
		ds_err_set(err, DS_ERR_BUG, 0, st_obj(s, t, obj, sizeof(obj)), "read tensor");
		return ds_err_why(err, "bytes %" PRIu64 "+%zu of %" PRIu64, off, len, t->bytes);
	}
	if (eng_pread(f->fd, buf, len, at) != 0)
		return io_fail(s, t->shard, t->name, "read tensor", err);
	s->read_bytes += len;
	if (s->total_bytes < DROP_MIN)
		return 0;
	if (f->behind_sum == 0 || at < f->behind0)
		f->behind0 = at;
	if (at + len > f->behind_end)
		f->behind_end = at + len;
	f->behind_sum += len;
	if (f->behind_sum >= DROP_STEP)
		drop_behind(f);
	return 0;
}
