// SPDX-License-Identifier: Apache-2.0
// Text to world: lines of words, each statement by its table.
#include <string.h>

#include "backends/sim/world_impl.h"
#include "core/base/checked.h"

#define WORDS_MAX 32 // of a line: a request with all its fields has fewer
#define SHOWN_MAX 40 // bytes of a word that a message repeats

struct parser {
    struct plm_host *host;
    struct plm_world *world;
    struct plm_error *err;
    const char *at, *end;
    uint32_t line;
    struct plm_slice words[WORDS_MAX];
    uint32_t n, next; // words of the line, and the first that is not taken yet
    bool has_model;
};

static int shown(struct plm_slice word)
{
    return word.len < SHOWN_MAX ? (int)word.len : SHOWN_MAX;
}

static int bad_word(struct parser *p, struct plm_slice word, const char *why)
{
    return plm_fail(p->err, PLM_ERR_FORMAT, "line %u: '%.*s' %s", p->line, shown(word), word.ptr,
                    why);
}

static int bad_line(struct parser *p, const char *why)
{
    return plm_fail(p->err, PLM_ERR_FORMAT, "line %u: %s", p->line, why);
}

static int too_many(struct parser *p, const char *what, uint32_t max)
{
    return plm_fail(p->err, PLM_ERR_LIMIT, "line %u: more than %u %s", p->line, max, what);
}

// ---- words ----

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// Takes one word, quoted or bare, from the rest of the line.
static int take_word(struct parser *p, const char **at, const char *eol)
{
    if (p->n == WORDS_MAX)
        return too_many(p, "words", WORDS_MAX);
    const char *from = *at;
    if (*from != '"') {
        while (*at < eol && !is_blank(**at) && **at != '#' && **at != '"')
            (*at)++;
        if (*at < eol && **at == '"')
            return bad_line(p, "a quote stands inside a word");
        p->words[p->n++] = (struct plm_slice){from, (size_t)(*at - from)};
        return PLM_OK;
    }
    const char *quote = memchr(from + 1, '"', (size_t)(eol - from - 1));
    if (quote == NULL)
        return bad_line(p, "a quote is not closed");
    p->words[p->n++] = (struct plm_slice){from + 1, (size_t)(quote - from - 1)};
    *at = quote + 1;
    return PLM_OK;
}

// Splits the next line. False at the end of the text.
static bool next_line(struct parser *p, int *ret)
{
    p->n = p->next = 0;
    *ret = PLM_OK;
    if (p->at == p->end)
        return false;
    const char *eol = memchr(p->at, '\n', (size_t)(p->end - p->at));
    const char *at = p->at;
    if (eol == NULL)
        eol = p->end;
    p->at = eol < p->end ? eol + 1 : eol;
    p->line++;
    for (const char *c = at; c < eol; c++) {
        if ((unsigned char)*c < ' ' && !is_blank(*c)) {
            *ret = bad_line(p, "holds a control character");
            return true;
        }
    }
    while (*ret == PLM_OK && at < eol && *at != '#') {
        if (is_blank(*at))
            at++;
        else
            *ret = take_word(p, &at, eol);
    }
    return true;
}

static int word(struct parser *p, const char *what, struct plm_slice *ret)
{
    if (p->next == p->n)
        return plm_fail(p->err, PLM_ERR_FORMAT, "line %u: %s is missing after '%.*s'", p->line,
                        what, shown(p->words[p->n - 1]), p->words[p->n - 1].ptr);
    *ret = p->words[p->next++];
    return PLM_OK;
}

static bool next_is(const struct parser *p, const char *text)
{
    return p->next < p->n && plm_slice_eq_str(p->words[p->next], text);
}

