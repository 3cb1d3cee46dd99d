// SPDX-License-Identifier: Apache-2.0
#include "core/sched/sample.h"

#include <math.h>
#include <string.h>

#include "core/base/random.h"
#include "kernels/sampling.h"

// Sums and maxima run over this many lanes (element i in lane i % LANES), which the compiler turns
// into vectors without being allowed to reorder anything.
#define LANES 16u
// Elements whose probabilities are summed together; the draw first finds its span, then its token.
#define SPAN 256u
// Distances from the best logit are counted in buckets of 1/16 up to 64; e^-64 is below what any
// sum of probabilities can see.
#define BUCKETS      1024u
#define BUCKET_PER_1 16.0f
// Tokens that are looked at first: those behind it rarely matter to top_k or top_p.
#define NEAR          10.0f
#define SEEN_IN_INPUT 0x80000000u // flag beside the count of a token

struct plm_sampler {
    struct plm_host *host;
    uint32_t n_vocab;
    float *adjusted;  // [n_vocab] logits after bias and penalties
    float *distance;  // [n_vocab] (best - logit) / temperature, at least 0
    float *weight;    // [n_vocab] e^-distance, not yet rounded to units
    uint32_t *seen;   // [n_vocab] all zero between draws
    uint64_t *keys;   // [n_vocab] distance bits << 32 | id
    uint64_t *sorted; // [n_vocab]
    uint64_t *spans;  // [ceil(n_vocab / SPAN)]
};

int plm_sampler_create(struct plm_host *host, uint32_t n_vocab, struct plm_sampler **ret)
{
    struct plm_sampler *s = plm_calloc(host, PLM_HOST_SCHED, 1, sizeof(*s));
    if (s == NULL)
        return PLM_ERR_NOMEM_HOST;
    s->host = host;
    s->n_vocab = n_vocab;
    s->adjusted = plm_calloc(host, PLM_HOST_SCHED, n_vocab, sizeof(float));
    s->distance = plm_calloc(host, PLM_HOST_SCHED, n_vocab, sizeof(float));
    s->weight = plm_calloc(host, PLM_HOST_SCHED, n_vocab, sizeof(float));
    s->seen = plm_calloc(host, PLM_HOST_SCHED, n_vocab, sizeof(uint32_t));
    s->keys = plm_calloc(host, PLM_HOST_SCHED, n_vocab, sizeof(uint64_t));
    s->sorted = plm_calloc(host, PLM_HOST_SCHED, n_vocab, sizeof(uint64_t));
    s->spans = plm_calloc(host, PLM_HOST_SCHED, (size_t)n_vocab / SPAN + 1, sizeof(uint64_t));
    if (s->adjusted == NULL || s->distance == NULL || s->weight == NULL || s->seen == NULL ||
        s->keys == NULL || s->sorted == NULL || s->spans == NULL) {
        plm_sampler_destroy(s);
        return PLM_ERR_NOMEM_HOST;
    }
    *ret = s;
    return PLM_OK;
}

void plm_sampler_destroy(struct plm_sampler *s)
{
    if (s == NULL)
        return;
    plm_free(s->host, s->adjusted);
    plm_free(s->host, s->distance);
    plm_free(s->host, s->weight);
    plm_free(s->host, s->seen);
    plm_free(s->host, s->keys);
    plm_free(s->host, s->sorted);
    plm_free(s->host, s->spans);
    plm_free(s->host, s);
}

static void exp_all(const float *distance, uint32_t n, float *ret)
{
    // Two loops: compilers do not vectorise the choice and the polynomial as one.
    for (uint32_t i = 0; i < n; i++)
        ret[i] = distance[i] < PLM_SAMPLE_EXP_MAX ? distance[i] : PLM_SAMPLE_EXP_MAX;
    for (uint32_t i = 0; i < n; i++)
        ret[i] = plm_sample_exp(ret[i]);
}

// In four lanes: a single chain of additions would wait for each.
static double sum_all(const float *x, uint32_t n)
{
    double lanes[4] = {0};
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (uint32_t l = 0; l < 4; l++)
            lanes[l] += (double)x[i + l];
    }
    for (; i < n; i++)
        lanes[0] += (double)x[i];
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// plm_sample_fixed() of all, added up. Doubles from 2^12 on have units of 2^-40, so a sum with 2^12
// rounds as it does, and the bits of such doubles count these units: no branch, and what vectors
// have instructions for.
static uint64_t sum_fixed(const float *e, uint32_t n)
{
    const double unit = 4096.0;
    uint64_t zero, sum = 0;
    memcpy(&zero, &unit, sizeof(zero));
    for (uint32_t i = 0; i < n; i++) {
        const double rounded = (double)e[i] + unit;
        uint64_t bits;
        memcpy(&bits, &rounded, sizeof(bits));
        sum += bits;
    }
    return sum - n * zero;
}

