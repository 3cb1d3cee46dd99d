// SPDX-License-Identifier: Apache-2.0
// A device that is gone or has no room (recover.c).
#ifndef PLM_ENGINE_RECOVER_H
#define PLM_ENGINE_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

struct plim_engine;
struct plm_shape;

// The device's losses, and what a refused submit asks for.
struct plm_recover {
    bool down;        // the device is being reopened; requests are parked
    bool loaded;      // it is open again, with the weights on it
    bool gone;        // given up: the engine takes and runs nothing any more
    uint32_t streak;  // losses in a row, each soon after the device came back from the one before
    int64_t up_ns;    // when it last came back
    int64_t down_ns;  // when it was lost
    int64_t retry_ns; // the next try is not before
    int64_t pause_ns; // between tries
    uint32_t refused; // steps in a row whose submit was refused twice
    uint32_t refused_waits; // of them, those with nothing left to give back
    uint32_t rows_max;      // of the next step after that; 0: no limit
    int64_t ballast_ns;     // it is not taken again before
};

// Before each step: whether there is a device to run it on. Reopens a lost one, with pauses.
bool plm_recover_ready(struct plim_engine *engine, int64_t now_ns);
// The device was lost, or hangs (TIMEOUT), in the step that was formed. At a second loss within a
// minute those that were in flight at both fail; a third one ends the engine.
void plm_recover_lost(struct plim_engine *engine, int status);
// The step's submit was refused, and once more without the ballast.
void plm_recover_refused(struct plim_engine *engine, const struct plm_shape *shape);
// A step ran.
void plm_recover_ran(struct plim_engine *engine);

#endif
