// SPDX-License-Identifier: Apache-2.0
// Streams weights from the file into the arena: a few MiB of file bytes are read, re-laid straight
// into their place, and forgotten, so a load never needs the model twice. Where the device's memory
// is not host-visible, they are re-laid into a buffer of that size and copied in. Matrices go
// in chunks, several at a time (chunks.h).
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/gguf/types.h"
#include "core/model/chunks.h"

// Elements of a vector at most: twice what any model has, the bias of a head included.
#define VECTOR_MAX (1u << 20)

// Bytes of a record at most.
#define RECORD_MAX 256

// Weights start on a cache line, and on what wide loads of any device want.
#define WEIGHT_ALIGN 256

struct loader {
    const struct plm_model *model;
    struct plm_device *device;
    struct plm_arena *arena;
    const struct plm_load_progress *progress;
    struct plm_error *err;
    uint64_t done; // file bytes
    struct plm_chunks *chunks;
    // How weights lie, and what a slab may hold.
    const struct plm_caps *caps;
    plm_layout_fn *layout;
    const void *layout_ctx;
    // The slab that is being filled: bytes of it that later tensors take.
    uint64_t slab_left;
    struct plm_weight_sizes sizes;
    uint64_t slab_bytes; // of the last slab, while sizes are summed
};

static int device_layout(const void *ctx, enum plm_type type, uint32_t n_in, uint32_t n_out,
                         struct plm_weight_layout *ret)
{
    return plm_device_weight_layout(ctx, type, n_in, n_out, ret);
}

// Of phases: those of the ropes lie before those with their long factors.
static const struct plm_rope_spec *rope_of(const struct loader *ld, const struct plm_weight *w)
{
    return &ld->model->hp.ropes[(w - ld->model->ropes) % ld->model->hp.n_ropes];
}

// Names the types that the device takes: ids of the file format are below 64.
static int fail_type(const struct loader *ld, const struct plm_gguf_tensor *t)
{
    char names[PLM_TYPE_NAMES_BYTES] = "";
    size_t used = 0;
    for (uint32_t id = 0; id < 64; id++) {
        struct plm_weight_layout any;
        if (plm_type_is_supported(id, false) &&
            ld->layout(ld->layout_ctx, (enum plm_type)id, 256, 16, &any) == PLM_OK)
            plm_text_list(names, sizeof(names), &used, plm_type_name(id));
    }
    return plm_fail(ld->err, PLM_ERR_UNSUPPORTED,
                    "tensor %.*s has the type %s, which the device %s does not take (it takes: %s)",
                    (int)t->name.len, t->name.ptr, plm_type_name(t->type), ld->caps->name, names);
}

static int layout(const struct loader *ld, const struct plm_weight *w,
                  struct plm_weight_layout *ret)
{
    uint64_t bytes = 0;
    switch (w->decl->kind) {
    case PLM_WEIGHT_MATRIX: break;
    case PLM_WEIGHT_VECTOR: bytes = sizeof(float) * w->n_in; break;
    case PLM_WEIGHT_PHASES:
        bytes =
            plm_rope_increments_bytes(rope_of(ld, w)) + sizeof(float) * rope_of(ld, w)->n_scales;
        break;
    case PLM_WEIGHT_RECORD: bytes = w->n_in; break;
    }
    if (!plm_weight_is_matrix(w)) {
        *ret = (struct plm_weight_layout){.bytes = bytes, .row_step = 1};
        return PLM_OK;
    }
    int r = ld->layout(ld->layout_ctx, w->tensor->type, w->n_in, w->n_out, ret);
    if (r == PLM_ERR_UNSUPPORTED)
        return fail_type(ld, w->tensor);
    if (r != PLM_OK)
        return plm_fail(ld->err, r, "tensor %.*s: the device %s does not say how it would lie",
                        (int)w->tensor->name.len, w->tensor->name.ptr, ld->caps->name);
    return PLM_OK;
}

// Bytes of a tensor in its slab.
static int placed_bytes(const struct loader *ld, const struct plm_weight *w, uint64_t *ret)
{
    struct plm_weight_layout lay;
    int r = layout(ld, w, &lay);
    if (r == PLM_OK)
        *ret = plm_round_up(lay.bytes, WEIGHT_ALIGN);
    return r;
}

// The largest slab, in whole granules.
static uint64_t slab_max(const struct plm_caps *caps)
{
    return caps->max_slab_bytes / caps->granularity_bytes * caps->granularity_bytes;
}

