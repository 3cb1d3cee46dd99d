// SPDX-License-Identifier: Apache-2.0
// A world: a simulated device, what happens to it, a model, an engine's options, the requests that
// come, and what must hold. One small text file (docs/worlds.md); the same world gives the same
// run, byte for byte, on a virtual clock. Foreign input: parsed within bounds, every fault named by
// its line.
#ifndef PLM_SIM_WORLD_H
#define PLM_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/sim/sim.h"
#include "core/base/alloc.h"
#include "core/base/buf.h"

#define PLM_WORLD_BYTES_MAX    (1u << 20)
#define PLM_WORLD_REQUESTS_MAX 16384
#define PLM_WORLD_WANTS_MAX    256
#define PLM_WORLD_OPTIONS_MAX  64
#define PLM_WORLD_ACTIONS_MAX  4096
#define PLM_WORLD_EVENTS_MAX   4096

// The shape of a header-only model; file: a model file instead ("" for none). It is a llama whose
// layers all have the window, or with full_every a gemma3, of whose layers every so many has none.
struct plm_world_model {
    char file[256];
    uint32_t n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab, n_ctx;
    uint32_t window;     // tokens; 0: none
    uint32_t full_every; // 0: all layers are alike
    enum plm_type type;
};

// Where the world says nothing of its model: as small as serves every feature.
#define PLM_WORLD_MODEL_DEFAULT                                                                    \
    ((struct plm_world_model){.n_layer = 2,                                                        \
                              .n_embd = 64,                                                        \
                              .n_head = 4,                                                         \
                              .n_head_kv = 2,                                                      \
                              .n_ff = 128,                                                         \
                              .n_vocab = 320,                                                      \
                              .n_ctx = 512,                                                        \
                              .type = PLM_TYPE_F16})

// plim_engine_opts by their names, as text: the runner sets them. Unknown ones are its to refuse.
struct plm_world_option {
    char key[32];
    char value[64];
};

struct plm_world_request {
    uint64_t at_step;   // of the run's steps (plim_engine_step), from 0
    uint32_t prompt;    // tokens; at least 1
    uint32_t max;       // max_tokens; 0: open
    uint32_t n;         // choices; at least 1
    uint64_t seed;      // of its tokens and its sampling
    uint32_t prefix_of; // 1 + index of a request whose prompt it begins with; 0: none
    uint32_t prefix;    // so many tokens of it
    char salt[16];
    uint32_t leave_after; // tokens after which the client leaves; 0: stays
    uint64_t leave_step;  // or the step at which it does; 0: stays
    bool poison;          // its prompt holds the device's poison token
};

enum plm_world_act { PLM_WORLD_SLEEP, PLM_WORLD_WAKE, PLM_WORLD_DRAIN };
struct plm_world_action {
    uint64_t at_step;
    enum plm_world_act act;
};

// "want NAME OP VALUE": a figure of the run (tests/worlds knows the names) and what it must be; or
// "want NAME [VALUE]" without an op, where VALUE is all words that follow ("3 status OK").
struct plm_world_want {
    char name[48];
    char op[3]; // "==", ">=", "<=", "!=", "<", ">"; "" for a flag
    char value[96];
};

struct plm_world {
    struct plm_host *host;
    uint64_t seed;
    struct plm_sim_opts device;   // world and inner are the runner's to set
    bool computes;                // "device inner cpu"
    struct plm_sim_event *events; // of device
    struct plm_world_model model;
    struct plm_world_option *options;
    struct plm_world_request *requests; // ascending by at_step
    struct plm_world_action *actions;
    struct plm_world_want *wants;
    uint32_t n_options, n_requests, n_actions, n_wants;
    uint64_t max_steps; // the run is given up after; 0: the runner's default
};

// PLM_OK; FORMAT, LIMIT with the line and the word; NOMEM_HOST.
int plm_world_parse(struct plm_host *host, const char *text, size_t len, struct plm_world **ret,
                    struct plm_error *err);
// The text that parses to the same world.
void plm_world_write(const struct plm_world *world, struct plm_buf *buf);
void plm_world_free(struct plm_world *world); // NULL is allowed

#endif
