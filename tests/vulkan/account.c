// SPDX-License-Identifier: Apache-2.0
#include "account.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/counters.h"

#define BUCKETS 256u

// A memory object or a command buffer. The key is the driver's handle.
struct node {
    struct node *next;
    uint64_t key;
    uint64_t owner; // the device, or the pool
    uint64_t bytes; // memory
    uint32_t heap;
    uint32_t type;
    uint64_t commands[COMMANDS]; // command buffer: recorded since it was begun
};

struct map {
    struct node *buckets[BUCKETS];
};

static const char *const NAMES[ACCOUNT_COUNTERS] = {
#define COUNTER(name) #name,
#include "account.def"
#undef COUNTER
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map memories;
static struct map buffers;
static uint64_t heap_bytes[ACCOUNT_HEAPS];

_Static_assert((uint32_t)ACCOUNT_COUNTERS <= COUNTERS_MAX, "more counters than there is room for");

bool account_share(const char *path)
{
    return counters_share(path, ACCOUNT_COUNTERS);
}

void account_add(enum account_counter counter, int64_t n)
{
    const uint64_t now = counters_add(counter, n);
    if (counter == ACCOUNT_live_bytes && n > 0) {
        counters_raise(ACCOUNT_high_bytes, now);
    }
}

uint64_t account_read(enum account_counter counter)
{
    return counters_read(counter);
}

uint64_t account_read_name(const char *name)
{
    for (uint32_t i = 0; i < ACCOUNT_COUNTERS; i++) {
        if (strcmp(NAMES[i], name) == 0) {
            return account_read((enum account_counter)i);
        }
    }
    return UINT64_MAX;
}

// ---- nodes; with the lock held ----

static struct node **bucket(struct map *map, uint64_t key)
{
    return &map->buckets[(key >> 4) % BUCKETS];
}

static struct node *find(struct map *map, uint64_t key)
{
    struct node *node = *bucket(map, key);
    while (node != NULL && node->key != key) {
        node = node->next;
    }
    return node;
}

// NULL where there is no memory: what is not known is then not counted.
static struct node *insert(struct map *map, uint64_t key, uint64_t owner)
{
    struct node *node = calloc(1, sizeof(*node));
    if (node != NULL) {
        struct node **at = bucket(map, key);
        *node = (struct node){.next = *at, .key = key, .owner = owner};
        *at = node;
    }
    return node;
}

static struct node *take(struct map *map, uint64_t key)
{
    for (struct node **at = bucket(map, key); *at != NULL; at = &(*at)->next) {
        struct node *node = *at;
        if (node->key == key) {
            *at = node->next;
            return node;
        }
    }
    return NULL;
}

// Some node of an owner, taken out; NULL: none.
static struct node *take_owned(struct map *map, uint64_t owner)
{
    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (struct node *node = map->buckets[i]; node != NULL; node = node->next) {
            if (node->owner == owner) {
                return take(map, node->key);
            }
        }
    }
    return NULL;
}

// ---- memory ----

void account_memory(uint64_t memory, uint64_t device, uint64_t bytes, uint32_t heap, uint32_t type)
{
    pthread_mutex_lock(&lock);
    struct node *node = insert(&memories, memory, device);
    if (node != NULL) {
        node->bytes = bytes;
        node->heap = heap;
        node->type = type;
        heap_bytes[heap] += bytes;
        account_add(ACCOUNT_memory_allocated, 1);
        account_add(ACCOUNT_live_bytes, (int64_t)bytes);
    }
    pthread_mutex_unlock(&lock);
}

static void release_memory(struct node *node, enum account_counter counter)
{
    heap_bytes[node->heap] -= node->bytes;
    account_add(ACCOUNT_live_bytes, -(int64_t)node->bytes);
    account_add(counter, 1);
    free(node);
}

void account_memory_gone(uint64_t memory)
{
    pthread_mutex_lock(&lock);
    struct node *node = take(&memories, memory);
    if (node != NULL) {
        release_memory(node, ACCOUNT_memory_freed);
    }
    pthread_mutex_unlock(&lock);
}

