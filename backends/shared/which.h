// SPDX-License-Identifier: Apache-2.0
// What follows ':' in the id of a card, "WHICH,key=value,...", as every backend of cards reads it.
// WHICH is an index, a UUID (with the vendors' "GPU-" or "MIG-" before it or without), or a part of
// a name, and may be left out; keys are each backend's own.
#ifndef PLM_SHARED_WHICH_H
#define PLM_SHARED_WHICH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

struct plm_which {
    uint32_t index;
    char uuid[40]; // "": by index
    char name[64]; // "": by index
};

// A piece of the text: not ended by a NUL.
struct plm_piece {
    const char *at;
    size_t n;
};

bool plm_piece_is(struct plm_piece piece, const char *word);
// Decimal digits of at most so much.
bool plm_piece_number(struct plm_piece piece, uint32_t most, uint32_t *ret);
// One of two words. INVALID: the error names backend, key and both.
int plm_piece_switch(struct plm_piece value, const char *backend, const char *key, const char *yes,
                     const char *no, bool *ret, struct plm_error *err);
// For "%.*s" in messages, which show so much of a piece.
#define PLM_PIECE_ARGS(piece) (int)((piece).n < 32 ? (piece).n : 32), (piece).at

// Takes one key=value.
typedef int plm_which_key(void *ctx, struct plm_piece key, struct plm_piece value,
                          struct plm_error *err);
// Parses the whole text; on failure *ret is as it was. What take returns, or INVALID.
int plm_which_parse(const char *backend, const char *text, plm_which_key *take, void *ctx,
                    struct plm_which *ret, struct plm_error *err);

// Whether the index-th card, of this name and UUID, is meant.
bool plm_which_matches(const struct plm_which *which, uint32_t index, const char *name,
                       const char *uuid);
// WHICH again, for messages.
void plm_which_text(const struct plm_which *which, char ret[80]);

#endif
