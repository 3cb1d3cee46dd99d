// SPDX-License-Identifier: Apache-2.0
#include "core/plan/admit.h"

#include <math.h>

#include "core/base/checked.h"
#include "core/base/fault_seed.h"
#include "core/kv/group.h"
#include "kernels/abi.h"

#define TOKENS          ((uint64_t)PLM_KV_BLOCK_TOKENS)
#define RETRY_AFTER_MAX 600 // seconds; a client that waits longer should ask again anyway

const char *plm_admit_term_name(enum plm_admit_term term)
{
    static const char *const names[PLM_ADMIT_TERMS] = {
        "none", "kv",        "context",   "host", "queue", "queue_tokens",
        "wait", "sequences", "workspace", "rows", "line",  "asleep"};
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

#define DOUBLINGS_MAX 24 // beyond it the spare is larger than any pool

uint64_t plm_admit_spare(uint32_t running, uint32_t preemptions)
{
    if (running == 0)
        return 0;
    return ((uint64_t)running + 1) << (preemptions < DOUBLINGS_MAX ? preemptions : DOUBLINGS_MAX);
}

// A group with a window: every sequence has its blocks, and a chunk of a prompt one at least.
static uint64_t window_blocks(const struct plm_admit_limits *limits, uint64_t sequences)
{
    return plm_kv_windows_need(sequences, limits->window_blocks, 1);
}

// To the end of all choices. Those of a window are counted for one: the others may wait for it.
static uint64_t blocks_full(const struct plm_admit_limits *limits, uint64_t prompt, uint64_t output,
                            uint64_t n)
{
    return limits->window_blocks > 0 ? window_blocks(limits, 1)
                                     : plm_admit_blocks(prompt, output, n);
}

// That the first choice needs for the prompt, each other one for its own first block, and what
// stays free beside them. With a window: of the whole pool, those of all that run and of one more.
static uint64_t blocks_now(const struct plm_admit_limits *limits,
                           const struct plm_admit_state *state, uint64_t prompt, uint64_t n)
{
    if (limits->window_blocks > 0)
        return window_blocks(limits, state->sequences + UINT64_C(1));
    return plm_div_ceil(prompt, TOKENS) + n - 1 + plm_admit_spare(state->sequences, 0);
}

// What those are compared with.
static uint64_t blocks_there(const struct plm_admit_limits *limits,
                             const struct plm_admit_state *state,
                             const struct plm_admit_request *request)
{
    return limits->window_blocks > 0 ? state->blocks_total
                                     : (uint64_t)state->blocks_available + request->hit_used;
}

// Bytes of host memory that are still to be charged: all that the request can need to its end.
static int64_t host_bytes(const struct plm_admit_limits *limits,
                          const struct plm_admit_request *request, uint64_t prompt, uint64_t output,
                          uint64_t n)
{
    // Within 128 bits whatever is asked: counts have 32, sizes far fewer than 63.
    const __int128 events = output < limits->host_event_tokens ? output : limits->host_event_tokens;
    const __int128 choice = (__int128)limits->host_choice_bytes + request->host_choice_bytes +
                            (__int128)limits->host_token_bytes * (prompt + output) +
                            request->host_event_bytes * events +
                            (__int128)request->host_output_bytes * output;
    const __int128 all = choice * n + request->host_bytes;
    return all < INT64_MAX / 4 ? (int64_t)all : INT64_MAX / 4;
}

// The largest output up to `most` for which they fit into room; 0: not even one token does.
static uint64_t host_output(const struct plm_admit_limits *limits,
                            const struct plm_admit_request *request, uint64_t prompt, uint64_t most,
                            uint64_t n, int64_t room)
{
    uint64_t lo = 0, hi = most;
    while (lo < hi) {
        const uint64_t mid = lo + (hi - lo + 1) / 2;
        if (host_bytes(limits, request, prompt, mid, n) <= room)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
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

// Of what the host budget leaves for requests, an open end reserves this part at most: nobody asked
// for so much, and others want to start beside it.
#define OPEN_PART  4
#define OPEN_LEAST 256 // tokens for which it may be half: a usual answer

static uint64_t open_output(const struct plm_admit_limits *limits,
                            const struct plm_admit_request *request, uint64_t most)
{
    if (limits->host_limit == 0)
        return most;
    const int64_t room = limits->host_limit - limits->host_idle;
    const uint64_t prompt = request->prompt_tokens, n = request->n;
    const uint64_t open = host_output(limits, request, prompt, most, n, room / OPEN_PART);
    if (open >= OPEN_LEAST || open == most)
        return open;
    return host_output(limits, request, prompt, most < OPEN_LEAST ? most : OPEN_LEAST, n,
                       room / 2 - request->host_held);
}

// Whether the request fits at all, on an idle engine. Fills max_tokens and the blocks.
static bool check_never(const struct plm_admit_limits *limits,
                        const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    uint64_t prompt = request->prompt_tokens, out = request->max_tokens;
    uint64_t wanted = prompt + (out > 0 ? out : 1);
    if (wanted > limits->max_context) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_CONTEXT, (int64_t)wanted, limits->max_context);
        return false;
    }
    if (request->n > limits->choices_max) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_SEQUENCES, request->n, limits->choices_max);
        return false;
    }
    if (out == 0) { // as far as context and memory go, but one token at least
        out = limits->window_blocks > 0 ? limits->max_context
                                        : largest_output(prompt, request->n, limits->blocks_total);
        if (out > limits->max_context - prompt)
            out = limits->max_context - prompt;
        out = open_output(limits, request, out);
        if (out == 0)
            out = 1;
    }
    uint64_t full = blocks_full(limits, prompt, out, request->n);
    ret->max_tokens = narrow(out);
    ret->blocks_full = narrow(full);
    if (full > limits->blocks_total) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_KV, bytes_of(limits, full),
               bytes_of(limits, limits->blocks_total));
        return false;
    }
    int64_t alone = limits->host_idle + request->host_held +
                    host_bytes(limits, request, prompt, out, request->n);
    if (limits->host_limit > 0 && alone > limits->host_limit) {
        refuse(ret, PLM_REFUSE_NEVER, PLM_ADMIT_HOST, alone, limits->host_limit);
        return false;
    }
    return true;
}

