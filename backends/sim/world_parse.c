// SPDX-License-Identifier: Apache-2.0
// Text to world: each statement by its table, or by a function where it has a form of its own.
#include <string.h>

#include "backends/sim/world_text.h"
#include "core/base/checked.h"

// ---- device ----

static int take_cgroup(struct plm_world_text *p, struct plm_sim_opts *device)
{
    struct plm_cgroup level;
    if (device->n_cgroups == PLM_CGROUP_LEVELS)
        return plm_world_too_many(p, "levels", PLM_CGROUP_LEVELS);
    int r = plm_world_take_size(p, &level.limit_bytes);
    if (r == PLM_OK)
        r = plm_world_take_size(p, &level.current_bytes);
    if (r == PLM_OK)
        r = plm_world_take_size(p, &level.reclaimable_bytes);
    if (r == PLM_OK)
        device->cgroups[device->n_cgroups++] = level;
    return r;
}

static int take_heap(struct plm_world_text *p, struct plm_sim_opts *device)
{
    if (device->n_heaps == PLM_SIM_HEAPS_MAX - 1)
        return plm_world_too_many(p, "further heaps", PLM_SIM_HEAPS_MAX - 1);
    int r = plm_world_take_size(p, &device->heap_bytes[device->n_heaps]);
    device->n_heaps += r == PLM_OK;
    return r;
}

static int take_poison(struct plm_world_text *p, struct plm_sim_opts *device)
{
    uint64_t token = 0;
    uint32_t i = 0;
    int r = plm_world_take_number(p, INT32_MAX, &token);
    if (r == PLM_OK)
        r = plm_world_take_name(p, plm_world_poisons, "effect of a poison (none, nan, hang, lost)",
                                &i);
    device->poison_token = (int32_t)token;
    device->poison = (enum plm_sim_poison)i;
    return r;
}

static int take_device(struct plm_world_text *p)
{
    static const char *const inners[] = {"none", "cpu", NULL};
    struct plm_world *world = p->world;
    struct plm_slice w = {0};
    bool taken;
    int r = plm_world_take_field(p, plm_world_device_fields, &world->device, &taken);
    if (r != PLM_OK || taken)
        return r;
    r = plm_world_take_word(p, "a property", &w);
    if (r != PLM_OK)
        return r;
    if (plm_slice_eq_str(w, "heap"))
        return take_heap(p, &world->device);
    if (plm_slice_eq_str(w, "cgroup"))
        return take_cgroup(p, &world->device);
    if (plm_slice_eq_str(w, "poison"))
        return take_poison(p, &world->device);
    if (plm_slice_eq_str(w, "inner")) {
        uint32_t i = 0;
        r = plm_world_take_name(p, inners, "inner device (none, cpu)", &i);
        world->computes = i != 0;
        return r;
    }
    return plm_world_bad_word(p, w, "is no property of a device");
}

// ---- events ----

static int take_when(struct plm_world_text *p, struct plm_sim_event *event)
{
    struct plm_slice w = {0};
    uint32_t i = 0;
    int r = plm_world_take_name(p, plm_world_whens, "moment", &i);
    if (r != PLM_OK)
        return r;
    event->when = (enum plm_sim_when)i;
    if (event->when == PLM_SIM_AT_PHASE) {
        r = plm_world_take_name(p, plm_world_phases, "phase", &i);
        event->at = i;
        return r;
    }
    if (event->when != PLM_SIM_AT_TIME)
        return plm_world_take_number(p, INT64_MAX, &event->at);
    r = plm_world_take_word(p, "a time", &w);
    return r == PLM_OK ? plm_world_time_from(p, w, &event->at) : r;
}

// A size, for some events with a sign: "+2GiB" of neighbours is a change, 2GiB is what they hold.
static int take_bytes(struct plm_world_text *p, struct plm_sim_event *event)
{
    struct plm_slice w = {0};
    uint64_t bytes = 0;
    int r = plm_world_take_word(p, "a size", &w);
    if (r != PLM_OK)
        return r;
    const bool more = w.len > 0 && w.ptr[0] == '+', less = w.len > 0 && w.ptr[0] == '-';
    if ((more || less) && event->what == PLM_SIM_FOREIGN)
        event->what = PLM_SIM_FOREIGN_BY;
    if (more || less)
        w = (struct plm_slice){w.ptr + 1, w.len - 1};
    r = plm_world_size_from(p, w, &bytes);
    event->value = less ? -(int64_t)bytes : (int64_t)bytes;
    return r;
}

