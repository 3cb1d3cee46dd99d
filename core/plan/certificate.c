// SPDX-License-Identifier: Apache-2.0
#include "core/plan/certificate.h"

#include <inttypes.h>
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "core/base/checked.h"
#include "core/base/json.h"
#include "core/plan/report.h"

#define VERSION 3 // of the format
// What json-c takes at most for each byte of text (an empty object in an array, measured), charged
// while it lives.
#define JSON_BYTES_PER_BYTE 64

// ---- writing ----

void plm_cert_key_text(struct plm_cert_key *key, const char *name, const char *value)
{
    if (key->n == PLM_CERT_KEYS_MAX)
        return;
    key->items[key->n].name = name;
    snprintf(key->items[key->n].value, PLM_CERT_VALUE_MAX, "%s", value);
    key->n++;
}

void plm_cert_key_number(struct plm_cert_key *key, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    plm_cert_key_text(key, name, text);
}

// The checksum ends the text, so that it covers all that stands before it.
#define CHECKSUM_FORMAT ",\"checksum\":\"%016" PRIx64 "\"}"
#define CHECKSUM_BYTES  31

static uint64_t checksum(const char *text, size_t n)
{
    return XXH3_64bits(text, n);
}

void plm_cert_write(struct plm_buf *buf, const struct plm_cert_key *key,
                    const struct plm_profile *profile)
{
    const size_t start = buf->len;
    plm_buf_printf(buf, "{\"object\":\"certificate\",\"version\":%d,\"key\":{", VERSION);
    for (uint32_t i = 0; i < key->n; i++) {
        plm_buf_printf(buf, "%s\"%s\":", i > 0 ? "," : "", key->items[i].name);
        plm_buf_append_json(buf,
                            (struct plm_slice){key->items[i].value, strlen(key->items[i].value)});
    }
    plm_buf_append_char(buf, '}');
    plm_report_formula(buf, "plan", &profile->plan);
    plm_report_evidence(buf, profile);
    if (!buf->failed)
        plm_buf_printf(buf, CHECKSUM_FORMAT, checksum(buf->data + start, buf->len - start));
}

// ---- reading: fields ----

// Reads fields of one object; after the first fault nothing more is read.
struct reader {
    struct json_object *object;
    struct plm_error *err;
    int status;
};

static void fault(struct reader *r, const char *name, const char *what)
{
    if (r->status == PLM_OK)
        r->status = plm_fail(r->err, PLM_ERR_FORMAT, "its field %s %s", name, what);
}

static struct json_object *member(struct reader *r, const char *name, enum json_type type)
{
    struct json_object *value = NULL;
    if (r->status != PLM_OK)
        return NULL;
    if (!json_object_object_get_ex(r->object, name, &value))
        fault(r, name, "is missing");
    else if (!json_object_is_type(value, type))
        fault(r, name, "is of another type");
    return r->status == PLM_OK ? value : NULL;
}

static struct reader inner(struct reader *r, const char *name)
{
    struct json_object *object = member(r, name, json_type_object);
    return (struct reader){object, r->err, r->status};
}

static int64_t integer(struct reader *r, const char *name, int64_t least, int64_t most)
{
    struct json_object *value = member(r, name, json_type_int);
    if (value == NULL)
        return least;
    const int64_t n = json_object_get_int64(value);
    if (n < least || n > most)
        fault(r, name, "is out of range");
    return r->status == PLM_OK ? n : least;
}

static int64_t bytes(struct reader *r, const char *name)
{
    return integer(r, name, INT64_MIN, INT64_MAX);
}

static uint32_t count(struct reader *r, const char *name)
{
    return (uint32_t)integer(r, name, 0, UINT32_MAX);
}

// null stands for `none`.
static int64_t bytes_or(struct reader *r, const char *name, int64_t none)
{
    struct json_object *value = NULL;
    if (r->status == PLM_OK && json_object_object_get_ex(r->object, name, &value) && value == NULL)
        return none;
    return bytes(r, name);
}

static bool boolean(struct reader *r, const char *name)
{
    struct json_object *value = member(r, name, json_type_boolean);
    return value != NULL && json_object_get_boolean(value);
}

