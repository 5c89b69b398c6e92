/*
 * jsonin.c - jansson's parser behind our error object.
 *
 * Owns the one thing jansson does not say: when its memory runs out it reports a syntax error, or
 * nothing at all. errno tells the two apart.
 */
#include "jsonin.h"

#include <errno.h>

json_t *eng_json_load(const char *text, size_t len, const char *obj, const char *what,
		      struct ds_err *err)
{
	json_error_t je;

	errno = 0;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	if (root != NULL && errno != ENOMEM)
		return root;
	if (errno == ENOMEM) { /* also when it went on, a byte short */
		json_decref(root);
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, obj, "%s", what);
		return NULL;
	}
	ds_err_set(err, DS_ERR_INPUT, 0, obj, "%s", what);
	ds_err_why(err, "not JSON, line %d column %d: %s", je.line, je.column, je.text);
	return NULL;
}