// The exponent's bits are all set in NaN and infinity alone; a sum of integers, unlike one of
// floats, may be taken in any order, so compilers make it wide.
bool plm_sample_finite(const float *logits, uint32_t n)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n; i++) {
        wrong += (plm_sample_bits(logits[i]) & 0x7F800000u) == 0x7F800000u;
    }
    return wrong == 0;
}

// Largest logit; false when one is NaN or infinite (x * 0 is 0 for every finite x).
static bool find_max(const float *x, uint32_t n, float *ret)
{
    float best[LANES], zero[LANES];
    for (uint32_t l = 0; l < LANES; l++) {
        best[l] = x[0];
        zero[l] = 0.0f;
    }
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            float v = x[i + l];
            best[l] = v > best[l] ? v : best[l];
            zero[l] += v * 0.0f;
        }
    }
    for (; i < n; i++) {
        best[0] = x[i] > best[0] ? x[i] : best[0];
        zero[0] += x[i] * 0.0f;
    }
    float max = best[0], sum = zero[0];
    for (uint32_t l = 1; l < LANES; l++) {
        max = best[l] > max ? best[l] : max;
        sum += zero[l];
    }
    *ret = max;
    return sum == 0.0f;
}

static uint32_t first_equal(const float *x, uint32_t n, float value)
{
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] == value)
            return i;
    }
    return n;
}

// ---- log-probabilities ----

static void take_logprobs(struct plm_sampler *s, const float *logits, float max, uint32_t n_top,
                          struct plm_sample_out *out)
{
    const uint32_t n = s->n_vocab;
    for (uint32_t i = 0; i < n; i++)
        s->distance[i] = max - logits[i];
    exp_all(s->distance, n, s->weight);
    double lse = (double)max + log(sum_all(s->weight, n));
    out->logprob = (float)((double)logits[out->token] - lse);
    // Insertion into a short sorted list; nearly all logits fail the first comparison.
    uint32_t have = 0;
    float top[PLM_SAMPLE_TOP_MAX];
    for (uint32_t i = 0; n_top > 0 && i < n; i++) {
        if (have == n_top && !(logits[i] > top[have - 1]))
            continue;
        uint32_t at = have < n_top ? have++ : have - 1;
        for (; at > 0 && logits[i] > top[at - 1]; at--) {
            top[at] = top[at - 1];
            out->top[at] = out->top[at - 1];
        }
        top[at] = logits[i];
        out->top[at].token = (int32_t)i;
    }
    for (uint32_t i = 0; i < have; i++)
        out->top[i].logprob = (float)((double)top[i] - lse);
    out->n_top = have;
}

// ---- bias and penalties ----

static bool has_penalties(const struct plm_sample_params *p)
{
    return p->repeat_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f;
}

// Counts tokens in the scratch and lists each once, then applies and wipes. Walking the history of
// one sequence costs microseconds and spares every sequence a table of its own.
static void apply_penalties(struct plm_sampler *s, const struct plm_sample_in *in)
{
    const struct plm_sample_params *p = in->params;
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_output; i++) {
        uint32_t id = (uint32_t)in->output[i];
        if (s->seen[id]++ == 0)
            s->keys[n++] = id;
    }
    if (p->repeat_penalty != 1.0f) {
        for (uint32_t i = 0; i < in->n_prompt; i++) {
            uint32_t id = (uint32_t)in->prompt[i];
            if (s->seen[id] == 0)
                s->keys[n++] = id;
            s->seen[id] |= SEEN_IN_INPUT;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)s->keys[i];
        uint32_t count = s->seen[id] & ~SEEN_IN_INPUT;
        float x = s->adjusted[id];
        if (p->repeat_penalty != 1.0f)
            x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        x -= p->frequency_penalty * (float)count;
        if (count > 0)
            x -= p->presence_penalty;
        s->adjusted[id] = x;
        s->seen[id] = 0;
    }
}

// ---- draw ----

// Weights of all tokens with distance <= cut, as floats; the others have none.
static void weigh(struct plm_sampler *s, float cut)
{
    exp_all(s->distance, s->n_vocab, s->weight);
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->weight[i] = s->distance[i] <= cut ? s->weight[i] : 0.0f;
}

