// SPDX-License-Identifier: Apache-2.0
// The plan of a start as a certificate for the next one (certify.c).
#ifndef PLM_ENGINE_CERTIFY_H
#define PLM_ENGINE_CERTIFY_H

#include <stdbool.h>

struct plm_core;
struct plm_profile;

// Reads opts.certificate. False where there is none that holds for this start, and says why.
bool plm_core_certified(struct plm_core *core, struct plm_profile *ret);

#endif
