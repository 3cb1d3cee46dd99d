// SPDX-License-Identifier: Apache-2.0
#include "core/plan/admit.h"

#include <math.h>

#include "core/base/checked.h"
#include "kernels/abi.h"

#define TOKENS          ((uint64_t)PLM_KV_BLOCK_TOKENS)
#define RETRY_AFTER_MAX 600 // seconds; a client that waits longer should ask again anyway

const char *plm_admit_term_name(enum plm_admit_term term)
{
    static const char *const names[PLM_ADMIT_TERMS] = {
        "none",         "kv",        "context",   "host", "queue",
        "queue_tokens", "sequences", "workspace", "rows", "line"};
    return (unsigned)term < PLM_ADMIT_TERMS ? names[term] : "?";
}

uint64_t plm_admit_blocks(uint64_t prompt_tokens, uint64_t max_tokens, uint64_t n)
{
    uint64_t shared = prompt_tokens / TOKENS;
    uint64_t tokens, blocks, sum;
    if (!plm_add_u64(prompt_tokens, max_tokens, &tokens))
        return UINT64_MAX;
    // The last token is never written: it is sampled, and nothing follows it. It is counted all
    // the same, so that a request of max_context tokens needs ceil(max_context / 16) blocks.
    if (!plm_mul_u64(n, plm_div_ceil(tokens, TOKENS) - shared, &blocks) ||
        !plm_add_u64(shared, blocks, &sum))
        return UINT64_MAX;
    return sum;
}

// The largest output for which n choices of this prompt fit into `blocks`; 0: none.
static uint64_t largest_output(uint64_t prompt, uint64_t n, uint64_t blocks)
{
    uint64_t shared = prompt / TOKENS;
    if (blocks <= shared || n == 0)
        return 0;
    uint64_t each = (blocks - shared) / n;
    uint64_t tokens = (shared + each) * TOKENS;
    return tokens > prompt ? tokens - prompt : 0;
}

static uint64_t blocks_now(const struct plm_admit_request *request, uint64_t blocks_full)
{
    uint64_t now = plm_div_ceil(request->prompt_tokens, TOKENS) + request->n;
    // A request that ends within its first blocks never needs the one more.
    return now < blocks_full ? now : blocks_full;
}

static uint32_t narrow(uint64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static int64_t bytes_of(const struct plm_admit_limits *limits, uint64_t blocks)
{
    int64_t bytes;
    if (blocks > INT64_MAX || __builtin_mul_overflow((int64_t)blocks, limits->block_bytes, &bytes))
        return INT64_MAX;
    return bytes;
}

static void refuse(struct plm_admit_result *ret, enum plm_verdict verdict, enum plm_admit_term term,
                   int64_t needed, int64_t limit)
{
    ret->verdict = verdict;
    ret->term = term;
    ret->needed_bytes = needed;
    ret->limit_bytes = limit;
}

// Whether the request fits at all, on an idle engine. Fills max_tokens and the blocks.
static bool judge_never(const struct plm_admit_limits *limits,
                        const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    uint64_t prompt = request->prompt_tokens, out = request->max_tokens;
    uint64_t wanted = prompt + (out > 0 ? out : 1);
    if (wanted > limits->max_context) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_CONTEXT, (int64_t)wanted, limits->max_context);
        return false;
    }
    if (request->n > limits->max_sequences) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_SEQUENCES, request->n, limits->max_sequences);
        return false;
    }
    if (out == 0) { // as far as context and memory go, but one token at least
        out = largest_output(prompt, request->n, limits->blocks_total);
        if (out > limits->max_context - prompt)
            out = limits->max_context - prompt;
        if (out == 0)
            out = 1;
    }
    uint64_t full = plm_admit_blocks(prompt, out, request->n);
    ret->max_tokens = narrow(out);
    ret->blocks_full = narrow(full);
    ret->blocks_now = narrow(blocks_now(request, full));
    if (full > limits->blocks_total) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_KV, bytes_of(limits, full),
               bytes_of(limits, limits->blocks_total));
        return false;
    }
    if (limits->host_limit > 0 && request->host_bytes > limits->host_limit - limits->host_idle) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_HOST, limits->host_idle + request->host_bytes,
               limits->host_limit);
        return false;
    }
    return true;
}

