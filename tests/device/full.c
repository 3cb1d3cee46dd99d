// SPDX-License-Identifier: Apache-2.0
// full DEVICE [LIMIT_MIB]: fills a device with slabs until it has no room, and shows that this is a
// result and no accident: the answer is OUT_OF_DEVICE, what was given keeps what is written to it,
// kernels still run on the full device, a slab that is given back can be taken again, and in the
// end all of it is back at the driver. As JSON.
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/device.h"

#define MIB       (UINT64_C(1) << 20)
#define FIRST     (UINT64_C(1) << 30) // of slabs; then halves, down to LAST
#define LAST      (2 * MIB)
#define SLABS_MAX 4096
#define SEED      11u
// What a driver may keep for itself of what was freed: page tables of a full card.
#define KEPT_MIB 64

struct drill {
    struct plm_device *device;
    struct plm_slab slabs[SLABS_MAX];
    uint32_t n;
    struct plm_slab counter;
};

// Takes slabs of smaller and smaller sizes until even the smallest is refused.
static int fill_up(struct drill *d, uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    for (uint64_t bytes = FIRST; bytes >= LAST; bytes /= 2) {
        int r = PLM_OK;
        while (d->n < SLABS_MAX && r == PLM_OK) {
            r = plm_device_alloc(d->device, PLM_SLAB_DEVICE, bytes, &d->slabs[d->n]);
            d->n += r == PLM_OK;
            *ret_bytes += r == PLM_OK ? bytes : 0;
        }
        if (r != PLM_ERR_OUT_OF_DEVICE && r != PLM_ERR_TOO_LARGE)
            return r == PLM_OK ? PLM_ERR_LIMIT : r;
    }
    return PLM_OK;
}

// Writes and reads back the first and the last slab.
static int use(struct drill *d, uint32_t *ret_wrong)
{
    const uint32_t zero = 0;
    int r = plm_device_copy_in(d->device, d->counter.addr, &zero, sizeof(zero));
    for (int i = 0; i < 2 && r == PLM_OK; i++) {
        const struct plm_slab *slab = &d->slabs[i == 0 ? 0 : d->n - 1];
        const struct plm_fill_args fill = {
            .dst = slab->addr, .n_words = slab->bytes / 4, .seed = SEED};
        const struct plm_verify_args verify = {
            .src = slab->addr, .n_words = slab->bytes / 4, .count = d->counter.addr, .seed = SEED};
        r = plm_launch_fill(d->device, &fill);
        if (r == PLM_OK)
            r = plm_device_barrier(d->device);
        if (r == PLM_OK)
            r = plm_launch_verify(d->device, &verify);
        r = plm_device_run(d->device, r);
    }
    return r == PLM_OK ? plm_device_copy_out(d->device, ret_wrong, d->counter.addr, 4) : r;
}

static int again(struct drill *d)
{
    struct plm_slab *last = &d->slabs[d->n - 1];
    const uint64_t bytes = last->bytes;
    plm_device_free(d->device, last);
    const int r = plm_device_alloc(d->device, PLM_SLAB_DEVICE, bytes, last);
    d->n -= r != PLM_OK;
    return r;
}

static void give_back(struct drill *d)
{
    while (d->n > 0)
        plm_device_free(d->device, &d->slabs[--d->n]);
}

// What did not come back. This process's own use where the driver reports it: free memory of a
// machine also moves with its other programs.
static int64_t lacking_of(const struct drill *d, const struct plm_mem_info *before,
                          const struct plm_mem_info *after)
{
    if (plm_device_caps(d->device)->reports_process_use)
        return (int64_t)after->process_use_bytes - (int64_t)before->process_use_bytes;
    return (int64_t)before->free_bytes - (int64_t)after->free_bytes;
}

static int run(struct drill *d, const char *id)
{
    struct plm_mem_info before, after = {0};
    uint64_t bytes = 0, released;
    uint32_t wrong = 0;
    int r = plm_device_empty_cache(d->device, &released, &before);
    if (r == PLM_OK)
        r = fill_up(d, &bytes);
    const uint32_t slabs = d->n;
    if (r == PLM_OK && slabs == 0)
        r = PLM_ERR_OUT_OF_DEVICE;
    if (r == PLM_OK)
        r = use(d, &wrong);
    if (r == PLM_OK)
        r = again(d);
    give_back(d);
    if (r == PLM_OK)
        r = plm_device_empty_cache(d->device, &released, &after);
    const int64_t lacking = lacking_of(d, &before, &after);
    if (r != PLM_OK)
        fprintf(stderr, "full: after %u slabs: %s\n", slabs, plm_strstatus(r));
    else if (wrong != 0)
        fprintf(stderr, "full: %u words are not what was written\n", wrong);
    else if (lacking > (int64_t)(KEPT_MIB * MIB))
        fprintf(stderr, "full: %lld bytes did not come back\n", (long long)lacking);
    else
        printf("{\"device\": \"%s\", \"slabs\": %u, \"bytes\": %llu, \"reported_free\": %llu, "
               "\"lacking\": %lld}\n",
               id, slabs, (unsigned long long)bytes, (unsigned long long)before.free_bytes,
               (long long)lacking);
    return r == PLM_OK && wrong == 0 && lacking <= (int64_t)(KEPT_MIB * MIB) ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: full DEVICE [LIMIT_MIB]\n");
        return 2;
    }
    static struct drill drill;
    struct plm_host *host = plm_host_create(0);
    const uint64_t limit = argc > 2 ? strtoull(argv[2], NULL, 10) * MIB : 0;
    const struct plm_device_opts opts = {
        .host = host, .clock = plm_clock_system(), .memory_limit_bytes = limit};
    const struct plm_kernel_needs needs = {0}; // the engine's own kernels come with every plan
    struct plm_error err = {0};
    int status = 1, r = plm_device_open(argv[1], &opts, &drill.device, &err);
    if (r == PLM_OK)
        r = plm_device_warm_up(drill.device, &needs, &err);
    if (r == PLM_OK)
        r = plm_device_alloc(drill.device, PLM_SLAB_DEVICE, 4096, &drill.counter);
    if (r == PLM_OK)
        status = run(&drill, argv[1]);
    else
        fprintf(stderr, "full: %s\n", err.msg[0] != '\0' ? err.msg : plm_strstatus(r));
    if (drill.counter.addr != 0)
        plm_device_free(drill.device, &drill.counter);
    plm_device_close(drill.device);
    plm_host_destroy(host);
    return status;
}
