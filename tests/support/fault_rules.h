// SPDX-License-Identifier: Apache-2.0
// What drivers that fail on purpose share (tests/vulkan, tests/fakegpu): the language of their
// rules (words, ended by ';' or a new line; '#' begins a comment), the rule `fail`, and control
// files. Callers hold their own locks.
#ifndef PLM_TESTS_FAULT_RULES_H
#define PLM_TESTS_FAULT_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define FAULT_RULES     32u
#define FAULT_RULE_SIZE 256u // bytes of one rule's text, with its end
#define FAULT_TEXT_SIZE 4096u
#define FAULT_WORDS     12u // of one rule

// ---- words ----

struct fault_words {
    char text[FAULT_RULE_SIZE]; // cut at the blanks
    char *word[FAULT_WORDS];
    uint32_t n;
};

// Ended by a NULL name.
struct fault_name {
    const char *name;
    int32_t value;
};

void fault_split(struct fault_words *w, const char *text);
bool fault_lookup(const struct fault_name *names, const char *name, int32_t *ret);
bool fault_number(const char *text, uint64_t *ret);
bool fault_size(const char *text, uint64_t *ret); // "4096", "64MiB"
// The value of the word "key=value" at or after from, or NULL.
const char *fault_option(const struct fault_words *w, uint32_t from, const char *key);
// False: it is there, and no number. *io stays where it is not there.
bool fault_option_number(const struct fault_words *w, uint32_t from, const char *key, uint64_t *io);
bool fault_option_size(const struct fault_words *w, uint32_t from, const char *key, uint64_t *io);
// Each word from `from` on is a key of the list, with '='.
bool fault_only_options(const struct fault_words *w, uint32_t from, const char *const *keys);
// A text as a value: '_' stands for a blank.
void fault_text(char *to, size_t size, const char *text);

// Hands each rule of a text to parse. False at the first that is not understood: error says which.
bool fault_each_rule(const char *text, bool (*parse)(void *ctx, const char *rule), void *ctx,
                     char *error, size_t error_size);

// ---- fail PLACE RESULT [nth=N] [times=K|all] [min=BYTES] [ms=T] [then=AFTER] [then-ms=T]
// [tag=WORD] ----

// What the next look for a device finds after a loss.
enum fault_after { AFTER_SAME, AFTER_OTHER, AFTER_BROKEN, AFTER_GONE };

struct fault {
    int32_t result;         // the driver's own number
    int64_t ms;             // of a hang
    enum fault_after after; // of a loss; it holds for after_ms, or for ever where that is 0
    int64_t after_ms;
};

struct fault_rule {
    char text[FAULT_RULE_SIZE];
    int32_t place;
    struct fault fault;
    uint64_t nth;       // the first call that fails, from 1
    uint64_t times;     // calls in a row that do; UINT64_MAX: for ever
    uint64_t min_bytes; // smaller ones do not count
    uint64_t seen;
};

struct fault_list {
    struct fault_rule rules[FAULT_RULES];
    uint32_t n;
};

bool fault_parse(struct fault_list *list, const struct fault_words *w, const char *text,
                 const struct fault_name *places, const struct fault_name *results);
// A rule that was there before keeps its count.
void fault_keep_counts(struct fault_list *to, const struct fault_list *from);
// Counts one call at a place, whose size is bytes where it has one. True: it is to fail as told.
bool fault_strike(struct fault_list *list, int32_t place, uint64_t bytes, struct fault *ret);

// ---- control files ----

// Whether the file is another one than was seen last; then its text.
bool fault_control(const char *path, struct stat *seen, char text[FAULT_TEXT_SIZE]);

int64_t fault_now_ns(void);

#endif
