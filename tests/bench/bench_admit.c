// SPDX-License-Identifier: Apache-2.0
// What a decision of admission costs: as a function and within an engine (its lock and its
// readings), the gate before a forward and the audit after it, in nanoseconds each. No decision may
// take host memory or call the driver: counters of both are compared around all of them.
//
//   admit             a table
//   admit --max NS    fails above so many nanoseconds
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/engine/admission.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

#define ROUNDS 9 // medians
#define TURNS  20000u

// ---- a driver that counts its calls ----

static struct plm_backend counted;
static uint64_t calls;

static int count_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                       void *import_ptr, struct plm_slab *ret)
{
    calls++;
    return plm_sim_backend.alloc(dev, kind, bytes, import_ptr, ret);
}

static int count_query(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    calls++;
    return plm_sim_backend.query_free(dev, ret);
}

static int count_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                        const void *args, size_t bytes)
{
    calls++;
    return plm_sim_backend.launch(dev, op, units, args, bytes);
}

static int count_submit(struct plm_backend_device *dev, uint64_t *ret)
{
    calls++;
    return plm_sim_backend.submit(dev, ret);
}

static plim_engine *engine;
static struct plm_host *host;

static void create(void)
{
    static struct plm_sim_opts script;
    plim_engine_opts o, read;
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
    o.threads = 1;
    o.ctx_size = 512;
    o.manual_step = 1;
    o.monitor_ms = 0;
    o.autotune = 0;
    o.queue_max = 4;
    script = (struct plm_sim_opts){.inner = &plm_cpu_backend, .capacity_bytes = UINT64_C(1) << 28};
    counted = plm_sim_backend;
    counted.alloc = count_alloc;
    counted.query_free = count_query;
    counted.launch = count_launch;
    counted.submit = count_submit;
    host = plm_host_create(0);
    const struct plm_engine_env env = {
        .host = host, .backend = &counted, .backend_opts = &script, .seed = 1};
    int r = plm_opts_read(&o, &read, &err);
    if (r == PLIM_OK)
        r = plm_engine_create_in(&env, &read, &engine, &err);
    if (r == PLIM_OK)
        return;
    fprintf(stderr, "create: %s\n", err.message);
    exit(EXIT_FAILURE);
}

// ---- decisions ----

static const struct plm_admit_limits limits = {.max_context = 8192,
                                               .max_sequences = 64,
                                               .choices_max = 128,
                                               .blocks_total = 100000,
                                               .block_bytes = 1 << 20,
                                               .queue_max = 256,
                                               .host_limit = INT64_C(1) << 28,
                                               .host_choice_bytes = 600,
                                               .host_token_bytes = 4,
                                               .host_event_tokens = 2048};
static struct plm_admit_state state;
static struct plm_admit_request request;
static struct plm_admit_result result;
static struct plm_gate gate;
static struct plm_gate_step gate_step;
static struct plm_gate_result gate_result;
static struct plm_cost_table table;

static void admit(void)
{
    plm_admit_check(&limits, &state, &request, &result);
}

static void admission(void)
{
    struct plm_admit_result r;
    if (plm_admission_check(engine, &request, &r, NULL) == PLIM_OK)
        plm_admission_unreserve(engine, &request, &r);
}

static void check(void)
{
    plm_gate_check(&gate, &gate_step, &gate_result);
}

static void audit(void)
{
    plm_gate_audit(&gate, &gate_step.shape, 0);
}

static void ask(uint32_t prompt, uint32_t output, uint32_t queued, uint32_t free_blocks)
{
    request = (struct plm_admit_request){.prompt_tokens = prompt, .max_tokens = output, .n = 1};
    state = (struct plm_admit_state){.blocks_total = limits.blocks_total,
                                     .blocks_available = free_blocks,
                                     .sequences = 8,
                                     .queued = queued,
                                     .tokens_to_blocks = 1000,
                                     .tokens_per_s = 300};
}

static void gate_for(int64_t live_bytes)
{
    struct plm_plan plan = {
        .in = {.limits = {.batch_max_tokens = 512, .max_sequences = 64, .max_context = 8192}}};
    plan.line = (INT64_C(1) << 30) + plm_cost(&table, &(struct plm_shape){512, 64, 64, 8192});
    plm_gate_init(&gate, &plan, &table);
    gate_step = (struct plm_gate_step){
        .shape = {512, 64, 64, 8192}, .prefill_rows = 449, .live_bytes = live_bytes};
}

// ---- measuring ----

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Processor time, so that other programs on the machine do not count.
static double now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static double worst;
static bool clean = true;

static void measure(const char *what, const char *outcome, void (*decide)(void))
{
    double ns[ROUNDS];
    struct plm_host_stats before, after;
    decide();
    plm_host_read(host, &before);
    const uint64_t calls_before = calls;
    for (int r = 0; r < ROUNDS; r++) {
        double from = now_ns();
        for (uint32_t i = 0; i < TURNS; i++)
            decide();
        ns[r] = (now_ns() - from) / TURNS;
    }
    plm_host_read(host, &after);
    const uint64_t allocations = after.allocations - before.allocations;
    const uint64_t driver = calls - calls_before;
    clean = clean && allocations == 0 && driver == 0;
    qsort(ns, ROUNDS, sizeof(ns[0]), by_value);
    const double median = ns[ROUNDS / 2];
    worst = median > worst ? median : worst;
    printf("%-12s %-22s %10.1f %14llu %14llu\n", what, outcome, median,
           (unsigned long long)allocations, (unsigned long long)driver);
}

static void expect(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "not measured as meant: %s\n", what);
    exit(EXIT_FAILURE);
}

static void measure_admission(void)
{
    ask(1000, 200, 0, 1000);
    measure("admission", "admit", admit);
    expect(result.verdict == PLM_ADMIT, "admit");
    measure("engine admission", "admit", admission);
    ask(1000, 200, 3, 1000);
    measure("admission", "wait", admit);
    expect(result.verdict == PLM_WAIT, "wait");
    ask(1000, 200, 256, 1000);
    measure("admission", "now, no offer", admit);
    expect(result.verdict == PLM_REFUSE_NOW, "now");
    ask(8000, 2000, 0, 1000);
    measure("admission", "never, with an offer", admit);
    expect(result.verdict == PLM_REFUSE_NEVER && result.offer.prompt_tokens > 0, "never");
    measure("engine admission", "never, with an offer", admission);
}

static void measure_gate(void)
{
    table = *plm_model_cost_table(engine->core->model);
    gate_for(0);
    measure("gate", "go", check);
    expect(gate_result.answer == PLM_GATE_GO, "go");
    measure("audit", "no excess", audit);
    gate_for((INT64_C(1) << 30) + 100000);
    measure("gate", "cut", check);
    expect(gate_result.answer == PLM_GATE_CUT, "cut");
    gate_for(INT64_C(1) << 40);
    measure("gate", "refuse", check);
    expect(gate_result.answer == PLM_GATE_REFUSE, "refuse");
}

int main(int argc, char **argv)
{
    const double max = argc == 3 && strcmp(argv[1], "--max") == 0 ? atof(argv[2]) : 0;
    create();
    printf("%-12s %-22s %10s %14s %14s\n", "", "", "ns", "allocations", "driver calls");
    measure_admission();
    measure_gate();
    plim_engine_free(engine);
    if (!clean)
        fprintf(stderr, "a decision took memory or called the driver\n");
    return clean && (max == 0 || worst <= max) ? EXIT_SUCCESS : EXIT_FAILURE;
}
