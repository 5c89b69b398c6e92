/*
 * settings.h - settings of `dsengine serve`: /etc/dsengine.conf, and the options that override its rows.
 *
 * One table serves file, options, help and the man page. Nothing here opens a file: the bytes were
 * read before root was given up, and are parsed after that.
 */
#ifndef ENG_SETTINGS_H
#define ENG_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "err.h"
#include "ini.h"
#include "tp.h"

#define ENG_CONF_FILE	"/etc/dsengine.conf"
#define ENG_SECRET_FILE "/etc/dsengine/secret"
#define ENG_HOST_REPORT "/run/dsprep/host.json"
#define ENG_PORT_BASE \
	8700		  /* rank N listens on ENG_PORT_BASE + N unless the config says otherwise */
#define ENG_WORLD_MAX	2 /* ranks that this version runs */
#define ENG_OPTIONS_MAX 64

/* Values of the table's rows. Counts and times are int64_t because the reader's integers are. */
struct eng_settings {
	char model[4096]; /* directory of the checkpoint */
	char name[128];	  /* served name; "" = the directory's own */
	int numerics;	  /* enum kern_numerics */
	char kernels[16]; /* set name; "" = the best here */
	int64_t threads;  /* 0 = processors of this machine */
	int64_t context;  /* positions; 0 = the model's */
	int64_t prefill_chunk;

	char host[64]; /* listen address, numeric */
	int64_t port;
	char key_file[4096]; /* "" = no keys */
	bool insecure_no_auth;
	char allowed_hosts[1024]; /* comma separated */
	int64_t max_tokens;	  /* for requests that say nothing */
	int64_t time_limit_s;	  /* of one request, from its first step */

	int64_t rank, world;
	char addr[TP_WORLD_MAX][256]; /* rank.N = HOST[:PORT]; "" = not given */
	char secret_file[4096];
	char host_report[4096];
	int transport; /* 0 auto, 1 tcp */
};

/* The command line of serve: options in order, and what is no row of the config. */
struct eng_options {
	const char *conf_file;		    /* -c; NULL = ENG_CONF_FILE if it is there */
	const char *user;		    /* --user; NULL = the default account */
	const char *log;		    /* --log; NULL = info */
	const char *secret_file, *key_file; /* views of the values below, for reading them early */
	bool help;
	struct {
		const char *option, *key, *value;
	} set[ENG_OPTIONS_MAX];
	size_t n_set;
};

/**
 * eng_options_parse() - argv of serve (argv[0] is its name). Both "--port 80" and "--port=80".
 * @out: views into argv. Return: 0; -1 with DS_ERR_USAGE naming the option.
 */
int eng_options_parse(int argc, char **argv, struct eng_options *out, struct ds_err *err);

/** eng_options_help() - the option list, from the table. */
void eng_options_help(FILE *f);

/**
 * eng_settings_load() - defaults, then the file's values, then the options'; and what must hold
 * between them: a model, an address for every rank, a key file behind an address that is not loopback.
 * @text: the file's bytes, NULL for none; @file: its name
 * Return: 0; -1 with DS_ERR_USAGE naming file and line, or the option.
 */
int eng_settings_load(const char *file, const char *text, size_t len, const struct eng_options *o,
		      struct eng_settings *out, struct ds_err *err);

/** eng_settings_rows() - the table, [*n]; for tests that hold the man page against it. Returns view. */
const struct ds_setting *eng_settings_rows(size_t *n);

/** eng_host_is_loopback() - whether a numeric address, IPv4 or IPv6, is the host's own loopback. */
bool eng_host_is_loopback(const char *host);

#endif
