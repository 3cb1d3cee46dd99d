// SPDX-License-Identifier: Apache-2.0
// The bytes that each op reads, from its arguments alone (kernels/abi.h).
#include "core/base/checked.h"
#include "core/model/explain.h"

// What a count needs beside the arguments.
struct reading {
    uint32_t context;
    plm_layout_fn *layout;
    const void *layout_ctx;
    struct plm_reads reads;
    int result; // of the first layout that is not known
};

static void acts(struct reading *r, uint64_t bytes)
{
    r->reads.act_bytes += bytes;
}

static void floats(struct reading *r, uint64_t n)
{
    acts(r, 4 * n);
}

// An optional vector of a weight: read where it has an address.
static void vector(struct reading *r, uint64_t addr, uint64_t n)
{
    if (addr != 0)
        r->reads.weight_bytes += 4 * n;
}

static uint64_t weight_bytes(struct reading *r, uint32_t type, uint32_t n_in, uint32_t n_out)
{
    struct plm_weight_layout lay = {0};
    const int result = r->layout(r->layout_ctx, (enum plm_type)type, n_in, n_out, &lay);
    if (r->result == PLM_OK)
        r->result = result;
    return lay.bytes;
}

static void weight(struct reading *r, uint64_t addr, uint32_t type, uint32_t n_in, uint32_t n_out)
{
    if (addr != 0)
        r->reads.weight_bytes += weight_bytes(r, type, n_in, n_out);
}

// K and V of one layer for `rows` sequences, and the addresses of their blocks.
static void cache(struct reading *r, uint32_t rows, uint32_t kv_heads, uint32_t head_dim,
                  uint32_t kv_type, uint32_t window)
{
    const struct plm_kv_group group = {
        .kv_heads = kv_heads, .head_dim = head_dim, .type = (enum plm_type)kv_type};
    const uint64_t blocks = rows * PLM_ATTN_SPANNED(PLM_KV_BLOCK_TOKENS, r->context, window);
    r->reads.kv_bytes += blocks * plm_kv_layer_bytes(&group);
    acts(r, 8 * blocks);
}

// Norms of heads: weights of q's and of k's, and the record that leads to them.
static void head_norms(struct reading *r, uint64_t norms, uint32_t head_dim)
{
    vector(r, norms, 2ull * head_dim + sizeof(struct plm_head_norms) / 4);
}

// Position, and where the op writes to the cache its block: of each row.
static void places(struct reading *r, uint32_t rows, bool slots)
{
    acts(r, (slots ? 12ull : 4ull) * rows);
}

static void get_rows(struct reading *r, const struct plm_get_rows_args *a)
{
    const uint64_t whole = weight_bytes(r, a->type, a->n_in, a->n_out);
    r->reads.weight_bytes += a->n_out > 0 ? plm_div_ceil(whole, a->n_out) * a->rows : 0;
    acts(r, 4ull * a->rows);
}

static void rms_norm(struct reading *r, const struct plm_rms_norm_args *a)
{
    floats(r, (uint64_t)a->rows * a->n * (1 + (a->residual != 0) + (a->add != 0)));
    vector(r, a->weight, a->n);
}

static void matmul(struct reading *r, const struct plm_matmul_args *a)
{
    weight(r, a->weight, a->type, a->n_in, a->n_out);
    vector(r, a->bias, a->n_out);
    acts(r, PLM_ACT_ROW_BYTES(a->act, a->n_in) * a->rows);
    floats(r, a->add ? (uint64_t)a->rows * a->n_out : 0);
}

static void rope_table(struct reading *r, const struct plm_rope_table_args *a)
{
    places(r, a->rows, false);
    vector(r, a->turns, a->dims); // 64 bits for each pair
}

static void rope(struct reading *r, const struct plm_rope_args *a)
{
    floats(r, (uint64_t)a->rows * (a->heads * a->head_dim + a->dims));
}

static void kv_write(struct reading *r, const struct plm_kv_write_args *a)
{
    floats(r, 2ull * a->rows * a->kv_heads * a->head_dim);
    places(r, a->rows, true);
}

static void rope_kv(struct reading *r, const struct plm_rope_kv_args *a)
{
    floats(r, (uint64_t)a->rows * ((a->heads + 2 * a->kv_heads) * a->head_dim + a->dims));
    head_norms(r, a->norms, a->head_dim);
    places(r, a->rows, true);
}

