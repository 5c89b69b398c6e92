/*
 * settings.c - settings of `dsengine serve` as one table, and the options that name its rows.
 */
#include "settings.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

static int set_rank_addr(const struct ds_ini_item *item, void *arg, struct ds_err *err)
{
	struct eng_settings *s = arg;
	const char *digits = item->key + strlen("rank.");
	char *end;
	unsigned long r = strtoul(digits, &end, 10);
	if (!isdigit((unsigned char)digits[0]) || *end != '\0' || r >= ENG_WORLD_MAX)
		return ds_ini_bad(item, err, "%.40s: ranks are numbered from 0 to %d", item->key,
				  ENG_WORLD_MAX - 1);
	if (s->addr[r][0] != '\0')
		return ds_ini_bad(item, err, "%.40s was given already", item->key);
	const char *colon = strrchr(item->value, ':');
	size_t host = colon != NULL ? (size_t)(colon - item->value) : strlen(item->value);
	if (host == 0 || host >= 240)
		return ds_ini_bad(item, err, "%.40s = \"%.60s\" is no HOST or HOST:PORT", item->key,
				  item->value);
	unsigned long port = ENG_PORT_BASE + r;
	if (colon != NULL) {
		port = strtoul(colon + 1, &end, 10);
		if (!isdigit((unsigned char)colon[1]) || *end != '\0' || port < 1 || port > 65535)
			return ds_ini_bad(item, err, "%.40s: port \"%.20s\" is outside 1..65535",
					  item->key, colon + 1);
	}
	snprintf(s->addr[r], sizeof(s->addr[r]), "%.*s:%lu", (int)host, item->value, port);
	return 0;
}

static const char *const numerics_words[] = { "native", "exact", NULL };
static const char *const transport_words[] = { "auto", "tcp", NULL };
_Static_assert(KERN_NATIVE == 0 && KERN_EXACT == 1, "numerics_words is indexed by the enum");

#define ENG_SECTION "engine"

#define AT(field) offsetof(struct eng_settings, field)
#define STR(field) \
	.type = DS_SET_STR, .offset = AT(field), .size = sizeof(((struct eng_settings *)0)->field)
#define INT(field, lo, hi) .type = DS_SET_INT, .offset = AT(field), .min = (lo), .max = (hi)

/* clang-format off */
static const struct ds_setting rows[] = {
	{ ENG_SECTION, "model", STR(model), .unit = "", .help = "directory of the checkpoint" },
	{ ENG_SECTION, "name", STR(name), .unit = "", .help = "name that clients see; default the directory's" },
	{ ENG_SECTION, "numerics", .type = DS_SET_ENUM, .unit = "", .def = "native", .words = numerics_words,
	  .offset = AT(numerics), .help = "exact or native arithmetic" },
	{ ENG_SECTION, "kernels", STR(kernels), .unit = "", .help = "kernel set; default the best of this processor" },
	{ ENG_SECTION, "threads", INT(threads, 0, 256), .unit = "", .def = "0", .help = "compute threads; 0 = all processors" },
	{ ENG_SECTION, "context", INT(context, 0, 1 << 20), .unit = "tokens", .def = "0", .help = "positions of a sequence; 0 = the model's" },
	{ ENG_SECTION, "prefill_chunk", INT(prefill_chunk, 1, 65536), .unit = "tokens", .def = "256", .help = "most prompt tokens in one step" },
	{ ENG_SECTION, "host", STR(host), .unit = "", .def = "127.0.0.1", .help = "listen address, numeric" },
	{ ENG_SECTION, "port", INT(port, 1, 65535), .unit = "", .def = "8000", .help = "listen port" },
	{ ENG_SECTION, "api_key_file", STR(key_file), .unit = "", .help = "file of keys, one a line" },
	{ ENG_SECTION, "insecure_no_auth", .type = DS_SET_BOOL, .unit = "", .def = "no", .offset = AT(insecure_no_auth),
	  .help = "allow an address other than loopback without keys" },
	{ ENG_SECTION, "allowed_hosts", STR(allowed_hosts), .unit = "", .help = "more names that a Host header may carry, comma separated" },
	{ ENG_SECTION, "max_tokens", INT(max_tokens, 1, 1 << 20), .unit = "tokens", .def = "32768", .help = "length limit of requests that name none" },
	{ ENG_SECTION, "time_limit_s", INT(time_limit_s, 1, 86400), .unit = "s", .def = "3600", .help = "time limit of one request, without its wait" },
	{ ENG_SECTION, "world", INT(world, 1, ENG_WORLD_MAX), .unit = "", .def = "1", .help = "number of ranks" },
	{ ENG_SECTION, "rank", INT(rank, 0, ENG_WORLD_MAX - 1), .unit = "", .def = "0", .help = "this process's rank" },
	{ ENG_SECTION, "rank.*", .type = DS_SET_CALL, .unit = "", .call = set_rank_addr, .help = "rank.N = HOST[:PORT], where rank N is reached" },
	{ ENG_SECTION, "secret_file", STR(secret_file), .unit = "", .def = ENG_SECRET_FILE, .help = "32 bytes that all ranks share" },
	{ ENG_SECTION, "host_report", STR(host_report), .unit = "", .def = ENG_HOST_REPORT, .help = "what dsprep knows of this host's rails" },
	{ ENG_SECTION, "transport", .type = DS_SET_ENUM, .unit = "", .def = "auto", .words = transport_words,
	  .offset = AT(transport), .help = "auto or tcp" },
};

