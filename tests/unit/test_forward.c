/*
 * test_forward.c - the forward pass on the tiny model: values of the official code in fp32, and the
 * promises about bits: chunks, sets of kernels, rollback, the order of the sum.
 *
 * Vectors: tests/vectors/tiny-fp32.json (its README tells how they were made).
 */
#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "forward.h"
#include "tiny_model.h"

#define VECTORS	   TESTS_DIR "/vectors/"
#define TOLERANCE  1e-3
#define PROMPT_MAX 60
#define LAYERS	   8
#define VOCAB	   512

static char dir[64];
static struct eng_conf conf;
static json_t *want;
static uint32_t prompt[PROMPT_MAX];

static int suite_open(void)
{
	struct ds_err err = { 0 };

	if (tiny_model_temp(dir, sizeof(dir), &err) != 0 || eng_conf_load(dir, &conf, &err) != 0) {
		ds_err_print(stderr, "test_forward", &err);
		return 1;
	}
	want = json_load_file(VECTORS "tiny-fp32.json", 0, NULL);
	for (uint32_t i = 0; i < PROMPT_MAX; i++)
		prompt[i] = (7 * i * i + 31 * i + 5) % 509;
	return want == NULL;
}

static int suite_close(void)
{
	json_decref(want);
	if (dir[0] != '\0')
		test_dir_remove(dir);
	return 0;
}

static struct eng *open_tiny(const char *kernels, enum kern_numerics numerics, uint32_t chunk,
			     uint32_t leaves)
{
	struct ds_err err = { 0 };
	struct eng *e = eng_open(&(struct eng_open_args){ .conf = &conf,
							  .kernels = kernels,
							  .numerics = numerics,
							  .world = 1,
							  .leaves = leaves,
							  .n_threads = 1,
							  .prefill_chunk = chunk },
				 &err);

	if (e == NULL)
		ds_err_print(stderr, "test_forward", &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	return e;
}

/* ------------------------------------------------------------------ values of the official code */

/* One bad number fails the test once, with what it was. */
static bool near(const char *what, double got, double expected)
{
	if (fabs(got - expected) <= TOLERANCE) /* false for NaN */
		return true;
	fprintf(stderr, "%s: got %.6f, expected %.6f\n", what, got, expected);
	return false;
}

static bool near_all(const char *what, const float *got, const json_t *expected)
{
	bool ok = json_array_size(expected) > 0;

	for (size_t i = 0; i < json_array_size(expected) && ok; i++)
		ok = near(what, (double)got[i], json_number_value(json_array_get(expected, i)));
	return ok;
}

static bool same_ids(const char *what, const int64_t *got, size_t n, const json_t *expected)
{
	bool ok = json_array_size(expected) == n;

	for (size_t i = 0; i < n && ok; i++)
		ok = got[i] == json_integer_value(json_array_get(expected, i));
	if (!ok)
		fprintf(stderr, "%s differ\n", what);
	return ok;
}

/* Layer table of one position against the row of the run that computed it. */
static bool layer_ok(const struct eng *e, uint32_t l, uint32_t row, const json_t *o)
{
	const struct eng_work *w = &e->work;
	const float *x = w->x + (size_t)row * conf.copies * conf.dim;
	int64_t ids[64];
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < (size_t)conf.copies * conf.dim; i++)
		sum += (double)x[i] * (double)x[i];
	bool ok = near("rms", sqrt(sum / (conf.copies * conf.dim)),
		       json_number_value(json_object_get(o, "rms"))) &&
		  near_all("x0", x, json_object_get(o, "x0")) &&
		  near_all("mix", w->mix + (size_t)row * conf.copies, json_object_get(o, "mix")) &&
		  near_all("weights", w->gain + (size_t)row * conf.topk,
			   json_object_get(o, "weights"));

	for (n = 0; n < conf.topk; n++)
		ids[n] = w->ids[row * conf.topk + n];
	ok &= same_ids("experts", ids, n, json_object_get(o, "experts"));
	if (e->w.layer[l].engram >= 0) {
		for (n = 0; n < e->engram.cols; n++)
			ids[n] = (int64_t)w->row_ids[row * e->engram.cols + n];
		ok &= same_ids("engram rows", ids, n, json_object_get(o, "engram_rows"));
	}
	if (conf.ratio[l] > 0 && conf.index_source[l] == (int32_t)l) {
		for (n = 0; n < conf.index_topk && w->sel[row * conf.index_topk + n] >= 0; n++)
			ids[n] = w->sel[row * conf.index_topk + n];
		ok &= same_ids("selected entries", ids, n, json_object_get(o, "selected"));
	}
	return ok;
}

