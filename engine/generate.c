/*
 * generate.c - `dsengine generate`: one prompt, one answer, then the end (design.md 4.2).
 *
 * Order matters. Files are opened with the power the command was started with, that power is given
 * up, and only then is anything parsed; ranks are forked before the first thread exists. Rank 0 is
 * this process: it prints. What goes wrong on another rank is printed as that rank's own error.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "chat.h"
#include "cmd.h"
#include "engine.h"
#include "file.h"
#include "genargs.h"
#include "json.h"
#include "modeldir.h"
#include "priv.h"
#include "pyjson.h"
#include "sample.h"
#include "spawn.h"

#define PROMPT_BYTES_MAX (64 * 1024 * 1024)

struct gen {
	struct gen_args a;
	/* opened as root, if that is what we were */
	struct eng_dir *dir;
	struct ds_buf input; /* --prompt-ids-file or --messages */
	FILE *logits, *hashes;
	/* parsed */
	struct eng_conf conf;
	struct tok *tok; /* NULL: a model without tokenizer.json */
	struct tok_ids ids;
	/* running */
	struct eng *eng;
	struct tp *tp;
	float *row; /* [vocab] logits, then the sampler's scratch */
	void *scratch;
	struct tok_ids tokens;
	struct tok_stream stream;
	struct ds_buf text, fresh; /* all of it; what the last token made complete */
	bool stopped;
	int64_t load_us, prefill_us, decode_us;
	struct eng_stats stats[TP_WORLD_MAX];
};

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ------------------------------------------------------------------ files, before root is given up */

/* Whether @st is a file that this run reads or writes elsewhere; its name, or NULL. */
static const char *taken_by(const struct gen *g, const struct stat *st)
{
	struct stat other;

	for (uint32_t i = 0; i < g->dir->n; i++)
		if (fstat(g->dir->file[i].fd, &other) == 0 && other.st_dev == st->st_dev &&
		    other.st_ino == st->st_ino)
			return g->dir->file[i].name;
	if (g->logits != NULL && fstat(fileno(g->logits), &other) == 0 &&
	    other.st_dev == st->st_dev && other.st_ino == st->st_ino)
		return "--dump-logits";
	return NULL;
}