static int take_event(struct plm_world_text *p)
{
    struct plm_world *world = p->world;
    struct plm_sim_event event = {0};
    uint64_t value = 0;
    uint32_t i = 0;
    if (world->device.n_events == PLM_WORLD_EVENTS_MAX)
        return plm_world_too_many(p, "events", PLM_WORLD_EVENTS_MAX);
    int r = take_when(p, &event);
    if (r == PLM_OK)
        r = plm_world_take_name(p, plm_world_whats, "event", &i);
    if (r != PLM_OK)
        return r;
    event.what = (enum plm_sim_what)i;
    if (event.what == PLM_SIM_FOREIGN || event.what == PLM_SIM_TAKE) {
        r = take_bytes(p, &event);
    } else if (event.what != PLM_SIM_LOST) {
        if (event.what == PLM_SIM_LIE) {
            r = plm_world_take_name(p, plm_world_lies, "lie", &i);
            event.lie = (enum plm_sim_lie)i;
        }
        if (r == PLM_OK)
            r = plm_world_take_value(p, plm_world_event_kind(event.what), &value);
        if (r == PLM_OK && value > INT64_MAX)
            r = plm_world_bad_word(p, p->words[p->next - 1], "does not fit into 63 bits");
        event.value = (int64_t)value;
    }
    if (r != PLM_OK)
        return r;
    struct plm_sim_event *events =
        plm_world_grow(p, world->events, (uint32_t)world->device.n_events, sizeof(event));
    if (events == NULL)
        return plm_world_no_memory(p);
    events[world->device.n_events++] = event;
    world->events = events;
    world->device.events = events;
    return PLM_OK;
}

// ---- model, engine, requests, wants ----

static int take_model(struct plm_world_text *p)
{
    struct plm_world_model *model = &p->world->model;
    struct plm_slice w = {0};
    bool taken = true;
    int r = PLM_OK;
    if (p->has_model)
        return plm_world_bad_line(p, "a world has one model");
    p->has_model = true;
    if (plm_world_next_is(p, "file")) {
        p->next++;
        r = plm_world_take_word(p, "a path", &w);
        return r == PLM_OK ? plm_world_copy_text(p, w, model->file, sizeof(model->file)) : r;
    }
    while (r == PLM_OK && taken)
        r = plm_world_take_field(p, plm_world_model_fields, model, &taken);
    return r;
}

static int take_option(struct plm_world_text *p)
{
    struct plm_world *world = p->world;
    struct plm_slice key = {0}, value = {0};
    if (world->n_options == PLM_WORLD_OPTIONS_MAX)
        return plm_world_too_many(p, "options", PLM_WORLD_OPTIONS_MAX);
    int r = plm_world_take_word(p, "an option", &key);
    if (r == PLM_OK)
        r = plm_world_take_word(p, "a value", &value);
    if (r != PLM_OK)
        return r;
    struct plm_world_option *options =
        plm_world_grow(p, world->options, world->n_options, sizeof(*options));
    if (options == NULL)
        return plm_world_no_memory(p);
    world->options = options;
    struct plm_world_option *option = &options[world->n_options];
    r = plm_world_copy_text(p, key, option->key, sizeof(option->key));
    if (r == PLM_OK)
        r = plm_world_copy_text(p, value, option->value, sizeof(option->value));
    world->n_options += r == PLM_OK;
    return r;
}

// "1:32": 32 tokens of request 1.
static int take_prefix(struct plm_world_text *p, struct plm_world_request *request)
{
    struct plm_slice w = {0};
    uint64_t of = 0, tokens = 0;
    int r = plm_world_take_word(p, "REQUEST:TOKENS", &w);
    if (r != PLM_OK)
        return r;
    struct plm_slice rest = w;
    if (!plm_world_digits(&rest, &of) || rest.len == 0 || rest.ptr[0] != ':')
        return plm_world_bad_word(p, w, "is no prefix (as 1:32)");
    rest = (struct plm_slice){rest.ptr + 1, rest.len - 1};
    if (!plm_world_digits(&rest, &tokens) || rest.len > 0 || tokens > UINT32_MAX)
        return plm_world_bad_word(p, w, "is no prefix (as 1:32)");
    if (of == 0 || of > p->world->n_requests || tokens > p->world->requests[of - 1].prompt)
        return plm_world_bad_word(p, w, "is not the beginning of an earlier request");
    request->prefix_of = (uint32_t)of;
    request->prefix = (uint32_t)tokens;
    return PLM_OK;
}

