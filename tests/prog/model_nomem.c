/*
 * model_nomem.c - the Nth allocation fails while a model is opened, hashed and loaded.
 *
 * Every failure must end in an error that says so, and leave no memory and no descriptor behind.
 * malloc and its kin are replaced for the whole program, so libraries fail as well; a library may
 * survive one (a cache it can do without), then the load simply succeeds.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engram.h"
#include "weights.h"

#define DEMO TESTS_DIR "/fixtures/demo-model"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
	puts("skip every failed allocation of the model loader is an error: a sanitizer has its own allocator");
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

void *malloc(size_t size)
{
	void *p = fails() ? NULL : __libc_malloc(size);

	alive += p != NULL;
	return p;
}

void *calloc(size_t n, size_t size)
{
	void *p = fails() ? NULL : __libc_calloc(n, size);

	alive += p != NULL;
	return p;
}

void *realloc(void *old, size_t size)
{
	void *p = fails() ? NULL : __libc_realloc(old, size);

	alive += old == NULL && p != NULL;
	return p;
}

void *aligned_alloc(size_t at, size_t size)
{
	void *p = fails() ? NULL : __libc_memalign(at, size);

	alive += p != NULL;
	return p;
}

void free(void *p)
{
	alive -= p != NULL;
	__libc_free(p);
}

/* ------------------------------------------------------------------ a set that only copies */

struct kern_weight {
	void *data;
};

static struct kern_weight *copy_prepare(const struct kern_matrix *m, struct ds_err *err)
{
	struct kern_weight *w = malloc(sizeof(*w));

	if (w != NULL && (w->data = malloc(m->rows * m->stride)) != NULL) {
		memcpy(w->data, m->data, m->rows * m->stride);
		return w;
	}
	free(w);
	ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "copy", "prepare weight");
	return NULL;
}

static void copy_free(struct kern_weight *w)
{
	free(w->data);
	free(w);
}

static size_t copy_bytes(const struct kern_weight *w)
{
	return w->data == NULL ? 0 : 1;
}

static const struct kern_ops copy = { .name = "copy",
				      .weight_prepare = copy_prepare,
				      .weight_free = copy_free,
				      .weight_bytes = copy_bytes };

static int load(struct ds_err *err)
{
	static struct eng_conf c;
	struct engram g = { 0 };
	struct eng_weights w;
	struct eng_shard s;
	char hex[65];

	struct eng_dir *d = eng_dir_open(DEMO, err);
	int rc = d == NULL ? -1 : eng_conf_read(d, &c, err);
	if (rc == 0)
		rc = eng_shard_plan(&c, 1, 2, 4, &s, err);
	if (rc == 0)
		rc = engram_open(&c, &g, err);
	if (rc == 0)
		rc = eng_digest(&c, hex, err);
	if (rc == 0 && (rc = eng_weights_load(&c, &s, &copy, &w, err)) == 0)
		eng_weights_free(&w);
	engram_close(&g);
	eng_dir_close(d);
	return rc;
}

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d))
		n++;
	if (d != NULL)
		closedir(d);
	return n;
}

int main(void)
{
	struct ds_err err = { 0 };
	long total, survived = 0, failed = 0, bad = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (load(&err) != 0) { /* also warms up what libraries keep for good */
		ds_err_print(stdout, "not ok the demo model loads", &err);
		return 1;
	}
	made = 0;
	long before = alive;
	int files = open_files();
	load(&err);
	total = made;
	for (long n = 0; n < total; n += n < 100 ? 1 : total / 150 + 1) {
		ds_err_clear(&err);
		left = n;
		int rc = load(&err);
		left = -1;
		survived += rc == 0;
		failed += rc != 0;
		if ((rc != 0 && err.kind != DS_ERR_NOMEM && err.sys != ENOMEM) || alive != before ||
		    open_files() != files) {
			printf("allocation %ld: rc %d, kind %s, %s, %ld blocks left\n", n, rc,
			       ds_err_kind_name(err.kind), err.why, alive - before);
			bad++;
		}
	}
	printf("%d of %ld allocations tried: %ld errors, %ld did not matter\n",
	       (int)(survived + failed), total, failed, survived);
	printf("%s every failed allocation of the model loader is an error\n",
	       bad == 0 && failed > 100 ? "ok" : "not ok");
	return bad == 0 && failed > 100 ? 0 : 1;
}

#endif
