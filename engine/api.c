/*
 * api.c - the checks of a request, stop strings, and what all answers share.
 */
#include "api.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "json.h"
#include "pyjson.h"

/* ---------------------------------- request ---------------------------------- */

static int refuse(struct ds_err *err, const char *field, const char *why)
{
	ds_err_set(err, DS_ERR_INPUT, 0, field, "read the request");
	return ds_err_why(err, "%s", why);
}

/* The field, or NULL when it is absent or null: both mean "not said". */
static const json_t *field(const json_t *o, const char *name)
{
	const json_t *v = json_object_get(o, name);
	return v == NULL || json_is_null(v) ? NULL : v;
}

static int get_bool(const json_t *o, const char *name, bool *out, struct ds_err *err)
{
	const json_t *v = field(o, name);
	if (v == NULL)
		return 0;
	if (!json_is_boolean(v))
		return refuse(err, name, "must be true or false");
	*out = json_is_true(v);
	return 0;
}

/* Bounds are inclusive. Return: 0 with *got telling whether the field was there. */
static int get_number(const json_t *o, const char *name, double lo, double hi, double *out,
		      bool *got, struct ds_err *err)
{
	const json_t *v = field(o, name);
	*got = v != NULL;
	if (v == NULL)
		return 0;
	double x = json_number_value(v);
	if (json_is_number(v) && x >= lo && x <= hi) {
		*out = x;
		return 0;
	}
	ds_err_set(err, DS_ERR_INPUT, 0, name, "read the request");
	return ds_err_why(err, "must be a number from %g to %g", lo, hi);
}

/* Some clients print whole numbers as 100.0; those pass, 100.5 does not. */
static int get_whole(const json_t *o, const char *name, int64_t lo, int64_t hi, int64_t *out,
		     bool *got, struct ds_err *err)
{
	const json_t *v = field(o, name);
	*got = v != NULL;
	if (v == NULL)
		return 0;
	bool ok = json_is_integer(v);
	int64_t x = ok ? json_integer_value(v) : 0;
	if (json_is_real(v)) {
		double d = json_real_value(v);
		ok = d == floor(d) && fabs(d) < 9007199254740992.0; /* 2^53 */
		x = ok ? (int64_t)d : 0;
	}
	if (ok && x >= lo && x <= hi) {
		*out = x;
		return 0;
	}
	ds_err_set(err, DS_ERR_INPUT, 0, name, "read the request");
	return ds_err_why(err, "must be a whole number from %lld to %lld", (long long)lo,
			  (long long)hi);
}

/* Whether a value asks for nothing beyond what happens anyway. */
static bool is_neutral(const json_t *v, double number)
{
	if (json_is_number(v))
		return json_number_value(v) == number;
	if (json_is_array(v))
		return json_array_size(v) == 0;
	if (json_is_object(v))
		return json_object_size(v) == 0;
	if (json_is_string(v))
		return json_string_length(v) == 0;
	return json_is_false(v) || json_is_null(v);
}

/*
 * Fields that this server knows and does not do. Left out silently they would change what the
 * answer means, so any value but the neutral one is refused by name.
 */
/* clang-format off */
static const struct {
	const char *name;
	double neutral;
} undone[] = {
	{ "functions", 0 },
	{ "function_call", 0 },
	{ "logprobs", 0 },
	{ "top_logprobs", 0 },
	{ "prompt_logprobs", 0 },
	{ "bad_words", 0 },
	{ "grammar", 0 },
	{ "guided_json", 0 },
	{ "guided_regex", 0 },
	{ "guided_choice", 0 },
	{ "guided_grammar", 0 },
	{ "json_schema", 0 },
	{ "structured_outputs", 0 },
	{ "regex", 0 },
	{ "ebnf", 0 },
	{ "audio", 0 },
	{ "use_beam_search", 0 },
	{ "best_of", 1 },
	{ "echo", 0 },
};
/* clang-format on */