static int text(struct parser *p, struct plm_slice from, char *ret, size_t cap)
{
    if (from.len >= cap)
        return plm_fail(p->err, PLM_ERR_LIMIT, "line %u: '%.*s' is longer than %zu bytes", p->line,
                        shown(from), from.ptr, cap - 1);
    memcpy(ret, from.ptr, from.len);
    ret[from.len] = '\0';
    return PLM_OK;
}

static int name_of(struct parser *p, const char *const *names, const char *what, uint32_t *ret)
{
    struct plm_slice w = {0};
    int r = word(p, what, &w);
    if (r != PLM_OK)
        return r;
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (plm_slice_eq_str(w, names[i])) {
            *ret = i;
            return PLM_OK;
        }
    }
    char why[64] = "is no ";
    strncat(why, what, sizeof(why) - strlen(why) - 1);
    return bad_word(p, w, why);
}

// ---- numbers ----

// Digits at the start of *rest, which moves behind them. False: none, or beyond 64 bits.
static bool digits(struct plm_slice *rest, uint64_t *ret)
{
    uint64_t value = 0;
    size_t n = 0;
    for (; n < rest->len && rest->ptr[n] >= '0' && rest->ptr[n] <= '9'; n++) {
        if (!plm_mul_u64(value, 10, &value) ||
            !plm_add_u64(value, (uint64_t)(rest->ptr[n] - '0'), &value))
            return false;
    }
    *rest = (struct plm_slice){rest->ptr + n, rest->len - n};
    *ret = value;
    return n > 0;
}

// A number with a unit; a bare one counts where `bare` is above 0.
static int scaled(struct parser *p, struct plm_slice from, const struct plm_world_unit *units,
                  uint64_t bare, const char *why, uint64_t *ret)
{
    struct plm_slice rest = from;
    uint64_t value, factor = 0;
    if (!digits(&rest, &value))
        return bad_word(p, from, why);
    if (rest.len == 0)
        factor = value == 0 ? 1 : bare; // nothing is nothing in every unit
    for (uint32_t i = 0; units[i].word != NULL; i++) {
        if (plm_slice_eq_str(rest, units[i].word))
            factor = units[i].factor;
    }
    if (factor == 0)
        return bad_word(p, from, why);
    if (!plm_mul_u64(value, factor, &value) || value > INT64_MAX)
        return bad_word(p, from, "does not fit into 63 bits");
    *ret = value;
    return PLM_OK;
}

static int size_from(struct parser *p, struct plm_slice from, uint64_t *ret)
{
    return scaled(p, from, plm_world_sizes, 1, "is no size (as 512KiB, 3MiB, 24GiB)", ret);
}

static int time_from(struct parser *p, struct plm_slice from, uint64_t *ret)
{
    return scaled(p, from, plm_world_times, 0, "is no time (as 5us, 20ms, 1s)", ret);
}

static int number_from(struct parser *p, struct plm_slice from, uint64_t max, uint64_t *ret)
{
    struct plm_slice rest = from;
    if (!digits(&rest, ret) || rest.len > 0 || *ret > max)
        return bad_word(p, from, "is no number, or too large a one");
    return PLM_OK;
}

static int number(struct parser *p, uint64_t max, uint64_t *ret)
{
    struct plm_slice w = {0};
    int r = word(p, "a number", &w);
    return r == PLM_OK ? number_from(p, w, max, ret) : r;
}

static int size(struct parser *p, uint64_t *ret)
{
    struct plm_slice w = {0};
    int r = word(p, "a size", &w);
    return r == PLM_OK ? size_from(p, w, ret) : r;
}

// ---- statements by table ----

static int take_type(struct parser *p, enum plm_type *ret)
{
    uint32_t i = 0;
    int r = name_of(p, plm_world_types, "type of a tensor", &i);
    if (r == PLM_OK)
        *ret = plm_world_type_values[i];
    return r;
}

