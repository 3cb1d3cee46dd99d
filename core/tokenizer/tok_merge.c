// SPDX-License-Identifier: Apache-2.0
// The merging engine of both kinds of vocabulary. Short words, which are nearly all of them, are
// merged by scanning an array; long ones over a heap, so that a word of a million letters takes
// n log n steps.
#include <string.h>

#include "core/tokenizer/tok.h"

// Up to this many symbols the scan is faster than the heap (its quadratic term stays small).
#define SHORT_SYMBOLS 24

#define NO_OFFSET UINT32_MAX

void plm_tok_scratch_init(struct plm_tok_scratch *scratch, struct plm_host *host)
{
    *scratch = (struct plm_tok_scratch){.host = host};
    plm_buf_init(&scratch->text, host, PLM_HOST_TOKENIZER);
}

void plm_tok_scratch_finish(struct plm_tok_scratch *scratch)
{
    struct plm_host *host = scratch->host;
    plm_free(host, scratch->symbols.id);
    plm_free(host, scratch->symbols.len);
    plm_free(host, scratch->symbols.prev);
    plm_free(host, scratch->heap);
    plm_free(host, scratch->cps);
    plm_buf_finish(&scratch->text);
}

bool plm_tok_scratch_symbols(struct plm_tok_scratch *scratch, size_t n)
{
    if (n <= scratch->symbols_cap)
        return true;
    size_t cap = n < 64 ? 64 : n + n / 2;
    if (cap >= NO_OFFSET)
        cap = NO_OFFSET - 1;
    if (n > cap)
        return false;
    struct plm_host *host = scratch->host;
    // The old contents are not needed: freeing first keeps the peak low.
    plm_free(host, scratch->symbols.id);
    plm_free(host, scratch->symbols.len);
    plm_free(host, scratch->symbols.prev);
    scratch->symbols_cap = 0;
    scratch->symbols.id = plm_malloc(host, PLM_HOST_TOKENIZER, cap * sizeof(int32_t));
    scratch->symbols.len = plm_malloc(host, PLM_HOST_TOKENIZER, cap * sizeof(uint32_t));
    scratch->symbols.prev = plm_malloc(host, PLM_HOST_TOKENIZER, cap * sizeof(uint32_t));
    if (scratch->symbols.id == NULL || scratch->symbols.len == NULL ||
        scratch->symbols.prev == NULL)
        return false;
    scratch->symbols_cap = (uint32_t)cap;
    return true;
}

// At most SHORT_SYMBOLS symbols: keys[i] belongs to the pair of symbols i and i + 1.
static void merge_short(const struct plm_tokenizer *tokenizer, struct plm_tok_symbols *symbols,
                        const char *s, uint32_t *at, uint32_t n, plm_tok_pair_fn *pair)
{
    uint32_t keys[SHORT_SYMBOLS];
    int32_t results[SHORT_SYMBOLS]; // -1: the pair can not be merged
    for (uint32_t i = 0; i + 1 < n; i++)
        if (!pair(tokenizer, s + at[i], at[i + 2] - at[i], symbols->id[at[i]],
                  symbols->id[at[i + 1]], &keys[i], &results[i]))
            results[i] = -1;
    for (;;) {
        uint32_t best = n;
        for (uint32_t i = 0; i + 1 < n; i++)
            if (results[i] >= 0 && (best == n || keys[i] < keys[best]))
                best = i;
        if (best == n)
            return;
        symbols->id[at[best]] = results[best];
        symbols->len[at[best]] += symbols->len[at[best + 1]];
        symbols->len[at[best + 1]] = 0;
        n--;
        memmove(&at[best + 1], &at[best + 2], (n - best) * sizeof(*at));
        if (best + 1 < n) {
            memmove(&keys[best], &keys[best + 1], (n - best - 1) * sizeof(*keys));
            memmove(&results[best], &results[best + 1], (n - best - 1) * sizeof(*results));
        }
        for (uint32_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++)
            if (!pair(tokenizer, s + at[i], at[i + 2] - at[i], symbols->id[at[i]],
                      symbols->id[at[i + 1]], &keys[i], &results[i]))
                results[i] = -1;
    }
}

