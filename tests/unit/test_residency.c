// SPDX-License-Identifier: Apache-2.0
// The timing of slabs, on a simulated device: one of each allocation that the engine keeps is read,
// pools of windows among them.
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "core/engine/residency.h"
#include "tests/support/gguf_shapes.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

// A window group beside a full one, with slabs large enough to be timed.
static const struct gguf_shape shape = {.name = "residency",
                                        .arch = "gemma3",
                                        .pre = "llama-bpe",
                                        .n_layer = 2,
                                        .n_embd = 1024,
                                        .n_head = 8,
                                        .n_head_kv = 8,
                                        .n_ff = 2048,
                                        .n_vocab = 2048,
                                        .n_ctx = 32768,
                                        .rope_base = 10000.0f,
                                        .tied = true,
                                        .window = 1024,
                                        .full_every = 2,
                                        .head_norms = true,
                                        .norms_after = true};
static char path[] = "/tmp/residency.XXXXXX";

static uint32_t arena_slabs(const struct plm_arena *arena)
{
    struct plm_arena_stats stats = {0};
    if (arena != NULL)
        plm_arena_read(arena, &stats);
    return (uint32_t)stats.slabs;
}

START_TEST(slabs_of_every_pool_are_read)
{
    struct plm_sim_clock time;
    struct plm_sim_world world = {0};
    plm_sim_clock_init(&time);
    const struct plm_clock clock = plm_sim_clock_source(&time);
    const struct plm_sim_opts script = {.world = &world,
                                        .capacity_bytes = 4096 * MIB,
                                        .granularity_bytes = 2 * MIB,
                                        .commit = PLM_COMMIT_SOFT,
                                        .submit_ns = 1000};
    struct plm_host *host = plm_host_create(0);
    const struct plm_engine_env env = {.host = host,
                                       .clock = &clock,
                                       .backend = &plm_sim_backend,
                                       .backend_opts = &script,
                                       .seed = 1};
    plim_engine_opts opts, read;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_opts_init(&opts);
    opts.model_path = path;
    opts.max_sequences = 4;
    opts.manual_step = 1;
    opts.monitor_ms = 0;
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(gguf_shape_save(&shape, GGUF_MIX_F16, path));
    ck_assert_int_eq(plm_opts_read(&opts, &read, NULL), PLIM_OK);
    ck_assert_msg(plm_engine_create_in(&env, &read, &engine, &err) == PLIM_OK, "%s", err.message);

    struct plm_core *core = engine->core;
    struct plm_kv_pool_stats full, windows;
    ck_assert_uint_eq(core->kv.n_groups, 2);
    plm_kv_pool_read(core->kv.pools[0], &full);
    plm_kv_pool_read(core->kv.pools[1], &windows);
    ck_assert(full.slabs > 0 && windows.slabs > 0);
    const uint32_t slabs = full.slabs + windows.slabs + arena_slabs(core->rank.weights) +
                           arena_slabs(core->rank.ballast);
    const uint64_t submits = world.submits;
    int64_t bytes = -1;
    ck_assert_int_eq(plm_core_slow_bytes(core, &bytes), PLM_OK);
    ck_assert_int_eq(bytes, 0);
    ck_assert_uint_eq(world.submits - submits, 2 * slabs); // once for the median, once against it
    plim_engine_free(engine);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("residency");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, slabs_of_every_pool_are_read);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