// Blocks that a request other than the oldest may take now.
static uint64_t available(const struct plm_admit_state *state, bool oldest)
{
    uint32_t lane = oldest ? 0 : state->blocks_lane;
    return state->blocks_available > lane ? state->blocks_available - lane : 0;
}

// NONE if the request can start beside what runs, else what is in the way.
static enum plm_admit_term in_the_way(const struct plm_admit_limits *limits,
                                      const struct plm_admit_state *state,
                                      const struct plm_admit_request *request,
                                      uint32_t needs_blocks, bool oldest)
{
    if ((uint64_t)state->sequences + request->n > limits->max_sequences)
        return PLM_ADMIT_SEQUENCES;
    uint32_t hit = request->hit_used < needs_blocks ? request->hit_used : needs_blocks;
    if (needs_blocks - hit > available(state, oldest))
        return PLM_ADMIT_KV;
    return PLM_ADMIT_NONE;
}

static void judge_queue(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                        const struct plm_admit_request *request, enum plm_admit_term blocker,
                        struct plm_admit_result *ret)
{
    uint64_t tokens = state->queued_tokens + request->prompt_tokens;
    ret->verdict = PLM_WAIT;
    ret->term = blocker != PLM_ADMIT_NONE ? blocker : PLM_ADMIT_QUEUE;
    if (limits->queue_max == 0 && blocker == PLM_ADMIT_KV)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_KV, bytes_of(limits, ret->blocks_now),
               bytes_of(limits, available(state, false)));
    else if (limits->queue_max == 0 && blocker == PLM_ADMIT_SEQUENCES)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_SEQUENCES, state->sequences + (int64_t)request->n,
               limits->max_sequences);
    else if (state->queued >= limits->queue_max)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_QUEUE, state->queued + INT64_C(1), limits->queue_max);
    else if (limits->queue_tokens_max > 0 && tokens > limits->queue_tokens_max)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_QUEUE_TOKENS, (int64_t)tokens,
               (int64_t)limits->queue_tokens_max);
}

// The door without its offer.
static void judge(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                  const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    *ret = (struct plm_admit_result){.verdict = PLM_ADMIT};
    if (!judge_never(limits, request, ret))
        return;
    if (limits->host_limit > 0 && request->host_bytes > limits->host_limit - state->host_used) {
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_HOST, state->host_used + request->host_bytes,
               limits->host_limit);
        return;
    }
    enum plm_admit_term blocker = in_the_way(limits, state, request, ret->blocks_now, false);
    if (state->queued > 0 || blocker != PLM_ADMIT_NONE) // nobody overtakes those who wait
        judge_queue(limits, state, request, blocker, ret);
}

// ---- the counter-offer ----

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Tokens that one choice may have in all: prompt and output.
static uint64_t longest(const struct plm_admit_limits *limits)
{
    return least(limits->max_context, limits->blocks_total * TOKENS);
}

// The longest prompt that need not be refused now, where queue or blocks are short.
static uint64_t prompt_now(const struct plm_admit_limits *limits,
                           const struct plm_admit_state *state, uint64_t n)
{
    uint64_t waits = 0, starts = 0, blocks = available(state, false);
    if (state->queued < limits->queue_max) {
        waits = UINT32_MAX;
        if (limits->queue_tokens_max > 0)
            waits = limits->queue_tokens_max > state->queued_tokens
                        ? limits->queue_tokens_max - state->queued_tokens
                        : 0;
    }
    if (state->queued == 0 && state->sequences + n <= limits->max_sequences && blocks > n)
        starts = (blocks - n) * TOKENS;
    return waits > starts ? waits : starts;
}

