// SPDX-License-Identifier: Apache-2.0
// Admission: a request is checked before any header is sent; the gate checks a step before it
// runs, and the audit compares afterwards. Pure functions of numbers, O(1), no driver call, no
// memory. Whoever calls reclaims first.
#ifndef PLM_PLAN_ADMIT_H
#define PLM_PLAN_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan/cost.h"
#include "core/plan/plan.h"

enum plm_verdict {
    PLM_ADMIT,        // start it now
    PLM_WAIT,         // queue it
    PLM_REFUSE_NEVER, // not even on an idle engine
    PLM_REFUSE_NOW,   // later
};

// Which limit decided; constant lower-case names ("kv", "context", "host", "queue",
// "queue_tokens", "wait", "sequences", "workspace", "rows", "line", "asleep").
enum plm_admit_term {
    PLM_ADMIT_NONE,
    PLM_ADMIT_KV,
    PLM_ADMIT_CONTEXT,
    PLM_ADMIT_HOST,
    PLM_ADMIT_QUEUE,
    PLM_ADMIT_QUEUE_TOKENS,
    PLM_ADMIT_QUEUE_TIME,
    PLM_ADMIT_SEQUENCES,
    PLM_ADMIT_WORKSPACE,
    PLM_ADMIT_ROWS,
    PLM_ADMIT_LINE,
    PLM_ADMIT_ASLEEP,
    PLM_ADMIT_TERMS,
};
const char *plm_admit_term_name(enum plm_admit_term term);

// What is fixed when the plan is sealed.
struct plm_admit_limits {
    uint32_t max_context;
    uint32_t max_sequences; // that run at once
    uint32_t choices_max;   // of one request; beyond max_sequences they run after each other
    uint32_t blocks_total;  // as planned
    int64_t block_bytes;
    // Where the main KV group has a window: blocks that each running sequence keeps for itself,
    // whatever its length; 0: it is a full group.
    uint32_t window_blocks;
    uint32_t queue_max;
    uint64_t queue_tokens_max; // 0: no limit
    uint32_t queue_max_ms;     // that a request may wait; 0: no limit
    int64_t host_limit;        // 0: no limit
    int64_t host_idle;         // of it, what the engine itself uses
    // What a request takes of it: for each choice, and for each token of the choice. Of its output
    // so many tokens have room in its events.
    int64_t host_choice_bytes;
    int64_t host_token_bytes;
    uint32_t host_event_tokens;
};

// What is there now. Blocks in use by running requests are not available; cached ones are.
struct plm_admit_state {
    uint32_t blocks_total;     // less than planned while a neighbour or sleep has them
    uint32_t blocks_available; // free + cached
    uint32_t sequences;        // running
    uint32_t queued;           // waiting before this one
    uint64_t queued_tokens;
    int64_t host_used;
    bool asleep;
    uint64_t tokens_to_blocks; // tokens to generate until a running request ends; 0: unknown
    double tokens_per_s;       // measured, of all requests together; 0: unknown
    // What the forecast of a wait is made of, in tokens that are expected (plm_admit_expected).
    uint32_t requests;       // that the running sequences belong to
    uint64_t running_tokens; // until all that run have ended
    uint64_t queued_output;  // of those that wait before this one
    double mean_output;      // of choices that ended; 0: none has
};

struct plm_admit_request {
    uint32_t prompt_tokens;
    uint32_t max_tokens; // output of one choice; 0: to the end of the context, or of the memory
    uint32_t n;          // choices; they share the full blocks of the prompt
    uint32_t hit_used;   // leading prompt blocks that others use now (plm_prefix_peek)
    int64_t host_bytes;  // that are not charged yet, beside choices and tokens
    // Beside what the limits say: for each choice, for each of its tokens that has room in the
    // events, and for each token of its output.
    int64_t host_choice_bytes;
    int64_t host_event_bytes;
    int64_t host_output_bytes;
    int64_t host_held; // charged for this request already: its body, its prompt
    bool ignores_end;  // it generates max_tokens, whatever they are
};

