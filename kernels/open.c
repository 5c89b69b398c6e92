/*
 * open.c - which kernel sets this build has, which of them run on this processor, and memory for
 * their buffers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "err.h"
#include "kernels.h"
#include "sets.h"

static bool runs_always(void)
{
	return true;
}

#if defined(__x86_64__)
/* AVX2, FMA and the half-precision conversions; the first two tests include the kernel's support. */
static bool runs_avx2(void)
{
	unsigned int a, b, c, d;

	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool runs_avx512(void)
{
	return runs_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512dq");
}
#endif

/* Best first. The reference is last: it is there to define the bits, not to be fast. */
#if defined(__x86_64__)
#define HERE(X) X(avx512, runs_avx512) X(avx2, runs_avx2)
#elif defined(__aarch64__)
#define HERE(X) X(neon, runs_always)
#else
#define HERE(X)
#endif
#define SETS(X) HERE(X) X(scalar, runs_always) X(ref, runs_always)

#define ROW(set, runs_here)  { &kern_##set##_ops, runs_here },
#define NAME(set, runs_here) #set,

static const struct {
	const struct kern_ops *ops;
	bool (*runs)(void);
} sets[] = { SETS(ROW) };

#define N_SETS (sizeof(sets) / sizeof(sets[0]))

const struct kern_ops *kern_open(const char *name, struct ds_err *err)
{
	char here[64] = "";
	bool known = false;

	for (size_t i = 0; i < N_SETS; i++) {
		bool named = name == NULL || strcmp(name, sets[i].ops->name) == 0;

		known = known || named;
		if (!sets[i].runs())
			continue;
		if (named)
			return sets[i].ops;
		snprintf(here + strlen(here), sizeof(here) - strlen(here), "%s%s",
			 here[0] == '\0' ? "" : ", ", sets[i].ops->name);
	}
	ds_err_set(err, DS_ERR_USAGE, 0, name, "choose kernels");
	ds_err_why(err, known ? "this processor lacks their instructions"
			      : "no kernel set of this build has that name");
	ds_err_fix(err, "choose one that runs here: %s", here);
	return NULL;
}

const char *const *kern_sets(void)
{
	static const char *const names[] = { SETS(NAME) NULL };

	return names;
}

void *kern_alloc(size_t bytes, const char *what, struct ds_err *err)
{
	void *p = NULL;

	/* Whole cache lines, as aligned_alloc() wants, and never none. */
	if (bytes > SIZE_MAX - 64 ||
	    (p = aligned_alloc(64, bytes == 0 ? 64 : (bytes + 63) / 64 * 64)) == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, what, "allocate %zu bytes", bytes);
		return NULL;
	}
	return memset(p, 0, bytes);
}

void kern_free(void *p)
{
	free(p);
}
