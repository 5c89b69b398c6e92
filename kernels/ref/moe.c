/*
 * moe.c - routed and shared experts to leaf partials (model.md 4.7, design 4.3).
 *
 * A leaf is a range of inner channels. Within it each chosen expert's dot product is finished, then
 * added to the leaf's sum in routing order, the shared expert last; the first product starts the
 * sum. To keep that order for every row while reading an expert once for all rows that chose it at
 * the same rank, slots are the outer loop and the rows of a slot are grouped by expert.
 */
#include "ref.h"

/* One expert's matrices and the rows that go through it. */
struct expert {
	const struct kern_weight *w1, *w3, *w2;
	const uint32_t *rows; /* [n] */
	uint32_t n;
	const float *weight; /* of row i at weight[i * step]; NULL = 1 */
	uint32_t step;
	enum ref_store store; /* first product of a leaf's sum, or a further one */
};

/* Scratch, cut up; every array has one line per row of the call. */
struct room {
	float *a, *b;	/* [n, inner] w1 u, w3 u; a then holds the quantised input of w2 */
	float *scale;	/* [n, ceil(inner / 32)] */
	uint32_t *rows; /* [n] */
	size_t inner, blocks;
};

static struct room cut(const struct kern_moe_args *m)
{
	struct room r = { .inner = m->leaf_at[m->n_leaf] };

	r.blocks = (r.inner + 31) / 32;
	r.a = m->scratch;
	r.b = r.a + m->n * r.inner;
	r.scale = r.b + m->n * r.inner;
	r.rows = (uint32_t *)(void *)(r.scale + m->n * r.blocks);
	return r;
}

static float clamp(float v, float low, float high)
{
	return v < low ? low : v > high ? high : v; /* a NaN stays */
}

struct gate_job {
	const struct kern_ctx *ctx;
	const struct expert *e;
	const struct room *r;
	float limit;
};

/* t = bf16(w * (a * sigmoid(a)) * b), then Q8, over the values in a. */
static void gate_rows(void *arg, uint32_t part, uint32_t first, uint32_t end)
{
	const struct gate_job *job = arg;
	const struct room *r = job->r;

	(void)part;
	for (uint32_t i = first; i < end; i++) {
		uint32_t row = job->e->rows[i];
		float *a = r->a + row * r->inner, *b = r->b + row * r->inner;
		float w = job->e->weight == NULL ? 1.0f : job->e->weight[row * job->e->step];

		for (size_t d = 0; d < r->inner; d++) {
			float g = a[d] > job->limit ? job->limit : a[d];
			float up = clamp(b[d], -job->limit, job->limit);

			a[d] = ref_keep(job->ctx, w * (g * kern_sigmoid(g)) * up);
		}
		for (size_t k = 0; k < r->inner; k += 32) {
			uint32_t size = (uint32_t)(r->inner - k < 32 ? r->inner - k : 32);
			float *s = r->scale + row * r->blocks + k / 32;
			uint8_t code[32];

			*s = 1.0f;
			if (job->ctx->numerics == KERN_EXACT)
				continue;
			*s = kern_e8m0(ref_quantise(KERN_Q8, a + k, size, code));
			for (uint32_t d = 0; d < size; d++)
				a[k + d] = kern_e4m3(code[d]);
		}
	}
}

static void run_expert(struct kern_ctx *ctx, const struct kern_moe_args *m, const struct room *r,
		       const struct expert *e)
{
	struct ref_linear_job in = { .w = e->w1,
				     .q = m->u->q,
				     .q_stride = m->u->width,
				     .scale = m->u->scale,
				     .scale_stride = (m->u->width + 31) / 32,
				     .rows = e->rows,
				     .n = e->n,
				     .k1 = m->dim,
				     .y = r->a,
				     .stride = r->inner,
				     .store = ctx->numerics == KERN_NATIVE ? REF_ROUND : REF_SET };
	struct gate_job gate = { .ctx = ctx, .e = e, .r = r, .limit = m->limit };

	assert(e->w1->rows == r->inner && e->w1->cols == m->dim && e->w2->cols == r->inner);
	ref_linear_run(ctx, &in);
	in.w = e->w3;
	in.y = r->b;
	ref_linear_run(ctx, &in);
	kern_parallel(ctx->pool, e->n, r->inner * 40, gate_rows, &gate);
	for (uint32_t leaf = 0; leaf < m->n_leaf; leaf++) {
		uint32_t k0 = m->leaf_at[leaf], k1 = m->leaf_at[leaf + 1];
		struct ref_linear_job out = { .w = e->w2,
					      .q = r->a + k0,
					      .q_stride = r->inner,
					      .scale = r->scale + k0 / 32,
					      .scale_stride = r->blocks,
					      .rows = e->rows,
					      .n = e->n,
					      .k0 = k0,
					      .k1 = k1,
					      .y = m->out[leaf],
					      .stride = m->dim,
					      .store = e->store };

		ref_linear_run(ctx, &out);
	}
}

/* Rows whose choice at @slot is that of row @first; none when an earlier row has it too. */
static uint32_t group(const struct kern_moe_args *m, uint32_t slot, uint32_t first, uint32_t *rows)
{
	int32_t id = m->ids[(size_t)first * m->topk + slot];
	uint32_t n = 0;

	for (uint32_t i = 0; i < first; i++)
		if (m->ids[(size_t)i * m->topk + slot] == id)
			return 0;
	for (uint32_t i = first; i < m->n; i++)
		if (m->ids[(size_t)i * m->topk + slot] == id)
			rows[n++] = i;
	return n;
}

void ref_moe(struct kern_ctx *ctx, const struct kern_moe_args *m)
{
	struct room r = cut(m);
	struct expert e = { .rows = r.rows, .step = m->topk };

	assert(m->n_leaf >= 1 && m->n_leaf <= KERN_LEAVES_MAX && m->topk >= 1);
	assert(m->u->n == m->n && m->u->width == m->dim && m->leaf_at[0] == 0);
	for (uint32_t leaf = 0; leaf < m->n_leaf; leaf++)
		assert(m->leaf_at[leaf] % 32 == 0 && m->leaf_at[leaf] < m->leaf_at[leaf + 1]);
	for (uint32_t slot = 0; slot < m->topk; slot++)
		for (uint32_t i = 0; i < m->n; i++) {
			int32_t id = m->ids[(size_t)i * m->topk + slot];

			if ((e.n = group(m, slot, i, r.rows)) == 0)
				continue;
			e.w1 = m->w1[id];
			e.w3 = m->w3[id];
			e.w2 = m->w2[id];
			e.weight = m->weight + slot;
			e.store = slot == 0 ? REF_SET : REF_ADD;
			run_expert(ctx, m, &r, &e);
		}
	for (uint32_t i = 0; i < m->n; i++)
		r.rows[i] = i;
	e = (struct expert){
		.w1 = m->s1, .w3 = m->s3, .w2 = m->s2, .rows = r.rows, .n = m->n, .store = REF_ADD
	};
	run_expert(ctx, m, &r, &e);
}
