// SPDX-License-Identifier: Apache-2.0
// What the layer counts: objects, bytes per heap, commands recorded and run. The counters may lie
// in a file that is mapped, so that another process reads them while they move. Any thread.
#ifndef PLM_VK_ACCOUNT_H
#define PLM_VK_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#define ACCOUNT_HEAPS 16u // VK_MAX_MEMORY_HEAPS

enum account_counter {
#define COUNTER(name) ACCOUNT_##name,
#include "account.def"
#undef COUNTER
    ACCOUNT_COUNTERS,
};

enum account_command { COMMAND_OTHER, COMMAND_DISPATCH, COMMAND_BARRIER, COMMAND_COPY, COMMANDS };

// Moves the counters into a file, which is created. Before anything is counted. False: it can not
// be had.
bool account_share(const char *path);
void account_add(enum account_counter counter, int64_t n);
uint64_t account_read(enum account_counter counter);
// The counter of that name; UINT64_MAX: none.
uint64_t account_read_name(const char *name);

// Device memory by its handle. type is as the application sees it.
void account_memory(uint64_t memory, uint64_t device, uint64_t bytes, uint32_t heap, uint32_t type);
void account_memory_gone(uint64_t memory);
// UINT32_MAX: not known.
uint32_t account_memory_type(uint64_t memory);
uint64_t account_heap_bytes(uint32_t heap);
// What a device that is destroyed still has is counted as leaked.
void account_device_gone(uint64_t device);

// Command buffers by their handle.
void account_buffer(uint64_t buffer, uint64_t pool);
void account_buffer_gone(uint64_t buffer);
void account_pool_gone(uint64_t pool);
void account_begin(uint64_t buffer);
void account_record(uint64_t buffer, enum account_command command);
// The commands of a secondary buffer run where it is called.
void account_call(uint64_t buffer, uint64_t secondary);
void account_run(uint64_t buffer);

#endif