// Whether it fits into what the device and the host budget hold now. Waiting in the queue would not
// help: it has a place there only if it can finish once its turn comes.
static bool check_now(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                      const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    if (state->asleep) {
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_ASLEEP, bytes_of(limits, ret->blocks_full), 0);
        return false;
    }
    if (ret->blocks_full > state->blocks_total) {
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_KV, bytes_of(limits, ret->blocks_full),
               bytes_of(limits, state->blocks_total));
        return false;
    }
    int64_t used = state->host_used +
                   host_bytes(limits, request, request->prompt_tokens, ret->max_tokens, request->n);
    if (limits->host_limit > 0 && used > limits->host_limit) {
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_HOST, used, limits->host_limit);
        return false;
    }
    return true;
}

// NONE if the request can start beside what runs, else what is in the way.
static enum plm_admit_term in_the_way(const struct plm_admit_limits *limits,
                                      const struct plm_admit_state *state,
                                      const struct plm_admit_request *request, uint64_t needs)
{
    if (state->sequences >= limits->max_sequences)
        return PLM_ADMIT_SEQUENCES;
    if (needs > blocks_there(limits, state, request))
        return PLM_ADMIT_KV;
    return PLM_ADMIT_NONE;
}

static void check_queue(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                        const struct plm_admit_request *request, enum plm_admit_term blocker,
                        struct plm_admit_result *ret)
{
    uint64_t tokens = state->queued_tokens + request->prompt_tokens;
    ret->verdict = PLM_WAIT;
    ret->term = blocker != PLM_ADMIT_NONE ? blocker : PLM_ADMIT_QUEUE;
    if (limits->queue_max == 0 && blocker == PLM_ADMIT_KV)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_KV, bytes_of(limits, ret->blocks_now),
               bytes_of(limits, blocks_there(limits, state, request)));
    else if (limits->queue_max == 0 && blocker == PLM_ADMIT_SEQUENCES)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_SEQUENCES, state->sequences + INT64_C(1),
               limits->max_sequences);
    else if (state->queued >= limits->queue_max)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_QUEUE, state->queued + INT64_C(1), limits->queue_max);
    else if (limits->queue_tokens_max > 0 && tokens > limits->queue_tokens_max)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_QUEUE_TOKENS, (int64_t)tokens,
               (int64_t)limits->queue_tokens_max);
}

// ---- the forecast ----

uint64_t plm_admit_expected(uint64_t tokens, bool ignores_end, double mean_output)
{
    if (ignores_end || mean_output >= (double)tokens)
        return tokens;
    return (uint64_t)mean_output;
}

// Seconds until a request that comes now has its turn; 0: at once, or nobody knows. Rather too few:
// those that wait before it take the places of those that end, as they come.
static double forecast_s(const struct plm_admit_state *state)
{
    const double before = state->queued, running = state->sequences;
    if (state->sequences == 0 || state->tokens_per_s <= 0)
        return 0;
    // Further choices of a request give way to it (core/sched/share.c).
    if (state->sequences > (uint64_t)state->requests + state->queued)
        return 0;
    double tokens = (double)state->running_tokens;
    if (before < running)
        tokens *= (before + 1) / running;
    else
        tokens += (double)state->queued_output * (before + 1 - running) / before;
    return tokens / state->tokens_per_s;
}

