/*
 * tok_speed.c - processor seconds that encoding a text takes: tok_speed TOKENIZER.json [TIMES].
 *
 * The text comes from stdin. Prints the least of TIMES runs (3 without it) on one thread, and how many ids there are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "buf.h"
#include "tokenizer.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others use this machine as well */
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct ds_err err = { 0 };
	struct tok *t = argc > 1 ? tok_open(argv[1], &err) : NULL;
	int times = argc > 2 ? atoi(argv[2]) : 3;
	struct ds_buf text = { 0 };
	char piece[65536];
	double best = 1e300;
	size_t n, n_ids = 0;

	while ((n = fread(piece, 1, sizeof(piece), stdin)) > 0)
		ds_buf_put(&text, piece, n);
	for (int i = 0; t != NULL && i < times && err.kind == DS_ERR_NONE; i++) {
		struct tok_ids ids = { 0 };
		double begin = now();
		if (tok_encode(t, text.data, text.len, true, &ids, &err) == 0 &&
		    now() - begin < best)
			best = now() - begin;
		n_ids = ids.n;
		tok_ids_fini(&ids);
	}
	if (t == NULL || err.kind != DS_ERR_NONE || text.failed) {
		ds_err_print(stderr, "tok_speed", &err);
		return 1;
	}
	printf("%.6f %zu\n", best, n_ids);
	ds_buf_fini(&text);
	tok_close(t);
	return 0;
}
