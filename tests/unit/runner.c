/*
 * runner.c - runs every CUnit suite and prints one line per test: "ok SUITE: TEST" or "not ok ...".
 *
 * A suite is a table in its own file; suites.h is made from the file names. Arguments choose
 * suites by name. CU_basic_run_tests() does not return the failure count, so the exit status asks.
 */
#include <CUnit/CUnit.h>
#include <CUnit/TestRun.h>
#include <stdio.h>
#include <string.h>

#define SUITE(name) extern CU_SuiteInfo name##_suite;
#include "suites.h"
#undef SUITE

static const struct {
	const char *name;
	CU_SuiteInfo *suite;
} suites[] = {
#define SUITE(name) { #name, &name##_suite },
#include "suites.h"
#undef SUITE
};

static void test_done(const CU_pTest test, const CU_pSuite suite, const CU_pFailureRecord failure)
{
	printf("%sok %s: %s\n", failure != NULL ? "not " : "", suite->pName, test->pName);
	for (CU_pFailureRecord f = failure; f != NULL; f = f->pNext)
		printf("   %s:%u: %s\n", f->strFileName, f->uiLineNumber, f->strCondition);
	fflush(stdout);
}

static int chosen(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return 1;
	return argc < 2;
}

int main(int argc, char **argv)
{
	if (CU_initialize_registry() != CUE_SUCCESS)
		return 2;
	for (size_t i = 0; i < sizeof(suites) / sizeof(suites[0]); i++) {
		CU_SuiteInfo one[] = { *suites[i].suite, CU_SUITE_INFO_NULL };
		if (chosen(suites[i].name, argc, argv) && CU_register_suites(one) != CUE_SUCCESS) {
			fprintf(stderr, "runner: cannot register %s\n", suites[i].name);
			return 2;
		}
	}
	CU_set_test_complete_handler(test_done);
	CU_run_all_tests();
	int failed = CU_get_number_of_failures() != 0 || CU_get_number_of_suites_failed() != 0;
	CU_cleanup_registry();
	return failed;
}