static bool waits_too_long(const struct plm_admit_limits *limits,
                           const struct plm_admit_state *state)
{
    return limits->queue_max_ms > 0 && forecast_s(state) > limits->queue_max_ms / 1000.0;
}

// Waiting in vain helps nobody: what would not start in time is refused before it waits.
static void check_wait(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                       struct plm_admit_result *ret)
{
    const double wait_s = forecast_s(state), most_s = limits->queue_max_ms / 1000.0;
    if (ret->verdict != PLM_WAIT || !waits_too_long(limits, state))
        return;
    // Whole seconds, and more than the limit.
    const int64_t most = (int64_t)most_s;
    refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_QUEUE_TIME,
           plm_max_i64(wait_s < 1e15 ? (int64_t)ceil(wait_s) : INT64_MAX, most + 1), most);
    ret->retry_after_s = plm_admit_retry_after((uint64_t)fmin(wait_s - most_s, 1e9), 1);
}

// The check without its offer.
static void decide(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                   const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    *ret = (struct plm_admit_result){.verdict = PLM_ADMIT};
    if (!check_never(limits, request, ret))
        return;
    ret->expected_tokens =
        request->n * plm_admit_expected(ret->max_tokens, request->ignores_end, state->mean_output);
    uint64_t needs = blocks_now(limits, state, request->prompt_tokens, request->n);
    ret->blocks_now = narrow(needs);
    if (!check_now(limits, state, request, ret))
        return;
    enum plm_admit_term blocker = in_the_way(limits, state, request, needs);
    if (state->queued > 0 || blocker != PLM_ADMIT_NONE) // nobody overtakes those who wait
        check_queue(limits, state, request, blocker, ret);
    check_wait(limits, state, ret);
}

// ---- the counter-offer ----

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Blocks that a request may come to now; where a window holds them, no context is too long.
static uint64_t blocks_of_one(const struct plm_admit_limits *limits,
                              const struct plm_admit_state *state)
{
    if (limits->window_blocks > 0)
        return window_blocks(limits, 1) <= state->blocks_total ? UINT32_MAX : 0;
    return least(limits->blocks_total, state->blocks_total);
}

// The longest prompt that need not be refused now, where queue or blocks are short.
static uint64_t prompt_now(const struct plm_admit_limits *limits,
                           const struct plm_admit_state *state, uint64_t n)
{
    uint64_t waits = 0, starts = 0, taken = n - 1 + plm_admit_spare(state->sequences, 0);
    if (state->queued < limits->queue_max && !waits_too_long(limits, state)) {
        waits = UINT32_MAX;
        if (limits->queue_tokens_max > 0)
            waits = limits->queue_tokens_max > state->queued_tokens
                        ? limits->queue_tokens_max - state->queued_tokens
                        : 0;
    }
    if (state->queued > 0 || state->sequences >= limits->max_sequences)
        return waits;
    if (limits->window_blocks > 0)
        return blocks_now(limits, state, 1, n) <= state->blocks_total ? UINT32_MAX : waits;
    if (state->blocks_available > taken)
        starts = (state->blocks_available - taken) * TOKENS;
    return waits > starts ? waits : starts;
}

// Cuts choices and output to the blocks there are.
static void fit_blocks(const struct plm_admit_limits *limits, uint64_t blocks,
                       struct plm_admit_offer *o)
{
    uint64_t shared = o->prompt_tokens / TOKENS;
    o->n = narrow(least(o->n, blocks > shared ? blocks - shared : 0));
    uint64_t output = largest_output(o->prompt_tokens, o->n, blocks);
    o->max_tokens = narrow(
        least(o->max_tokens, least(limits->max_context - (uint64_t)o->prompt_tokens, output)));
}

// Cuts output, choices and prompt to what the host budget has left.
static void fit_host(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                     const struct plm_admit_request *request, struct plm_admit_offer *o)
{
    const int64_t used = plm_max_i64(state->host_used, limits->host_idle + request->host_held);
    const int64_t room = limits->host_limit - used;
    if (limits->host_limit == 0)
        return;
    while (o->n > 0 && host_bytes(limits, request, 1, 1, o->n) > room)
        o->n--; // at most some hundred
    if (o->n == 0)
        return;
    const uint64_t most = o->max_tokens;
    uint64_t out = host_output(limits, request, o->prompt_tokens, most, o->n, room);
    if (out == 0) { // the prompt must give way: half of the room stays for the output
        const uint64_t alone = host_output(limits, request, 1, most, o->n, room) / 2;
        uint64_t lo = 1, hi = o->prompt_tokens;
        while (lo < hi) {
            const uint64_t mid = lo + (hi - lo + 1) / 2;
            if (host_bytes(limits, request, mid, alone > 0 ? alone : 1, o->n) <= room)
                lo = mid;
            else
                hi = mid - 1;
        }
        o->prompt_tokens = narrow(lo);
        out = host_output(limits, request, lo, most, o->n, room);
    }
    o->max_tokens = narrow(out);
}

