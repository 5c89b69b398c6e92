/*
 * test_sample.c - the keyed sampler: Philox against its authors' known answers, filters, ties.
 */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

#define VOCAB 8

static uint8_t scratch[4096];

/* Known answers of the Random123 distribution (kat_vectors, philox4x32 10). */
static void philox_known_answers(void)
{
	static const struct {
		uint32_t counter[4], key[2], want[4];
	} row[] = {
		{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
		  { 0xffffffff, 0xffffffff },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
		  { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		uint32_t got[4];

		philox4x32(row[i].key, row[i].counter, got);
		CU_ASSERT_EQUAL(memcmp(got, row[i].want, sizeof(got)), 0);
	}
}

static int32_t draw(const float *logits, const bool *banned, struct sample_params p, uint64_t at)
{
	CU_ASSERT_FATAL(sample_scratch(VOCAB) <= sizeof(scratch));
	return sample_token(logits, VOCAB, banned, &p, NULL, at, 0, scratch);
}

static void greedy_takes_the_lowest_id_on_ties(void)
{
	const struct sample_params p = { .top_p = 1 };
	float logits[VOCAB] = { -1, 3, 2, 3, -5, 0, 3, 1 };
	bool banned[VOCAB] = { false, true };

	CU_ASSERT_EQUAL(draw(logits, NULL, p, 0), 1);
	CU_ASSERT_EQUAL(draw(logits, banned, p, 0), 3);
	memset(banned, true, sizeof(banned));
	CU_ASSERT_EQUAL(draw(logits, banned, p, 0), -1);
	logits[7] = NAN;
	CU_ASSERT_EQUAL(draw(logits, NULL, p, 0), -1);
}

/* Shares of 40,000 draws against the softmax; 5 standard deviations, the draws never change. */
static void draws_follow_the_softmax(void)
{
	const float logits[VOCAB] = { 0, 1, 2, 3, 2, 1, 0, -20 };
	const struct sample_params p = { .temperature = 0.7f, .top_p = 1, .seed = 12345 };
	unsigned int n = 40000, count[VOCAB] = { 0 };
	double sum = 0;

	for (int i = 0; i < VOCAB; i++)
		sum += exp((double)logits[i] / 0.7);
	for (unsigned int i = 0; i < n; i++) {
		int32_t id = draw(logits, NULL, p, i);

		CU_ASSERT_FATAL(id >= 0 && id < VOCAB);
		count[id]++;
	}
	for (int i = 0; i < VOCAB; i++) {
		double share = exp((double)logits[i] / 0.7) / sum;
		double sd = sqrt(n * share * (1 - share));

		CU_ASSERT(fabs(count[i] - n * share) <= 5 * sd + 1);
	}
}

static void the_key_decides_alone(void)
{
	const float logits[VOCAB] = { 0 };
	struct sample_params p = { .temperature = 1, .top_p = 1, .seed = 7 };
	int32_t a[64], b[64];
	bool seeds_differ = false, choices_differ = false;

	for (uint64_t i = 0; i < 64; i++)
		a[i] = draw(logits, NULL, p, i);
	for (uint64_t i = 64; i-- > 0;) /* order of calls does not matter */
		b[i] = draw(logits, NULL, p, i);
	CU_ASSERT_EQUAL(memcmp(a, b, sizeof(a)), 0);
	for (uint64_t i = 0; i < 64; i++)
		choices_differ |= sample_token(logits, VOCAB, NULL, &p, NULL, i, 1, scratch) !=
				  a[i];
	p.seed += (uint64_t)1 << 32; /* the upper half of the seed counts */
	for (uint64_t i = 0; i < 64; i++)
		seeds_differ |= draw(logits, NULL, p, i) != a[i];
	CU_ASSERT(choices_differ && seeds_differ);
}

static void filters_keep_what_they_say(void)
{
	/* shares of about .02 .05 .14 .38 .14 .05 .02 .2: sorted 3, 7, 2 (tie with 4: lower id), 4 */
	const float logits[VOCAB] = { 0, 1, 2, 3, 2, 1, 0, 2.35f };
	static const struct {
		uint32_t top_k;
		float top_p;
		const char *allowed;
	} row[] = {
		{ 1, 1.0f, "3" },	  { 2, 1.0f, "37" },	{ 3, 1.0f, "372" },
		{ 4, 1.0f, "3724" },	  { 0, 0.30f, "3" },	{ 0, 0.50f, "37" },
		{ 0, 0.65f, "372" },	  { 0, 0.80f, "3724" }, { 2, 0.99f, "37" },
		{ 99, 1.0f, "01234567" },
	};

	for (size_t r = 0; r < sizeof(row) / sizeof(row[0]); r++) {
		const struct sample_params p = {
			.temperature = 1, .top_k = row[r].top_k, .top_p = row[r].top_p, .seed = 1
		};
		bool seen[VOCAB] = { false };

		for (uint64_t i = 0; i < 2000; i++)
			seen[draw(logits, NULL, p, i)] = true;
		for (int id = 0; id < VOCAB; id++)
			CU_ASSERT_EQUAL(seen[id], strchr(row[r].allowed, '0' + id) != NULL);
	}
}

/* The most likely id of many, with every size up to some hundreds: the sort behind the filters. */
static void filters_sort_lists_of_any_size(void)
{
	static float logits[300];
	static bool banned[300];
	static uint8_t room[300 * 64];
	const struct sample_params p = { .temperature = 1, .top_k = 3, .top_p = 1, .seed = 9 };

	for (uint32_t n = 1; n <= 300; n++) {
		int32_t best[3] = { -1, -1, -1 };

		CU_ASSERT_FATAL(sample_scratch(n) <= sizeof(room));
		for (uint32_t i = 0; i < n; i++)
			logits[i] = (float)((i * 7919 + n * 104729) % 1009 / 4);
		for (int k = 0; k < 3; k++) /* by looking, three times */
			for (int32_t i = 0; i < (int32_t)n; i++)
				if (i != best[0] && i != best[1] &&
				    (best[k] < 0 || logits[i] > logits[best[k]]))
					best[k] = i;
		for (uint64_t at = 0; at < 20; at++) {
			int32_t id = sample_token(logits, n, banned, &p, NULL, at, 0, room);

			CU_ASSERT(id >= 0 && (id == best[0] || id == best[1] || id == best[2]));
		}
	}
}

/* Hand-computed: which id is the best after bias and penalties. */
static void adjusted(void)
{
	const float logits[4] = { 2.0f, 1.5f, -1.0f, 1.0f };
	const bool prompt[4] = { true, false, false, false };
	const uint32_t answer[4] = { 0, 2, 0, 0 };
	const struct sample_past past = { prompt, answer };
	const struct sample_bias up = { 2, 4.0f }, both[] = { { 0, -1.0f }, { 1, -1.0f } };
	static const struct {
		struct sample_params p;
		int32_t best;
	} rows[] = {
		{ { .repetition = 1 }, 0 },
		{ { .repetition = 1.25f }, 0 }, /* 1.6 1.2 -1 1 */
		{ { .repetition = 2 }, 0 },	/* 1 0.75 -1 1: the lower id */
		{ { .repetition = 4 }, 3 },	/* 0.5 0.375 -1 1 */
		{ { .repetition = 0.5f }, 0 },	/* 4 3 -1 1 */
		{ { .presence = -1 }, 1 },	/* 2 2.5 -1 1: the prompt does not count */
		{ { .frequency = -0.2f }, 0 },	/* 2 1.9 -1 1 */
		{ { .frequency = -0.3f }, 1 },	/* 2 2.1 -1 1: twice */
		{ { .presence = -0.3f, .frequency = -0.15f }, 1 }, /* 2 2.1 -1 1 */
		{ { .repetition = 1.25f, .presence = -0.5f }, 1 }, /* 1.6 1.7: division first */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CU_ASSERT_EQUAL(sample_token(logits, 4, NULL, &rows[i].p, &past, 0, 0, scratch),
				rows[i].best);
	struct sample_params p = { .bias = &up, .n_bias = 1 };
	CU_ASSERT_EQUAL(sample_token(logits, 4, NULL, &p, NULL, 0, 0, scratch), 2);
	p = (struct sample_params){ .bias = both, .n_bias = 2 };
	CU_ASSERT_EQUAL(sample_token(logits, 4, NULL, &p, NULL, 0, 0, scratch), 0);
	p.repetition = 1.5f; /* bias first: 1/1.5, 0.5/1.5, -1, 1 */
	CU_ASSERT_EQUAL(sample_token(logits, 4, NULL, &p, &past, 0, 0, scratch), 3);
	/* -1 is multiplied: -1.5 against -1.2 */
	const float low[2] = { -1.0f, -1.2f };
	const struct sample_past asked = { prompt, (const uint32_t[4]){ 0 } };
	p = (struct sample_params){ .repetition = 1.5f };
	CU_ASSERT_EQUAL(sample_token(low, 2, NULL, &p, &asked, 0, 0, scratch), 1);
}

/* Shares 1, 0.5, 0.25, 0.125 of the best: min_p comes before top_k and behind the temperature. */
static void least_share(void)
{
	const float ln2 = 0.6931472f, logits[4] = { 0, -ln2, -2 * ln2, -3 * ln2 };
	static const struct {
		float min_p, temperature;
		uint32_t top_k;
		bool may[4];
	} rows[] = {
		{ 0, 1, 0, { true, true, true, true } },
		{ 0.2f, 1, 0, { true, true, true, false } },
		{ 0.3f, 1, 0, { true, true, false, false } },
		{ 0.3f, 2, 0, { true, true, true, true } },	  /* 1, 0.71, 0.5, 0.35 */
		{ 0.3f, 0.5f, 0, { true, false, false, false } }, /* 1, 0.25 */
		{ 0.2f, 1, 2, { true, true, false, false } },
		{ 1, 1, 0, { true, false, false, false } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool seen[4] = { false };
		const struct sample_params p = { .temperature = rows[i].temperature,
						 .top_p = 1,
						 .top_k = rows[i].top_k,
						 .min_p = rows[i].min_p,
						 .seed = 3 };

		for (uint64_t at = 0; at < 400; at++)
			seen[sample_token(logits, 4, NULL, &p, NULL, at, 0, scratch)] = true;
		CU_ASSERT_EQUAL(memcmp(seen, rows[i].may, sizeof(seen)), 0);
	}
}

static CU_TestInfo sample_tests[] = {
	{ "bias and penalties, by hand", adjusted },
	{ "min_p, by hand", least_share },
	{ "Philox4x32-10 gives its authors' known answers", philox_known_answers },
	{ "greedy: the largest logit, lowest id on ties, never a banned id",
	  greedy_takes_the_lowest_id_on_ties },
	{ "draws follow the softmax at the temperature", draws_follow_the_softmax },
	{ "a draw depends on seed, position and choice alone", the_key_decides_alone },
	{ "top-k and top-p keep the most likely ids", filters_keep_what_they_say },
	{ "lists of any size are sorted", filters_sort_lists_of_any_size },
	CU_TEST_INFO_NULL,
};

CU_SuiteInfo sample_suite = { .pName = "engine/sample", .pTests = sample_tests };