static int check_undone(const json_t *o, struct ds_err *err)
{
	for (size_t i = 0; i < sizeof(undone) / sizeof(undone[0]); i++) {
		const json_t *v = field(o, undone[i].name);
		if (v != NULL && !is_neutral(v, undone[i].neutral)) {
			refuse(err, undone[i].name, "is not supported by this server");
			return ds_err_fix(err, "leave it out");
		}
	}
	const json_t *format = field(o, "response_format");
	const char *word = json_string_value(json_object_get(format, "type"));
	if (format != NULL && (word == NULL || strcmp(word, "text") != 0))
		return refuse(err, "response_format", "only {\"type\": \"text\"} is supported");
	const json_t *modal = field(o, "modalities");
	word = json_string_value(json_array_get(modal, 0));
	if (modal != NULL &&
	    (json_array_size(modal) != 1 || word == NULL || strcmp(word, "text") != 0))
		return refuse(err, "modalities", "only [\"text\"] is supported");
	return 0;
}

static int random_bytes(void *out, size_t len, struct ds_err *err)
{
	if (getrandom(out, len, 0) != (ssize_t)len)
		return ds_err_set(err, DS_ERR_HOST, errno, "getrandom()", "draw random bytes");
	return 0;
}

static int get_sampling(const json_t *o, struct api_request *r, struct ds_err *err)
{
	double temperature = 1.0, top_p = 0.95; /* the model card's advice, serving.md 0 */
	int64_t top_k = 0, seed = 0;
	bool got;
	if (get_number(o, "temperature", 0, 2, &temperature, &got, err) != 0 ||
	    get_number(o, "top_p", 0, 1, &top_p, &got, err) != 0 ||
	    get_whole(o, "top_k", -1, INT32_MAX, &top_k, &got, err) != 0 ||
	    get_whole(o, "seed", INT64_MIN, INT64_MAX, &seed, &got, err) != 0)
		return -1;
	/* 0 keeps the one best token, as the smallest share above 0 does. */
	r->sample.top_p = top_p > FLT_MIN ? (float)top_p : FLT_MIN;
	r->sample.temperature = (float)temperature;
	r->sample.top_k = top_k > 0 ? (uint32_t)top_k : 0;
	r->sample.seed = (uint64_t)seed;
	if (!got) {
		uint64_t v;
		if (random_bytes(&v, sizeof(v), err) != 0)
			return -1;
		r->sample.seed = v >> 11;
	}
	return 0;
}

/* One entry of logit_bias: {"ID": NUMBER}. */
static int add_bias(struct api_request *r, const char *key, const json_t *v, struct ds_err *err)
{
	char *end;
	unsigned long id = strtoul(key, &end, 10);

	if (key[0] < '0' || key[0] > '9' || *end != '\0' || id > UINT32_MAX || !json_is_number(v) ||
	    !(fabs(json_number_value(v)) <= 100.0))
		return refuse(err, "logit_bias", "must map token ids to numbers from -100 to 100");
	r->bias[r->sample.n_bias++] =
		(struct sample_bias){ (uint32_t)id, (float)json_number_value(v) };
	return 0;
}

static int get_bias(const json_t *o, struct api_request *r, struct ds_err *err)
{
	const json_t *map = field(o, "logit_bias"), *v;
	const char *key;
	if (map == NULL || (json_is_object(map) && json_object_size(map) == 0))
		return 0;
	if (!json_is_object(map) || json_object_size(map) > API_BIAS_MAX)
		return refuse(err, "logit_bias", "must be an object of at most 1024 token ids");
	r->bias = calloc(json_object_size(map), sizeof(*r->bias));
	if (r->bias == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "logit_bias", "read the request");
	r->sample.bias = r->bias;
	/* jansson's iterator wants an object that may be changed */
	json_object_foreach ((json_t *)(uintptr_t)map, key, v)
		if (add_bias(r, key, v, err) != 0)
			return -1;
	return 0;
}

/* Penalties and the smallest share, by vLLM's names and ranges; llama.cpp's name for one of them. */
static int get_penalties(const json_t *o, struct api_request *r, struct ds_err *err)
{
	double min_p = 0, presence = 0, frequency = 0, repetition = 1;
	bool got;
	if (get_number(o, "min_p", 0, 1, &min_p, &got, err) != 0 ||
	    get_number(o, "presence_penalty", -2, 2, &presence, &got, err) != 0 ||
	    get_number(o, "frequency_penalty", -2, 2, &frequency, &got, err) != 0 ||
	    get_number(o, "repeat_penalty", 0.01, 10, &repetition, &got, err) != 0 ||
	    get_number(o, "repetition_penalty", 0.01, 10, &repetition, &got, err) != 0)
		return -1;
	r->sample.min_p = (float)min_p;
	r->sample.presence = (float)presence;
	r->sample.frequency = (float)frequency;
	r->sample.repetition = (float)repetition;
	return get_bias(o, r, err);
}

