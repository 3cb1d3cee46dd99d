// SPDX-License-Identifier: Apache-2.0
// Runs a case through a backend's list: copies in, one launch, copies out. Every buffer lies in one
// slab, between sentinels of its own.
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/conf.h"

#define SLAB_BYTES  (64ull << 20)
#define GUARD_BYTES 256u
#define ALIGN_BYTES 256u

extern const struct plm_backend *const plm_backends[];

struct device {
    const struct plm_backend *backend;
    struct plm_backend_device *dev;
    struct plm_host *host;
    struct plm_slab slab;
};

// Gives every buffer its place, with guards between them. The same buffers get the same places.
static int place(const struct device *d, struct conf_case *c)
{
    uint64_t at = d->slab.addr + GUARD_BYTES;
    for (int i = 0; i < c->n_bufs; i++) {
        at = (at + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
        c->buf[i].device = at;
        at += c->buf[i].bytes + GUARD_BYTES;
    }
    return at - d->slab.addr > SLAB_BYTES;
}

static int copy_in(const struct device *d, struct conf_case *c, uint8_t *args)
{
    uint8_t guard[GUARD_BYTES];
    memset(guard, 0x5a, sizeof guard);
    for (int i = 0; i < c->n_bufs; i++) {
        struct conf_buf *b = &c->buf[i];
        if (b->field != UINT32_MAX)
            memcpy(args + b->field, &b->device, 8);
        if (b->reloc >= 0)
            for (uint64_t k = 0; k < b->bytes / 8; k++)
                ((uint64_t *)(void *)b->data)[k] += c->buf[b->reloc].device;
        if (d->backend->copy_in(d->dev, b->device - GUARD_BYTES, guard, GUARD_BYTES) != PLM_OK ||
            d->backend->copy_in(d->dev, b->device, b->data, b->bytes) != PLM_OK ||
            d->backend->copy_in(d->dev, b->device + b->bytes, guard, GUARD_BYTES) != PLM_OK)
            return 1;
    }
    return 0;
}

static int copy_out(const struct device *d, struct conf_case *c)
{
    uint8_t guard[2][GUARD_BYTES];
    for (int i = 0; i < c->n_bufs; i++) {
        struct conf_buf *b = &c->buf[i];
        if (d->backend->copy_out(d->dev, guard[0], b->device - GUARD_BYTES, GUARD_BYTES) ||
            d->backend->copy_out(d->dev, b->data, b->device, b->bytes) ||
            d->backend->copy_out(d->dev, guard[1], b->device + b->bytes, GUARD_BYTES))
            return 1;
        for (uint32_t k = 0; k < 2 * GUARD_BYTES; k++)
            if (guard[k / GUARD_BYTES][k % GUARD_BYTES] != 0x5a) {
                printf("FAIL %s: wrote outside buffer %d (field %u) on the device\n", c->label, i,
                       b->field);
                return 1;
            }
    }
    return 0;
}

static int run_device(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    (void)rng;
    const struct device *d = t->impl;
    _Alignas(16) uint8_t args[128];
    uint64_t value;
    memcpy(args, c->args, sizeof args);
    if (place(d, c) != 0 || copy_in(d, c, args) != 0 || d->backend->barrier(d->dev) != PLM_OK ||
        d->backend->launch(d->dev, c->op, conf_units(c->op, args), args, c->args_bytes) != PLM_OK ||
        d->backend->submit(d->dev, &value) != PLM_OK ||
        d->backend->wait(d->dev, value, 60000000000) != PLM_OK)
        return 1;
    return copy_out(d, c);
}

int conf_device_open(const char *name, uint32_t threads, struct conf_target *ret)
{
    struct device *d = calloc(1, sizeof *d);
    struct plm_error err = {.msg = ""};
    for (int i = 0; d != NULL && plm_backends[i] != NULL; i++)
        if (strcmp(plm_backends[i]->name, name) == 0)
            d->backend = plm_backends[i];
    if (d == NULL || d->backend == NULL) {
        free(d);
        return 77;
    }
    static const struct plm_log quiet = {.write = NULL};
    d->host = plm_host_create(0);
    struct plm_device_opts opts = {.host = d->host,
                                   .clock = plm_clock_system(),
                                   .log = &quiet,
                                   .threads = threads,
                                   .max_dispatches = 16};
    if (d->host == NULL || d->backend->open(&opts, &d->dev, &err) != PLM_OK) {
        printf("FAIL open %s: %s\n", name, err.msg);
        free(d);
        return 1;
    }
    const struct plm_kernel_needs all = {
        .weight_types = UINT64_MAX, .kv_types = UINT64_MAX, .head_groups = UINT64_MAX, .float_acts = true};
    if (d->backend->alloc(d->dev, PLM_SLAB_DEVICE, SLAB_BYTES, NULL, &d->slab) != PLM_OK ||
        d->backend->warm_up(d->dev, &all, &err) != PLM_OK) {
        printf("FAIL %s: no slab, or no warm-up: %s\n", name, err.msg);
        return 1;
    }
    // The CPU's device is of the reference's class; others answer to the tolerances of ops.def.
    *ret = (struct conf_target){.name = name,
                                .run = run_device,
                                .impl = d,
                                .bit_equal = strcmp(name, "cpu") == 0,
                                .own_addresses = true};
    return 0;
}

int conf_device_close(struct conf_target *t)
{
    struct device *d = t->impl;
    d->backend->free(d->dev, &d->slab);
    d->backend->close(d->dev);
    int leaked = plm_host_destroy(d->host) != 0;
    if (leaked)
        printf("FAIL %s: host memory was not given back\n", t->name);
    free(d);
    return leaked;
}
