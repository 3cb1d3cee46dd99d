// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// From the environment at the start, and as they hold now: those, then what the control file or
// plm_vk_faults_set adds.
static struct {
    pthread_mutex_t lock;
    bool started;
    bool usable;
    struct rules base;
    struct rules now;
    struct stat seen; // of the control file, as it was read last
    bool lost;        // some device was; what is shown since says `loss`
    struct fault loss;
    int64_t lost_ns;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void faults_misuse(const char *what)
{
    account_add(ACCOUNT_misuses, 1);
    fprintf(stderr, "plimsoll faults layer: misuse: %s\n", what);
}

// With the lock held. False: nothing changed.
static bool add_rules(const char *text, char *error, size_t error_size)
{
    static struct rules next; // too large for a stack
    next = state.base;
    if (!rules_parse(&next, text, error, error_size)) {
        return false;
    }
    fault_keep_counts(&next.list, &state.now.list);
    state.now = next;
    account_add(ACCOUNT_control_reads, 1);
    return true;
}

// With the lock held: reads the control file where it is another one than before.
static void refresh(void)
{
    char text[FAULT_TEXT_SIZE];
    char error[FAULT_RULE_SIZE + 64];
    if (!fault_control(state.base.control, &state.seen, text)) {
        return;
    }
    if (!add_rules(text, error, sizeof(error))) {
        fprintf(stderr, "plimsoll faults layer: %s: %s\n", state.base.control, error);
        account_add(ACCOUNT_bad_rules, 1);
    }
}

// With the lock held.
static void start(void)
{
    const char *text = getenv("PLM_VK_FAULTS");
    char error[FAULT_RULE_SIZE + 64];
    state.started = true;
    rules_clear(&state.base);
    state.usable = rules_parse(&state.base, text != NULL ? text : "", error, sizeof(error));
    if (!state.usable) {
        fprintf(stderr, "plimsoll faults layer: PLM_VK_FAULTS: %s\n", error);
        rules_clear(&state.base);
    }
    state.now = state.base;
    if (state.usable && state.base.account[0] != '\0' && !account_share(state.base.account)) {
        fprintf(stderr, "plimsoll faults layer: can not write %s\n", state.base.account);
        state.usable = false;
    }
}

static void enter(void)
{
    pthread_mutex_lock(&state.lock);
    if (!state.started) {
        start();
    }
    refresh();
}

static void leave(void)
{
    pthread_mutex_unlock(&state.lock);
}

bool faults_start(void)
{
    enter();
    bool usable = state.usable;
    leave();
    return usable;
}

void faults_world(struct world *ret)
{
    enter();
    *ret = state.now.world;
    bool over =
        state.loss.after_ms != 0 && fault_now_ns() - state.lost_ns >= state.loss.after_ms * 1000000;
    enum fault_after after = state.lost && !over ? state.loss.after : AFTER_SAME;
    leave();
    ret->no_devices = ret->no_devices || after == AFTER_GONE;
    ret->broken = after == AFTER_BROKEN;
    if (after == AFTER_OTHER) {
        ret->has_uuid = true;
        memset(ret->uuid, 0xee, sizeof(ret->uuid));
        snprintf(ret->name, sizeof(ret->name), "another device");
    }
}

bool faults_strike(enum fault_place place, uint64_t bytes, struct fault *ret)
{
    enter();
    bool hit = fault_strike(&state.now.list, (int32_t)place, bytes, ret);
    leave();
    if (hit) {
        account_add(ACCOUNT_faults, 1);
    }
    return hit;
}

VkResult faults_result(enum fault_place place, uint64_t bytes)
{
    struct fault fault;
    return faults_strike(place, bytes, &fault) ? (VkResult)fault.result : VK_SUCCESS;
}

void faults_lose(const struct fault *fault)
{
    enter();
    state.lost = true;
    state.loss = *fault;
    state.lost_ns = fault_now_ns();
    leave();
}

// ---- for programs that have the layer in their own process (README.md) ----

VKAPI_ATTR bool VKAPI_CALL plm_vk_faults_set(const char *rules, char *error, size_t error_size);
VKAPI_ATTR uint64_t VKAPI_CALL plm_vk_faults_count(const char *counter);

// Puts these rules in place of those that were set before, after the environment's, and forgets
// losses.
__attribute__((visibility("default"))) bool plm_vk_faults_set(const char *rules, char *error,
                                                              size_t error_size)
{
    enter();
    state.now.list.n = 0; // the same text begins to count anew
    state.lost = false;
    bool ok = add_rules(rules, error, error_size);
    leave();
    return ok;
}

// A counter of account.def; UINT64_MAX: there is none of that name.
__attribute__((visibility("default"))) uint64_t plm_vk_faults_count(const char *counter)
{
    return account_read_name(counter);
}
