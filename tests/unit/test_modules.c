/*
 * test_modules.c - module by module in native arithmetic: each one gets the official code's own
 * inputs, so that a flipped rounding in one does not spread into the next.
 *
 * Vectors: tests/vectors/tiny-modules.safetensors; demands: the README beside it.
 */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"
#include "safetensors.h"
#include "tiny_model.h"

#define VECTORS	  TESTS_DIR "/vectors/tiny-modules.safetensors"
#define ROWS	  48
#define VALUE_MAX (ROWS * 2048)
#define LAYERS	  8

static char dir[64];
static struct eng_conf conf;
static struct st_set vectors;
static struct eng *eng;
static struct kern_weight *no_weight; /* dim x inner of zeros, to leave the shared expert out */

static int suite_open(void)
{
	struct ds_err err = { 0 };
	static const uint8_t zeros[256 * 64], scale[8 * 2];
	const struct kern_matrix m = { .fmt = KERN_FP8,
				       .rows = 256,
				       .cols = 64,
				       .data = zeros,
				       .stride = 64,
				       .scale = scale,
				       .scale_stride = 2 };

	if (tiny_model_temp(dir, sizeof(dir), &err) != 0 || eng_conf_load(dir, &conf, &err) != 0 ||
	    st_open_file(VECTORS, &vectors, &err) != 0 ||
	    (eng = eng_open(&(struct eng_open_args){ .conf = &conf,
						     .kernels = "ref",
						     .numerics = KERN_NATIVE,
						     .world = 1,
						     .leaves = 4,
						     .n_threads = 1 },
			    &err)) == NULL ||
	    (no_weight = eng->ops->weight_prepare(&m, &err)) == NULL) {
		ds_err_print(stderr, "test_modules", &err);
		return 1;
	}
	return 0;
}

static int suite_close(void)
{
	if (eng != NULL && no_weight != NULL)
		eng->ops->weight_free(no_weight);
	eng_close(eng);
	st_close(&vectors);
	if (dir[0] != '\0')
		test_dir_remove(dir);
	return 0;
}

/* ------------------------------------------------------------------ vectors */

/* One tensor as floats, ids included. The test ends if it is not there. Returns its elements. */
static size_t load(const char *prefix, const char *name, float *out)
{
	static uint8_t raw[VALUE_MAX * 4];
	struct ds_err err = { 0 };
	char full[128];

	snprintf(full, sizeof(full), "%s.%s", prefix, name);
	const struct st_tensor *t = st_find(&vectors, full);

	if (t == NULL || t->bytes > sizeof(raw) ||
	    st_read(&vectors, t, 0, raw, t->bytes, &err) != 0)
		fprintf(stderr, "cannot read %s\n", full);
	CU_ASSERT_FATAL(t != NULL && err.kind == DS_ERR_NONE);
	size_t n = t->bytes / st_dtype_bytes(t->dtype);

	for (size_t i = 0; i < n; i++) {
		if (t->dtype == ST_BF16)
			out[i] = kern_bf16_to_f32((uint16_t)(raw[2 * i] | raw[2 * i + 1] << 8));
		else if (t->dtype == ST_F32)
			memcpy(&out[i], raw + 4 * i, 4);
		else /* I32 */
			out[i] = (float)(int32_t)(raw[4 * i] | raw[4 * i + 1] << 8 |
						  raw[4 * i + 2] << 16 |
						  (uint32_t)raw[4 * i + 3] << 24);
	}
	return n;
}

struct demand {
	double same; /* at least this share of equal elements */
	double rms;  /* error, of the expected RMS; 0 = not asked */
	double any;  /* largest error of one element, of the expected RMS; 0 = not asked */
};

static const struct demand identical = { .same = 1 };
static const struct demand nearly = { .same = 0.999, .any = 0.05 }; /* the others: one bf16 step */
static const struct demand coefficients = { .any = 2e-6 };

