/*
 * nomem_engine.c - an engine takes all its memory when it opens: a failed allocation there is an
 * error that leaves nothing behind, and a step takes none.
 *
 * malloc and its kin are replaced for the whole program, so libraries fail and are counted as well.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "sample.h"
#include "failmalloc.h"

#define DEMO  TESTS_DIR "/fixtures/demo-model"
#define VOCAB 1280

#ifdef FAILMALLOC_ABSENT

int main(void)
{
	puts("skip an engine's allocations: a sanitizer has its own allocator");
	return 77;
}

#else

static struct eng_conf conf;

static struct eng *open_demo(struct ds_err *err)
{
	return eng_open(
		&(struct eng_open_args){
			.conf = &conf, .world = 1, .leaves = 4, .n_threads = 2, .max_ctx = 64 },
		err);
}

static int failures(void)
{
	struct ds_err err = { 0 };
	struct eng *e = open_demo(&err); /* warms up what libraries keep for good */
	long bad = 0, tried = 0, total;

	eng_close(e);
	if (e == NULL) {
		ds_err_print(stdout, "not ok the demo model opens", &err);
		return 1;
	}
	long before = fm_alive;

	fm_made = 0;
	eng_close(open_demo(&err));
	total = fm_made;
	for (long n = 0; n < total; n += n < 100 ? 1 : total / 100 + 1) {
		ds_err_clear(&err);
		fm_left = n;
		e = open_demo(&err);
		fm_left = -1;
		eng_close(e);
		tried++;
		if ((e == NULL && err.kind != DS_ERR_NOMEM && err.sys != ENOMEM) ||
		    fm_alive != before) {
			printf("   allocation %ld: kind %s, %s %s, %ld blocks left\n", n,
			       ds_err_kind_name(err.kind), err.what, err.why,
			       (long)fm_alive - before);
			bad++;
		}
	}
	printf("%sok every failed allocation while an engine opens is an error (%ld of %ld)\n",
	       bad == 0 && tried > 100 ? "" : "not ", tried, total);
	return bad == 0 && tried > 100 ? 0 : 1;
}

static int steps(void)
{
	static const struct sample_params p = {
		.temperature = 1, .top_p = 0.9f, .top_k = 50, .seed = 3
	};
	static float logits[VOCAB];
	static char scratch[VOCAB * 64];
	const uint32_t prompt[] = { 0, 1266, 40, 1267, 1270 };
	struct ds_err err = { 0 };
	struct eng *e = open_demo(&err);
	int rc = e == NULL || sample_scratch(VOCAB) > sizeof(scratch) ? -1 : 0;

	fm_made = 0;
	for (uint32_t round = 0; round < 2 && rc == 0; round++) {
		rc = eng_reset(e, &err) | eng_run(e, prompt, 5, logits, &err);
		for (uint32_t i = 0; i < 20 && rc == 0; i++) {
			int32_t id = sample_token(logits, VOCAB, NULL, &p, NULL, 5 + i, 0, scratch);
			uint32_t token = (uint32_t)id;

			rc = id < 0 ? -1 : eng_run(e, &token, 1, logits, &err);
		}
	}
	printf("%sok prefill, decode and sampling allocate nothing (%ld)\n",
	       rc == 0 && fm_made == 0 ? "" : "not ", (long)fm_made);
	eng_close(e);
	return rc == 0 && fm_made == 0 ? 0 : 1;
}

int main(void)
{
	struct ds_err err = { 0 };
	static char out[BUFSIZ];

	setvbuf(stdout, out, _IOLBF, sizeof(out));
	if (eng_conf_load(DEMO, &conf, &err) != 0) {
		ds_err_print(stdout, "not ok the demo model opens", &err);
		return 1;
	}
	int bad = failures();

	return steps() | bad;
}

#endif
