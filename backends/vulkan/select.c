// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/vulkan/impl.h"

// ---- the text after "vulkan:" ----

void plm_vk_opts_defaults(struct plm_vk_opts *ret)
{
    *ret = (struct plm_vk_opts){.dot = true, .coopmat = true, .host_visible = true};
}

static bool parse_number(const char *s, size_t n, uint32_t most, uint32_t *ret)
{
    uint64_t value = 0;
    if (n == 0 || n > 10)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(s[i] - '0');
    }
    if (value > most)
        return false;
    *ret = (uint32_t)value;
    return true;
}

// 8-4-4-4-12 hexadecimal digits.
static bool is_uuid(const char *s, size_t n)
{
    if (n != 36)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s[i] != '-' : strchr("0123456789abcdefABCDEF", s[i]) == NULL)
            return false;
    }
    return true;
}

static int parse_which(const char *s, size_t n, struct plm_vk_opts *o, struct plm_error *err)
{
    if (parse_number(s, n, UINT16_MAX, &o->index))
        return PLM_OK;
    if (is_uuid(s, n)) {
        memcpy(o->uuid, s, n);
        o->uuid[n] = '\0';
        return PLM_OK;
    }
    if (strspn(s, "0123456789") >= n)
        return plm_fail(err, PLM_ERR_INVALID, "vulkan:%.*s: no device has such an index",
                        (int)(n < 32 ? n : 32), s);
    if (n >= sizeof(o->name))
        return plm_fail(err, PLM_ERR_INVALID,
                        "vulkan: a part of a device's name is %zu characters long; names have at "
                        "most %zu",
                        n, sizeof(o->name) - 1);
    memcpy(o->name, s, n);
    o->name[n] = '\0';
    return PLM_OK;
}

static bool is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

static int parse_switch(const char *key, const char *s, size_t n, const char *yes, const char *no,
                        bool *ret, struct plm_error *err)
{
    if (!is(s, n, yes) && !is(s, n, no))
        return plm_fail(err, PLM_ERR_INVALID, "vulkan: %s is '%.*s'; it is %s or %s", key,
                        (int)(n < 32 ? n : 32), s, yes, no);
    *ret = is(s, n, yes);
    return PLM_OK;
}

static int parse_key(const char *s, size_t n, struct plm_vk_opts *o, struct plm_error *err)
{
    const char *equals = memchr(s, '=', n);
    const size_t key = (size_t)(equals - s);
    const char *value = equals + 1;
    const size_t len = n - key - 1;
    if (is(s, key, "math"))
        return parse_switch("math", value, len, "f16", "f32", &o->f16_math, err);
    if (is(s, key, "dot"))
        return parse_switch("dot", value, len, "on", "off", &o->dot, err);
    if (is(s, key, "coopmat"))
        return parse_switch("coopmat", value, len, "on", "off", &o->coopmat, err);
    if (is(s, key, "kernels"))
        return parse_switch("kernels", value, len, "gpu", "auto", &o->gpu_kernels, err);
    if (is(s, key, "host_visible"))
        return parse_switch("host_visible", value, len, "on", "off", &o->host_visible, err);
    if (is(s, key, "submit_ms")) {
        if (!parse_number(value, len, 600000, &o->submit_ms))
            return plm_fail(err, PLM_ERR_INVALID,
                            "vulkan: submit_ms is '%.*s'; it is 0 to 600000 milliseconds",
                            (int)(len < 32 ? len : 32), value);
        return PLM_OK;
    }
    if (is(s, key, "cache")) {
        if (len == 0 || len >= sizeof(o->cache_path))
            return plm_fail(err, PLM_ERR_INVALID,
                            "vulkan: cache is %zu bytes long; 1 to %zu are "
                            "allowed",
                            len, sizeof(o->cache_path) - 1);
        memcpy(o->cache_path, value, len);
        o->cache_path[len] = '\0';
        return PLM_OK;
    }
    return plm_fail(err, PLM_ERR_INVALID,
                    "vulkan: no option '%.*s'; there are math, dot, coopmat, kernels, "
                    "host_visible, submit_ms and cache",
                    (int)(key < 32 ? key : 32), s);
}

int plm_vk_opts_parse(const char *text, struct plm_vk_opts *ret, struct plm_error *err)
{
    struct plm_vk_opts opts;
    plm_vk_opts_defaults(&opts);
    bool first = true;
    for (const char *s = text;; first = false) {
        size_t n = strcspn(s, ",");
        int rc = PLM_OK;
        if (n == 0)
            rc = plm_fail(err, PLM_ERR_INVALID,
                          "vulkan:%.64s: an empty part; it is vulkan:WHICH,key=value,...", text);
        else if (memchr(s, '=', n) != NULL)
            rc = parse_key(s, n, &opts, err);
        else if (first)
            rc = parse_which(s, n, &opts, err);
        else
            rc = plm_fail(err, PLM_ERR_INVALID, "vulkan: '%.*s' is no key=value",
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

// ---- among the devices ----

static bool contains(const char *name, const char *part)
{
    size_t n = strlen(part);
    for (; *name != '\0'; name++) {
        if (strncasecmp(name, part, n) == 0)
            return true;
    }
    return false;
}

static bool matches(const struct plm_vk_opts *opts, const struct plm_vk_judged *j, uint32_t index)
{
    if (opts->uuid[0] != '\0')
        return strcasecmp(j->physical.uuid, opts->uuid) == 0;
    if (opts->name[0] != '\0')
        return contains(j->physical.name, opts->name);
    return index == opts->index;
}

// What is there instead: "vulkan:0 NAME; NAME, which lacks ..." as far as there is room.
static int fail_none(const struct plm_vk_opts *opts, const struct plm_vk_judged *list, uint32_t n,
                     struct plm_error *err)
{
    char there[PLM_ERROR_MSG_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof(there); i++) {
        const struct plm_vk_judged *j = &list[i];
        const char *sep = i > 0 ? "; " : "";
        int len = j->missing[0] == '\0'
                      ? snprintf(there + used, sizeof(there) - used, "%svulkan:%" PRIu32 " %s", sep,
                                 i, j->physical.name)
                      : snprintf(there + used, sizeof(there) - used, "%s%s, which lacks %s", sep,
                                 j->physical.name, j->missing);
        used += len > 0 ? (size_t)len : 0;
    }
    char which[80];
    if (opts->uuid[0] != '\0' || opts->name[0] != '\0')
        snprintf(which, sizeof(which), "%s", opts->uuid[0] != '\0' ? opts->uuid : opts->name);
    else
        snprintf(which, sizeof(which), "%" PRIu32, opts->index);
    return plm_fail(err, PLM_ERR_NOT_FOUND, "vulkan: no usable device '%s'; there is: %s", which,
                    there);
}

int plm_vk_select(const struct plm_vk_opts *opts, const struct plm_vk_judged *list, uint32_t n,
                  uint32_t *ret, struct plm_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].missing[0] == '\0' && matches(opts, &list[i], i)) {
            *ret = i;
            return PLM_OK;
        }
    }
    return fail_none(opts, list, n, err);
}
