/*
 * linear.c - y = W x (model.md 3.4, 3.5), weights kept as the checkpoint stores them.
 *
 * The order that every set must keep: k ascending; inside a block of 32 acc = fma(w, x, acc) from
 * zero; then sum = fma(acc, scale, sum) with scale = fp32(s_w * s_x).
 */
#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "ref.h"

/* Bytes of @cols elements in a row of data. */
static size_t row_bytes(enum kern_fmt fmt, uint32_t cols)
{
	switch (fmt) {
	case KERN_F32:
		return (size_t)cols * 4;
	case KERN_BF16:
		return (size_t)cols * 2;
	case KERN_FP8:
		return cols;
	case KERN_FP4:
		break;
	}
	return cols / 2;
}

struct kern_weight *ref_weight_prepare(const struct kern_matrix *m, struct ds_err *err)
{
	size_t stride = row_bytes(m->fmt, m->cols), scale_stride = (m->cols + 31) / 32;
	size_t scale_rows = m->fmt == KERN_FP8	 ? (m->rows + 31) / 32
			    : m->fmt == KERN_FP4 ? m->rows
						 : 0;
	struct kern_weight *w = calloc(1, sizeof(*w));

	assert(m->fmt != KERN_FP4 || m->cols % 32 == 0);
	if (w == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "weight", "allocate");
		return NULL;
	}
	*w = (struct kern_weight){ .fmt = m->fmt,
				   .rows = m->rows,
				   .cols = m->cols,
				   .stride = stride,
				   .scale_stride = scale_stride };
	w->bytes = sizeof(*w) + m->rows * stride + scale_rows * scale_stride;
	if ((w->data = kern_alloc(m->rows * stride, "weight", err)) == NULL)
		goto free_weight;
	if (scale_rows > 0 &&
	    (w->scale = kern_alloc(scale_rows * scale_stride, "weight", err)) == NULL)
		goto free_weight;
	for (size_t r = 0; r < m->rows; r++)
		memcpy(w->data + r * stride, (const uint8_t *)m->data + r * m->stride, stride);
	for (size_t r = 0; r < scale_rows; r++)
		memcpy(w->scale + r * scale_stride, m->scale + r * m->scale_stride, scale_stride);
	return w;
free_weight:
	ref_weight_free(w);
	return NULL;
}

void ref_weight_free(struct kern_weight *w)
{
	if (w == NULL)
		return;
	kern_free(w->data);
	kern_free(w->scale);
	free(w);
}

size_t ref_weight_bytes(const struct kern_weight *w)
{
	return w->bytes;
}

/* Channels [k, k + size) of output @o as floats, without their scale; size is at most 32. */
static void read_block(const struct kern_weight *w, uint32_t o, uint32_t k, uint32_t size, float *v)
{
	const uint8_t *row = w->data + o * w->stride;

	for (uint32_t i = 0; i < size; i++) {
		uint8_t pair;
		uint16_t half;

		switch (w->fmt) {
		case KERN_F32:
			memcpy(&v[i], row + (size_t)(k + i) * 4, 4);
			break;
		case KERN_BF16:
			memcpy(&half, row + (size_t)(k + i) * 2, 2);
			v[i] = kern_from_bits((uint32_t)half << 16);
			break;
		case KERN_FP8:
			v[i] = kern_e4m3(row[k + i]);
			break;
		case KERN_FP4:
			pair = row[(k + i) / 2];
			v[i] = kern_e2m1((k + i) % 2 == 0 ? pair & 15 : pair >> 4);
			break;
		}
	}
}

static float block_scale(const struct kern_weight *w, uint32_t o, uint32_t block)
{
	if (w->scale == NULL)
		return 1.0f;
	return kern_e8m0(w->scale[(w->fmt == KERN_FP8 ? o / 32 : o) * w->scale_stride + block]);
}

static void store(enum ref_store how, float sum, float *y)
{
	switch (how) {
	case REF_SET:
		*y = kern_canon(sum);
		break;
	case REF_ROUND:
		*y = kern_bf16_round(sum);
		break;
	case REF_ADD:
		*y = kern_canon(*y + sum);
		break;
	}
}

static float dot(const struct ref_linear_job *job, uint32_t o, uint32_t row)
{
	const float *x = job->q + row * job->q_stride;
	const float *s_x = job->scale + row * job->scale_stride;
	float sum = 0.0f;

	for (uint32_t k = job->k0; k < job->k1; k += 32) {
		uint32_t size = job->k1 - k < 32 ? job->k1 - k : 32;
		float v[32], acc = 0.0f;

		read_block(job->w, o, k, size, v);
		for (uint32_t i = 0; i < size; i++)
			acc = kern_fma(v[i], x[k - job->k0 + i], acc);
		sum = kern_fma(acc, block_scale(job->w, o, k / 32) * s_x[(k - job->k0) / 32], sum);
	}
	return sum;
}

static void outputs(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct ref_linear_job *job = arg;

	(void)part;
	for (uint32_t i = 0; i < job->n; i++) {
		uint32_t row = job->rows == NULL ? i : job->rows[i];

		for (uint32_t o = first; o < end; o++)
			store(job->store, dot(job, o, row), job->y + row * job->stride + o);
	}
}

void ref_linear_run(struct kern_ctx *ctx, const struct ref_linear_job *job)
{
	struct ref_linear_job mine = *job;

	kern_parallel(ctx->pool, job->w->rows, (uint64_t)job->n * (job->k1 - job->k0) * 4, outputs,
		      &mine);
}
