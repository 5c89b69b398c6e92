/*
 * log.c - log lines on stderr.
 */
#include "log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_FILTER 16

static enum ds_log_level level_all = DS_LOG_INFO;
static struct {
	char sub[16];
	enum ds_log_level level;
} filters[N_FILTER];
static size_t n_filters;
static bool to_journal;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static int parse_level(const char *word, enum ds_log_level *out)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(word, level_names[i]) == 0) {
			*out = (enum ds_log_level)i;
			return 0;
		}
	}
	return -1;
}

static int parse_word(char *word, struct ds_err *err)
{
	char *eq = strchr(word, '=');
	enum ds_log_level level;
	if (parse_level(eq != NULL ? eq + 1 : word, &level) != 0) {
		ds_err_set(err, DS_ERR_USAGE, 0, word, "read the log filter");
		ds_err_why(err, "a level is one of error, warn, info, debug");
		return ds_err_fix(err, "for example: --log info,net=debug");
	}
	if (eq == NULL) {
		level_all = level;
		return 0;
	}
	*eq = '\0';
	if (n_filters == N_FILTER || strlen(word) >= sizeof(filters[0].sub))
		return ds_err_set(err, DS_ERR_USAGE, 0, word,
				  "read the log filter: at most %d subsystems of 15 bytes",
				  N_FILTER);
	strcpy(filters[n_filters].sub, word);
	filters[n_filters++].level = level;
	return 0;
}

int ds_log_setup(const char *filter, struct ds_err *err)
{
	level_all = DS_LOG_INFO;
	n_filters = 0;
	to_journal = getenv("JOURNAL_STREAM") != NULL && !isatty(STDERR_FILENO);
	if (filter == NULL || filter[0] == '\0')
		return 0;
	char copy[256], *save = NULL;
	if (strlen(filter) >= sizeof(copy))
		return ds_err_set(err, DS_ERR_USAGE, 0, NULL,
				  "read the log filter: longer than 255 bytes");
	strcpy(copy, filter);
	for (char *w = strtok_r(copy, ",", &save); w != NULL; w = strtok_r(NULL, ",", &save))
		if (parse_word(w, err) != 0)
			return -1;
	return 0;
}

bool ds_log_on(enum ds_log_level level, const char *sub)
{
	for (size_t i = 0; i < n_filters; i++)
		if (strcmp(filters[i].sub, sub) == 0)
			return level <= filters[i].level;
	return level <= level_all;
}

void ds_log(enum ds_log_level level, const char *sub, const char *fmt, ...)
{
	if (!ds_log_on(level, sub))
		return;
	/* One write per line: lines of threads and ranks that share stderr stay whole. */
	char line[1024];
	int n = to_journal ? snprintf(line, sizeof(line), "<%d>%s: ", (int)level + 3, sub)
			   : snprintf(line, sizeof(line), "%-5s %s: ", level_names[level], sub);
	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	size_t len = (size_t)n + (size_t)m;
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	for (size_t i = (size_t)n; i < len; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* nowhere left to say so */
}

void ds_log_err(enum ds_log_level level, const char *sub, const struct ds_err *err)
{
	char line[896];
	ds_log(level, sub, "%s", ds_err_line(err, line, sizeof(line)));
}
