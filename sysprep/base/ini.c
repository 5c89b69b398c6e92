/*
 * ini.c - the config file reader of both programs, and the table of settings behind it.
 */
#include "ini.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int ds_ini_bad(const struct ds_ini_item *item, struct ds_err *err, const char *why, ...)
{
	char obj[256], text[256];
	snprintf(obj, sizeof(obj), "%s line %u", item->file, item->line);
	va_list ap;
	va_start(ap, why);
	vsnprintf(text, sizeof(text), why, ap);
	va_end(ap);
	ds_err_set(err, DS_ERR_USAGE, 0, obj, "read config");
	return ds_err_why(err, "%s", text);
}

static char *trim(char *s)
{
	while (*s == ' ' || *s == '\t')
		s++;
	size_t len = strlen(s);
	while (len > 0 && (s[len - 1] == ' ' || s[len - 1] == '\t' || s[len - 1] == '\r'))
		s[--len] = '\0';
	return s;
}

/* A comment behind a value needs white space in front, so "a;b" stays a value. */
static void cut_comment(char *value)
{
	for (char *p = value; *p != '\0'; p++) {
		bool edge = p == value || p[-1] == ' ' || p[-1] == '\t';
		if (edge && (*p == ';' || *p == '#')) {
			*p = '\0';
			return;
		}
	}
}

static bool is_word(const char *s)
{
	if (*s == '\0')
		return false;
	for (; *s != '\0'; s++)
		if (!isalnum((unsigned char)*s) && strchr("_.-", *s) == NULL)
			return false;
	return true;
}

static int one_line(char *line, struct ds_ini_item *at, char *section, size_t section_size,
		    ds_ini_fn fn, void *arg, struct ds_err *err)
{
	line = trim(line);
	if (line[0] == '\0' || line[0] == ';' || line[0] == '#')
		return 0;
	if (line[0] == '[') {
		cut_comment(line);
		line = trim(line);
		size_t len = strlen(line);
		if (len < 3 || line[len - 1] != ']' || len >= section_size)
			return ds_ini_bad(at, err, "\"%.40s\" is no section header", line);
		line[len - 1] = '\0';
		if (!is_word(line + 1))
			return ds_ini_bad(at, err, "section name \"%.40s\" has odd characters",
					  line + 1);
		strcpy(section, line + 1);
		return 0;
	}
	char *eq = strchr(line, '=');
	if (eq == NULL)
		return ds_ini_bad(at, err, "\"%.40s\" is no \"key = value\"", line);
	*eq = '\0';
	char *value = eq + 1;
	cut_comment(value);
	at->key = trim(line);
	at->value = trim(value);
	at->section = section;
	if (!is_word(at->key))
		return ds_ini_bad(at, err, "key \"%.40s\" has odd characters", at->key);
	if (section[0] == '\0')
		return ds_ini_bad(at, err, "key \"%.40s\" stands before any [section]", at->key);
	if (at->value[0] == '\0')
		return ds_ini_bad(at, err, "key \"%.40s\" has no value", at->key);
	return fn(at, arg, err);
}

int ds_ini_parse(const char *file, const char *text, size_t len, ds_ini_fn fn, void *arg,
		 struct ds_err *err)
{
	struct ds_ini_item at = { .file = file, .line = 1 };
	if (len > DS_INI_BYTES_MAX)
		return ds_ini_bad(&at, err, "%zu bytes; a config has at most %d", len,
				  DS_INI_BYTES_MAX);
	char *copy = malloc(len + 1);
	if (copy == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, file, "read config");
	if (len > 0)
		memcpy(copy, text, len);
	copy[len] = '\0';
	char section[64] = "";
	int rc = 0;
	for (char *p = copy, *end = copy + len; p < end && rc == 0; at.line++) {
		char *nl = memchr(p, '\n', (size_t)(end - p));
		char *stop = nl != NULL ? nl : end;
		*stop = '\0';
		if (memchr(p, '\0', (size_t)(stop - p)) != NULL)
			rc = ds_ini_bad(&at, err, "a NUL byte");
		else
			rc = one_line(p, &at, section, sizeof(section), fn, arg, err);
		p = stop + 1;
	}
	free(copy);
	return rc;
}

static int set_int(const struct ds_setting *row, void *field, const struct ds_ini_item *item,
		   struct ds_err *err)
{
	char *end;
	errno = 0;
	long long v = strtoll(item->value, &end, 10);
	const char *unit = row->unit;
	const char *gap = unit[0] != '\0' ? " " : "";
	bool digits = isdigit((unsigned char)item->value[0]) || item->value[0] == '-';
	if (!digits || *end != '\0')
		return ds_ini_bad(item, err, "%s = \"%.40s\" is not a whole number%s%s", item->key,
				  item->value, unit[0] != '\0' ? " of " : "", unit);
	if (errno == ERANGE || v < row->min || v > row->max)
		return ds_ini_bad(item, err, "%s = %.40s is outside %" PRId64 "..%" PRId64 "%s%s",
				  item->key, item->value, row->min, row->max, gap, unit);
	memcpy(field, &(int64_t){ v }, sizeof(int64_t));
	return 0;
}

static int set_bool(void *field, const struct ds_ini_item *item, struct ds_err *err)
{
	static const char *const yes[] = { "yes", "true", "on", "1" };
	static const char *const no[] = { "no", "false", "off", "0" };
	for (size_t i = 0; i < 4; i++) {
		if (strcasecmp(item->value, yes[i]) == 0 || strcasecmp(item->value, no[i]) == 0) {
			bool v = strcasecmp(item->value, yes[i]) == 0;
			memcpy(field, &v, sizeof(v));
			return 0;
		}
	}
	return ds_ini_bad(item, err, "%s = \"%.40s\" is neither yes nor no", item->key,
			  item->value);
}

