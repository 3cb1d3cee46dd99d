// SPDX-License-Identifier: Apache-2.0
// The words of world files, which parser and writer share: one table for each kind of statement, so
// that what is written is what is read.
#ifndef PLM_SIM_WORLD_IMPL_H
#define PLM_SIM_WORLD_IMPL_H

#include "backends/sim/world.h"

enum plm_world_kind {
    PLM_WORLD_SIZE, // uint64_t: bytes
    PLM_WORLD_TIME, // int64_t: ns
    PLM_WORLD_U64,
    PLM_WORLD_U32,
    PLM_WORLD_BOOL,   // yes or no
    PLM_WORLD_COMMIT, // hard or soft
    PLM_WORLD_TYPE,   // of a tensor
};

// "WORD VALUE" and the member of a struct that takes it.
struct plm_world_field {
    const char *word;
    enum plm_world_kind kind;
    size_t offset;
};

// Each ends with a NULL word.
extern const struct plm_world_field plm_world_device_fields[];  // of struct plm_sim_opts
extern const struct plm_world_field plm_world_model_fields[];   // of struct plm_world_model
extern const struct plm_world_field plm_world_request_fields[]; // of struct plm_world_request

// Names by value; each ends with NULL. Values are the enum's, in order.
extern const char *const plm_world_whens[];   // enum plm_sim_when
extern const char *const plm_world_whats[];   // enum plm_sim_what
extern const char *const plm_world_lies[];    // enum plm_sim_lie
extern const char *const plm_world_phases[];  // enum plm_phase
extern const char *const plm_world_poisons[]; // enum plm_sim_poison
extern const char *const plm_world_types[];   // those of plm_world_type_values
extern const char *const plm_world_acts[];    // enum plm_world_act
extern const char *const plm_world_ops[];     // of a want
extern const enum plm_type plm_world_type_values[];

// Units of sizes and times, the largest first.
struct plm_world_unit {
    const char *word;
    uint64_t factor;
};
extern const struct plm_world_unit plm_world_sizes[];
extern const struct plm_world_unit plm_world_times[];

// What the value of an event is.
enum plm_world_kind plm_world_event_kind(enum plm_sim_what what);

#endif
