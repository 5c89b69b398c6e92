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

#define DEMO  TESTS_DIR "/fixtures/demo-model"
#define VOCAB 1280

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
	puts("skip an engine's allocations: a sanitizer has its own allocator");
	return 77;
}

#else

void *__libc_malloc(size_t size);	       /* glibc's own, behind the names below */
void *__libc_calloc(size_t n, size_t size);    /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *p, size_t size);    /* NOLINT(bugprone-reserved-identifier) */
void *__libc_memalign(size_t at, size_t size); /* NOLINT(bugprone-reserved-identifier) */
void __libc_free(void *p);		       /* NOLINT(bugprone-reserved-identifier) */

static long left = -1; /* allocations before one fails; -1 = never */
static long made;      /* allocations, counted */
static long alive;     /* blocks not freed */

static int fails(void)
{
	made++;
	if (left < 0 || left-- > 0)
		return 0;
	left = -1; /* one failure; what follows may clean up */
	errno = ENOMEM;
	return 1;
}

static void *counted(void *p)
{
	alive += p != NULL;
	return p;
}

void *malloc(size_t size)
{
	return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *old, size_t size)
{
	void *p = fails() ? NULL : __libc_realloc(old, size);

	alive += old == NULL && p != NULL;
	return p;
}

void *aligned_alloc(size_t at, size_t size)
{
	return fails() ? NULL : counted(__libc_memalign(at, size));
}

int posix_memalign(void **out, size_t at, size_t size)
{
	*out = fails() ? NULL : counted(__libc_memalign(at, size));
	return *out == NULL ? ENOMEM : 0;
}

void free(void *p)
{
	alive -= p != NULL;
	__libc_free(p);
}

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
	long before = alive;

	made = 0;
	eng_close(open_demo(&err));
	total = made;
	for (long n = 0; n < total; n += n < 100 ? 1 : total / 100 + 1) {
		ds_err_clear(&err);
		left = n;
		e = open_demo(&err);
		left = -1;
		eng_close(e);
		tried++;
		if ((e == NULL && err.kind != DS_ERR_NOMEM && err.sys != ENOMEM) ||
		    alive != before) {
			printf("   allocation %ld: kind %s, %s %s, %ld blocks left\n", n,
			       ds_err_kind_name(err.kind), err.what, err.why, alive - before);
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

	made = 0;
	for (uint32_t round = 0; round < 2 && rc == 0; round++) {
		rc = eng_reset(e, &err) | eng_run(e, prompt, 5, logits, &err);
		for (uint32_t i = 0; i < 20 && rc == 0; i++) {
			int32_t id = sample_token(logits, VOCAB, NULL, &p, 5 + i, 0, scratch);
			uint32_t token = (uint32_t)id;

			rc = id < 0 ? -1 : eng_run(e, &token, 1, logits, &err);
		}
	}
	printf("%sok prefill, decode and sampling allocate nothing (%ld)\n",
	       rc == 0 && made == 0 ? "" : "not ", made);
	eng_close(e);
	return rc == 0 && made == 0 ? 0 : 1;
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
