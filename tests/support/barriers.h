// SPDX-License-Identifier: Apache-2.0
// Holds forwards to the contract's barriers: a backend whose lists are looked at before they run.
// Dispatches without a barrier between them may overlap, so none may touch what another of them
// writes (kernels/spans.def). The CPU runs its list in order and would hide it. Only for backends
// whose addresses are host pointers. One at a time.
#ifndef PLM_TESTS_BARRIERS_H
#define PLM_TESTS_BARRIERS_H

#include "core/backend.h"

#define BARRIERS_NONE UINT32_MAX

// The same backend, watched. drop: the barrier of each list, from 0, that is taken out before the
// list is judged (not before it runs), or BARRIERS_NONE.
const struct plm_backend *barriers_watch(const struct plm_backend *backend, uint32_t drop);

struct barriers_seen {
    uint64_t lists, launches, barriers;
    uint64_t missing;     // pairs of dispatches that needed one
    uint32_t in_one_list; // most barriers
    // By op, of the later dispatch of a pair.
    uint64_t launched[PLM_OPS], missed[PLM_OPS];
    char first[256]; // of those pairs, in words
};
struct barriers_seen barriers_seen(void);

#endif
