// SPDX-License-Identifier: Apache-2.0
// A device that a program plays itself: the fault layer of Vulkan (tests/vulkan) and the fake
// drivers (tests/fakegpu) answer for memory, budgets, code, copies, submits and waits by these
// functions. So the program under test runs all of its host code on a card of any size, and nothing
// is computed. Knows neither a driver nor Plimsoll. One thread calls.
#ifndef PLM_TESTS_NULL_SCRIPT_H
#define PLM_TESTS_NULL_SCRIPT_H

#include <stdint.h>

enum null_result { NULL_OK, NULL_NO_ROOM, NULL_LOST, NULL_NOT_YET };

struct null_script {
    void *ctx;
    uint64_t heap_bytes; // of the device's own heap, which the host does not see
    // A device is created, and is gone.
    enum null_result (*open)(void *ctx);
    void (*close)(void *ctx);
    // Memory of that heap: an address for shaders, and what `free` gets back.
    enum null_result (*allocate)(void *ctx, uint64_t bytes, uint64_t *ret_address, void **ret_own);
    void (*free)(void *ctx, void *own);
    void (*budget)(void *ctx, uint64_t *ret_budget, uint64_t *ret_usage);
    // Code of one more kernel.
    enum null_result (*pipeline)(void *ctx);
    // Of a submit, its copies first: what comes from the host, and what it reads.
    enum null_result (*copy_in)(void *ctx, uint64_t to, const void *from, uint64_t bytes);
    enum null_result (*copy_out)(void *ctx, void *to, uint64_t from, uint64_t bytes);
    // Then it itself with so many dispatches; the ticket stands for its end. Refused, it may come
    // again, and its copies with it.
    enum null_result (*submit)(void *ctx, uint32_t dispatches, uint64_t *ret_ticket);
    // Waits for an end, for no longer than so many ns; below 0: for ever.
    enum null_result (*wait)(void *ctx, uint64_t ticket, int64_t timeout_ns);
    void (*label)(void *ctx, const char *text); // of a queue
};

// Instances and devices that are created from now on are the script's, which stays the caller's and
// must outlive them; NULL: the driver's again.
typedef void null_set_fn(const struct null_script *script);

#endif
