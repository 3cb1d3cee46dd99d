// SPDX-License-Identifier: Apache-2.0
// The language of the rules (README.md): words, ended by ';' or a new line; '#' begins a comment.
#include "faults.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 12u // of one rule

struct words {
    char text[FAULT_RULE_SIZE]; // cut at the blanks
    char *word[WORDS];
    uint32_t n;
};

struct name {
    const char *name;
    int32_t value;
};

static const struct name PLACE_NAMES[] = {
    {"instance", PLACE_INSTANCE}, {"device", PLACE_DEVICE},
    {"allocate", PLACE_ALLOCATE}, {"map", PLACE_MAP},
    {"buffer", PLACE_BUFFER},     {"shader", PLACE_SHADER},
    {"pipeline", PLACE_PIPELINE}, {"pipeline-layout", PLACE_PIPELINE_LAYOUT},
    {"cache", PLACE_CACHE},       {"semaphore", PLACE_SEMAPHORE},
    {"fence", PLACE_FENCE},       {"query-pool", PLACE_QUERY},
    {"command-pool", PLACE_POOL}, {"commands", PLACE_COMMANDS},
    {"record", PLACE_RECORD},     {"submit", PLACE_SUBMIT},
    {"wait", PLACE_WAIT},         {NULL, 0},
};
static const struct name RESULT_NAMES[] = {
    {"oom-device", VK_ERROR_OUT_OF_DEVICE_MEMORY},
    {"oom-host", VK_ERROR_OUT_OF_HOST_MEMORY},
    {"lost", VK_ERROR_DEVICE_LOST},
    {"hang", VK_TIMEOUT},
    {"map-failed", VK_ERROR_MEMORY_MAP_FAILED},
    {"init-failed", VK_ERROR_INITIALIZATION_FAILED},
    {"no-driver", VK_ERROR_INCOMPATIBLE_DRIVER},
    {"unknown", VK_ERROR_UNKNOWN},
    {NULL, 0},
};
static const struct name AFTER_NAMES[] = {
    {"same", AFTER_SAME},
    {"other", AFTER_OTHER},
    {"broken", AFTER_BROKEN},
    {"gone", AFTER_GONE},
    {NULL, 0},
};
static const struct name BUDGET_NAMES[] = {
    {"driver", BUDGET_DRIVER}, {"none", BUDGET_NONE},
    {"true", BUDGET_TRUE},     {"double", BUDGET_DOUBLE},
    {"zero", BUDGET_ZERO},     {"max", BUDGET_MAX},
    {"stale", BUDGET_STALE},   {NULL, 0},
};
static const struct name TYPE_NAMES[] = {
    {"other", VK_PHYSICAL_DEVICE_TYPE_OTHER},
    {"integrated", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU},
    {"discrete", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU},
    {"virtual", VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU},
    {"cpu", VK_PHYSICAL_DEVICE_TYPE_CPU},
    {NULL, 0},
};

static bool lookup(const struct name *names, const char *name, int32_t *ret)
{
    for (; names->name != NULL; names++) {
        if (strcmp(names->name, name) == 0) {
            *ret = names->value;
            return true;
        }
    }
    return false;
}

static bool number(const char *text, uint64_t *ret)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    *ret = strtoull(text, &end, 10);
    return *end == '\0';
}

// "4096", "64MiB"
static bool size(const char *text, uint64_t *ret)
{
    static const char *const UNITS[] = {"KiB", "MiB", "GiB", "TiB"};
    char digits[24];
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, text, n);
    digits[n] = '\0';
    uint64_t value = strtoull(digits, NULL, 10);
    for (uint32_t i = 0; i < 4 && text[n] != '\0'; i++) {
        if (strcmp(text + n, UNITS[i]) == 0) {
            *ret = value << (10 * (i + 1));
            return true;
        }
    }
    *ret = value;
    return text[n] == '\0';
}

