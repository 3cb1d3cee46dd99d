// SPDX-License-Identifier: Apache-2.0
// Streams weights from the file into the arena: a few MiB of file bytes are read, re-laid straight
// into their place, and forgotten, so a load never needs the model twice.
#include <string.h>

#include "core/base/checked.h"
#include "core/model/arch.h"
#include "core/model/types.h"

// Bytes of one read. Large enough for a disk or page-cache copy at full speed, small enough that
// staging does not show in the plan.
#define CHUNK_BYTES (4ull << 20)

// Weights start on a cache line, and on what wide loads of any device want.
#define WEIGHT_ALIGN 256

struct loader {
    struct plm_model *model;
    struct plm_device *device;
    struct plm_arena *arena; // NULL: only sizes are summed
    const struct plm_load_progress *progress;
    struct plm_error *err;
    uint64_t done;  // file bytes
    uint64_t bytes; // device bytes
    void *staging;
};

static int layout(struct loader *ld, const struct plm_weight *w, struct plm_weight_layout *ret)
{
    if (w->vector) {
        *ret = (struct plm_weight_layout){.bytes = 4ull * w->n_in, .row_step = 1};
        return PLM_OK;
    }
    int r = plm_device_weight_layout(ld->device, w->tensor->type, w->n_in, w->n_out, ret);
    if (r != PLM_OK)
        return plm_fail(ld->err, r,
                        "tensor %.*s has the type %s, which the device %s does not take",
                        (int)w->tensor->name.len, w->tensor->name.ptr,
                        plm_type_name(w->tensor->type), plm_device_caps(ld->device)->name);
    return PLM_OK;
}

static int add_bytes(void *ctx, struct plm_weight *w)
{
    struct loader *ld = ctx;
    struct plm_weight_layout lay;
    int r = layout(ld, w, &lay);
    if (r == PLM_OK)
        ld->bytes += plm_round_up(lay.bytes, WEIGHT_ALIGN);
    return r;
}

int plm_model_weight_bytes(const struct plm_model *model, const struct plm_device *device,
                           uint64_t *ret, struct plm_error *err)
{
    // Only reads: the walk and the layout query leave model and device alone.
    struct loader ld = {.model = (struct plm_model *)(uintptr_t)model,
                        .device = (struct plm_device *)(uintptr_t)device,
                        .err = err};
    int r = plm_each_weight(ld.model, add_bytes, &ld);
    if (r == PLM_OK)
        *ret = ld.bytes;
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

// Vectors fit into the staging buffer: hparams.c bounds every dimension.
static int load_vector(struct loader *ld, struct plm_weight *w, float *dst)
{
    const struct plm_gguf_tensor *t = w->tensor;
    if (t->type == PLM_TYPE_F32)
        return plm_gguf_read(ld->model->gguf, t, 0, dst, t->bytes, ld->err);
    uint16_t *half = ld->staging;
    if (t->bytes > CHUNK_BYTES)
        return plm_fail(ld->err, PLM_ERR_LIMIT, "tensor %.*s is too long for a vector",
                        (int)t->name.len, t->name.ptr);
    int r = plm_gguf_read(ld->model->gguf, t, 0, half, t->bytes, ld->err);
    for (uint32_t i = 0; r == PLM_OK && i < w->n_in; i++)
        dst[i] = widen(t->type, half[i]);
    return r;
}

static int load_matrix(struct loader *ld, struct plm_weight *w, const struct plm_weight_layout *lay,
                       void *dst)
{
    const struct plm_gguf_tensor *t = w->tensor;
    const uint64_t row_bytes = t->bytes / w->n_out;
    uint64_t step = CHUNK_BYTES / row_bytes / lay->row_step * lay->row_step;
    if (step == 0)
        return plm_fail(ld->err, PLM_ERR_LIMIT, "tensor %.*s: rows of %llu bytes are too long",
                        (int)t->name.len, t->name.ptr, (unsigned long long)row_bytes);
    for (uint64_t first = 0; first < w->n_out; first += step) {
        uint32_t rows = (uint32_t)plm_min_i64((int64_t)step, (int64_t)(w->n_out - first));
        int r = plm_gguf_read(ld->model->gguf, t, first * row_bytes, ld->staging, rows * row_bytes,
                              ld->err);
        if (r != PLM_OK)
            return r;
        plm_device_weight_pack(ld->device, t->type, w->n_in, w->n_out, (uint32_t)first, rows,
                               ld->staging, dst);
        ld->done += rows * row_bytes;
        r = report(ld);
        if (r != PLM_OK)
            return r;
    }
    return PLM_OK;
}

static int load_one(void *ctx, struct plm_weight *w)
{
    struct loader *ld = ctx;
    struct plm_weight_layout lay;
    int r = layout(ld, w, &lay);
    if (r == PLM_OK &&
        (r = plm_arena_alloc(ld->arena, lay.bytes, WEIGHT_ALIGN, &w->addr)) != PLM_OK)
        plm_fail(ld->err, r, "no device memory for tensor %.*s (%llu bytes)",
                 (int)w->tensor->name.len, w->tensor->name.ptr, (unsigned long long)lay.bytes);
    if (r != PLM_OK)
        return r;
    if (plm_device_caps(ld->device)->addresses_only) {
        ld->done += w->tensor->bytes;
        return report(ld);
    }
    void *dst = plm_arena_host(ld->arena, w->addr);
    void *image = NULL; // where the device's memory is not visible: an image on the host
    if (dst == NULL) {
        dst = image = plm_malloc(ld->model->host, PLM_HOST_MODEL, lay.bytes);
        if (image == NULL)
            return plm_fail(ld->err, PLM_ERR_NOMEM_HOST, "no host memory to re-lay %llu bytes",
                            (unsigned long long)lay.bytes);
    }
    r = w->vector ? load_vector(ld, w, dst) : load_matrix(ld, w, &lay, dst);
    if (r == PLM_OK && image != NULL)
        r = plm_device_copy_in(ld->device, w->addr, image, lay.bytes);
    plm_free(ld->model->host, image);
    return r;
}

int plm_model_load(struct plm_model *model, struct plm_device *device, struct plm_arena *weights,
                   const struct plm_load_progress *progress, struct plm_error *err)
{
    struct loader ld = {
        .model = model, .device = device, .arena = weights, .progress = progress, .err = err};
    ld.staging = plm_malloc(model->host, PLM_HOST_MODEL, CHUNK_BYTES);
    if (ld.staging == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a read of %llu bytes",
                        CHUNK_BYTES);
    int r = plm_each_weight(model, load_one, &ld);
    plm_free(model->host, ld.staging);
    return r;
}