/* Emptied only when it is known to be nothing that this run still needs. */
static int open_output(struct gen *g, const char *path, FILE **out, struct ds_err *err)
{
	struct stat st;
	const char *taken = NULL;
	int fd;

	if (path == NULL)
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
	if (fd < 0 || fstat(fd, &st) != 0 ||
	    (S_ISREG(st.st_mode) &&
	     ((taken = taken_by(g, &st)) != NULL || ftruncate(fd, 0) != 0)) ||
	    (*out = fdopen(fd, "w")) == NULL) {
		if (taken != NULL) {
			ds_err_set(err, DS_ERR_USAGE, 0, path, "open for writing");
			ds_err_why(err, "this is the same file as %s", taken);
		} else {
			ds_err_set(err, errno == EACCES ? DS_ERR_PERM : DS_ERR_HOST, errno, path,
				   "open for writing");
		}
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return 0;
}

static int open_files(struct gen *g, struct ds_err *err)
{
	const struct gen_args *a = &g->a;
	const char *in = a->messages != NULL ? a->messages : a->prompt_ids_file;

	if ((g->dir = eng_dir_open(a->model, err)) == NULL)
		return -1;
	if (in != NULL && ds_file_read(AT_FDCWD, in, 0, PROMPT_BYTES_MAX, &g->input, err) != 0)
		return -1;
	if (open_output(g, a->dump_logits, &g->logits, err) != 0)
		return -1;
	return open_output(g, a->hash_layers, &g->hashes, err);
}

/* ------------------------------------------------------------------ the prompt */

static int open_tokenizer(struct gen *g, struct ds_err *err)
{
	struct ds_buf text = { 0 };
	char obj[256];
	int rc = -1;

	eng_dir_obj(g->dir, "tokenizer.json", obj, sizeof(obj));
	if (eng_dir_find(g->dir, "tokenizer.json") == NULL) {
		if (g->a.prompt == NULL && g->a.messages == NULL)
			return 0;
		ds_err_set(err, DS_ERR_INPUT, ENOENT, obj, "read the tokenizer");
		ds_err_fix(err, "give the prompt as --prompt-ids");
		return -1;
	}
	if (eng_dir_read(g->dir, "tokenizer.json", TOK_FILE_BYTES_MAX, &text, err) == 0 &&
	    (g->tok = tok_parse(obj, text.data, text.len, err)) != NULL)
		rc = 0;
	ds_buf_fini(&text);
	return rc;
}

static int encode_messages(struct gen *g, struct ds_err *err)
{
	struct chat_prompt p = { 0 };
	json_error_t why;
	json_t *body =
		pyjson_load(g->input.data == NULL ? "" : g->input.data, g->input.len, 0, &why);

	if (body == NULL) {
		ds_err_set(err, DS_ERR_INPUT, 0, g->a.messages, "parse a chat/completions body");
		return ds_err_why(err, "line %d: %s", why.line, why.text);
	}
	int rc = chat_encode(g->tok, body, true, &p, err);

	json_decref(body);
	if (rc == 0) {
		g->ids = p.ids; /* taken */
		p.ids = (struct tok_ids){ 0 };
	}
	chat_prompt_fini(&p);
	return rc;
}

static int check_ids(const struct gen *g, const struct tok_ids *l, const char *what,
		     struct ds_err *err)
{
	char id[40];

	for (size_t i = 0; i < l->n; i++) {
		if (l->id[i] < g->conf.vocab)
			continue;
		snprintf(id, sizeof(id), "%s id %u", what, l->id[i]);
		ds_err_set(err, DS_ERR_INPUT, 0, id, "look up an embedding");
		return ds_err_why(err, "the vocabulary of %s has ids 0 to %u", g->a.model,
				  g->conf.vocab - 1);
	}
	return 0;
}

static int make_prompt(struct gen *g, struct ds_err *err)
{
	const struct gen_args *a = &g->a;
	int rc = 0;

	if (a->prompt_ids != NULL) {
		g->ids = g->a.ids;
		g->a.ids = (struct tok_ids){ 0 };
	} else if (a->prompt_ids_file != NULL) {
		rc = gen_ids_parse(a->prompt_ids_file, g->input.data, g->input.len, &g->ids, err);
	} else if (a->prompt != NULL) {
		rc = tok_encode(g->tok, a->prompt, strlen(a->prompt), true, &g->ids, err);
	} else {
		rc = encode_messages(g, err);
	}
	if (rc != 0 || check_ids(g, &g->ids, "prompt", err) != 0 ||
	    check_ids(g, &a->force, "forced", err) != 0)
		return -1;
	size_t forced = a->force.n > 0 ? a->force.n - 1 : 0;

	if (g->ids.n == 0) {
		ds_err_set(err, DS_ERR_INPUT, 0, NULL, "read the prompt");
		return ds_err_why(err, "it has no tokens");
	}
	if (g->ids.n > g->conf.max_pos || forced > g->conf.max_pos - g->ids.n) {
		ds_err_set(err, DS_ERR_INPUT, 0, NULL, "run %zu tokens", g->ids.n + forced);
		return ds_err_why(err, "the model has %u positions", g->conf.max_pos);
	}
	return 0;
}

static int parse(struct gen *g, struct ds_err *err)
{
	struct eng_shard s;

	if (eng_conf_read(g->dir, &g->conf, err) != 0)
		return -1;
	/* Refuse a world before anything is forked or loaded. */
	if (eng_shard_plan(&g->conf, 0, (uint32_t)g->a.world, (uint32_t)g->a.leaves, &s, err) != 0)
		return -1;
	if (open_tokenizer(g, err) != 0 || make_prompt(g, err) != 0)
		return -1;
	if (g->a.temperature > 0 && !g->a.has_seed) {
		if (getrandom(&g->a.seed, sizeof(g->a.seed), 0) != sizeof(g->a.seed))
			return ds_err_set(err, DS_ERR_HOST, errno, NULL, "draw a seed");
		g->a.seed >>= 11; /* survives readers that keep JSON numbers as doubles */
	}
	return 0;
}

/* ------------------------------------------------------------------ generating */

/* Most tokens this run gives: the last one is chosen, not run, so it needs no position. */
static uint32_t token_count(const struct gen *g)
{
	size_t room = g->conf.max_pos - g->ids.n + 1;

	if (g->a.force.n > 0)
		return (uint32_t)g->a.force.n;
	return (uint32_t)(g->a.n < room ? g->a.n : room);
}

static int write_row(struct gen *g, struct ds_err *err)
{
	if (g->logits == NULL ||
	    fwrite(g->row, sizeof(float), g->conf.vocab, g->logits) == g->conf.vocab)
		return 0;
	return ds_err_set(err, DS_ERR_HOST, errno, g->a.dump_logits, "write logits");
}

/* Completed text goes out as it comes, or is kept for the JSON object. */
static int put_text(struct gen *g, struct ds_err *err)
{
	if (g->fresh.failed)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "collect the text");
	if (g->a.json) {
		ds_buf_put(&g->text, g->fresh.data, g->fresh.len);
	} else if (fwrite(g->fresh.data, 1, g->fresh.len, stdout) != g->fresh.len ||
		   fflush(stdout) != 0) {
		return ds_err_set(err, DS_ERR_HOST, errno, "standard output", "write text");
	}
	ds_buf_reset(&g->fresh);
	return 0;
}