struct table_check {
	const json_t *positions; /* {"47": [layer, ...]}, of a prefill from 0 */
	const json_t *one;	 /* [layer, ...] of row 0, of a decode step */
	unsigned int seen, wrong;
};

static void check_tables(struct eng *e, uint32_t l, void *arg)
{
	struct table_check *t = arg;
	const char *key;
	json_t *layers;

	if (t->positions == NULL && t->one == NULL)
		return; /* no table is stored of this step */
	if (t->one != NULL) {
		t->seen++;
		t->wrong += !layer_ok(e, l, 0, json_array_get(t->one, l));
		return;
	}
	json_object_foreach ((json_t *)t->positions, key, layers) {
		t->seen++;
		if (!layer_ok(e, l, (uint32_t)atoi(key), json_array_get(layers, l))) {
			fprintf(stderr, "  at position %s, layer %u\n", key, l);
			t->wrong++;
		}
	}
}

static uint32_t argmax(const float *logits)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < VOCAB; i++)
		best = logits[i] > logits[best] ? i : best;
	return best;
}

static void run(struct eng *e, const uint32_t *tokens, uint32_t n, float *logits)
{
	struct ds_err err = { 0 };

	if (eng_run(e, tokens, n, logits, &err) != 0)
		ds_err_print(stderr, "test_forward", &err);
	CU_ASSERT_EQUAL_FATAL(err.kind, DS_ERR_NONE);
}

static void exact_prefill_and_forced_decode(void)
{
	struct eng *e = open_tiny("ref", KERN_EXACT, 0, 4);
	const json_t *prefill = json_object_get(want, "prefill_48"), *step;
	struct table_check t = { .positions = json_object_get(prefill, "positions") };
	float logits[VOCAB];
	size_t i;

	e->after_layer = check_tables;
	e->after_layer_arg = &t;
	run(e, prompt, 48, logits);
	CU_ASSERT_EQUAL(t.seen, LAYERS * 9);
	CU_ASSERT_EQUAL(argmax(logits), json_integer_value(json_object_get(prefill, "argmax")));
	CU_ASSERT(near_all("logits of the prefill", logits, json_object_get(prefill, "logits")));

	json_array_foreach (json_object_get(want, "forced_decode"), i, step) {
		uint32_t id = (uint32_t)json_integer_value(json_object_get(step, "input"));

		t.positions = NULL;
		t.one = json_object_get(step, "layers");
		run(e, &id, 1, logits);
		CU_ASSERT_EQUAL(argmax(logits),
				json_integer_value(json_object_get(step, "argmax")));
		CU_ASSERT(near_all("logits of a step", logits, json_object_get(step, "logits")));
	}
	CU_ASSERT_EQUAL(i, 12);
	CU_ASSERT_EQUAL(t.seen, LAYERS * 10);
	CU_ASSERT_EQUAL(t.wrong, 0);
	eng_close(e);
}

static void exact_greedy_continuation(void)
{
	const json_t *ids = json_object_get(json_object_get(want, "greedy"), "tokens");
	struct eng *e = open_tiny(NULL, KERN_EXACT, 0, 4);
	float logits[VOCAB];

	run(e, prompt, 48, logits);
	CU_ASSERT_EQUAL(json_array_size(ids), 17);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		uint32_t id = argmax(logits);

		CU_ASSERT_EQUAL(id, json_integer_value(json_array_get(ids, i)));
		run(e, &id, 1, logits);
	}
	eng_close(e);
}

