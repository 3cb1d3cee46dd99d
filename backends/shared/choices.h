// SPDX-License-Identifier: Apache-2.0
// Which variant of an op runs for which arguments, as choose() said (core/backend.h): a table of
// fixed size by a key into which a backend packs what a choice holds for.
#ifndef PLM_SHARED_CHOICES_H
#define PLM_SHARED_CHOICES_H

#include <stdint.h>

#include "core/base/status.h"

// Half of it is used, so that a search ends soon. A model has some ten different products, each in
// a few ranges of rows.
#define PLM_CHOICES 512u

struct plm_choices {
    uint32_t n;
    struct {
        uint64_t key; // 0: free
        uint32_t index;
    } slots[PLM_CHOICES];
};

// Where the key (not 0) is, or would be put.
static inline uint32_t plm_choices_slot(const struct plm_choices *c, uint64_t key)
{
    uint32_t i = (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 40) % PLM_CHOICES;
    while (c->slots[i].key != 0 && c->slots[i].key != key)
        i = (i + 1) % PLM_CHOICES;
    return i;
}

// What was chosen for the key; 0 where nothing was, or for the key 0, which has no choice.
static inline uint32_t plm_choices_get(const struct plm_choices *c, uint64_t key)
{
    return c->n > 0 && key != 0 ? c->slots[plm_choices_slot(c, key)].index : 0;
}

// LIMIT: no more are kept.
static inline int plm_choices_set(struct plm_choices *c, uint64_t key, uint32_t index)
{
    const uint32_t i = plm_choices_slot(c, key);
    if (c->slots[i].key == 0) {
        if (c->n == PLM_CHOICES / 2)
            return PLM_ERR_LIMIT;
        c->n++;
        c->slots[i].key = key;
    }
    c->slots[i].index = index;
    return PLM_OK;
}

#endif
