/*
 * weights.c - the checkpoint walked twice: once to check every tensor, once to load this rank's part.
 *
 * walk_model() names every tensor of the backbone with its format and shape, in the order of
 * model.md 2.3. The first walk compares them with the headers, so a wrong file is refused before
 * anything is read or allocated; the second reads. Both run the same code, so nothing can be loaded
 * that was not checked. One tensor at a time lies in the loader's buffer; what a kernel set makes
 * of it, or a copy where no set is involved, is what stays.
 */
#include "weights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engram.h"
#include "safetensors.h"

#define TENSOR_NAME_MAX 160

/* Everything a rank's weights own, in the order it was made. */
struct eng_mem {
	void **block;
	size_t n_block, cap_block;
	struct kern_weight **weight;
	size_t n_weight, cap_weight;
};

struct loader {
	struct eng_weights *w;
	const struct eng_conf *c;
	const struct eng_shard *s;
	struct st_set set;
	const struct engram *engram; /* primes and offsets only */
	bool check;		     /* first walk */
	bool *seen;		     /* [set.n_tensor] */
	uint8_t *buf;		     /* one tensor as stored, and its scales behind it */
	size_t buf_bytes;
	struct ds_err *err;
};

/* A matrix of the checkpoint and the rectangle of it that this rank keeps. */
struct rect {
	enum kern_fmt fmt;
	uint32_t rows, cols;
	uint32_t r0, r1, c0, c1;
};

static struct rect whole(enum kern_fmt fmt, uint32_t rows, uint32_t cols)
{
	return (struct rect){ fmt, rows, cols, 0, rows, 0, cols };
}

static struct rect row_part(enum kern_fmt fmt, uint32_t rows, uint32_t cols, uint32_t r0,
			    uint32_t r1)
{
	return (struct rect){ fmt, rows, cols, r0, r1, 0, cols };
}

static struct rect col_part(enum kern_fmt fmt, uint32_t rows, uint32_t cols, uint32_t c0,
			    uint32_t c1)
{
	return (struct rect){ fmt, rows, cols, 0, rows, c0, c1 };
}

/* ------------------------------------------------------------------ memory */

/* Room for one more pointer in a list of @n of @cap. */
static int list_room(void ***list, size_t n, size_t *cap, struct ds_err *err)
{
	if (n < *cap)
		return 0;
	size_t more = *cap == 0 ? 256 : *cap * 2;
	void **p = realloc(*list, more * sizeof(*p));
	if (p == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "weights", "allocate lists");
	*list = p;
	*cap = more;
	return 0;
}

/* Memory that stays; not zeroed, 64-byte aligned. Counted in w->bytes. */
static void *keep(struct loader *l, size_t bytes, const char *what)
{
	struct eng_mem *m = l->w->mem;
	size_t size = (bytes + 63) / 64 * 64;

	if (list_room(&m->block, m->n_block, &m->cap_block, l->err) != 0)
		return NULL;
	void *p = aligned_alloc(64, size == 0 ? 64 : size);
	if (p == NULL) {
		ds_err_set(l->err, DS_ERR_NOMEM, ENOMEM, what, "allocate %zu bytes of weights",
			   bytes);
		return NULL;
	}
	m->block[m->n_block++] = p;
	l->w->bytes += bytes;
	return p;
}

/* A list of weights, all NULL. */
static struct kern_weight **keep_list(struct loader *l, size_t n)
{
	void **p = keep(l, n * sizeof(*p), "weight list");

	if (p != NULL)
		memset(p, 0, n * sizeof(*p));
	return (struct kern_weight **)p;
}

static int need_buf(struct loader *l, size_t bytes, const char *what)
{
	if (bytes <= l->buf_bytes)
		return 0;
	free(l->buf);
	l->buf_bytes = 0;
	if ((l->buf = malloc(bytes)) == NULL)
		return ds_err_set(l->err, DS_ERR_NOMEM, ENOMEM, what,
				  "allocate %zu bytes to load it", bytes);
	l->buf_bytes = bytes;
	return 0;
}

/* ------------------------------------------------------------------ one tensor */