uint32_t account_memory_type(uint64_t memory)
{
    pthread_mutex_lock(&lock);
    const struct node *node = find(&memories, memory);
    uint32_t type = node != NULL ? node->type : UINT32_MAX;
    pthread_mutex_unlock(&lock);
    return type;
}

uint64_t account_heap_bytes(uint32_t heap)
{
    pthread_mutex_lock(&lock);
    uint64_t bytes = heap_bytes[heap];
    pthread_mutex_unlock(&lock);
    return bytes;
}

void account_device_gone(uint64_t device)
{
    pthread_mutex_lock(&lock);
    for (struct node *node; (node = take_owned(&memories, device)) != NULL;) {
        release_memory(node, ACCOUNT_memory_leaked);
    }
    pthread_mutex_unlock(&lock);
}

// ---- command buffers ----

void account_buffer(uint64_t buffer, uint64_t pool)
{
    pthread_mutex_lock(&lock);
    if (insert(&buffers, buffer, pool) != NULL) {
        account_add(ACCOUNT_command_buffers_allocated, 1);
    }
    pthread_mutex_unlock(&lock);
}

static void release_buffer(struct node *node)
{
    account_add(ACCOUNT_command_buffers_freed, 1);
    free(node);
}

void account_buffer_gone(uint64_t buffer)
{
    pthread_mutex_lock(&lock);
    struct node *node = take(&buffers, buffer);
    if (node != NULL) {
        release_buffer(node);
    }
    pthread_mutex_unlock(&lock);
}

void account_pool_gone(uint64_t pool)
{
    pthread_mutex_lock(&lock);
    for (struct node *node; (node = take_owned(&buffers, pool)) != NULL;) {
        release_buffer(node);
    }
    pthread_mutex_unlock(&lock);
}

void account_begin(uint64_t buffer)
{
    pthread_mutex_lock(&lock);
    struct node *node = find(&buffers, buffer);
    if (node != NULL) {
        memset(node->commands, 0, sizeof(node->commands));
        account_add(ACCOUNT_recordings, 1);
    }
    pthread_mutex_unlock(&lock);
}

void account_record(uint64_t buffer, enum account_command command)
{
    static const enum account_counter KIND[COMMANDS] = {
        [COMMAND_DISPATCH] = ACCOUNT_dispatches_recorded,
        [COMMAND_BARRIER] = ACCOUNT_barriers_recorded,
        [COMMAND_COPY] = ACCOUNT_copies_recorded,
    };
    pthread_mutex_lock(&lock);
    struct node *node = find(&buffers, buffer);
    if (node != NULL) {
        node->commands[command]++;
        account_add(ACCOUNT_commands_recorded, 1);
        if (command != COMMAND_OTHER) {
            account_add(KIND[command], 1);
        }
    }
    pthread_mutex_unlock(&lock);
}

void account_call(uint64_t buffer, uint64_t secondary)
{
    pthread_mutex_lock(&lock);
    struct node *node = find(&buffers, buffer);
    const struct node *called = find(&buffers, secondary);
    for (uint32_t i = 0; node != NULL && called != NULL && i < COMMANDS; i++) {
        node->commands[i] += called->commands[i];
    }
    pthread_mutex_unlock(&lock);
}

void account_run(uint64_t buffer)
{
    pthread_mutex_lock(&lock);
    const struct node *node = find(&buffers, buffer);
    if (node != NULL) {
        const uint64_t *n = node->commands;
        account_add(ACCOUNT_command_buffers_run, 1);
        account_add(ACCOUNT_dispatches_run, (int64_t)n[COMMAND_DISPATCH]);
        account_add(ACCOUNT_barriers_run, (int64_t)n[COMMAND_BARRIER]);
        account_add(ACCOUNT_copies_run, (int64_t)n[COMMAND_COPY]);
        account_add(ACCOUNT_commands_run, (int64_t)(n[COMMAND_OTHER] + n[COMMAND_DISPATCH] +
                                                    n[COMMAND_BARRIER] + n[COMMAND_COPY]));
    }
    pthread_mutex_unlock(&lock);
}
