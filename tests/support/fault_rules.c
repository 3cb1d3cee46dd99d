// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fault_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct fault_name AFTER_NAMES[] = {
    {"same", AFTER_SAME},
    {"other", AFTER_OTHER},
    {"broken", AFTER_BROKEN},
    {"gone", AFTER_GONE},
    {NULL, 0},
};

void fault_split(struct fault_words *w, const char *text)
{
    char *rest = NULL;
    w->n = 0;
    snprintf(w->text, sizeof(w->text), "%s", text);
    for (char *word = strtok_r(w->text, " \t\r", &rest); word != NULL && w->n < FAULT_WORDS;
         word = strtok_r(NULL, " \t\r", &rest)) {
        w->word[w->n++] = word;
    }
}

bool fault_lookup(const struct fault_name *names, const char *name, int32_t *ret)
{
    for (; names->name != NULL; names++) {
        if (strcmp(names->name, name) == 0) {
            *ret = names->value;
            return true;
        }
    }
    return false;
}

bool fault_number(const char *text, uint64_t *ret)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    *ret = strtoull(text, &end, 10);
    return *end == '\0';
}

bool fault_size(const char *text, uint64_t *ret)
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

const char *fault_option(const struct fault_words *w, uint32_t from, const char *key)
{
    size_t n = strlen(key);
    for (uint32_t i = from; i < w->n; i++) {
        if (strncmp(w->word[i], key, n) == 0 && w->word[i][n] == '=') {
            return w->word[i] + n + 1;
        }
    }
    return NULL;
}

bool fault_option_number(const struct fault_words *w, uint32_t from, const char *key, uint64_t *io)
{
    const char *text = fault_option(w, from, key);
    return text == NULL || fault_number(text, io);
}

bool fault_option_size(const struct fault_words *w, uint32_t from, const char *key, uint64_t *io)
{
    const char *text = fault_option(w, from, key);
    return text == NULL || fault_size(text, io);
}

bool fault_only_options(const struct fault_words *w, uint32_t from, const char *const *keys)
{
    for (uint32_t i = from; i < w->n; i++) {
        bool known = false;
        for (const char *const *key = keys; *key != NULL; key++) {
            const struct fault_words one = {.word = {w->word[i]}, .n = 1};
            known = known || fault_option(&one, 0, *key) != NULL;
        }
        if (!known) {
            return false;
        }
    }
    return true;
}

void fault_text(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text);
    for (char *c = to; *c != '\0'; c++) {
        *c = *c == '_' ? ' ' : *c;
    }
}

bool fault_each_rule(const char *text, bool (*parse)(void *ctx, const char *rule), void *ctx,
                     char *error, size_t error_size)
{
    while (*text != '\0') {
        char rule[FAULT_RULE_SIZE];
        text += strspn(text, " \t\r");
        bool comment = text[0] == '#';
        size_t n = strcspn(text, comment ? "\n" : ";\n");
        size_t used = n < sizeof(rule) ? n : sizeof(rule) - 1;
        memcpy(rule, text, used);
        rule[used] = '\0';
        if (!comment && (used < n || !parse(ctx, rule))) {
            snprintf(error, error_size, "rule not understood: %s", rule);
            return false;
        }
        text += n + (text[n] != '\0');
    }
    return true;
}

bool fault_parse(struct fault_list *list, const struct fault_words *w, const char *text,
                 const struct fault_name *places, const struct fault_name *results)
{
    static const char *const KEYS[] = {"nth", "times", "min", "ms", "then", "then-ms", "tag", NULL};
    struct fault_rule rule = {.nth = 1, .times = 1};
    int32_t after = AFTER_SAME;
    const char *times = fault_option(w, 3, "times");
    const char *then = fault_option(w, 3, "then");
    uint64_t ms = 0;
    uint64_t after_ms = 0;
    if (w->n < 3 || list->n == FAULT_RULES || !fault_lookup(places, w->word[1], &rule.place) ||
        !fault_lookup(results, w->word[2], &rule.fault.result) || !fault_only_options(w, 3, KEYS) ||
        !fault_option_number(w, 3, "nth", &rule.nth) ||
        !fault_option_size(w, 3, "min", &rule.min_bytes) || !fault_option_number(w, 3, "ms", &ms) ||
        !fault_option_number(w, 3, "then-ms", &after_ms) ||
        (then != NULL && !fault_lookup(AFTER_NAMES, then, &after))) {
        return false;
    }
    if (times != NULL && strcmp(times, "all") == 0) {
        rule.times = UINT64_MAX;
    } else if (times != NULL && !fault_number(times, &rule.times)) {
        return false;
    }
    if (rule.nth == 0 || rule.times == 0) {
        return false;
    }
    memcpy(rule.text, text, strlen(text) + 1);
    rule.fault.ms = (int64_t)ms;
    rule.fault.after = (enum fault_after)after;
    rule.fault.after_ms = (int64_t)after_ms;
    list->rules[list->n++] = rule;
    return true;
}

void fault_keep_counts(struct fault_list *to, const struct fault_list *from)
{
    for (uint32_t i = 0; i < to->n; i++) {
        for (uint32_t j = 0; j < from->n; j++) {
            if (strcmp(to->rules[i].text, from->rules[j].text) == 0) {
                to->rules[i].seen = from->rules[j].seen;
            }
        }
    }
}

bool fault_strike(struct fault_list *list, int32_t place, uint64_t bytes, struct fault *ret)
{
    bool hit = false;
    for (uint32_t i = 0; i < list->n; i++) {
        struct fault_rule *rule = &list->rules[i];
        if (rule->place != place || bytes < rule->min_bytes) {
            continue;
        }
        rule->seen++;
        if (!hit && rule->seen >= rule->nth && rule->seen - rule->nth < rule->times) {
            *ret = rule->fault;
            hit = true;
        }
    }
    return hit;
}

bool fault_control(const char *path, struct stat *seen, char text[FAULT_TEXT_SIZE])
{
    struct stat now;
    if (path[0] == '\0' || stat(path, &now) != 0 ||
        (now.st_ino == seen->st_ino && now.st_size == seen->st_size &&
         now.st_mtim.tv_sec == seen->st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == seen->st_mtim.tv_nsec)) {
        return false;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t n = fread(text, 1, FAULT_TEXT_SIZE - 1, file);
    fclose(file);
    text[n] = '\0';
    *seen = now;
    return true;
}

int64_t fault_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