static void exact_prompts_of_many_lengths(void)
{
	struct eng *e = open_tiny(NULL, KERN_EXACT, 0, 4);
	struct ds_err err = { 0 };
	float logits[VOCAB];
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(want, "prefill_lengths"), i, row) {
		CU_ASSERT_EQUAL_FATAL(eng_reset(e, &err), 0);
		run(e, prompt, (uint32_t)json_integer_value(json_object_get(row, "n")), logits);
		CU_ASSERT_EQUAL(argmax(logits), json_integer_value(json_object_get(row, "argmax")));
		CU_ASSERT(near_all("logits", logits, json_object_get(row, "logits_0_7")));
	}
	CU_ASSERT_EQUAL(i, 12);
	eng_close(e);
}

/* ------------------------------------------------------------------ bits */

/* The stream after every layer at every position, as checksums, and the last logits. */
struct trace {
	uint32_t crc[PROMPT_MAX][LAYERS];
	float logits[VOCAB];
};

static void record(struct eng *e, uint32_t l, void *arg)
{
	struct trace *t = arg;
	size_t width = sizeof(float) * conf.copies * conf.dim;

	for (uint32_t i = 0; i < e->work.n; i++)
		t->crc[e->work.pos[i]][l] =
			ds_crc32c(0, (const uint8_t *)e->work.x + i * width, width);
}

/* The prompt in runs of @sizes, 0 = the rest; @wrong tokens are run and taken back after each. */
static void trace_runs(struct eng *e, const uint32_t *sizes, uint32_t wrong, struct trace *t)
{
	const uint32_t junk[] = { 3, 3, 500, 7, 7, 7, 9, 1 };
	struct ds_err err = { 0 };
	float logits[VOCAB];

	memset(t, 0, sizeof(*t));
	eng_reset(e, &err);
	e->after_layer_arg = t;
	for (uint32_t at = 0; at < PROMPT_MAX;) {
		uint32_t n = *sizes == 0 ? PROMPT_MAX - at : *sizes++;

		n = n < PROMPT_MAX - at ? n : PROMPT_MAX - at;
		e->after_layer = record;
		run(e, prompt + at, n, t->logits);
		at += n;
		e->after_layer = NULL;
		if (wrong > 0 && at < PROMPT_MAX) {
			run(e, junk, wrong, logits);
			CU_ASSERT_EQUAL_FATAL(eng_session_truncate(&e->seq, at), 0);
		}
	}
}

static const enum kern_numerics both[] = { KERN_NATIVE, KERN_EXACT };

static void runs_do_not_change_bits(void)
{
	static const uint32_t sizes[][PROMPT_MAX + 1] = {
		{ 7, 13, 1, 6, 0 }, { 13, 13, 0 },	   { 1, 1, 1, 57, 0 },
		{ 59, 0 },	    { 2, 3, 5, 7, 11, 0 },
	};
	struct trace whole, parts;

	for (int m = 0; m < 2; m++) {
		struct eng *e = open_tiny(NULL, both[m], 0, 4);

		trace_runs(e, (const uint32_t[]){ 0 }, 0, &whole);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			trace_runs(e, sizes[i], 0, &parts);
			CU_ASSERT_EQUAL(memcmp(&whole, &parts, sizeof(whole)), 0);
			trace_runs(e, sizes[i], 6, &parts); /* with rejected tokens in between */
			CU_ASSERT_EQUAL(memcmp(&whole, &parts, sizeof(whole)), 0);
		}
		eng_close(e);
	}
}

static void prefill_chunks_do_not_change_bits(void)
{
	static const uint32_t chunk[] = { 1, 7, 13, 59 };
	struct trace whole, parts;

	for (int m = 0; m < 2; m++) {
		struct eng *e = open_tiny(NULL, both[m], 0, 4);

		trace_runs(e, (const uint32_t[]){ 0 }, 0, &whole);
		eng_close(e);
		for (size_t i = 0; i < sizeof(chunk) / sizeof(chunk[0]); i++) {
			e = open_tiny(NULL, both[m], chunk[i], 4);
			CU_ASSERT_EQUAL(e->work.rows, chunk[i]);
			trace_runs(e, (const uint32_t[]){ 0 }, 0, &parts);
			CU_ASSERT_EQUAL(memcmp(&whole, &parts, sizeof(whole)), 0);
			eng_close(e);
		}
	}
}

