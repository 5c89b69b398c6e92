/*
 * format.c - stored number formats one value at a time (model.md 3.1), and the sizes of what
 * operations are given: cache rows and scratch.
 */
#include <assert.h>

#include "kern_math.h"
#include "kernels.h"
#include "pool.h"

float kern_bf16_to_f32(uint16_t v)
{
	return kern_from_bits((uint32_t)v << 16);
}

uint16_t kern_f32_to_bf16(float v)
{
	return (uint16_t)(kern_bits(kern_bf16_round(v)) >> 16);
}

float kern_e4m3_to_f32(uint8_t v)
{
	return kern_e4m3(v);
}

float kern_e8m0_to_f32(uint8_t v)
{
	return kern_e8m0(v);
}

float kern_e2m1_to_f32(uint8_t code)
{
	return kern_e2m1(code);
}

size_t kern_row_bytes(enum kern_row_fmt fmt, uint32_t width)
{
	size_t bytes = (size_t)width * sizeof(float);

	assert(width % 32 == 0);
	switch (fmt) {
	case KERN_ROW_F32:
		break;
	case KERN_ROW_Q8:
		bytes = width + width / 32;
		break;
	case KERN_ROW_Q4KV:
		bytes = width / 2 + width / 16;
		break;
	case KERN_ROW_Q4IDX:
		bytes = width / 2 + width / 32;
		break;
	}
	return (bytes + 3) / 4 * 4;
}

/* Two heaps of pairs for each thread at work: the best entries and the best blocks. */
size_t kern_index_scratch(uint32_t n, uint32_t topk, uint32_t n_blocks)
{
	size_t threads = n < KERN_THREADS_MAX ? n : KERN_THREADS_MAX;

	return threads * 2 * ((size_t)topk + n_blocks);
}

/* Two inner vectors with scales and one row number for each row. */
size_t kern_moe_scratch(uint32_t n, uint32_t inner)
{
	return (size_t)n * (2 * (size_t)inner + (inner + 31) / 32 + 1);
}
