/*
 * ini.h - the config file reader of both programs, and the table of settings behind it.
 *
 * Grammar: "[section]", "key = value", blank lines, comments from ";" or "#" at the start of a line
 * and from " ;" or " #" behind a value. Keys and sections are [A-Za-z0-9_.-]. A NUL byte, a line
 * without "=", an empty value, a key outside a section, an unknown section or key, and a second
 * value for a single-valued key are errors that name file and line.
 */
#ifndef DS_INI_H
#define DS_INI_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define DS_INI_BYTES_MAX (64 * 1024) /* a config file is small; more is a mistake */

/* One "key = value" line. Strings are views into a copy that lives until the call returns. */
struct ds_ini_item {
	const char *file, *section, *key, *value;
	unsigned int line; /* from 1 */
};

typedef int (*ds_ini_fn)(const struct ds_ini_item *item, void *arg, struct ds_err *err);

/**
 * ds_ini_parse() - call @fn for each item of @text, in order, until it returns non-zero.
 * @text: @len bytes, borrowed; may hold anything; @file: its name, for messages
 * Threads: any thread. Return: 0; -1 with DS_ERR_USAGE ("FILE line N") or @fn's error.
 */
int ds_ini_parse(const char *file, const char *text, size_t len, ds_ini_fn fn, void *arg,
		 struct ds_err *err);

/** ds_ini_bad() - the error for one item: object "FILE line N", why as given. Return: -1. */
int ds_ini_bad(const struct ds_ini_item *item, struct ds_err *err, const char *why, ...)
	__attribute__((format(printf, 3, 4)));

enum ds_setting_type {
	DS_SET_INT,  /* int64_t at the offset; min and max are inclusive bounds */
	DS_SET_BOOL, /* bool; yes/no/true/false/on/off/1/0 */
	DS_SET_STR,  /* char[size]; longer values are errors */
	DS_SET_ENUM, /* int: index into words */
	DS_SET_CALL, /* the row's own function; for lists and numbered keys */
};

/* One setting: the man page, --help and the reader all come from this row. */
struct ds_setting {
	const char *section, *key; /* a key ending in ".*" matches "key.N" */
	enum ds_setting_type type;
	const char *unit; /* "s", "bytes"; "" if none */
	const char *def;  /* default as text, NULL if it must be given or has none */
	int64_t min, max;
	const char *const *words; /* DS_SET_ENUM, NULL-terminated */
	size_t offset, size;	  /* of the field in the caller's struct */
	ds_ini_fn call;		  /* DS_SET_CALL; arg is the caller's struct */
	const char *help;	  /* one line, imperative, no final stop */
};

/**
 * ds_settings_load() - defaults of all rows, then the file's values, into @out.
 * @rows: @n rows; @out: the caller's struct; @text: NULL for defaults only
 * @seen: out, [n] line of each row's value, 0 = default; may be NULL
 * Return: 0; -1 with DS_ERR_USAGE naming file, line, the value and the bound it broke; an unknown
 * key names the nearest known one.
 */
int ds_settings_load(const struct ds_setting *rows, size_t n, void *out, const char *file,
		     const char *text, size_t len, unsigned int *seen, struct ds_err *err);

/** ds_setting_set() - one value by the row's rules; @item names where it came from. */
int ds_setting_set(const struct ds_setting *row, void *out, const struct ds_ini_item *item,
		   struct ds_err *err);

#endif
