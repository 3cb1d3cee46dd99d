// SPDX-License-Identifier: Apache-2.0
// What a decode step asks of a kind of device, as text.
#include "core/model/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/engine/env.h"
#include "core/engine/error.h"
#include "core/engine/opts.h"
#include "core/engine/text_out.h"
#include "core/gguf/types.h"
#include "core/plan/dry.h"

// Of the sequence, where the caller names none: short enough for every model, long enough that the
// cache shows.
#define DEFAULT_CONTEXT 1024u

#define MIB 1048576.0

struct explained {
    const struct plm_model_facts *facts;
    const char *kind;
    uint32_t context;
    double bytes_per_second;
    uint32_t n_parts;
    const struct plm_explain_part *parts;
};

// ---- sums ----

struct sum {
    uint64_t dispatches;
    uint64_t barriers;
    struct plm_reads reads;
};

static void add_op(struct sum *sum, const struct plm_explain_op *op)
{
    sum->dispatches += op->dispatches;
    sum->reads.weight_bytes += op->reads.weight_bytes;
    sum->reads.kv_bytes += op->reads.kv_bytes;
    sum->reads.act_bytes += op->reads.act_bytes;
}

static void add_part(struct sum *sum, const struct plm_explain_part *part)
{
    sum->barriers += part->barriers;
    for (int op = 0; op < PLM_OPS; op++)
        add_op(sum, &part->ops[op]);
}

static struct sum sum_of_part(const struct explained *e, uint32_t part)
{
    struct sum sum = {0};
    add_part(&sum, &e->parts[part]);
    return sum;
}

static struct sum sum_of_op(const struct explained *e, int op)
{
    struct sum sum = {0};
    for (uint32_t i = 0; i < e->n_parts; i++)
        add_op(&sum, &e->parts[i].ops[op]);
    return sum;
}

static struct sum sum_of_all(const struct explained *e)
{
    struct sum sum = {0};
    for (uint32_t i = 0; i < e->n_parts; i++)
        add_part(&sum, &e->parts[i]);
    return sum;
}

static double seconds(const struct explained *e, uint64_t bytes)
{
    return (double)bytes / e->bytes_per_second;
}

// Part 0 stands before the layers, the last one is the head.
static void name_part(const struct explained *e, uint32_t part, char ret[32])
{
    if (part == 0)
        snprintf(ret, 32, "embedding");
    else if (part == e->n_parts - 1)
        snprintf(ret, 32, "head");
    else
        snprintf(ret, 32, "layer %u", part - 1);
}

// ---- JSON ----

static void sum_json(struct plm_buf *buf, const struct explained *e, const struct sum *sum,
                     bool barriers)
{
    const struct plm_reads *r = &sum->reads;
    plm_buf_printf(buf, "\"dispatches\":%" PRIu64, sum->dispatches);
    if (barriers)
        plm_buf_printf(buf, ",\"barriers\":%" PRIu64, sum->barriers);
    plm_buf_printf(buf,
                   ",\"weight_bytes\":%" PRIu64 ",\"kv_bytes\":%" PRIu64
                   ",\"activation_bytes\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"seconds\":%.9g",
                   r->weight_bytes, r->kv_bytes, r->act_bytes, plm_reads_bytes(r),
                   seconds(e, plm_reads_bytes(r)));
}

static void part_json(struct plm_buf *buf, const struct explained *e, uint32_t part)
{
    char name[32];
    const struct sum sum = sum_of_part(e, part);
    name_part(e, part, name);
    plm_buf_printf(buf, "%s{\"part\":\"%s\",", part > 0 ? "," : "", name);
    sum_json(buf, e, &sum, true);
    plm_buf_append_str(buf, ",\"ops\":{");
    const char *between = "";
    for (int op = 0; op < PLM_OPS; op++) {
        if (e->parts[part].ops[op].dispatches == 0)
            continue;
        plm_buf_printf(buf, "%s\"%s\":%u", between, plm_op_name((enum plm_op)op),
                       e->parts[part].ops[op].dispatches);
        between = ",";
    }
    plm_buf_append_str(buf, "}}");
}

