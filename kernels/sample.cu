// SPDX-License-Identifier: Apache-2.0
// sample: a block a row, as argmax. A token's *key* is its distance's bits over its id, so that keys
// lie in the order in which top_k and top_p take tokens, and what they keep is what has a key up to
// a *limit*. The draw goes in the order of ids.
//
// Passes over the row: one for its best; one more that draws where nothing but the temperature and
// min_p is asked for. For top_k and top_p that second one gathers those near the best, few enough
// for shared memory, where everything ends then: how near follows from the best of each thread's
// share, of which the k-th has k tokens up to it. Where those are too few or too many (flat rows,
// large top_k) the limit is found over the row, eleven bits of the distance in each pass.
#include "kernels/lib/logits.cuh"
#include "kernels/sampling.h"

#define WARPS   (PLM_LOGITS_THREADS / PLM_WARP)
#define NEAR    4096u // keys that are gathered at most
#define BUCKETS 2048u // of a pass that looks for the limit
#define SPANS   (PLM_SAMPLE_VOCAB_MAX / PLM_LOGITS_SPAN)

// The block's memory.
struct memory {
    uint64_t *keys;  // [NEAR] gathered ones, or the mass of each bucket
    uint64_t *spans; // [SPANS * WARPS] mass of each span, by warp
    uint64_t *warps; // [WARPS]
    uint64_t *sum;   // what one thread tells the others
    uint32_t *at;
    uint32_t *n_near;
};

// What tokens count: those whose key lies in a range, by mass or one each.
struct measure {
    uint64_t low, high;
    float top, scale;
    bool mass;
};

PLM_FN uint64_t key_of(float distance, uint32_t id)
{
    return (uint64_t)plm_bits(distance) << 32 | id;
}

PLM_FN uint64_t count(const measure &m, float x, uint32_t i)
{
    const float distance = plm_sample_distance(m.top, x, m.scale);
    const uint64_t key = key_of(distance, i);
    if (key < m.low || key > m.high)
        return 0;
    return m.mass ? plm_sample_weight(distance) : 1;
}

// ---- sums of a block ----

PLM_FN uint64_t shuffle(uint64_t v, int lane)
{
    return (uint64_t)plm_shuffle((uint32_t)(v >> 32), lane) << 32 | plm_shuffle((uint32_t)v, lane);
}

PLM_FN uint64_t warp_sum(uint64_t v)
{
    const int lane = threadIdx.x % PLM_WARP;
    for (int mask = PLM_WARP / 2; mask > 0; mask /= 2)
        v += shuffle(v, lane ^ mask);
    return v;
}

PLM_FN uint64_t block_sum(const memory &s, uint64_t v)
{
    v = warp_sum(v);
    if (threadIdx.x % PLM_WARP == 0)
        s.warps[threadIdx.x / PLM_WARP] = v;
    __syncthreads();
    v = 0;
    for (uint32_t w = 0; w < WARPS; w++)
        v += s.warps[w];
    return v;
}

// Where the running sum of value(0 .. n-1) reaches want(total): the place (n: nowhere), and the sum
// up to and with it. To all threads; what value() reads was written before.
struct found {
    uint32_t at;
    uint64_t sum, want, total;
};

template <class Value, class Want>
PLM_FN found find(const memory &s, uint32_t n, Value value, Want want)
{
    const uint32_t each = (n + PLM_LOGITS_THREADS - 1) / PLM_LOGITS_THREADS;
    const uint32_t first = threadIdx.x * each, warp = threadIdx.x / PLM_WARP;
    const uint32_t last = first + each < n ? first + each : n;
    const int lane = threadIdx.x % PLM_WARP;
    uint64_t own = 0;
    __syncthreads();
    for (uint32_t i = first; i < last; i++)
        own += value(i);
    uint64_t sum = own;
    for (int far = 1; far < PLM_WARP; far *= 2) {
        const uint64_t other = shuffle(sum, (lane - far) & (PLM_WARP - 1));
        sum += lane >= far ? other : 0;
    }
    if (lane == PLM_WARP - 1)
        s.warps[warp] = sum;
    if (threadIdx.x == 0)
        *s.at = n;
    __syncthreads();
    found f = {n, 0, 0, 0};
    for (uint32_t w = 0; w < WARPS; w++) {
        sum += w < warp ? s.warps[w] : 0;
        f.total += s.warps[w];
    }
    f.want = want(f.total);
    uint64_t before = sum - own;
    if (before < f.want && f.want <= sum) {
        for (uint32_t i = first; before < f.want; i++) {
            before += value(i);
            *s.at = i;
        }
        *s.sum = before;
    }
    __syncthreads();
    f.at = *s.at;
    f.sum = *s.sum;
    return f;
}