static int take_value(struct parser *p, enum plm_world_kind kind, void *member)
{
    static const char *const yes_no[] = {"no", "yes", NULL};
    static const char *const commits[] = {"hard", "soft", NULL};
    struct plm_slice w = {0};
    uint64_t value = 0;
    uint32_t i = 0;
    int r;
    switch (kind) {
    case PLM_WORLD_SIZE: return size(p, member);
    case PLM_WORLD_TIME:
        r = word(p, "a time", &w);
        if (r == PLM_OK)
            r = time_from(p, w, &value);
        *(int64_t *)member = (int64_t)value;
        return r;
    case PLM_WORLD_U64: return number(p, UINT64_MAX, member);
    case PLM_WORLD_U32:
        r = number(p, UINT32_MAX, &value);
        *(uint32_t *)member = (uint32_t)value;
        return r;
    case PLM_WORLD_BOOL:
        r = name_of(p, yes_no, "yes or no", &i);
        *(bool *)member = i != 0;
        return r;
    case PLM_WORLD_COMMIT:
        r = name_of(p, commits, "kind of commit (hard, soft)", &i);
        *(enum plm_commit *)member = (enum plm_commit)i;
        return r;
    case PLM_WORLD_TYPE: return take_type(p, member);
    }
    return PLM_ERR_INTERNAL;
}

// Takes "WORD VALUE" where the next word is in the table; *ret_taken says so.
static int take_field(struct parser *p, const struct plm_world_field *fields, void *object,
                      bool *ret_taken)
{
    *ret_taken = false;
    for (; p->next < p->n && fields->word != NULL; fields++) {
        if (!next_is(p, fields->word))
            continue;
        p->next++;
        *ret_taken = true;
        return take_value(p, fields->kind, (char *)object + fields->offset);
    }
    return PLM_OK;
}

// Room for one more of n items: the array holds the next power of two.
static void *grow(struct parser *p, void *items, uint32_t n, size_t item_bytes)
{
    if (n > 0 && (n & (n - 1)) != 0)
        return items;
    return plm_realloc(p->host, PLM_HOST_OTHER, items, (n > 0 ? 2 * (size_t)n : 1) * item_bytes);
}

static int no_memory(struct parser *p)
{
    return plm_fail(p->err, PLM_ERR_NOMEM_HOST, "line %u: no host memory for the world", p->line);
}

// ---- device ----

static int take_cgroup(struct parser *p, struct plm_sim_opts *device)
{
    struct plm_cgroup level;
    if (device->n_cgroups == PLM_CGROUP_LEVELS)
        return too_many(p, "levels", PLM_CGROUP_LEVELS);
    int r = size(p, &level.limit_bytes);
    if (r == PLM_OK)
        r = size(p, &level.current_bytes);
    if (r == PLM_OK)
        r = size(p, &level.reclaimable_bytes);
    if (r == PLM_OK)
        device->cgroups[device->n_cgroups++] = level;
    return r;
}

static int take_heap(struct parser *p, struct plm_sim_opts *device)
{
    if (device->n_heaps == PLM_SIM_HEAPS_MAX - 1)
        return too_many(p, "further heaps", PLM_SIM_HEAPS_MAX - 1);
    int r = size(p, &device->heap_bytes[device->n_heaps]);
    device->n_heaps += r == PLM_OK;
    return r;
}

static int take_poison(struct parser *p, struct plm_sim_opts *device)
{
    uint64_t token = 0;
    uint32_t i = 0;
    int r = number(p, INT32_MAX, &token);
    if (r == PLM_OK)
        r = name_of(p, plm_world_poisons, "effect of a poison (none, nan, hang, lost)", &i);
    device->poison_token = (int32_t)token;
    device->poison = (enum plm_sim_poison)i;
    return r;
}

static int take_device(struct parser *p)
{
    static const char *const inners[] = {"none", "cpu", NULL};
    struct plm_world *world = p->world;
    struct plm_slice w = {0};
    bool taken;
    int r = take_field(p, plm_world_device_fields, &world->device, &taken);
    if (r != PLM_OK || taken)
        return r;
    r = word(p, "a property", &w);
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
        r = name_of(p, inners, "inner device (none, cpu)", &i);
        world->computes = i != 0;
        return r;
    }
    return bad_word(p, w, "is no property of a device");
}

