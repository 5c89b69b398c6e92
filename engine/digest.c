/*
 * digest.c - the model digest that ranks compare before they form a group (design 4.1).
 *
 * It must tell two models apart without reading half a terabyte: names, shapes and sizes, every
 * small tensor whole, and the beginning of every large one. Each item is hashed with a tag and its
 * length, so that no two different sequences of items give the same bytes.
 */
#include "weights.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "jsonin.h"
#include "safetensors.h"

#define SMALL_BYTES	65536
#define HEAD_BYTES	4096
#define CONF_BYTES	(1u << 20)
#define TOKENIZER_BYTES (64u << 20)

static bool put(EVP_MD_CTX *h, const char *tag, const void *data, size_t len)
{
	uint8_t size[8];

	for (int i = 0; i < 8; i++)
		size[i] = (uint8_t)((uint64_t)len >> (8 * i));
	return EVP_DigestUpdate(h, tag, strlen(tag) + 1) == 1 &&
	       EVP_DigestUpdate(h, size, sizeof(size)) == 1 && EVP_DigestUpdate(h, data, len) == 1;
}

static int hash_failed(const char *obj, struct ds_err *err)
{
	ds_err_set(err, DS_ERR_BUG, 0, obj, "hash the model");
	return ds_err_why(err, "SHA-256 is not available in libcrypto");
}

/* config.json with sorted keys and no spacing, so that formatting does not count. */
static int put_config(EVP_MD_CTX *h, const struct eng_dir *d, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	int rc = -1;

	if (eng_dir_read(d, "config.json", CONF_BYTES, &b, err) != 0)
		goto out;
	json_t *root = eng_json_load(b.data, b.len, d->path, "hash config.json", err);
	char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	if (text != NULL)
		rc = put(h, "config", text, strlen(text)) ? 0 : hash_failed(d->path, err);
	else if (root != NULL)
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, d->path, "hash config.json");
	free(text);
	json_decref(root);
out:
	ds_buf_fini(&b);
	return rc;
}

/* A file that may be absent: a model without a tokenizer works with ids. */
static int put_file(EVP_MD_CTX *h, const struct eng_dir *d, const char *name, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	int rc = 0;

	if (eng_dir_find(d, name) == NULL)
		return put(h, name, "absent", 6) ? 0 : hash_failed(d->path, err);
	if (eng_dir_read(d, name, TOKENIZER_BYTES, &b, err) != 0)
		rc = -1;
	else if (!put(h, name, b.data, b.len))
		rc = hash_failed(d->path, err);
	ds_buf_fini(&b);
	return rc;
}

static int put_tensors(EVP_MD_CTX *h, struct st_set *s, struct ds_err *err)
{
	uint8_t *buf = malloc(SMALL_BYTES);
	int rc = buf == NULL ? ds_err_set(err, DS_ERR_NOMEM, ENOMEM, s->path, "hash tensors") : 0;

	for (size_t i = 0; rc == 0 && i < s->n_tensor; i++) {
		const struct st_tensor *t = &s->tensor[i];
		const char *dtype = st_dtype_name(t->dtype);
		size_t n = t->bytes <= SMALL_BYTES ? (size_t)t->bytes : HEAD_BYTES;
		if (st_read(s, t, 0, buf, n, err) != 0)
			rc = -1;
		else if (!put(h, "name", t->name, strlen(t->name)) ||
			 !put(h, "dtype", dtype, strlen(dtype)) ||
			 !put(h, "shape", t->dim, t->n_dim * sizeof(t->dim[0])) ||
			 !put(h, "data", buf, n))
			rc = hash_failed(s->path, err);
	}
	free(buf);
	return rc;
}

/* Sizes of the shards in the order of their names, which is that of the directory. */
static int put_sizes(EVP_MD_CTX *h, const struct eng_dir *d, const struct st_set *s,
		     struct ds_err *err)
{
	for (uint32_t i = 0; i < d->n; i++) {
		for (uint32_t k = 0; k < s->n_shard; k++) {
			if (s->shard[k].fd == d->file[i].fd &&
			    !put(h, "shard", &d->file[i].size, sizeof(d->file[i].size)))
				return hash_failed(s->path, err);
		}
	}
	return 0;
}

static int put_all(EVP_MD_CTX *h, const struct eng_dir *d, struct ds_err *err)
{
	struct st_set set;

	if (put_config(h, d, err) != 0 || put_file(h, d, "tokenizer.json", err) != 0 ||
	    put_file(h, d, "engram_token_map.bin", err) != 0)
		return -1;
	if (st_open_dir(d, &set, err) != 0)
		return -1;
	int rc = put_sizes(h, d, &set, err) == 0 && put_tensors(h, &set, err) == 0 ? 0 : -1;
	st_close(&set);
	return rc;
}

int eng_digest(const struct eng_conf *c, char *hex, struct ds_err *err)
{
	struct eng_dir *own = c->files == NULL ? eng_dir_open(c->dir, err) : NULL;
	const struct eng_dir *d = c->files == NULL ? own : c->files;
	EVP_MD_CTX *h = EVP_MD_CTX_new();
	uint8_t sum[EVP_MAX_MD_SIZE];
	int rc = -1;

	if (h == NULL)
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, c->dir, "hash the model");
	else if (d != NULL && EVP_DigestInit_ex(h, EVP_sha256(), NULL) != 1)
		hash_failed(c->dir, err);
	else if (d != NULL && put_all(h, d, err) == 0)
		rc = EVP_DigestFinal_ex(h, sum, NULL) == 1 ? 0 : hash_failed(c->dir, err);
	EVP_MD_CTX_free(h);
	eng_dir_close(own);
	for (int i = 0; rc == 0 && i < 32; i++)
		sprintf(hex + (size_t)i * 2, "%02x", sum[i]);
	return rc;
}
