/*
 * worlds.c - one model cut for 1, 2, 3 and 4 ranks gives one set of bits, and every rank sends only
 * what it must.
 *
 * Ranks are forked and joined over loopback as `generate` does it. Worlds 1, 2 and 4 share the class
 * of four leaves, worlds 1 and 3 that of three. The tiny model's experts have only two leaves that
 * are not empty, so in worlds 3 and 4 some ranks hold no experts and send nothing for them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "spawn.h"
#include "tiny_model.h"

#define DEMO	  TESTS_DIR "/fixtures/demo-model"
#define VOCAB_MAX 1280
#define PROMPT	  37
#define STEPS	  5
#define ROWS	  (PROMPT + STEPS - 1)

struct result {
	float logits[STEPS][VOCAB_MAX];
	struct eng_stats stats[TP_WORLD_MAX];
};

static struct eng_conf conf;

static struct eng_open_args args(enum kern_numerics numerics, uint32_t rank, uint32_t world,
				 uint32_t leaves)
{
	return (struct eng_open_args){ .conf = &conf,
				       .numerics = numerics,
				       .rank = rank,
				       .world = world,
				       .leaves = leaves,
				       .n_threads = 1,
				       .prefill_chunk = 16,
				       .max_ctx = 64 };
}

static struct eng *open_rank(enum kern_numerics numerics, uint32_t rank, uint32_t world,
			     uint32_t leaves, struct ds_err *err)
{
	const struct eng_open_args a = args(numerics, rank, world, leaves);

	return eng_open(&a, err);
}

static struct tp *join(struct spawn *s, struct eng *e, uint32_t rank, enum kern_numerics numerics,
		       uint32_t leaves, struct ds_err *err)
{
	const struct eng_open_args a = args(numerics, rank, s->world, leaves);
	struct tp_conf c;
	struct tp *tp;

	spawn_tp(s, rank, &c);
	if (eng_state_text(&a, c.state, sizeof(c.state), err) != 0 ||
	    (tp = tp_open(&c, err)) == NULL)
		return NULL;
	eng_set_tp(e, tp);
	return tp;
}

static int drive(struct eng *e, struct result *r, struct ds_err *err)
{
	uint32_t ids[PROMPT];

	for (uint32_t i = 0; i < PROMPT; i++)
		ids[i] = (7 * i * i + 31 * i + 5) % 509;
	for (int i = 0; i < STEPS; i++) {
		uint32_t n = i == 0 ? PROMPT : 1;

		if (eng_run(e, i == 0 ? ids : &ids[i], n, r->logits[i], err) != 0)
			return -1;
	}
	return eng_stats_all(e, r->stats, err);
}

static void follow(struct spawn *s, uint32_t rank, enum kern_numerics numerics, uint32_t leaves)
{
	struct ds_err err = { 0 };
	struct eng *e = open_rank(numerics, rank, s->world, leaves, &err);
	struct tp *tp = NULL;
	int rc = -1;

	if (e != NULL) {
		spawn_report(s, rank, &err);
		tp = join(s, e, rank, numerics, leaves, &err);
		rc = tp == NULL ? -1 : eng_follow(e, NULL, NULL, &err);
	}
	if (rc != 0)
		spawn_report(s, rank, &err);
	tp_close(tp);
	eng_close(e);
	_exit(rc == 0 ? 0 : 1);
}

static int run_world(enum kern_numerics numerics, uint32_t world, uint32_t leaves, struct result *r,
		     struct ds_err *err)
{
	struct spawn s;
	struct tp *tp = NULL;
	int rank, rc = -1;

	memset(r, 0, sizeof(*r));
	fflush(NULL);
	rank = spawn_fork(&s, world, err);
	if (rank > 0)
		follow(&s, (uint32_t)rank, numerics, leaves);
	struct eng *e = rank < 0 ? NULL : open_rank(numerics, 0, world, leaves, err);

	if (e != NULL && spawn_ready(&s, err) == 0 &&
	    (world == 1 || (tp = join(&s, e, 0, numerics, leaves, err)) != NULL))
		rc = drive(e, r, err);
	tp_close(tp);
	eng_close(e);
	return spawn_end(&s, err) == 0 ? rc : -1;
}

/* Leaves of a rank that hold something when @units are cut. */
static bool sends(uint32_t units, uint32_t leaves, uint32_t rank, uint32_t world)
{
	uint32_t per = leaves / world, first, end;
	bool any = false;

	for (uint32_t leaf = rank * per; leaf < (rank + 1) * per; leaf++) {
		kern_leaf_range(units, leaves, leaf, &first, &end);
		any = any || first < end;
	}
	return any;
}

/* layers * hidden * 4 bytes a row and sublayer to each peer, from ranks with a share in it. */
static bool bytes_ok(const struct result *r, uint32_t world, uint32_t leaves)
{
	bool ok = true;

	for (uint32_t rank = 0; rank < world; rank++) {
		uint64_t shares = sends(conf.o_groups, leaves, rank, world) +
				  sends(conf.inner / KERN_BLOCK, leaves, rank, world);
		uint64_t want =
			shares * conf.n_layers * conf.dim * sizeof(float) * ROWS * (world - 1);

		if (r->stats[rank].exchange_bytes[TP_REDUCE] != want) {
			printf("   rank %u of %u sent %llu bytes, expected %llu\n", rank, world,
			       (unsigned long long)r->stats[rank].exchange_bytes[TP_REDUCE],
			       (unsigned long long)want);
			ok = false;
		}
	}
	return ok;
}

static int report(bool good, const char *what, const char *model, const char *numerics)
{
	printf("%sok %s: %s, %s\n", good ? "" : "not ", what, model, numerics);
	return good ? 0 : 1;
}

static int worlds(const char *model, enum kern_numerics numerics)
{
	static const struct {
		uint32_t world, leaves;
	} row[] = { { 1, 4 }, { 2, 4 }, { 4, 4 }, { 1, 3 }, { 3, 3 } };
	static struct result one, got;
	const char *name = numerics == KERN_NATIVE ? "native" : "fp32";
	bool bits = true, bytes = true;

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct ds_err err = { 0 };

		if (run_world(numerics, row[i].world, row[i].leaves, &got, &err) != 0) {
			printf("   world %u:\n", row[i].world);
			ds_err_print(stdout, "worlds", &err);
			return report(false, "every world runs", model, name);
		}
		if (row[i].world == 1)
			memcpy(&one, &got, sizeof(one));
		else
			bits = bits && memcmp(one.logits, got.logits, sizeof(one.logits)) == 0;
		bytes = bytes && (row[i].world == 1 || bytes_ok(&got, row[i].world, row[i].leaves));
	}
	return report(bits, "worlds of one class give the same bits", model, name) |
	       report(bytes, "a rank sends its partial sums and nothing for an empty share", model,
		      name);
}

static int model(const char *name, const char *dir)
{
	struct ds_err err = { 0 };

	if (eng_conf_load(dir, &conf, &err) != 0) {
		ds_err_print(stdout, "not ok", &err);
		return 1;
	}
	return worlds(name, KERN_NATIVE) | worlds(name, KERN_EXACT);
}

int main(void)
{
	struct ds_err err = { 0 };
	char tiny[64];
	int bad = model("demo model", DEMO);

	if (tiny_model_temp(tiny, sizeof(tiny), &err) != 0) {
		ds_err_print(stdout, "not ok the tiny model is written", &err);
		return 1;
	}
	bad |= model("tiny model", tiny);
	test_dir_remove(tiny);
	return bad;
}