static int emit(struct gen *g, uint32_t token, struct ds_err *err)
{
	const char *bytes;
	size_t len;

	if (tok_ids_put(&g->tokens, token, err) != 0)
		return -1;
	if (g->a.force.n == 0 && token == g->conf.eos) {
		g->stopped = true;
		return 0;
	}
	if (g->tok == NULL || (bytes = tok_bytes(g->tok, token, &len)) == NULL)
		return 0;
	tok_stream_put(&g->stream, bytes, len, &g->fresh);
	return g->fresh.len == 0 ? 0 : put_text(g, err);
}

static int next_token(struct gen *g, uint32_t i, uint32_t *token, struct ds_err *err)
{
	const struct sample_params p = { .temperature = (float)g->a.temperature,
					 .top_p = 1.0f,
					 .seed = g->a.seed };

	if (g->a.force.n > 0) {
		*token = g->a.force.id[i];
		return 0;
	}
	int32_t got =
		sample_token(g->row, g->conf.vocab, NULL, &p, NULL, g->ids.n + i, 0, g->scratch);

	if (got < 0)
		return ds_err_set(err, DS_ERR_BUG, 0, NULL, "choose token %u", i);
	*token = (uint32_t)got;
	return 0;
}

static int decode(struct gen *g, struct ds_err *err)
{
	uint32_t n = token_count(g);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t token = 0;

		if (write_row(g, err) != 0 || next_token(g, i, &token, err) != 0 ||
		    emit(g, token, err) != 0)
			return -1;
		if (g->stopped || i + 1 == n)
			break;
		if (eng_run(g->eng, &token, 1, g->row, err) != 0)
			return -1;
	}
	tok_stream_end(&g->stream, &g->fresh);
	if (!g->a.json)
		ds_buf_putc(&g->fresh, '\n');
	return g->fresh.len == 0 ? 0 : put_text(g, err);
}

static int close_output(FILE **f, const char *path, struct ds_err *err)
{
	FILE *out = *f;

	*f = NULL;
	if (out == NULL)
		return 0;
	bool bad = ferror(out) != 0;

	if (fclose(out) != 0 || bad)
		return ds_err_set(err, DS_ERR_HOST, errno, path, "write");
	return 0;
}

static int generate(struct gen *g, struct ds_err *err)
{
	int64_t start = now_us(), prefilled;

	g->row = kern_alloc(sizeof(float) * g->conf.vocab, "logits", err);
	if (g->row == NULL)
		return -1;
	g->scratch = kern_alloc(sample_scratch(g->conf.vocab), "the sampler", err);
	if (g->scratch == NULL)
		return -1;
	if (g->hashes != NULL && eng_hash_layers(g->eng, g->hashes, err) != 0)
		return -1;
	if (eng_run(g->eng, g->ids.id, (uint32_t)g->ids.n, g->row, err) != 0)
		return -1;
	g->prefill_us = now_us() - start;
	eng_profile(g->eng, "prefill", (double)g->prefill_us / 1000, stderr);
	prefilled = now_us();
	if (decode(g, err) != 0)
		return -1;
	g->decode_us = now_us() - prefilled;
	eng_profile(g->eng, "decode", (double)g->decode_us / 1000, stderr);
	if (close_output(&g->logits, g->a.dump_logits, err) != 0)
		return -1;
	if (g->hashes != NULL && eng_hash_layers(g->eng, NULL, err) != 0)
		return -1;
	if (close_output(&g->hashes, g->a.hash_layers, err) != 0)
		return -1;
	return eng_stats_all(g->eng, g->stats, err);
}

/* ------------------------------------------------------------------ ranks */