static int request_field(struct plm_world_text *p, struct plm_world_request *request)
{
    struct plm_slice w = {0};
    bool taken;
    int r = plm_world_take_field(p, plm_world_request_fields, request, &taken);
    if (r != PLM_OK || taken)
        return r;
    r = plm_world_take_word(p, "a property", &w);
    if (r != PLM_OK)
        return r;
    if (plm_slice_eq_str(w, "poison")) {
        request->poison = true;
        return PLM_OK;
    }
    if (plm_slice_eq_str(w, "prefix"))
        return take_prefix(p, request);
    if (!plm_slice_eq_str(w, "salt"))
        return plm_world_bad_word(p, w, "is no property of a request");
    r = plm_world_take_word(p, "a salt", &w);
    return r == PLM_OK ? plm_world_copy_text(p, w, request->salt, sizeof(request->salt)) : r;
}

static int take_request(struct plm_world_text *p)
{
    struct plm_world *world = p->world;
    struct plm_world_request request = {.n = 1};
    int r = PLM_OK;
    if (world->n_requests == PLM_WORLD_REQUESTS_MAX)
        return plm_world_too_many(p, "requests", PLM_WORLD_REQUESTS_MAX);
    while (r == PLM_OK && p->next < p->n)
        r = request_field(p, &request);
    if (r != PLM_OK)
        return r;
    if (request.prompt == 0 || request.n == 0)
        return plm_world_bad_line(
            p, "a request has a prompt of at least one token, and at least one choice");
    if (request.prefix > request.prompt)
        return plm_world_bad_line(p, "the prefix is longer than the prompt");
    if (world->n_requests > 0 && request.at_step < world->requests[world->n_requests - 1].at_step)
        return plm_world_bad_line(p, "requests are in the order of their steps");
    struct plm_world_request *requests =
        plm_world_grow(p, world->requests, world->n_requests, sizeof(*requests));
    if (requests == NULL)
        return plm_world_no_memory(p);
    requests[world->n_requests++] = request;
    world->requests = requests;
    return PLM_OK;
}

static int take_action(struct plm_world_text *p)
{
    struct plm_world *world = p->world;
    struct plm_world_action action = {0};
    uint32_t i = 0;
    if (world->n_actions == PLM_WORLD_ACTIONS_MAX)
        return plm_world_too_many(p, "actions", PLM_WORLD_ACTIONS_MAX);
    if (!plm_world_next_is(p, "step"))
        return plm_world_bad_line(p, "an action says at which step it comes");
    p->next++;
    int r = plm_world_take_number(p, UINT64_MAX, &action.at_step);
    if (r == PLM_OK)
        r = plm_world_take_name(p, plm_world_acts, "action (sleep, wake, drain)", &i);
    if (r != PLM_OK)
        return r;
    action.act = (enum plm_world_act)i;
    struct plm_world_action *actions =
        plm_world_grow(p, world->actions, world->n_actions, sizeof(*actions));
    if (actions == NULL)
        return plm_world_no_memory(p);
    actions[world->n_actions++] = action;
    world->actions = actions;
    return PLM_OK;
}

// Joins the words [from, to) with blanks.
static int join(struct plm_world_text *p, uint32_t from, uint32_t to, char *ret, size_t cap)
{
    size_t len = 0;
    for (uint32_t i = from; i < to; i++) {
        const struct plm_slice w = p->words[i];
        const size_t blank = i > from;
        if (w.len + blank + 1 > cap - len)
            return plm_fail(p->err, PLM_ERR_LIMIT,
                            "line %u: what is wanted is longer than %zu bytes", p->line, cap - 1);
        if (blank > 0)
            ret[len++] = ' ';
        memcpy(ret + len, w.ptr, w.len);
        len += w.len;
    }
    ret[len] = '\0';
    return PLM_OK;
}

static bool is_op(struct plm_slice w)
{
    for (uint32_t i = 0; plm_world_ops[i] != NULL; i++) {
        if (plm_slice_eq_str(w, plm_world_ops[i]))
            return true;
    }
    return false;
}

