/*
 * tiny_model.h - the tiny checkpoint made by rule, for tests: every layer kind in seven megabytes.
 *
 * Weights follow from the tensor names alone (model.md 8.2), so nothing is stored but the config
 * (tests/vectors/tiny-config.json) and the hashes that tell whether the generator is right.
 */
#ifndef TEST_TINY_MODEL_H
#define TEST_TINY_MODEL_H

#include "err.h"

/**
 * tiny_model_write() - config.json, engram_token_map.bin, four shards and their index into @dir.
 * @dir: made if it is not there. Run from the root of the tree. No tokenizer: the model takes ids.
 */
int tiny_model_write(const char *dir, struct ds_err *err);

/** tiny_model_temp() - the same in a new directory below TMPDIR. @dir: out, at least 64 bytes. */
int tiny_model_temp(char *dir, size_t size, struct ds_err *err);

/** test_dir_remove() - delete the files of @dir and @dir itself; it must hold files only. */
void test_dir_remove(const char *dir);

#endif