static struct eng_open_args rank_args(const struct gen *g, uint32_t rank)
{
	uint32_t world = (uint32_t)g->a.world;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return (struct eng_open_args){
		.conf = &g->conf,
		.kernels = g->a.kernels,
		.numerics = g->a.mode,
		.rank = rank,
		.world = world,
		.leaves = (uint32_t)g->a.leaves,
		.n_threads = cpus > (long)world ? (uint32_t)(cpus / world) : 1,
		.max_ctx = (uint32_t)g->ids.n + token_count(g) - 1,
		.prefill_chunk = (uint32_t)g->a.chunk,
		.profile = g->a.profile && rank == 0,
	};
}

static int join(struct gen *g, struct spawn *s, uint32_t rank, struct ds_err *err)
{
	const struct eng_open_args a = rank_args(g, rank);
	struct tp_conf c;

	spawn_tp(s, rank, &c);
	if (eng_state_text(&a, c.state, sizeof(c.state), err) != 0 ||
	    (g->tp = tp_open(&c, err)) == NULL)
		return -1;
	eng_set_tp(g->eng, g->tp);
	return 0;
}

static struct eng *open_rank(const struct gen *g, uint32_t rank, struct ds_err *err)
{
	const struct eng_open_args a = rank_args(g, rank);

	return eng_open(&a, err);
}

/* A child's whole life. It prints nothing: what went wrong goes to the parent. */
static int follower(struct gen *g, struct spawn *s, uint32_t rank)
{
	struct ds_err err = { 0 };
	int rc = -1;

	if ((g->eng = open_rank(g, rank, &err)) != NULL) {
		spawn_report(s, rank, &err);
		if (join(g, s, rank, &err) == 0)
			rc = eng_follow(g->eng, NULL, NULL, &err);
	}
	if (rc != 0)
		spawn_report(s, rank, &err);
	tp_close(g->tp);
	eng_close(g->eng);
	return rc == 0 ? 0 : 1;
}

static int lead(struct gen *g, struct spawn *s, struct ds_err *err)
{
	int64_t start = now_us();

	if ((g->eng = open_rank(g, 0, err)) == NULL)
		return -1;
	if (g->a.world > 1 && (spawn_ready(s, err) != 0 || join(g, s, 0, err) != 0))
		return -1;
	g->load_us = now_us() - start;
	return generate(g, err);
}

static void close_gen(struct gen *g)
{
	tp_close(g->tp);
	g->tp = NULL;
	eng_close(g->eng);
	g->eng = NULL;
}

static int run(struct gen *g, struct ds_err *err)
{
	struct spawn s;
	int rank, rc;

	if (g->a.world == 1) {
		rc = lead(g, NULL, err);
		close_gen(g);
		return rc;
	}
	fflush(NULL); /* or a child would write what is buffered a second time */
	rank = spawn_fork(&s, (uint32_t)g->a.world, err);
	if (rank > 0)
		_exit(follower(g, &s, (uint32_t)rank));
	rc = rank < 0 ? -1 : lead(g, &s, err);
	close_gen(g); /* the others see an orderly end, and end */
	return spawn_end(&s, err) != 0 ? -1 : rc;
}

/* ------------------------------------------------------------------ what is printed */

static void json_ids(struct ds_json *j, const char *key, const struct tok_ids *l)
{
	ds_json_key(j, key);
	ds_json_array(j);
	for (size_t i = 0; i < l->n; i++)
		ds_json_uint(j, l->id[i]);
	ds_json_end(j);
}

static void json_rank(struct ds_json *j, uint32_t rank, const struct eng_stats *s)
{
	static const char *const kind[TP_KINDS] = { [TP_REDUCE] = "reduce_bytes",
						    [TP_ENGRAM] = "engram_bytes",
						    [TP_HEAD] = "head_bytes",
						    [TP_CONTROL] = "control_bytes" };

	ds_json_object(j);
	ds_json_kuint(j, "rank", rank);
	ds_json_kuint(j, "weight_bytes", s->weight_bytes);
	ds_json_kuint(j, "weight_read_bytes", s->weight_read_bytes);
	ds_json_kuint(j, "touched_bytes", s->touched_bytes);
	ds_json_kuint(j, "cache_bytes", s->cache_bytes);
	/* What the model's numbers cost; control messages are not numbers. */
	ds_json_kuint(j, "exchange_bytes",
		      s->exchange_bytes[TP_REDUCE] + s->exchange_bytes[TP_ENGRAM] +
			      s->exchange_bytes[TP_HEAD]);
	for (int k = 0; k < TP_KINDS; k++)
		ds_json_kuint(j, kind[k], s->exchange_bytes[k]);
	ds_json_end(j);
}