static void write_json(struct plm_buf *buf, const struct explained *e)
{
    const struct sum all = sum_of_all(e);
    plm_buf_append_str(buf, "{\"object\":\"explain\",\"model\":");
    plm_buf_append_json(buf, (struct plm_slice){e->facts->name, strlen(e->facts->name)});
    plm_buf_printf(
        buf,
        ",\"arch\":\"%s\",\"type\":\"%s\",\"kv_type\":\"%s\",\"device\":\"%s\",\"context\":%u,"
        "\"rows\":1,\"bytes_per_second\":%.9g,\"step\":{",
        e->facts->arch, plm_type_name(e->facts->main_type),
        plm_kv_type_name(e->facts->groups[0].type), e->kind, e->context, e->bytes_per_second);
    sum_json(buf, e, &all, true);
    plm_buf_printf(buf, ",\"weight_seconds\":%.9g},\"parts\":[",
                   seconds(e, all.reads.weight_bytes));
    for (uint32_t i = 0; i < e->n_parts; i++)
        part_json(buf, e, i);
    plm_buf_append_str(buf, "],\"ops\":[");
    const char *between = "";
    for (int op = 0; op < PLM_OPS; op++) {
        const struct sum sum = sum_of_op(e, op);
        if (sum.dispatches == 0)
            continue;
        plm_buf_printf(buf, "%s{\"op\":\"%s\",", between, plm_op_name((enum plm_op)op));
        sum_json(buf, e, &sum, false);
        plm_buf_append_char(buf, '}');
        between = ",";
    }
    plm_buf_append_str(buf, "]}\n");
}

// ---- table ----

static void row(struct plm_buf *buf, const struct explained *e, const char *name,
                const struct sum *sum, const char *barriers)
{
    const struct plm_reads *r = &sum->reads;
    plm_buf_printf(buf, "%-18s %10" PRIu64 " %8s %12.3f %9.3f %9.3f %9.1f", name, sum->dispatches,
                   barriers, (double)r->weight_bytes / MIB, (double)r->kv_bytes / MIB,
                   (double)r->act_bytes / MIB, seconds(e, plm_reads_bytes(r)) * 1e6);
}

static void row_with_barriers(struct plm_buf *buf, const struct explained *e, const char *name,
                              const struct sum *sum)
{
    char barriers[24];
    snprintf(barriers, sizeof(barriers), "%" PRIu64, sum->barriers);
    row(buf, e, name, sum, barriers);
}

static bool same_part(const struct plm_explain_part *a, const struct plm_explain_part *b)
{
    for (int op = 0; op < PLM_OPS; op++) {
        if (a->ops[op].dispatches != b->ops[op].dispatches ||
            plm_reads_bytes(&a->ops[op].reads) != plm_reads_bytes(&b->ops[op].reads))
            return false;
    }
    return a->barriers == b->barriers;
}

// The first layer of each kind with its ops, and how many are like it.
static void layers_table(struct plm_buf *buf, const struct explained *e)
{
    const uint32_t end = e->n_parts - 1;
    for (uint32_t i = 1; i < end; i++) {
        uint32_t first = 1, like = 0;
        while (!same_part(&e->parts[first], &e->parts[i]))
            first++;
        if (first < i)
            continue;
        for (uint32_t j = i + 1; j < end; j++)
            like += same_part(&e->parts[i], &e->parts[j]);
        char name[32];
        const struct sum sum = sum_of_part(e, i);
        name_part(e, i, name);
        row_with_barriers(buf, e, name, &sum);
        if (like > 0)
            plm_buf_printf(buf, "  and %u more like it", like);
        plm_buf_append_str(buf, "\n                  ");
        for (int op = 0; op < PLM_OPS; op++) {
            const uint32_t n = e->parts[i].ops[op].dispatches;
            if (n > 0)
                plm_buf_printf(buf, " %s", plm_op_name((enum plm_op)op));
            if (n > 1)
                plm_buf_printf(buf, " x%u", n);
        }
        plm_buf_append_char(buf, '\n');
    }
}

static void write_table(struct plm_buf *buf, const struct explained *e)
{
    struct sum sum = sum_of_all(e);
    const double all_s = seconds(e, plm_reads_bytes(&sum.reads));
    const double weights_s = seconds(e, sum.reads.weight_bytes);
    plm_buf_printf(buf,
                   "%s (%s, %s): one decode step of one sequence of %u tokens on %s, KV %s\n\n",
                   e->facts->name, e->facts->arch, plm_type_name(e->facts->main_type), e->context,
                   e->kind, plm_kv_type_name(e->facts->groups[0].type));
    plm_buf_printf(buf, "%-18s %10s %8s %12s %9s %9s %9s\n", "part", "dispatches", "barriers",
                   "weights MiB", "KV MiB", "other MiB", "us");
    const struct sum before = sum_of_part(e, 0), head = sum_of_part(e, e->n_parts - 1);
    row_with_barriers(buf, e, "embedding", &before);
    plm_buf_append_char(buf, '\n');
    layers_table(buf, e);
    row_with_barriers(buf, e, "head", &head);
    plm_buf_append_char(buf, '\n');
    row_with_barriers(buf, e, "whole step", &sum);
    plm_buf_printf(buf, "\n\nop\n");
    for (int op = 0; op < PLM_OPS; op++) {
        sum = sum_of_op(e, op);
        if (sum.dispatches == 0)
            continue;
        row(buf, e, plm_op_name((enum plm_op)op), &sum, "");
        plm_buf_append_char(buf, '\n');
    }
    plm_buf_printf(
        buf,
        "\nReading at %.0f GB/s takes %.3f ms a token (at most %.0f tokens/s), the weights alone "
        "%.3f ms (%.0f); dispatches and arithmetic are not in it.\n",
        e->bytes_per_second / 1e9, all_s * 1e3, 1 / all_s, weights_s * 1e3, 1 / weights_s);
}