static bool heap_push(struct plm_tok_scratch *scratch, uint64_t entry)
{
    if (scratch->heap_n == scratch->heap_cap) {
        size_t cap = scratch->heap_cap < 128 ? 128 : scratch->heap_cap + scratch->heap_cap / 2;
        uint64_t *heap =
            plm_realloc(scratch->host, PLM_HOST_TOKENIZER, scratch->heap, cap * sizeof(*heap));
        if (heap == NULL)
            return false;
        scratch->heap = heap;
        scratch->heap_cap = cap;
    }
    uint64_t *heap = scratch->heap;
    size_t i = scratch->heap_n++;
    while (i > 0 && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
    return true;
}

static uint64_t heap_pop(struct plm_tok_scratch *scratch)
{
    uint64_t *heap = scratch->heap;
    uint64_t top = heap[0];
    uint64_t last = heap[--scratch->heap_n];
    size_t n = scratch->heap_n;
    size_t i = 0;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    if (n > 0)
        heap[i] = last;
    return top;
}

// Whether the symbol at left and its right neighbour can be merged.
static bool pair_at(const struct plm_tokenizer *tokenizer, const struct plm_tok_symbols *symbols,
                    const char *s, uint32_t n, uint32_t left, plm_tok_pair_fn *pair,
                    uint32_t *ret_key, int32_t *ret_id)
{
    uint32_t right = left + symbols->len[left];
    return right < n && pair(tokenizer, s + left, symbols->len[left] + symbols->len[right],
                             symbols->id[left], symbols->id[right], ret_key, ret_id);
}

// An entry of the heap is not removed when its pair goes. It is looked up again when it comes to
// the top: if the pair that starts there now has the same key, merging it is right, since its own
// entry would be equal.
static int merge_long(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                      const char *s, uint32_t n, plm_tok_pair_fn *pair)
{
    struct plm_tok_symbols *symbols = &scratch->symbols;
    uint32_t key;
    int32_t id;
    scratch->heap_n = 0;
    for (uint32_t i = 0; i < n; i += symbols->len[i])
        if (pair_at(tokenizer, symbols, s, n, i, pair, &key, &id) &&
            !heap_push(scratch, (uint64_t)key << 32 | i))
            return PLM_ERR_NOMEM_HOST;
    while (scratch->heap_n > 0) {
        uint64_t entry = heap_pop(scratch);
        uint32_t left = (uint32_t)entry;
        if (symbols->len[left] == 0 || !pair_at(tokenizer, symbols, s, n, left, pair, &key, &id) ||
            key != (uint32_t)(entry >> 32))
            continue;
        uint32_t right = left + symbols->len[left];
        uint32_t end = right + symbols->len[right];
        symbols->id[left] = id;
        symbols->len[left] += symbols->len[right];
        symbols->len[right] = 0;
        if (end < n)
            symbols->prev[end] = left;
        if (pair_at(tokenizer, symbols, s, n, left, pair, &key, &id) &&
            !heap_push(scratch, (uint64_t)key << 32 | left))
            return PLM_ERR_NOMEM_HOST;
        uint32_t before = symbols->prev[left];
        if (before != NO_OFFSET && pair_at(tokenizer, symbols, s, n, before, pair, &key, &id) &&
            !heap_push(scratch, (uint64_t)key << 32 | before))
            return PLM_ERR_NOMEM_HOST;
    }
    return PLM_OK;
}

int plm_tok_merge(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                  const char *s, uint32_t n, plm_tok_pair_fn *pair)
{
    struct plm_tok_symbols *symbols = &scratch->symbols;
    uint32_t at[SHORT_SYMBOLS + 1];
    uint32_t count = 0;
    uint32_t i = 0;
    for (; i < n && count < SHORT_SYMBOLS; i += symbols->len[i])
        at[count++] = i;
    if (i >= n) {
        at[count] = n;
        merge_short(tokenizer, symbols, s, at, count, pair);
        return PLM_OK;
    }
    uint32_t before = NO_OFFSET;
    for (i = 0; i < n; i += symbols->len[i]) {
        symbols->prev[i] = before;
        before = i;
    }
    return merge_long(tokenizer, scratch, s, n, pair);
}
