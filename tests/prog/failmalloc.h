/*
 * failmalloc.h - malloc and its kin for a whole test program: counted, and one of them can fail.
 *
 * Include it in the one file of the program; the counters are atomic, since threads allocate too. Libraries fail and are counted as well. A sanitizer has its
 * own allocator; FAILMALLOC_ABSENT is defined then and the program has to skip.
 */
#ifndef TST_FAILMALLOC_H
#define TST_FAILMALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAILMALLOC_ABSENT
#else

/* glibc's allocator under its other names; the ones below stand in for it in every library. */
void *__libc_malloc(size_t size);	       /* NOLINT(bugprone-reserved-identifier) */
void *__libc_calloc(size_t n, size_t size);    /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *p, size_t size);    /* NOLINT(bugprone-reserved-identifier) */
void *__libc_memalign(size_t at, size_t size); /* NOLINT(bugprone-reserved-identifier) */
void __libc_free(void *p);		       /* NOLINT(bugprone-reserved-identifier) */

static _Atomic long fm_left = -1; /* allocations before the one that fails; -1 = none fails */
static _Atomic long fm_made;	  /* allocations asked for */
static _Atomic long fm_alive;	  /* blocks not freed */
static _Atomic bool fm_failed;	  /* the chosen one was reached; for the program to reset */

/* Only one fails: what follows may clean up. */
static bool fm_fails(void)
{
	fm_made++;
	if (fm_left < 0 || fm_left-- != 0)
		return false;
	fm_failed = true;
	errno = ENOMEM;
	return true; /* fm_left is -1 now */
}

static void *fm_count(void *p)
{
	fm_alive += p != NULL;
	return p;
}

void *malloc(size_t size)
{
	return fm_fails() ? NULL : fm_count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return fm_fails() ? NULL : fm_count(__libc_calloc(n, size));
}

void *realloc(void *old, size_t size)
{
	void *p = fm_fails() ? NULL : __libc_realloc(old, size);

	fm_alive += old == NULL && p != NULL;
	return p;
}

void *aligned_alloc(size_t at, size_t size)
{
	return fm_fails() ? NULL : fm_count(__libc_memalign(at, size));
}

int posix_memalign(void **out, size_t at, size_t size)
{
	*out = fm_fails() ? NULL : fm_count(__libc_memalign(at, size));
	return *out == NULL ? ENOMEM : 0;
}

void free(void *p)
{
	fm_alive -= p != NULL;
	__libc_free(p);
}

/* For a library that does not survive a failure: counted, never failing. */
static inline void *fm_steady_malloc(size_t size)
{
	return fm_count(__libc_malloc(size));
}

#endif
#endif
