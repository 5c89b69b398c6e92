/*
 * out_args.h - the arguments of one tool call, from the markup's parameters to one JSON object.
 *
 * Text comes in bytes as the model wrote it and leaves as pieces of JSON. A string goes out as it comes;
 * whatever must be seen whole before it can be judged (JSON values, types that a schema corrects) is held
 * until its parameter ends. Once out_args_close() was called the pieces together are valid JSON.
 */
#ifndef ENG_OUT_ARGS_H
#define ENG_OUT_ARGS_H

#include <jansson.h>

#include "tokenizer.h"

enum out_form {
	OUT_FORM_OPEN,	 /* the tag did not say */
	OUT_FORM_STRING, /* string="true" */
	OUT_FORM_JSON,	 /* string="false" */
};

struct out_args {
	const json_t *properties; /* borrowed: of the function's schema; NULL = not known */
	enum out_form form;	  /* of the present parameter */
	unsigned int types;	  /* that its schema allows, a bit each */
	bool held;		  /* its value is kept back until it ends */
	bool wrapper;		  /* the only parameter so far, and it may hold all the others */
	uint32_t n;		  /* parameters begun */
	struct tok_stream chars;
	struct ds_buf key, value; /* owned; value: a held one */
	struct ds_buf piece;	  /* owned: characters on their way */
	bool failed;		  /* no memory: the pieces are not whole */
};

/** out_args_begin() - @function: the tool's function object, with "parameters"; NULL = unknown. Keeps memory. */
void out_args_begin(struct out_args *a, const json_t *function);
/** out_args_key() - a parameter begins. @key: UTF-8, no NUL */
void out_args_key(struct out_args *a, const char *key, size_t len, enum out_form form,
		  struct ds_buf *out);
/** out_args_put() - more of its value, any bytes; what is decided is appended to @out. */
void out_args_put(struct out_args *a, const char *bytes, size_t len, struct ds_buf *out);
/** out_args_value() - the value ends. */
void out_args_value(struct out_args *a, struct ds_buf *out);
/** out_args_close() - the call ends. */
void out_args_close(struct out_args *a, struct ds_buf *out);
void out_args_fini(struct out_args *a);

#endif
