// SPDX-License-Identifier: Apache-2.0
#include "rules.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct rules {
    struct world world;
    struct fault_list list;
    char control[FAULT_RULE_SIZE];
    char account[FAULT_RULE_SIZE];
};

// From the environment at the start, and as they hold now: those, then what the control file or
// plm_fake_gpu_set adds.
static struct {
    pthread_mutex_t lock;
    bool started, usable;
    struct rules base, now;
    struct stat seen; // of the control file, as it was read last
    bool lost;        // some device was; what is shown since says `loss`
    struct fault loss;
    int64_t lost_ns;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const COUNTER_NAMES[ACCOUNT_COUNTERS] = {
#define COUNTER(name) #name,
#include "account.def"
#undef COUNTER
};
_Static_assert((uint32_t)ACCOUNT_COUNTERS <= COUNTERS_MAX, "more counters than there is room for");

void account_add(enum account_counter counter, int64_t n)
{
    const uint64_t now = counters_add(counter, n);
    if (counter == ACCOUNT_live_bytes && n > 0)
        counters_raise(ACCOUNT_high_bytes, now);
}

// ---- the language ----

static const struct fault_name PLACE_NAMES[] = {
    {"init", PLACE_INIT},
    {"device", PLACE_DEVICE},
    {"context", PLACE_CONTEXT},
    {"alloc", PLACE_ALLOC},
    {"create", PLACE_CREATE},
    {"map", PLACE_MAP},
    {"host-alloc", PLACE_HOST_ALLOC},
    {"module", PLACE_MODULE},
    {"function", PLACE_FUNCTION},
    {"stream", PLACE_STREAM},
    {"event", PLACE_EVENT},
    {"launch", PLACE_LAUNCH},
    {"capture", PLACE_CAPTURE},
    {"instantiate", PLACE_INSTANTIATE},
    {"graph", PLACE_GRAPH},
    {"work", PLACE_WORK},
    {"copy", PLACE_COPY},
    {"wait", PLACE_WAIT},
    {"info", PLACE_INFO},
    {NULL, 0},
};
static const struct fault_name RESULT_NAMES[] = {
    {"oom", FAKE_OOM},
    {"lost", FAKE_ILLEGAL_ADDRESS},
    {"launch-failed", FAKE_LAUNCH_FAILED},
    {"launch-timeout", FAKE_LAUNCH_TIMEOUT},
    {"ecc", FAKE_ECC},
    {"no-image", FAKE_NO_BINARY},
    {"bad-image", FAKE_INVALID_IMAGE},
    {"not-found", FAKE_NOT_FOUND},
    {"invalid", FAKE_INVALID},
    {"no-resources", FAKE_OUT_OF_RESOURCES},
    {"no-device", FAKE_NO_DEVICE},
    {"not-supported", FAKE_NOT_SUPPORTED},
    {"unknown", FAKE_UNKNOWN},
    {"hang", FAKE_HANG},
    {NULL, 0},
};
static const struct fault_name READING_NAMES[] = {
    {"true", READING_TRUE}, {"double", READING_DOUBLE}, {"zero", READING_ZERO},
    {"max", READING_MAX},   {"stale", READING_STALE},   {NULL, 0},
};
static const struct fault_name EXEC_NAMES[] = {
    {"cpu", EXEC_CPU}, {"simt", EXEC_SIMT}, {"auto", EXEC_AUTO}, {NULL, 0}};

bool fake_is_sticky(int32_t result)
{
    return result == FAKE_ILLEGAL_ADDRESS || result == FAKE_LAUNCH_FAILED ||
           result == FAKE_LAUNCH_TIMEOUT || result == FAKE_ECC || result == FAKE_UNKNOWN;
}

static bool rule_fail(struct rules *rules, const struct fault_words *w, const char *text)
{
    if (!fault_parse(&rules->list, w, text, PLACE_NAMES, RESULT_NAMES))
        return false;
    // Only work that was taken can hang, and a test that never ends proves nothing.
    const struct fault_rule *rule = &rules->list.rules[rules->list.n - 1];
    return rule->fault.result != FAKE_HANG ||
           (rule->place >= PLACE_LAUNCH && rule->place <= PLACE_WORK && rule->fault.ms > 0);
}

static bool rule_device(struct rules *rules, const struct fault_words *w)
{
    static const char *const KEYS[] = {"size",    "capacity", "neighbour", "granularity",
                                       "context", "withheld", NULL};
    struct world *d = &rules->world;
    return w->n > 1 && fault_only_options(w, 1, KEYS) &&
           fault_option_size(w, 1, "size", &d->size) &&
           fault_option_size(w, 1, "capacity", &d->capacity) &&
           fault_option_size(w, 1, "neighbour", &d->neighbour) &&
           fault_option_size(w, 1, "granularity", &d->granularity) &&
           fault_option_size(w, 1, "context", &d->context) &&
           fault_option_size(w, 1, "withheld", &d->withheld) && d->granularity > 0;
}

static bool rule_identity(struct rules *rules, const struct fault_words *w)
{
    static const char *const KEYS[] = {"name", "arch", "uuid", "integrated", "managed",
                                       "mps",  "mode", "vmm",  "driver",     NULL};
    struct world *d = &rules->world;
    const char *name = fault_option(w, 1, "name");
    const char *arch = fault_option(w, 1, "arch");
    uint64_t integrated = d->integrated;
    if (w->n < 2 || !fault_only_options(w, 1, KEYS) ||
        !fault_option_number(w, 1, "uuid", &d->uuid) ||
        !fault_option_number(w, 1, "integrated", &integrated) ||
        !fault_option_number(w, 1, "managed", &d->managed) ||
        !fault_option_number(w, 1, "mps", &d->mps) ||
        !fault_option_number(w, 1, "mode", &d->mode) ||
        !fault_option_number(w, 1, "vmm", &d->vmm) ||
        !fault_option_number(w, 1, "driver", &d->driver))
        return false;
    d->integrated = integrated != 0;
    if (name != NULL)
        fault_text(d->name, sizeof(d->name), name);
    if (arch != NULL)
        snprintf(d->arch, sizeof(d->arch), "%s", arch);
    return true;
}

static bool rule_count(struct rules *rules, const struct fault_words *w)
{
    uint64_t count = 0;
    if (w->n != 2 || !fault_number(w->word[1], &count) || count > 8)
        return false;
    rules->world.count = (uint32_t)count;
    return true;
}

static bool rule_reading(struct rules *rules, const struct fault_words *w)
{
    int32_t kind = 0;
    if (w->n != 2 || !fault_lookup(READING_NAMES, w->word[1], &kind))
        return false;
    rules->world.reading = (enum world_reading)kind;
    return true;
}

// exec cpu|simt|auto [threads=N] [emulate=N] [seed=N]
static bool rule_exec(struct rules *rules, const struct fault_words *w)
{
    static const char *const KEYS[] = {"threads", "emulate", "seed", NULL};
    struct world *d = &rules->world;
    int32_t kind = 0;
    if (w->n < 2 || !fault_lookup(EXEC_NAMES, w->word[1], &kind) ||
        !fault_only_options(w, 2, KEYS) || !fault_option_number(w, 2, "threads", &d->threads) ||
        !fault_option_number(w, 2, "emulate", &d->emulate) ||
        !fault_option_number(w, 2, "seed", &d->seed))
        return false;
    d->exec = (enum world_exec)kind;
    return d->threads > 0 && d->threads <= 64;
}

// order eager|lazy
static bool rule_order(struct rules *rules, const struct fault_words *w)
{
    if (w->n != 2 || (strcmp(w->word[1], "eager") != 0 && strcmp(w->word[1], "lazy") != 0))
        return false;
    rules->world.eager = w->word[1][0] == 'e';
    return true;
}

// hide ENTRY, unawaited KERNEL
static bool rule_name(struct rules *rules, const struct fault_words *w)
{
    struct world *d = &rules->world;
    const bool hide = w->word[0][0] == 'h';
    uint32_t *n = hide ? &d->n_hidden : &d->n_unawaited;
    char *to = hide ? d->hidden[*n % WORLD_NAMES] : d->unawaited[*n % WORLD_NAMES];
    if (w->n != 2 || *n == WORLD_NAMES || strlen(w->word[1]) >= sizeof(d->hidden[0]))
        return false;
    (*n)++;
    memcpy(to, w->word[1], strlen(w->word[1]) + 1);
    return true;
}

// control FILE, account FILE
static bool rule_file(struct rules *rules, const struct fault_words *w)
{
    char *to = strcmp(w->word[0], "control") == 0 ? rules->control : rules->account;
    if (w->n != 2)
        return false;
    snprintf(to, FAULT_RULE_SIZE, "%s", w->word[1]);
    return true;
}

static bool parse_rule(void *ctx, const char *text)
{
    static const struct {
        const char *verb;
        bool (*parse)(struct rules *rules, const struct fault_words *w);
    } VERBS[] = {
        {"device", rule_device}, {"identity", rule_identity}, {"count", rule_count},
        {"exec", rule_exec},     {"reading", rule_reading},   {"order", rule_order},
        {"hide", rule_name},     {"unawaited", rule_name},    {"control", rule_file},
        {"account", rule_file},
    };
    struct fault_words w;
    fault_split(&w, text);
    if (w.n == 0)
        return true;
    if (strcmp(w.word[0], "fail") == 0)
        return rule_fail(ctx, &w, text);
    for (size_t i = 0; i < sizeof(VERBS) / sizeof(VERBS[0]); i++) {
        if (strcmp(w.word[0], VERBS[i].verb) == 0)
            return VERBS[i].parse(ctx, &w);
    }
    return false;
}

// ---- what holds now; with the lock held ----

static void clear(struct rules *rules)
{
    *rules = (struct rules){.world = {.count = 1,
                                      .size = UINT64_C(1) << 30,
                                      .granularity = UINT64_C(2) << 20,
                                      .context = UINT64_C(64) << 20,
                                      .withheld = UINT64_C(2) << 20,
                                      .uuid = 1,
                                      .managed = 1,
                                      .vmm = 1,
                                      .driver = fake_front.driver,
                                      .threads = 1,
                                      .emulate = 4096}};
    snprintf(rules->world.name, sizeof(rules->world.name), "%s", fake_front.device_name);
    snprintf(rules->world.arch, sizeof(rules->world.arch), "%s", fake_front.arch);
}

// False: nothing changed.
static bool add_rules(const char *text, char *error, size_t error_size)
{
    static struct rules next; // too large for a stack
    next = state.base;
    if (!fault_each_rule(text, parse_rule, &next, error, error_size))
        return false;
    fault_keep_counts(&next.list, &state.now.list);
    state.now = next;
    account_add(ACCOUNT_control_reads, 1);
    return true;
}

static void start(void)
{
    const char *text = getenv("PLM_FAKE_GPU");
    char error[FAULT_RULE_SIZE + 64];
    state.started = true;
    clear(&state.base);
    state.usable =
        fault_each_rule(text != NULL ? text : "", parse_rule, &state.base, error, sizeof(error));
    if (!state.usable)
        fprintf(stderr, "fake driver: PLM_FAKE_GPU: %s\n", error);
    state.now = state.base;
    if (state.usable && state.base.account[0] != '\0' &&
        !counters_share(state.base.account, ACCOUNT_COUNTERS)) {
        fprintf(stderr, "fake driver: can not write %s\n", state.base.account);
        state.usable = false;
    }
}

static void enter(void)
{
    char text[FAULT_TEXT_SIZE];
    char error[FAULT_RULE_SIZE + 64];
    pthread_mutex_lock(&state.lock);
    if (!state.started)
        start();
    if (fault_control(state.base.control, &state.seen, text) &&
        !add_rules(text, error, sizeof(error))) {
        fprintf(stderr, "fake driver: %s: %s\n", state.base.control, error);
        account_add(ACCOUNT_bad_rules, 1);
    }
}

static void leave(void)
{
    pthread_mutex_unlock(&state.lock);
}

bool rules_world(struct world *ret)
{
    enter();
    *ret = state.now.world;
    const bool usable = state.usable;
    const bool over =
        state.loss.after_ms != 0 && fault_now_ns() - state.lost_ns >= state.loss.after_ms * 1000000;
    const enum fault_after after = state.lost && !over ? state.loss.after : AFTER_SAME;
    leave();
    if (after == AFTER_GONE)
        ret->count = 0;
    ret->broken = after == AFTER_BROKEN;
    if (after == AFTER_OTHER) {
        ret->uuid = 0xeeee;
        snprintf(ret->name, sizeof(ret->name), "another device");
    }
    return usable;
}

bool rules_strike(enum fake_place place, uint64_t bytes, struct fault *ret)
{
    enter();
    const bool hit = fault_strike(&state.now.list, (int32_t)place, bytes, ret);
    leave();
    if (hit)
        account_add(ACCOUNT_faults, 1);
    return hit;
}

void rules_lose(const struct fault *fault)
{
    enter();
    state.lost = true;
    state.loss = *fault;
    state.lost_ns = fault_now_ns();
    leave();
}

void rules_misuse(const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    account_add(ACCOUNT_misuses, 1);
    fprintf(stderr, "fake driver: misuse: %s\n", text);
}

// ---- for programs that have the driver in their own process (control.h) ----

bool plm_fake_gpu_set(const char *rules, char *error, size_t error_size)
{
    enter();
    state.now.list.n = 0; // the same text begins to count anew
    state.lost = false;
    const bool ok = add_rules(rules, error, error_size);
    leave();
    return ok;
}

uint64_t plm_fake_gpu_count(const char *counter)
{
    for (uint32_t i = 0; i < ACCOUNT_COUNTERS; i++) {
        if (strcmp(COUNTER_NAMES[i], counter) == 0)
            return counters_read(i);
    }
    return UINT64_MAX;
}
