/*
 * tiny_gen.c - write the tiny checkpoint to a directory, for scripts and for trying things by hand.
 */
#include <stdio.h>

#include "tiny_model.h"

int main(int argc, char **argv)
{
	struct ds_err err = { 0 };

	if (argc != 2 || argv[1][0] == '-') {
		fprintf(stderr, "usage: tiny_gen OUT_DIR   (run from the root of the tree)\n");
		return 64;
	}
	if (tiny_model_write(argv[1], &err) == 0)
		return 0;
	ds_err_print(stderr, "tiny_gen", &err);
	return ds_err_exit_code(&err);
}
