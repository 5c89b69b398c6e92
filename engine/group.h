/*
 * group.h - this rank's place among the others: from settings and secret to a tp group, again and
 * again when one was lost.
 */
#ifndef ENG_GROUP_H
#define ENG_GROUP_H

#include <stdbool.h>

#include "engine.h"
#include "pathwatch.h"
#include "settings.h"
#include "tp.h"

#define GROUP_TRY_MS 3000 /* one attempt; between two of them a stop is noticed */

struct group {
	struct tp_conf tc;
	struct tp *tp;		 /* NULL while there is none */
	struct pathwatch *watch; /* of tp */
};

/**
 * group_init() - what does not change between attempts: addresses, paths, secret, state to compare.
 * @secret: TP_SECRET_BYTES, copied. A host report that is not there is no error.
 * Return: 0; -1 DS_ERR_USAGE, DS_ERR_INPUT or DS_ERR_HOST.
 */
int group_init(struct group *g, const struct eng_settings *s, const struct eng_conf *conf,
	       const uint8_t *secret, struct ds_err *err);

/**
 * group_form() - one attempt of GROUP_TRY_MS. Return: 0; -1: DS_ERR_TIMEOUT (somebody is missing) or
 * what tp_open() says.
 */
int group_form(struct group *g, struct ds_err *err);
/** group_leave() - close the group; the others see an orderly end, or none if they are gone. */
void group_leave(struct group *g);
/** group_fini() - leave, and forget the secret. */
void group_fini(struct group *g);

#endif
