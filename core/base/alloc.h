// SPDX-License-Identifier: Apache-2.0
// Host memory. The only place of the core that calls malloc: every allocation is tagged with its
// owner, charged to one budget before it is made, and can be made to fail on purpose.
#ifndef PLM_BASE_ALLOC_H
#define PLM_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

enum plm_host_owner {
    PLM_HOST_MODEL,     // file index, hyper-parameters, graph
    PLM_HOST_TOKENIZER, // vocabulary, merges, caches
    PLM_HOST_TEMPLATE,  // parsed templates and renders
    PLM_HOST_REQUEST,   // request bodies, prompts, outputs
    PLM_HOST_SCHED,     // queues, batches, samplers
    PLM_HOST_KV,        // block tables, prefix index
    PLM_HOST_DEVICE,    // backend objects: lists, threads
    PLM_HOST_OTHER,
    PLM_HOST_OWNERS,
};

// Constant lower-case name of an owner, as /v1/memory prints it.
const char *plm_host_owner_name(enum plm_host_owner owner);

struct plm_host;

// That an allocation is charged beside its own bytes, at most: 16 of ours, 8 that malloc keeps
// before each block, and its rounding to 16.
#define PLM_HOST_HEAD_BYTES 40

struct plm_host_stats {
    int64_t limit_bytes; // 0: unlimited
    int64_t used_bytes;
    int64_t peak_bytes;
    int64_t owner_bytes[PLM_HOST_OWNERS];
    uint64_t allocations; // calls that succeeded since creation
    uint64_t kept_bytes;  // freed since the last trim; malloc may still hold them
};

// Creates an allocator with a budget (0: none). NULL when malloc fails. Thread-safe.
struct plm_host *plm_host_create(int64_t limit_bytes);
// Everything must have been freed; returns the bytes that were not (a leak), for tests.
int64_t plm_host_destroy(struct plm_host *host);
void plm_host_set_limit(struct plm_host *host, int64_t limit_bytes);
void plm_host_read(const struct plm_host *host, struct plm_host_stats *ret);
// Fault injection: the n-th allocation from now fails (1: the next), 0 turns it off; with sticky,
// all later ones fail too.
void plm_host_fail_nth(struct plm_host *host, uint64_t n, int sticky);

// Charges or returns bytes that somebody else holds (a body in the HTTP library, say).
// plm_host_charge returns PLM_OK or PLM_ERR_NOMEM_HOST and then charges nothing.
int plm_host_charge(struct plm_host *host, enum plm_host_owner owner, int64_t bytes);
void plm_host_discharge(struct plm_host *host, enum plm_host_owner owner, int64_t bytes);

// What a task of one thread takes from a budget, so that it can be told whether it would fit alone:
// bytes that the thread charged and did not return since the start.
struct plm_host_meter {
    const struct plm_host *host;
    int64_t held_bytes;
    int64_t needed_bytes; // with the last charge that the budget refused; 0: none was
    int64_t total_bytes;  // what all together would have used with that charge
};
// From here to plm_host_meter_stop() on the calling thread; at most one at a time.
void plm_host_meter_start(const struct plm_host *host, struct plm_host_meter *meter);
void plm_host_meter_stop(void);

// Zeroed memory, 16-byte aligned, or NULL: over budget, overflow of n * size, or malloc failed.
void *plm_calloc(struct plm_host *host, enum plm_host_owner owner, size_t n, size_t size);
// Like plm_calloc without zeroing.
void *plm_malloc(struct plm_host *host, enum plm_host_owner owner, size_t bytes);
// Grows or shrinks; keeps the owner of ptr. ptr may be NULL. On NULL the old block stays valid.
void *plm_realloc(struct plm_host *host, enum plm_host_owner owner, void *ptr, size_t bytes);
// Copies n bytes and adds a NUL.
char *plm_strndup(struct plm_host *host, enum plm_host_owner owner, const char *s, size_t n);
void plm_free(struct plm_host *host, void *ptr); // ptr may be NULL
// Gives what malloc keeps for later back to the system, where the C library can: milliseconds, in
// which other threads that allocate wait. A charge does it by itself where bytes in use and bytes
// kept would pass the limit together.
void plm_host_trim(struct plm_host *host);

#endif
