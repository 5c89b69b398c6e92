/*
 * tiny_model.c - generator of the tiny checkpoint (model.md 8.1, 8.2).
 *
 * Self-contained on purpose: it shares neither the quantisers nor the safetensors code of the
 * programs, so a mistake there cannot hide in the files it is tested with. All arithmetic is fp32,
 * one rounding per operation.
 */
#include "tiny_model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "file.h"

/* The shape of tests/vectors/tiny-config.json. */
enum {
	VOCAB = 512,
	DIM = 256,
	INNER = 64,
	LAYERS = 8,
	DRAFTS = 3,
	HEADS = 8,
	HEAD = 64,
	Q_RANK = 64,
	GROUPS = 4,
	O_RANK = 32,
	EXPERTS = 8,
	DRAFT_EXPERTS = 4,
	IDX_HEADS = 8,
	IDX_DIM = 32,
	COPIES = 4,
	E_DIM = 32,
	E_COLS = 6,
	MARKOV = 32,
	SHARDS = 4
};

struct shard {
	struct ds_buf head, data;
};

struct gen {
	struct shard shard[SHARDS];
	struct ds_buf map;  /* weight_map entries */
	struct shard *into; /* where the next tensor goes */
};

/* ------------------------------------------------------------------ numbers */

static uint64_t fnv1a(const char *s)
{
	uint64_t h = 0xcbf29ce484222325;

	for (; *s != '\0'; s++)
		h = (h ^ (uint8_t)*s) * 0x100000001b3;
	return h;
}

static float draw(uint64_t hash, uint64_t i)
{
	uint64_t z = hash + i + 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return (float)(z >> 40) / 8388608.0f - 1.0f;
}