// The token, in the order of ids, at which the running sum reaches want(total).
template <class Want>
PLM_FN uint32_t token_at(const memory &s, const plm_logits &l, const measure &m, Want want)
{
    uint64_t own = 0;
    plm_logits_each<4>(
        l, [&](float x, uint32_t i) { own += count(m, x, i); },
        [&](uint32_t span) {
            own = warp_sum(own);
            if (threadIdx.x % PLM_WARP == 0)
                s.spans[span * WARPS + threadIdx.x / PLM_WARP] = own;
            own = 0;
        });
    const auto mass = [&](uint32_t span) {
        uint64_t sum = 0;
        for (uint32_t w = 0; w < WARPS; w++)
            sum += s.spans[span * WARPS + w];
        return sum;
    };
    const found f = find(s, l.spans, mass, want);
    const uint64_t rest = f.want - (f.sum - mass(f.at));
    const uint32_t begin = plm_logits_begin(l, f.at), end = plm_logits_begin(l, f.at + 1);
    return begin + find(
                       s, end - begin,
                       [&](uint32_t i) { return count(m, l.row[begin + i], begin + i); },
                       [&](uint64_t) { return rest; })
                       .at;
}

// ---- over the row ----

// The bits of the distance at which the running sum by keys reaches want(total): m becomes the range
// of tokens at that distance; returns what they have to give. 0: all of m are not enough.
template <class Want>
PLM_FN uint64_t narrow(const memory &s, const plm_logits &l, measure &m, Want want)
{
    uint64_t rest = 0;
#pragma unroll 1
    for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift - 10) {
        __syncthreads();
        for (uint32_t b = threadIdx.x; b < BUCKETS; b += PLM_LOGITS_THREADS)
            s.keys[b] = 0;
        __syncthreads();
        plm_logits_each<2>(
            l,
            [&](float x, uint32_t i) {
                const uint64_t v = count(m, x, i);
                const uint32_t bits = plm_bits(plm_sample_distance(m.top, x, m.scale));
                if (v != 0)
                    plm_atomic_add(&s.keys[((bits - (uint32_t)(m.low >> 32)) >> shift)], v);
            },
            [](uint32_t) {});
        const found f = find(
            s, BUCKETS, [&](uint32_t b) { return s.keys[b]; },
            [&](uint64_t total) { return shift == 21 ? want(total) : rest; });
        if (f.at == BUCKETS)
            return 0;
        rest = f.want - (f.sum - s.keys[f.at]);
        m.low += (uint64_t)f.at << (32 + shift);
        const uint64_t high = m.low + ((uint64_t)1 << (32 + shift)) - 1;
        m.high = m.high < high ? m.high : high;
    }
    return rest;
}

// In turn the limit of top_k, that of top_p, and the draw; what is not asked for is left out.
PLM_FN uint32_t draw_from_row(const memory &s, const plm_logits &l, const plm_sample_row &p,
                              float top)
{
    uint64_t limit = key_of(p.cut + 0.0f, ~0u);
    uint32_t token = 0;
#pragma unroll 1
    for (int stage = 0; stage < 3; stage++) {
        if ((stage == 0 && p.top_k == 0) || (stage == 1 && p.top_p >= 1.0f))
            continue;
        measure m = {0, limit, top, p.scale, stage != 0};
        uint64_t rest = 0;
        if (stage < 2)
            rest = narrow(s, l, m, [&](uint64_t total) {
                return stage == 0 ? p.top_k : plm_sample_bound(p.top_p, total);
            });
        if (stage < 2 && rest == 0)
            continue; // top_k is more than there are
        token = token_at(s, l, m, [&](uint64_t total) {
            return stage < 2 ? rest : plm_sample_mul_high(p.u, total) + 1;
        });
        limit = m.low + token;
    }
    return token;
}

// ---- in shared memory ----

// Ascending, by a bitonic network. The block has to meet before it reads the result.
PLM_FN void sort(const memory &s, uint32_t n)
{
    uint32_t size = 1;
    while (size < n)
        size *= 2;
    for (uint32_t i = n + threadIdx.x; i < size; i += PLM_LOGITS_THREADS)
        s.keys[i] = ~(uint64_t)0;
    for (uint32_t run = 2; run <= size; run *= 2) {
        for (uint32_t far = run / 2; far > 0; far /= 2) {
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < size / 2; i += PLM_LOGITS_THREADS) {
                const uint32_t low = 2 * i - (i & (far - 1));
                const uint64_t x = s.keys[low], y = s.keys[low + far];
                if ((x > y) == ((low & run) == 0)) {
                    s.keys[low] = y;
                    s.keys[low + far] = x;
                }
            }
        }
    }
}

PLM_FN uint64_t weight_of(uint32_t bits)
{
    return plm_sample_weight(plm_float(bits));
}

