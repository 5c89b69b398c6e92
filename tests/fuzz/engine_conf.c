/*
 * engine_conf.c - any bytes as dsengine.conf: settings within their bounds, or an error that says why.
 */
#include <stdlib.h>
#include <string.h>

#include "settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct eng_options none;
	struct eng_settings s;
	struct ds_err err = { 0 };
	char *exact = malloc(size > 0 ? size : 1);
	if (exact == NULL)
		return 0;
	memcpy(exact, data, size);
	if (eng_settings_load("fuzz", exact, size, &none, &s, &err) != 0) {
		if (err.kind != DS_ERR_USAGE || err.why[0] == '\0')
			abort();
	} else if (s.model[0] == '\0' || s.rank >= s.world || s.port < 1 || s.port > 65535 ||
		   (!eng_host_is_loopback(s.host) && s.key_file[0] == '\0' &&
		    !s.insecure_no_auth)) {
		abort();
	}
	free(exact);
	return 0;
}
