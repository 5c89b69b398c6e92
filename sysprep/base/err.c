/*
 * err.c - the error object: filling, adding to it, printing it.
 */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* Truncation keeps the tail: of a long path the last components tell the story. */
static void copy_tail(char *dst, size_t size, const char *src)
{
	size_t len = strlen(src);
	if (len < size) {
		memcpy(dst, src, len + 1);
		return;
	}
	snprintf(dst, size, "...%s", src + len - (size - 4));
}

int ds_err_set(struct ds_err *err, enum ds_err_kind kind, int sys, const char *obj,
	       const char *what, ...)
{
	if (err == NULL)
		return -1;
	*err = (struct ds_err){ .kind = kind, .sys = sys };
	va_list ap;
	va_start(ap, what);
	vsnprintf(err->what, sizeof(err->what), what, ap);
	va_end(ap);
	if (obj != NULL)
		copy_tail(err->obj, sizeof(err->obj), obj);
	if (sys != 0) {
		char text[128];
		snprintf(err->why, sizeof(err->why), "%s", strerror_r(sys, text, sizeof(text)));
	}
	return -1;
}

int ds_err_why(struct ds_err *err, const char *fmt, ...)
{
	if (err == NULL)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err->why, sizeof(err->why), fmt, ap);
	va_end(ap);
	return -1;
}

int ds_err_fix(struct ds_err *err, const char *fmt, ...)
{
	if (err == NULL)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err->fix, sizeof(err->fix), fmt, ap);
	va_end(ap);
	return -1;
}

int ds_err_context(struct ds_err *err, const char *fmt, ...)
{
	if (err == NULL)
		return -1;
	char text[sizeof(err->what)], old[sizeof(err->what)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(old, err->what, sizeof(old));
	int n = snprintf(err->what, sizeof(err->what), "%s: ", text);
	if (n > 0 && (size_t)n < sizeof(err->what) - 1)
		snprintf(err->what + n, sizeof(err->what) - (size_t)n, "%.*s",
			 (int)(sizeof(err->what) - (size_t)n - 1), old);
	return -1;
}

void ds_err_clear(struct ds_err *err)
{
	*err = (struct ds_err){ 0 };
}

/* Texts may hold bytes of a file or a peer: a terminal must not obey them. */
static void put_clean(FILE *f, const char *s)
{
	for (; *s != '\0'; s++) {
		unsigned char c = (unsigned char)*s;
		if (c < 0x20 || c == 0x7f)
			fprintf(f, "\\x%02x", c);
		else
			fputc(c, f);
	}
}

void ds_err_print(FILE *f, const char *prog, const struct ds_err *err)
{
	flockfile(f);
	fprintf(f, "%s: ", prog);
	put_clean(f, err->what);
	if (err->obj[0] != '\0') {
		fputs(" on ", f);
		put_clean(f, err->obj);
	}
	if (err->why[0] != '\0') {
		fputs(": ", f);
		put_clean(f, err->why);
	}
	fputc('\n', f);
	if (err->fix[0] != '\0') {
		fprintf(f, "%*stry: ", (int)strlen(prog) + 2, "");
		put_clean(f, err->fix);
		fputc('\n', f);
	}
	funlockfile(f);
}

char *ds_err_line(const struct ds_err *err, char *buf, size_t size)
{
	snprintf(buf, size, "%s%s%s%s%s%s%s", err->what, err->obj[0] != '\0' ? " on " : "",
		 err->obj, err->why[0] != '\0' ? ": " : "", err->why,
		 err->fix[0] != '\0' ? "; try: " : "", err->fix);
	return buf;
}

int ds_err_exit_code(const struct ds_err *err)
{
	switch (err->kind) {
	case DS_ERR_USAGE:
		return 64;
	case DS_ERR_PERM:
		return 77;
	default:
		return 1;
	}
}

const char *ds_err_kind_name(enum ds_err_kind kind)
{
	static const char *const names[] = {
		[DS_ERR_NONE] = "none",	      [DS_ERR_USAGE] = "usage", [DS_ERR_INPUT] = "input",
		[DS_ERR_HOST] = "host",	      [DS_ERR_PERM] = "perm",	[DS_ERR_NOMEM] = "nomem",
		[DS_ERR_TIMEOUT] = "timeout", [DS_ERR_PEER] = "peer",	[DS_ERR_BUG] = "bug",
	};
	return (size_t)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "unknown";
}
