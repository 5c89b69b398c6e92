/*
 * test_kern_math.c - the kernels' own exp, log1p, sine and cosine against libm in long double, and
 * the stored number formats against the recorded bit patterns.
 */
#include <CUnit/CUnit.h>
#include <math.h>

#include "kern_math.h"
#include "kernels.h"

/* |got - want| in units of the last place of @want as a float. */
static double ulps(float got, long double want)
{
	int e;

	if (isnan(got) || isinf(got))
		return INFINITY;
	frexpl(want, &e);
	if (e < -125)
		e = -125; /* subnormals share one step */
	return (double)(fabsl((long double)got - want) / ldexpl(1.0L, e - 24));
}

static void test_exp(void)
{
	double worst = 0.0;

	for (float x = -103.5f; x < 88.7f; x += 0.00137f)
		worst = fmax(worst, ulps(kern_exp(x), expl((long double)x)));
	for (float x = 1e-30f; x < 1.0f; x *= 1.0137f) {
		worst = fmax(worst, ulps(kern_exp(x), expl((long double)x)));
		worst = fmax(worst, ulps(kern_exp(-x), expl(-(long double)x)));
	}
	CU_ASSERT(worst < 1.0);
	if (worst >= 1.0)
		printf("   exp is off by %g ulp\n", worst);
	CU_ASSERT_EQUAL(kern_exp(0.0f), 1.0f);
	CU_ASSERT_EQUAL(kern_exp(-0.0f), 1.0f);
	CU_ASSERT(isinf(kern_exp(88.8f)) && isinf(kern_exp(1e30f)) && isinf(kern_exp(INFINITY)));
	CU_ASSERT_EQUAL(kern_exp(-104.5f), 0.0f);
	CU_ASSERT_EQUAL(kern_exp(-INFINITY), 0.0f);
	CU_ASSERT(isnan(kern_exp(NAN)));
}

static void test_log1p(void)
{
	double worst = 0.0;

	for (float y = 0.0f; y <= 1.0f; y += 1.7e-5f)
		worst = fmax(worst, ulps(kern_log1p(y), log1pl((long double)y)));
	for (float y = 1e-37f; y <= 1.0f; y *= 1.0031f)
		worst = fmax(worst, ulps(kern_log1p(y), log1pl((long double)y)));
	worst = fmax(worst, ulps(kern_log1p(1.0f), log1pl(1.0L)));
	CU_ASSERT(worst < 1.0);
	if (worst >= 1.0)
		printf("   log1p is off by %g ulp\n", worst);
	CU_ASSERT_EQUAL(kern_log1p(0.0f), 0.0f);
	CU_ASSERT(isnan(kern_log1p(NAN)));
}

static void test_sigmoid_softplus(void)
{
	double worst_s = 0.0, worst_p = 0.0;

	for (float x = -80.0f; x < 20.0f; x += 0.00171f) {
		long double e = expl((long double)x);

		worst_s = fmax(worst_s, ulps(kern_sigmoid(x), e / (1.0L + e)));
		worst_p = fmax(worst_p, ulps(kern_softplus(x), log1pl(e)));
	}
	CU_ASSERT(worst_s < 3.0);
	CU_ASSERT(worst_p < 2.0);
	if (worst_s >= 3.0 || worst_p >= 2.0)
		printf("   sigmoid %g ulp, softplus %g ulp\n", worst_s, worst_p);
	CU_ASSERT_EQUAL(kern_softplus(20.5f), 20.5f);
	CU_ASSERT_EQUAL(kern_sigmoid(-200.0f), 0.0f);
	CU_ASSERT_EQUAL(kern_sigmoid(200.0f), 1.0f);
	CU_ASSERT(isnan(kern_sigmoid(NAN)) && isnan(kern_softplus(NAN)));
}

/* Angles as rope has them: fp32 products up to the last position of the longest context. */
static void test_sincos(void)
{
	long double worst = 0.0L;
	int wrong = 0;

	for (uint32_t p = 0; p < 1100000; p += p < 2000 ? 1 : 37) {
		float angle = (float)p * (p % 3 == 0   ? 1.0f
					  : p % 3 == 1 ? 0.68765604f
						       : 0.0036355385f);
		double s, c;
		long double ws = sinl((long double)angle), wc = cosl((long double)angle);

		kern_sincos(angle, &s, &c);
		worst = fmaxl(worst, fmaxl(fabsl(s - ws), fabsl(c - wc)));
		wrong += (float)s != (float)ws || (float)c != (float)wc;
	}
	CU_ASSERT(worst < 3e-16L);
	CU_ASSERT_EQUAL(wrong, 0);
	if (worst >= 3e-16L || wrong != 0)
		printf("   off by %Lg, %d rounded differently\n", worst, wrong);
}

static void test_sums(void)
{
	float lane[16], a[100], b[100], key[1600], want;

	for (int i = 0; i < 16; i++)
		lane[i] = i == 0 ? 0x1p24f : 1.0f;
	/* 8-4-2-1: lane 0 meets 1, 2, 4 and 8 in turn; at 2^24 a single 1 is lost, a pair is not */
	CU_ASSERT_EQUAL(kern_tree(lane), 0x1p24f + 14.0f);
	for (int i = 0; i < 100; i++) {
		a[i] = (float)(i % 7) - 3.0f;
		b[i] = (float)(i % 5) - 1.5f;
	}
	want = 0.0f;
	for (int i = 0; i < 100; i++)
		want += a[i] * b[i]; /* small halves: exact in any order */
	CU_ASSERT_EQUAL(kern_lane_dot(a, b, 100), want);
	for (int i = 0; i < 100; i++)
		for (int j = 0; j < 16; j++)
			key[i * 16 + j] = b[i] * (float)(j + 1);
	kern_dot16(a, key, 100, lane);
	for (int j = 0; j < 16; j++)
		CU_ASSERT_EQUAL(lane[j], want * (float)(j + 1));
}

static CU_TestInfo kern_math_tests[] = {
	{ "exp is within one unit of the last place, also subnormal", test_exp },
	{ "log1p on [0, 1] is within one unit of the last place", test_log1p },
	{ "sigmoid and softplus follow exp and log1p", test_sigmoid_softplus },
	{ "sine and cosine are good to 3e-16 and round to fp32 as libm's do", test_sincos },
	{ "canonical sums: the tree, lanes and blocks", test_sums },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo kern_math_suite = { .pName = "kernels/math", .pTests = kern_math_tests };