// Whether the check itself admits these numbers.
static bool holds(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                  const struct plm_admit_request *request, const struct plm_admit_offer *o)
{
    struct plm_admit_request r = *request;
    struct plm_admit_result check;
    if (o->prompt_tokens == 0 || o->max_tokens == 0 || o->n == 0)
        return false;
    r.prompt_tokens = o->prompt_tokens;
    r.max_tokens = o->max_tokens;
    r.n = o->n;
    if (r.prompt_tokens < request->prompt_tokens)
        r.hit_used = 0; // its last hits may be cut off with it
    decide(limits, state, &r, &check);
    return check.verdict == PLM_ADMIT || check.verdict == PLM_WAIT;
}

// Shrinks output, then choices, then the prompt: what people would give up first.
static void make_offer(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                       const struct plm_admit_request *request, struct plm_admit_offer *ret)
{
    const uint64_t blocks = blocks_of_one(limits, state);
    // Tokens that one choice may have in all: prompt and output.
    const uint64_t total = least(limits->max_context, blocks * TOKENS);
    uint64_t n = least(request->n, limits->choices_max);
    uint64_t wanted = request->max_tokens > 0 ? request->max_tokens : total;
    if (total < 2 || n == 0)
        return;
    uint64_t prompt = least(request->prompt_tokens, prompt_now(limits, state, n));
    if (prompt < request->prompt_tokens) { // fewer choices leave it more
        n = prompt == 0 ? 1 : n;
        prompt = least(request->prompt_tokens, prompt_now(limits, state, n));
    }
    uint64_t out = wanted;
    if (prompt >= total) { // the prompt must give way: half of the room stays for the output
        out = least(out, total / 2);
        prompt = total - out;
    }
    struct plm_admit_offer o = {
        .prompt_tokens = narrow(prompt), .max_tokens = narrow(out), .n = narrow(n)};
    fit_blocks(limits, blocks, &o);
    fit_host(limits, state, request, &o);
    fit_blocks(limits, blocks, &o); // a shorter prompt shares fewer
    if (holds(limits, state, request, &o))
        *ret = o;
}

int32_t plm_admit_retry_after(uint64_t tokens, double tokens_per_s)
{
    double seconds = tokens_per_s > 0 ? ceil((double)tokens / tokens_per_s) : 1;
    return seconds < 1 ? 1 : seconds > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : (int32_t)seconds;
}

void plm_admit_check(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                     const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    decide(limits, state, request, ret);
    if (ret->verdict != PLM_REFUSE_NEVER && ret->verdict != PLM_REFUSE_NOW)
        return;
    if (ret->verdict == PLM_REFUSE_NOW && ret->retry_after_s == 0)
        ret->retry_after_s = plm_admit_retry_after(state->tokens_to_blocks, state->tokens_per_s);
    make_offer(limits, state, request, &ret->offer);
    if (PLM_FAULT_SEED(OFFER) && ret->offer.prompt_tokens > 0)
        ret->offer.prompt_tokens += PLM_KV_BLOCK_TOKENS;
}

void plm_admit_overdue(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                       const struct plm_admit_request *request, struct plm_admit_result *ret)
{
    struct plm_admit_limits alone = *limits;
    struct plm_admit_state first = *state;
    alone.queue_max = 0;  // it would have to start, not to wait again,
    alone.host_limit = 0; // and its host bytes are its own already
    first.queued = 0;
    decide(&alone, &first, request, ret);
    // Those that were preempted go first.
    if (ret->verdict == PLM_ADMIT)
        refuse(ret, PLM_REFUSE_NOW, PLM_ADMIT_SEQUENCES, state->sequences + INT64_C(1),
               state->sequences);
    ret->retry_after_s = plm_admit_retry_after(state->tokens_to_blocks, state->tokens_per_s);
    make_offer(limits, state, request, &ret->offer);
}

// ---- the gate ----

void plm_gate_init(struct plm_gate *gate, const struct plm_plan *plan,
                   const struct plm_cost_table *table)
{
    struct plm_shape worst = plm_limits_shape(&plan->in.limits);
    *gate = (struct plm_gate){.table = table,
                              .limits = plan->in.limits,
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
    struct plm_shape most = plm_limits_shape(&gate->limits);
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