/* Against one stored tensor; a miss is printed with what it was. */
static bool agrees(const char *prefix, const char *name, const float *got, struct demand d)
{
	static float want[VALUE_MAX];
	size_t n = load(prefix, name, want), same = 0;
	double square = 0, error = 0, worst = 0;

	for (size_t i = 0; i < n; i++) {
		double off = fabs((double)got[i] - (double)want[i]);

		same += got[i] == want[i];
		square += (double)want[i] * (double)want[i];
		error += off * off;
		worst = isnan(off) ? INFINITY : fmax(worst, off);
	}
	double rms = sqrt(square / (double)n);
	bool ok = (double)same >= d.same * (double)n && isfinite(worst) &&
		  (d.rms == 0 || sqrt(error / (double)n) <= d.rms * rms) &&
		  (d.any == 0 || worst <= d.any * rms);

	if (!ok)
		fprintf(stderr, "%s.%s: %zu of %zu equal, RMS error %.2g, worst %.2g of the RMS\n",
			prefix, name, same, n, sqrt(error / (double)n) / rms, worst / rms);
	return ok;
}

/* Elements of one module over several runs, and how many of them were equal. */
struct share {
	size_t n, same;
};

static void add_share(struct share *s, const char *prefix, const char *name, const float *got)
{
	static float want[VALUE_MAX];
	size_t n = load(prefix, name, want);

	s->n += n;
	for (size_t i = 0; i < n; i++)
		s->same += got[i] == want[i];
}

/* Rows whose ids (a set, -1 = none) are those stored. */
static uint32_t same_sets(const char *prefix, const char *name, const int32_t *got, uint32_t n,
			  uint32_t width, bool *row_same)
{
	static float want[VALUE_MAX];
	uint32_t same = 0;

	CU_ASSERT_EQUAL_FATAL(load(prefix, name, want), (size_t)n * width);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t common = 0, a = 0, b = 0;

		for (uint32_t k = 0; k < width; k++) {
			a += got[i * width + k] >= 0;
			b += want[i * width + k] >= 0;
			for (uint32_t j = 0; j < width; j++)
				common += got[i * width + k] >= 0 &&
					  (float)got[i * width + k] == want[i * width + j];
		}
		row_same[i] = a == b && common == a;
		same += row_same[i];
	}
	return same;
}

/* ------------------------------------------------------------------ modules of one layer */

static void engram_module(const char *p, uint32_t l, uint32_t p0, uint32_t n)
{
	static float ids[ROWS * 16];
	struct ds_err err = { 0 };
	struct eng_work *w = &eng->work;

	load(p, "engram.in", w->x);
	CU_ASSERT_EQUAL_FATAL(eng_inject(eng, l, p0, n, &err), 0);
	for (uint32_t i = 0; i < n * eng->engram.cols; i++)
		ids[i] = (float)w->row_ids[i];
	CU_ASSERT(agrees(p, "engram.rows", ids, identical));
	if (n > 1) /* fewer tensors are stored of the decode step */
		CU_ASSERT(agrees(p, "engram.embed", w->looked, identical));
	CU_ASSERT(agrees(p, "engram.out", w->x, (struct demand){ .same = 0.9999, .any = 0.05 }));
}

/* Mix with the stored coefficients, norm; predict the next ones. Leaves the stored input in work.u. */
static void input_module(const char *p, const char *mix_of, const char *mix, const char *stream,
			 const char *sub, const struct kern_hc *hc, const float *gain, uint32_t n)
{
	struct eng_work *w = &eng->work;
	char name[64];

	load(p, stream, w->x);
	if (mix_of == NULL)
		for (uint32_t i = 0; i < n * conf.copies; i++)
			w->mix[i] = i % conf.copies == 0 ? 1.0f : 0.0f;
	else
		load(mix_of, mix, w->mix);
	eng->ops->hc_predict(&eng->ctx, hc, w->x, n, w->pre, w->post, w->comb);
	snprintf(name, sizeof(name), "%s.hc_pre", sub);
	CU_ASSERT(agrees(p, name, w->pre, coefficients));
	snprintf(name, sizeof(name), "%s.hc_post", sub);
	CU_ASSERT(agrees(p, name, w->post, coefficients));
	snprintf(name, sizeof(name), "%s.hc_comb", sub);
	CU_ASSERT(agrees(p, name, w->comb, coefficients));

	eng->ops->hc_mix(&eng->ctx, w->mix, w->x, n, conf.copies, conf.dim, w->u);
	if (strcmp(sub, "attn") == 0)
		CU_ASSERT(agrees(p, "attn.mixed", w->u, nearly));
	eng->ops->rms_norm(&eng->ctx, w->u, gain, conf.norm_eps, n, conf.dim, w->u);
	snprintf(name, sizeof(name), "%s.in", sub);
	CU_ASSERT(agrees(p, name, w->u, nearly));
	load(p, name, w->u);
}

