/*
 * test_weights.c - shard plans and loading: every byte of a sharded tensor on exactly one rank.
 *
 * The kernel set here is a double that keeps what it was given, so that the rectangles can be
 * compared with the files byte for byte.
 */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engram.h"
#include "safetensors.h"
#include "tiny_model.h"
#include "weights.h"

#define DEMO  TESTS_DIR "/fixtures/demo-model"
#define INDEX "model.safetensors.index.json"

/* ------------------------------------------------------------------ a kernel set that remembers */

struct kern_weight {
	struct kern_matrix m; /* data and scale are copies */
	size_t bytes, scale_bytes;
};

static int alive;	    /* weights made and not freed */
static int fail_after = -1; /* prepares left before one fails; -1 = never */

static void keeper_free(struct kern_weight *k)
{
	free((void *)(uintptr_t)k->m.data);
	free((void *)(uintptr_t)k->m.scale);
	free(k);
	alive--;
}

static void *copy_of(const void *from, size_t bytes)
{
	void *p = malloc(bytes + 1);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	return memcpy(p, from, bytes);
}

static struct kern_weight *keeper_prepare(const struct kern_matrix *m, struct ds_err *err)
{
	uint32_t srows = m->fmt == KERN_FP8 ? (m->rows + 31) / 32 : m->rows;

	if (fail_after == 0) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "double", "prepare weight");
		return NULL;
	}
	fail_after -= fail_after > 0;
	struct kern_weight *k = calloc(1, sizeof(*k));
	CU_ASSERT_PTR_NOT_NULL_FATAL(k);
	k->m = *m;
	k->bytes = m->rows * m->stride;
	k->m.data = copy_of(m->data, k->bytes);
	if (m->scale != NULL) {
		k->scale_bytes = srows * m->scale_stride;
		k->m.scale = copy_of(m->scale, k->scale_bytes);
	}
	alive++;
	return k;
}

static size_t keeper_bytes(const struct kern_weight *k)
{
	return k->bytes + k->scale_bytes;
}

static const struct kern_ops keeper = { .name = "keeper",
					.weight_prepare = keeper_prepare,
					.weight_free = keeper_free,
					.weight_bytes = keeper_bytes };

/* ------------------------------------------------------------------ plans */

static const struct {
	uint32_t world, leaves;
} worlds[] = { { 1, 4 }, { 2, 4 }, { 4, 4 }, { 1, 3 }, { 3, 3 } };

#define N_WORLDS (sizeof(worlds) / sizeof(worlds[0]))

/* Ranges of consecutive ranks must join without gap from 0 to the whole. */
static bool joins(uint32_t *at, uint32_t first, uint32_t end)
{
	bool ok = first == *at && end >= first;

	*at = end;
	return ok;
}

static void check_plan(const struct eng_conf *c, uint32_t world, uint32_t leaves)
{
	uint32_t leaf = 0, group = 0, head = 0, inner = 0, vocab = 0, col = 0;
	struct ds_err err = { 0 };
	struct eng_shard s;

	for (uint32_t r = 0; r < world; r++) {
		CU_ASSERT_EQUAL_FATAL(eng_shard_plan(c, r, world, leaves, &s, &err), 0);
		CU_ASSERT(joins(&leaf, s.leaf0, s.leaf_end));
		CU_ASSERT(joins(&group, s.group0, s.group_end));
		CU_ASSERT(joins(&head, s.head0, s.head_end));
		CU_ASSERT(joins(&inner, s.inner0, s.inner_end));
		CU_ASSERT(joins(&vocab, s.vocab0, s.vocab_end));
		CU_ASSERT(joins(&col, s.col0, s.col_end));
		CU_ASSERT_EQUAL(s.inner0 % 32, 0);
		CU_ASSERT(s.vocab0 % 32 == 0 || s.vocab0 == c->vocab);
		CU_ASSERT_EQUAL(s.head0 * c->o_groups, s.group0 * c->n_heads);
		CU_ASSERT(s.n_leaf <= leaves / world);
		CU_ASSERT_EQUAL(s.leaf_inner[0], 0);
		CU_ASSERT_EQUAL(s.leaf_inner[s.n_leaf], s.inner_end - s.inner0);
	}
	CU_ASSERT_EQUAL(leaf, leaves);
	CU_ASSERT_EQUAL(group, c->o_groups);
	CU_ASSERT_EQUAL(head, c->n_heads);
	CU_ASSERT_EQUAL(inner, c->inner);
	CU_ASSERT_EQUAL(vocab, c->vocab);
	CU_ASSERT_EQUAL(col, (c->engram_orders - 1) * c->engram_heads);
}