static uint16_t to_bf16(float v)
{
	uint32_t u;

	memcpy(&u, &v, 4);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Smallest power of two >= v, as an E8M0 byte. */
static uint8_t pow2ceil(float v)
{
	uint32_t u;

	memcpy(&u, &v, 4);
	return (uint8_t)((u >> 23) + ((u & 0x7fffff) != 0));
}

static float from_e8m0(uint8_t b)
{
	return ldexpf(1.0f, b - 127);
}

static uint8_t to_e4m3(float v)
{
	uint8_t sign = signbit(v) ? 0x80 : 0;
	float a = fminf(fabsf(v), 448.0f);
	int e;

	frexpf(a, &e); /* a = m * 2^e, m in [0.5, 1) */
	if (a == 0.0f || e - 1 < -6)
		return sign | (uint8_t)nearbyintf(a * 512.0f);
	int m = (int)nearbyintf(ldexpf(a, 4 - e)); /* 8..16 */
	return sign | (uint8_t)(((e - 1 + 7) << 3) + (m - 8));
}

static uint8_t to_e2m1(float v)
{
	static const float cut[7] = { 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f };
	float a = fabsf(v);
	uint8_t code = 0;

	/* Ties go to the even code: down where the lower neighbour is even. */
	for (int i = 0; i < 7; i++)
		code += a > cut[i] || (a == cut[i] && i % 2 == 1);
	return code | (signbit(v) ? 8 : 0);
}

/* ------------------------------------------------------------------ tensors */

static void emit(struct gen *g, const char *name, const char *dtype, uint32_t rows, uint32_t cols,
		 const void *data, size_t bytes)
{
	struct shard *s = g->into;

	ds_buf_printf(&s->head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", s->head.len ? "," : "{",
		      name, dtype);
	if (rows > 0)
		ds_buf_printf(&s->head, "%u,", rows);
	ds_buf_printf(&s->head, "%u],\"data_offsets\":[%zu,%zu]}", cols, s->data.len,
		      s->data.len + bytes);
	ds_buf_put(&s->data, data, bytes);
	ds_buf_printf(&g->map, "%s\n\"%s\":\"model-%05d-of-%05d.safetensors\"",
		      g->map.len ? "," : "", name, (int)(s - g->shard) + 1, SHARDS);
}

/* scale * u + add, as BF16 or F32. @rows 0: one-dimensional. */
static void plain(struct gen *g, bool bf16, uint32_t rows, uint32_t cols, float scale, float add,
		  const char *name)
{
	size_t n = (size_t)(rows == 0 ? 1 : rows) * cols;
	uint64_t hash = fnv1a(name);
	struct ds_buf b = { 0 };

	for (size_t i = 0; i < n; i++) {
		float v = scale * draw(hash, i);
		if (add != 0.0f)
			v = add + v;
		uint16_t h = to_bf16(v);
		ds_buf_put(&b, bf16 ? (const void *)&h : (const void *)&v, bf16 ? 2 : 4);
	}
	if (b.failed)
		g->map.failed = true;
	else
		emit(g, name, bf16 ? "BF16" : "F32", rows, cols, b.data, b.len);
	ds_buf_fini(&b);
}

static float unit(uint32_t in)
{
	return (float)sqrt(3.0 / in);
}

/* One tile of @tr x 32 elements: the largest magnitude gives the scale, then every element. */
static uint8_t tile(uint64_t hash, float a, uint32_t r0, uint32_t tr, uint32_t c0, uint32_t cols,
		    bool four, uint8_t *out)
{
	float amax = 0.0f, floor_ = four ? 6.0f * 0x1p-126f : 1e-4f;
	float most = four ? 6.0f : 448.0f;

	for (uint32_t r = r0; r < r0 + tr; r++) {
		for (uint32_t k = c0; k < c0 + 32; k++)
			amax = fmaxf(amax, fabsf(a * draw(hash, (uint64_t)r * cols + k)));
	}
	uint8_t scale = pow2ceil(fmaxf(amax, floor_) * (1.0f / most));
	float s = from_e8m0(scale);
	for (uint32_t r = r0; r < r0 + tr; r++) {
		for (uint32_t k = c0; k < c0 + 32; k++) {
			size_t i = (size_t)r * cols + k;
			float v = fminf(fmaxf(a * draw(hash, i) / s, -most), most);
			if (!four)
				out[i] = to_e4m3(v);
			else if (k % 2 == 0)
				out[i / 2] = to_e2m1(v);
			else
				out[i / 2] |= (uint8_t)(to_e2m1(v) << 4);
		}
	}
	return scale;
}

/* A quantised matrix NAME.weight with NAME.scale; @tr rows share a scale (32: FP8, 1: the rest). */
static void quant(struct gen *g, uint32_t rows, uint32_t cols, uint32_t tr, bool four, float a,
		  const char *fmt, ...) __attribute__((format(printf, 7, 8)));

static void quant(struct gen *g, uint32_t rows, uint32_t cols, uint32_t tr, bool four, float a,
		  const char *fmt, ...)
{
	char base[128], name[160];
	size_t bytes = (size_t)rows * cols / (four ? 2 : 1), groups = cols / 32;
	uint8_t *data = malloc(bytes), *scale = malloc((size_t)(rows / tr) * groups);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(base, sizeof(base), fmt, ap);
	va_end(ap);
	if (data == NULL || scale == NULL) {
		g->map.failed = true;
	} else {
		snprintf(name, sizeof(name), "%s.weight", base);
		uint64_t hash = fnv1a(name);
		for (uint32_t r = 0; r < rows / tr; r++) {
			for (uint32_t k = 0; k < groups; k++)
				scale[r * groups + k] =
					tile(hash, a, r * tr, tr, k * 32, cols, four, data);
		}
		emit(g, name, four ? "I8" : "F8_E4M3", rows, four ? cols / 2 : cols, data, bytes);
		snprintf(name, sizeof(name), "%s.scale", base);
		emit(g, name, "F8_E8M0", rows / tr, (uint32_t)groups, scale, rows / tr * groups);
	}
	free(data);
	free(scale);
}

static void fp8(struct gen *g, uint32_t rows, uint32_t cols, const char *pre, const char *name)
{
	quant(g, rows, cols, 32, false, unit(cols), "%s.%s", pre, name);
}

enum kind {
	NORM,	/* bf16(1 + 0.1 u) */
	FLOATS, /* 0.5 u */
	MATRIX, /* bf16(a u) */
	FN	/* a u */
};

static void add(struct gen *g, enum kind kind, uint32_t rows, uint32_t cols, const char *pre,
		const char *name)
{
	char full[160];

	snprintf(full, sizeof(full), "%s%s%s", pre, pre[0] ? "." : "", name);
	switch (kind) {
	case NORM:
		plain(g, true, rows, cols, 0.1f, 1.0f, full);
		break;
	case FLOATS:
		plain(g, false, rows, cols, 0.5f, 0.0f, full);
		break;
	case MATRIX:
		plain(g, true, rows, cols, unit(cols), 0.0f, full);
		break;
	case FN:
		plain(g, false, rows, cols, unit(cols), 0.0f, full);
		break;
	}
}

static void add_experts(struct gen *g, const char *pre, uint32_t experts)
{
	static const struct {
		const char *name;
		uint32_t rows, cols;
	} parts[3] = { { "w1", INNER, DIM }, { "w2", DIM, INNER }, { "w3", INNER, DIM } };

	for (int i = 0; i < 3; i++) {
		quant(g, parts[i].rows, parts[i].cols, 32, false, unit(parts[i].cols),
		      "%s.ffn.shared_experts.%s", pre, parts[i].name);
		for (uint32_t e = 0; e < experts; e++)
			quant(g, parts[i].rows, parts[i].cols, 1, true, unit(parts[i].cols),
			      "%s.ffn.experts.%u.%s", pre, e, parts[i].name);
	}
}

/* What a window-only layer has; draft layers are the same with fewer experts. */
static void add_layer(struct gen *g, const char *pre, uint32_t experts)
{
	uint32_t hc = (2 + COPIES) * COPIES;

	add(g, FLOATS, 0, HEADS, pre, "attn.attn_sink");
	fp8(g, Q_RANK, DIM, pre, "attn.wq_a");
	add(g, NORM, 0, Q_RANK, pre, "attn.q_norm.weight");
	fp8(g, HEADS * HEAD, Q_RANK, pre, "attn.wq_b");
	fp8(g, HEAD, DIM, pre, "attn.wkv");
	add(g, NORM, 0, HEAD, pre, "attn.kv_norm.weight");
	fp8(g, GROUPS * O_RANK, HEADS / GROUPS * HEAD, pre, "attn.wo_a");
	fp8(g, DIM, GROUPS * O_RANK, pre, "attn.wo_b");
	add(g, NORM, 0, DIM, pre, "attn_norm.weight");
	add(g, NORM, 0, DIM, pre, "ffn_norm.weight");
	add(g, FN, hc, COPIES * DIM, pre, "hc_attn_fn");
	add(g, FN, hc, COPIES * DIM, pre, "hc_ffn_fn");
	add(g, FLOATS, 0, hc, pre, "hc_attn_base");
	add(g, FLOATS, 0, hc, pre, "hc_ffn_base");
	add(g, FLOATS, 0, 3, pre, "hc_attn_scale");
	add(g, FLOATS, 0, 3, pre, "hc_ffn_scale");
	add(g, MATRIX, experts, DIM, pre, "ffn.gate.weight");
	add(g, FLOATS, 0, experts, pre, "ffn.gate.bias");
	add(g, FLOATS, 0, experts, pre, "ffn.gate.bias_vl");
	add_experts(g, pre, experts);
}

static void add_sources(struct gen *g, const char *pre, uint32_t layer)
{
	if (layer == 2 || layer == 4) {
		add(g, MATRIX, HEAD, DIM, pre, "attn.compressor.wkv.weight");
		if (layer == 2)
			add(g, MATRIX, HEAD, DIM, pre, "attn.compressor.wgate.weight");
		add(g, NORM, 0, HEAD, pre, "attn.compressor.norm.weight");
		add(g, MATRIX, IDX_DIM, HEAD, pre, "attn.indexer.wk.weight");
		add(g, NORM, 0, IDX_DIM, pre, "attn.indexer.k_norm.weight");
	}
	if (layer == 2 || layer == 4 || layer == 6) {
		fp8(g, IDX_HEADS * IDX_DIM, Q_RANK, pre, "attn.indexer.wq_b");
		add(g, MATRIX, IDX_HEADS, DIM, pre, "attn.indexer.weights_proj.weight");
	}
}

static void add_engram(struct gen *g, const char *pre, uint32_t rows)
{
	quant(g, rows, E_DIM, 1, false, 1.5f, "%s.engram.embed", pre);
	fp8(g, (COPIES + 1) * DIM, E_COLS * E_DIM, pre, "engram.wkv");
	add(g, MATRIX, COPIES, DIM, pre, "engram.q_weight");
	add(g, MATRIX, COPIES, DIM, pre, "engram.k_weight");
}

static void add_all(struct gen *g)
{
	char pre[32];

	g->into = &g->shard[0];
	plain(g, true, VOCAB, DIM, 0.2f, 0.0f, "embed.weight");
	for (uint32_t l = 0; l < LAYERS; l++) {
		snprintf(pre, sizeof(pre), "layers.%u", l);
		g->into = &g->shard[l >= LAYERS / 2];
		add_layer(g, pre, EXPERTS);
		add_sources(g, pre, l);
		g->into = &g->shard[3];
		if (l == 1 || l == 2)
			add_engram(g, pre, l == 1 ? 660 : 864);
	}
	g->into = &g->shard[1];
	add(g, NORM, 0, DIM, "", "norm.weight");
	add(g, MATRIX, VOCAB, DIM, "", "head.weight");
	g->into = &g->shard[2];
	for (uint32_t s = 0; s < DRAFTS; s++) {
		snprintf(pre, sizeof(pre), "mtp.%u", s);
		add_layer(g, pre, DRAFT_EXPERTS);
	}
	fp8(g, DIM, 3 * DIM, "mtp.0", "main_proj");
	add(g, NORM, 0, DIM, "mtp.0", "main_norm.weight");
	add(g, NORM, 0, DIM, "mtp.2", "norm.weight");
	add(g, MATRIX, VOCAB, MARKOV, "mtp.2", "markov_head.embed.weight");
	add(g, MATRIX, VOCAB, MARKOV, "mtp.2", "markov_head.head.weight");
	add(g, MATRIX, 1, DIM + MARKOV, "mtp.2", "confidence_head.proj.weight");
}

/* ------------------------------------------------------------------ files */

static int put_file(int dirfd, const char *name, const void *data, size_t len, struct ds_err *err)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return ds_err_set(err, DS_ERR_HOST, errno, name, "create");
	int rc = ds_write_all(fd, data, len);
	if (rc != 0)
		ds_err_set(err, DS_ERR_HOST, errno, name, "write");
	close(fd);
	return rc;
}

static int put_shard(int dirfd, struct shard *s, int which, struct ds_err *err)
{
	struct ds_buf file = { 0 };
	uint8_t len[8] = { 0 };
	char name[64];

	ds_buf_puts(&s->head, "}");
	while (s->head.len % 8 != 0)
		ds_buf_putc(&s->head, ' ');
	for (int i = 0; i < 8; i++)
		len[i] = (uint8_t)(s->head.len >> (8 * i));
	ds_buf_put(&file, len, 8);
	ds_buf_put(&file, s->head.data, s->head.len);
	ds_buf_put(&file, s->data.data, s->data.len);
	snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", which + 1, SHARDS);
	int rc = file.failed || s->head.failed || s->data.failed
			 ? ds_err_set(err, DS_ERR_NOMEM, ENOMEM, name, "make shard")
			 : put_file(dirfd, name, file.data, file.len, err);
	ds_buf_fini(&file);
	return rc;
}

static int put_index(int dirfd, const struct gen *g, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	size_t total = 0;

	for (int i = 0; i < SHARDS; i++)
		total += g->shard[i].data.len;
	ds_buf_printf(&b, "{\"metadata\":{\"total_size\":%zu},\"weight_map\":{", total);
	ds_buf_put(&b, g->map.data, g->map.len);
	ds_buf_puts(&b, "}}\n");
	int rc = b.failed || g->map.failed
			 ? ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "index", "make")
			 : put_file(dirfd, "model.safetensors.index.json", b.data, b.len, err);
	ds_buf_fini(&b);
	return rc;
}

