// SPDX-License-Identifier: Apache-2.0
#include "core/mem/offset_alloc.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/base/status.h"

#define NONE UINT32_MAX

// First level: power of two of the size in granules; second level: 16 steps inside it, so that a
// class's sizes differ by at most 1/16.
#define FIRST_LEVELS 58 // 64 bits of address less the 6 of the granule
#define SECOND_BITS  4
#define SECOND       (1u << SECOND_BITS)

// Entries of a range's own class that are looked at before a larger class is split: they may be
// exact fits (a slab that was taken for just this range). Bounded, so that alloc stays O(1).
#define SCAN_MAX 16

struct node {
    uint64_t addr;
    uint64_t bytes;
    uint32_t before, after; // neighbours in the region, NONE at its ends
    uint32_t prev, next;    // free: in the list of its class. live: next in the hash chain
    bool live;
};

struct plm_offset_alloc {
    struct plm_host *host;
    struct node *nodes;
    uint32_t cap;
    uint32_t spare;    // head of unused nodes, linked through next
    uint32_t *buckets; // cap of them: live nodes by address
    uint64_t first_map;
    uint32_t second_map[FIRST_LEVELS];
    uint32_t heads[FIRST_LEVELS][SECOND];
    uint64_t live_bytes;
};

struct plm_offset_alloc *plm_offset_create(struct plm_host *host)
{
    struct plm_offset_alloc *alloc = plm_calloc(host, PLM_HOST_OTHER, 1, sizeof(*alloc));
    if (alloc == NULL)
        return NULL;
    alloc->host = host;
    alloc->spare = NONE;
    memset(alloc->heads, 0xff, sizeof(alloc->heads));
    return alloc;
}

void plm_offset_destroy(struct plm_offset_alloc *alloc)
{
    if (alloc == NULL)
        return;
    plm_free(alloc->host, alloc->nodes);
    plm_free(alloc->host, alloc->buckets);
    plm_free(alloc->host, alloc);
}

// ---- live ranges by address ----

static uint32_t *bucket_of(const struct plm_offset_alloc *alloc, uint64_t addr)
{
    // Fibonacci hashing; cap is a power of two.
    uint64_t mixed = (addr / PLM_OFFSET_GRANULE) * UINT64_C(0x9e3779b97f4a7c15);
    return &alloc->buckets[(mixed >> 32) & (alloc->cap - 1)];
}

static void live_insert(struct plm_offset_alloc *alloc, uint32_t id)
{
    uint32_t *bucket = bucket_of(alloc, alloc->nodes[id].addr);
    alloc->nodes[id].next = *bucket;
    *bucket = id;
}

static uint32_t *live_find(const struct plm_offset_alloc *alloc, uint64_t addr)
{
    if (alloc->cap == 0)
        return NULL;
    uint32_t *at = bucket_of(alloc, addr);
    while (*at != NONE && alloc->nodes[*at].addr != addr)
        at = &alloc->nodes[*at].next;
    return *at == NONE ? NULL : at;
}

static int grow(struct plm_offset_alloc *alloc)
{
    uint32_t cap = alloc->cap == 0 ? 64 : alloc->cap * 2;
    if (cap == 0)
        return PLM_ERR_NOMEM_HOST;
    struct node *nodes =
        plm_realloc(alloc->host, PLM_HOST_OTHER, alloc->nodes, cap * sizeof(*nodes));
    if (nodes == NULL)
        return PLM_ERR_NOMEM_HOST;
    alloc->nodes = nodes;
    uint32_t *buckets = plm_malloc(alloc->host, PLM_HOST_OTHER, cap * sizeof(*buckets));
    if (buckets == NULL)
        return PLM_ERR_NOMEM_HOST; // nodes are larger than cap says; the next try grows them anew
    memset(buckets, 0xff, cap * sizeof(*buckets));
    uint32_t *old = alloc->buckets;
    uint32_t old_cap = alloc->cap;
    alloc->buckets = buckets;
    alloc->cap = cap;
    for (uint32_t b = 0; b < old_cap; b++) {
        for (uint32_t id = old[b], next; id != NONE; id = next) {
            next = nodes[id].next;
            live_insert(alloc, id);
        }
    }
    plm_free(alloc->host, old);
    for (uint32_t id = cap; id-- > old_cap;) {
        nodes[id].next = alloc->spare;
        alloc->spare = id;
    }
    return PLM_OK;
}