static double fraction(struct reader *r, const char *name)
{
    struct json_object *value = NULL;
    if (r->status != PLM_OK)
        return 0;
    if (!json_object_object_get_ex(r->object, name, &value) ||
        !(json_object_is_type(value, json_type_double) ||
          json_object_is_type(value, json_type_int))) {
        fault(r, name, "is no number");
        return 0;
    }
    return json_object_get_double(value);
}

// The number of a word in a list that `name_of` gives, in 0 .. n - 1.
static int word(struct reader *r, const char *name, int n, const char *(*name_of)(int i))
{
    struct json_object *value = member(r, name, json_type_string);
    for (int i = 0; value != NULL && i < n; i++) {
        if (strcmp(json_object_get_string(value), name_of(i)) == 0)
            return i;
    }
    fault(r, name, "is an unknown word");
    return 0;
}

static const char *term_name(int i)
{
    return plm_plan_term_name((enum plm_plan_term)i);
}

static const char *kind_name(int i)
{
    return plm_stress_kind_name((enum plm_stress_kind)i);
}

// ---- reading: the plan ----

static void read_cgroups(struct reader *r, struct plm_plan_input *in)
{
    struct json_object *list = member(r, "cgroups", json_type_array);
    const size_t n = list != NULL ? json_object_array_length(list) : 0;
    if (n > PLM_PLAN_CGROUPS_MAX)
        fault(r, "cgroups", "has too many levels");
    for (size_t i = 0; i < n && r->status == PLM_OK; i++) {
        struct reader level = {json_object_array_get_idx(list, i), r->err, PLM_OK};
        if (!json_object_is_type(level.object, json_type_object)) {
            fault(r, "cgroups", "holds what is no object");
            return;
        }
        in->cgroups[i] = (struct plm_plan_cgroup){.limit = bytes(&level, "limit"),
                                                  .current = bytes(&level, "current"),
                                                  .reclaimable = bytes(&level, "reclaimable")};
        in->n_cgroups = (uint32_t)i + 1;
        r->status = level.status;
    }
}

static void read_windows(struct reader *r, struct plm_plan_input *in)
{
    struct json_object *list = member(r, "windows", json_type_array);
    const size_t n = list != NULL ? json_object_array_length(list) : 0;
    if (n > PLM_PLAN_WINDOWS_MAX)
        fault(r, "windows", "has too many groups");
    for (size_t i = 0; i < n && r->status == PLM_OK; i++) {
        struct reader group = {json_object_array_get_idx(list, i), r->err, PLM_OK};
        if (!json_object_is_type(group.object, json_type_object)) {
            fault(r, "windows", "holds what is no object");
            return;
        }
        in->windows[i] = (struct plm_plan_window){.window = count(&group, "window"),
                                                  .block_bytes = bytes(&group, "block_bytes")};
        in->n_windows = (uint32_t)i + 1;
        r->status = group.status;
    }
}

static struct plm_plan_limits read_limits(struct reader *r)
{
    return (struct plm_plan_limits){.batch_max_tokens = count(r, "batch_max_tokens"),
                                    .max_sequences = count(r, "max_sequences"),
                                    .max_context = count(r, "max_context"),
                                    .state_checkpoints = count(r, "state_checkpoints"),
                                    .cached_windows = count(r, "cached_windows")};
}

static void read_input(struct reader *r, struct plm_plan_input *in)
{
    *in =
        (struct plm_plan_input){.g = bytes(r, "g"),
                                .T = bytes(r, "T"),
                                .F = bytes(r, "F"),
                                .O = bytes(r, "O"),
                                .K = bytes(r, "K"),
                                .process_use = bytes_or(r, "process_use", PLM_PLAN_UNKNOWN),
                                .context_bytes = bytes(r, "context_bytes"),
                                .driver_calls = bytes(r, "driver_calls"),
                                .unheld = bytes(r, "unheld"),
                                .operator_limit = bytes_or(r, "operator_limit", PLM_PLAN_NO_LIMIT),
                                .growth = bytes(r, "growth"),
                                .withheld = bytes(r, "withheld"),
                                .unified = boolean(r, "unified"),
                                .host_limit = bytes(r, "host_limit"),
                                .host_caller = bytes(r, "host_caller"),
                                .memory_fraction = fraction(r, "memory_fraction"),
                                .limits = read_limits(r),
                                .state_bytes = bytes(r, "state_bytes"),
                                .window = count(r, "window"),
                                .block_bytes = bytes(r, "block_bytes"),
                                .max_slab_bytes = bytes(r, "max_slab_bytes"),
                                .max_slabs = count(r, "max_slabs"),
                                .prefix_cache_blocks = bytes(r, "prefix_cache_blocks"),
                                .pinned_tokens = bytes_or(r, "pinned_tokens", PLM_PLAN_NO_LIMIT)};
    const int64_t most = bytes_or(r, "max_blocks", 0);
    if (most < 0 || most > PLM_POOL_BLOCKS_MAX)
        fault(r, "max_blocks", "is out of range");
    else
        in->limits.max_blocks = (uint32_t)most;
    read_cgroups(r, in);
    read_windows(r, in);
}