// ---- events ----

static int take_when(struct parser *p, struct plm_sim_event *event)
{
    struct plm_slice w = {0};
    uint32_t i = 0;
    int r = name_of(p, plm_world_whens, "moment", &i);
    if (r != PLM_OK)
        return r;
    event->when = (enum plm_sim_when)i;
    if (event->when == PLM_SIM_AT_PHASE) {
        r = name_of(p, plm_world_phases, "phase", &i);
        event->at = i;
        return r;
    }
    if (event->when != PLM_SIM_AT_TIME)
        return number(p, INT64_MAX, &event->at);
    r = word(p, "a time", &w);
    return r == PLM_OK ? time_from(p, w, &event->at) : r;
}

// A size, for some events with a sign: "+2GiB" of neighbours is a change, 2GiB is what they hold.
static int take_bytes(struct parser *p, struct plm_sim_event *event)
{
    struct plm_slice w = {0};
    uint64_t bytes = 0;
    int r = word(p, "a size", &w);
    if (r != PLM_OK)
        return r;
    const bool more = w.len > 0 && w.ptr[0] == '+', less = w.len > 0 && w.ptr[0] == '-';
    if ((more || less) && event->what == PLM_SIM_FOREIGN)
        event->what = PLM_SIM_FOREIGN_BY;
    if (more || less)
        w = (struct plm_slice){w.ptr + 1, w.len - 1};
    r = size_from(p, w, &bytes);
    event->value = less ? -(int64_t)bytes : (int64_t)bytes;
    return r;
}

static int take_event(struct parser *p)
{
    struct plm_world *world = p->world;
    struct plm_sim_event event = {0};
    uint64_t value = 0;
    uint32_t i = 0;
    if (world->device.n_events == PLM_WORLD_EVENTS_MAX)
        return too_many(p, "events", PLM_WORLD_EVENTS_MAX);
    int r = take_when(p, &event);
    if (r == PLM_OK)
        r = name_of(p, plm_world_whats, "event", &i);
    if (r != PLM_OK)
        return r;
    event.what = (enum plm_sim_what)i;
    if (event.what == PLM_SIM_FOREIGN || event.what == PLM_SIM_TAKE) {
        r = take_bytes(p, &event);
    } else if (event.what != PLM_SIM_LOST) {
        if (event.what == PLM_SIM_LIE) {
            r = name_of(p, plm_world_lies, "lie", &i);
            event.lie = (enum plm_sim_lie)i;
        }
        if (r == PLM_OK)
            r = take_value(p, plm_world_event_kind(event.what), &value);
        if (r == PLM_OK && value > INT64_MAX)
            r = bad_word(p, p->words[p->next - 1], "does not fit into 63 bits");
        event.value = (int64_t)value;
    }
    if (r != PLM_OK)
        return r;
    struct plm_sim_event *events =
        grow(p, world->events, (uint32_t)world->device.n_events, sizeof(event));
    if (events == NULL)
        return no_memory(p);
    events[world->device.n_events++] = event;
    world->events = events;
    world->device.events = events;
    return PLM_OK;
}

// ---- model, engine, requests, wants ----

static int take_model(struct parser *p)
{
    struct plm_world_model *model = &p->world->model;
    struct plm_slice w = {0};
    bool taken = true;
    int r = PLM_OK;
    if (p->has_model)
        return bad_line(p, "a world has one model");
    p->has_model = true;
    if (next_is(p, "file")) {
        p->next++;
        r = word(p, "a path", &w);
        return r == PLM_OK ? text(p, w, model->file, sizeof(model->file)) : r;
    }
    while (r == PLM_OK && taken)
        r = take_field(p, plm_world_model_fields, model, &taken);
    return r;
}