// ---- sizes ----

const char *plm_weight_class_name(enum plm_weight_class weight_class)
{
    static const char *const names[PLM_WEIGHT_CLASSES] = {"token_embd", "attention", "feed_forward",
                                                          "head", "vectors"};
    return (unsigned)weight_class < PLM_WEIGHT_CLASSES ? names[weight_class] : "?";
}

static void end_slab(struct loader *ld)
{
    ld->sizes.held_bytes += plm_round_up(ld->slab_bytes, ld->caps->granularity_bytes);
    ld->sizes.slabs++;
    ld->slab_bytes = 0;
}

static int add_bytes(void *ctx, struct plm_weight *w)
{
    struct loader *ld = ctx;
    const struct plm_slice name = plm_weight_name(w);
    uint64_t bytes;
    int r = placed_bytes(ld, w, &bytes);
    if (r != PLM_OK)
        return r;
    if (bytes > slab_max(ld->caps))
        return plm_fail(ld->err, PLM_ERR_TOO_LARGE,
                        "tensor %.*s takes %llu bytes, but the largest allocation of the device "
                        "%s is %llu",
                        (int)name.len, name.ptr, (unsigned long long)bytes, ld->caps->name,
                        (unsigned long long)slab_max(ld->caps));
    if (ld->slab_bytes + bytes > slab_max(ld->caps))
        end_slab(ld);
    ld->slab_bytes += bytes;
    ld->sizes.bytes += bytes;
    ld->sizes.by_class[w->decl->weight_class] += bytes;
    return PLM_OK;
}

int plm_model_weight_sizes(const struct plm_model *model, const struct plm_caps *caps,
                           plm_layout_fn *layout_fn, const void *layout_ctx,
                           struct plm_weight_sizes *ret, struct plm_error *err)
{
    struct loader ld = {
        .model = model, .caps = caps, .layout = layout_fn, .layout_ctx = layout_ctx, .err = err};
    int r = plm_each_weight(model, add_bytes, &ld);
    if (r != PLM_OK)
        return r;
    end_slab(&ld);
    *ret = ld.sizes;
    return PLM_OK;
}

int plm_model_weight_bytes(const struct plm_model *model, const struct plm_device *device,
                           struct plm_weight_sizes *ret, struct plm_error *err)
{
    return plm_model_weight_sizes(model, plm_device_caps(device), device_layout, device, ret, err);
}

// ---- load ----

// From weight `from` on, what goes into one slab.
struct slab_walk {
    const struct loader *ld;
    const struct plm_weight *from;
    bool begun;
    uint64_t bytes;
};

static int add_to_slab(void *ctx, struct plm_weight *w)
{
    struct slab_walk *walk = ctx;
    uint64_t bytes;
    walk->begun = walk->begun || w == walk->from;
    if (!walk->begun)
        return PLM_OK;
    int r = placed_bytes(walk->ld, w, &bytes);
    if (r == PLM_OK && walk->bytes + bytes > slab_max(walk->ld->caps))
        return PLM_ERR_LIMIT; // stops the walk: full
    walk->bytes += r == PLM_OK ? bytes : 0;
    return r;
}

// Takes the slab that begins with this weight, as plm_model_weight_sizes counts them. Slabs are
// full to the byte when the next one is taken, so that no tensor lies elsewhere.
static int take_slab(struct loader *ld, const struct plm_weight *w)
{
    struct slab_walk walk = {.ld = ld, .from = w};
    int r = plm_each_weight(ld->model, add_to_slab, &walk);
    if (r != PLM_OK && r != PLM_ERR_LIMIT)
        return r;
    ld->slab_left = walk.bytes;
    r = plm_arena_reserve(ld->arena, walk.bytes);
    if (r != PLM_ERR_OUT_OF_DEVICE && r != PLM_ERR_TOO_LARGE)
        return r == PLM_OK
                   ? r
                   : plm_fail(ld->err, r, "no memory for the weights: %s", plm_strstatus(r));
    struct plm_mem_info info = {0};
    plm_device_query_free(ld->device, &info);
    const bool short_of_it = info.free_bytes < walk.bytes;
    r = plm_fail(ld->err, r, "the weights take %llu bytes more, but the device %s %llu bytes %s",
                 (unsigned long long)walk.bytes, short_of_it ? "has" : "gives none of the",
                 (unsigned long long)info.free_bytes, short_of_it ? "left" : "that it calls free");
    if (ld->err != NULL && short_of_it) {
        ld->err->needed_bytes = (int64_t)walk.bytes;
        ld->err->limit_bytes = (int64_t)info.free_bytes;
    }
    return r;
}

