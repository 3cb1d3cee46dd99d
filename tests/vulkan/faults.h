// SPDX-License-Identifier: Apache-2.0
// The rules of the layer: what the application is shown (struct world) and which calls fail (struct
// fault). README.md describes their language. They come from $PLM_VK_FAULTS, from a control file
// that is read again when it changes, and from plm_vk_faults_set. Any thread.
#ifndef PLM_VK_FAULTS_H
#define PLM_VK_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <vulkan/vulkan.h>

#include "account.h"
#include "tests/support/fault_rules.h"

#define FAULT_TYPES 8u
#define FAULT_NAMES 16u // hidden features, extensions: each

// Where a rule can strike. Each is one or a few entries of Vulkan.
enum fault_place {
    PLACE_INSTANCE,
    PLACE_DEVICE,
    PLACE_ALLOCATE,
    PLACE_MAP,
    PLACE_BUFFER,
    PLACE_SHADER,
    PLACE_PIPELINE,
    PLACE_PIPELINE_LAYOUT,
    PLACE_CACHE,
    PLACE_SEMAPHORE,
    PLACE_FENCE,
    PLACE_QUERY,
    PLACE_POOL,
    PLACE_COMMANDS,
    PLACE_RECORD, // vkEndCommandBuffer, which reports what recording ran into
    PLACE_SUBMIT,
    PLACE_WAIT,
    PLACES,
};

enum fault_budget {
    BUDGET_DRIVER, // whatever the driver has
    BUDGET_NONE,   // no extension
    BUDGET_TRUE,   // from the layer's account
    BUDGET_DOUBLE, // twice the heap
    BUDGET_ZERO,   // budget and usage 0
    BUDGET_MAX,    // 16 EiB less one byte
    BUDGET_STALE,  // as at the first reading
    BUDGET_FIXED,
};

struct world_heap {
    uint64_t bytes;    // shown; 0: the driver's
    uint64_t capacity; // beyond which allocations fail; 0: bytes
    uint64_t neighbour;
    bool device_local;
};

struct world_type {
    uint32_t heap;
    VkMemoryPropertyFlags flags;
};

struct world {
    bool no_devices;
    bool broken; // devices are listed, but can not be created
    bool no_compute;
    uint32_t api_version;                        // 0: the driver's
    int32_t device_type;                         // -1: the driver's
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE]; // empty: the driver's
    bool has_uuid;
    uint8_t uuid[VK_UUID_SIZE];
    uint64_t max_allocation; // 0: the driver's, here and below
    uint64_t max_buffer;
    struct world_heap heaps[ACCOUNT_HEAPS];
    uint32_t n_heaps; // named by a rule
    struct world_type types[FAULT_TYPES];
    uint32_t n_types; // 0: the driver's types and heaps, with the sizes above
    enum fault_budget budget;
    uint64_t budget_bytes;
    char hidden_features[FAULT_NAMES][40];
    uint32_t n_hidden_features;
    char hidden_extensions[FAULT_NAMES][64];
    uint32_t n_hidden_extensions;
    char extensions[FAULT_NAMES][64]; // listed although the driver has them not
    uint32_t n_extensions;
};

// Reads $PLM_VK_FAULTS at the first call. False: it is not understood; stderr says why.
bool faults_start(void);
// What is shown now.
void faults_world(struct world *ret);
// Counts one call at a place, whose size is bytes where it has one. True: it is to fail as told;
// the result VK_TIMEOUT stands for a hang.
bool faults_strike(enum fault_place place, uint64_t bytes, struct fault *ret);
// The common case: VK_SUCCESS, or what to answer.
VkResult faults_result(enum fault_place place, uint64_t bytes);
// A device was lost by this fault: what is shown changes as it says.
void faults_lose(const struct fault *fault);
// A call that the world shown does not allow: a defect of the application, counted and said.
void faults_misuse(const char *what);

// ---- the parser (rules.c) ----

struct rules {
    struct world world;
    struct fault_list list;
    char control[FAULT_RULE_SIZE];
    char account[FAULT_RULE_SIZE];
};

void rules_clear(struct rules *rules);
// Adds the rules of a text, ended by ';' or a new line. False: error says which and why.
bool rules_parse(struct rules *rules, const char *text, char *error, size_t error_size);
// A name of features.def.
bool rules_feature(const char *name);

#endif
