// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/gpudrv/impl.h"

// ---- the text after "cuda:" ----

void plm_gpu_opts_defaults(struct plm_gpu_opts *ret)
{
    *ret = (struct plm_gpu_opts){.graphs = true, .early = true, .elastic = true};
}

// A number below 2^16.
static bool parse_index(const char *s, size_t n, uint32_t *ret)
{
    uint32_t value = 0;
    if (n == 0 || n > 5 || strspn(s, "0123456789") < n)
        return false;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (uint32_t)(s[i] - '0');
    *ret = value;
    return value <= UINT16_MAX;
}

// 8-4-4-4-12 hexadecimal digits, or the 16 digits of HIP's cards.
static bool is_uuid(const char *s, size_t n)
{
    if (n != 36 && n != 16)
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool dash = n == 36 && (i == 8 || i == 13 || i == 18 || i == 23);
        if (dash ? s[i] != '-' : strchr("0123456789abcdefABCDEF", s[i]) == NULL)
            return false;
    }
    return true;
}

static int parse_which(const char *backend, const char *s, size_t n, struct plm_gpu_opts *o,
                       struct plm_error *err)
{
    if (parse_index(s, n, &o->index))
        return PLM_OK;
    // As the vendors' tools print it.
    const size_t prefix =
        n > 4 && (strncmp(s, "GPU-", 4) == 0 || strncmp(s, "MIG-", 4) == 0) ? 4 : 0;
    if (is_uuid(s + prefix, n - prefix)) {
        memcpy(o->uuid, s + prefix, n - prefix);
        o->uuid[n - prefix] = '\0';
        return PLM_OK;
    }
    if (strspn(s, "0123456789") >= n)
        return plm_fail(err, PLM_ERR_INVALID, "%s:%.*s: no device has such an index", backend,
                        (int)(n < 32 ? n : 32), s);
    if (n >= sizeof(o->name))
        return plm_fail(err, PLM_ERR_INVALID,
                        "%s: a part of a device's name is %zu characters long; names have at most "
                        "%zu",
                        backend, n, sizeof(o->name) - 1);
    memcpy(o->name, s, n);
    o->name[n] = '\0';
    return PLM_OK;
}

static bool is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

static int parse_key(const char *backend, const char *s, size_t n, struct plm_gpu_opts *o,
                     struct plm_error *err)
{
    const struct {
        const char *name;
        bool *value;
    } keys[] = {{"graphs", &o->graphs},
                {"early", &o->early},
                {"elastic", &o->elastic},
                {"spill", &o->spill}};
    const char *equals = memchr(s, '=', n);
    const size_t len = (size_t)(equals - s), rest = n - len - 1;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (!is(s, len, keys[i].name))
            continue;
        if (!is(equals + 1, rest, "on") && !is(equals + 1, rest, "off"))
            return plm_fail(err, PLM_ERR_INVALID, "%s: %s is '%.*s'; it is on or off", backend,
                            keys[i].name, (int)(rest < 32 ? rest : 32), equals + 1);
        *keys[i].value = is(equals + 1, rest, "on");
        return PLM_OK;
    }
    return plm_fail(err, PLM_ERR_INVALID,
                    "%s: no option '%.*s'; there are graphs, early, elastic and spill", backend,
                    (int)(len < 32 ? len : 32), s);
}

int plm_gpu_opts_parse(const char *backend, const char *text, struct plm_gpu_opts *ret,
                       struct plm_error *err)
{
    struct plm_gpu_opts opts;
    plm_gpu_opts_defaults(&opts);
    bool first = true;
    for (const char *s = text;; first = false) {
        const size_t n = strcspn(s, ",");
        int rc = PLM_OK;
        if (n == 0)
            rc = plm_fail(err, PLM_ERR_INVALID,
                          "%s:%.64s: an empty part; it is %s:WHICH,key=value,...", backend, text,
                          backend);
        else if (memchr(s, '=', n) != NULL)
            rc = parse_key(backend, s, n, &opts, err);
        else if (first)
            rc = parse_which(backend, s, n, &opts, err);
        else
            rc = plm_fail(err, PLM_ERR_INVALID, "%s: '%.*s' is no key=value", backend,
                          (int)(n < 32 ? n : 32), s);
        if (rc != PLM_OK)
            return rc;
        if (s[n] == '\0')
            break;
        s += n + 1;
    }
    *ret = opts;
    return PLM_OK;
}

// ---- among the cards ----

static bool contains(const char *name, const char *part)
{
    const size_t n = strlen(part);
    for (; *name != '\0'; name++) {
        if (strncasecmp(name, part, n) == 0)
            return true;
    }
    return false;
}

static bool matches(const struct plm_gpu_opts *opts, const struct plm_gpu_card *card,
                    uint32_t index)
{
    if (opts->uuid[0] != '\0')
        return strcasecmp(card->uuid, opts->uuid) == 0;
    if (opts->name[0] != '\0')
        return contains(card->name, opts->name);
    return index == opts->index;
}

// What is there instead: "cuda:0 NAME; cuda:1 NAME, which lacks ..." as far as there is room.
static int fail_none(const char *backend, const struct plm_gpu_opts *opts,
                     const struct plm_gpu_card *cards, uint32_t n, struct plm_error *err)
{
    char there[PLM_ERROR_MSG_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof(there); i++) {
        const bool lacks = cards[i].missing[0] != '\0';
        const int len = snprintf(there + used, sizeof(there) - used, "%s%s:%" PRIu32 " %s%s%s",
                                 i > 0 ? "; " : "", backend, i, cards[i].name,
                                 lacks ? ", which lacks " : "", cards[i].missing);
        used += len > 0 ? (size_t)len : 0;
    }
    char which[80];
    if (opts->uuid[0] != '\0' || opts->name[0] != '\0')
        snprintf(which, sizeof(which), "%s", opts->uuid[0] != '\0' ? opts->uuid : opts->name);
    else
        snprintf(which, sizeof(which), "%" PRIu32, opts->index);
    return plm_fail(err, PLM_ERR_NOT_FOUND, "%s: no usable device '%s'; there is: %s", backend,
                    which, there);
}

int plm_gpu_select(const char *backend, const struct plm_gpu_opts *opts,
                   const struct plm_gpu_card *cards, uint32_t n, uint32_t *ret,
                   struct plm_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (cards[i].missing[0] == '\0' && matches(opts, &cards[i], i)) {
            *ret = i;
            return PLM_OK;
        }
    }
    return fail_none(backend, opts, cards, n, err);
}