static char *shape_text(uint32_t n, const uint64_t *dim, char *buf, size_t size)
{
	size_t at = (size_t)snprintf(buf, size, "[");

	for (uint32_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(buf + at, size - at, "%s%" PRIu64, i == 0 ? "" : ", ",
				       dim[i]);
	if (at < size)
		snprintf(buf + at, size - at, "]");
	return buf;
}

/* The tensor @name, if it has this dtype and shape. Marks it as seen. */
static const struct st_tensor *want(struct loader *l, const char *name, enum st_dtype dtype,
				    uint32_t n_dim, const uint64_t *dim)
{
	const struct st_tensor *t = st_find(&l->set, name);
	char obj[256], have[64], need[64];

	if (t == NULL) {
		snprintf(obj, sizeof(obj), "%.*s: %s", (int)(sizeof(obj) - TENSOR_NAME_MAX - 3),
			 l->set.path, name);
		ds_err_set(l->err, DS_ERR_INPUT, 0, obj, "check weights");
		ds_err_why(l->err, "missing tensor");
		return NULL;
	}
	l->seen[t - l->set.tensor] = true;
	st_obj(&l->set, t, obj, sizeof(obj));
	if (t->dtype != dtype) {
		ds_err_set(l->err, DS_ERR_INPUT, 0, obj, "check weights");
		ds_err_why(l->err, "dtype %s where %s is needed", st_dtype_name(t->dtype),
			   st_dtype_name(dtype));
		return NULL;
	}
	if (t->n_dim != n_dim || memcmp(t->dim, dim, n_dim * sizeof(*dim)) != 0) {
		ds_err_set(l->err, DS_ERR_INPUT, 0, obj, "check weights");
		ds_err_why(l->err, "shape %s where config.json needs %s",
			   shape_text(t->n_dim, t->dim, have, sizeof(have)),
			   shape_text(n_dim, dim, need, sizeof(need)));
		return NULL;
	}
	return t;
}

/* Elements [first, end) of the outermost dimension of an F32 or BF16 tensor, as floats. */
static int floats(struct loader *l, float **out, enum st_dtype dtype, uint32_t n_dim,
		  const uint64_t *dim, uint64_t first, uint64_t end, const char *name)
{
	const struct st_tensor *t = want(l, name, dtype, n_dim, dim);
	size_t item = st_dtype_bytes(dtype), row = 1;

	if (t == NULL)
		return -1;
	if (l->check || first == end)
		return 0;
	for (uint32_t i = 1; i < n_dim; i++)
		row *= dim[i];
	size_t n = row * (size_t)(end - first);
	float *f = keep(l, n * sizeof(*f), name);
	if (f == NULL)
		return -1;
	if (dtype == ST_F32) {
		if (st_read(&l->set, t, first * row * item, f, n * item, l->err) != 0)
			return -1;
	} else {
		if (need_buf(l, n * item, name) != 0 ||
		    st_read(&l->set, t, first * row * item, l->buf, n * item, l->err) != 0)
			return -1;
		for (size_t i = 0; i < n; i++)
			f[i] = kern_bf16_to_f32(((const uint16_t *)(const void *)l->buf)[i]);
	}
	*out = f;
	return 0;
}

static int vector(struct loader *l, float **out, enum st_dtype dtype, uint32_t n, const char *fmt,
		  ...) __attribute__((format(printf, 5, 6)));

/* A whole one-dimensional tensor. */
static int vector(struct loader *l, float **out, enum st_dtype dtype, uint32_t n, const char *fmt,
		  ...)
{
	const uint64_t dim[1] = { n };
	char name[TENSOR_NAME_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	return floats(l, out, dtype, 1, dim, 0, n, name);
}

/*
 * Bytes [c0, c1) of rows [r0, r1) of a tensor whose rows have @pitch bytes, packed into @to. Whole
 * rows are one read; parts of rows are one read each, so that nothing of another rank's is read.
 */
static int read_rect(struct loader *l, const struct st_tensor *t, uint64_t pitch, uint64_t r0,
		     uint64_t r1, uint64_t c0, uint64_t c1, uint8_t *to)
{
	uint64_t width = c1 - c0;

	if (width == pitch)
		return st_read(&l->set, t, r0 * pitch, to, (r1 - r0) * pitch, l->err);
	for (uint64_t r = r0; r < r1; r++, to += width) {
		if (st_read(&l->set, t, r * pitch + c0, to, width, l->err) != 0)
			return -1;
	}
	return 0;
}

/* How a format lies in the file: dtype, elements per stored byte or bytes per element, scales. */
struct stored {
	enum st_dtype dtype;
	uint32_t num, den;   /* a row of n elements has n * num / den bytes */
	uint32_t scale_rows; /* rows per scale: 0 = no scales */
};

static const struct stored stored[] = {
	[KERN_F32] = { ST_F32, 4, 1, 0 },
	[KERN_BF16] = { ST_BF16, 2, 1, 0 },
	[KERN_FP8] = { ST_F8_E4M3, 1, 1, KERN_BLOCK },
	[KERN_FP4] = { ST_I8, 1, 2, 1 },
};

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
	return (a + b - 1) / b;
}

/* Finds and checks a matrix's two tensors; @scale is NULL without scales. */
static int want_matrix(struct loader *l, const struct rect *q, const char *name,
		       const struct st_tensor **data, const struct st_tensor **scale)
{
	const struct stored *f = &stored[q->fmt];
	uint32_t item = st_dtype_bytes(f->dtype);
	const uint64_t dim[2] = { q->rows, (uint64_t)q->cols * f->num / f->den / item };
	char full[TENSOR_NAME_MAX + 8];

	snprintf(full, sizeof(full), "%s.weight", name);
	if ((*data = want(l, full, f->dtype, 2, dim)) == NULL)
		return -1;
	*scale = NULL;
	if (f->scale_rows == 0)
		return 0;
	const uint64_t sdim[2] = { ceil_div(q->rows, f->scale_rows),
				   ceil_div(q->cols, KERN_BLOCK) };
	snprintf(full, sizeof(full), "%s.scale", name);
	*scale = want(l, full, ST_F8_E8M0, 2, sdim);
	return *scale == NULL ? -1 : 0;
}

/* Reads the rectangle into the buffer and describes it for the kernel set. */
static int read_matrix(struct loader *l, const struct rect *q, const char *name,
		       const struct st_tensor *data, const struct st_tensor *scale,
		       struct kern_matrix *m)
{
	const struct stored *f = &stored[q->fmt];
	size_t pitch = (size_t)q->cols * f->num / f->den;
	size_t b0 = (size_t)q->c0 * f->num / f->den, b1 = (size_t)q->c1 * f->num / f->den;
	size_t bytes = (q->r1 - q->r0) * (b1 - b0), scale_at = (bytes + 63) / 64 * 64;
	uint32_t sr0 = 0, sr1 = 0, sc0 = q->c0 / KERN_BLOCK, sc1 = ceil_div(q->c1, KERN_BLOCK);

	if (scale != NULL) {
		sr0 = q->r0 / f->scale_rows;
		sr1 = ceil_div(q->r1, f->scale_rows);
	}
	if (need_buf(l, scale_at + (size_t)(sr1 - sr0) * (sc1 - sc0), name) != 0 ||
	    read_rect(l, data, pitch, q->r0, q->r1, b0, b1, l->buf) != 0)
		return -1;
	if (scale != NULL && read_rect(l, scale, ceil_div(q->cols, KERN_BLOCK), sr0, sr1, sc0, sc1,
				       l->buf + scale_at) != 0)
		return -1;
	*m = (struct kern_matrix){ .fmt = q->fmt,
				   .rows = q->r1 - q->r0,
				   .cols = q->c1 - q->c0,
				   .data = l->buf,
				   .stride = b1 - b0,
				   .scale = scale == NULL ? NULL : l->buf + scale_at,
				   .scale_stride = sc1 - sc0 };
	return 0;
}

static int prepare(struct loader *l, struct kern_weight **out, const struct kern_matrix *m)
{
	struct eng_mem *mem = l->w->mem;
	void **list = (void **)mem->weight;

	int rc = list_room(&list, mem->n_weight, &mem->cap_weight, l->err);
	mem->weight = (struct kern_weight **)list;
	if (rc != 0)
		return -1;
	struct kern_weight *k = l->w->ops->weight_prepare(m, l->err);
	if (k == NULL)
		return -1;
	mem->weight[mem->n_weight++] = k;
	l->w->bytes += l->w->ops->weight_bytes(k);
	*out = k;
	return 0;
}

static int matrix(struct loader *l, struct kern_weight **out, struct rect q, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* One matrix, or this rank's rectangle of it. An empty rectangle leaves NULL. */
static int matrix(struct loader *l, struct kern_weight **out, struct rect q, const char *fmt, ...)
{
	const struct st_tensor *data, *scale;
	char name[TENSOR_NAME_MAX];
	struct kern_matrix m;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	if (want_matrix(l, &q, name, &data, &scale) != 0)
		return -1;
	if (l->check || q.r0 == q.r1 || q.c0 == q.c1)
		return 0;
	if (read_matrix(l, &q, name, data, scale, &m) != 0)
		return -1;
	return prepare(l, out, &m);
}

/* ------------------------------------------------------------------ the model, part by part */

/* wo_a: one matrix per output group of this rank, so that each is a linear of its own. */
static int walk_wo_a(struct loader *l, struct eng_layer *y, uint32_t layer)
{
	const struct eng_conf *c = l->c;
	const struct eng_shard *s = l->s;
	uint32_t cols = c->n_heads / c->o_groups * c->head_dim, n = s->group_end - s->group0;
	struct kern_weight *none = NULL;

	if (!l->check && n > 0 && (y->wo_a = keep_list(l, n)) == NULL)
		return -1;
	/* A rank without groups still checks the shape, with an empty rectangle. */
	for (uint32_t g = 0; g < (n == 0 ? 1 : n); g++) {
		uint32_t r0 = n == 0 ? 0 : (s->group0 + g) * c->o_rank;
		uint32_t r1 = n == 0 ? 0 : r0 + c->o_rank;
		if (matrix(l, y->wo_a == NULL ? &none : &y->wo_a[g],
			   row_part(KERN_FP8, c->o_groups * c->o_rank, cols, r0, r1),
			   "layers.%u.attn.wo_a", layer) != 0)
			return -1;
	}
	return 0;
}

static int walk_attention(struct loader *l, struct eng_layer *y, uint32_t layer)
{
	const struct eng_conf *c = l->c;
	const struct eng_shard *s = l->s;
	const uint64_t heads[1] = { c->n_heads };
	uint32_t hd = c->head_dim;
	char sink[TENSOR_NAME_MAX];

	snprintf(sink, sizeof(sink), "layers.%u.attn.attn_sink", layer);
	if (floats(l, &y->sink, ST_F32, 1, heads, s->head0, s->head_end, sink) != 0 ||
	    matrix(l, &y->wq_a, whole(KERN_FP8, c->q_rank, c->dim), "layers.%u.attn.wq_a", layer) !=
		    0 ||
	    vector(l, &y->q_norm, ST_BF16, c->q_rank, "layers.%u.attn.q_norm.weight", layer) != 0 ||
	    matrix(l, &y->wq_b,
		   row_part(KERN_FP8, c->n_heads * hd, c->q_rank, s->head0 * hd, s->head_end * hd),
		   "layers.%u.attn.wq_b", layer) != 0 ||
	    matrix(l, &y->wkv, whole(KERN_FP8, hd, c->dim), "layers.%u.attn.wkv", layer) != 0 ||
	    vector(l, &y->kv_norm, ST_BF16, hd, "layers.%u.attn.kv_norm.weight", layer) != 0)
		return -1;
	if (walk_wo_a(l, y, layer) != 0 ||
	    matrix(l, &y->wo_b,
		   col_part(KERN_FP8, c->dim, c->o_groups * c->o_rank, s->group0 * c->o_rank,
			    s->group_end * c->o_rank),
		   "layers.%u.attn.wo_b", layer) != 0)
		return -1;
	if (vector(l, &y->attn_norm, ST_BF16, c->dim, "layers.%u.attn_norm.weight", layer) != 0)
		return -1;
	return vector(l, &y->ffn_norm, ST_BF16, c->dim, "layers.%u.ffn_norm.weight", layer);
}

static int walk_hc(struct loader *l, struct kern_hc *hc, uint32_t layer, const char *which)
{
	const struct eng_conf *c = l->c;
	uint32_t rows = (2 + c->copies) * c->copies;
	const uint64_t dim[2] = { rows, (uint64_t)c->copies * c->dim };
	float *fn = NULL, *base = NULL, *scale = NULL;
	char name[TENSOR_NAME_MAX];

	snprintf(name, sizeof(name), "layers.%u.hc_%s_fn", layer, which);
	if (floats(l, &fn, ST_F32, 2, dim, 0, rows, name) != 0 ||
	    vector(l, &base, ST_F32, rows, "layers.%u.hc_%s_base", layer, which) != 0 ||
	    vector(l, &scale, ST_F32, 3, "layers.%u.hc_%s_scale", layer, which) != 0)
		return -1;
	*hc = (struct kern_hc){ .copies = c->copies,
				.dim = c->dim,
				.iters = c->hc_iters,
				.eps = c->hc_eps,
				.norm_eps = c->norm_eps,
				.fn = fn,
				.base = base,
				.scale = scale };
	return 0;
}

/* Gate branch, up branch and output of one expert: rows, rows and columns of its inner width. */
static int walk_expert(struct loader *l, enum kern_fmt fmt, struct kern_weight **w1,
		       struct kern_weight **w2, struct kern_weight **w3, const char *base)
{
	const struct eng_conf *c = l->c;
	const struct eng_shard *s = l->s;
	struct rect in = row_part(fmt, c->inner, c->dim, s->inner0, s->inner_end);
	struct rect out = col_part(fmt, c->dim, c->inner, s->inner0, s->inner_end);

	if (matrix(l, w1, in, "%s.w1", base) != 0 || matrix(l, w2, out, "%s.w2", base) != 0)
		return -1;
	return matrix(l, w3, in, "%s.w3", base);
}

static int walk_moe(struct loader *l, struct eng_layer *y, uint32_t layer)
{
	const struct eng_conf *c = l->c;
	struct kern_weight *none = NULL;
	char base[TENSOR_NAME_MAX - 8];

	if (matrix(l, &y->gate, whole(KERN_BF16, c->n_experts, c->dim), "layers.%u.ffn.gate",
		   layer) != 0 ||
	    vector(l, &y->gate_bias, ST_F32, c->n_experts, "layers.%u.ffn.gate.bias", layer) != 0 ||
	    vector(l, &y->gate_bias_vl, ST_F32, c->n_experts, "layers.%u.ffn.gate.bias_vl",
		   layer) != 0)
		return -1;
	snprintf(base, sizeof(base), "layers.%u.ffn.shared_experts", layer);
	if (walk_expert(l, KERN_FP8, &y->s1, &y->s2, &y->s3, base) != 0)
		return -1;
	if (!l->check && ((y->w1 = keep_list(l, c->n_experts)) == NULL ||
			  (y->w2 = keep_list(l, c->n_experts)) == NULL ||
			  (y->w3 = keep_list(l, c->n_experts)) == NULL))
		return -1;
	for (uint32_t e = 0; e < c->n_experts; e++) {
		snprintf(base, sizeof(base), "layers.%u.ffn.experts.%u", layer, e);
		if (walk_expert(l, KERN_FP4, l->check ? &none : &y->w1[e],
				l->check ? &none : &y->w2[e], l->check ? &none : &y->w3[e],
				base) != 0)
			return -1;
	}
	return 0;
}

/* What only source layers have: the compressor, the index keys, the indexer's queries. */
static int walk_sources(struct loader *l, struct eng_layer *y, uint32_t layer)
{
	const struct eng_conf *c = l->c;
	struct rect comp = whole(KERN_BF16, c->head_dim, c->dim);

	if (c->kv_source[layer] == (int32_t)layer) {
		if (matrix(l, &y->comp_kv, comp, "layers.%u.attn.compressor.wkv", layer) != 0)
			return -1;
		if (c->ratio[layer] == 2 &&
		    matrix(l, &y->comp_gate, comp, "layers.%u.attn.compressor.wgate", layer) != 0)
			return -1;
		if (vector(l, &y->comp_norm, ST_BF16, c->head_dim,
			   "layers.%u.attn.compressor.norm.weight", layer) != 0 ||
		    matrix(l, &y->index_wk, whole(KERN_BF16, c->index_dim, c->head_dim),
			   "layers.%u.attn.indexer.wk", layer) != 0 ||
		    vector(l, &y->index_k_norm, ST_BF16, c->index_dim,
			   "layers.%u.attn.indexer.k_norm.weight", layer) != 0)
			return -1;
	}
	if (c->index_source[layer] != (int32_t)layer)
		return 0;
	if (matrix(l, &y->index_wq, whole(KERN_FP8, c->index_heads * c->index_dim, c->q_rank),
		   "layers.%u.attn.indexer.wq_b", layer) != 0)
		return -1;
	return matrix(l, &y->index_weights, whole(KERN_BF16, c->index_heads, c->dim),
		      "layers.%u.attn.indexer.weights_proj", layer);
}

/* The rows of this rank's columns, as stored. They are read where they stay. */
static int walk_table(struct loader *l, struct eng_layer *y, uint32_t layer, uint32_t which)
{
	const struct eng_conf *c = l->c;
	const uint64_t *off = l->engram->offset[which];
	uint64_t r0 = off[l->s->col0], r1 = off[l->s->col_end], groups = c->engram_dim / KERN_BLOCK;
	const uint64_t dim[2] = { c->engram_rows[which], c->engram_dim };
	const uint64_t sdim[2] = { c->engram_rows[which], groups };
	char name[TENSOR_NAME_MAX];

	snprintf(name, sizeof(name), "layers.%u.engram.embed.weight", layer);
	const struct st_tensor *t = want(l, name, ST_F8_E4M3, 2, dim);
	if (t == NULL)
		return -1;
	snprintf(name, sizeof(name), "layers.%u.engram.embed.scale", layer);
	const struct st_tensor *ts = want(l, name, ST_F8_E8M0, 2, sdim);
	if (ts == NULL)
		return -1;
	if (l->check || r0 == r1)
		return 0;
	y->table_row0 = r0;
	if ((y->table = keep(l, (r1 - r0) * c->engram_dim, "Engram table")) == NULL ||
	    (y->table_scale = keep(l, (r1 - r0) * groups, "Engram scales")) == NULL)
		return -1;
	if (read_rect(l, t, c->engram_dim, r0, r1, 0, c->engram_dim, y->table) != 0)
		return -1;
	return read_rect(l, ts, groups, r0, r1, 0, groups, y->table_scale);
}

/* q_weight and k_weight only ever occur multiplied with each other (4.11.4). */
static int walk_qk(struct loader *l, struct eng_layer *y, uint32_t layer)
{
	const struct eng_conf *c = l->c;
	const uint64_t dim[2] = { c->copies, c->dim };
	size_t n = (size_t)c->copies * c->dim;
	char name[TENSOR_NAME_MAX];

	snprintf(name, sizeof(name), "layers.%u.engram.q_weight", layer);
	if (floats(l, &y->engram_qk, ST_BF16, 2, dim, 0, c->copies, name) != 0)
		return -1;
	snprintf(name, sizeof(name), "layers.%u.engram.k_weight", layer);
	const struct st_tensor *k = want(l, name, ST_BF16, 2, dim);
	if (k == NULL)
		return -1;
	if (l->check)
		return 0;
	if (need_buf(l, n * 2, name) != 0 || st_read(&l->set, k, 0, l->buf, n * 2, l->err) != 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		y->engram_qk[i] *= kern_bf16_to_f32(((const uint16_t *)(const void *)l->buf)[i]);
	return 0;
}

static int walk_engram(struct loader *l, struct eng_layer *y, uint32_t layer)
{
	const struct eng_conf *c = l->c;

	y->engram = -1;
	for (uint32_t i = 0; i < c->n_engram; i++) {
		if (c->engram_layer[i] == layer)
			y->engram = (int)i;
	}
	if (y->engram < 0)
		return 0;
	if (walk_table(l, y, layer, (uint32_t)y->engram) != 0 || walk_qk(l, y, layer) != 0)
		return -1;
	return matrix(l, &y->engram_wkv,
		      whole(KERN_FP8, (c->copies + 1) * c->dim, l->engram->cols * c->engram_dim),
		      "layers.%u.engram.wkv", layer);
}

static int walk_embed(struct loader *l)
{
	const struct eng_conf *c = l->c;
	const uint64_t dim[2] = { c->vocab, c->dim };
	size_t bytes = (size_t)c->vocab * c->dim * 2;
	const struct st_tensor *t = want(l, "embed.weight", ST_BF16, 2, dim);

	if (t == NULL)
		return -1;
	if (l->check)
		return 0;
	if ((l->w->embed = keep(l, bytes, "embed.weight")) == NULL)
		return -1;
	return st_read(&l->set, t, 0, l->w->embed, bytes, l->err);
}

static int walk_model(struct loader *l)
{
	const struct eng_conf *c = l->c;
	const struct eng_shard *s = l->s;

	if (walk_embed(l) != 0)
		return -1;
	for (uint32_t i = 0; i < c->n_layers; i++) {
		struct eng_layer *y = &l->w->layer[i];
		if (walk_engram(l, y, i) != 0 || walk_attention(l, y, i) != 0 ||
		    walk_hc(l, &y->hc_attn, i, "attn") != 0 ||
		    walk_hc(l, &y->hc_ffn, i, "ffn") != 0 || walk_sources(l, y, i) != 0 ||
		    walk_moe(l, y, i) != 0)
			return -1;
	}
	if (vector(l, &l->w->norm, ST_BF16, c->dim, "norm.weight") != 0)
		return -1;
	return matrix(l, &l->w->head,
		      row_part(KERN_BF16, c->vocab, c->dim, s->vocab0, s->vocab_end), "head");
}

/* ------------------------------------------------------------------ the whole */

/* Tensors of parts that are not loaded here may be present; any other is not of this config. */
static int check_rest(struct loader *l)
{
	static const char *const other[] = { "mtp.", "vision.", "aligner.", "image_" };
	char obj[256];

	for (size_t i = 0; i < l->set.n_tensor; i++) {
		const struct st_tensor *t = &l->set.tensor[i];
		bool known = l->seen[i];
		for (size_t k = 0; k < sizeof(other) / sizeof(other[0]); k++)
			known = known || strncmp(t->name, other[k], strlen(other[k])) == 0;
		if (known)
			continue;
		ds_err_set(l->err, DS_ERR_INPUT, 0, st_obj(&l->set, t, obj, sizeof(obj)),
			   "check weights");
		return ds_err_why(l->err, "no part of the model that config.json describes");
	}
	return 0;
}

static int load_set(struct loader *l)
{
	const struct eng_conf *c = l->c;

	if ((l->seen = calloc(l->set.n_tensor + 1, sizeof(bool))) == NULL)
		return ds_err_set(l->err, DS_ERR_NOMEM, ENOMEM, c->dir, "check weights");
	if ((l->w->layer = keep(l, c->n_layers * sizeof(*l->w->layer), "layers")) == NULL)
		return -1;
	memset(l->w->layer, 0, c->n_layers * sizeof(*l->w->layer));
	l->check = true;
	if (walk_model(l) != 0 || check_rest(l) != 0)
		return -1;
	l->check = false;
	return walk_model(l);
}

int eng_weights_load(const struct eng_conf *c, const struct eng_shard *s,
		     const struct kern_ops *ops, struct eng_weights *w, struct ds_err *err)
{
	struct loader l = { .w = w, .c = c, .s = s, .err = err };
	struct eng_dir *own = NULL;
	struct engram engram;
	int rc = -1;

	*w = (struct eng_weights){ .conf = c, .ops = ops, .shard = *s };
	if (engram_constants(c, &engram, err) != 0)
		return -1;
	l.engram = &engram;
	if ((w->mem = calloc(1, sizeof(*w->mem))) == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, c->dir, "load weights");
	if (c->files == NULL && (own = eng_dir_open(c->dir, err)) == NULL)
		goto out;
	if (st_open_dir(c->files == NULL ? own : c->files, &l.set, err) != 0)
		goto out;
	rc = load_set(&l);
	w->read_bytes = l.set.read_bytes;
	st_close(&l.set);
out:
	free(l.seen);
	free(l.buf);
	eng_dir_close(own);
	if (rc != 0)
		eng_weights_free(w);
	return rc;
}

void eng_weights_free(struct eng_weights *w)
{
	struct eng_mem *m = w->mem;

	if (m != NULL) {
		for (size_t i = 0; i < m->n_weight; i++)
			w->ops->weight_free(m->weight[i]);
		for (size_t i = 0; i < m->n_block; i++)
			free(m->block[i]);
		free(m->weight);
		free(m->block);
		free(m);
	}
	*w = (struct eng_weights){ 0 };
}
