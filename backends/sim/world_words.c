// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/world_impl.h"

#include <stddef.h>

#define FIELD(of, word, kind, member)                                                              \
    {                                                                                              \
        word, PLM_WORLD_##kind, offsetof(of, member)                                               \
    }
#define DEVICE(...)  FIELD(struct plm_sim_opts, __VA_ARGS__)
#define MODEL(...)   FIELD(struct plm_world_model, __VA_ARGS__)
#define REQUEST(...) FIELD(struct plm_world_request, __VA_ARGS__)

const struct plm_world_field plm_world_device_fields[] = {
    DEVICE("capacity", SIZE, capacity_bytes),
    DEVICE("granularity", SIZE, granularity_bytes),
    DEVICE("max_slab", SIZE, max_slab_bytes),
    DEVICE("max_slabs", U32, max_slabs),
    DEVICE("context", SIZE, context_bytes),
    DEVICE("shown_context", SIZE, shown_context_bytes),
    DEVICE("kernel", SIZE, kernel_bytes),
    DEVICE("graph", SIZE, graph_bytes),
    DEVICE("withheld", SIZE, unavailable_bytes),
    DEVICE("commit", COMMIT, commit),
    DEVICE("unified", BOOL, unified),
    DEVICE("host", SIZE, host_bytes),
    DEVICE("hides_process_use", BOOL, hides_process_use),
    DEVICE("async", BOOL, async),
    DEVICE("submit_time", TIME, submit_ns),
    DEVICE("dispatch_time", TIME, dispatch_ns),
    DEVICE("variants", U32, n_variants),
    DEVICE("query_lag", TIME, query_lag_ns),
    DEVICE("free_lag", TIME, free_lag_ns),
    DEVICE("keeps", SIZE, keeps_bytes),
    DEVICE("leaks", SIZE, leaks_bytes),
    DEVICE("spill", BOOL, spills),
    DEVICE("overcommit", BOOL, overcommits),
    DEVICE("fail_above", SIZE, fail_alloc_above_bytes),
    {NULL, PLM_WORLD_U32, 0},
};

const struct plm_world_field plm_world_model_fields[] = {
    MODEL("layers", U32, n_layer), MODEL("embd", U32, n_embd),
    MODEL("heads", U32, n_head),   MODEL("kv_heads", U32, n_head_kv),
    MODEL("ff", U32, n_ff),        MODEL("vocab", U32, n_vocab),
    MODEL("ctx", U32, n_ctx),      MODEL("type", TYPE, type),
    MODEL("window", U32, window),  MODEL("full_every", U32, full_every),
    {NULL, PLM_WORLD_U32, 0},
};

const struct plm_world_field plm_world_request_fields[] = {
    REQUEST("step", U64, at_step),
    REQUEST("prompt", U32, prompt),
    REQUEST("max", U32, max),
    REQUEST("n", U32, n),
    REQUEST("seed", U64, seed),
    REQUEST("leave_after", U32, leave_after),
    REQUEST("leave_step", U64, leave_step),
    {NULL, PLM_WORLD_U32, 0},
};

const char *const plm_world_whens[] = {"query", "alloc", "submit", "step", "phase", "time", NULL};
const char *const plm_world_whats[] = {"foreign",     "foreign",      "host", "lie",
                                       "fail_allocs", "fail_submits", "lost", "hang",
                                       "slow",        "overrun",      "take", NULL};
const char *const plm_world_lies[] = {"honest",          "stale", "free_above_total", "all_zero",
                                      "use_above_total", "fails", "oscillate",        NULL};
const char *const plm_world_phases[] = {
#define X(NAME, name) name,
    PLM_PHASE_LIST(X)
#undef X
        NULL};
const char *const plm_world_poisons[] = {"none", "nan", "hang", "lost", NULL};
const char *const plm_world_acts[] = {"sleep", "wake", "drain", NULL};
const char *const plm_world_ops[] = {"==", ">=", "<=", "!=", "<", ">", NULL};

const char *const plm_world_types[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_WITH_KERNELS_##BACKENDS(#name, )
#include "kernels/types.def"
    NULL};
const enum plm_type plm_world_type_values[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_WITH_KERNELS_##BACKENDS(PLM_TYPE_##NAME, )
#include "kernels/types.def"
};

const struct plm_world_unit plm_world_sizes[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"B", 1},
    {NULL, 0},
};
const struct plm_world_unit plm_world_times[] = {
    {"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}, {NULL, 0},
};

enum plm_world_kind plm_world_event_kind(enum plm_sim_what what)
{
    switch (what) {
    case PLM_SIM_FOREIGN:
    case PLM_SIM_FOREIGN_BY:
    case PLM_SIM_HOST:
    case PLM_SIM_OVERRUN:
    case PLM_SIM_TAKE: return PLM_WORLD_SIZE;
    case PLM_SIM_HANG: return PLM_WORLD_TIME;
    default: return PLM_WORLD_U64;
    }
}
