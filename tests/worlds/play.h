// SPDX-License-Identifier: Apache-2.0
// Plays a world: one engine on one simulated device, stepped by hand on a virtual clock. What the
// run was like stays in struct run, for wants and reports; what must hold in every world is checked
// while it goes (check.c), and the first fault ends it.
#ifndef PLM_TESTS_WORLDS_PLAY_H
#define PLM_TESTS_WORLDS_PLAY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "backends/sim/world.h"
#include "core/engine/engine.h"
#include "core/engine/request.h"
#include "tests/worlds/observe.h"

// What must hold in every world; the name is what a fault is reported by.
#define INVARIANTS(X)                                                                              \
    X(CAPACITY, "capacity", "more was taken than the device has")                                  \
    X(ALLOC, "alloc", "memory was taken inside a step")                                            \
    X(ONCE, "once", "a request does not end exactly once")                                         \
    X(PROGRESS, "progress", "there is work, and nothing ends")                                     \
    X(BLOCKS, "blocks", "blocks do not sum up")                                                    \
    X(BALANCE, "balance", "what was taken was not given back")                                     \
    X(TOKENS, "tokens", "a request saw tokens that are not its own")                               \
    X(REFUSAL, "refusal", "a refusal's numbers do not add up")                                     \
    X(OFFER, "offer", "an offer was not honoured")                                                 \
    X(PEAK, "peak", "a peak is not what was seen")                                                 \
    X(MARGIN, "margin", "line, margin and host are more than the room")                            \
    X(LANE, "lane", "the oldest request does not advance")                                         \
    X(METRICS, "metrics", "the metrics do not agree with what was seen")                           \
    X(START, "start", "a start failed without a right word")                                       \
    X(WANT, "want", "a want of the world does not hold")                                           \
    X(WORLD, "world", "the world can not be played")

enum invariant {
    NO_FAULT,
#define X(NAME, name, text) FAULT_##NAME,
    INVARIANTS(X)
#undef X
        FAULTS
};
const char *invariant_name(enum invariant invariant);
const char *invariant_text(enum invariant invariant);

// One request of the world and what came of it.
struct played {
    const struct plm_world_request *ask;
    plim_request *handle;
    const int32_t *prompt; // what was let in; from the run's pool of tokens
    uint32_t n_prompt, max, n;
    uint32_t *choice_tokens; // [n] TOKEN events, from the run's pool
    uint64_t order;          // among those that were let in
    bool came;               // its step was reached
    bool refused;            // at its first submit
    bool offer_made, offer_taken;
    bool admitted, done, left;
    int status;         // of the submit; after DONE that of DONE
    plim_error refusal; // of the first submit, or of DONE
    int32_t finish;     // of DONE
    uint32_t tokens, finishes;
    uint64_t submit_step, done_step;
    uint64_t events_step; // 1 + the last step with events
    // Bytes of the tokens of that step, and the most that each of the two event buffers has met.
    uint32_t step_size, most_size[2];
    bool turn;
};

struct run {
    const struct plm_world *world;
    FILE *trace; // NULL: none
    bool offers; // a refused client takes the offer
    const char
        *backend;      // that the device stands behind (scripted.h); NULL: it is the simulated one
    const char *lacks; // why it can not; nothing was played

    struct plm_sim_clock virtual_clock;
    struct plm_clock clock;
    struct plm_sim_opts device;
    struct observer observer; // the device as it was seen from below
    plim_engine *engine;      // NULL: it did not start, or is over
    struct plm_host *host;    // the engine's
    plim_engine_opts opts;
    char model_path[1024];
    int start_status;
    plim_error start_error;
    bool ready;
    uint32_t incidents;
    char reason[32];          // of the last one
    struct plm_buf *incident; // NULL: not kept; else the last one's world

    struct played *requests; // [world->n_requests]
    uint32_t open;           // let in and not over
    uint64_t step;           // of the next plim_engine_step
    uint64_t next_order;
    bool wants_sleep, wants_wake, drains;
    uint32_t n_vocab;
    uint32_t first_open, cap_requests;
    uint32_t refused_as[32], ended_as[32]; // by -status
    uint32_t n_refused, n_offers, n_offers_taken, n_finished, n_ended;
    uint64_t n_tokens;
    // At READY: bytes of the device that nobody holds but the ballast; and what may be held then.
    int64_t left_at_ready, may_hold;
    int64_t committed; // the terms of the plan that share the room; with fraction 1 all of it
    uint64_t allocs_at_ready, slabs_since;
    plim_metrics metrics; // after the last step
    struct plm_plan plan;

    uint64_t hash; // of all that happened, in order
    enum invariant fault;
    char fault_text[512];

    // The checks' own memory of the run.
    struct check_state *check;
    int32_t *token_pool;
    size_t token_used, token_cap;
};

struct play_opts {
    FILE *trace;
    struct plm_buf *incident; // takes the last incident's world
    const char *path;         // of the world file, beside which model files are named; or NULL
    const char *backend;      // as in struct run
};

// Plays the whole world. run is the caller's, zeroed before its first use; what it points to is
// kept for the next world (run_finish frees it) and read until then.
void play(struct run *run, const struct plm_world *world, const struct play_opts *opts);
void run_finish(struct run *run);

// Something happened: into the hash, and where there is a trace, into it.
void note(struct run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void note_numbers(struct run *run, const char *what, int64_t a, int64_t b, int64_t c);
// The first one counts.
void fault(struct run *run, enum invariant invariant, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// The tokens of a request's prompt, of which `n` are stored.
void play_prompt(const struct plm_world *world, uint32_t index, uint32_t n_vocab, int32_t *ret,
                 uint32_t n);
// Opens the engine with these options in the run's world, and closes it. False: it did not start,
// and nothing is left.
bool play_start(struct run *run, const plim_engine_opts *opts);
void play_stop(struct run *run);

// options.c: plim_engine_opts by the world's words. False: *why says which word is wrong.
bool options_read(const struct plm_world *world, struct run *run, char why[256]);

// A number with a unit (KiB to GiB, ns to s), or yes and no.
bool number_read(const char *text, double *ret);

// want.c: every want of the world, after the run.
void want_check(struct run *run);

// check.c: the invariants.
void check_begin(struct run *run); // READY
void check_before_submit(struct run *run);
void check_refused(struct run *run, const struct played *p, const plim_request_opts *o,
                   const plim_error *err);
void check_event(struct run *run, struct played *p, const plim_event *e);
void check_before_step(struct run *run);
void check_after_step(struct run *run, bool worked);
void check_end(struct run *run);   // all requests are over and freed
void check_freed(struct run *run); // the engine is gone
void check_start(struct run *run); // it failed
void check_finish(struct run *run);

#endif