// The value of the word "key=value" at or after from, or NULL.
static const char *option(const struct words *w, uint32_t from, const char *key)
{
    size_t n = strlen(key);
    for (uint32_t i = from; i < w->n; i++) {
        if (strncmp(w->word[i], key, n) == 0 && w->word[i][n] == '=') {
            return w->word[i] + n + 1;
        }
    }
    return NULL;
}

static bool option_number(const struct words *w, uint32_t from, const char *key, uint64_t *io)
{
    const char *text = option(w, from, key);
    return text == NULL || number(text, io);
}

static bool option_size(const struct words *w, uint32_t from, const char *key, uint64_t *io)
{
    const char *text = option(w, from, key);
    return text == NULL || size(text, io);
}

// Each word from `from` on is a key of the list, with '='.
static bool only_options(const struct words *w, uint32_t from, const char *const *keys)
{
    for (uint32_t i = from; i < w->n; i++) {
        bool known = false;
        for (const char *const *key = keys; *key != NULL; key++) {
            known = known || option(&(struct words){.word = {w->word[i]}, .n = 1}, 0, *key) != NULL;
        }
        if (!known) {
            return false;
        }
    }
    return true;
}

// fail PLACE RESULT [nth=N] [times=K|all] [min=BYTES] [ms=T] [then=AFTER] [then-ms=T] [tag=WORD]
static bool rule_fail(struct rules *rules, const struct words *w, const char *text)
{
    static const char *const KEYS[] = {"nth", "times", "min", "ms", "then", "then-ms", "tag", NULL};
    struct rule rule = {.nth = 1, .times = 1};
    int32_t place = 0;
    int32_t result = 0;
    int32_t after = AFTER_SAME;
    const char *times = option(w, 3, "times");
    uint64_t ms = 0;
    uint64_t after_ms = 0;
    if (w->n < 3 || rules->n == FAULT_RULES || !lookup(PLACE_NAMES, w->word[1], &place) ||
        !lookup(RESULT_NAMES, w->word[2], &result) || !only_options(w, 3, KEYS) ||
        !option_number(w, 3, "nth", &rule.nth) || !option_size(w, 3, "min", &rule.min_bytes) ||
        !option_number(w, 3, "ms", &ms) || !option_number(w, 3, "then-ms", &after_ms)) {
        return false;
    }
    const char *then = option(w, 3, "then");
    if (then != NULL && !lookup(AFTER_NAMES, then, &after)) {
        return false;
    }
    if (times != NULL && strcmp(times, "all") == 0) {
        rule.times = UINT64_MAX;
    } else if (times != NULL && !number(times, &rule.times)) {
        return false;
    }
    if (rule.nth == 0 || rule.times == 0 ||
        (result == VK_TIMEOUT && (place != PLACE_SUBMIT || ms == 0))) {
        return false; // only work that was taken can hang, and a test that never ends proves
                      // nothing
    }
    memcpy(rule.text, text, strlen(text) + 1);
    rule.place = (enum fault_place)place;
    rule.fault = (struct fault){.result = (VkResult)result,
                                .ms = (int64_t)ms,
                                .after = (enum fault_after)after,
                                .after_ms = (int64_t)after_ms};
    rules->rules[rules->n++] = rule;
    return true;
}

// heap INDEX [size=BYTES] [capacity=BYTES] [neighbour=BYTES] [device-local=0|1]
static bool rule_heap(struct rules *rules, const struct words *w)
{
    static const char *const KEYS[] = {"size", "capacity", "neighbour", "device-local", NULL};
    uint64_t index = 0;
    if (w->n < 3 || !number(w->word[1], &index) || index >= ACCOUNT_HEAPS ||
        !only_options(w, 2, KEYS)) {
        return false;
    }
    struct world_heap *heap = &rules->world.heaps[index];
    uint64_t local = heap->device_local;
    if (!option_size(w, 2, "size", &heap->bytes) ||
        !option_size(w, 2, "capacity", &heap->capacity) ||
        !option_size(w, 2, "neighbour", &heap->neighbour) ||
        !option_number(w, 2, "device-local", &local)) {
        return false;
    }
    heap->device_local = local != 0;
    if (index >= rules->world.n_heaps) {
        rules->world.n_heaps = (uint32_t)index + 1;
    }
    return true;
}