// From all tokens with distance <= cut.
static uint32_t draw_all(struct plm_sampler *s, float cut, uint64_t u)
{
    const uint32_t n = s->n_vocab;
    uint64_t total = 0, sum = 0;
    weigh(s, cut);
    for (uint32_t from = 0; from < n; from += SPAN) {
        s->spans[from / SPAN] = sum_fixed(s->weight + from, n - from < SPAN ? n - from : SPAN);
        total += s->spans[from / SPAN];
    }
    const uint64_t target = plm_sample_mul_high(u, total); // below total, so some token reaches it
    uint32_t i = 0;
    while (i + SPAN < n && sum + s->spans[i / SPAN] <= target) {
        sum += s->spans[i / SPAN];
        i += SPAN;
    }
    for (; i < n; i++) {
        sum += plm_sample_fixed(s->weight[i]);
        if (sum > target)
            break;
    }
    return i;
}

// The tokens with distance <= cut, by id. Stores before it looks: whether a token is near can not
// be foreseen, and a wrong guess of the processor costs more than a store.
static uint32_t gather(struct plm_sampler *s, float cut)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        s->keys[n] = (uint64_t)plm_sample_bits(s->distance[i]) << 32 | i;
        n += s->distance[i] <= cut;
    }
    return n;
}

static inline float key_distance(uint64_t key)
{
    return plm_sample_float((uint32_t)(key >> 32));
}

static inline uint64_t key_weight(uint64_t key)
{
    return plm_sample_weight(key_distance(key));
}

static inline uint32_t bucket_of(uint64_t key)
{
    float b = key_distance(key) * BUCKET_PER_1;
    return b < (float)(BUCKETS - 1) ? (uint32_t)b : BUCKETS - 1;
}

// The last bucket that can hold one of the best top_k of n gathered tokens, or, without top_k, one
// of those that reach the bound; BUCKETS: they are not all among the gathered ones.
static uint32_t last_bucket(const struct plm_sampler *s, uint32_t top_k, uint32_t n, uint64_t bound)
{
    uint32_t count[BUCKETS] = {0}, total = 0;
    uint64_t by_bucket[BUCKETS] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = bucket_of(s->keys[i]);
        count[b]++;
        if (top_k == 0)
            by_bucket[b] += plm_sample_fixed(s->weight[(uint32_t)s->keys[i]]);
    }
    for (uint32_t b = 0; b < BUCKETS; b++) {
        total += count[b];
        sum += by_bucket[b];
        if (top_k > 0 ? total >= top_k : sum >= bound)
            return b;
    }
    return BUCKETS;
}

// Ascending by the upper half, stable, so that equal distances keep the order of ids. Returns the
// array that holds the result.
static uint64_t *sort_keys(uint64_t *keys, uint64_t *other, uint32_t n)
{
    if (n <= 64) { // three passes over 2,048 counters cost more than a few moves
        for (uint32_t i = 1; i < n; i++) {
            uint64_t key = keys[i];
            uint32_t at = i;
            for (; at > 0 && keys[at - 1] > key; at--)
                keys[at] = keys[at - 1];
            keys[at] = key;
        }
        return keys;
    }
    for (uint32_t shift = 32; shift < 64; shift += 11) {
        uint32_t start[2049] = {0};
        for (uint32_t i = 0; i < n; i++)
            start[(keys[i] >> shift & 2047u) + 1]++;
        for (uint32_t d = 0; d < 2048; d++)
            start[d + 1] += start[d];
        for (uint32_t i = 0; i < n; i++)
            other[start[keys[i] >> shift & 2047u]++] = keys[i];
        uint64_t *swap = keys;
        keys = other;
        other = swap;
    }
    return keys;
}

// Walks n tokens in the order of ids, so that the draw asks for no more than which ones are kept.
static uint32_t draw_kept(struct plm_sampler *s, uint64_t *kept, uint32_t n, uint64_t mass,
                          uint64_t u)
{
    const uint64_t target = plm_sample_mul_high(u, mass);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        kept[i] = kept[i] << 32 | kept[i] >> 32;
    const uint64_t *by_id = sort_keys(kept, kept == s->keys ? s->sorted : s->keys, n);
    for (uint32_t i = 0; i < n; i++) {
        sum += plm_sample_weight(plm_sample_float((uint32_t)by_id[i]));
        if (sum > target)
            return (uint32_t)(by_id[i] >> 32);
    }
    return s->n_vocab;
}

