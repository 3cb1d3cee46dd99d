// SPDX-License-Identifier: Apache-2.0
// Planted bugs. Each breaks one promise on purpose, so that a test can show that the checks of
// tests/worlds would notice. They exist only where the build defines PLM_PLANTS, which is the test
// program that looks for them; everywhere else PLM_PLANT() is the constant false.
#ifndef PLM_BASE_PLANT_H
#define PLM_BASE_PLANT_H

#include <stdbool.h>

enum plm_plant {
    PLM_PLANT_NONE,
    PLM_PLANT_MARGIN, // the margin is not subtracted from the budget
    PLM_PLANT_LEAK,   // a cancel loses a block
    PLM_PLANT_ALLOC,  // a step asks the device for memory
    PLM_PLANT_KEEP,   // a refusal keeps the bytes of its prompt
    PLM_PLANT_TWICE,  // a request is answered twice
    PLM_PLANT_PEAK,   // a new phase forgets the peak
    PLM_PLANT_OFFER,  // more is offered than is let in
    PLM_PLANT_LANE,   // the oldest is preempted for the youngest
};

#ifdef PLM_PLANTS
extern enum plm_plant plm_planted; // the test program's
#define PLM_PLANT(NAME) (plm_planted == PLM_PLANT_##NAME)
#else
#define PLM_PLANT(NAME) false
#endif

#endif