/* The stored sublayer output into the stored stream, against the stored stream after it. */
static void update_module(const char *p, const char *sub, const char *stream, const char *next_p,
			  const char *next, uint32_t n)
{
	struct eng_work *w = &eng->work;
	char name[64];

	load(p, stream, w->x);
	snprintf(name, sizeof(name), "%s.out", sub);
	load(p, name, w->y);
	snprintf(name, sizeof(name), "%s.hc_post", sub);
	load(p, name, w->post);
	snprintf(name, sizeof(name), "%s.hc_comb", sub);
	load(p, name, w->comb);
	eng->ops->hc_update(&eng->ctx, w->x, w->y, w->post, w->comb, n, conf.copies, conf.dim);
	CU_ASSERT(agrees(next_p, next, w->x, nearly));
}

static void caches(const char *p, uint32_t l, uint32_t p0, uint32_t n)
{
	static float rows[VALUE_MAX];
	uint32_t first = p0 / conf.ratio[l], m = (p0 + n) / conf.ratio[l] - first;

	if (m == 0)
		return;
	eng->ops->row_get(&eng->ctx, &eng->seq.comp[l], first, m, rows);
	CU_ASSERT(agrees(p, "compressor.entries", rows, nearly));
	eng->ops->row_get(&eng->ctx, &eng->seq.keys[l], first, m, rows);
	CU_ASSERT(agrees(p, "indexer.keys", rows, nearly));
}

/* work.u holds the stored input. */
static void attention_module(const char *run, const char *p, uint32_t l, uint32_t p0, uint32_t n)
{
	static float rows[VALUE_MAX];
	static int32_t chosen[ROWS * 64];
	bool same[ROWS];
	struct eng_work *w = &eng->work;
	struct ds_err err = { 0 };
	char source[64];
	bool index = conf.ratio[l] > 0 && conf.index_source[l] == (int32_t)l;

	for (uint32_t i = 0; i < n; i++)
		w->pos[i] = p0 + i;
	if (conf.ratio[l] > 0 && !index) { /* this layer uses the official selection below it */
		snprintf(source, sizeof(source), "%s.layers.%d", run, conf.index_source[l]);
		size_t k = load(source, "indexer.selected", rows);

		CU_ASSERT_EQUAL_FATAL(k, (size_t)n * conf.index_topk);
		for (size_t i = 0; i < k; i++)
			w->sel[i] = (int32_t)rows[i];
	}
	CU_ASSERT_EQUAL_FATAL(eng_attention(eng, l, n, &err), 0);
	if (n > 1) {
		CU_ASSERT(agrees(p, "attn.qr", w->qr, nearly));
		CU_ASSERT(agrees(p, "attn.q", w->q, nearly));
		eng->ops->row_get(&eng->ctx, &eng->seq.window[l], p0, n, rows);
		CU_ASSERT(agrees(p, "attn.window", rows, nearly));
	}
	if (n > 1 && conf.ratio[l] > 0 && conf.kv_source[l] == (int32_t)l)
		caches(p, l, p0, n);
	if (index) {
		memcpy(chosen, w->sel, sizeof(*chosen) * n * conf.index_topk);
		uint32_t good = same_sets(p, "indexer.selected", chosen, n, conf.index_topk, same);

		CU_ASSERT(good + 1 >= n);
		/* another choice is another output: compare the rows that chose alike */
		load(p, "attn.out", rows);
		for (uint32_t i = 0; i < n; i++)
			if (!same[i])
				memcpy(w->y + (size_t)i * conf.dim, rows + (size_t)i * conf.dim,
				       conf.dim * sizeof(float));
	}
	CU_ASSERT(agrees(p, "attn.out", w->y,
			 (struct demand){ .same = 0.99, .rms = 0.01, .any = 0.02 }));
}