/* How an answer may end: vLLM's fields for benchmarks and agents. */
static int get_ends(const json_t *o, struct api_request *r, struct ds_err *err)
{
	const json_t *ids = field(o, "stop_token_ids");
	int64_t min = 0;
	bool got;
	if (get_whole(o, "min_tokens", 0, UINT32_MAX, &min, &got, err) != 0 ||
	    get_bool(o, "ignore_eos", &r->ignore_eos, err) != 0)
		return -1;
	r->min_tokens = (uint32_t)min;
	if (r->max_tokens != 0 && r->min_tokens > r->max_tokens)
		return refuse(err, "min_tokens", "is above max_tokens");
	if (ids == NULL)
		return 0;
	if (!json_is_array(ids) || json_array_size(ids) > API_STOPS_MAX)
		return refuse(err, "stop_token_ids", "must be a list of at most 16 token ids");
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const json_t *v = json_array_get(ids, i);
		if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		    json_integer_value(v) > UINT32_MAX)
			return refuse(err, "stop_token_ids", "must be a list of token ids");
		r->stop_id[r->n_stop_id++] = (uint32_t)json_integer_value(v);
	}
	return 0;
}

int api_request_check_ids(const struct api_request *r, uint32_t vocab, struct ds_err *err)
{
	for (uint32_t i = 0; i < r->sample.n_bias; i++)
		if (r->bias[i].id >= vocab)
			return refuse(err, "logit_bias", "names an id outside the vocabulary");
	for (uint32_t i = 0; i < r->n_stop_id; i++)
		if (r->stop_id[i] >= vocab)
			return refuse(err, "stop_token_ids", "names an id outside the vocabulary");
	return 0;
}

static int add_stop(struct api_request *r, const json_t *v, struct ds_err *err)
{
	size_t len = json_string_length(v);
	if (!json_is_string(v) || len > API_STOP_LEN) {
		ds_err_set(err, DS_ERR_INPUT, 0, "stop", "read the request");
		return ds_err_why(
			err, "must be a string or a list of up to %d strings of up to %d bytes",
			API_STOPS_MAX, API_STOP_LEN);
	}
	if (len == 0)
		return 0;
	if (r->n_stop == API_STOPS_MAX) {
		ds_err_set(err, DS_ERR_INPUT, 0, "stop", "read the request");
		return ds_err_why(err, "has more than %d strings", API_STOPS_MAX);
	}
	char *copy = malloc(len);
	if (copy == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "stop", "read the request");
	memcpy(copy, json_string_value(v), len);
	r->stop[r->n_stop] = copy;
	r->stop_len[r->n_stop++] = len;
	return 0;
}

static int get_stops(const json_t *o, struct api_request *r, struct ds_err *err)
{
	const json_t *v = field(o, "stop");
	if (v == NULL)
		return 0;
	if (!json_is_array(v))
		return add_stop(r, v, err);
	for (size_t i = 0; i < json_array_size(v); i++)
		if (add_stop(r, json_array_get(v, i), err) != 0)
			return -1;
	return 0;
}

static int get_limits(const json_t *o, struct api_request *r, struct ds_err *err)
{
	int64_t max = 0, n = 1;
	bool got;
	/* The newer name wins where both are given. */
	if (get_whole(o, "max_tokens", 1, INT64_MAX, &max, &got, err) != 0 ||
	    get_whole(o, "max_completion_tokens", 1, INT64_MAX, &max, &got, err) != 0 ||
	    get_whole(o, "n", 1, INT64_MAX, &n, &got, err) != 0)
		return -1;
	if (n != 1)
		return refuse(err, "n", "only one answer per request is supported: n must be 1");
	r->max_tokens = max > UINT32_MAX ? UINT32_MAX : (uint32_t)max;
	return 0;
}

static int get_stream(const json_t *o, struct api_request *r, struct ds_err *err)
{
	const json_t *options = field(o, "stream_options");
	if (get_bool(o, "stream", &r->stream, err) != 0)
		return -1;
	if (options == NULL)
		return 0;
	if (!json_is_object(options))
		return refuse(err, "stream_options", "must be an object");
	if (get_bool(options, "include_usage", &r->include_usage, err) != 0)
		return refuse(err, "stream_options.include_usage", "must be true or false");
	return 0;
}