// ---- the call ----

static int explain(struct plm_host *host, const plim_engine_opts *o, struct plm_model *model,
                   const struct plm_dry_kind *kind, struct explained *e, bool json,
                   struct plm_buf *buf, struct plm_error *err)
{
    struct plm_caps caps;
    plm_dry_caps(kind, PLM_PLAN_BYTES_MAX, &caps);
    snprintf(caps.name, sizeof(caps.name), "%s", kind->name); // its size is no matter
    int r = plm_opts_check_kv_type(o, &caps, kind->name, err);
    if (r != PLM_OK)
        return r;
    e->facts = plm_model_facts(model);
    e->kind = kind->name;
    e->n_parts = plm_explain_parts(model);
    if (e->context > e->facts->n_ctx_train)
        return plm_fail(err, PLM_ERR_INVALID,
                        "ctx_size is %u, but the model was trained for %u tokens", e->context,
                        e->facts->n_ctx_train);
    if (e->context == 0)
        e->context = (uint32_t)plm_min_i64(DEFAULT_CONTEXT, e->facts->n_ctx_train);
    struct plm_explain_part *parts = plm_calloc(host, PLM_HOST_OTHER, e->n_parts, sizeof(*parts));
    if (parts == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to count a step");
    const struct plm_explain_opts opts = {.host = host,
                                          .caps = &caps,
                                          .layout = plm_dry_layout,
                                          .layout_ctx = kind,
                                          .context = e->context};
    r = plm_model_explain(model, &opts, parts, err);
    e->parts = parts;
    if (r == PLM_OK && json)
        write_json(buf, e);
    else if (r == PLM_OK)
        write_table(buf, e);
    if (r == PLM_OK && buf->failed)
        r = plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the text");
    plm_free(host, parts);
    return r;
}

static int read_and_explain(struct plm_host *host, const plim_engine_opts *o, struct explained *e,
                            bool json, struct plm_buf *buf, struct plm_error *err)
{
    const struct plm_model_opts opts = {.kv_type = plm_opts_kv_type(o),
                                        .float_activations = o->float_activations != 0};
    struct plm_gguf *gguf = NULL;
    struct plm_model *model = NULL;
    int r = plm_gguf_open_header(host, o->model_path, &gguf, err);
    if (r == PLM_OK)
        r = plm_gguf_about(gguf, plm_model_create(host, gguf, &opts, &model, err), err);
    if (r == PLM_OK)
        r = explain(host, o, model, plm_dry_kind(o->device), e, json, buf, err);
    plm_model_destroy(model);
    plm_gguf_close(gguf);
    return r;
}

static int explain_opts(const plim_engine_opts *opts, double bytes_per_second, bool json, char *out,
                        size_t cap, size_t *need, plim_error *err)
{
    plim_engine_opts o;
    struct plm_engine_env env;
    struct plm_error why = {0};
    struct plm_buf buf;
    int r = plm_error_place(out, cap, err);
    if (r == PLIM_OK)
        r = plm_start_begin(opts, &o, &o, &env, err);
    if (r != PLIM_OK)
        return r;
    struct explained e = {.context = o.ctx_size, .bytes_per_second = bytes_per_second};
    plm_buf_init(&buf, env.host, PLM_HOST_OTHER);
    if (plm_dry_kind(o.device) == NULL)
        r = plm_error_set(err, PLIM_ERR_INVALID, "device",
                          "there are no figures for a device \"%.40s\"; there are for: %s",
                          o.device, plm_dry_kind_names());
    else if (!(bytes_per_second >= 1) || bytes_per_second > 1e18)
        r = plm_error_set(err, PLIM_ERR_INVALID, "bytes_per_second",
                          "nothing reads %g bytes a second", bytes_per_second);
    else if ((r = plm_device_check_id(env.host, o.device, &why)) != PLM_OK)
        r = plm_error_out(err, plm_fail_about(&why, r, "device"), &why);
    else if ((r = read_and_explain(env.host, &o, &e, json, &buf, &why)) != PLM_OK)
        r = plm_error_out(err, plm_fail_about(&why, r, "model_path"), &why);
    else
        r = plm_text_out(buf.data, buf.len, out, cap, need);
    plm_buf_finish(&buf);
    plm_host_destroy(env.host);
    return r;
}

int plim_explain(const plim_engine_opts *opts, double bytes_per_second, bool json, char *out,
                 size_t cap, size_t *need, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    const int r = explain_opts(opts, bytes_per_second, json, out, cap, need, &error);
    return plm_error_give(err, r, &error);
}
