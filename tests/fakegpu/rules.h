// SPDX-License-Identifier: Apache-2.0
// The rules of the fake drivers: what the application is shown (struct world) and which calls fail.
// README.md describes their language. They come from $PLM_FAKE_GPU, from a control file that is
// read again when it changes, and from plm_fake_gpu_set. Any thread.
#ifndef PLM_FAKE_RULES_H
#define PLM_FAKE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/counters.h"
#include "tests/support/fault_rules.h"

#define WORLD_NAMES 8u // hidden entries, kernels that do not wait: each

// Where a rule can strike. Each is one or a few entries of a driver.
enum fake_place {
    PLACE_INIT,
    PLACE_DEVICE,
    PLACE_CONTEXT,
    PLACE_ALLOC,
    PLACE_CREATE, // physical memory
    PLACE_MAP,
    PLACE_HOST_ALLOC,
    PLACE_MODULE,
    PLACE_FUNCTION,
    PLACE_STREAM,
    PLACE_EVENT,
    PLACE_CAPTURE,
    PLACE_INSTANTIATE,
    PLACE_LAUNCH, // of a kernel
    PLACE_GRAPH,  // launch of one
    PLACE_WORK,   // either
    PLACE_COPY,
    PLACE_WAIT, // any look at an event, and frees, which wait
    PLACE_INFO, // readings of memory
};

// Results, by the numbers that CUDA and HIP share.
enum fake_result {
    FAKE_OK = 0,
    FAKE_INVALID = 1,
    FAKE_OOM = 2,
    FAKE_NOT_INITIALIZED = 3,
    FAKE_UNAVAILABLE = 46, // CUDA alone
    FAKE_NO_DEVICE = 100,
    FAKE_INVALID_DEVICE = 101,
    FAKE_INVALID_IMAGE = 200,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_NO_BINARY = 209,
    FAKE_ECC = 214,
    FAKE_INVALID_HANDLE = 400,
    FAKE_NOT_FOUND = 500,
    FAKE_NOT_READY = 600,
    FAKE_ILLEGAL_ADDRESS = 700,
    FAKE_OUT_OF_RESOURCES = 701,
    FAKE_LAUNCH_TIMEOUT = 702,
    FAKE_LAUNCH_FAILED = 719,
    FAKE_NOT_SUPPORTED = 801,
    FAKE_CAPTURE_UNSUPPORTED = 900,
    FAKE_UNKNOWN = 999,
    FAKE_HANG = -1, // the rule's own: the work ends late
};
// Those after which a context can not be used any more.
bool fake_is_sticky(int32_t result);

enum world_reading { READING_TRUE, READING_DOUBLE, READING_ZERO, READING_MAX, READING_STALE };
enum world_exec { EXEC_CPU, EXEC_SIMT, EXEC_AUTO };

struct world {
    uint32_t count; // devices; all alike
    bool broken;    // they can not be opened
    uint64_t size;
    uint64_t capacity; // beyond which allocations fail; 0: size
    uint64_t neighbour;
    uint64_t granularity;
    uint64_t context;  // bytes of an open context
    uint64_t withheld; // reported free, never given
    char name[96];
    char arch[64]; // "9.0", "gfx90a:sramecc+:xnack-"
    uint64_t uuid;
    bool integrated;
    uint64_t managed; // concurrent access to managed memory
    uint64_t mps;
    uint64_t mode;   // compute mode
    uint64_t driver; // its version
    uint64_t vmm;
    enum world_reading reading;
    enum world_exec exec;
    uint64_t threads; // that run kernels
    uint64_t emulate; // EXEC_AUTO: threads of a launch that is emulated, at most
    uint64_t seed;    // of the emulator
    bool eager;       // work runs when it is handed over, not when somebody waits for it
    char hidden[WORLD_NAMES][48];
    uint32_t n_hidden;
    char unawaited[WORLD_NAMES][48]; // kernels taken for ones that do not wait
    uint32_t n_unawaited;
};

enum account_counter {
#define COUNTER(name) ACCOUNT_##name,
#include "account.def"
#undef COUNTER
    ACCOUNT_COUNTERS,
};
void account_add(enum account_counter counter, int64_t n);

// What is shown now. The first call reads $PLM_FAKE_GPU; false: it was not understood, stderr says
// why.
bool rules_world(struct world *ret);
// Counts one call at a place, whose size is bytes where it has one. True: it is to fail as told.
bool rules_strike(enum fake_place place, uint64_t bytes, struct fault *ret);
// A device was lost by this fault: what is shown changes as it says.
void rules_lose(const struct fault *fault);
// What a driver would punish: counted and said.
__attribute__((format(printf, 1, 2))) void rules_misuse(const char *format, ...);

#endif
