// SPDX-License-Identifier: Apache-2.0
// reads DEVICE [MIB]: how fast a device reads memory when it does nothing else, as JSON: the best
// of some rounds of VERIFY over one slab, whose words FILL wrote. Fails where a word is wrong.
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/device.h"

#define ROUNDS      5
#define LAUNCHES    16 // of one round: a submit is small beside them
#define DEFAULT_MIB 1024
#define SEED        7u

static int append(struct plm_device *device, uint64_t addr, uint64_t words, bool fill)
{
    const struct plm_fill_args write = {.dst = addr, .n_words = words, .seed = SEED};
    const struct plm_verify_args read = {
        .src = addr, .n_words = words, .count = addr + 4 * words, .seed = SEED};
    int r = fill ? plm_launch_fill(device, &write) : PLM_OK;
    for (int i = 0; !fill && i < LAUNCHES && r == PLM_OK; i++)
        r = plm_launch_verify(device, &read);
    return r;
}

// Seconds of one round.
static int time_round(struct plm_device *device, uint64_t addr, uint64_t words, double *ret)
{
    const struct plm_clock *clock = plm_clock_system();
    const int64_t start = plm_now(clock);
    const int r = plm_device_run(device, append(device, addr, words, false));
    *ret = (double)(plm_now(clock) - start) * 1e-9;
    return r;
}

static int measure(struct plm_device *device, uint64_t addr, uint64_t words, double *ret_best,
                   uint32_t *ret_wrong)
{
    const uint32_t zero = 0;
    int r = plm_device_copy_in(device, addr + 4 * words, &zero, sizeof(zero));
    if (r == PLM_OK)
        r = plm_device_run(device, append(device, addr, words, true));
    *ret_best = 1e30;
    for (int i = 0; i < ROUNDS && r == PLM_OK; i++) {
        double seconds;
        r = time_round(device, addr, words, &seconds);
        if (r == PLM_OK && seconds < *ret_best)
            *ret_best = seconds;
    }
    return r == PLM_OK ? plm_device_copy_out(device, ret_wrong, addr + 4 * words, 4) : r;
}

int main(int argc, char **argv)
{
    const uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : DEFAULT_MIB) << 20;
    if (argc < 2 || argc > 3 || bytes == 0) {
        fprintf(stderr, "usage: reads DEVICE [MIB]\n");
        return 2;
    }
    struct plm_host *host = plm_host_create(0);
    const struct plm_device_opts opts = {.host = host};
    // The engine's own kernels come with every plan: no weights and no cache are named.
    const struct plm_kernel_needs needs = {0};
    struct plm_device *device = NULL;
    struct plm_error err = {0};
    struct plm_slab slab = {0};
    double best = 0;
    uint32_t wrong = 0;
    int r = plm_device_open(argv[1], &opts, &device, &err);
    if (r == PLM_OK)
        r = plm_device_warm_up(device, &needs, &err);
    if (r == PLM_OK)
        r = plm_device_alloc(device, PLM_SLAB_DEVICE, bytes + 256, &slab);
    if (r == PLM_OK)
        r = measure(device, slab.addr, bytes / 4, &best, &wrong);
    if (r != PLM_OK)
        fprintf(stderr, "reads: %s\n", err.msg[0] != '\0' ? err.msg : plm_strstatus(r));
    else if (wrong != 0)
        fprintf(stderr, "reads: %u words are not what was written\n", wrong);
    else
        printf("{\"device\": \"%s\", \"bytes\": %llu, \"gb_per_s\": %.1f}\n", argv[1],
               (unsigned long long)bytes, (double)bytes * LAUNCHES / best * 1e-9);
    if (slab.addr != 0)
        plm_device_free(device, &slab);
    plm_device_close(device);
    plm_host_destroy(host);
    return r == PLM_OK && wrong == 0 ? 0 : 1;
}
