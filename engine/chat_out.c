/*
 * chat_out.c - generated tokens into reasoning and content.
 *
 * Marks are recognised as tokens, never as text: a model that writes about "</think>" spells it with
 * ordinary tokens, and that is content. So nothing but line feeds need be held back, and the result
 * depends on the sequence of bytes and marks alone, not on how they were chunked.
 */
#include <string.h>

#include "chat.h"

void chat_out_init(struct chat_out *o, const struct tok *t, bool thinking)
{
	*o = (struct chat_out){
		.t = t,
		.think_close = tok_special(t, "</think>"),
		.dsml = tok_special(t, "\uff5cDSML\uff5c"),
		.reasoning = thinking,
	};
}

static void release_lf(struct chat_out *o, struct ds_buf *out)
{
	for (; o->n_lf > 0; o->n_lf--)
		tok_stream_put(&o->stream, "\n", 1, out);
}

/* Line feeds in front of the first visible byte are dropped, and so are those in front of "</think>". */
static void put_bytes(struct chat_out *o, const char *p, size_t len, struct ds_buf *out)
{
	for (size_t i = 0; i < len; i++) {
		if (p[i] == '\n' && !o->started)
			continue;
		if (p[i] == '\n' && o->reasoning) {
			o->n_lf++;
			continue;
		}
		release_lf(o, out);
		o->started = true;
		tok_stream_put(&o->stream, p + i, 1, out);
	}
}

void chat_out_put(struct chat_out *o, uint32_t id, struct ds_buf *reasoning, struct ds_buf *content)
{
	size_t len = 0;
	const char *p = tok_bytes(o->t, id, &len);

	o->n_reasoning += o->reasoning;
	if ((int64_t)id == o->think_close && o->reasoning) {
		tok_stream_end(&o->stream, reasoning);
		o->reasoning = o->started = false;
		o->n_lf = 0;
		return;
	}
	if (p == NULL || (tok_is_special(o->t, id) && (int64_t)id != o->dsml))
		return;
	put_bytes(o, p, len, o->reasoning ? reasoning : content);
}

void chat_out_end(struct chat_out *o, struct ds_buf *reasoning, struct ds_buf *content)
{
	struct ds_buf *out = o->reasoning ? reasoning : content;

	/* What was held back comes after an incomplete character: a later byte would have settled both. */
	tok_stream_end(&o->stream, out);
	release_lf(o, out);
}
