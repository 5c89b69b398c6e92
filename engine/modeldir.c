/*
 * modeldir.c - the files of a model directory: opened by known names, read by position.
 *
 * Only names that a model can consist of are opened, so a directory with anything else beside them
 * (a README, a lock, a subdirectory) costs nothing and surprises nobody.
 */
#include "modeldir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_PART 65536

static bool is_model_file(const char *name)
{
	static const char *const known[] = { "config.json", "tokenizer.json",
					     "tokenizer_config.json", "engram_token_map.bin",
					     "model.safetensors.index.json" };
	static const char suffix[] = ".safetensors";
	size_t len = strlen(name);

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(name, known[i]) == 0)
			return true;
	}
	return len >= sizeof(suffix) && strcmp(name + len - sizeof(suffix) + 1, suffix) == 0;
}

static int sys_fail(struct ds_err *err, const char *obj, const char *what)
{
	int e = errno;
	enum ds_err_kind kind = e == EACCES || e == EPERM ? DS_ERR_PERM : DS_ERR_HOST;

	return ds_err_set(err, kind, e, obj, "%s", what);
}

char *eng_dir_obj(const struct eng_dir *d, const char *name, char *buf, size_t size)
{
	size_t at = strlen(d->path);

	while (at > 1 && d->path[at - 1] == '/')
		at--;
	size_t need = at + 1 + strlen(name) + 1;
	size_t skip = need > size ? need - size : 0;
	if (skip > at)
		skip = at;
	snprintf(buf, size, "%.*s/%s", (int)(at - skip), d->path + skip, name);
	return buf;
}

/* Adds one file to the end. ELOOP, FIFOs and devices end here, before anything reads them. */
static int add_file(struct eng_dir *d, int dirfd, const char *name, struct ds_err *err)
{
	struct eng_dir_file *f = &d->file[d->n];
	char obj[256];
	struct stat st;

	eng_dir_obj(d, name, obj, sizeof(obj));
	if (d->n == ENG_DIR_FILES_MAX) {
		ds_err_set(err, DS_ERR_INPUT, 0, d->path, "open model directory");
		return ds_err_why(err, "more than %d model files", ENG_DIR_FILES_MAX);
	}
	if (strlen(name) >= sizeof(f->name)) {
		ds_err_set(err, DS_ERR_INPUT, ENAMETOOLONG, obj, "open model file");
		return -1;
	}
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return sys_fail(err, obj, "open model file");
	if (fstat(fd, &st) != 0) {
		sys_fail(err, obj, "stat model file");
		close(fd);
		return -1;
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		ds_err_set(err, DS_ERR_INPUT, 0, obj, "open model file");
		return ds_err_why(err, "not a regular file");
	}
	strcpy(f->name, name);
	f->fd = fd;
	f->size = (uint64_t)st.st_size;
	d->n++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct eng_dir_file *)a)->name,
		      ((const struct eng_dir_file *)b)->name);
}

static int add_files(struct eng_dir *d, DIR *dir, struct ds_err *err)
{
	for (;;) {
		errno = 0;
		struct dirent *e = readdir(dir);
		if (e == NULL && errno != 0)
			return sys_fail(err, d->path, "read model directory");
		if (e == NULL)
			break;
		if (is_model_file(e->d_name) && add_file(d, dirfd(dir), e->d_name, err) != 0)
			return -1;
	}
	qsort(d->file, d->n, sizeof(d->file[0]), by_name);
	return 0;
}

struct eng_dir *eng_dir_open(const char *path, struct ds_err *err)
{
	if (strlen(path) >= sizeof(((struct eng_dir *)0)->path)) {
		ds_err_set(err, DS_ERR_INPUT, ENAMETOOLONG, path, "open model directory");
		return NULL;
	}
	DIR *dir = opendir(path);
	if (dir == NULL) {
		int e = errno;
		sys_fail(err, path, "open model directory");
		if (err != NULL && (e == ENOENT || e == ENOTDIR))
			err->kind = DS_ERR_INPUT;
		ds_err_fix(err,
			   "give the directory that holds config.json and the safetensors files");
		return NULL;
	}
	struct eng_dir *d = calloc(1, sizeof(*d) + ENG_DIR_FILES_MAX * sizeof(d->file[0]));
	if (d == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, path, "open model directory");
	} else {
		strcpy(d->path, path);
		if (add_files(d, dir, err) != 0) {
			eng_dir_close(d);
			d = NULL;
		}
	}
	closedir(dir);
	return d;
}

void eng_dir_close(struct eng_dir *d)
{
	if (d == NULL)
		return;
	for (uint32_t i = 0; i < d->n; i++)
		close(d->file[i].fd);
	free(d);
}

const struct eng_dir_file *eng_dir_find(const struct eng_dir *d, const char *name)
{
	for (uint32_t i = 0; i < d->n; i++) {
		if (strcmp(d->file[i].name, name) == 0)
			return &d->file[i];
	}
	return NULL;
}

int eng_pread(int fd, void *buf, size_t len, uint64_t off)
{
	char *p = buf;

	while (len > 0) {
		ssize_t n = pread(fd, p, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = 0;
		if (n <= 0)
			return -1;
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int eng_dir_read(const struct eng_dir *d, const char *name, size_t max, struct ds_buf *out,
		 struct ds_err *err)
{
	const struct eng_dir_file *f = eng_dir_find(d, name);
	char obj[256], part[READ_PART];

	eng_dir_obj(d, name, obj, sizeof(obj));
	ds_buf_reset(out);
	if (f == NULL)
		return ds_err_set(err, DS_ERR_INPUT, ENOENT, obj, "read model file");
	if (f->size > max) {
		ds_err_set(err, DS_ERR_INPUT, EFBIG, obj, "read model file");
		return ds_err_why(err, "%llu bytes, more than the %zu allowed",
				  (unsigned long long)f->size, max);
	}
	for (uint64_t at = 0; at < f->size;) {
		size_t n = f->size - at < READ_PART ? (size_t)(f->size - at) : READ_PART;
		if (eng_pread(f->fd, part, n, at) != 0) {
			if (errno != 0)
				return sys_fail(err, obj, "read model file");
			ds_err_set(err, DS_ERR_INPUT, 0, obj, "read model file");
			return ds_err_why(err, "it became shorter while it was read");
		}
		ds_buf_put(out, part, n);
		at += n;
	}
	ds_buf_put(out, "", 0);
	if (out->failed)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, obj, "read model file");
	return 0;
}
