// SPDX-License-Identifier: Apache-2.0
#include "core/mem/arena.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/mem/offset_alloc.h"

struct arena_slab {
    struct plm_slab slab;
    uint64_t start; // of the slab, with all slabs laid end to end
};

struct plm_arena {
    struct plm_host *host;
    struct plm_device *device;
    struct plm_ledger *ledger;
    enum plm_mem_class mem_class;
    uint64_t slab_bytes;
    struct plm_offset_alloc *ranges;
    struct arena_slab *slabs;
    uint32_t n_slabs, cap_slabs;
    uint64_t held_bytes;
    uint64_t end; // of the last slab, laid end to end
    uint64_t peak_live_bytes;
    uint64_t peak_extent_bytes;
};

int plm_arena_create(struct plm_host *host, struct plm_device *device, struct plm_ledger *ledger,
                     enum plm_mem_class mem_class, uint64_t slab_bytes, struct plm_arena **ret)
{
    struct plm_arena *arena = plm_calloc(host, PLM_HOST_OTHER, 1, sizeof(*arena));
    if (arena == NULL)
        return PLM_ERR_NOMEM_HOST;
    *arena = (struct plm_arena){.host = host,
                                .device = device,
                                .ledger = ledger,
                                .mem_class = mem_class,
                                .slab_bytes = slab_bytes,
                                .ranges = plm_offset_create(host)};
    if (arena->ranges == NULL) {
        plm_free(host, arena);
        return PLM_ERR_NOMEM_HOST;
    }
    *ret = arena;
    return PLM_OK;
}

void plm_arena_destroy(struct plm_arena *arena)
{
    if (arena == NULL)
        return;
    plm_ledger_live(arena->ledger, arena->mem_class, -(int64_t)plm_offset_live(arena->ranges));
    for (uint32_t i = arena->n_slabs; i-- > 0;) {
        int64_t taken = (int64_t)arena->slabs[i].slab.taken_bytes;
        plm_device_free(arena->device, &arena->slabs[i].slab);
        plm_ledger_hold(arena->ledger, arena->mem_class, -taken);
    }
    plm_ledger_largest_free(arena->ledger, arena->mem_class, 0);
    plm_offset_destroy(arena->ranges);
    plm_free(arena->host, arena->slabs);
    plm_free(arena->host, arena);
}

static void show_free(struct plm_arena *arena)
{
    plm_ledger_largest_free(arena->ledger, arena->mem_class,
                            (int64_t)plm_offset_largest_free(arena->ranges));
}

static int reserve_entry(struct plm_arena *arena)
{
    if (arena->n_slabs < arena->cap_slabs)
        return PLM_OK;
    uint32_t cap = arena->cap_slabs == 0 ? 8 : arena->cap_slabs * 2;
    struct arena_slab *slabs =
        plm_realloc(arena->host, PLM_HOST_OTHER, arena->slabs, cap * sizeof(*slabs));
    if (slabs == NULL)
        return PLM_ERR_NOMEM_HOST;
    arena->slabs = slabs;
    arena->cap_slabs = cap;
    return PLM_OK;
}

// The part of a slab that ranges can come from: aligned inwards to the granule of offsets.
static void usable(const struct plm_slab *slab, uint64_t *ret_base, uint64_t *ret_bytes)
{
    uint64_t base = plm_round_up(slab->addr, PLM_OFFSET_GRANULE);
    uint64_t end = (slab->addr + slab->bytes) / PLM_OFFSET_GRANULE * PLM_OFFSET_GRANULE;
    *ret_base = base;
    *ret_bytes = end > base ? end - base : 0;
}

int plm_arena_reserve(struct plm_arena *arena, uint64_t bytes)
{
    struct plm_slab slab;
    int r = reserve_entry(arena);
    if (r != PLM_OK)
        return r;
    if (bytes > INT64_MAX)
        return PLM_ERR_TOO_LARGE;
    bytes = plm_round_up(bytes == 0 ? 1 : bytes, PLM_OFFSET_GRANULE);
    if ((r = plm_device_alloc(arena->device, PLM_SLAB_DEVICE, bytes, &slab)) != PLM_OK)
        return r;
    uint64_t base, size;
    usable(&slab, &base, &size);
    if (size > 0 && (r = plm_offset_add(arena->ranges, base, size)) != PLM_OK) {
        plm_device_free(arena->device, &slab);
        return r;
    }
    arena->slabs[arena->n_slabs++] = (struct arena_slab){.slab = slab, .start = arena->end};
    arena->end += slab.bytes;
    arena->held_bytes += slab.taken_bytes;
    plm_ledger_hold(arena->ledger, arena->mem_class, (int64_t)slab.taken_bytes);
    show_free(arena);
    return PLM_OK;
}

