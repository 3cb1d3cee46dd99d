// SPDX-License-Identifier: Apache-2.0
// World to text: what equals the default is left out.
#include <inttypes.h>
#include <string.h>

#include "backends/sim/world_impl.h"

static void scaled(struct plm_buf *buf, uint64_t value, const struct plm_world_unit *units)
{
    while (value != 0 && value % units->factor != 0)
        units++;
    if (value == 0)
        plm_buf_append_char(buf, '0');
    else
        plm_buf_printf(buf, "%" PRIu64 "%s", value / units->factor, units->word);
}

static bool is_op(const char *at, size_t len)
{
    for (uint32_t i = 0; plm_world_ops[i] != NULL; i++) {
        if (strlen(plm_world_ops[i]) == len && memcmp(at, plm_world_ops[i], len) == 0)
            return true;
    }
    return false;
}

// Whether words come back as they are when they stand bare, separated by single blanks.
static bool stands_bare(const char *text, bool one_word)
{
    if (text[0] == '\0' || strpbrk(text, "#\t\r") != NULL)
        return false;
    while (true) {
        const size_t len = strcspn(text, " ");
        if (len == 0 || is_op(text, len))
            return false;
        if (text[len] == '\0')
            return true;
        if (one_word)
            return false;
        text += len + 1;
    }
}

static void words(struct plm_buf *buf, const char *text, bool one_word)
{
    plm_buf_printf(buf, stands_bare(text, one_word) ? " %s" : " \"%s\"", text);
}

static void value(struct plm_buf *buf, enum plm_world_kind kind, const void *member)
{
    switch (kind) {
    case PLM_WORLD_SIZE: scaled(buf, *(const uint64_t *)member, plm_world_sizes); break;
    case PLM_WORLD_TIME: scaled(buf, (uint64_t) * (const int64_t *)member, plm_world_times); break;
    case PLM_WORLD_U64: plm_buf_printf(buf, "%" PRIu64, *(const uint64_t *)member); break;
    case PLM_WORLD_U32: plm_buf_printf(buf, "%" PRIu32, *(const uint32_t *)member); break;
    case PLM_WORLD_BOOL: plm_buf_append_str(buf, *(const bool *)member ? "yes" : "no"); break;
    case PLM_WORLD_COMMIT:
        plm_buf_append_str(buf,
                           *(const enum plm_commit *)member == PLM_COMMIT_SOFT ? "soft" : "hard");
        break;
    case PLM_WORLD_TYPE:
        for (uint32_t i = 0; plm_world_types[i] != NULL; i++) {
            if (plm_world_type_values[i] == *(const enum plm_type *)member)
                plm_buf_append_str(buf, plm_world_types[i]);
        }
        break;
    }
}

static size_t kind_bytes(enum plm_world_kind kind)
{
    switch (kind) {
    case PLM_WORLD_SIZE:
    case PLM_WORLD_TIME:
    case PLM_WORLD_U64: return sizeof(uint64_t);
    case PLM_WORLD_U32: return sizeof(uint32_t);
    case PLM_WORLD_BOOL: return sizeof(bool);
    case PLM_WORLD_COMMIT: return sizeof(enum plm_commit);
    case PLM_WORLD_TYPE: return sizeof(enum plm_type);
    }
    return 0;
}

// Each field that differs from its default, after `before`.
static void fields(struct plm_buf *buf, const struct plm_world_field *table, const void *object,
                   const void *defaults, const char *before, const char *after)
{
    for (; table->word != NULL; table++) {
        const char *member = (const char *)object + table->offset;
        if (defaults != NULL &&
            memcmp(member, (const char *)defaults + table->offset, kind_bytes(table->kind)) == 0)
            continue;
        plm_buf_printf(buf, "%s%s ", before, table->word);
        value(buf, table->kind, member);
        plm_buf_append_str(buf, after);
    }
}

