// SPDX-License-Identifier: Apache-2.0
// Model files for worlds: the header of a llama or gemma3 of a given shape, in memory, its
// weights a hole. One file for each shape and process, since thousands of worlds share a few
// shapes.
#ifndef PLM_TESTS_WORLDS_MODEL_H
#define PLM_TESTS_WORLDS_MODEL_H

#include "backends/sim/world.h"

// A path that opens it; valid until model_forget. NULL: the system gave no memory file.
const char *model_path(const struct plm_world_model *model);
// Closes all files.
void model_forget(void);

#endif
