// SPDX-License-Identifier: Apache-2.0
#include "core/mem/ledger.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/fault_seed.h"

#define PAGE_TABLE_UNIT   512                 // bytes per byte of page table
#define DRIVER_LATE_BYTES (INT64_C(32) << 20) // see plm_ledger_tolerance

// A sequence lock: the one writer makes `seq` odd while it changes fields, readers copy and try
// again when it was odd or moved. Everything is atomic in one total order, which needs no fences
// (they are beyond ThreadSanitizer); slabs change hands too rarely for the cost to matter.
struct cell {
    _Atomic int64_t held, live, peak_held, peak_live, largest_free;
};

struct plm_ledger {
    struct plm_host *host;
    enum plm_phase phase; // writer's own
    _Atomic uint32_t seq;
    struct cell by_class[PLM_MEM_CLASSES];
    struct cell all; // peak_live is not kept: no figure of the plan uses it
    _Atomic int64_t phase_peak[PLM_PHASES];
    _Atomic int64_t phase_class_peak[PLM_PHASES][PLM_MEM_CLASSES];
};

const char *plm_mem_class_name(enum plm_mem_class mem_class)
{
    static const char *const names[PLM_MEM_CLASSES] = {
        "weights", "kv", "state", "workspace", "encoder", "graph", "staging", "ballast", "other"};
    return (unsigned)mem_class < PLM_MEM_CLASSES ? names[mem_class] : "?";
}

const char *plm_phase_name(enum plm_phase phase)
{
    static const char *const names[PLM_PHASES] = {
#define X(NAME, name) name,
        PLM_PHASE_LIST(X)
#undef X
    };
    return (unsigned)phase < PLM_PHASES ? names[phase] : "?";
}

struct plm_ledger *plm_ledger_create(struct plm_host *host)
{
    struct plm_ledger *ledger = plm_calloc(host, PLM_HOST_OTHER, 1, sizeof(*ledger));
    if (ledger != NULL)
        ledger->host = host;
    return ledger;
}

void plm_ledger_destroy(struct plm_ledger *ledger)
{
    if (ledger != NULL)
        plm_free(ledger->host, ledger);
}

static int64_t get(const _Atomic int64_t *field)
{
    return atomic_load(field);
}

static void set(_Atomic int64_t *field, int64_t value)
{
    atomic_store(field, value);
}

static void begin(struct plm_ledger *ledger)
{
    atomic_fetch_add(&ledger->seq, 1);
}

static void end(struct plm_ledger *ledger)
{
    atomic_fetch_add(&ledger->seq, 1);
}

static void lift(_Atomic int64_t *peak, int64_t now)
{
    if (now > get(peak))
        set(peak, now);
}

// Adds to a current value and lifts its peak (NULL: none).
static void add(_Atomic int64_t *current, _Atomic int64_t *peak, int64_t bytes)
{
    int64_t now = get(current) + bytes;
    set(current, now);
    if (peak != NULL)
        lift(peak, now);
}

void plm_ledger_phase(struct plm_ledger *ledger, enum plm_phase phase)
{
    begin(ledger);
    ledger->phase = phase;
    if (PLM_FAULT_SEED(PEAK))
        set(&ledger->all.peak_held, get(&ledger->all.held));
    // What is held when a phase begins is held in it.
    lift(&ledger->phase_peak[phase], get(&ledger->all.held));
    for (int i = 0; i < PLM_MEM_CLASSES; i++)
        lift(&ledger->phase_class_peak[phase][i], get(&ledger->by_class[i].held));
    end(ledger);
}

void plm_ledger_hold(struct plm_ledger *ledger, enum plm_mem_class mem_class, int64_t bytes)
{
    struct cell *cell = &ledger->by_class[mem_class];
    begin(ledger);
    add(&cell->held, &cell->peak_held, bytes);
    add(&ledger->all.held, &ledger->all.peak_held, bytes);
    lift(&ledger->phase_peak[ledger->phase], get(&ledger->all.held));
    lift(&ledger->phase_class_peak[ledger->phase][mem_class], get(&cell->held));
    end(ledger);
}

void plm_ledger_live(struct plm_ledger *ledger, enum plm_mem_class mem_class, int64_t bytes)
{
    struct cell *cell = &ledger->by_class[mem_class];
    begin(ledger);
    add(&cell->live, &cell->peak_live, bytes);
    add(&ledger->all.live, NULL, bytes);
    end(ledger);
}

void plm_ledger_largest_free(struct plm_ledger *ledger, enum plm_mem_class mem_class, int64_t bytes)
{
    begin(ledger);
    set(&ledger->by_class[mem_class].largest_free, bytes);
    end(ledger);
}

static void copy(const struct plm_ledger *ledger, struct plm_ledger_stats *ret)
{
    for (int i = 0; i < PLM_MEM_CLASSES; i++) {
        const struct cell *cell = &ledger->by_class[i];
        ret->by_class[i] =
            (struct plm_ledger_class){.held_bytes = get(&cell->held),
                                      .live_bytes = get(&cell->live),
                                      .peak_held_bytes = get(&cell->peak_held),
                                      .peak_live_bytes = get(&cell->peak_live),
                                      .largest_free_bytes = get(&cell->largest_free)};
    }
    ret->held_bytes = get(&ledger->all.held);
    ret->live_bytes = get(&ledger->all.live);
    ret->peak_held_bytes = get(&ledger->all.peak_held);
    for (int i = 0; i < PLM_PHASES; i++) {
        ret->phase_peak_bytes[i] = get(&ledger->phase_peak[i]);
        for (int c = 0; c < PLM_MEM_CLASSES; c++)
            ret->phase_class_peak_bytes[i][c] = get(&ledger->phase_class_peak[i][c]);
    }
}

int64_t plm_ledger_high_water(const struct plm_ledger_stats *stats)
{
    const int64_t served = stats->phase_peak_bytes[PLM_PHASE_SERVE];
    return served > 0 ? served : stats->peak_held_bytes;
}

int64_t plm_ledger_tolerance(int64_t held_bytes, uint64_t slabs, int64_t g)
{
    return ((int64_t)slabs + 1) * g + held_bytes / PAGE_TABLE_UNIT + DRIVER_LATE_BYTES;
}

void plm_ledger_read(const struct plm_ledger *ledger, struct plm_ledger_stats *ret)
{
    for (;;) {
        uint32_t before = atomic_load(&ledger->seq);
        copy(ledger, ret);
        if (before % 2 == 0 && atomic_load(&ledger->seq) == before)
            return;
    }
}
