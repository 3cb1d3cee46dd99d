// SPDX-License-Identifier: Apache-2.0
// World text as lines of words: takes them one after the other, as names, numbers, sizes and times,
// and says of what is wrong its line and word.
#ifndef PLM_SIM_WORLD_TEXT_H
#define PLM_SIM_WORLD_TEXT_H

#include "backends/sim/world_impl.h"

#define PLM_WORLD_WORDS_MAX 32 // of a line: a request with all its fields has fewer

struct plm_world_text {
    struct plm_host *host;
    struct plm_world *world;
    struct plm_error *err;
    const char *at, *end;
    uint32_t line;
    struct plm_slice words[PLM_WORLD_WORDS_MAX];
    uint32_t n, next; // words of the line, and the first that is not taken yet
    bool has_model;
};

// Splits the next line into words; *ret: FORMAT or LIMIT where it is none. False at the end.
bool plm_world_next_line(struct plm_world_text *p, int *ret);
bool plm_world_next_is(const struct plm_world_text *p, const char *text);

// Each takes the next word; FORMAT where there is none or it is something else. `what` names it.
int plm_world_take_word(struct plm_world_text *p, const char *what, struct plm_slice *ret);
int plm_world_take_name(struct plm_world_text *p, const char *const *names, const char *what,
                        uint32_t *ret);
int plm_world_take_number(struct plm_world_text *p, uint64_t max, uint64_t *ret);
int plm_world_take_size(struct plm_world_text *p, uint64_t *ret); // at most 2^63 - 1
int plm_world_take_value(struct plm_world_text *p, enum plm_world_kind kind, void *member);
// Takes "WORD VALUE" where the next word is in the table; *ret_taken says so.
int plm_world_take_field(struct plm_world_text *p, const struct plm_world_field *fields,
                         void *object, bool *ret_taken);

// The same of a part of a word.
int plm_world_size_from(struct plm_world_text *p, struct plm_slice from, uint64_t *ret);
int plm_world_time_from(struct plm_world_text *p, struct plm_slice from, uint64_t *ret);
// Digits at the start of *rest, which moves behind them. False: none, or beyond 64 bits.
bool plm_world_digits(struct plm_slice *rest, uint64_t *ret);
// Copies with a NUL; LIMIT where it is longer.
int plm_world_copy_text(struct plm_world_text *p, struct plm_slice from, char *ret, size_t cap);

// Room for one more of n items: the array holds the next power of two. NULL: no host memory.
void *plm_world_grow(struct plm_world_text *p, void *items, uint32_t n, size_t item_bytes);

// Errors; each returns its status.
int plm_world_bad_word(struct plm_world_text *p, struct plm_slice word, const char *why);
int plm_world_bad_line(struct plm_world_text *p, const char *why);
int plm_world_too_many(struct plm_world_text *p, const char *what, uint32_t max);
int plm_world_no_memory(struct plm_world_text *p);

#endif
