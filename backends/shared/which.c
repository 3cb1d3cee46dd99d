// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/which.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"

// ---- pieces ----

bool plm_piece_is(struct plm_piece piece, const char *word)
{
    return strlen(word) == piece.n && memcmp(piece.at, word, piece.n) == 0;
}

static bool is_number(struct plm_piece piece)
{
    return piece.n > 0 && strspn(piece.at, "0123456789") >= piece.n;
}

bool plm_piece_number(struct plm_piece piece, uint32_t most, uint32_t *ret)
{
    uint64_t value = 0;
    if (!is_number(piece) || piece.n > 10)
        return false;
    for (size_t i = 0; i < piece.n; i++)
        value = value * 10 + (uint64_t)(piece.at[i] - '0');
    if (value > most)
        return false;
    *ret = (uint32_t)value;
    return true;
}

int plm_piece_switch(struct plm_piece value, const char *backend, const char *key, const char *yes,
                     const char *no, bool *ret, struct plm_error *err)
{
    if (!plm_piece_is(value, yes) && !plm_piece_is(value, no))
        return plm_fail(err, PLM_ERR_INVALID, "%s: %s is '%.*s'; it is %s or %s", backend, key,
                        PLM_PIECE_ARGS(value), yes, no);
    *ret = plm_piece_is(value, yes);
    return PLM_OK;
}

// ---- WHICH ----

// 8-4-4-4-12 hexadecimal digits, or 16 in a row (HIP).
static bool is_uuid(struct plm_piece piece)
{
    if (piece.n != 36 && piece.n != 16)
        return false;
    for (size_t i = 0; i < piece.n; i++) {
        const bool dash = piece.n == 36 && (i == 8 || i == 13 || i == 18 || i == 23);
        if (dash ? piece.at[i] != '-' : strchr("0123456789abcdefABCDEF", piece.at[i]) == NULL)
            return false;
    }
    return true;
}

static struct plm_piece without_prefix(struct plm_piece piece)
{
    const bool has =
        piece.n > 4 && (strncmp(piece.at, "GPU-", 4) == 0 || strncmp(piece.at, "MIG-", 4) == 0);
    return has ? (struct plm_piece){piece.at + 4, piece.n - 4} : piece;
}

static int parse_which(const char *backend, struct plm_piece text, struct plm_which *ret,
                       struct plm_error *err)
{
    const struct plm_piece bare = without_prefix(text);
    if (plm_piece_number(text, UINT16_MAX, &ret->index))
        return PLM_OK;
    if (is_uuid(bare)) {
        memcpy(ret->uuid, bare.at, bare.n);
        ret->uuid[bare.n] = '\0';
        return PLM_OK;
    }
    if (is_number(text))
        return plm_fail(err, PLM_ERR_INVALID, "%s:%.*s: no device has such an index", backend,
                        PLM_PIECE_ARGS(text));
    if (text.n >= sizeof(ret->name))
        return plm_fail(err, PLM_ERR_INVALID,
                        "%s: a part of a device's name is %zu characters long; names have at most "
                        "%zu",
                        backend, text.n, sizeof(ret->name) - 1);
    memcpy(ret->name, text.at, text.n);
    ret->name[text.n] = '\0';
    return PLM_OK;
}

int plm_which_parse(const char *backend, const char *text, plm_which_key *take, void *ctx,
                    struct plm_which *ret, struct plm_error *err)
{
    struct plm_which which = {0};
    bool first = true;
    for (const char *s = text;; first = false) {
        const struct plm_piece part = {s, strcspn(s, ",")};
        const char *equals = memchr(s, '=', part.n);
        int rc;
        if (part.n == 0)
            rc = plm_fail(err, PLM_ERR_INVALID,
                          "%s:%.64s: an empty part; it is %s:WHICH,key=value,...", backend, text,
                          backend);
        else if (equals != NULL)
            rc = take(ctx, (struct plm_piece){s, (size_t)(equals - s)},
                      (struct plm_piece){equals + 1, (size_t)(s + part.n - equals - 1)}, err);
        else if (first)
            rc = parse_which(backend, part, &which, err);
        else
            rc = plm_fail(err, PLM_ERR_INVALID, "%s: '%.*s' is no key=value", backend,
                          PLM_PIECE_ARGS(part));
        if (rc != PLM_OK)
            return rc;
        if (s[part.n] == '\0')
            break;
        s += part.n + 1;
    }
    *ret = which;
    return PLM_OK;
}

// ---- among the cards ----

static bool contains(const char *name, const char *part)
{
    const size_t n = strlen(part);
    for (; *name != '\0'; name++) {
        if (plm_ascii_same(name, part, n))
            return true;
    }
    return false;
}

bool plm_which_matches(const struct plm_which *which, uint32_t index, const char *name,
                       const char *uuid)
{
    if (which->uuid[0] != '\0')
        return plm_ascii_same(uuid, which->uuid, SIZE_MAX);
    if (which->name[0] != '\0')
        return contains(name, which->name);
    return index == which->index;
}

void plm_which_text(const struct plm_which *which, char ret[80])
{
    if (which->uuid[0] != '\0' || which->name[0] != '\0')
        snprintf(ret, 80, "%s", which->uuid[0] != '\0' ? which->uuid : which->name);
    else
        snprintf(ret, 80, "%" PRIu32, which->index);
}