/* Options: the row that each one sets, and names that users of other servers know. */
static const struct {
	const char *option, *key, *arg;
} options[] = {
	{ "-m",                      "model",              "DIR" },
	{ "--name",                  "name",               "NAME" },
	{ "--numerics",              "numerics",           "exact|native" },
	{ "--kernels",               "kernels",            "SET" },
	{ "--threads",               "threads",            "N" },
	{ "--context",               "context",            "N" },
	{ "--prefill-chunk",         "prefill_chunk",      "N" },
	{ "--host",                  "host",               "ADDR" },
	{ "--port",                  "port",               "N" },
	{ "--api-key-file",          "api_key_file",       "FILE" },
	{ "--insecure-no-auth",      "insecure_no_auth",   NULL },
	{ "--allowed-hosts",         "allowed_hosts",      "NAME,..." },
	{ "--max-tokens",            "max_tokens",         "N" },
	{ "--time-limit",            "time_limit_s",       "SECONDS" },
	{ "--world",                 "world",              "N" },
	{ "--rank",                  "rank",               "N" },
	{ "--secret-file",           "secret_file",        "FILE" },
	{ "--host-report",           "host_report",        "FILE" },
	{ "--transport",             "transport",          "auto|tcp" },
	/* Aliases; not in the help, in the man page. */
	{ "--served-model-name",     "name",               NULL },
	{ "--max-model-len",         "context",            NULL },
	{ "--context-length",        "context",            NULL },
	{ "--tensor-parallel-size",  "world",              NULL },
	{ "--tp",                    "world",              NULL },
};
/* clang-format on */

#define N_ROWS	  (sizeof(rows) / sizeof(rows[0]))
#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

const struct ds_setting *eng_settings_rows(size_t *n)
{
	*n = N_ROWS;
	return rows;
}

static const struct ds_setting *row_of(const char *key)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].key, key) == 0)
			return &rows[i];
	return NULL;
}

/* An option of a yes/no row takes no value. */
static bool is_flag(size_t i)
{
	const struct ds_setting *r = row_of(options[i].key);
	return r != NULL && r->type == DS_SET_BOOL;
}

static int bad_option(const char *word, const char *why, struct ds_err *err)
{
	ds_err_set(err, DS_ERR_USAGE, 0, word, "read the command line");
	ds_err_why(err, "%s", why);
	return ds_err_fix(err, "dsengine serve --help lists the options");
}

/* Splits "--name=value"; @value is NULL when there is no "=". Return: length of the name. */
static size_t split(const char *word, const char **value)
{
	const char *eq = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
	*value = eq != NULL ? eq + 1 : NULL;
	return eq != NULL ? (size_t)(eq - word) : strlen(word);
}

static bool is_word(const char *word, size_t len, const char *want)
{
	return strlen(want) == len && memcmp(word, want, len) == 0;
}

static int add_row_option(size_t i, const char *value, struct eng_options *out, struct ds_err *err)
{
	if (out->n_set == ENG_OPTIONS_MAX)
		return bad_option(options[i].option, "too many options", err);
	out->set[out->n_set].option = options[i].option;
	out->set[out->n_set].key = options[i].key;
	out->set[out->n_set++].value = value;
	if (strcmp(options[i].key, "secret_file") == 0)
		out->secret_file = value;
	if (strcmp(options[i].key, "api_key_file") == 0)
		out->key_file = value;
	return 0;
}

