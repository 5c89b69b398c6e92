/*
 * log.h - log lines on stderr: one event per line, key=value, a level and a subsystem.
 *
 * Library code returns errors and does not log; `main`, commands, the scheduler and the HTTP
 * server do. Format: "LEVEL subsystem: text". Under systemd (JOURNAL_STREAM set) the level becomes
 * the "<N>" prefix that journald reads.
 */
#ifndef DS_LOG_H
#define DS_LOG_H

#include "err.h"

enum ds_log_level {
	DS_LOG_ERROR,
	DS_LOG_WARN,
	DS_LOG_INFO,
	DS_LOG_DEBUG
};

/**
 * ds_log_setup() - read a filter such as "info" or "warn,net=debug,kv=debug".
 * @filter: a level for all, then subsystem=level pairs; NULL or "" means "info"
 * Threads: start-up only. Return: 0; -1 with DS_ERR_USAGE naming the wrong word.
 */
int ds_log_setup(const char *filter, struct ds_err *err);

/** ds_log() - one line, if the filter lets @level of @sub through. Threads: any thread. */
void ds_log(enum ds_log_level level, const char *sub, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/** ds_log_err() - the error object on one line. */
void ds_log_err(enum ds_log_level level, const char *sub, const struct ds_err *err);

/** ds_log_on() - whether such a line would be printed; for costly arguments. */
bool ds_log_on(enum ds_log_level level, const char *sub);

#endif