/* One expert (or the shared one alone, @slot < 0) of every row, rounded: @one, and added to work.y. */
static void add_expert(uint32_t l, uint32_t n, int slot, float *one)
{
	const struct eng_layer *o = &eng->w.layer[l];
	const struct eng_shard *s = eng_own(eng);
	struct eng_work *w = &eng->work;
	const float *part[KERN_LEAVES_MAX] = { NULL };
	int32_t ids[ROWS];
	float gain[ROWS];

	for (uint32_t i = 0; i < n; i++) {
		ids[i] = w->ids[i * conf.topk + (slot < 0 ? 0 : (uint32_t)slot)];
		gain[i] = slot < 0 ? 0.0f : w->gain[i * conf.topk + (uint32_t)slot];
	}
	eng->ops->moe(&eng->ctx, &(struct kern_moe_args){
					 .n = n,
					 .dim = conf.dim,
					 .topk = 1,
					 .n_leaf = s->n_leaf,
					 .leaf_at = s->leaf_inner,
					 .w1 = (const struct kern_weight *const *)o->w1,
					 .w3 = (const struct kern_weight *const *)o->w3,
					 .w2 = (const struct kern_weight *const *)o->w2,
					 .s1 = o->s1,
					 .s3 = o->s3,
					 .s2 = slot < 0 ? o->s2 : no_weight,
					 .limit = conf.limit,
					 .u = &w->act_u,
					 .ids = ids,
					 .weight = gain,
					 .out = w->part,
					 .scratch = w->moe_scratch,
				 });
	for (uint32_t i = 0; i < s->n_leaf; i++)
		part[i] = w->part[i];
	kern_leaf_sum(4, part, (size_t)n * conf.dim, one);
	eng->ops->round(&eng->ctx, one, (size_t)n * conf.dim);
	for (size_t i = 0; i < (size_t)n * conf.dim; i++)
		w->y[i] += one[i];
}

static struct share moe[LAYERS]; /* by layer, of all runs */

/* work.u holds the stored input. */
static void experts_module(const char *p, uint32_t l, uint32_t n)
{
	static float one[ROWS * 256], shared[ROWS * 256];
	struct eng_work *w = &eng->work;
	bool same[ROWS];
	struct ds_err err = { 0 };

	CU_ASSERT_EQUAL_FATAL(eng_experts(eng, l, n, &err), 0);
	if (n > 1) {
		CU_ASSERT_EQUAL(same_sets(p, "ffn.expert_ids", w->ids, n, conf.topk, same), n);
		CU_ASSERT(agrees(p, "ffn.expert_weights", w->gain, coefficients));
	}
	CU_ASSERT(agrees(p, "ffn.out", w->y, (struct demand){ .rms = 0.004, .any = 0.1 }));
	add_share(&moe[l], p, "ffn.out", w->y);

	/* With every expert rounded, as the official code does and we do not, all is identical. */
	add_expert(l, n, -1, shared);
	if (n > 1)
		CU_ASSERT(agrees(p, "ffn.shared_out", shared, identical));
	memset(w->y, 0, sizeof(float) * n * conf.dim);
	for (uint32_t slot = 0; slot < conf.topk; slot++)
		add_expert(l, n, (int)slot, one);
	for (size_t i = 0; i < (size_t)n * conf.dim; i++)
		w->y[i] += shared[i];
	eng->ops->round(&eng->ctx, w->y, (size_t)n * conf.dim);
	CU_ASSERT(agrees(p, "ffn.out", w->y, identical));
}

