/*
 * nomem_model.c - the Nth allocation fails while a model is opened, hashed and loaded.
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
#include "failmalloc.h"

#define DEMO TESTS_DIR "/fixtures/demo-model"

#ifdef FAILMALLOC_ABSENT

int main(void)
{
	puts("skip every failed allocation of the model loader is an error: a sanitizer has its own allocator");
	return 77;
}

#else

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
	fm_made = 0;
	long before = fm_alive;
	int files = open_files();
	load(&err);
	total = fm_made;
	for (long n = 0; n < total; n += n < 100 ? 1 : total / 150 + 1) {
		ds_err_clear(&err);
		fm_left = n;
		int rc = load(&err);
		fm_left = -1;
		survived += rc == 0;
		failed += rc != 0;
		if ((rc != 0 && err.kind != DS_ERR_NOMEM && err.sys != ENOMEM) ||
		    fm_alive != before || open_files() != files) {
			printf("allocation %ld: rc %d, kind %s, %s, %ld blocks left\n", n, rc,
			       ds_err_kind_name(err.kind), err.why, (long)fm_alive - before);
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