static void qkv(struct reading *r, const struct plm_qkv_args *a)
{
    const uint32_t head_dim = PLM_LOW(a->head_dim), dims = PLM_HIGH(a->head_dim);
    const uint32_t n_q = PLM_LOW(a->heads) * head_dim, n_kv = PLM_HIGH(a->heads) * head_dim;
    const uint32_t type = PLM_KIND(a->kinds, 0), act = PLM_KIND(a->kinds, 1);
    weight(r, a->weight_q, type, a->n_in, n_q);
    weight(r, a->weight_k, type, a->n_in, n_kv);
    weight(r, a->weight_v, type, a->n_in, n_kv);
    vector(r, a->bias_q, n_q);
    vector(r, a->bias_k, n_kv);
    vector(r, a->bias_v, n_kv);
    head_norms(r, a->norms, head_dim);
    acts(r, PLM_ACT_ROW_BYTES(act, a->n_in) * a->rows);
    if (a->weight_q != 0 || a->weight_k != 0)
        floats(r, (uint64_t)a->rows * dims);
    if (a->weight_k != 0 || a->weight_v != 0)
        places(r, a->rows, true);
}

static void glu(struct reading *r, const struct plm_glu_args *a)
{
    weight(r, a->weight_gate, a->type, a->n_in, a->n_out);
    weight(r, a->weight_up, a->type, a->n_in, a->n_out);
    vector(r, a->bias_gate, a->n_out);
    vector(r, a->bias_up, a->n_out);
    acts(r, PLM_ACT_ROW_BYTES(a->act, a->n_in) * a->rows);
}

static void attention(struct reading *r, const struct plm_attention_args *a)
{
    floats(r, (uint64_t)a->rows * a->heads * a->head_dim);
    acts(r, 8ull * a->rows); // positions and sequences
    cache(r, a->rows, a->kv_heads, a->head_dim, a->kv_type, a->window);
}

static void attention_split(struct reading *r, const struct plm_attention_split_args *a)
{
    floats(r, (uint64_t)a->rows * a->heads * a->head_dim);
    acts(r, 8ull * a->rows);
    cache(r, a->rows, a->kv_heads, a->head_dim, a->kv_type, a->window);
}

static void attention_merge(struct reading *r, const struct plm_attention_merge_args *a)
{
    const uint64_t splits = PLM_ATTN_SPANNED(PLM_ATTN_SPLIT_TOKENS, r->context, a->window);
    floats(r, (uint64_t)a->rows * a->heads * splits * (a->head_dim + 2));
    places(r, a->rows, false);
}

static void quantize(struct reading *r, const struct plm_quantize_args *a)
{
    floats(r, (uint64_t)a->rows * a->n);
}

static void gate_mul(struct reading *r, const struct plm_gate_mul_args *a)
{
    floats(r, 2ull * a->rows * a->n);
}

static void add(struct reading *r, const struct plm_add_args *a)
{
    floats(r, 2ull * a->rows * a->n);
}

static void gather(struct reading *r, const struct plm_gather_args *a)
{
    floats(r, (uint64_t)a->rows * (a->n + 1ull)); // and the index
}

static void argmax(struct reading *r, const struct plm_argmax_args *a)
{
    floats(r, (uint64_t)a->rows * a->n);
}

static void sample(struct reading *r, const struct plm_sample_args *a)
{
    floats(r, (uint64_t)a->rows * a->n); // once: later walks find the row in the cache
    acts(r, sizeof(struct plm_sample_row) * a->rows);
}

static void copy(struct reading *r, const struct plm_copy_args *a)
{
    floats(r, a->n_words);
}

static void fill(struct reading *r, const struct plm_fill_args *a)
{
    (void)r, (void)a; // only writes
}

static void verify(struct reading *r, const struct plm_verify_args *a)
{
    floats(r, a->n_words);
}

int plm_op_reads(enum plm_op op, const void *args, uint32_t context, plm_layout_fn *layout,
                 const void *layout_ctx, struct plm_reads *ret)
{
    struct reading r = {.context = context, .layout = layout, .layout_ctx = layout_ctx};
    switch (op) {
#define PLM_OP(NAME, name, units, tolerance)                                                       \
    case PLM_OP_##NAME:                                                                            \
        name(&r, args);                                                                            \
        break;
#include "kernels/ops.def"
#undef PLM_OP
    case PLM_OPS: return PLM_ERR_INVALID;
    }
    if (r.result == PLM_OK)
        *ret = r.reads;
    return r.result;
}

uint64_t plm_reads_bytes(const struct plm_reads *reads)
{
    return reads->weight_bytes + reads->kv_bytes + reads->act_bytes;
}

const char *plm_op_name(enum plm_op op)
{
    static const char *const names[PLM_OPS] = {
#define PLM_OP(NAME, name, units, tolerance) [PLM_OP_##NAME] = #name,
#include "kernels/ops.def"
#undef PLM_OP
    };
    return (unsigned)op < PLM_OPS ? names[op] : "?";
}