// From the best tokens that top_k (0: off) and top_p leave.
static uint32_t draw_filtered(struct plm_sampler *s, uint32_t top_k, float top_p, float cut,
                              uint64_t u)
{
    uint64_t mass = 0, bound = 0, kept = 0;
    if (top_k == 0) {
        weigh(s, cut);
        mass = sum_fixed(s->weight, s->n_vocab);
        bound = plm_sample_bound(top_p, mass);
    }
    uint32_t n = gather(s, cut < NEAR ? cut : NEAR);
    uint32_t limit = last_bucket(s, top_k, n, bound), n_near = 0, end = 0;
    if (limit == BUCKETS && cut > NEAR) {
        n = gather(s, cut);
        limit = last_bucket(s, top_k, n, bound);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (bucket_of(s->keys[i]) <= limit)
            s->keys[n_near++] = s->keys[i];
    }
    uint64_t *best = sort_keys(s->keys, s->sorted, n_near);
    if (top_k > 0) {
        n_near = n_near < top_k ? n_near : top_k;
        for (uint32_t i = 0; i < n_near; i++)
            mass += key_weight(best[i]);
        bound = plm_sample_bound(top_p, mass);
    }
    while (end < n_near && kept < bound)
        kept += key_weight(best[end++]);
    return draw_kept(s, best, end, kept, u);
}

struct plm_sample_row plm_sample_row_of(const struct plm_sample_in *in, uint32_t n_vocab)
{
    const struct plm_sample_params *p = in->params;
    if (p->temperature < PLM_SAMPLE_GREEDY)
        return (struct plm_sample_row){0};
    return (struct plm_sample_row){
        .u = plm_random_bits(p->seed, in->choice, (uint64_t)in->n_prompt + in->n_output),
        .scale = 1.0f / p->temperature,
        .cut = p->min_p > 0.0f ? -logf(p->min_p) : PLM_SAMPLE_NO_CUT,
        .top_p = p->top_p,
        .top_k = p->top_k < n_vocab ? p->top_k : 0,
    };
}

static uint32_t draw(struct plm_sampler *s, const struct plm_sample_in *in, const float *x,
                     float max)
{
    const struct plm_sample_row row = plm_sample_row_of(in, s->n_vocab);
    if (max == -INFINITY)
        return s->n_vocab;
    if (row.scale == 0.0f)
        return first_equal(x, s->n_vocab, max);
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->distance[i] = plm_sample_distance(max, x[i], row.scale);
    if (row.top_k == 0 && row.top_p >= 1.0f)
        return draw_all(s, row.cut, row.u);
    return draw_filtered(s, row.top_k, row.top_p, row.cut, row.u);
}

static void ban_completions(struct plm_sampler *s, const struct plm_sample_in *in)
{
    const struct plm_sample_params *p = in->params;
    for (size_t i = 0; i < p->n_bad; i += 1 + (size_t)p->bad[i]) {
        const int32_t *tokens = &p->bad[i + 1];
        const uint32_t before = (uint32_t)p->bad[i] - 1;
        if (before <= in->n_output &&
            memcmp(tokens, in->output + in->n_output - before, before * sizeof(*tokens)) == 0)
            s->adjusted[tokens[before]] = -INFINITY;
    }
}

static bool is_adjusted(const struct plm_sample_in *in)
{
    return in->params->n_bias > 0 || in->params->n_bad > 0 || in->n_banned > 0 ||
           has_penalties(in->params);
}

bool plm_sample_is_plain(const struct plm_sample_in *in)
{
    return !in->params->logprobs && !is_adjusted(in);
}

bool plm_sample_is_argmax(const struct plm_sample_in *in)
{
    return in->params->temperature < PLM_SAMPLE_GREEDY && plm_sample_is_plain(in);
}

int plm_sampler_draw(struct plm_sampler *s, const struct plm_sample_in *in,
                     struct plm_sample_out *ret)
{
    const struct plm_sample_params *p = in->params;
    float raw_max, max;
    if (!find_max(in->logits, s->n_vocab, &raw_max))
        return PLM_ERR_NUMERIC;
    const float *x = in->logits;
    max = raw_max;
    if (is_adjusted(in)) {
        memcpy(s->adjusted, in->logits, (size_t)s->n_vocab * sizeof(float));
        for (uint32_t i = 0; i < p->n_bias; i++)
            s->adjusted[p->bias[i].token] += p->bias[i].bias;
        if (has_penalties(p))
            apply_penalties(s, in);
        for (uint32_t i = 0; i < in->n_banned; i++)
            s->adjusted[in->banned[i]] = -INFINITY;
        ban_completions(s, in);
        find_max(s->adjusted, s->n_vocab, &max);
        x = s->adjusted;
    }
    uint32_t token = draw(s, in, x, max);
    if (token >= s->n_vocab)
        return PLM_ERR_NUMERIC;
    ret->token = (int32_t)token;
    ret->n_top = 0;
    if (p->logprobs)
        take_logprobs(s, in->logits, raw_max, p->top_logprobs, ret);
    return PLM_OK;
}