static int get_all(const json_t *o, struct api_request *r, struct ds_err *err)
{
	if (!json_is_object(o))
		return refuse(err, "", "the body must be a JSON object");
	const json_t *messages = field(o, "messages");
	if (!json_is_array(messages) || json_array_size(messages) == 0)
		return refuse(err, "messages", "must be a list of at least one message");
	const json_t *model = field(o, "model");
	if (model != NULL && !json_is_string(model))
		return refuse(err, "model", "must be a string");
	if (get_stream(o, r, err) != 0 || get_limits(o, r, err) != 0 ||
	    get_sampling(o, r, err) != 0 || get_penalties(o, r, err) != 0 ||
	    get_ends(o, r, err) != 0 || get_stops(o, r, err) != 0)
		return -1;
	return check_undone(o, err);
}

/* The body of another endpoint becomes the chat body that means the same. */
static int translate(const struct api_way *way, struct api_request *r, struct ds_err *err)
{
	json_t *chat = way->to_chat(r->body, err);
	if (chat != NULL && way->echo != NULL)
		r->echo = way->echo(r->body, err);
	json_decref(r->body);
	r->body = chat;
	return chat == NULL || (way->echo != NULL && r->echo == NULL) ? -1 : 0;
}

/* Replaces the @n bytes at @at, which is in @path. */
static void replace(char *path, size_t size, char *at, size_t n, const char *by)
{
	char all[sizeof(((struct ds_err *)0)->obj) * 2];
	snprintf(all, sizeof(all), "%.*s%s%s", (int)(at - path), path, by, at + n);
	snprintf(path, size, "%s", all);
}

void api_own_path(const struct api_way *way, char *path, size_t size)
{
	for (const struct api_name *k = way != NULL ? way->name : NULL;
	     k != NULL && k->chat != NULL; k++) {
		size_t n = strlen(k->chat);
		char *at = k->chat[0] == '.' ? strstr(path, k->chat) : path;
		if (at != NULL && strncmp(at, k->chat, n) == 0 && strchr(".[", at[n]) != NULL) {
			replace(path, size, at, n, k->own);
			return;
		}
	}
}

int api_request_parse(const char *text, size_t len, struct api_request *out, struct ds_err *err)
{
	return api_request_parse_by(NULL, text, len, out, err);
}

int api_request_parse_by(const struct api_way *way, const char *text, size_t len,
			 struct api_request *out, struct ds_err *err)
{
	json_error_t at;
	memset(out, 0, sizeof(*out));
	out->body = pyjson_load(text, len, 0, &at);
	if (out->body == NULL && json_error_code(&at) == json_error_out_of_memory)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "body", "read the request");
	if (out->body == NULL) {
		refuse(err, "", "the body is not JSON");
		return ds_err_why(err, "the body is not JSON: line %d column %d: %.150s", at.line,
				  at.column, at.text);
	}
	int rc = way != NULL ? translate(way, out, err) : 0;
	if (rc == 0 && (rc = get_all(out->body, out, err)) != 0)
		api_own_path(way, err->obj, sizeof(err->obj));
	if (rc != 0) {
		api_request_fini(out);
		return -1;
	}
	return 0;
}

void api_request_fini(struct api_request *r)
{
	json_decref(r->body);
	json_decref(r->echo);
	for (uint32_t i = 0; i < r->n_stop; i++)
		free(r->stop[i]);
	free(r->bias);
	memset(r, 0, sizeof(*r));
}

/* ---------------------------------- stop strings ---------------------------------- */

/* Length of the longest end of @text that a stop string begins with. */
static size_t open_end(const struct api_request *r, const char *text, size_t len)
{
	for (size_t from = 0; from < len; from++) {
		size_t tail = len - from;
		for (uint32_t i = 0; i < r->n_stop; i++)
			if (tail < r->stop_len[i] && memcmp(text + from, r->stop[i], tail) == 0)
				return tail;
	}
	return 0;
}

/*
 * The held text is shorter than the longest stop string, so each call looks at that and the new
 * text only, never at the whole answer. The string that ends first wins, then the longer one: that
 * is what byte by byte would find, so the pieces in which text comes do not matter.
 */