// What would be admitted in the same state; prompt_tokens 0: nothing would.
struct plm_admit_offer {
    uint32_t prompt_tokens;
    uint32_t max_tokens;
    uint32_t n;
};

struct plm_admit_result {
    enum plm_verdict verdict;
    enum plm_admit_term term; // what decided, where it is not ADMIT
    int64_t needed_bytes;     // refusals: needed and limit of the term, needed > limit; tokens or
    int64_t limit_bytes;      // requests where it counts those (context, sequences, queue)
    uint32_t max_tokens;      // the output granted: as asked for, or what an open end comes to
    uint32_t blocks_now;      // that the start needs, with what plm_admit_spare() keeps free
    uint32_t blocks_full;     // to the end of all choices
    uint64_t expected_tokens; // output of all choices, as far as one can tell
    int32_t retry_after_s;    // REFUSE_NOW: at least 1
    struct plm_admit_offer offer; // refusals
};

// Blocks of n choices of a prompt and an output, the full blocks of the prompt shared.
uint64_t plm_admit_blocks(uint64_t prompt_tokens, uint64_t max_tokens, uint64_t n);
void plm_admit_check(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                     const struct plm_admit_request *request, struct plm_admit_result *ret);
// A queued request whose time is over (state: without it): why it can not start now, as a refusal
// with its offer.
void plm_admit_overdue(const struct plm_admit_limits *limits, const struct plm_admit_state *state,
                       const struct plm_admit_request *request, struct plm_admit_result *ret);
// Blocks that stay free when a sequence starts beside `running` others: one for each of them and
// one for itself, so that nobody is thrown out at once. A sequence that was preempted before asks
// for twice as many each time: it comes back when it can stay, at the latest when it runs alone. So
// it is preempted once per doubling of the pool at most. Admission and the scheduler both go by
// it.
uint64_t plm_admit_spare(uint32_t running, uint32_t preemptions);
// Tokens that a choice is expected to generate where it may generate so many: all of them, or,
// where it can end by itself, no more than others did. 0 while none has ended: then nobody is
// refused for a forecast.
uint64_t plm_admit_expected(uint64_t tokens, bool ignores_end, double mean_output);
// Seconds until `tokens` tokens are generated, rounded up, within 1 .. 600.
int32_t plm_admit_retry_after(uint64_t tokens, double tokens_per_s);

// The gate before every forward.
#define PLM_GATE_ROWS_MIN 32 // a chunk is not cut below it: smaller ones cost more than they free

struct plm_gate {
    const struct plm_cost_table *table;
    struct plm_plan_limits limits;
    int64_t workspace_bytes; // the arena: cost() of the worst shape
    int64_t line;
    int64_t floor_bytes;   // raised by audits; added to every cost
    uint64_t audit_excess; // defects counted
};
void plm_gate_init(struct plm_gate *gate, const struct plm_plan *plan,
                   const struct plm_cost_table *table);

struct plm_gate_step {
    struct plm_shape shape;
    uint32_t prefill_rows;  // of its rows, those of prefill chunks: what can be cut
    int64_t live_bytes;     // ledger: handed out inside arenas, workspace and free blocks not
    uint32_t blocks_needed; // new blocks of this step
    uint32_t blocks_free;
    uint32_t blocks_cached;
};

enum plm_gate_answer {
    PLM_GATE_GO,
    PLM_GATE_CUT,     // passes with at most rows_max rows
    PLM_GATE_RECLAIM, // blocks: preempt, youngest first
    PLM_GATE_REFUSE,  // not even the smallest chunk passes: that request ends
};
struct plm_gate_result {
    enum plm_gate_answer answer;
    enum plm_admit_term term;
    int64_t needed_bytes;
    int64_t limit_bytes;
    uint32_t rows_max; // CUT: rows of the whole step
};
void plm_gate_check(const struct plm_gate *gate, const struct plm_gate_step *step,
                    struct plm_gate_result *ret);
// After the step: measured workspace bytes. Returns the excess over cost(), 0 if none; an excess is
// counted and raises the floor.
int64_t plm_gate_audit(struct plm_gate *gate, const struct plm_shape *shape, int64_t measured);

#endif