// Of n gathered keys; mass: of all tokens up to the cut, for top_p without top_k. Beyond any token
// where these have less than top_p of it.
PLM_FN uint32_t draw_from_near(const memory &s, const plm_sample_row &p, uint32_t n, uint64_t mass)
{
    sort(s, n);
    if (p.top_k != 0 && p.top_k < n)
        n = p.top_k;
    const found kept = find(
        s, n, [&](uint32_t i) { return weight_of((uint32_t)(s.keys[i] >> 32)); },
        [&](uint64_t total) { return plm_sample_bound(p.top_p, p.top_k != 0 ? total : mass); });
    if (kept.at == n)
        return ~0u;
    const uint32_t n_kept = kept.at + 1;
    for (uint32_t i = threadIdx.x; i < n_kept; i += PLM_LOGITS_THREADS)
        s.keys[i] = s.keys[i] << 32 | s.keys[i] >> 32;
    sort(s, n_kept);
    const found f = find(
        s, n_kept, [&](uint32_t i) { return weight_of((uint32_t)s.keys[i]); },
        [&](uint64_t) { return plm_sample_mul_high(p.u, kept.sum) + 1; });
    return (uint32_t)(s.keys[f.at] >> 32);
}

// A distance up to which there are top_k tokens, or without top_k some thousand of a long row: that
// of the k-th best among the bests of threads, or of the last one.
PLM_FN float near_distance(const memory &s, const plm_sample_row &p, float own, float top)
{
    const uint32_t k = p.top_k != 0 && p.top_k < PLM_LOGITS_THREADS ? p.top_k : PLM_LOGITS_THREADS;
    const uint64_t key = key_of(plm_sample_distance(top, own, p.scale), threadIdx.x);
    uint32_t before = 0;
    s.keys[threadIdx.x] = key;
    __syncthreads(); // all bests are there
    for (uint32_t t = 0; t < PLM_LOGITS_THREADS; t++)
        before += s.keys[t] < key;
    if (before + 1 == k)
        *s.sum = key;
    __syncthreads();
    return plm_float((uint32_t)(*s.sum >> 32));
}

// By top_k and top_p: from those near the best where they are enough, else from the row.
PLM_FN uint32_t draw(const memory &s, const plm_logits &l, const plm_sample_row &p, float own,
                     float top)
{
    if (p.top_k == 0 && p.top_p >= 1.0f)
        return draw_from_row(s, l, p, top);
    const float far = near_distance(s, p, own, top);
    const bool all = l.n <= NEAR || far >= p.cut;
    const float near = all ? p.cut : far;
    uint64_t mass = 0;
    plm_logits_each<8>(
        l,
        [&](float x, uint32_t i) {
            const float distance = plm_sample_distance(top, x, p.scale);
            if (distance <= near) {
                const uint32_t at = plm_atomic_add(s.n_near, 1);
                if (at < NEAR)
                    s.keys[at] = key_of(distance, i);
            }
            if (p.top_k == 0 && distance <= p.cut)
                mass += plm_sample_weight(distance);
        },
        [](uint32_t) {});
    mass = block_sum(s, mass);
    const uint32_t n = *s.n_near;
    uint32_t token = ~0u;
    if (n <= NEAR && (all || n >= p.top_k))
        token = draw_from_near(s, p, n, mass);
    return token != ~0u ? token : draw_from_row(s, l, p, top);
}

// Per thread: AMD's waves have few registers that lanes share, and this one lives long.
PLM_FN uint64_t keep(uint64_t v)
{
    return (uint64_t)plm_keep((uint32_t)(v >> 32)) << 32 | plm_keep((uint32_t)v);
}

PLM_KERNEL(plm_sample, PLM_LOGITS_THREADS, 1, plm_sample_args)
{
    PLM_SHARED(plm_best, bests, WARPS);
    PLM_SHARED(uint64_t, keys, NEAR);
    PLM_SHARED(uint64_t, spans, SPANS * WARPS);
    PLM_SHARED(uint64_t, sums, WARPS + 1);
    PLM_SHARED(uint32_t, counts, 2);
    const memory s = {keys, spans, sums, sums + WARPS, counts, counts + 1};
    plm_release();
    plm_await();
    const uint64_t dst = keep(a.dst + blockIdx.x * sizeof(plm_argmax_record));
    const plm_sample_row p = *((const plm_sample_row *)a.params + blockIdx.x);
    const plm_logits l = plm_logits_of((const float *)a.x + (uint64_t)blockIdx.x * a.n, a.n);
    const plm_best own = plm_best_own(l);
    if (threadIdx.x == 0)
        *s.n_near = 0;
    const plm_best b = plm_best_of_all(own, bests);
    uint32_t token = b.index;
    if (p.scale != 0.0f && b.n_wrong == 0)
        token = draw(s, l, p, own.top, b.top);
    plm_best_write((plm_argmax_record *)dst, b, token, l.n);
}
