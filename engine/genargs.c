/*
 * genargs.c - reading the options of `dsengine generate`.
 */
#include "genargs.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"

enum opt_kind {
	OPT_TEXT,
	OPT_UINT,
	OPT_REAL,
	OPT_FLAG
};

#define N_WORDS 6

struct opt {
	const char *name, *meta, *help;
	enum opt_kind kind;
	size_t at;		    /* of the field in struct gen_args */
	uint64_t min, max;	    /* of OPT_UINT and OPT_REAL */
	const char *words[N_WORDS]; /* of OPT_TEXT: the values it may have; none = any */
};

#define AT(field) offsetof(struct gen_args, field)

/* clang-format off */
static const struct opt opts[] = {
	{ "-m", "DIR", "the model directory (required)", OPT_TEXT, AT(model), 0, 0, { 0 } },
	{ "--world", "N", "ranks forked on this machine, 1 or 2", OPT_UINT, AT(world), 1, 2, { 0 } },
	{ "--transport", "auto|tcp", "how ranks reach each other", OPT_TEXT, AT(transport), 0, 0, { "auto", "tcp" } },
	{ "--prompt", "TEXT", "raw text; special tokens in it are matched", OPT_TEXT, AT(prompt), 0, 0, { 0 } },
	{ "--prompt-ids", "1,2,3", "token ids, used as they are", OPT_TEXT, AT(prompt_ids), 0, 0, { 0 } },
	{ "--prompt-ids-file", "FILE", "the same, separated by commas or white space", OPT_TEXT, AT(prompt_ids_file), 0, 0, { 0 } },
	{ "--messages", "FILE", "a chat/completions body", OPT_TEXT, AT(messages), 0, 0, { 0 } },
	{ "-n", "MAX", "most tokens to generate (128)", OPT_UINT, AT(n), 1, 1u << 24, { 0 } },
	{ "--force-ids", "4,5,6", "take these ids instead of choosing", OPT_TEXT, AT(force_ids), 0, 0, { 0 } },
	{ "--temperature", "T", "0 to 100; 0 = the most likely token (0)", OPT_REAL, AT(temperature), 0, 100, { 0 } },
	{ "--seed", "S", "of the draws; without it a random one", OPT_UINT, AT(seed), 0, UINT64_MAX, { 0 } },
	{ "--numerics", "exact|native", "fp32, or the model's own arithmetic (native)", OPT_TEXT, AT(numerics), 0, 0, { "exact", "native" } },
	{ "--leaves", "3|4", "class of the canonical sum (4; 3 at world 1 only)", OPT_UINT, AT(leaves), 3, 4, { 0 } },
	{ "--prefill-chunk", "N", "most prompt tokens per run, 1 or more", OPT_UINT, AT(chunk), 1, UINT32_MAX, { 0 } },
	{ "--kernels", "SET", "ref|scalar|avx2|avx512|neon (the best here)", OPT_TEXT, AT(kernels), 0, 0, { "ref", "scalar", "avx2", "avx512", "neon" } },
	{ "--dump-logits", "FILE", "write fp32 [tokens, vocabulary]", OPT_TEXT, AT(dump_logits), 0, 0, { 0 } },
	{ "--hash-layers", "FILE", "write a sha256 of the stream per position and layer", OPT_TEXT, AT(hash_layers), 0, 0, { 0 } },
	{ "--profile", NULL, "print where rank 0's time goes, by operation, on standard error", OPT_FLAG, AT(profile), 0, 0, { 0 } },
	{ "--json", NULL, "one JSON object on standard output", OPT_FLAG, AT(json), 0, 0, { 0 } },
	{ "--user", "NAME|UID", "started as root: who to become", OPT_TEXT, AT(user), 0, 0, { 0 } },
	{ "--help", NULL, "print this list", OPT_FLAG, AT(help), 0, 0, { 0 } },
};
/* clang-format on */

#define N_OPTS (sizeof(opts) / sizeof(opts[0]))

void gen_args_help(FILE *f)
{
	fprintf(f, "usage: " ENG_PROG " generate -m DIR PROMPT [OPTION...]\n"
		   "PROMPT is one of --prompt, --prompt-ids, --prompt-ids-file and --messages.\n");
	for (size_t i = 0; i < N_OPTS; i++) {
		char left[40];

		snprintf(left, sizeof(left), "%s %s", opts[i].name,
			 opts[i].meta == NULL ? "" : opts[i].meta);
		fprintf(f, "  %-26s %s\n", left, opts[i].help);
	}
}

static int usage(struct ds_err *err, const char *obj, const char *why)
{
	ds_err_set(err, DS_ERR_USAGE, 0, obj, "read the options of generate");
	ds_err_why(err, "%s", why);
	return ds_err_fix(err, ENG_PROG " generate --help");
}

static int bad_value(struct ds_err *err, const struct opt *o, const char *value)
{
	ds_err_set(err, DS_ERR_USAGE, 0, value, "read the value of %s", o->name);
	if (o->kind == OPT_TEXT) { /* by the words themselves: the help may show a name for them */
		char words[64] = "";
		size_t n = 0;

		for (size_t i = 0; i < N_WORDS && o->words[i] != NULL; i++)
			n += (size_t)snprintf(words + n, sizeof(words) - n, "%s%s",
					      i == 0 ? "" : "|", o->words[i]);
		return ds_err_why(err, "expected %s", words);
	}
	return ds_err_why(err, "expected %s of %llu to %llu",
			  o->kind == OPT_REAL ? "a number" : "a whole number",
			  (unsigned long long)o->min, (unsigned long long)o->max);
}