// The slabs as they were cut; a plan that was lowered keeps those of the one before.
static void read_slabs(struct reader *r, struct plm_plan *plan)
{
    struct plm_slab_rule *s = &plan->slabs;
    s->slab_blocks = (uint32_t)integer(r, "slab_blocks", 1, PLM_POOL_BLOCKS_MAX);
    s->slab_bytes = bytes(r, "slab_bytes");
    if (r->status == PLM_OK &&
        s->slab_bytes != plm_round_up_i64(s->slab_blocks * s->block_bytes, s->g))
        fault(r, "slab_bytes", "is not what its blocks take");
}

static void read_plan(struct reader *r, struct plm_plan *ret)
{
    struct plm_plan_input in;
    struct plm_error why = {0};
    read_input(r, &in);
    if (r->status == PLM_OK && plm_plan_compute(&in, ret, &why) != PLM_OK)
        r->status = plm_fail(r->err, PLM_ERR_FORMAT, "its plan is impossible: %s", why.msg);
    if (r->status != PLM_OK)
        return;
    read_slabs(r, ret);
    const int64_t blocks = integer(r, "blocks", plm_plan_least_blocks(&in), PLM_POOL_BLOCKS_MAX);
    const int bind = word(r, "blocks_bind", PLM_TERMS, term_name);
    if (r->status != PLM_OK)
        return;
    plm_plan_set_blocks(ret, blocks, (enum plm_plan_term)bind);
    if (ret->kv_bytes != bytes(r, "kv_bytes") || ret->line != bytes(r, "line") ||
        ret->margin != bytes(r, "margin") || !plm_plan_one_finishes(ret))
        fault(r, "line", "does not follow from its snapshot");
}

// ---- reading: the evidence ----

static void read_pass(struct reader *r, struct plm_profile_pass *ret)
{
    unsigned flags = boolean(r, "cold") ? PLM_STRESS_COLD : 0;
    flags |= boolean(r, "few_layers") ? PLM_STRESS_FEW_LAYERS : 0;
    *ret = (struct plm_profile_pass){
        .step = {.kind = (enum plm_stress_kind)word(r, "kind", PLM_STRESS_KINDS, kind_name),
                 .flags = flags,
                 .shape = {.rows = count(r, "rows"),
                           .seqs = count(r, "seqs"),
                           .logits_rows = count(r, "logits_rows"),
                           .ctx = count(r, "ctx")}},
        .cost = bytes(r, "cost"),
        .own_drv = bytes(r, "own_drv"),
        .ns = bytes(r, "ns"),
        .validation = boolean(r, "validation")};
}

static void read_evidence(struct reader *r, struct plm_profile *ret)
{
    ret->probe_blocks = count(r, "probe_blocks");
    ret->attempts = count(r, "attempts");
    ret->reads = count(r, "reads");
    ret->settled = boolean(r, "settled");
    ret->asked_context = count(r, "asked_context");
    ret->context_lowered = boolean(r, "context_lowered");
    struct reader stressed = inner(r, "stressed");
    ret->stressed = read_limits(&stressed);
    r->status = stressed.status;
    if (r->status == PLM_OK && !plm_limits_within(&ret->plan.in.limits, &ret->stressed))
        fault(r, "stressed", "is less than what was planned");
    ret->not_returned = bytes(r, "not_returned");
    ret->slow_bytes = bytes(r, "slow_bytes");
    ret->graph_bytes = bytes(r, "graph_bytes");
    ret->stress_ns = bytes(r, "stress_ns");
    ret->validate_ns = bytes(r, "validate_ns");
    ret->total_ns = bytes(r, "total_ns");
    struct json_object *list = member(r, "passes", json_type_array);
    const size_t n = list != NULL ? json_object_array_length(list) : 0;
    if (n > PLM_PROFILE_PASSES)
        fault(r, "passes", "has too many");
    for (size_t i = 0; i < n && r->status == PLM_OK; i++) {
        struct reader one = {json_object_array_get_idx(list, i), r->err, PLM_OK};
        if (!json_object_is_type(one.object, json_type_object)) {
            fault(r, "passes", "holds what is no object");
            return;
        }
        read_pass(&one, &ret->passes[i]);
        ret->n_passes = (uint32_t)i + 1;
        r->status = one.status;
    }
}