// memtype HEAP FLAGS, of the letters D (device-local), V (host-visible), C (coherent), K (cached)
static bool rule_memtype(struct rules *rules, const struct words *w)
{
    struct world *world = &rules->world;
    uint64_t heap = 0;
    VkMemoryPropertyFlags flags = 0;
    if (w->n != 3 || !number(w->word[1], &heap) || heap >= world->n_heaps ||
        world->n_types == FAULT_TYPES) {
        return false;
    }
    for (const char *c = w->word[2]; *c != '\0'; c++) {
        switch (*c) {
        case 'D': flags |= VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT; break;
        case 'V': flags |= VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT; break;
        case 'C': flags |= VK_MEMORY_PROPERTY_HOST_COHERENT_BIT; break;
        case 'K': flags |= VK_MEMORY_PROPERTY_HOST_CACHED_BIT; break;
        case '0': break; // a type without any
        default: return false;
        }
    }
    world->types[world->n_types++] = (struct world_type){.heap = (uint32_t)heap, .flags = flags};
    return true;
}

// api MAJOR.MINOR
static bool rule_api(struct rules *rules, const struct words *w)
{
    unsigned major = 0;
    unsigned minor = 0;
    int end = 0;
    if (w->n != 2 || sscanf(w->word[1], "%1u.%1u%n", &major, &minor, &end) != 2 ||
        w->word[1][end] != '\0') {
        return false;
    }
    rules->world.api_version = VK_MAKE_API_VERSION(0, major, minor, 0);
    return true;
}

// budget LIE, or budget BYTES
static bool rule_budget(struct rules *rules, const struct words *w)
{
    int32_t kind = BUDGET_FIXED;
    if (w->n != 2 || (!lookup(BUDGET_NAMES, w->word[1], &kind) &&
                      !size(w->word[1], &rules->world.budget_bytes))) {
        return false;
    }
    rules->world.budget = (enum fault_budget)kind;
    return true;
}

// limit [max-allocation=BYTES] [max-buffer=BYTES]
static bool rule_limit(struct rules *rules, const struct words *w)
{
    static const char *const KEYS[] = {"max-allocation", "max-buffer", NULL};
    return w->n > 1 && only_options(w, 1, KEYS) &&
           option_size(w, 1, "max-allocation", &rules->world.max_allocation) &&
           option_size(w, 1, "max-buffer", &rules->world.max_buffer);
}

// identity [type=KIND] [uuid=N] [name=TEXT], where '_' stands for a blank
static bool rule_identity(struct rules *rules, const struct words *w)
{
    static const char *const KEYS[] = {"type", "uuid", "name", NULL};
    struct world *world = &rules->world;
    const char *type = option(w, 1, "type");
    const char *name = option(w, 1, "name");
    uint64_t uuid = 0;
    if (w->n < 2 || !only_options(w, 1, KEYS) ||
        (type != NULL && !lookup(TYPE_NAMES, type, &world->device_type)) ||
        !option_number(w, 1, "uuid", &uuid)) {
        return false;
    }
    if (option(w, 1, "uuid") != NULL) {
        world->has_uuid = true;
        for (uint32_t i = 0; i < 8; i++) {
            world->uuid[VK_UUID_SIZE - 1 - i] = (uint8_t)(uuid >> (8 * i));
        }
    }
    if (name != NULL) {
        snprintf(world->name, sizeof(world->name), "%s", name);
        for (char *c = world->name; *c != '\0'; c++) {
            *c = *c == '_' ? ' ' : *c;
        }
    }
    return true;
}