static int set_uint(const struct opt *o, const char *value, uint64_t *out, struct ds_err *err)
{
	char *end;

	errno = 0;
	unsigned long long v = strtoull(value, &end, 10);

	if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno != 0 || v < o->min ||
	    v > o->max)
		return bad_value(err, o, value);
	*out = v;
	return 0;
}

static int set_real(const struct opt *o, const char *value, double *out, struct ds_err *err)
{
	char *end;
	double v = strtod(value, &end);

	if (end == value || *end != '\0' || !isfinite(v) || v < (double)o->min ||
	    v > (double)o->max)
		return bad_value(err, o, value);
	*out = v;
	return 0;
}

static int set_text(const struct opt *o, const char *value, const char **out, struct ds_err *err)
{
	bool known = o->words[0] == NULL;

	for (size_t i = 0; i < N_WORDS && o->words[i] != NULL; i++)
		known = known || strcmp(value, o->words[i]) == 0;
	if (!known)
		return bad_value(err, o, value);
	*out = value;
	return 0;
}

/* One argument; takes the next one as its value when it needs one and has no "=". */
static int set_one(struct gen_args *a, int argc, char **argv, int *i, struct ds_err *err)
{
	const char *arg = argv[*i], *value = NULL, *eq = strchr(arg, '=');
	size_t len = strncmp(arg, "--", 2) == 0 && eq != NULL ? (size_t)(eq - arg) : strlen(arg);
	const struct opt *o = NULL;

	for (size_t k = 0; k < N_OPTS && o == NULL; k++)
		if (strlen(opts[k].name) == len && memcmp(opts[k].name, arg, len) == 0)
			o = &opts[k];
	if (o == NULL)
		return usage(err, arg, "no such option");
	if (arg[len] == '=')
		value = arg + len + 1;
	if (o->kind == OPT_FLAG) {
		if (value != NULL)
			return usage(err, arg, "this option has no value");
		*(bool *)((char *)a + o->at) = true;
		return 0;
	}
	if (value == NULL && ++*i < argc)
		value = argv[*i];
	if (value == NULL)
		return usage(err, arg, "this option needs a value");
	a->has_seed = a->has_seed || o->at == AT(seed);
	if (o->kind == OPT_UINT)
		return set_uint(o, value, (uint64_t *)((char *)a + o->at), err);
	if (o->kind == OPT_REAL)
		return set_real(o, value, (double *)((char *)a + o->at), err);
	return set_text(o, value, (const char **)((char *)a + o->at), err);
}

int gen_ids_parse(const char *obj, const char *text, size_t len, struct tok_ids *out,
		  struct ds_err *err)
{
	size_t i = 0;

	while (i < len) {
		uint64_t v = 0;
		size_t start = i;

		if (text[i] == ',' || isspace((unsigned char)text[i])) {
			i++;
			continue;
		}
		for (; i < len && isdigit((unsigned char)text[i]); i++)
			v = v > UINT32_MAX ? v : v * 10 + (uint64_t)(text[i] - '0');
		if (i == start || (i < len && text[i] != ',' && !isspace((unsigned char)text[i]))) {
			size_t show = len - start < 32 ? len - start : 32;

			ds_err_set(err, DS_ERR_INPUT, 0, obj, "read token ids");
			return ds_err_why(err, "\"%.*s\" at byte %zu is not a decimal id",
					  (int)show, text + start, start);
		}
		if (v > UINT32_MAX) {
			ds_err_set(err, DS_ERR_INPUT, ERANGE, obj, "read token ids");
			return ds_err_why(err, "%.*s at byte %zu is outside any vocabulary",
					  (int)(i - start < 32 ? i - start : 32), text + start,
					  start);
		}
		if (tok_ids_put(out, (uint32_t)v, err) != 0)
			return -1;
	}
	return 0;
}

/* Ids on the command line: a mistake in them is one of usage; an id that no model has is not. */
static int ids_option(const char *name, const char *text, struct tok_ids *out, struct ds_err *err)
{
	if (text == NULL)
		return 0;
	if (gen_ids_parse(name, text, strlen(text), out, err) != 0) {
		if (err->kind == DS_ERR_INPUT && err->sys != ERANGE)
			err->kind = DS_ERR_USAGE;
		return -1;
	}
	return out->n > 0 ? 0 : usage(err, name, "no ids");
}

int gen_args_parse(int argc, char **argv, struct gen_args *a, struct ds_err *err)
{
	*a = (struct gen_args){ .world = 1, .n = 128, .leaves = 4, .transport = "auto" };
	for (int i = 1; i < argc; i++)
		if (set_one(a, argc, argv, &i, err) != 0)
			return -1;
	if (a->help)
		return 0;
	if (a->model == NULL)
		return usage(err, "-m", "a model directory is needed");
	int prompts = (a->prompt != NULL) + (a->prompt_ids != NULL) + (a->prompt_ids_file != NULL) +
		      (a->messages != NULL);

	if (prompts != 1)
		return usage(err, NULL,
			     "exactly one of --prompt, --prompt-ids, --prompt-ids-file "
			     "and --messages is needed");
	if (a->leaves == 3 && a->world != 1)
		return usage(err, "--leaves 3", "fits world 1 only");
	a->mode = a->numerics != NULL && strcmp(a->numerics, "exact") == 0 ? KERN_EXACT
									   : KERN_NATIVE;
	if (ids_option("--prompt-ids", a->prompt_ids, &a->ids, err) != 0)
		return -1;
	return ids_option("--force-ids", a->force_ids, &a->force, err);
}

void gen_args_fini(struct gen_args *a)
{
	tok_ids_fini(&a->ids);
	tok_ids_fini(&a->force);
}