static int put_config(int dirfd, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	uint8_t map[VOCAB * 4] = { 0 };
	int rc = ds_file_read(AT_FDCWD, TESTS_DIR "/vectors/tiny-config.json", 0, 1 << 20, &b, err);

	for (int i = 0; i < VOCAB; i++)
		map[(size_t)i * 4] = (uint8_t)(i / 2);
	if (rc == 0)
		rc = put_file(dirfd, "config.json", b.data, b.len, err);
	if (rc == 0)
		rc = put_file(dirfd, "engram_token_map.bin", map, sizeof(map), err);
	ds_buf_fini(&b);
	return rc;
}

int tiny_model_write(const char *dir, struct ds_err *err)
{
	struct gen g = { 0 };

	if (mkdir(dir, 0755) != 0 && errno != EEXIST)
		return ds_err_set(err, DS_ERR_HOST, errno, dir, "make directory");
	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return ds_err_set(err, DS_ERR_HOST, errno, dir, "open directory");
	add_all(&g);
	int rc = put_config(dirfd, err);
	for (int i = 0; i < SHARDS && rc == 0; i++)
		rc = put_shard(dirfd, &g.shard[i], i, err);
	if (rc == 0)
		rc = put_index(dirfd, &g, err);
	for (int i = 0; i < SHARDS; i++) {
		ds_buf_fini(&g.shard[i].head);
		ds_buf_fini(&g.shard[i].data);
	}
	ds_buf_fini(&g.map);
	close(dirfd);
	return rc;
}

int tiny_model_temp(char *dir, size_t size, struct ds_err *err)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, size, "%s/dsengine-tiny-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	if (mkdtemp(dir) == NULL)
		return ds_err_set(err, DS_ERR_HOST, errno, dir, "make directory");
	return tiny_model_write(dir, err);
}

void test_dir_remove(const char *dir)
{
	DIR *d = opendir(dir);

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d != NULL)
		closedir(d);
	rmdir(dir);
}