static void plans_cover_once(void)
{
	struct ds_err err = { 0 };
	struct eng_conf c;

	CU_ASSERT_EQUAL_FATAL(eng_conf_load(DEMO, &c, &err), 0);
	for (size_t i = 0; i < N_WORLDS; i++) {
		struct eng_conf v = c;
		check_plan(&v, worlds[i].world, worlds[i].leaves);
		/* The release's numbers, then uneven ones. */
		v.n_heads = 64, v.o_groups = 8, v.inner = 2304, v.vocab = 129280;
		v.engram_heads = 8;
		check_plan(&v, worlds[i].world, worlds[i].leaves);
		v.n_heads = 15, v.o_groups = 5, v.inner = 7 * 32, v.vocab = 1001;
		check_plan(&v, worlds[i].world, worlds[i].leaves);
		v.inner = 32, v.vocab = 33;
		check_plan(&v, worlds[i].world, worlds[i].leaves);
	}
}

static void plan_of_the_release(void)
{
	struct eng_conf c = { .n_heads = 64, .o_groups = 8, .inner = 2304, .vocab = 129280 };
	struct ds_err err = { 0 };
	struct eng_shard s;

	CU_ASSERT_EQUAL(eng_shard_plan(&c, 1, 2, 4, &s, &err), 0);
	CU_ASSERT(s.leaf0 == 2 && s.leaf_end == 4 && s.group0 == 4 && s.group_end == 8);
	CU_ASSERT(s.head0 == 32 && s.head_end == 64 && s.inner0 == 1152 && s.inner_end == 2304);
	CU_ASSERT(s.n_leaf == 2 && s.leaf_inner[1] == 576 && s.leaf_inner[2] == 1152);
	CU_ASSERT(s.vocab0 == 64640 && s.vocab_end == 129280);
	CU_ASSERT_EQUAL(eng_shard_plan(&c, 2, 3, 3, &s, &err), 0);
	CU_ASSERT(s.group0 == 6 && s.group_end == 8 && s.inner0 == 1536);
	/* Fewer units than leaves: empty leaves at the end. */
	c.inner = 96;
	CU_ASSERT_EQUAL(eng_shard_plan(&c, 0, 1, 4, &s, &err), 0);
	CU_ASSERT(s.n_leaf == 3 && s.leaf_inner[3] == 96);
	CU_ASSERT_EQUAL(eng_shard_plan(&c, 3, 4, 4, &s, &err), 0);
	CU_ASSERT(s.n_leaf == 0 && s.inner0 == 96 && s.inner_end == 96);
}

static void plans_refused(void)
{
	static const uint32_t bad[][3] = { { 0, 2, 3 }, { 0, 4, 3 }, { 0, 3, 4 }, { 0, 1, 2 },
					   { 0, 5, 4 }, { 0, 0, 4 }, { 0, 8, 8 }, { 2, 2, 4 } };
	struct eng_conf c = { .n_heads = 8, .o_groups = 4, .inner = 64, .vocab = 64 };
	struct eng_shard s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ds_err err = { 0 };
		CU_ASSERT_EQUAL(eng_shard_plan(&c, bad[i][0], bad[i][1], bad[i][2], &s, &err), -1);
		CU_ASSERT_EQUAL(err.kind, DS_ERR_USAGE);
	}
	static const uint32_t shapes[][2] = { { 8, 3 }, { 8, 1 } };
	for (size_t i = 0; i < 2; i++) {
		struct ds_err err = { 0 };
		c.n_heads = shapes[i][0];
		c.o_groups = shapes[i][1];
		CU_ASSERT_EQUAL(eng_shard_plan(&c, 0, 2, 4, &s, &err), -1);
		CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "num_attention_heads 8"));
		CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "o_groups"));
		CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "world 2"));
	}
}

