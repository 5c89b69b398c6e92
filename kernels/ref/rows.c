/*
 * rows.c - rows of the caches (model.md 3.3, 5): quantised when they are stored, read back exactly.
 */
#include "ref.h"

static uint8_t *row_at(const struct kern_cache *c, uint64_t e)
{
	return c->data + e % c->ring * kern_row_bytes(c->fmt, c->width);
}

static enum kern_quant quant_of(enum kern_row_fmt fmt)
{
	return fmt == KERN_ROW_Q8 ? KERN_Q8 : fmt == KERN_ROW_Q4KV ? KERN_Q4KV : KERN_Q4IDX;
}

static void row_write(const struct kern_cache *c, uint64_t e, const float *x)
{
	enum kern_quant kind = quant_of(c->fmt);
	uint32_t group = ref_group(kind);
	uint8_t *row = row_at(c, e);
	uint8_t *scale = row + (c->fmt == KERN_ROW_Q8 ? c->width : c->width / 2);

	if (c->fmt == KERN_ROW_F32) {
		memcpy(row, x, c->width * sizeof(*x));
		return;
	}
	for (uint32_t at = 0; at < c->width; at += group) {
		uint8_t code[32];

		scale[at / group] = ref_quantise(kind, x + at, group, code);
		if (kind == KERN_Q8)
			memcpy(row + at, code, group);
		else
			for (uint32_t i = 0; i < group; i += 2) /* low nibble first */
				row[(at + i) / 2] = (uint8_t)(code[i] | code[i + 1] << 4);
	}
}

void ref_row_read(const struct kern_cache *c, uint64_t e, float *x)
{
	enum kern_quant kind = quant_of(c->fmt);
	uint32_t group = ref_group(kind);
	const uint8_t *row = row_at(c, e);
	const uint8_t *scale = row + (c->fmt == KERN_ROW_Q8 ? c->width : c->width / 2);

	if (c->fmt == KERN_ROW_F32) {
		memcpy(x, row, c->width * sizeof(*x));
		return;
	}
	for (uint32_t at = 0; at < c->width; at += group) {
		uint8_t byte = scale[at / group];
		float s = kind == KERN_Q4KV ? kern_e4m3(byte) : kern_e8m0(byte);

		if (kind == KERN_Q8)
			for (uint32_t i = at; i < at + group; i++)
				x[i] = kern_e4m3(row[i]) * s;
		else
			for (uint32_t i = at; i < at + group; i += 2) {
				x[i] = kern_e2m1(row[i / 2] & 15) * s;
				x[i + 1] = kern_e2m1(row[i / 2] >> 4) * s;
			}
		for (uint32_t i = at; i < at + group && s != s; i++)
			x[i] = kern_canon(x[i]);
	}
}

void ref_row_put(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first, const float *x,
		 uint32_t n)
{
	assert(c->width % 32 == 0 && (ctx->numerics == KERN_NATIVE || c->fmt == KERN_ROW_F32));
	for (uint32_t i = 0; i < n; i++)
		row_write(c, first + i, x + (size_t)i * c->width);
}

void ref_row_get(struct kern_ctx *ctx, const struct kern_cache *c, uint64_t first, uint32_t n,
		 float *x)
{
	(void)ctx;
	for (uint32_t i = 0; i < n; i++)
		ref_row_read(c, first + i, x + (size_t)i * c->width);
}