static int print_json(struct gen *g, struct ds_err *err)
{
	struct ds_buf out = { 0 };
	struct ds_json j;
	int rc = 0;

	ds_json_init(&j, &out, 0);
	ds_json_object(&j);
	ds_json_kuint(&j, "format", 1);
	json_ids(&j, "prompt_ids", &g->ids);
	json_ids(&j, "tokens", &g->tokens);
	ds_json_key(&j, "text");
	ds_json_strn(&j, g->text.data == NULL ? "" : g->text.data, g->text.len);
	ds_json_kstr(&j, "finish", g->stopped ? "stop" : "length");
	ds_json_kuint(&j, "drafted", 0);
	ds_json_kuint(&j, "accepted", 0);
	if (g->a.temperature > 0)
		ds_json_kuint(&j, "seed", g->a.seed);
	ds_json_key(&j, "timings");
	ds_json_object(&j);
	ds_json_knum(&j, "load_ms", (double)g->load_us / 1000, 6);
	ds_json_knum(&j, "prefill_ms", (double)g->prefill_us / 1000, 6);
	ds_json_knum(&j, "decode_ms", (double)g->decode_us / 1000, 6);
	ds_json_end(&j);
	ds_json_key(&j, "ranks");
	ds_json_array(&j);
	for (uint32_t r = 0; r < g->a.world; r++)
		json_rank(&j, r, &g->stats[r]);
	ds_json_end(&j);
	ds_json_end(&j);
	ds_buf_putc(&out, '\n');
	if (out.failed || g->text.failed)
		rc = ds_err_set(err, DS_ERR_NOMEM, ENOMEM, NULL, "write JSON");
	else if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0)
		rc = ds_err_set(err, DS_ERR_HOST, errno, "standard output", "write JSON");
	ds_buf_fini(&out);
	return rc;
}

static void print_timings(const struct gen *g)
{
	double s = (double)g->decode_us / 1e6;
	size_t run = g->tokens.n > 0 ? g->tokens.n - 1 : 0; /* the last token is not run */

	fprintf(stderr,
		ENG_PROG ": load %.0f ms, prompt of %zu tokens %.0f ms, %zu tokens %.0f ms"
			 " (%.1f tokens/s)\n",
		(double)g->load_us / 1000, g->ids.n, (double)g->prefill_us / 1000, g->tokens.n,
		(double)g->decode_us / 1000, s > 0 ? (double)run / s : 0.0);
}

static void gen_fini(struct gen *g)
{
	kern_free(g->row);
	kern_free(g->scratch);
	if (g->logits != NULL)
		fclose(g->logits);
	if (g->hashes != NULL)
		fclose(g->hashes);
	tok_close(g->tok);
	tok_ids_fini(&g->ids);
	tok_ids_fini(&g->tokens);
	ds_buf_fini(&g->input);
	ds_buf_fini(&g->text);
	ds_buf_fini(&g->fresh);
	eng_dir_close(g->dir);
	gen_args_fini(&g->a);
	free(g);
}

static int steps(struct gen *g, struct ds_err *err)
{
	if (open_files(g, err) != 0 || priv_drop(g->a.user, PRIV_OTHER, err) != 0 ||
	    parse(g, err) != 0 || run(g, err) != 0)
		return -1;
	if (g->a.json)
		return print_json(g, err);
	print_timings(g);
	return 0;
}

int cmd_generate(int argc, char **argv)
{
	struct gen *g = calloc(1, sizeof(*g));
	struct ds_err err = { 0 };
	int status = 0;

	if (g == NULL) {
		ds_err_set(&err, DS_ERR_NOMEM, ENOMEM, NULL, "start");
		return cmd_fail(&err);
	}
	if (gen_args_parse(argc, argv, &g->a, &err) != 0) {
		status = cmd_fail(&err);
	} else if (g->a.help) {
		gen_args_help(stdout);
	} else if (steps(g, &err) != 0) {
		/* Exit codes of this command: usage 64, everything else 1 (design.md 4.2). */
		status = cmd_fail(&err) == CMD_USAGE ? CMD_USAGE : 1;
	}
	gen_fini(g);
	return status;
}
