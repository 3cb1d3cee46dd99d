// SPDX-License-Identifier: Apache-2.0
// How fast the weights of a file come into a device whose memory the host does not see (a card;
// here a simulated one over host memory), and into one that it sees (the CPU).
//
//   bench_load MODEL...
#include <stdio.h>
#include <stdlib.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/base/clock.h"
#include "core/model/arch.h"

#define ROUNDS 5 // the fastest counts; the first brings the file into the page cache

static void fail(const char *path, const struct plm_error *err)
{
    fprintf(stderr, "%s: %s\n", path, err->msg);
    exit(EXIT_FAILURE);
}

// Seconds of a load, which takes its memory, too.
static double load(const char *path, const char *device_id, const void *backend_opts,
                   double *ret_bytes)
{
    struct plm_host *host = plm_host_create(0);
    const struct plm_device_opts opts = {.host = host,
                                         .clock = plm_clock_system(),
                                         .threads = 1,
                                         .max_dispatches = 64,
                                         .backend_opts = backend_opts};
    struct plm_ledger *ledger = plm_ledger_create(host);
    struct plm_gguf *gguf = NULL;
    struct plm_model *model = NULL;
    struct plm_device *device = NULL;
    struct plm_arena *weights = NULL;
    struct plm_weight_sizes sizes;
    struct plm_error err = {0};
    if (plm_gguf_open(host, path, &gguf, &err) != PLM_OK ||
        plm_model_create(host, gguf, &(struct plm_model_opts){.kv_type = PLM_TYPE_F16}, &model,
                         &err) != PLM_OK ||
        plm_device_open(device_id, &opts, &device, &err) != PLM_OK ||
        plm_model_weight_bytes(model, device, &sizes, &err) != PLM_OK ||
        plm_arena_create(host, device, ledger, PLM_MEM_WEIGHTS, 0, &weights) != PLM_OK)
        fail(path, &err);
    *ret_bytes = (double)plm_model_facts(model)->file_bytes;
    int64_t from = plm_now(plm_clock_system());
    if (plm_model_load(model, device, weights, NULL, &err) != PLM_OK)
        fail(path, &err);
    const double s = (double)(plm_now(plm_clock_system()) - from) / 1e9;
    plm_arena_destroy(weights);
    plm_ledger_destroy(ledger);
    plm_model_destroy(model);
    plm_device_close(device);
    plm_gguf_close(gguf);
    plm_host_destroy(host);
    return s;
}

int main(int argc, char **argv)
{
    static const struct plm_sim_opts hidden = {
        .inner = &plm_cpu_backend, .capacity_bytes = INT64_C(1) << 40, .hides_slabs = true};
    for (int i = 1; i < argc; i++)
        for (int copied = 0; copied < 2; copied++) {
            double best = 0, bytes = 0;
            for (int round = 0; round < ROUNDS; round++) {
                const double s = copied != 0 ? load(argv[i], "sim", &hidden, &bytes)
                                             : load(argv[i], "cpu", NULL, &bytes);
                best = round == 0 || s < best ? s : best;
            }
            printf("%s, %s: %.2f s, %.2f GB/s\n", argv[i], copied != 0 ? "copied in" : "visible",
                   best, bytes / best / 1e9);
        }
    return EXIT_SUCCESS;
}