static int set_enum(const struct ds_setting *row, void *field, const struct ds_ini_item *item,
		    struct ds_err *err)
{
	char all[160] = "";
	for (int i = 0; row->words[i] != NULL; i++) {
		if (strcmp(item->value, row->words[i]) == 0) {
			memcpy(field, &i, sizeof(i));
			return 0;
		}
		size_t used = strlen(all);
		snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? ", " : "", row->words[i]);
	}
	return ds_ini_bad(item, err, "%s = \"%.40s\" is none of: %s", item->key, item->value, all);
}

int ds_setting_set(const struct ds_setting *row, void *out, const struct ds_ini_item *item,
		   struct ds_err *err)
{
	void *field = (char *)out + row->offset;
	switch (row->type) {
	case DS_SET_INT:
		return set_int(row, field, item, err);
	case DS_SET_BOOL:
		return set_bool(field, item, err);
	case DS_SET_ENUM:
		return set_enum(row, field, item, err);
	case DS_SET_STR:
		if (strlen(item->value) >= row->size)
			return ds_ini_bad(item, err, "%s is longer than %zu bytes", item->key,
					  row->size - 1);
		strcpy(field, item->value);
		return 0;
	case DS_SET_CALL:
		return row->call(item, out, err);
	}
	return ds_err_set(err, DS_ERR_BUG, 0, row->key, "read config: setting type");
}

/* Rows of the form "ssh.*" match "ssh.1", and may occur once per number. */
static bool is_family(const struct ds_setting *row)
{
	size_t len = strlen(row->key);
	return len > 2 && strcmp(row->key + len - 2, ".*") == 0;
}

static bool matches(const struct ds_setting *row, const struct ds_ini_item *item)
{
	if (strcmp(row->section, item->section) != 0)
		return false;
	if (!is_family(row))
		return strcmp(row->key, item->key) == 0;
	size_t stem = strlen(row->key) - 1;
	return strncmp(row->key, item->key, stem) == 0 && item->key[stem] != '\0';
}

/* Edits between two short words, for "did you mean". */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int row[64];
	size_t n = strlen(b);
	if (n >= 64 || strlen(a) >= 64)
		return 99;
	for (size_t j = 0; j <= n; j++)
		row[j] = (unsigned int)j;
	for (size_t i = 0; a[i] != '\0'; i++) {
		unsigned int diagonal = row[0];
		row[0] = (unsigned int)i + 1;
		for (size_t j = 0; j < n; j++) {
			unsigned int best = diagonal + (a[i] != b[j]);
			diagonal = row[j + 1];
			if (row[j + 1] + 1 < best)
				best = row[j + 1] + 1;
			if (row[j] + 1 < best)
				best = row[j] + 1;
			row[j + 1] = best;
		}
	}
	return row[n];
}

struct load {
	const struct ds_setting *rows;
	size_t n;
	void *out;
	unsigned int *seen;
};

static int unknown_key(const struct load *l, const struct ds_ini_item *item, struct ds_err *err)
{
	const struct ds_setting *near = NULL;
	unsigned int best = 4;
	bool section = false;
	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->rows[i].section, item->section) != 0)
			continue;
		section = true;
		unsigned int d = distance(item->key, l->rows[i].key);
		if (d < best) {
			best = d;
			near = &l->rows[i];
		}
	}
	if (!section)
		return ds_ini_bad(item, err, "section [%.40s] is unknown", item->section);
	ds_ini_bad(item, err, "key \"%.40s\" is unknown in [%s]", item->key, item->section);
	if (near != NULL)
		ds_err_fix(err, "did you mean \"%s\"?", near->key);
	return -1;
}

static int load_item(const struct ds_ini_item *item, void *arg, struct ds_err *err)
{
	struct load *l = arg;
	for (size_t i = 0; i < l->n; i++) {
		const struct ds_setting *row = &l->rows[i];
		if (!matches(row, item))
			continue;
		/* A DS_SET_CALL row decides itself whether a second value is one too many. */
		bool once = row->type != DS_SET_CALL;
		if (once && l->seen[i] != 0)
			return ds_ini_bad(item, err, "key \"%s\" was given on line %u already",
					  item->key, l->seen[i]);
		l->seen[i] = item->line;
		return ds_setting_set(row, l->out, item, err);
	}
	return unknown_key(l, item, err);
}

int ds_settings_load(const struct ds_setting *rows, size_t n, void *out, const char *file,
		     const char *text, size_t len, unsigned int *seen, struct ds_err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (rows[i].def == NULL || rows[i].type == DS_SET_CALL)
			continue;
		struct ds_ini_item item = { "built-in default", rows[i].section, rows[i].key,
					    rows[i].def, 0 };
		if (ds_setting_set(&rows[i], out, &item, err) != 0)
			return -1;
	}
	unsigned int *lines = calloc(n, sizeof(*lines));
	if (lines == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, file, "read config");
	struct load l = { rows, n, out, lines };
	int rc = text != NULL ? ds_ini_parse(file, text, len, load_item, &l, err) : 0;
	if (rc == 0 && seen != NULL)
		memcpy(seen, lines, n * sizeof(*lines));
	free(lines);
	return rc;
}
