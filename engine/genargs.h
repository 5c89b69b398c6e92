/*
 * genargs.h - the options of `dsengine generate`: one table of name, bounds and help.
 */
#ifndef ENG_GENARGS_H
#define ENG_GENARGS_H

#include "kernels.h"
#include "tokenizer.h"

struct gen_args {
	const char *model, *transport, *prompt, *prompt_ids, *prompt_ids_file, *messages;
	const char *force_ids, *numerics, *kernels, *dump_logits, *hash_layers, *user;
	uint64_t world, n, leaves, chunk, seed;
	double temperature;
	bool json, profile, help, has_seed;
	/* from the strings above */
	enum kern_numerics mode;
	struct tok_ids ids, force; /* of --prompt-ids and --force-ids; owned: gen_args_fini() */
};

/**
 * gen_args_parse() - read the command line; argv[0] is the command's name.
 * @a: out; strings are views of argv. gen_args_fini() also after a failure.
 * Return: 0 (a->help may be set); -1 DS_ERR_USAGE naming the option.
 */
int gen_args_parse(int argc, char **argv, struct gen_args *a, struct ds_err *err);
void gen_args_fini(struct gen_args *a);
/** gen_args_help() - the options, from the same table. */
void gen_args_help(FILE *f);

/**
 * gen_ids_parse() - decimal ids separated by commas or white space, appended to @out.
 * An id above 2^32 - 1 becomes that number, which no vocabulary has.
 * Return: 0; -1: DS_ERR_INPUT, @obj names the source and why quotes the text; DS_ERR_NOMEM.
 */
int gen_ids_parse(const char *obj, const char *text, size_t len, struct tok_ids *out,
		  struct ds_err *err);

#endif