static const struct arena_slab *slab_of(const struct plm_arena *arena, uint64_t addr)
{
    // From the end: what was taken last is asked for most.
    for (uint32_t i = arena->n_slabs; i-- > 0;) {
        const struct plm_slab *slab = &arena->slabs[i].slab;
        if (addr >= slab->addr && addr - slab->addr < slab->bytes)
            return &arena->slabs[i];
    }
    return NULL;
}

static void note_peaks(struct plm_arena *arena, uint64_t addr, uint64_t bytes)
{
    const struct arena_slab *slab = slab_of(arena, addr);
    uint64_t end = slab->start + (addr - slab->slab.addr) + bytes;
    uint64_t live = plm_offset_live(arena->ranges);
    if (end > arena->peak_extent_bytes)
        arena->peak_extent_bytes = end;
    if (live > arena->peak_live_bytes)
        arena->peak_live_bytes = live;
}

int plm_arena_alloc(struct plm_arena *arena, uint64_t bytes, uint64_t align, uint64_t *ret_addr)
{
    uint64_t addr;
    int r = plm_offset_alloc(arena->ranges, bytes, align, &addr);
    if (r == PLM_ERR_OUT_OF_DEVICE) {
        // A slab is only as aligned as the device aligns it.
        uint64_t slab_align = plm_device_caps(arena->device)->align_bytes;
        uint64_t want = bytes;
        if (align > slab_align && !plm_add_u64(bytes, align - slab_align, &want))
            return PLM_ERR_TOO_LARGE;
        if (slab_align < PLM_OFFSET_GRANULE && !plm_add_u64(want, PLM_OFFSET_GRANULE, &want))
            return PLM_ERR_TOO_LARGE;
        r = plm_arena_reserve(arena, want > arena->slab_bytes ? want : arena->slab_bytes);
        if (r == PLM_OK)
            r = plm_offset_alloc(arena->ranges, bytes, align, &addr);
    }
    if (r != PLM_OK)
        return r;
    uint64_t size = plm_offset_size(arena->ranges, addr);
    note_peaks(arena, addr, size);
    plm_ledger_live(arena->ledger, arena->mem_class, (int64_t)size);
    show_free(arena);
    *ret_addr = addr;
    return PLM_OK;
}

void plm_arena_free(struct plm_arena *arena, uint64_t addr)
{
    uint64_t bytes = plm_offset_free(arena->ranges, addr);
    plm_ledger_live(arena->ledger, arena->mem_class, -(int64_t)bytes);
    show_free(arena);
}

void *plm_arena_host(const struct plm_arena *arena, uint64_t addr)
{
    const struct arena_slab *slab = slab_of(arena, addr);
    if (slab == NULL || slab->slab.host == NULL)
        return NULL;
    return (char *)slab->slab.host + (addr - slab->slab.addr);
}

bool plm_arena_slab(const struct plm_arena *arena, uint32_t index, uint64_t *ret_addr,
                    uint64_t *ret_bytes)
{
    if (index >= arena->n_slabs)
        return false;
    *ret_addr = arena->slabs[index].slab.addr;
    *ret_bytes = arena->slabs[index].slab.bytes;
    return true;
}

void plm_arena_read(const struct plm_arena *arena, struct plm_arena_stats *ret)
{
    *ret = (struct plm_arena_stats){.slabs = arena->n_slabs,
                                    .held_bytes = arena->held_bytes,
                                    .live_bytes = plm_offset_live(arena->ranges),
                                    .peak_live_bytes = arena->peak_live_bytes,
                                    .peak_extent_bytes = arena->peak_extent_bytes,
                                    .largest_free_bytes = plm_offset_largest_free(arena->ranges)};
}
