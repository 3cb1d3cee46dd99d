// SPDX-License-Identifier: Apache-2.0
#include "core/gguf/name_index.h"

#include <xxhash.h>

#include "core/base/status.h"

#define FIRST_SLOTS 32u // entries of the smallest table

// Steps after which a chain of slots is taken for an attack. In a table that is at most half full
// the longest chain of a million honest names is below 100; 512 keeps the worst file near a second.
#define MAX_PROBES 512u

static const struct plm_slice *name_at(const void *base, size_t stride, uint32_t i)
{
    return (const void *)((const char *)base + (size_t)i * stride);
}

static uint32_t hash_of(struct plm_slice name)
{
    return (uint32_t)XXH3_64bits(name.ptr, name.len);
}

void plm_name_index_finish(struct plm_name_index *index, struct plm_host *host)
{
    plm_free(host, index->slots);
    *index = (struct plm_name_index){0};
}

static int grow(struct plm_name_index *index, struct plm_host *host)
{
    uint32_t n_slots = index->n_slots == 0 ? FIRST_SLOTS : index->n_slots * 2;
    struct plm_name_slot *slots = plm_calloc(host, PLM_HOST_MODEL, n_slots, sizeof(*slots));
    if (slots == NULL)
        return PLM_ERR_NOMEM_HOST;
    for (uint32_t s = 0; s < index->n_slots; s++) {
        if (index->slots[s].place == 0)
            continue;
        uint32_t to = index->slots[s].hash & (n_slots - 1);
        while (slots[to].place != 0)
            to = (to + 1) & (n_slots - 1);
        slots[to] = index->slots[s];
    }
    plm_free(host, index->slots);
    index->slots = slots;
    index->n_slots = n_slots;
    return PLM_OK;
}

int plm_name_index_add(struct plm_name_index *index, struct plm_host *host, const void *base,
                       size_t stride, uint32_t i)
{
    if (index->n >= UINT32_MAX / 4)
        return PLM_ERR_LIMIT;
    if ((index->n + 1) * 2 > index->n_slots && grow(index, host) != PLM_OK)
        return PLM_ERR_NOMEM_HOST;
    struct plm_slice name = *name_at(base, stride, i);
    uint32_t hash = hash_of(name);
    uint32_t slot = hash & (index->n_slots - 1);
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++) {
        struct plm_name_slot *at = &index->slots[slot];
        if (at->place == 0) {
            *at = (struct plm_name_slot){hash, i + 1};
            index->n++;
            return PLM_OK;
        }
        if (at->hash == hash && plm_slice_eq(*name_at(base, stride, at->place - 1), name))
            return PLM_ERR_INVALID;
        slot = (slot + 1) & (index->n_slots - 1);
    }
    return PLM_ERR_LIMIT;
}

int64_t plm_name_index_find(const struct plm_name_index *index, const void *base, size_t stride,
                            struct plm_slice name)
{
    if (index->n == 0)
        return -1;
    uint32_t hash = hash_of(name);
    uint32_t slot = hash & (index->n_slots - 1);
    for (; index->slots[slot].place != 0; slot = (slot + 1) & (index->n_slots - 1)) {
        const struct plm_name_slot *at = &index->slots[slot];
        if (at->hash == hash && plm_slice_eq(*name_at(base, stride, at->place - 1), name))
            return at->place - 1;
    }
    return -1;
}
