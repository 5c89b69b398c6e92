/*
 * jsonin.h - parsing untrusted JSON with jansson, and telling a wrong text from a lack of memory.
 */
#ifndef ENG_JSONIN_H
#define ENG_JSONIN_H

#include <jansson.h>

#include "err.h"

/**
 * eng_json_load() - parse @len bytes; duplicate keys are refused.
 * @obj, @what: for the error: what the text came from, what was attempted
 * Return: owned (json_decref()); NULL with DS_ERR_INPUT giving line, column and reason, or
 * DS_ERR_NOMEM. Threads: any thread.
 */
json_t *eng_json_load(const char *text, size_t len, const char *obj, const char *what,
		      struct ds_err *err);

#endif
