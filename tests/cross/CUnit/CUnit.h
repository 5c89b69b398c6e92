/*
 * CUnit.h - the few words of CUnit that the kernel suites use, for processors that this machine only
 * emulates: a cross build needs no library of theirs but the C library's.
 */
#ifndef CROSS_CUNIT_H
#define CROSS_CUNIT_H

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
	const char *pName;
	void (*pTestFunc)(void);
} CU_TestInfo;

typedef struct {
	const char *pName;
	int (*pInitFunc)(void);
	int (*pCleanupFunc)(void);
	void (*pSetUpFunc)(void);
	void (*pTearDownFunc)(void);
	CU_TestInfo *pTests;
} CU_SuiteInfo;

#define CU_TEST_INFO_NULL  \
	{                  \
		NULL, NULL \
	}

extern unsigned int cross_failures;

static inline void cross_check(int good, int fatal, const char *what, const char *file, int line)
{
	if (good)
		return;
	cross_failures++;
	printf("   %s:%d: %s\n", file, line, what);
	if (fatal)
		exit(1);
}

#define CROSS_CHECK(good, fatal, what) cross_check((good), (fatal), (what), __FILE__, __LINE__)

#define CU_ASSERT(v)			CROSS_CHECK(!!(v), 0, #v)
#define CU_ASSERT_FATAL(v)		CROSS_CHECK(!!(v), 1, #v)
#define CU_ASSERT_EQUAL(a, b)		CROSS_CHECK((a) == (b), 0, #a " == " #b)
#define CU_ASSERT_EQUAL_FATAL(a, b)	CROSS_CHECK((a) == (b), 1, #a " == " #b)
#define CU_ASSERT_NOT_EQUAL(a, b)	CROSS_CHECK((a) != (b), 0, #a " != " #b)
#define CU_ASSERT_PTR_NULL(p)		CROSS_CHECK((p) == NULL, 0, #p " == NULL")
#define CU_ASSERT_PTR_NOT_NULL(p)	CROSS_CHECK((p) != NULL, 0, #p " != NULL")
#define CU_ASSERT_PTR_NOT_NULL_FATAL(p) CROSS_CHECK((p) != NULL, 1, #p " != NULL")
#define CU_ASSERT_STRING_EQUAL(a, b)	CROSS_CHECK(strcmp((a), (b)) == 0, 0, #a " == " #b)
#define CU_ASSERT_DOUBLE_EQUAL(a, b, d) CROSS_CHECK(fabs((a) - (b)) <= fabs(d), 0, #a " = " #b)
#define CU_FAIL(text)			CROSS_CHECK(0, 0, text)

#endif