static int take_want(struct plm_world_text *p)
{
    struct plm_world *world = p->world;
    if (world->n_wants == PLM_WORLD_WANTS_MAX)
        return plm_world_too_many(p, "wants", PLM_WORLD_WANTS_MAX);
    struct plm_world_want *wants = plm_world_grow(p, world->wants, world->n_wants, sizeof(*wants));
    if (wants == NULL)
        return plm_world_no_memory(p);
    world->wants = wants;
    struct plm_world_want *want = &wants[world->n_wants];
    memset(want, 0, sizeof(*want));
    uint32_t op = p->next;
    while (op < p->n && !is_op(p->words[op]))
        op++;
    const bool compares = op < p->n;
    const uint32_t name_end = compares ? op : plm_min_i64(p->next + 1, p->n);
    if (name_end == p->next || (compares && op + 1 == p->n))
        return plm_world_bad_line(p,
                                  "a want names something, and what an operator compares it with");
    int r = join(p, p->next, name_end, want->name, sizeof(want->name));
    if (r == PLM_OK && compares)
        r = plm_world_copy_text(p, p->words[op], want->op, sizeof(want->op));
    if (r == PLM_OK)
        r = join(p, compares ? op + 1 : name_end, p->n, want->value, sizeof(want->value));
    p->next = p->n;
    world->n_wants += r == PLM_OK;
    return r;
}

// ---- the whole ----

static int take_statement(struct plm_world_text *p)
{
    struct plm_slice w = p->words[p->next++];
    if (plm_slice_eq_str(w, "seed"))
        return plm_world_take_number(p, UINT64_MAX, &p->world->seed);
    if (plm_slice_eq_str(w, "max_steps"))
        return plm_world_take_number(p, UINT64_MAX, &p->world->max_steps);
    if (plm_slice_eq_str(w, "device"))
        return take_device(p);
    if (plm_slice_eq_str(w, "at"))
        return take_event(p);
    if (plm_slice_eq_str(w, "model"))
        return take_model(p);
    if (plm_slice_eq_str(w, "engine"))
        return take_option(p);
    if (plm_slice_eq_str(w, "request"))
        return take_request(p);
    if (plm_slice_eq_str(w, "action"))
        return take_action(p);
    if (plm_slice_eq_str(w, "want"))
        return take_want(p);
    return plm_world_bad_word(p, w, "begins no statement");
}

static int parse(struct plm_world_text *p)
{
    int r;
    bool headed = false;
    while (plm_world_next_line(p, &r)) {
        if (r != PLM_OK)
            return r;
        if (p->n == 0)
            continue;
        if (!headed) {
            if (p->n != 2 || !plm_slice_eq_str(p->words[0], "plimsoll-world") ||
                !plm_slice_eq_str(p->words[1], "1"))
                return plm_world_bad_line(p, "a world file begins with 'plimsoll-world 1'");
            headed = true;
            continue;
        }
        r = take_statement(p);
        if (r == PLM_OK && p->next < p->n)
            r = plm_world_bad_word(p, p->words[p->next], "is too much in this line");
        if (r != PLM_OK)
            return r;
    }
    if (!headed)
        return plm_fail(p->err, PLM_ERR_FORMAT, "a world file begins with 'plimsoll-world 1'");
    if (p->world->device.capacity_bytes == 0)
        return plm_fail(p->err, PLM_ERR_FORMAT, "the device has no capacity");
    return PLM_OK;
}

int plm_world_parse(struct plm_host *host, const char *bytes, size_t len, struct plm_world **ret,
                    struct plm_error *err)
{
    if (len > PLM_WORLD_BYTES_MAX)
        return plm_fail(err, PLM_ERR_LIMIT, "a world file has at most %u bytes",
                        PLM_WORLD_BYTES_MAX);
    struct plm_world *world = plm_calloc(host, PLM_HOST_OTHER, 1, sizeof(*world));
    if (world == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a world");
    world->host = host;
    world->seed = 1;
    world->model = PLM_WORLD_MODEL_DEFAULT;
    struct plm_world_text p = {
        .host = host, .world = world, .err = err, .at = bytes, .end = bytes + len};
    int r = parse(&p);
    if (r != PLM_OK) {
        plm_world_free(world);
        return r;
    }
    *ret = world;
    return PLM_OK;
}

void plm_world_free(struct plm_world *world)
{
    if (world == NULL)
        return;
    plm_free(world->host, world->events);
    plm_free(world->host, world->options);
    plm_free(world->host, world->requests);
    plm_free(world->host, world->actions);
    plm_free(world->host, world->wants);
    plm_free(world->host, world);
}