static int report(struct loader *ld)
{
    if (ld->progress == NULL ||
        ld->progress->report(ld->progress->ctx, ld->done, ld->model->facts.file_bytes))
        return PLM_OK;
    return plm_fail(ld->err, PLM_ERR_CANCELLED, "the load was stopped");
}

// Half floats of either kind to float32.
static float widen(enum plm_type type, uint16_t bits)
{
    if (type == PLM_TYPE_BF16) {
        uint32_t u = (uint32_t)bits << 16;
        float f;
        memcpy(&f, &u, sizeof(f));
        return f;
    }
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31,
             mantissa = bits & 1023;
    float f;
    if (exponent == 0) {
        f = (float)mantissa * 0x1p-24f; // zero and subnormals
        return sign != 0 ? -f : f;
    }
    uint32_t u = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | mantissa << 13;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static int copy_in(struct loader *ld, uint64_t dst, const void *src, uint64_t bytes)
{
    int r = plm_device_copy_in(ld->device, dst, src, bytes);
    return r == PLM_OK ? r
                       : plm_fail(ld->err, r, "weights could not be copied to the device %s: %s",
                                  ld->caps->name, plm_strstatus(r));
}

// Reads a vector as float32. Halves, which take half of dst, are read to its end and widened from
// the front on.
static int read_vector(struct loader *ld, const struct plm_weight *w, float *dst)
{
    const struct plm_gguf_tensor *t = w->tensor;
    const bool plain = t->type == PLM_TYPE_F32;
    const uint64_t element = plain ? 4 : 2, bytes = element * w->n_in;
    const uint64_t at = 4ull * w->n_in - bytes;
    int r = plm_gguf_read(ld->model->gguf, t, element * w->first, (char *)dst + at, bytes, ld->err);
    for (uint32_t i = 0; r == PLM_OK && !plain && i < w->n_in; i++) {
        uint16_t half;
        memcpy(&half, (const char *)dst + at + 2ull * i, sizeof(half));
        dst[i] = widen(t->type, half);
    }
    return r;
}

static int load_vector(struct loader *ld, const struct plm_weight *w, float *visible)
{
    const struct plm_slice name = w->tensor->name;
    if (w->n_in > VECTOR_MAX)
        return plm_fail(ld->err, PLM_ERR_LIMIT, "tensor %.*s is too long for a vector",
                        (int)name.len, name.ptr);
    if (visible != NULL)
        return read_vector(ld, w, visible);
    float *image = plm_malloc(ld->model->host, PLM_HOST_MODEL, 4ull * w->n_in);
    if (image == NULL)
        return plm_fail(ld->err, PLM_ERR_NOMEM_HOST, "no host memory to read tensor %.*s",
                        (int)name.len, name.ptr);
    int r = read_vector(ld, w, image);
    if (r == PLM_OK)
        r = copy_in(ld, w->addr, image, 4ull * w->n_in);
    plm_free(ld->model->host, image);
    return r;
}

static int load_phases(struct loader *ld, const struct plm_weight *w)
{
    const struct plm_rope_spec *rope = rope_of(ld, w);
    float scales[PLM_ROPE_SCALES_MAX];
    float factors[PLM_ROPE_PAIRS_MAX];
    uint64_t increments[PLM_ROPE_PAIRS_MAX];
    const bool bent = w->tensor != NULL;
    int r = bent ? read_vector(ld, w, factors) : PLM_OK;
    if (r == PLM_OK && !plm_rope_increments(rope, bent ? factors : NULL, increments))
        r = plm_fail(ld->err, PLM_ERR_FORMAT,
                     "the file's rope frequencies (keys rope.*%s%.*s) are not all finite",
                     bent ? ", tensor " : "", bent ? (int)w->tensor->name.len : 0,
                     bent ? w->tensor->name.ptr : "");
    if (r == PLM_OK)
        r = copy_in(ld, w->addr, increments, plm_rope_increments_bytes(rope));
    if (r != PLM_OK || rope->n_scales == 0)
        return r;
    plm_rope_scales(rope, scales);
    return copy_in(ld, w->addr + plm_rope_increments_bytes(rope), scales,
                   sizeof(scales[0]) * rope->n_scales);
}

static int load_record(struct loader *ld, const struct plm_weight *w)
{
    uint64_t record[RECORD_MAX / sizeof(uint64_t)] = {0};
    w->decl->record(w->layer, record);
    return copy_in(ld, w->addr, record, w->n_in);
}

// The oldest chunk comes into its place.
static int take_chunk(struct loader *ld)
{
    struct plm_chunk chunk;
    const int r = plm_chunks_take(ld->chunks, &chunk, ld->err);
    ld->done += chunk.file_bytes;
    return r == PLM_OK ? report(ld) : r;
}

static int load_matrix(struct loader *ld, const struct plm_weight *w,
                       const struct plm_weight_layout *lay, char *visible)
{
    const struct plm_gguf_tensor *t = w->tensor;
    const uint64_t row_bytes = t->bytes / t->ne[1];
    // Rows of a chunk: it fits into its buffer before and after.
    const uint64_t step_in = lay->row_step * row_bytes;
    const uint64_t rows =
        PLM_CHUNK_BYTES / (step_in > lay->step_bytes ? step_in : lay->step_bytes) * lay->row_step;
    if (rows == 0)
        return plm_fail(ld->err, PLM_ERR_LIMIT, "tensor %.*s: rows of %llu bytes are too long",
                        (int)t->name.len, t->name.ptr, (unsigned long long)row_bytes);
    int r = PLM_OK;
    for (uint64_t first = 0; r == PLM_OK && first < w->n_out; first += rows) {
        const uint64_t n = first + rows < w->n_out ? rows : w->n_out - first;
        const uint64_t at = first / lay->row_step * lay->step_bytes;
        const struct plm_chunk chunk = {.weight = w,
                                        .first = (uint32_t)first,
                                        .rows = (uint32_t)n,
                                        .file_at = (w->first + first) * row_bytes,
                                        .file_bytes = n * row_bytes,
                                        .addr = w->addr + at,
                                        .bytes = plm_div_ceil(n, lay->row_step) * lay->step_bytes,
                                        .visible = visible != NULL ? visible + at : NULL};
        if (plm_chunks_is_full(ld->chunks))
            r = take_chunk(ld);
        if (r == PLM_OK)
            r = plm_chunks_put(ld->chunks, &chunk, ld->err);
    }
    return r;
}

static int load_one(void *ctx, struct plm_weight *w)
{
    struct loader *ld = ctx;
    struct plm_weight_layout lay;
    int r = layout(ld, w, &lay);
    if (r == PLM_OK && ld->slab_left == 0)
        r = take_slab(ld, w);
    if (r != PLM_OK)
        return r;
    ld->slab_left -= plm_round_up(lay.bytes, WEIGHT_ALIGN);
    const struct plm_slice name = plm_weight_name(w);
    if ((r = plm_arena_alloc(ld->arena, lay.bytes, WEIGHT_ALIGN, &w->addr)) != PLM_OK)
        return plm_fail(ld->err, r, "no device memory for tensor %.*s (%llu bytes)", (int)name.len,
                        name.ptr, (unsigned long long)lay.bytes);
    if (ld->caps->addresses_only) {
        ld->done += w->tensor != NULL && w->first == 0 ? w->tensor->bytes : 0;
        return report(ld);
    }
    void *visible = plm_arena_host(ld->arena, w->addr);
    switch (w->decl->kind) {
    case PLM_WEIGHT_MATRIX: return load_matrix(ld, w, &lay, visible);
    case PLM_WEIGHT_VECTOR: return load_vector(ld, w, visible);
    case PLM_WEIGHT_PHASES: return load_phases(ld, w);
    case PLM_WEIGHT_RECORD: return load_record(ld, w);
    }
    return PLM_ERR_INTERNAL;
}

int plm_model_load(struct plm_model *model, struct plm_device *device, struct plm_arena *weights,
                   const struct plm_load_progress *progress, struct plm_error *err)
{
    struct loader ld = {.model = model,
                        .device = device,
                        .arena = weights,
                        .progress = progress,
                        .err = err,
                        .caps = plm_device_caps(device),
                        .layout = device_layout,
                        .layout_ctx = device};
    ld.chunks = plm_chunks_create(model->host, model->gguf, device);
    if (ld.chunks == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to load the model");
    int r = plm_each_weight(model, load_one, &ld);
    while (r == PLM_OK && !plm_chunks_is_empty(ld.chunks))
        r = take_chunk(&ld);
    plm_chunks_destroy(ld.chunks);
    return r;
}
