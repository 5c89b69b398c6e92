/*
 * ktext.h - the few text formats of the kernel and of systemd that the doctor reads.
 *
 * Every function takes any bytes, allocates nothing and does no I/O; a line that does not have its
 * form counts as absent. Threads: any thread.
 */
#ifndef PREP_KTEXT_H
#define PREP_KTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREP_BYTES_INFINITE UINT64_MAX

/** prep_kt_meminfo() - "KEY:   123 kB" of /proc/meminfo. @kb: out, KiB. Return: found. */
bool prep_kt_meminfo(const char *text, size_t len, const char *key, uint64_t *kb);

/**
 * prep_kt_limit() - the soft limit of a row of /proc/PID/limits.
 * @name: "Max locked memory"; @bytes: out, PREP_BYTES_INFINITE for "unlimited". Return: found.
 */
bool prep_kt_limit(const char *text, size_t len, const char *name, uint64_t *bytes);

/**
 * prep_kt_cmdline() - the value of the last "KEY=value" word of /proc/cmdline.
 * @value: out, @size bytes, cut to fit. Return: found; a bare KEY is found with an empty value.
 */
bool prep_kt_cmdline(const char *text, size_t len, const char *key, char *value, size_t size);

/** prep_kt_kconfig() - whether a kernel config has the line "KEY=y". */
bool prep_kt_kconfig(const char *text, size_t len, const char *key);

/**
 * prep_kt_unit_bytes() - the soft limit that a unit file's [Service] section gives @key.
 * @bytes: out; sizes with K, M, G, T (1024), "infinity", "soft:hard" as in systemd.exec(5).
 * Return: found; the last assignment wins, one that is no size counts as absent.
 */
bool prep_kt_unit_bytes(const char *text, size_t len, const char *key, uint64_t *bytes);

#endif