static void kernel_sets_give_the_same_bits(void)
{
	struct trace ref, other;

	for (int m = 0; m < 2; m++) {
		struct eng *e = open_tiny("ref", both[m], 0, 4);

		trace_runs(e, (const uint32_t[]){ 0 }, 0, &ref);
		eng_close(e);
		for (const char *const *set = kern_sets(); *set != NULL; set++) {
			struct ds_err err = { 0 };

			if (kern_open(*set, &err) == NULL) /* not on this processor */
				continue;
			e = open_tiny(*set, both[m], 0, 4);
			trace_runs(e, (const uint32_t[]){ 48, 1, 1, 1, 0 }, 0, &other);
			CU_ASSERT_EQUAL(memcmp(&ref, &other, sizeof(ref)), 0);
			eng_close(e);
		}
	}
}

/*
 * Would a test that compares bits notice another order of the sum? It must. In fp32: the native sums
 * of so small a model have few significant bits, and come out exact in any order.
 */
static void another_order_of_the_sum_shows(void)
{
	struct eng *e = open_tiny(NULL, KERN_EXACT, 0, 4);
	struct trace right, wrong;

	trace_runs(e, (const uint32_t[]){ 0 }, 0, &right);
	e->reassociate = true; /* ((l0 + l1) + l2) + l3 */
	trace_runs(e, (const uint32_t[]){ 0 }, 0, &wrong);
	CU_ASSERT_NOT_EQUAL(memcmp(right.logits, wrong.logits, sizeof(right.logits)), 0);
	CU_ASSERT_NOT_EQUAL(memcmp(right.crc, wrong.crc, sizeof(right.crc)), 0);
	eng_close(e);
	e = open_tiny(NULL, KERN_EXACT, 0, 3); /* and the other class is another sum */
	trace_runs(e, (const uint32_t[]){ 0 }, 0, &wrong);
	CU_ASSERT_NOT_EQUAL(memcmp(right.logits, wrong.logits, sizeof(right.logits)), 0);
	eng_close(e);
}

/* ------------------------------------------------------------------ refusals */

static void bad_requests_are_refused(void)
{
	struct eng *e = open_tiny(NULL, KERN_NATIVE, 0, 4);
	uint32_t ids[300] = { 0 };
	float logits[VOCAB];
	struct ds_err err = { 0 };

	CU_ASSERT_EQUAL(eng_run(e, ids, 257, logits, &err), -1); /* the model has 256 positions */
	CU_ASSERT_EQUAL(err.kind, DS_ERR_INPUT);
	CU_ASSERT_EQUAL(eng_run(e, ids, 0, logits, &err), -1);
	ids[5] = VOCAB;
	CU_ASSERT_EQUAL(eng_run(e, ids, 6, logits, &err), -1);
	CU_ASSERT_STRING_EQUAL(err.obj, "token id 512");
	CU_ASSERT_EQUAL(eng_position(e), 0);
	ids[5] = 0;
	run(e, ids, 256, logits);
	CU_ASSERT_EQUAL(eng_run(e, ids, 1, logits, &err), -1);
	CU_ASSERT_EQUAL(eng_position(e), 256);
	CU_ASSERT_EQUAL(eng_session_truncate(&e->seq, 100), -1); /* further than the rings reach */
	CU_ASSERT_EQUAL(eng_session_truncate(&e->seq, 257), -1);
	eng_close(e);
}

static void a_value_that_is_not_finite_names_its_layer(void)
{
	struct eng *e = open_tiny(NULL, KERN_NATIVE, 0, 4);
	float logits[VOCAB], before = e->w.layer[3].ffn_norm[7];
	struct ds_err err = { 0 };

	e->w.layer[3].ffn_norm[7] = NAN;
	CU_ASSERT_EQUAL(eng_run(e, prompt, 5, logits, &err), -1);
	CU_ASSERT_EQUAL(err.kind, DS_ERR_HOST);
	CU_ASSERT_STRING_EQUAL(err.obj, "layer 3, rank 0");
	CU_ASSERT_PTR_NOT_NULL(strstr(err.why, "expert"));
	CU_ASSERT_EQUAL(eng_position(e), 0); /* that request is over, */
	e->w.layer[3].ffn_norm[7] = before;
	ds_err_clear(&err);
	run(e, prompt, 5, logits); /* the next one is not */
	e->w.norm[0] = INFINITY;
	CU_ASSERT_EQUAL(eng_run(e, prompt, 1, logits, &err), -1);
	CU_ASSERT_STRING_EQUAL(err.obj, "head");
	eng_close(e);
}

