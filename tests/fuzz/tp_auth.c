/*
 * tp_auth.c - any bytes as the other side of a handshake: whoever does not know the key never gets
 * in, and no more bytes are asked for than a handshake has.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tp_auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum tp_refusal key_fn(void *arg, const struct tp_hello *h, uint8_t key[TP_AUTH_KEY_BYTES])
{
	if (h->path[sizeof(h->path) - 1] != '\0')
		abort();
	memcpy(key, arg, TP_AUTH_KEY_BYTES);
	return h->world == 9 ? TP_REFUSE_WORLD : TP_REFUSE_NONE;
}

static void talk(struct tp_hs *hs, const uint8_t *data, size_t size)
{
	size_t taken = 0;
	enum tp_hs_result res = TP_HS_MORE;
	while (size > 0 && res == TP_HS_MORE) {
		size_t n = tp_hs_want(hs);
		if (n == 0 || n > TP_HELLO_BYTES || taken + n > 256)
			abort();
		n = n < size ? n : size;
		uint8_t *exact = malloc(n);
		if (exact == NULL)
			return;
		memcpy(exact, data, n);
		res = tp_hs_feed(hs, exact, n);
		free(exact);
		taken += n;
		data += n;
		size -= n;
		if (hs->n_out > sizeof(hs->out))
			abort();
	}
	if (res == TP_HS_VERIFIED || res == TP_HS_DONE)
		abort();
	if (res == TP_HS_REFUSED && tp_refusal_text(hs->refusal) == NULL)
		abort();
}

/* Two states from one input; equal texts must never differ, and a difference has words. */
static void states(const uint8_t *data, size_t size)
{
	struct ds_err err = { 0 };
	char *a = strndup((const char *)data, size / 2);
	char *b = strndup((const char *)data + size / 2, size - size / 2);
	if (a != NULL && b != NULL) {
		if (tp_state_diff(a, 0, b, 1, &err) != 0 && err.why[0] == '\0')
			abort();
		if (strcmp(a, b) == 0 && err.kind != DS_ERR_NONE && strchr(a, '=') == a + 1 &&
		    strchr(a, '\n') == NULL)
			abort();
	}
	free(a);
	free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t key[TP_AUTH_KEY_BYTES] = { 0xa7, 0x31, 0x5c };
	static const struct tp_hello h = { .kind = TP_HELLO_BOOT, .from = 1, .to = 0, .world = 2 };
	struct tp_hs hs;
	states(data, size);
	if (tp_hs_listen(&hs, key_fn, key, NULL) == 0)
		talk(&hs, data, size);
	if (tp_hs_connect(&hs, &h, key, NULL) == 0)
		talk(&hs, data, size);
	return 0;
}
