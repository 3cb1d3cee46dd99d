// SPDX-License-Identifier: Apache-2.0
// Seeded faults. Each breaks one promise on purpose, so that a test can show that the checks of
// tests/worlds would notice. They exist only where the build defines PLM_FAULT_SEEDS, which is the
// test program that looks for them; everywhere else PLM_FAULT_SEED() is the constant false.
#ifndef PLM_BASE_FAULT_SEED_H
#define PLM_BASE_FAULT_SEED_H

#include <stdbool.h>

enum plm_fault_seed {
    PLM_FAULT_SEED_NONE,
    PLM_FAULT_SEED_MARGIN, // the margin is not subtracted from the budget
    PLM_FAULT_SEED_LEAK,   // a cancel loses a block
    PLM_FAULT_SEED_ALLOC,  // a step asks the device for memory
    PLM_FAULT_SEED_KEEP,   // a refusal keeps the bytes of its prompt
    PLM_FAULT_SEED_TWICE,  // a request is answered twice
    PLM_FAULT_SEED_PEAK,   // a new phase forgets the peak
    PLM_FAULT_SEED_OFFER,  // more is offered than is let in
    PLM_FAULT_SEED_LANE,   // the oldest is preempted for the youngest
};

#ifdef PLM_FAULT_SEEDS
extern enum plm_fault_seed plm_fault_seeded; // the test program's
#define PLM_FAULT_SEED(NAME) (plm_fault_seeded == PLM_FAULT_SEED_##NAME)
#else
#define PLM_FAULT_SEED(NAME) false
#endif

#endif