static void hashes_come_one_line_per_position_and_layer(void)
{
	static const uint32_t chunk[] = { 0, 7 };
	char text[2][20 * LAYERS * 80] = { "" };
	struct ds_err err = { 0 };
	float logits[VOCAB];

	for (int i = 0; i < 2; i++) {
		struct eng *e = open_tiny(NULL, KERN_NATIVE, chunk[i], 4);
		FILE *f = fmemopen(text[i], sizeof(text[i]), "w");

		CU_ASSERT_PTR_NOT_NULL_FATAL(f);
		CU_ASSERT_EQUAL_FATAL(eng_hash_layers(e, f, &err), 0);
		run(e, prompt, 20, logits);
		CU_ASSERT_EQUAL(eng_hash_layers(e, NULL, &err), 0);
		fclose(f);
		eng_close(e);
	}
	unsigned int lines = 0;

	for (const char *p = text[0]; *p != '\0'; p++)
		lines += *p == '\n';
	CU_ASSERT_EQUAL(lines, 20 * LAYERS);
	CU_ASSERT_STRING_EQUAL(text[0], text[1]);
	CU_ASSERT_EQUAL(strncmp(text[0], "0 0 ", 4), 0);
	CU_ASSERT_EQUAL(strchr(text[0], '\n') - text[0], 4 + 64);
}

static void state_text_tells_engines_apart(void)
{
	static char text[2][TP_STATE_BYTES_MAX];
	const struct eng_open_args base = {
		.conf = &conf, .kernels = "ref", .world = 2, .leaves = 4, .max_ctx = 100
	};
	struct eng_open_args a[8] = { base, base, base, base, base, base, base, base };
	struct eng_conf other = conf;
	struct ds_err err = { 0 };

	other.crope_theta = 160001; /* another angle is another constant */
	a[0].rank = 1;		    /* what ranks need not share */
	a[0].n_threads = 5;
	a[1].numerics = KERN_EXACT;
	a[2].world = 4;
	a[3].leaves = 3;
	a[4].max_ctx = 101;
	a[5].prefill_chunk = 7;
	a[6].conf = &other;
	a[7].max_ctx = 0;
	CU_ASSERT_EQUAL_FATAL(eng_state_text(&base, text[0], sizeof(text[0]), &err), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(text[0], "\nkernels=ref\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text[0], "\nmodel="));
	for (int i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(eng_state_text(&a[i], text[1], sizeof(text[1]), &err), 0);
		CU_ASSERT_EQUAL(strcmp(text[0], text[1]) == 0, i == 0);
	}
	CU_ASSERT_EQUAL(eng_state_text(&base, text[1], 20, &err), -1);
}

/* clang-format off */
static CU_TestInfo forward_tests[] = {
	{ "fp32: prefill of 48 and forced decode equal the official values", exact_prefill_and_forced_decode },
	{ "fp32: the greedy continuation is the official one", exact_greedy_continuation },
	{ "fp32: prompts of 1 to 60 tokens", exact_prompts_of_many_lengths },
	{ "runs of any size, rejected tokens included, give the same bits", runs_do_not_change_bits },
	{ "prefill chunks give the same bits", prefill_chunks_do_not_change_bits },
	{ "all kernel sets give the same bits", kernel_sets_give_the_same_bits },
	{ "another order of the canonical sum changes bits", another_order_of_the_sum_shows },
	{ "a sequence too long and an id outside the vocabulary are refused", bad_requests_are_refused },
	{ "a value that is not finite names its layer and rank", a_value_that_is_not_finite_names_its_layer },
	{ "layer hashes: a line per position and layer, the same in chunks", hashes_come_one_line_per_position_and_layer },
	{ "the state that ranks compare tells engines apart", state_text_tells_engines_apart },
	CU_TEST_INFO_NULL,
};
/* clang-format on */

CU_SuiteInfo forward_suite = { .pName = "engine/forward",
			       .pInitFunc = suite_open,
			       .pCleanupFunc = suite_close,
			       .pTests = forward_tests };