// Makes sure that n nodes are spare, so that what follows can not fail half-way.
static int reserve(struct plm_offset_alloc *alloc, unsigned n)
{
    unsigned have = 0;
    for (uint32_t id = alloc->spare; id != NONE && have < n; id = alloc->nodes[id].next)
        have++;
    return have < n ? grow(alloc) : PLM_OK;
}

static uint32_t node_take(struct plm_offset_alloc *alloc, uint64_t addr, uint64_t bytes)
{
    uint32_t id = alloc->spare;
    alloc->spare = alloc->nodes[id].next;
    alloc->nodes[id] = (struct node){
        .addr = addr, .bytes = bytes, .before = NONE, .after = NONE, .prev = NONE, .next = NONE};
    return id;
}

static void node_drop(struct plm_offset_alloc *alloc, uint32_t id)
{
    alloc->nodes[id].next = alloc->spare;
    alloc->spare = id;
}

// ---- free ranges by class ----

static void class_of(uint64_t bytes, unsigned *ret_first, unsigned *ret_second)
{
    uint64_t n = bytes / PLM_OFFSET_GRANULE;
    unsigned first = 63 - (unsigned)__builtin_clzll(n);
    *ret_first = first;
    *ret_second = first >= SECOND_BITS ? (unsigned)(n >> (first - SECOND_BITS)) & (SECOND - 1)
                                       : (unsigned)(n << (SECOND_BITS - first)) & (SECOND - 1);
}

static void free_insert(struct plm_offset_alloc *alloc, uint32_t id)
{
    unsigned first, second;
    struct node *node = &alloc->nodes[id];
    class_of(node->bytes, &first, &second);
    node->live = false;
    node->prev = NONE;
    node->next = alloc->heads[first][second];
    if (node->next != NONE)
        alloc->nodes[node->next].prev = id;
    alloc->heads[first][second] = id;
    alloc->first_map |= UINT64_C(1) << first;
    alloc->second_map[first] |= 1u << second;
}

static void free_remove(struct plm_offset_alloc *alloc, uint32_t id)
{
    unsigned first, second;
    struct node *node = &alloc->nodes[id];
    class_of(node->bytes, &first, &second);
    if (node->next != NONE)
        alloc->nodes[node->next].prev = node->prev;
    if (node->prev != NONE) {
        alloc->nodes[node->prev].next = node->next;
        return;
    }
    alloc->heads[first][second] = node->next;
    if (node->next != NONE)
        return;
    alloc->second_map[first] &= ~(1u << second);
    if (alloc->second_map[first] == 0)
        alloc->first_map &= ~(UINT64_C(1) << first);
}

static uint64_t aligned(const struct node *node, uint64_t align)
{
    return (node->addr + align - 1) & ~(align - 1);
}

static bool fits(const struct node *node, uint64_t bytes, uint64_t align)
{
    uint64_t skip = aligned(node, align) - node->addr;
    return node->bytes >= skip && node->bytes - skip >= bytes;
}

// The smallest of the first entries of one class that fits.
static uint32_t scan_class(const struct plm_offset_alloc *alloc, uint64_t class_bytes,
                           uint64_t bytes, uint64_t align)
{
    unsigned first, second;
    uint32_t best = NONE;
    class_of(class_bytes, &first, &second);
    uint32_t id = alloc->heads[first][second];
    for (int i = 0; i < SCAN_MAX && id != NONE; i++, id = alloc->nodes[id].next) {
        if (fits(&alloc->nodes[id], bytes, align) &&
            (best == NONE || alloc->nodes[id].bytes < alloc->nodes[best].bytes))
            best = id;
    }
    return best;
}

// Head of the lowest class above that of `bytes`; each of its entries has more than `bytes`.
static uint32_t larger_class(const struct plm_offset_alloc *alloc, uint64_t bytes)
{
    unsigned first, second;
    class_of(bytes, &first, &second);
    uint32_t map = second + 1 < SECOND ? alloc->second_map[first] >> (second + 1) : 0;
    if (map != 0)
        return alloc->heads[first][second + 1 + (unsigned)__builtin_ctz(map)];
    uint64_t above = first + 1 < FIRST_LEVELS ? alloc->first_map >> (first + 1) : 0;
    if (above == 0)
        return NONE;
    first += 1 + (unsigned)__builtin_ctzll(above);
    return alloc->heads[first][__builtin_ctz(alloc->second_map[first])];
}