// Offers these numbers if the door itself would let them in.
static bool offer(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                  const struct plm_admit_request *request, uint64_t prompt, uint64_t out,
                  uint64_t n, struct plm_admit_offer *ret)
{
    struct plm_admit_request r = *request;
    struct plm_admit_result check;
    if (prompt == 0 || out == 0 || n == 0)
        return false;
    r.prompt_tokens = narrow(prompt);
    r.max_tokens = narrow(out);
    r.n = narrow(n);
    if (prompt < request->prompt_tokens)
        r.hit_used = 0; // its last hits may be cut off with it
    judge(limits, state, &r, &check);
    if (check.verdict != PLM_ADMIT && check.verdict != PLM_WAIT)
        return false;
    *ret = (struct plm_admit_offer){
        .prompt_tokens = r.prompt_tokens, .max_tokens = r.max_tokens, .n = r.n};
    return true;
}

// Shrinks output, then choices, then the prompt: what people would give up first.
static void make_offer(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                       const struct plm_admit_request *request, struct plm_admit_offer *ret)
{
    uint64_t total = longest(limits), n = least(request->n, limits->max_sequences);
    uint64_t wanted = request->max_tokens > 0 ? request->max_tokens : total;
    if (total < 2)
        return;
    if (limits->queue_max == 0 && state->sequences < limits->max_sequences)
        n = least(n, limits->max_sequences - state->sequences);
    uint64_t prompt = least(request->prompt_tokens, prompt_now(limits, state, n));
    if (prompt == 0) {
        n = 1;
        prompt = least(request->prompt_tokens, prompt_now(limits, state, n));
    }
    uint64_t out = wanted;
    if (prompt >= total) { // the prompt must give way: half of the room stays for the output
        out = least(out, total / 2);
        prompt = total - out;
    }
    uint64_t shared = prompt / TOKENS;
    n = least(n, limits->blocks_total > shared ? limits->blocks_total - shared : 0);
    out = least(
        out, least(limits->max_context - prompt, largest_output(prompt, n, limits->blocks_total)));
    if (offer(limits, state, request, prompt, out, n, ret))
        return;
    // One choice that ends within the blocks there are now needs none beyond them.
    total = least(total, available(state, false) * TOKENS);
    if (total < 2)
        return;
    prompt = least(request->prompt_tokens, total - 1);
    offer(limits, state, request, prompt, least(wanted, total - prompt), 1, ret);
}

int32_t plm_admit_retry_after(uint64_t tokens, double tokens_per_s)
{
    double seconds = tokens_per_s > 0 ? ceil((double)tokens / tokens_per_s) : 1;
    return seconds < 1 ? 1 : seconds > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : (int32_t)seconds;
}

void plm_admit_door(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                    const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    judge(limits, state, request, ret);
    if (ret->verdict != PLM_REFUSE_NEVER && ret->verdict != PLM_REFUSE_NOW)
        return;
    if (ret->verdict == PLM_REFUSE_NOW)
        ret->retry_after_s = plm_admit_retry_after(state->tokens_to_blocks, state->tokens_per_s);
    make_offer(limits, state, request, &ret->offer);
}

enum plm_verdict plm_admit_again(const struct plm_admit_limits *limits,
                                 const struct plm_admit_state *state,
                                 const struct plm_admit_request *request, bool oldest)
{
    uint64_t full = plm_admit_blocks(request->prompt_tokens,
                                     request->max_tokens > 0 ? request->max_tokens : 1, request->n);
    uint32_t now = narrow(blocks_now(request, full));
    return in_the_way(limits, state, request, now, oldest) == PLM_ADMIT_NONE ? PLM_ADMIT : PLM_WAIT;
}

// ---- the gate ----

void plm_gate_init(struct plm_gate *gate, const struct plm_plan *plan,
                   const struct plm_cost_table *table)
{
    struct plm_shape worst = plm_caps_shape(&plan->in.caps);
    *gate = (struct plm_gate){.table = table,
                              .caps = plan->in.caps,
                              .workspace_bytes = plm_cost(table, &worst),
                              .line = plan->line};
}

static int64_t step_cost(const struct plm_gate *gate, const struct plm_shape *shape)
{
    int64_t cost = plm_cost(gate->table, shape), sum;
    return __builtin_add_overflow(cost, gate->floor_bytes, &sum) ? INT64_MAX : sum;
}

