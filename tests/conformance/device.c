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
    const void *opts; // of the backend, from what follows its name
    struct plm_slab slab;
    bool bounded; // the driver ends loops (loops.c)
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
            conf_relocate(b, c->buf[b->reloc].device);
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
    if (d->bounded && conf_loops(c->op, args) > CONF_LOOPS_MAX) {
        printf("FAIL %s: an invocation may loop %llu times; llvmpipe stops after %u\n", c->label,
               (unsigned long long)conf_loops(c->op, args), CONF_LOOPS_MAX);
        return 1;
    }
    if (place(d, c) != 0 || copy_in(d, c, args) != 0 || d->backend->barrier(d->dev) != PLM_OK ||
        d->backend->launch(d->dev, c->op, conf_units(c->op, args), args, c->args_bytes) != PLM_OK ||
        d->backend->submit(d->dev, &value) != PLM_OK ||
        d->backend->wait(d->dev, value, 60000000000) != PLM_OK)
        return 1;
    return copy_out(d, c);
}

static const struct plm_backend *find_backend(const char *name, size_t len)
{
    for (int i = 0; plm_backends[i] != NULL; i++)
        if (strlen(plm_backends[i]->name) == len && memcmp(plm_backends[i]->name, name, len) == 0)
            return plm_backends[i];
    return NULL;
}

static void close_device(struct device *d)
{
    if (d->slab.addr != 0)
        d->backend->free(d->dev, &d->slab);
    d->backend->close(d->dev);
    if (d->opts != NULL)
        d->backend->release(d->host, d->opts);
}

// Opens the device and warms everything up; the error says what failed.
static int open_device(struct device *d, const char *argument, uint32_t threads,
                       struct plm_error *err)
{
    static const struct plm_log quiet = {.write = NULL};
    const struct plm_kernel_needs all = {.weight_types = UINT64_MAX,
                                         .kv_types = UINT64_MAX,
                                         .head_groups = UINT64_MAX,
                                         .float_acts = true};
    if (argument != NULL && d->backend->configure == NULL)
        return plm_fail(err, PLM_ERR_INVALID, "%s has no options", d->backend->name);
    int r = argument != NULL ? d->backend->configure(d->host, argument, &d->opts, err) : PLM_OK;
    const struct plm_device_opts opts = {.host = d->host,
                                         .clock = plm_clock_system(),
                                         .log = &quiet,
                                         .threads = threads,
                                         .max_dispatches = 16,
                                         .backend_opts = d->opts};
    if (r == PLM_OK)
        r = d->backend->open(&opts, &d->dev, err);
    if (r == PLM_OK)
        r = d->backend->warm_up(d->dev, &all, err);
    if (r == PLM_OK && d->backend->alloc(d->dev, PLM_SLAB_DEVICE, SLAB_BYTES, NULL, &d->slab))
        r = plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "no room for a slab");
    return r;
}

static int close_target(struct conf_target *t)
{
    struct device *d = t->impl;
    close_device(d);
    int leaked = plm_host_destroy(d->host) != 0;
    if (leaked)
        printf("FAIL %s: host memory was not given back\n", t->name);
    free(d);
    return leaked;
}

int conf_device_open(const char *id, uint32_t threads, struct conf_target *ret)
{
    struct plm_error err = {.msg = ""};
    const size_t len = strcspn(id, ":");
    const struct plm_backend *backend = find_backend(id, len);
    if (backend == NULL)
        return 77;
    struct device *d = calloc(1, sizeof *d);
    struct plm_host *host = plm_host_create(0);
    if (d == NULL || host == NULL)
        abort();
    d->backend = backend;
    d->host = host;
    int r = open_device(d, id[len] == ':' ? id + len + 1 : NULL, threads, &err);
    if (r != PLM_OK) {
        close_device(d);
        plm_host_destroy(host);
        free(d);
        const bool absent = r == PLM_ERR_NOT_FOUND || r == PLM_ERR_UNSUPPORTED;
        printf("%s %s: %s\n", absent ? "no device" : "FAIL open", id, err.msg);
        return absent ? 77 : 1;
    }
    uint64_t types = 0; // what the device says that it takes
    for (uint32_t t = 0; t < 64; t++) {
        struct plm_weight_layout lay;
        if (backend->weight_layout(d->dev, (enum plm_type)t, 256, 16, &lay) == PLM_OK)
            types |= UINT64_C(1) << t;
    }
    d->bounded = strncmp(backend->caps(d->dev)->name, "llvmpipe", 8) == 0;
    // The CPU's device is of the reference's class; others answer to the tolerances of ops.def.
    *ret = (struct conf_target){.name = id,
                                .run = run_device,
                                .close = close_target,
                                .impl = d,
                                .bit_equal = strcmp(backend->name, "cpu") == 0,
                                .own_addresses = true,
                                .half_math = strstr(id, "math=f16") != NULL,
                                .types = types,
                                .kv_types = backend->caps(d->dev)->kv_types};
    return 0;
}

// Runs a product by every variant but the first, whose outputs are in the buffers.
static int variants_agree(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    const struct device *d = t->impl;
    const struct conf_buf *out = conf_at(c, offsetof(struct plm_matmul_args, dst));
    char name[PLM_TUNING_NAME_BYTES];
    int failures = 0;
    const uint32_t n = d->backend->variants(d->dev, c->op, c->args, name);
    uint8_t *want = malloc(out->bytes);
    if (want == NULL)
        abort();
    memcpy(want, out->data, out->bytes);
    for (uint32_t i = 1; i < n; i++) {
        conf_reset(c);
        const bool same = d->backend->choose(d->dev, c->op, c->args, i) == PLM_OK &&
                          t->run(t, c, rng) == 0 && memcmp(want, out->data, out->bytes) == 0;
        if (!same)
            printf("FAIL %s: variant %u of %u differs\n", c->label, i, n);
        failures += !same;
    }
    free(want);
    return failures + (d->backend->choose(d->dev, c->op, c->args, 0) != PLM_OK);
}

int conf_variants(struct conf_target *t, struct conf_rng *rng)
{
    int failures = 0;
    if (!t->own_addresses || ((struct device *)t->impl)->backend->variants == NULL)
        return 0;
    for (int i = 0; i < 40; i++) {
        struct conf_case c;
        conf_make(&c, PLM_OP_MATMUL, rng);
        conf_reset(&c);
        failures += t->run(t, &c, rng) != 0 ? 1 : variants_agree(t, &c, rng);
        conf_end(&c);
    }
    return failures;
}