/* ------------------------------------------------------------------ what was loaded */

/* The whole of a tensor's bytes; free() them. */
static uint8_t *whole_tensor(struct st_set *s, const char *name, uint64_t *bytes)
{
	const struct st_tensor *t = st_find(s, name);
	struct ds_err err = { 0 };

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	uint8_t *p = malloc(t->bytes + 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_EQUAL_FATAL(st_read(s, t, 0, p, t->bytes, &err), 0);
	*bytes = t->bytes;
	return p;
}

/* Whether @part holds rows from @r0 and bytes from @b0 of @all, whose rows have @pitch bytes. */
static bool same_rect(const void *part, size_t rows, size_t stride, const uint8_t *all,
		      size_t pitch, size_t r0, size_t b0)
{
	for (size_t r = 0; r < rows; r++) {
		if (memcmp((const uint8_t *)part + r * stride, all + (r0 + r) * pitch + b0,
			   stride) != 0)
			return false;
	}
	return true;
}

/*
 * One matrix NAME over all ranks: @part[r] continues in rows, or in columns if @by_col, where
 * @part[r - 1] ended; together they are the whole, data and scales.
 */
static void check_matrix(struct st_set *set, const char *base, bool by_col,
			 struct kern_weight *const *part, uint32_t n)
{
	char name[160];
	uint64_t bytes, sbytes = 0, got = 0, sgot = 0;
	size_t row = 0, byte = 0, srow = 0, sbyte = 0;

	snprintf(name, sizeof(name), "%s.weight", base);
	uint8_t *all = whole_tensor(set, name, &bytes), *scales = NULL;
	size_t pitch = bytes / st_find(set, name)->dim[0], spitch = 0;
	for (uint32_t r = 0; r < n; r++) {
		const struct kern_weight *k = part[r];
		if (k == NULL)
			continue;
		CU_ASSERT(same_rect(k->m.data, k->m.rows, k->m.stride, all, pitch, row, byte));
		got += k->bytes;
		if (k->m.scale != NULL && scales == NULL) {
			snprintf(name, sizeof(name), "%s.scale", base);
			scales = whole_tensor(set, name, &sbytes);
			spitch = sbytes / st_find(set, name)->dim[0];
		}
		if (k->m.scale != NULL) {
			size_t srows = k->scale_bytes / k->m.scale_stride;
			CU_ASSERT(same_rect(k->m.scale, srows, k->m.scale_stride, scales, spitch,
					    srow, sbyte));
			sgot += k->scale_bytes;
			srow += by_col ? 0 : srows;
			sbyte += by_col ? k->m.scale_stride : 0;
		}
		row += by_col ? 0 : k->m.rows;
		byte += by_col ? k->m.stride : 0;
	}
	CU_ASSERT_EQUAL(got, bytes);
	CU_ASSERT_EQUAL(sgot, sbytes);
	free(all);
	free(scales);
}

/* Collects one member of every rank's weights and compares. */
#define CHECK(by_col, member, ...)                     \
	do {                                           \
		struct kern_weight *p_[4];             \
		char b_[128];                          \
		for (uint32_t r_ = 0; r_ < n; r_++)    \
			p_[r_] = w[r_].member;         \
		snprintf(b_, sizeof(b_), __VA_ARGS__); \
		check_matrix(set, b_, by_col, p_, n);  \
	} while (0)

static void check_experts(struct st_set *set, const struct eng_weights *w, uint32_t n, uint32_t l)
{
	CHECK(false, layer[l].s1, "layers.%u.ffn.shared_experts.w1", l);
	CHECK(true, layer[l].s2, "layers.%u.ffn.shared_experts.w2", l);
	CHECK(false, layer[l].s3, "layers.%u.ffn.shared_experts.w3", l);
	for (uint32_t e = 0; e < w->conf->n_experts; e++) {
		CHECK(false, layer[l].w1[e], "layers.%u.ffn.experts.%u.w1", l, e);
		CHECK(true, layer[l].w2[e], "layers.%u.ffn.experts.%u.w2", l, e);
		CHECK(false, layer[l].w3[e], "layers.%u.ffn.experts.%u.w3", l, e);
	}
}

static void check_groups(struct st_set *set, const struct eng_weights *w, uint32_t n, uint32_t l)
{
	struct kern_weight *g[64];
	uint32_t k = 0;
	char name[64];

	for (uint32_t r = 0; r < n; r++) {
		for (uint32_t i = 0; i < w[r].shard.group_end - w[r].shard.group0; i++)
			g[k++] = w[r].layer[l].wo_a[i];
	}
	snprintf(name, sizeof(name), "layers.%u.attn.wo_a", l);
	check_matrix(set, name, false, g, k);
}

static void check_table(struct st_set *set, const struct eng_weights *w, uint32_t n, uint32_t l)
{
	int which = w->layer[l].engram;
	uint64_t bytes, sbytes, row = 0, groups = w->conf->engram_dim / 32;
	struct ds_err err = { 0 };
	struct engram g;
	char name[64];

	snprintf(name, sizeof(name), "layers.%u.engram.embed.weight", l);
	uint8_t *all = whole_tensor(set, name, &bytes);
	snprintf(name, sizeof(name), "layers.%u.engram.embed.scale", l);
	uint8_t *scales = whole_tensor(set, name, &sbytes);
	CU_ASSERT_EQUAL_FATAL(engram_constants(w->conf, &g, &err), 0);
	for (uint32_t r = 0; r < n; r++) {
		uint64_t end = g.offset[which][w[r].shard.col_end];
		CU_ASSERT_EQUAL(w[r].layer[l].table_row0, row);
		CU_ASSERT_EQUAL(memcmp(w[r].layer[l].table, all + row * w->conf->engram_dim,
				       (end - row) * w->conf->engram_dim),
				0);
		CU_ASSERT_EQUAL(memcmp(w[r].layer[l].table_scale, scales + row * groups,
				       (end - row) * groups),
				0);
		row = end;
	}
	CU_ASSERT_EQUAL(row * w->conf->engram_dim, bytes);
	free(all);
	free(scales);
}

/* What every rank holds whole. */
static void check_replicated(struct st_set *set, const struct eng_weights *w, uint32_t l)
{
	const struct eng_layer *y = &w->layer[l];
	uint32_t n = 1;

	CHECK(false, layer[l].wq_a, "layers.%u.attn.wq_a", l);
	CHECK(false, layer[l].wkv, "layers.%u.attn.wkv", l);
	CHECK(false, layer[l].gate, "layers.%u.ffn.gate", l);
	bool source = w->conf->kv_source[l] == (int32_t)l;
	bool index = w->conf->index_source[l] == (int32_t)l;
	CU_ASSERT_EQUAL(y->comp_kv != NULL, source);
	CU_ASSERT_EQUAL(y->comp_gate != NULL, source && w->conf->ratio[l] == 2);
	CU_ASSERT_EQUAL(y->index_wk != NULL, source);
	CU_ASSERT_EQUAL(y->index_wq != NULL, index);
	if (source) {
		CHECK(false, layer[l].comp_kv, "layers.%u.attn.compressor.wkv", l);
		CHECK(false, layer[l].index_wk, "layers.%u.attn.indexer.wk", l);
	}
	if (index) {
		CHECK(false, layer[l].index_wq, "layers.%u.attn.indexer.wq_b", l);
		CHECK(false, layer[l].index_weights, "layers.%u.attn.indexer.weights_proj", l);
	}
	if (y->engram >= 0)
		CHECK(false, layer[l].engram_wkv, "layers.%u.engram.wkv", l);
}

static void check_floats(struct st_set *set, const struct eng_weights *w, uint32_t l)
{
	const struct eng_conf *c = w->conf;
	const struct eng_layer *y = &w->layer[l];
	uint64_t bytes, kbytes;
	char name[64];

	snprintf(name, sizeof(name), "layers.%u.hc_ffn_fn", l);
	uint8_t *fn = whole_tensor(set, name, &bytes);
	CU_ASSERT_EQUAL(memcmp(y->hc_ffn.fn, fn, bytes), 0);
	free(fn);
	snprintf(name, sizeof(name), "layers.%u.attn.attn_sink", l);
	uint8_t *sink = whole_tensor(set, name, &bytes);
	CU_ASSERT_EQUAL(memcmp(y->sink, sink + (size_t)w->shard.head0 * 4,
			       (size_t)(w->shard.head_end - w->shard.head0) * 4),
			0);
	free(sink);
	snprintf(name, sizeof(name), "layers.%u.attn_norm.weight", l);
	uint8_t *norm = whole_tensor(set, name, &bytes);
	for (uint32_t i = 0; i < c->dim; i++)
		CU_ASSERT_EQUAL(y->attn_norm[i],
				kern_bf16_to_f32((uint16_t)(norm[2 * i] | norm[2 * i + 1] << 8)));
	free(norm);
	if (y->engram < 0)
		return;
	snprintf(name, sizeof(name), "layers.%u.engram.q_weight", l);
	uint8_t *q = whole_tensor(set, name, &bytes);
	snprintf(name, sizeof(name), "layers.%u.engram.k_weight", l);
	uint8_t *k = whole_tensor(set, name, &kbytes);
	for (size_t i = 0; i < (size_t)c->copies * c->dim; i++) {
		float a = kern_bf16_to_f32((uint16_t)(q[2 * i] | q[2 * i + 1] << 8));
		float b = kern_bf16_to_f32((uint16_t)(k[2 * i] | k[2 * i + 1] << 8));
		CU_ASSERT_EQUAL(y->engram_qk[i], a * b);
	}
	free(q);
	free(k);
}

static void check_loaded(struct st_set *set, const struct eng_weights *w, uint32_t n)
{
	uint64_t bytes;

	CHECK(false, head, "head");
	uint8_t *embed = whole_tensor(set, "embed.weight", &bytes);
	for (uint32_t r = 0; r < n; r++)
		CU_ASSERT_EQUAL(memcmp(w[r].embed, embed, bytes), 0);
	free(embed);
	for (uint32_t l = 0; l < w->conf->n_layers; l++) {
		CHECK(false, layer[l].wq_b, "layers.%u.attn.wq_b", l);
		CHECK(true, layer[l].wo_b, "layers.%u.attn.wo_b", l);
		check_groups(set, w, n, l);
		check_experts(set, w, n, l);
		if (w->layer[l].engram >= 0)
			check_table(set, w, n, l);
		for (uint32_t r = 0; r < n; r++) {
			check_replicated(set, &w[r], l);
			check_floats(set, &w[r], l);
		}
	}
}

/* Bytes of the backbone, and of those that ranks share out between them. */
static void count_bytes(const struct st_set *s, uint64_t *all, uint64_t *sharded)
{
	static const char *const cut[] = { ".attn_sink",  ".attn.wq_b.",   ".attn.wo_a.",
					   ".wo_b.",	  ".experts.",	   ".shared_experts.",
					   "head.weight", ".engram.embed." };

	*all = *sharded = 0;
	for (size_t i = 0; i < s->n_tensor; i++) {
		if (strncmp(s->tensor[i].name, "mtp.", 4) == 0)
			continue;
		*all += s->tensor[i].bytes;
		for (size_t k = 0; k < sizeof(cut) / sizeof(cut[0]); k++) {
			if (strstr(s->tensor[i].name, cut[k]) != NULL) {
				*sharded += s->tensor[i].bytes;
				break;
			}
		}
	}
}

static void load_worlds(const char *dir)
{
	struct eng_weights w[4];
	struct ds_err err = { 0 };
	uint64_t all, sharded;
	struct eng_shard s;
	struct eng_conf c;
	struct st_set set;

	struct eng_dir *d = eng_dir_open(dir, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL_FATAL(eng_conf_read(d, &c, &err), 0);
	CU_ASSERT_EQUAL_FATAL(st_open_dir(d, &set, &err), 0);
	count_bytes(&set, &all, &sharded);
	for (size_t i = 0; i < N_WORLDS; i++) {
		uint32_t n = worlds[i].world;
		uint64_t read = 0;
		for (uint32_t r = 0; r < n; r++) {
			CU_ASSERT_EQUAL_FATAL(eng_shard_plan(&c, r, n, worlds[i].leaves, &s, &err),
					      0);
			CU_ASSERT_EQUAL_FATAL(eng_weights_load(&c, &s, &keeper, &w[r], &err), 0);
			read += w[r].read_bytes;
			/* Halves, where there are units enough for four leaves. */
			if (n == 2 && c.inner >= 4 * KERN_BLOCK)
				CU_ASSERT(w[r].read_bytes < all - sharded / 2 + sharded / 50);
		}
		CU_ASSERT_EQUAL(read, sharded + n * (all - sharded));
		check_loaded(&set, w, n);
		for (uint32_t r = 0; r < n; r++)
			eng_weights_free(&w[r]);
		CU_ASSERT_EQUAL(alive, 0);
	}
	st_close(&set);
	eng_dir_close(d);
}

static void demo_is_sharded(void)
{
	load_worlds(DEMO);
}

static void tiny_is_sharded(void)
{
	struct ds_err err = { 0 };
	char dir[128];

	CU_ASSERT_EQUAL_FATAL(tiny_model_temp(dir, sizeof(dir), &err), 0);
	load_worlds(dir);
	test_dir_remove(dir);
}

/* ------------------------------------------------------------------ refusals */

/* Replaces the first @from in a file of @dir by the equally long @to. */
static void patch(const char *dir, const char *name, const char *from, const char *to)
{
	char path[256];
	struct stat st;
	size_t n = strlen(from);

	CU_ASSERT_EQUAL_FATAL(n, strlen(to));
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_RDWR);
	CU_ASSERT_FATAL(fd >= 0 && fstat(fd, &st) == 0);
	char *data = malloc((size_t)st.st_size);
	CU_ASSERT_PTR_NOT_NULL_FATAL(data);
	CU_ASSERT_EQUAL_FATAL(pread(fd, data, (size_t)st.st_size, 0), st.st_size);
	char *at = memmem(data, (size_t)st.st_size, from, n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	CU_ASSERT_EQUAL(pwrite(fd, to, n, at - data), (ssize_t)n);
	free(data);
	close(fd);
}

#define SHARD1 "model-00001-of-00004.safetensors"
#define SHARD4 "model-00004-of-00004.safetensors"

/* clang-format off */
static const struct damage {
	const char *file, *from, *to; /* an equally long text in one file */
	const char *on, *says;
} damages[] = {
	{ SHARD1, "\"layers.0.attn.wkv.weight\"", "\"layers.0.attn.wkx.weight\"", ": layers.0.attn.wkv.weight", "missing tensor" },
	{ SHARD1, "\"layers.3.hc_ffn_base\"", "\"layers.3.hc_ffn_bass\"", ": layers.3.hc_ffn_base", "missing tensor" },
	{ SHARD1, "\"layers.0.attn.wkv.weight\":{\"dtype\":\"F8_E4M3\"", "\"layers.0.attn.wkv.weight\":{\"dtype\":\"F8_E5M2\"",
	  SHARD1 ": layers.0.attn.wkv.weight", "dtype F8_E5M2 where F8_E4M3 is needed" },
	{ SHARD1, "\"layers.1.attn.wkv.scale\":{\"dtype\":\"F8_E8M0\"", "\"layers.1.attn.wkv.scale\":{\"dtype\":\"F8_E4M3\"",
	  SHARD1 ": layers.1.attn.wkv.scale", "dtype F8_E4M3 where F8_E8M0 is needed" },
	{ SHARD1, "\"layers.0.attn.wq_a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[64,256]", "\"layers.0.attn.wq_a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[256,64]",
	  SHARD1 ": layers.0.attn.wq_a.weight", "shape [256, 64] where config.json needs [64, 256]" },
	{ SHARD1, "\"layers.0.ffn.experts.5.w2.weight\":{\"dtype\":\"I8\"", "\"layers.0.ffn.experts.5.w2.weight\":{\"dtype\":\"U8\"",
	  SHARD1 ": layers.0.ffn.experts.5.w2.weight", "dtype U8 where I8 is needed" },
	{ SHARD4, "[660,32]", "[330,64]", SHARD4 ": layers.1.engram.embed.weight", "shape [330, 64]" },
	{ SHARD4, "[4,256]", "[2,512]", SHARD4 ": layers.1.engram.q_weight", "shape [2, 512]" },
	{ SHARD1, "\"layers.0.attn.q_norm.weight\":{\"dtype\":\"BF16\",\"shape\":[64]", "\"layers.0.attn.q_norm.weight\":{\"dtype\":\"BF16\",\"shape\":[63]",
	  SHARD1 ": layers.0.attn.q_norm.weight", "span 128 bytes" },
	{ SHARD1, "\"data_offsets\":[0,", "\"data_offsets\":[8,", SHARD1, "span" },
	{ "config.json", "\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 96", ": layers.0.ffn.shared_experts.w1.weight", "shape [64, 256] where config.json needs [96, 256]" },
	{ "config.json", "\"vocab_size\": 512", "\"vocab_size\": 500", "config.json", "outside the vocabulary" },
	{ "config.json", "\"n_routed_experts\": 8", "\"n_routed_experts\": 7", ": layers.0.ffn.gate.weight", "shape [8, 256]" },
	{ "config.json", "\"engram_vocab_size\": 100", "\"engram_vocab_size\": 300", "", "engram_num_embeddings: layer 1" },
	{ "config.json", "\"engram_layer_ids\": [\n   1,", "\"engram_layer_ids\": [\n   0,", ": layers.0.engram.embed.weight", "missing tensor" },
};
/* clang-format on */

static void run_damage(const struct damage *k)
{
	struct ds_err err = { 0 };
	struct eng_weights w;
	struct eng_shard s;
	struct eng_conf c;
	char dir[128], index[256];

	CU_ASSERT_EQUAL_FATAL(tiny_model_temp(dir, sizeof(dir), &err), 0);
	snprintf(index, sizeof(index), "%s/" INDEX, dir);
	CU_ASSERT_EQUAL(unlink(index), 0); /* the shards speak for themselves */
	patch(dir, k->file, k->from, k->to);
	int rc = eng_conf_load(dir, &c, &err);
	if (rc == 0)
		rc = eng_shard_plan(&c, 1, 2, 4, &s, &err);
	if (rc == 0)
		rc = eng_weights_load(&c, &s, &keeper, &w, &err);
	bool ok = rc == -1 && err.kind == DS_ERR_INPUT && strstr(err.obj, k->on) != NULL &&
		  strstr(err.why, k->says) != NULL;
	if (!ok)
		printf("\n  %s -> %s: rc %d, on \"%s\", why \"%s\"", k->from, k->to, rc, err.obj,
		       err.why);
	CU_ASSERT(ok);
	CU_ASSERT_EQUAL(alive, 0);
	if (rc == 0)
		eng_weights_free(&w);
	test_dir_remove(dir);
}

static void damage_is_named(void)
{
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++)
		run_damage(&damages[i]);
}

static void foreign_tensors_are_named(void)
{
	struct ds_err err = { 0 };
	struct eng_weights w;
	struct eng_shard s;
	struct eng_conf c;
	char dir[128], path[256];
	/* A fifth shard with a tensor of a layer that this model does not have. */
	static const char extra[] =
		"\x40\0\0\0\0\0\0\0{\"layers.9.x\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}      ";
	FILE *f;

	CU_ASSERT_EQUAL_FATAL(tiny_model_temp(dir, sizeof(dir), &err), 0);
	snprintf(path, sizeof(path), "%s/" INDEX, dir);
	CU_ASSERT_EQUAL(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/extra.safetensors", dir);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f = fopen(path, "w"));
	CU_ASSERT_EQUAL(fwrite(extra, 1, 8 + 64 + 1, f), 8 + 64 + 1);
	fclose(f);
	CU_ASSERT_EQUAL_FATAL(eng_conf_load(dir, &c, &err), 0);
	CU_ASSERT_EQUAL_FATAL(eng_shard_plan(&c, 0, 1, 4, &s, &err), 0);
	CU_ASSERT_EQUAL(eng_weights_load(&c, &s, &keeper, &w, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.obj, "extra.safetensors: layers.9.x"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "no part of the model"));
	eng_weights_free(&w); /* allowed after a failure */
	test_dir_remove(dir);
}

static void failures_leave_nothing(void)
{
	struct ds_err err = { 0 };
	struct eng_weights w;
	struct eng_shard s;
	struct eng_conf c;

	CU_ASSERT_EQUAL_FATAL(eng_conf_load(DEMO, &c, &err), 0);
	CU_ASSERT_EQUAL_FATAL(eng_shard_plan(&c, 0, 2, 4, &s, &err), 0);
	for (fail_after = 0; fail_after < 40; fail_after++) {
		int at = fail_after;
		ds_err_clear(&err);
		CU_ASSERT_EQUAL(eng_weights_load(&c, &s, &keeper, &w, &err), -1);
		CU_ASSERT_EQUAL(err.kind, DS_ERR_NOMEM);
		CU_ASSERT_EQUAL(alive, 0);
		CU_ASSERT_PTR_NULL(w.mem);
		fail_after = at;
	}
	fail_after = -1;
}

/* ------------------------------------------------------------------ digest */

static void digest_of(const char *dir, char *hex)
{
	struct ds_err err = { 0 };
	struct eng_conf c;

	CU_ASSERT_EQUAL_FATAL(eng_conf_load(dir, &c, &err), 0);
	CU_ASSERT_EQUAL_FATAL(eng_digest(&c, hex, &err), 0);
	CU_ASSERT_EQUAL(strlen(hex), 64);
}

static void digest_tells_models_apart(void)
{
	static const struct damage changes[] = {
		{ "config.json", "\"swiglu_limit\": 10.0", "\"swiglu_limit\": 10.5", "", "" },
		{ SHARD1, "\"layers.0.attn.wkv.weight\"", "\"layers.0.attn.wkx.weight\"", "", "" },
		{ "engram_token_map.bin", "\x05\0\0\0", "\x04\0\0\0", "", "" },
	};
	struct ds_err err = { 0 };
	char dir[128], a[65], b[65], path[256];

	CU_ASSERT_EQUAL_FATAL(tiny_model_temp(dir, sizeof(dir), &err), 0);
	digest_of(dir, a);
	digest_of(dir, b);
	CU_ASSERT_STRING_EQUAL(a, b);
	patch(dir, "config.json", "  \"rope_theta\"", "\"rope_theta\"  ");
	digest_of(dir, b);
	CU_ASSERT_STRING_EQUAL(a, b); /* spacing does not count */
	snprintf(path, sizeof(path), "%s/" INDEX, dir);
	CU_ASSERT_EQUAL(unlink(path), 0);
	digest_of(dir, b);
	CU_ASSERT_STRING_EQUAL(a, b); /* nor does the index */
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		if (strcmp(changes[i].file, "engram_token_map.bin") == 0) {
			snprintf(path, sizeof(path), "%s/engram_token_map.bin", dir);
			int fd = open(path, O_WRONLY);
			CU_ASSERT_EQUAL(pwrite(fd, "\x04", 1, 40), 1);
			close(fd);
		} else {
			patch(dir, changes[i].file, changes[i].from, changes[i].to);
		}
		digest_of(dir, b);
		CU_ASSERT_STRING_NOT_EQUAL(a, b);
		strcpy(a, b);
	}
	test_dir_remove(dir);
}

static CU_TestInfo weights_tests[] = {
	{ "plans cover everything once, at every world", plans_cover_once },
	{ "the release's cuts, and empty leaves", plan_of_the_release },
	{ "worlds, leaves and models that do not fit are refused", plans_refused },
	{ "the demo model: every byte on exactly one rank, or on all", demo_is_sharded },
	{ "the tiny model likewise", tiny_is_sharded },
	{ "damage is refused with file, tensor and reason", damage_is_named },
	{ "a tensor of no part of the model is named", foreign_tensors_are_named },
	{ "a load that fails half way leaves nothing", failures_leave_nothing },
	{ "the digest tells models apart", digest_tells_models_apart },
	CU_TEST_INFO_NULL
};

CU_SuiteInfo weights_suite = { .pName = "engine/weights", .pTests = weights_tests };