// ---- reading: the whole ----

// Each item of ours must be in it with the same value, and no more.
static int check_key(struct reader *r, const struct plm_cert_key *key)
{
    for (uint32_t i = 0; i < key->n && r->status == PLM_OK; i++) {
        const char *name = key->items[i].name, *mine = key->items[i].value;
        struct json_object *value = member(r, name, json_type_string);
        const char *its = value != NULL ? json_object_get_string(value) : NULL;
        if (its != NULL && strcmp(its, mine) != 0)
            r->status = plm_fail(r->err, PLM_ERR_UNSUPPORTED,
                                 "another %s wrote it: \"%.160s\", and here it is \"%.160s\"", name,
                                 its, mine);
    }
    if (r->status == PLM_OK && json_object_object_length(r->object) != (int)key->n)
        fault(r, "key", "has items that are unknown here");
    return r->status;
}

static int read_object(struct json_object *object, const struct plm_cert_key *key,
                       struct plm_profile *ret, struct plm_error *err)
{
    struct plm_profile profile = {0};
    struct reader top = {object, err, PLM_OK};
    struct json_object *kind = member(&top, "object", json_type_string);
    if (kind == NULL || strcmp(json_object_get_string(kind), "certificate") != 0)
        return plm_fail(err, PLM_ERR_FORMAT, "it is no certificate");
    if (bytes(&top, "version") != VERSION)
        fault(&top, "version", "is not 3");
    struct reader part = inner(&top, "key");
    if (part.status != PLM_OK || check_key(&part, key) != PLM_OK)
        return part.status;
    part = inner(&top, "plan");
    if (part.status == PLM_OK)
        read_plan(&part, &profile.plan);
    if (part.status != PLM_OK)
        return part.status;
    part = inner(&top, "evidence");
    if (part.status == PLM_OK)
        read_evidence(&part, &profile);
    if (part.status == PLM_OK)
        *ret = profile;
    return part.status;
}

static bool checksum_holds(struct plm_slice text)
{
    char want[CHECKSUM_BYTES + 1];
    if (text.len < CHECKSUM_BYTES)
        return false;
    const size_t n = text.len - CHECKSUM_BYTES;
    snprintf(want, sizeof(want), CHECKSUM_FORMAT, checksum(text.ptr, n));
    return memcmp(text.ptr + n, want, CHECKSUM_BYTES) == 0;
}

int plm_cert_read(struct plm_host *host, struct plm_slice text, const struct plm_cert_key *key,
                  struct plm_profile *ret, struct plm_error *err)
{
    while (text.len > 0 && text.ptr[text.len - 1] == '\n')
        text.len--;
    if (text.len > PLM_CERT_BYTES_MAX)
        return plm_fail(err, PLM_ERR_LIMIT, "it has %zu bytes; a certificate has at most %u",
                        text.len, PLM_CERT_BYTES_MAX);
    if (!checksum_holds(text))
        return plm_fail(err, PLM_ERR_FORMAT, "it is damaged: its checksum does not hold");
    const int64_t charge = (int64_t)text.len * JSON_BYTES_PER_BYTE;
    if (plm_host_charge(host, PLM_HOST_OTHER, charge) != PLM_OK)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a certificate");
    struct json_object *object = NULL;
    int r = plm_json_parse(text.ptr, text.len, &object, err);
    if (r == PLM_OK)
        r = read_object(object, key, ret, err);
    json_object_put(object);
    plm_host_discharge(host, PLM_HOST_OTHER, charge);
    return r;
}