static void device(struct plm_buf *buf, const struct plm_world *world)
{
    static const struct plm_sim_opts defaults;
    const struct plm_sim_opts *d = &world->device;
    fields(buf, plm_world_device_fields, d, &defaults, "device ", "\n");
    for (uint32_t i = 0; i < d->n_heaps; i++) {
        plm_buf_append_str(buf, "device heap ");
        scaled(buf, d->heap_bytes[i], plm_world_sizes);
        plm_buf_append_char(buf, '\n');
    }
    for (uint32_t i = 0; i < d->n_cgroups; i++) {
        plm_buf_append_str(buf, "device cgroup ");
        scaled(buf, d->cgroups[i].limit_bytes, plm_world_sizes);
        plm_buf_append_char(buf, ' ');
        scaled(buf, d->cgroups[i].current_bytes, plm_world_sizes);
        plm_buf_append_char(buf, ' ');
        scaled(buf, d->cgroups[i].reclaimable_bytes, plm_world_sizes);
        plm_buf_append_char(buf, '\n');
    }
    if (world->computes)
        plm_buf_append_str(buf, "device inner cpu\n");
    if (d->poison != PLM_SIM_POISON_NONE || d->poison_token != 0)
        plm_buf_printf(buf, "device poison %" PRId32 " %s\n", d->poison_token,
                       plm_world_poisons[d->poison]);
}

static void event(struct plm_buf *buf, const struct plm_sim_event *e)
{
    plm_buf_printf(buf, "at %s ", plm_world_whens[e->when]);
    if (e->when == PLM_SIM_AT_PHASE)
        plm_buf_append_str(buf, plm_world_phases[e->at]);
    else if (e->when == PLM_SIM_AT_TIME)
        scaled(buf, e->at, plm_world_times);
    else
        plm_buf_printf(buf, "%" PRIu64, e->at);
    plm_buf_printf(buf, " %s", plm_world_whats[e->what]);
    if (e->what == PLM_SIM_LIE)
        plm_buf_printf(buf, " %s", plm_world_lies[e->lie]);
    if (e->what != PLM_SIM_LOST) {
        const uint64_t amount = e->value < 0 ? -(uint64_t)e->value : (uint64_t)e->value;
        const char *sign = e->value < 0 ? "-" : e->what == PLM_SIM_FOREIGN_BY ? "+" : "";
        plm_buf_printf(buf, " %s", sign);
        value(buf, plm_world_event_kind(e->what), &amount);
    }
    plm_buf_append_char(buf, '\n');
}

static void model(struct plm_buf *buf, const struct plm_world_model *m)
{
    plm_buf_append_str(buf, "model");
    if (m->file[0] != '\0') {
        plm_buf_append_str(buf, " file");
        words(buf, m->file, true);
    } else {
        fields(buf, plm_world_model_fields, m, NULL, " ", "");
    }
    plm_buf_append_char(buf, '\n');
}

static void request(struct plm_buf *buf, const struct plm_world_request *r)
{
    static const struct plm_world_request defaults = {.n = 1};
    plm_buf_append_str(buf, "request");
    fields(buf, plm_world_request_fields, r, &defaults, " ", "");
    if (r->salt[0] != '\0') {
        plm_buf_append_str(buf, " salt");
        words(buf, r->salt, true);
    }
    if (r->prefix_of != 0)
        plm_buf_printf(buf, " prefix %" PRIu32 ":%" PRIu32, r->prefix_of, r->prefix);
    if (r->poison)
        plm_buf_append_str(buf, " poison");
    plm_buf_append_char(buf, '\n');
}

static void want(struct plm_buf *buf, const struct plm_world_want *w)
{
    plm_buf_append_str(buf, "want");
    words(buf, w->name, w->op[0] == '\0');
    if (w->op[0] != '\0')
        plm_buf_printf(buf, " %s", w->op);
    if (w->op[0] != '\0' || w->value[0] != '\0')
        words(buf, w->value, false);
    plm_buf_append_char(buf, '\n');
}

void plm_world_write(const struct plm_world *world, struct plm_buf *buf)
{
    plm_buf_printf(buf, "plimsoll-world 1\nseed %" PRIu64 "\n", world->seed);
    if (world->max_steps != 0)
        plm_buf_printf(buf, "max_steps %" PRIu64 "\n", world->max_steps);
    device(buf, world);
    for (size_t i = 0; i < world->device.n_events; i++)
        event(buf, &world->device.events[i]);
    model(buf, &world->model);
    for (uint32_t i = 0; i < world->n_options; i++) {
        plm_buf_append_str(buf, "engine");
        words(buf, world->options[i].key, true);
        words(buf, world->options[i].value, true);
        plm_buf_append_char(buf, '\n');
    }
    for (uint32_t i = 0; i < world->n_requests; i++)
        request(buf, &world->requests[i]);
    for (uint32_t i = 0; i < world->n_actions; i++)
        plm_buf_printf(buf, "action step %" PRIu64 " %s\n", world->actions[i].at_step,
                       plm_world_acts[world->actions[i].act]);
    for (uint32_t i = 0; i < world->n_wants; i++)
        want(buf, &world->wants[i]);
}