// Before giving up: a fit may hide behind SCAN_MAX others or between the classes of the size and of
// the size with its alignment. Linear, on the way to a driver call or a failure only.
static uint32_t find_anywhere(const struct plm_offset_alloc *alloc, uint64_t bytes, uint64_t align)
{
    unsigned first, second;
    class_of(bytes, &first, &second);
    for (unsigned c = first * SECOND + second; c < FIRST_LEVELS * SECOND; c++) {
        for (uint32_t id = alloc->heads[c / SECOND][c % SECOND]; id != NONE;
             id = alloc->nodes[id].next) {
            if (fits(&alloc->nodes[id], bytes, align))
                return id;
        }
    }
    return NONE;
}

static uint32_t find(const struct plm_offset_alloc *alloc, uint64_t bytes, uint64_t align)
{
    uint32_t id = scan_class(alloc, bytes, bytes, align);
    if (id != NONE)
        return id;
    id = larger_class(alloc, bytes);
    if (id != NONE && fits(&alloc->nodes[id], bytes, align))
        return id;
    // Room for the worst misalignment is enough in any case.
    uint64_t padded;
    if (!plm_add_u64(bytes, align - PLM_OFFSET_GRANULE, &padded))
        return NONE;
    id = scan_class(alloc, padded, bytes, align);
    if (id == NONE)
        id = larger_class(alloc, padded);
    return id != NONE ? id : find_anywhere(alloc, bytes, align);
}

int plm_offset_alloc(struct plm_offset_alloc *alloc, uint64_t bytes, uint64_t align,
                     uint64_t *ret_addr)
{
    if (bytes > INT64_MAX)
        return PLM_ERR_OUT_OF_DEVICE;
    bytes = plm_round_up(bytes == 0 ? 1 : bytes, PLM_OFFSET_GRANULE);
    if (align < PLM_OFFSET_GRANULE)
        align = PLM_OFFSET_GRANULE;
    int r = reserve(alloc, 2); // what is cut off before and after
    if (r != PLM_OK)
        return r;
    uint32_t id = find(alloc, bytes, align);
    if (id == NONE)
        return PLM_ERR_OUT_OF_DEVICE;
    free_remove(alloc, id);
    struct node *node = &alloc->nodes[id];
    uint64_t skip = aligned(node, align) - node->addr;
    if (skip > 0) {
        uint32_t head = node_take(alloc, node->addr, skip);
        alloc->nodes[head].before = node->before;
        alloc->nodes[head].after = id;
        if (node->before != NONE)
            alloc->nodes[node->before].after = head;
        node->before = head;
        node->addr += skip;
        node->bytes -= skip;
        free_insert(alloc, head);
    }
    if (node->bytes > bytes) {
        uint32_t tail = node_take(alloc, node->addr + bytes, node->bytes - bytes);
        alloc->nodes[tail].after = node->after;
        alloc->nodes[tail].before = id;
        if (node->after != NONE)
            alloc->nodes[node->after].before = tail;
        node->after = tail;
        node->bytes = bytes;
        free_insert(alloc, tail);
    }
    node->live = true;
    live_insert(alloc, id);
    alloc->live_bytes += bytes;
    *ret_addr = node->addr;
    return PLM_OK;
}

// Adds the neighbour after id, which is in no list, to id.
static void absorb_after(struct plm_offset_alloc *alloc, uint32_t id)
{
    struct node *node = &alloc->nodes[id];
    uint32_t other = node->after;
    node->bytes += alloc->nodes[other].bytes;
    node->after = alloc->nodes[other].after;
    if (node->after != NONE)
        alloc->nodes[node->after].before = id;
    node_drop(alloc, other);
}