static bool keep_name(char *list, size_t entry, uint32_t *n, const char *name)
{
    if (*n == FAULT_NAMES || strlen(name) >= entry) {
        return false;
    }
    memcpy(list + *n * entry, name, strlen(name) + 1);
    (*n)++;
    return true;
}

// hide feature NAME | extension NAME | compute | devices; show extension NAME
static bool rule_hide(struct rules *rules, const struct words *w)
{
    struct world *world = &rules->world;
    bool hide = strcmp(w->word[0], "hide") == 0;
    if (w->n == 2 && hide && strcmp(w->word[1], "compute") == 0) {
        world->no_compute = true;
        return true;
    }
    if (w->n == 2 && hide && strcmp(w->word[1], "devices") == 0) {
        world->no_devices = true;
        return true;
    }
    if (w->n != 3) {
        return false;
    }
    if (hide && strcmp(w->word[1], "feature") == 0) {
        return rules_feature(w->word[2]) &&
               keep_name(world->hidden_features[0], sizeof(world->hidden_features[0]),
                         &world->n_hidden_features, w->word[2]);
    }
    if (strcmp(w->word[1], "extension") != 0) {
        return false;
    }
    return hide ? keep_name(world->hidden_extensions[0], sizeof(world->hidden_extensions[0]),
                            &world->n_hidden_extensions, w->word[2])
                : keep_name(world->extensions[0], sizeof(world->extensions[0]),
                            &world->n_extensions, w->word[2]);
}

// control FILE, account FILE
static bool rule_file(struct rules *rules, const struct words *w)
{
    char *to = strcmp(w->word[0], "control") == 0 ? rules->control : rules->account;
    if (w->n != 2) {
        return false;
    }
    snprintf(to, FAULT_RULE_SIZE, "%s", w->word[1]);
    return true;
}

static void split(struct words *w, const char *text)
{
    char *rest = NULL;
    w->n = 0;
    snprintf(w->text, sizeof(w->text), "%s", text);
    for (char *word = strtok_r(w->text, " \t\r", &rest); word != NULL && w->n < WORDS;
         word = strtok_r(NULL, " \t\r", &rest)) {
        w->word[w->n++] = word;
    }
}

static bool parse_rule(struct rules *rules, const char *text)
{
    static const struct {
        const char *verb;
        bool (*parse)(struct rules *rules, const struct words *w);
    } VERBS[] = {
        {"heap", rule_heap},         {"memtype", rule_memtype}, {"api", rule_api},
        {"budget", rule_budget},     {"limit", rule_limit},     {"hide", rule_hide},
        {"identity", rule_identity}, {"show", rule_hide},       {"control", rule_file},
        {"account", rule_file},
    };
    struct words w;
    split(&w, text);
    if (w.n == 0) {
        return true;
    }
    if (strcmp(w.word[0], "fail") == 0) {
        return rule_fail(rules, &w, text);
    }
    for (size_t i = 0; i < sizeof(VERBS) / sizeof(VERBS[0]); i++) {
        if (strcmp(w.word[0], VERBS[i].verb) == 0) {
            return VERBS[i].parse(rules, &w);
        }
    }
    return false;
}

void rules_clear(struct rules *rules)
{
    *rules = (struct rules){.world = {.device_type = -1}};
}

bool rules_parse(struct rules *rules, const char *text, char *error, size_t error_size)
{
    while (*text != '\0') {
        char rule[FAULT_RULE_SIZE];
        text += strspn(text, " \t\r");
        bool comment = text[0] == '#';
        size_t n = strcspn(text, comment ? "\n" : ";\n");
        size_t used = n < sizeof(rule) ? n : sizeof(rule) - 1;
        memcpy(rule, text, used);
        rule[used] = '\0';
        if (!comment && (used < n || !parse_rule(rules, rule))) {
            snprintf(error, error_size, "rule not understood: %s", rule);
            return false;
        }
        text += n + (text[n] != '\0');
    }
    return true;
}