static void layer_modules(const char *run, uint32_t l, uint32_t p0, uint32_t n)
{
	const struct eng_layer *o = &eng->w.layer[l];
	char p[64], before[64], after[64];
	bool last = l + 1 == conf.n_layers;

	snprintf(p, sizeof(p), "%s.layers.%u", run, l);
	snprintf(before, sizeof(before), "%s.layers.%u", run, l - 1);
	snprintf(after, sizeof(after), "%s.layers.%u", run, l + 1);
	if (o->engram >= 0)
		engram_module(p, l, p0, n);
	input_module(p, l == 0 ? NULL : before, "mix_out", "in", "attn", &o->hc_attn, o->attn_norm,
		     n);
	attention_module(run, p, l, p0, n);
	update_module(p, "attn", "in", p, "mid", n);
	input_module(p, p, "attn.hc_pre", "mid", "ffn", &o->hc_ffn, o->ffn_norm, n);
	experts_module(p, l, n);
	if (last)
		update_module(p, "ffn", "mid", p, "out", n);
	else
		update_module(p, "ffn", "mid", after,
			      eng->w.layer[l + 1].engram >= 0 ? "engram.in" : "in", n);
}

static void head_module(const char *p, uint32_t n)
{
	static float logits[512], want[512];
	struct eng_work *w = &eng->work;

	if (n > 1) {
		load("prefill.layers.7", "out", w->x);
		load("prefill.layers.7", "mix_out", w->mix);
		eng->ops->hc_mix(&eng->ctx, w->mix, w->x, n, conf.copies, conf.dim, w->u);
		CU_ASSERT(agrees(p, "mixed", w->u, nearly));
	}
	load(p, "mixed", w->u);
	eng->ops->rms_norm(&eng->ctx, w->u, eng->w.norm, conf.norm_eps, n, conf.dim, w->u);
	CU_ASSERT(agrees(p, "in", w->u, nearly));
	load(p, "in", w->u);
	eng->ops->act_plain(&eng->ctx, w->u + (size_t)(n - 1) * conf.dim, conf.dim, 1, conf.dim,
			    &w->act_plain);
	eng->ops->linear(&eng->ctx, eng->w.head, &w->act_plain, 0, conf.dim, logits, 512, false);
	CU_ASSERT_EQUAL(load(p, "logits", want), 512);
	for (int i = 0; i < 512; i++)
		CU_ASSERT(fabsf(logits[i] - want[i]) <= 1e-5f);
}

static void prefill_of_48(void)
{
	for (uint32_t i = 0; i < ROWS; i++)
		eng->seq.tokens[i] = (7 * i * i + 31 * i + 5) % 509;
	for (uint32_t l = 0; l < conf.n_layers; l++)
		layer_modules("prefill", l, 0, ROWS);
	head_module("prefill.head", ROWS);
}

/* Behind it, with the caches that it left. */
static void decode_at_48(void)
{
	char p[64];

	eng->seq.tokens[48] = 315;
	for (uint32_t l = 0; l < conf.n_layers; l++) {
		snprintf(p, sizeof(p), "decode48.layers.%u", l);
		if (eng->w.layer[l].engram >= 0)
			engram_module(p, l, 48, 1);
		load(p, "attn.in", eng->work.u);
		attention_module("decode48", p, l, 48, 1);
		load(p, "ffn.in", eng->work.u);
		experts_module(p, l, 1);
	}
	head_module("decode48.head", 1);
}

/* The demand is one of the module's elements, not of single rows, which scatter around it. */
static void moe_share(void)
{
	CU_ASSERT_EQUAL_FATAL(conf.n_layers, LAYERS);
	for (uint32_t l = 0; l < LAYERS; l++) {
		CU_ASSERT_EQUAL(moe[l].n, (size_t)(ROWS + 1) * conf.dim);
		if ((double)moe[l].same < 0.6 * (double)moe[l].n)
			CU_FAIL("fewer than 60 % of the MoE's elements are equal");
	}
}

static CU_TestInfo modules_tests[] = {
	{ "native: every module of a prefill of 48 on the official inputs", prefill_of_48 },
	{ "native: every module of the decode step behind it", decode_at_48 },
	{ "native: 60 % of the MoE's elements are equal, layer by layer over both runs",
	  moe_share },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo modules_suite = { .pName = "engine/modules",
			       .pInitFunc = suite_open,
			       .pCleanupFunc = suite_close,
			       .pTests = modules_tests };