bool api_stop_put(struct api_stop *s, const char *text, size_t len, struct ds_buf *out)
{
	const char *first = NULL, *end = NULL;
	if (s->req->n_stop == 0) {
		ds_buf_put(out, text, len);
		return false;
	}
	ds_buf_put(&s->held, text, len);
	if (s->held.failed || s->held.len == 0) {
		out->failed |= s->held.failed;
		return false;
	}
	for (uint32_t i = 0; i < s->req->n_stop; i++) {
		size_t n = s->req->stop_len[i];
		const char *hit = memmem(s->held.data, s->held.len, s->req->stop[i], n);
		if (hit == NULL || (first != NULL && hit + n > end))
			continue;
		if (first == NULL || hit + n < end || hit < first) {
			first = hit;
			s->hit = s->req->stop[i];
		}
		end = hit + n;
	}
	size_t keep = 0, give = first != NULL ? (size_t)(first - s->held.data) : 0;
	if (first == NULL) {
		keep = open_end(s->req, s->held.data, s->held.len);
		give = s->held.len - keep;
	}
	ds_buf_put(out, s->held.data, give);
	memmove(s->held.data, s->held.data + give, keep);
	s->held.len = keep;
	return first != NULL;
}

void api_stop_end(struct api_stop *s, struct ds_buf *out)
{
	ds_buf_put(out, s->held.data, s->held.len);
	ds_buf_fini(&s->held);
}

/* ---------------------------------- ids ---------------------------------- */

int api_new_id(const char *prefix, char *out, struct ds_err *err)
{
	uint8_t r[16];
	if (random_bytes(r, sizeof(r), err) != 0)
		return -1;
	int n = snprintf(out, API_ID_BYTES, "%s", prefix);
	for (size_t i = 0; i < sizeof(r); i++)
		n += snprintf(out + n, API_ID_BYTES - (size_t)n, "%02x", r[i]);
	return 0;
}

/* ---------------------------------- errors and models ---------------------------------- */

void api_error_of(const struct ds_err *err, struct api_error *out)
{
	memset(out, 0, sizeof(*out));
	switch (err->kind) {
	case DS_ERR_INPUT:
	case DS_ERR_USAGE:
		out->status = 400;
		out->type = "invalid_request_error";
		snprintf(out->param, sizeof(out->param), "%s", err->obj);
		break;
	case DS_ERR_TIMEOUT:
		out->status = 503;
		out->type = "server_error";
		out->code = "overloaded";
		break;
	case DS_ERR_PEER:
		out->status = 503;
		out->type = "server_error";
		out->code = "unavailable";
		break;
	default:
		out->status = 500;
		out->type = "server_error";
		out->code = "internal_error";
	}
	if (out->status == 400)
		snprintf(out->message, sizeof(out->message), "%s%s%s%s%s", err->obj,
			 err->obj[0] != '\0' ? ": " : "", err->why, err->fix[0] != '\0' ? "; " : "",
			 err->fix);
	else
		ds_err_line(err, out->message, sizeof(out->message));
}

void api_put_error(struct ds_buf *out, const struct api_error *e)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	ds_json_object(&j);
	ds_json_key(&j, "error");
	ds_json_object(&j);
	ds_json_kstr(&j, "message", e->message);
	ds_json_kstr(&j, "type", e->type);
	ds_json_kstr(&j, "param", e->param[0] != '\0' ? e->param : NULL);
	ds_json_kstr(&j, "code", e->code);
	ds_json_end(&j);
	ds_json_end(&j);
}

static void put_model(struct ds_json *j, const char *name, int64_t created, uint32_t context)
{
	ds_json_object(j);
	ds_json_kstr(j, "id", name);
	ds_json_kstr(j, "object", "model");
	ds_json_kint(j, "created", created);
	ds_json_kstr(j, "owned_by", "dsengine");
	ds_json_kuint(j, "max_model_len", context);
	ds_json_end(j);
}

void api_put_model(struct ds_buf *out, const char *name, int64_t created, uint32_t context)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	put_model(&j, name, created, context);
	ds_buf_putc(out, '\n');
}

void api_put_models(struct ds_buf *out, const char *name, int64_t created, uint32_t context)
{
	struct ds_json j;
	ds_json_init(&j, out, 0);
	ds_json_object(&j);
	ds_json_kstr(&j, "object", "list");
	ds_json_key(&j, "data");
	ds_json_array(&j);
	put_model(&j, name, created, context);
	ds_json_end(&j);
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
}
