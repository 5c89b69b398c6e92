/*
 * kern_tests.c - the kernel suites as one program without libraries, for emulated processors.
 *
 * The suites are those of the unit tests. With KERN_BITS set they also print a checksum of every
 * result of the reference, so that two processors can be compared (tests/cli/arm64.sh).
 */
#include <CUnit/CUnit.h>

unsigned int cross_failures;

extern CU_SuiteInfo kern_math_suite, kern_sets_suite, kern_values_suite;

static int run(const CU_SuiteInfo *s)
{
	int failed = 0;

	for (const CU_TestInfo *t = s->pTests; t->pName != NULL; t++) {
		cross_failures = 0;
		t->pTestFunc();
		failed |= cross_failures != 0;
		printf("%sok %s: %s\n", cross_failures != 0 ? "not " : "", s->pName, t->pName);
		fflush(stdout);
	}
	return failed;
}

int main(void)
{
	int failed = run(&kern_math_suite);

	failed |= run(&kern_values_suite);
	failed |= run(&kern_sets_suite);
	return failed;
}