// NONE if the shape's bytes pass, else the term that does not.
static enum plm_admit_term bytes_pass(const struct plm_gate *gate, const struct plm_gate_step *step,
                                      uint32_t rows, struct plm_gate_result *ret)
{
    struct plm_shape shape = step->shape;
    shape.rows = rows;
    int64_t cost = step_cost(gate, &shape), sum;
    if (cost > gate->workspace_bytes) {
        ret->needed_bytes = cost;
        ret->limit_bytes = gate->workspace_bytes;
        return PLM_ADMIT_WORKSPACE;
    }
    if (__builtin_add_overflow(cost, step->live_bytes, &sum) || sum > gate->line) {
        ret->needed_bytes = sum;
        ret->limit_bytes = gate->line;
        return PLM_ADMIT_LINE;
    }
    return PLM_ADMIT_NONE;
}

static void limit(struct plm_gate_result *ret, enum plm_gate_answer answer,
                  enum plm_admit_term term, int64_t needed, int64_t most)
{
    ret->answer = answer;
    ret->term = term;
    ret->needed_bytes = needed;
    ret->limit_bytes = most;
}

// Finds the most rows that pass, down to the smallest chunk.
static void cut(const struct plm_gate *gate, const struct plm_gate_step *step, uint32_t most,
                struct plm_gate_result *ret)
{
    struct plm_gate_result ignored;
    uint32_t fixed = step->shape.rows - step->prefill_rows;
    uint32_t chunk =
        step->prefill_rows < PLM_GATE_ROWS_MIN ? step->prefill_rows : PLM_GATE_ROWS_MIN;
    uint32_t lo = fixed + chunk, hi = most;
    if (step->prefill_rows == 0 || lo > hi ||
        bytes_pass(gate, step, lo, &ignored) != PLM_ADMIT_NONE) {
        ret->answer = PLM_GATE_REFUSE;
        return;
    }
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo + 1) / 2;
        if (bytes_pass(gate, step, mid, &ignored) == PLM_ADMIT_NONE)
            lo = mid;
        else
            hi = mid - 1;
    }
    ret->answer = PLM_GATE_CUT;
    ret->rows_max = lo;
}

void plm_gate_check(const struct plm_gate *gate, const struct plm_gate_step *step,
                    struct plm_gate_result *ret)
{
    struct plm_shape most = plm_caps_shape(&gate->caps);
    const struct plm_shape *shape = &step->shape;
    *ret = (struct plm_gate_result){.answer = PLM_GATE_GO, .rows_max = shape->rows};
    if (shape->ctx > most.ctx) {
        limit(ret, PLM_GATE_REFUSE, PLM_ADMIT_CONTEXT, shape->ctx, most.ctx);
        return;
    }
    if (shape->seqs > most.seqs || shape->logits_rows > most.logits_rows) {
        uint32_t asked = shape->seqs > shape->logits_rows ? shape->seqs : shape->logits_rows;
        limit(ret, PLM_GATE_REFUSE, PLM_ADMIT_SEQUENCES, asked, most.seqs);
        return;
    }
    if (shape->rows > most.rows) {
        limit(ret, PLM_GATE_CUT, PLM_ADMIT_ROWS, shape->rows, most.rows);
        cut(gate, step, most.rows, ret);
        return;
    }
    ret->term = bytes_pass(gate, step, shape->rows, ret);
    if (ret->term != PLM_ADMIT_NONE) {
        cut(gate, step, shape->rows - 1, ret);
        return;
    }
    uint64_t blocks = (uint64_t)step->blocks_free + step->blocks_cached;
    if (step->blocks_needed > blocks)
        limit(ret, PLM_GATE_RECLAIM, PLM_ADMIT_KV, step->blocks_needed, (int64_t)blocks);
}

int64_t plm_gate_audit(struct plm_gate *gate, const struct plm_shape *shape, int64_t measured)
{
    int64_t excess = measured - step_cost(gate, shape);
    if (excess <= 0)
        return 0;
    gate->floor_bytes += excess;
    gate->audit_excess++;
    return excess;
}
