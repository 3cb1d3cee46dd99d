// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

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

int64_t faults_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void faults_misuse(const char *what)
{
    account_add(ACCOUNT_misuses, 1);
    fprintf(stderr, "plimsoll faults layer: misuse: %s\n", what);
}

// A rule that was there before keeps its count.
static void keep_counts(struct rules *to, const struct rules *from)
{
    for (uint32_t i = 0; i < to->n; i++) {
        for (uint32_t j = 0; j < from->n; j++) {
            if (strcmp(to->rules[i].text, from->rules[j].text) == 0) {
                to->rules[i].seen = from->rules[j].seen;
            }
        }
    }
}

// With the lock held. False: nothing changed.
static bool add_rules(const char *text, char *error, size_t error_size)
{
    static struct rules next; // too large for a stack
    next = state.base;
    if (!rules_parse(&next, text, error, error_size)) {
        return false;
    }
    keep_counts(&next, &state.now);
    state.now = next;
    account_add(ACCOUNT_control_reads, 1);
    return true;
}

// With the lock held: reads the control file where it is another one than before.
static void refresh(void)
{
    struct stat now;
    if (state.base.control[0] == '\0' || stat(state.base.control, &now) != 0 ||
        (now.st_ino == state.seen.st_ino && now.st_size == state.seen.st_size &&
         now.st_mtim.tv_sec == state.seen.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == state.seen.st_mtim.tv_nsec)) {
        return;
    }
    FILE *file = fopen(state.base.control, "re");
    if (file == NULL) {
        return;
    }
    char text[FAULT_TEXT_SIZE];
    char error[FAULT_RULE_SIZE + 64];
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    state.seen = now;
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
    bool over = state.loss.after_ms != 0 &&
                faults_now_ns() - state.lost_ns >= state.loss.after_ms * 1000000;
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
    bool hit = false;
    enter();
    for (uint32_t i = 0; i < state.now.n; i++) {
        struct rule *rule = &state.now.rules[i];
        if (rule->place != place || bytes < rule->min_bytes) {
            continue;
        }
        rule->seen++;
        if (!hit && rule->seen >= rule->nth && rule->seen - rule->nth < rule->times) {
            *ret = rule->fault;
            hit = true;
        }
    }
    leave();
    if (hit) {
        account_add(ACCOUNT_faults, 1);
    }
    return hit;
}

VkResult faults_result(enum fault_place place, uint64_t bytes)
{
    struct fault fault;
    return faults_strike(place, bytes, &fault) ? fault.result : VK_SUCCESS;
}

void faults_lose(const struct fault *fault)
{
    enter();
    state.lost = true;
    state.loss = *fault;
    state.lost_ns = faults_now_ns();
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
    state.now.n = 0; // the same text begins to count anew
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