int eng_options_parse(int argc, char **argv, struct eng_options *out, struct ds_err *err)
{
	*out = (struct eng_options){ 0 };
	for (int a = 1; a < argc; a++) {
		const char *value;
		size_t len = split(argv[a], &value);
		const char **own = is_word(argv[a], len, "-c")	     ? &out->conf_file
				   : is_word(argv[a], len, "--user") ? &out->user
				   : is_word(argv[a], len, "--log")  ? &out->log
								     : NULL;
		size_t i = 0;
		while (own == NULL && i < N_OPTIONS && !is_word(argv[a], len, options[i].option))
			i++;
		if (is_word(argv[a], len, "--help") && value == NULL) {
			out->help = true;
			continue;
		}
		if (i == N_OPTIONS)
			return bad_option(argv[a], "no such option", err);
		bool flag = own == NULL && is_flag(i);
		if (flag && value != NULL)
			return bad_option(argv[a], "takes no value", err);
		const char *name = argv[a];
		if (flag)
			value = "yes";
		else if (value == NULL && a + 1 < argc)
			value = argv[++a];
		if (value == NULL || value[0] == '\0')
			return bad_option(name, "needs a value", err);
		if (own != NULL)
			*own = value;
		else if (add_row_option(i, value, out, err) != 0)
			return -1;
	}
	return 0;
}

void eng_options_help(FILE *f)
{
	fprintf(f, "usage: dsengine serve [-c FILE] [-m DIR] [OPTION...]\n");
	fprintf(f, "  %-28s %s\n", "-c FILE", "settings; default " ENG_CONF_FILE " if it is there");
	for (size_t i = 0; i < N_OPTIONS; i++) {
		char left[64];
		const struct ds_setting *r = row_of(options[i].key);
		if (r == NULL || (options[i].arg == NULL && !is_flag(i)))
			continue;
		snprintf(left, sizeof(left), "%s%s%s", options[i].option,
			 options[i].arg != NULL ? " " : "",
			 options[i].arg != NULL ? options[i].arg : "");
		fprintf(f, "  %-28s %s\n", left, r->help);
	}
	fprintf(f, "  %-28s %s\n", "--user NAME|UID", "who to become when started as root");
	fprintf(f, "  %-28s %s\n", "--log FILTER", "for example warn,http=debug; default info");
}

bool eng_host_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return (ntohl(v4.s_addr) >> 24) == 127;
	return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static int bad_setting(const char *obj, struct ds_err *err, const char *why, const char *fix)
{
	ds_err_set(err, DS_ERR_USAGE, 0, obj, "read settings");
	ds_err_why(err, "%s", why);
	return ds_err_fix(err, "%s", fix);
}

static int check_together(const struct eng_settings *s, struct ds_err *err)
{
	struct in6_addr any;
	if (s->model[0] == '\0')
		return bad_setting("model", err, "no model directory was given",
				   "give -m DIR, or model = DIR in " ENG_CONF_FILE);
	if (inet_pton(AF_INET, s->host, &any) != 1 && inet_pton(AF_INET6, s->host, &any) != 1)
		return bad_setting("host", err, "not a numeric IPv4 or IPv6 address",
				   "for example --host 127.0.0.1");
	if (!eng_host_is_loopback(s->host) && s->key_file[0] == '\0' && !s->insecure_no_auth)
		return bad_setting(
			"host", err,
			"an address other than loopback without keys is open to the network",
			"give --api-key-file FILE, or --insecure-no-auth");
	if (s->rank >= s->world)
		return bad_setting("rank", err, "not below the world",
				   "ranks are numbered from 0 to world - 1");
	for (int64_t r = 0; s->world > 1 && r < s->world; r++) {
		char obj[16], fix[96];
		snprintf(obj, sizeof(obj), "rank.%d", (int)r);
		snprintf(fix, sizeof(fix), "add %s = HOST:%d to the config", obj,
			 ENG_PORT_BASE + (int)r);
		if (s->addr[r][0] == '\0')
			return bad_setting(obj, err, "a world of several ranks needs its address",
					   fix);
	}
	return 0;
}

int eng_settings_load(const char *file, const char *text, size_t len, const struct eng_options *o,
		      struct eng_settings *out, struct ds_err *err)
{
	memset(out, 0, sizeof(*out));
	if (ds_settings_load(rows, N_ROWS, out, file, text, len, NULL, err) != 0)
		return -1;
	for (size_t i = 0; i < o->n_set; i++) {
		struct ds_ini_item item = { .file = o->set[i].option,
					    .section = ENG_SECTION,
					    .key = o->set[i].key,
					    .value = o->set[i].value };
		struct ds_err bad = { 0 };
		if (ds_setting_set(row_of(item.key), out, &item, &bad) != 0)
			return bad_option(item.file, bad.why, err); /* it has no line number */
	}
	return check_together(out, err);
}