uint64_t plm_offset_free(struct plm_offset_alloc *alloc, uint64_t addr)
{
    uint32_t *link = live_find(alloc, addr);
    if (link == NULL)
        return 0;
    uint32_t id = *link;
    struct node *node = &alloc->nodes[id];
    *link = node->next;
    uint64_t bytes = node->bytes;
    alloc->live_bytes -= bytes;
    node->live = false;
    if (node->after != NONE && !alloc->nodes[node->after].live) {
        free_remove(alloc, node->after);
        absorb_after(alloc, id);
    }
    if (node->before != NONE && !alloc->nodes[node->before].live) {
        uint32_t before = node->before;
        free_remove(alloc, before);
        absorb_after(alloc, before);
        id = before;
    }
    free_insert(alloc, id);
    return bytes;
}

uint64_t plm_offset_size(const struct plm_offset_alloc *alloc, uint64_t addr)
{
    const uint32_t *link = live_find(alloc, addr);
    return link == NULL ? 0 : alloc->nodes[*link].bytes;
}

int plm_offset_add(struct plm_offset_alloc *alloc, uint64_t base, uint64_t bytes)
{
    int r = reserve(alloc, 1);
    if (r != PLM_OK)
        return r;
    free_insert(alloc, node_take(alloc, base, bytes));
    return PLM_OK;
}

bool plm_offset_remove(struct plm_offset_alloc *alloc, uint64_t base)
{
    for (unsigned first = 0; first < FIRST_LEVELS; first++) {
        for (unsigned second = 0; second < SECOND; second++) {
            uint32_t id = alloc->heads[first][second];
            while (id != NONE && alloc->nodes[id].addr != base)
                id = alloc->nodes[id].next;
            if (id == NONE)
                continue;
            if (alloc->nodes[id].before != NONE || alloc->nodes[id].after != NONE)
                return false;
            free_remove(alloc, id);
            node_drop(alloc, id);
            return true;
        }
    }
    return false;
}

uint64_t plm_offset_largest_free(const struct plm_offset_alloc *alloc)
{
    if (alloc->first_map == 0)
        return 0;
    unsigned first = 63 - (unsigned)__builtin_clzll(alloc->first_map);
    unsigned second = 31 - (unsigned)__builtin_clz(alloc->second_map[first]);
    uint64_t largest = 0;
    for (uint32_t id = alloc->heads[first][second]; id != NONE; id = alloc->nodes[id].next) {
        if (alloc->nodes[id].bytes > largest)
            largest = alloc->nodes[id].bytes;
    }
    return largest;
}

uint64_t plm_offset_live(const struct plm_offset_alloc *alloc)
{
    return alloc->live_bytes;
}

// ---- tests ----

static bool check_neighbours(const struct plm_offset_alloc *alloc, uint32_t id)
{
    const struct node *node = &alloc->nodes[id];
    if (node->after == NONE)
        return true;
    const struct node *after = &alloc->nodes[node->after];
    return after->before == id && after->addr == node->addr + node->bytes &&
           (node->live || after->live); // two free neighbours would have merged
}

bool plm_offset_check(const struct plm_offset_alloc *alloc)
{
    uint64_t live = 0;
    uint32_t seen = 0;
    for (uint32_t b = 0; b < alloc->cap; b++) {
        for (uint32_t id = alloc->buckets[b]; id != NONE; id = alloc->nodes[id].next, seen++) {
            live += alloc->nodes[id].bytes;
            if (!alloc->nodes[id].live || !check_neighbours(alloc, id))
                return false;
        }
    }
    for (unsigned first = 0; first < FIRST_LEVELS; first++) {
        if ((alloc->second_map[first] != 0) != ((alloc->first_map >> first & 1) != 0))
            return false;
        for (unsigned second = 0; second < SECOND; second++) {
            uint32_t head = alloc->heads[first][second];
            if ((head != NONE) != ((alloc->second_map[first] >> second & 1) != 0))
                return false;
            for (uint32_t id = head; id != NONE; id = alloc->nodes[id].next, seen++) {
                unsigned f, s;
                class_of(alloc->nodes[id].bytes, &f, &s);
                if (f != first || s != second || alloc->nodes[id].live ||
                    !check_neighbours(alloc, id))
                    return false;
            }
        }
    }
    for (uint32_t id = alloc->spare; id != NONE; id = alloc->nodes[id].next)
        seen++;
    return live == alloc->live_bytes && seen == alloc->cap;
}
