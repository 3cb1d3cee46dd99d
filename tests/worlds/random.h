// SPDX-License-Identifier: Apache-2.0
// A world from a seed: the same seed gives the same world on every machine.
#ifndef PLM_TESTS_WORLDS_RANDOM_H
#define PLM_TESTS_WORLDS_RANDOM_H

#include "backends/sim/world.h"

#define RANDOM_REQUESTS_MAX 48
#define RANDOM_EVENTS_MAX   16
#define RANDOM_OPTIONS_MAX  24
#define RANDOM_ACTIONS_MAX  8

// The world and what it points to, in one piece.
struct random_world {
    struct plm_world world;
    struct plm_world_option options[RANDOM_OPTIONS_MAX];
    struct plm_world_request requests[RANDOM_REQUESTS_MAX];
    struct plm_world_action actions[RANDOM_ACTIONS_MAX];
    struct plm_sim_event events[RANDOM_EVENTS_MAX];
};

void random_world(uint64_t seed, struct random_world *ret);
// The seed of the i-th world of a run.
uint64_t random_seed(uint64_t base, uint64_t i);

#endif
