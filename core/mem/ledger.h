// SPDX-License-Identifier: Apache-2.0
// Our own account of every device byte, by class and by phase. The ledger decides; driver readings
// only detect what is foreign, and that our account is whole. Peaks only rise: a phase that is left
// keeps its own. One writer, the engine's thread; readers take plm_ledger_read.
#ifndef PLM_MEM_LEDGER_H
#define PLM_MEM_LEDGER_H

#include <stdint.h>

#include "core/backend.h"
#include "core/base/alloc.h"

enum plm_mem_class {
    PLM_MEM_WEIGHTS,
    PLM_MEM_KV,
    PLM_MEM_STATE,
    PLM_MEM_WORKSPACE,
    PLM_MEM_ENCODER,
    PLM_MEM_GRAPH,
    PLM_MEM_STAGING,
    PLM_MEM_BALLAST,
    PLM_MEM_OTHER,
    PLM_MEM_CLASSES,
};

// Constant lower-case name, as /v1/memory prints it.
const char *plm_mem_class_name(enum plm_mem_class mem_class);
// The same of a phase: "load", "tune", "prefill" ...
const char *plm_phase_name(enum plm_phase phase);

struct plm_ledger_class {
    int64_t held_bytes; // slabs, as the driver took them
    int64_t live_bytes; // handed out inside arenas
    int64_t peak_held_bytes;
    int64_t peak_live_bytes;
    int64_t largest_free_bytes; // the largest range that could be handed out without a new slab
};

struct plm_ledger_stats {
    struct plm_ledger_class by_class[PLM_MEM_CLASSES];
    int64_t held_bytes; // all classes: O of the plan
    int64_t live_bytes;
    int64_t peak_held_bytes;
    // Of held, while the phase lasted: of all classes at one moment, and of each class.
    int64_t phase_peak_bytes[PLM_PHASES];
    int64_t phase_class_peak_bytes[PLM_PHASES][PLM_MEM_CLASSES];
};

struct plm_ledger;

struct plm_ledger *plm_ledger_create(struct plm_host *host); // NULL: no host memory
void plm_ledger_destroy(struct plm_ledger *ledger);
void plm_ledger_phase(struct plm_ledger *ledger, enum plm_phase phase);
// Slabs and ranges, by their arenas. Negative: given back.
void plm_ledger_hold(struct plm_ledger *ledger, enum plm_mem_class mem_class, int64_t bytes);
void plm_ledger_live(struct plm_ledger *ledger, enum plm_mem_class mem_class, int64_t bytes);
// What the class's arena (or pool) could hand out in one piece; a class has one at a time.
void plm_ledger_largest_free(struct plm_ledger *ledger, enum plm_mem_class mem_class,
                             int64_t bytes);
// A consistent copy, from any thread.
void plm_ledger_read(const struct plm_ledger *ledger, struct plm_ledger_stats *ret);

// The high-water mark that people see: of serving once it began, since the ballast of a validation
// is not a use of memory; before, of all.
int64_t plm_ledger_high_water(const struct plm_ledger_stats *stats);

// How far the driver's figure of this process may lie from held + own_drv before an account is
// wrong: a granule for each slab and one for the process (each is rounded by itself), page tables
// (8 bytes for 4 KiB), and 32 MiB that drivers take late and unseen, which is the least margin of
// a plan.
int64_t plm_ledger_tolerance(int64_t held_bytes, uint64_t slabs, int64_t g);

#endif