static int take_option(struct parser *p)
{
    struct plm_world *world = p->world;
    struct plm_slice key = {0}, value = {0};
    if (world->n_options == PLM_WORLD_OPTIONS_MAX)
        return too_many(p, "options", PLM_WORLD_OPTIONS_MAX);
    int r = word(p, "an option", &key);
    if (r == PLM_OK)
        r = word(p, "a value", &value);
    if (r != PLM_OK)
        return r;
    struct plm_world_option *options = grow(p, world->options, world->n_options, sizeof(*options));
    if (options == NULL)
        return no_memory(p);
    world->options = options;
    struct plm_world_option *option = &options[world->n_options];
    r = text(p, key, option->key, sizeof(option->key));
    if (r == PLM_OK)
        r = text(p, value, option->value, sizeof(option->value));
    world->n_options += r == PLM_OK;
    return r;
}

// "1:32": 32 tokens of request 1.
static int take_prefix(struct parser *p, struct plm_world_request *request)
{
    struct plm_slice w = {0};
    uint64_t of = 0, tokens = 0;
    int r = word(p, "REQUEST:TOKENS", &w);
    if (r != PLM_OK)
        return r;
    struct plm_slice rest = w;
    if (!digits(&rest, &of) || rest.len == 0 || rest.ptr[0] != ':')
        return bad_word(p, w, "is no prefix (as 1:32)");
    rest = (struct plm_slice){rest.ptr + 1, rest.len - 1};
    if (!digits(&rest, &tokens) || rest.len > 0 || tokens > UINT32_MAX)
        return bad_word(p, w, "is no prefix (as 1:32)");
    if (of == 0 || of > p->world->n_requests || tokens > p->world->requests[of - 1].prompt)
        return bad_word(p, w, "is not the beginning of an earlier request");
    request->prefix_of = (uint32_t)of;
    request->prefix = (uint32_t)tokens;
    return PLM_OK;
}

static int request_field(struct parser *p, struct plm_world_request *request)
{
    struct plm_slice w = {0};
    bool taken;
    int r = take_field(p, plm_world_request_fields, request, &taken);
    if (r != PLM_OK || taken)
        return r;
    r = word(p, "a property", &w);
    if (r != PLM_OK)
        return r;
    if (plm_slice_eq_str(w, "poison")) {
        request->poison = true;
        return PLM_OK;
    }
    if (plm_slice_eq_str(w, "prefix"))
        return take_prefix(p, request);
    if (!plm_slice_eq_str(w, "salt"))
        return bad_word(p, w, "is no property of a request");
    r = word(p, "a salt", &w);
    return r == PLM_OK ? text(p, w, request->salt, sizeof(request->salt)) : r;
}

static int take_request(struct parser *p)
{
    struct plm_world *world = p->world;
    struct plm_world_request request = {.n = 1};
    int r = PLM_OK;
    if (world->n_requests == PLM_WORLD_REQUESTS_MAX)
        return too_many(p, "requests", PLM_WORLD_REQUESTS_MAX);
    while (r == PLM_OK && p->next < p->n)
        r = request_field(p, &request);
    if (r != PLM_OK)
        return r;
    if (request.prompt == 0 || request.n == 0)
        return bad_line(p, "a request has a prompt of at least one token, and at least one choice");
    if (request.prefix > request.prompt)
        return bad_line(p, "the prefix is longer than the prompt");
    if (world->n_requests > 0 && request.at_step < world->requests[world->n_requests - 1].at_step)
        return bad_line(p, "requests are in the order of their steps");
    struct plm_world_request *requests =
        grow(p, world->requests, world->n_requests, sizeof(*requests));
    if (requests == NULL)
        return no_memory(p);
    requests[world->n_requests++] = request;
    world->requests = requests;
    return PLM_OK;
}

