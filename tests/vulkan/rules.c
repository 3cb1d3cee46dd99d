// SPDX-License-Identifier: Apache-2.0
// The language of the rules (README.md): words, ended by ';' or a new line; '#' begins a comment.
#include "faults.h"

#include <stdio.h>
#include <string.h>

static const struct fault_name PLACE_NAMES[] = {
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
static const struct fault_name RESULT_NAMES[] = {
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
static const struct fault_name BUDGET_NAMES[] = {
    {"driver", BUDGET_DRIVER}, {"none", BUDGET_NONE},
    {"true", BUDGET_TRUE},     {"double", BUDGET_DOUBLE},
    {"zero", BUDGET_ZERO},     {"max", BUDGET_MAX},
    {"stale", BUDGET_STALE},   {NULL, 0},
};
static const struct fault_name TYPE_NAMES[] = {
    {"other", VK_PHYSICAL_DEVICE_TYPE_OTHER},
    {"integrated", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU},
    {"discrete", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU},
    {"virtual", VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU},
    {"cpu", VK_PHYSICAL_DEVICE_TYPE_CPU},
    {NULL, 0},
};

static bool rule_fail(struct rules *rules, const struct fault_words *w, const char *text)
{
    if (!fault_parse(&rules->list, w, text, PLACE_NAMES, RESULT_NAMES)) {
        return false;
    }
    // Only work that was taken can hang, and a test that never ends proves nothing.
    const struct fault_rule *rule = &rules->list.rules[rules->list.n - 1];
    return rule->fault.result != VK_TIMEOUT || (rule->place == PLACE_SUBMIT && rule->fault.ms > 0);
}

// heap INDEX [size=BYTES] [capacity=BYTES] [neighbour=BYTES] [device-local=0|1]
static bool rule_heap(struct rules *rules, const struct fault_words *w)
{
    static const char *const KEYS[] = {"size", "capacity", "neighbour", "device-local", NULL};
    uint64_t index = 0;
    if (w->n < 3 || !fault_number(w->word[1], &index) || index >= ACCOUNT_HEAPS ||
        !fault_only_options(w, 2, KEYS)) {
        return false;
    }
    struct world_heap *heap = &rules->world.heaps[index];
    uint64_t local = heap->device_local;
    if (!fault_option_size(w, 2, "size", &heap->bytes) ||
        !fault_option_size(w, 2, "capacity", &heap->capacity) ||
        !fault_option_size(w, 2, "neighbour", &heap->neighbour) ||
        !fault_option_number(w, 2, "device-local", &local)) {
        return false;
    }
    heap->device_local = local != 0;
    if (index >= rules->world.n_heaps) {
        rules->world.n_heaps = (uint32_t)index + 1;
    }
    return true;
}

// memtype HEAP FLAGS, of the letters D (device-local), V (host-visible), C (coherent), K (cached)
static bool rule_memtype(struct rules *rules, const struct fault_words *w)
{
    struct world *world = &rules->world;
    uint64_t heap = 0;
    VkMemoryPropertyFlags flags = 0;
    if (w->n != 3 || !fault_number(w->word[1], &heap) || heap >= world->n_heaps ||
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
static bool rule_api(struct rules *rules, const struct fault_words *w)
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
static bool rule_budget(struct rules *rules, const struct fault_words *w)
{
    int32_t kind = BUDGET_FIXED;
    if (w->n != 2 || (!fault_lookup(BUDGET_NAMES, w->word[1], &kind) &&
                      !fault_size(w->word[1], &rules->world.budget_bytes))) {
        return false;
    }
    rules->world.budget = (enum fault_budget)kind;
    return true;
}

// limit [max-allocation=BYTES] [max-buffer=BYTES]
static bool rule_limit(struct rules *rules, const struct fault_words *w)
{
    static const char *const KEYS[] = {"max-allocation", "max-buffer", NULL};
    return w->n > 1 && fault_only_options(w, 1, KEYS) &&
           fault_option_size(w, 1, "max-allocation", &rules->world.max_allocation) &&
           fault_option_size(w, 1, "max-buffer", &rules->world.max_buffer);
}

// identity [type=KIND] [uuid=N] [name=TEXT], where '_' stands for a blank
static bool rule_identity(struct rules *rules, const struct fault_words *w)
{
    static const char *const KEYS[] = {"type", "uuid", "name", NULL};
    struct world *world = &rules->world;
    const char *type = fault_option(w, 1, "type");
    const char *name = fault_option(w, 1, "name");
    uint64_t uuid = 0;
    if (w->n < 2 || !fault_only_options(w, 1, KEYS) ||
        (type != NULL && !fault_lookup(TYPE_NAMES, type, &world->device_type)) ||
        !fault_option_number(w, 1, "uuid", &uuid)) {
        return false;
    }
    if (fault_option(w, 1, "uuid") != NULL) {
        world->has_uuid = true;
        for (uint32_t i = 0; i < 8; i++) {
            world->uuid[VK_UUID_SIZE - 1 - i] = (uint8_t)(uuid >> (8 * i));
        }
    }
    if (name != NULL) {
        fault_text(world->name, sizeof(world->name), name);
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
static bool rule_hide(struct rules *rules, const struct fault_words *w)
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
static bool rule_file(struct rules *rules, const struct fault_words *w)
{
    char *to = strcmp(w->word[0], "control") == 0 ? rules->control : rules->account;
    if (w->n != 2) {
        return false;
    }
    snprintf(to, FAULT_RULE_SIZE, "%s", w->word[1]);
    return true;
}

static bool parse_rule(void *ctx, const char *text)
{
    struct rules *rules = ctx;
    static const struct {
        const char *verb;
        bool (*parse)(struct rules *rules, const struct fault_words *w);
    } VERBS[] = {
        {"heap", rule_heap},         {"memtype", rule_memtype}, {"api", rule_api},
        {"budget", rule_budget},     {"limit", rule_limit},     {"hide", rule_hide},
        {"identity", rule_identity}, {"show", rule_hide},       {"control", rule_file},
        {"account", rule_file},
    };
    struct fault_words w;
    fault_split(&w, text);
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
    return fault_each_rule(text, parse_rule, rules, error, error_size);
}