static int take_action(struct parser *p)
{
    struct plm_world *world = p->world;
    struct plm_world_action action = {0};
    uint32_t i = 0;
    if (world->n_actions == PLM_WORLD_ACTIONS_MAX)
        return too_many(p, "actions", PLM_WORLD_ACTIONS_MAX);
    if (!next_is(p, "step"))
        return bad_line(p, "an action says at which step it comes");
    p->next++;
    int r = number(p, UINT64_MAX, &action.at_step);
    if (r == PLM_OK)
        r = name_of(p, plm_world_acts, "action (sleep, wake, drain)", &i);
    if (r != PLM_OK)
        return r;
    action.act = (enum plm_world_act)i;
    struct plm_world_action *actions = grow(p, world->actions, world->n_actions, sizeof(*actions));
    if (actions == NULL)
        return no_memory(p);
    actions[world->n_actions++] = action;
    world->actions = actions;
    return PLM_OK;
}

// Joins the words [from, to) with blanks.
static int join(struct parser *p, uint32_t from, uint32_t to, char *ret, size_t cap)
{
    size_t len = 0;
    for (uint32_t i = from; i < to; i++) {
        const struct plm_slice w = p->words[i];
        if (w.len + 2 > cap - len)
            return plm_fail(p->err, PLM_ERR_LIMIT,
                            "line %u: what is wanted is longer than %zu bytes", p->line, cap - 1);
        if (i > from)
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

static int take_want(struct parser *p)
{
    struct plm_world *world = p->world;
    if (world->n_wants == PLM_WORLD_WANTS_MAX)
        return too_many(p, "wants", PLM_WORLD_WANTS_MAX);
    struct plm_world_want *wants = grow(p, world->wants, world->n_wants, sizeof(*wants));
    if (wants == NULL)
        return no_memory(p);
    world->wants = wants;
    struct plm_world_want *want = &wants[world->n_wants];
    memset(want, 0, sizeof(*want));
    uint32_t op = p->next;
    while (op < p->n && !is_op(p->words[op]))
        op++;
    const bool compares = op < p->n;
    const uint32_t name_end = compares ? op : plm_min_i64(p->next + 1, p->n);
    if (name_end == p->next || (compares && op + 1 == p->n))
        return bad_line(p, "a want names something, and what an operator compares it with");
    int r = join(p, p->next, name_end, want->name, sizeof(want->name));
    if (r == PLM_OK && compares)
        r = text(p, p->words[op], want->op, sizeof(want->op));
    if (r == PLM_OK)
        r = join(p, compares ? op + 1 : name_end, p->n, want->value, sizeof(want->value));
    p->next = p->n;
    world->n_wants += r == PLM_OK;
    return r;
}

// ---- the whole ----

static int take_statement(struct parser *p)
{
    struct plm_slice w = p->words[p->next++];
    if (plm_slice_eq_str(w, "seed"))
        return number(p, UINT64_MAX, &p->world->seed);
    if (plm_slice_eq_str(w, "max_steps"))
        return number(p, UINT64_MAX, &p->world->max_steps);
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
    return bad_word(p, w, "begins no statement");
}

static int parse(struct parser *p)
{
    int r;
    bool headed = false;
    while (next_line(p, &r)) {
        if (r != PLM_OK)
            return r;
        if (p->n == 0)
            continue;
        if (!headed) {
            if (p->n != 2 || !plm_slice_eq_str(p->words[0], "plimsoll-world") ||
                !plm_slice_eq_str(p->words[1], "1"))
                return bad_line(p, "a world file begins with 'plimsoll-world 1'");
            headed = true;
            continue;
        }
        r = take_statement(p);
        if (r == PLM_OK && p->next < p->n)
            r = bad_word(p, p->words[p->next], "is too much in this line");
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
    struct parser p = {.host = host, .world = world, .err = err, .at = bytes, .end = bytes + len};
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
