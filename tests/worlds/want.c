// SPDX-License-Identifier: Apache-2.0
// "want [on DEVICE] NAME [OP VALUE]": a figure of the run and what it must be: a number, a text, or
// another figure. A new figure is one line in a table below: a name, and where it lies. Flags and
// counts are numbers; a want without a value asks for one that is not 0.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/play.h"

enum type { I64, U64, U32, I32, F64, FLAG, STATUS, TEXT };

struct figure {
    const char *name;
    enum type type;
    size_t offset;
};

#define M(type, name)                                                                              \
    {                                                                                              \
#name, type, offsetof(plim_metrics, name)                                                  \
    }
static const struct figure metrics[] = {
    M(U32, running),
    M(U32, waiting),
    M(U32, preempted),
    M(F64, kv_usage),
    M(U64, blocks_total),
    M(U64, blocks_used),
    M(U64, blocks_cached),
    M(U64, blocks_free),
    M(U64, prompt_tokens),
    M(U64, cached_tokens),
    M(U64, generated_tokens),
    M(U64, prefix_queries),
    M(U64, prefix_hits),
    M(U64, rejected_never),
    M(U64, rejected_now),
    M(U64, rejected_queue),
    M(U64, rejected_context),
    M(U64, preemptions),
    M(U64, steps),
    M(U64, allocations_in_step),
    M(U64, resizes),
    M(U64, audit_excess),
    M(I64, limit_bytes),
    M(I64, used_bytes),
    M(I64, high_water_bytes),
    M(I64, margin_bytes),
    M(I64, host_used_bytes),
    M(I64, host_limit_bytes),
    M(FLAG, ready),
    M(FLAG, sealed),
    M(FLAG, draining),
    M(FLAG, lost),
    M(I64, host_idle_bytes),
    M(FLAG, asleep),
    M(I64, foreign_bytes),
    M(I64, largest_free_bytes),
    M(U64, shrinks),
    M(U64, grows),
    M(U64, plan_shrinks),
    M(U64, validated_blocks),
    M(U64, losses),
    M(U64, reopened),
    M(U64, replays),
    M(U64, poisoned),
    M(U64, resubmits),
    M(U64, slow_steps),
    M(U64, slowdowns),
    M(U64, stalls),
    M(U64, incidents),
    M(U64, ledger_mismatches),
    {"memory.weights", I64, offsetof(plim_metrics, weights_bytes)},
    {"memory.kv", I64, offsetof(plim_metrics, kv_bytes)},
    {"memory.workspace", I64, offsetof(plim_metrics, workspace_bytes)},
    {"memory.ballast", I64, offsetof(plim_metrics, ballast_bytes)},
    M(F64, last_sleep_s),
    M(F64, last_wake_s),
};

#define P(name)                                                                                    \
    {                                                                                              \
#name, I64, offsetof(struct plm_plan, name)                                                \
    }
static const struct figure plan[] = {
    P(foreign),
    P(own_drv),
    P(room),
    P(resident),
    P(growth),
    P(U),
    P(margin),
    P(withheld),
    P(ballast),
    P(host_limit),
    P(host),
    P(budget),
    P(blocks_cap),
    P(prefix_cache_blocks),
    P(blocks),
    P(kv_bytes),
    P(line),
    P(in.g),
    P(in.T),
    P(in.F),
    P(in.O),
    P(in.K),
    P(in.process_use),
    P(in.unheld),
    {"max_context", U32, offsetof(struct plm_plan, in.limits.max_context)},
    {"max_sequences", U32, offsetof(struct plm_plan, in.limits.max_sequences)},
    {"batch_max_tokens", U32, offsetof(struct plm_plan, in.limits.batch_max_tokens)},
};

#define R(type, name)                                                                              \
    {                                                                                              \
#name, type, offsetof(struct run, name)                                                    \
    }
static const struct figure runs[] = {
    R(FLAG, ready),
    R(U64, step),
    R(U32, incidents),
    {"steps", U64, offsetof(struct run, step)},
    {"finished", U32, offsetof(struct run, n_finished)},
    {"ended", U32, offsetof(struct run, n_ended)},
    {"refused", U32, offsetof(struct run, n_refused)},
    {"offers", U32, offsetof(struct run, n_offers)},
    {"offers_taken", U32, offsetof(struct run, n_offers_taken)},
    {"tokens", U64, offsetof(struct run, n_tokens)},
    {"blocks", I64, offsetof(struct run, plan.blocks)},
    {"start_error", STATUS, offsetof(struct run, start_status)},
    // Seen from below: what the device had left at READY, ballast included; slabs that were asked
    // for since; and the most that was held in a phase.
    {"left_at_ready", I64, offsetof(struct run, left_at_ready)},
    {"may_hold", I64, offsetof(struct run, may_hold)}, // the line, and the ballast where it is held
    {"committed", I64, offsetof(struct run, committed)},
    {"slabs_since", U64, offsetof(struct run, slabs_since)},
    {"allocs", U64, offsetof(struct run, observer.world.allocs)},
    {"spilled", U64, offsetof(struct run, observer.world.spilled_bytes)},
    {"peak.load", I64, offsetof(struct run, observer.phase_peak_bytes[PLM_PHASE_LOAD])},
    {"peak.tune", I64, offsetof(struct run, observer.phase_peak_bytes[PLM_PHASE_TUNE])},
    {"peak.prefill", I64, offsetof(struct run, observer.phase_peak_bytes[PLM_PHASE_PREFILL])},
    {"peak.decode", I64, offsetof(struct run, observer.phase_peak_bytes[PLM_PHASE_DECODE])},
    {"peak.resize", I64, offsetof(struct run, observer.phase_peak_bytes[PLM_PHASE_RESIZE])},
    {"peak.validate", I64, offsetof(struct run, observer.phase_peak_bytes[PLM_PHASE_VALIDATE])},
    {"peak.serve", I64, offsetof(struct run, observer.phase_peak_bytes[PLM_PHASE_SERVE])},
};

#define Q(type, name)                                                                              \
    {                                                                                              \
#name, type, offsetof(struct played, name)                                                 \
    }
static const struct figure requests[] = {
    Q(STATUS, status),
    Q(FLAG, refused),
    Q(FLAG, admitted),
    Q(FLAG, done),
    Q(FLAG, left),
    Q(FLAG, offer_made),
    Q(FLAG, offer_taken),
    Q(U32, tokens),
    Q(I32, finish),
    Q(U64, done_step),
    {"refusal", STATUS, offsetof(struct played, refusal.status)},
    {"term", TEXT, offsetof(struct played, refusal.term)},
    {"needed", I64, offsetof(struct played, refusal.needed_bytes)},
    {"limit", I64, offsetof(struct played, refusal.limit_bytes)},
    {"retry_after", I32, offsetof(struct played, refusal.retry_after_s)},
    {"offer_prompt", I64, offsetof(struct played, refusal.offer_prompt_tokens)},
    {"offer_max", I64, offsetof(struct played, refusal.offer_max_tokens)},
    {"offer_n", I64, offsetof(struct played, refusal.offer_n)},
};

static const char *const status_names[] = {
    "OK",         "INVALID",     "FORMAT",    "UNSUPPORTED",   "NOT_FOUND", "IO",
    "NOMEM_HOST", "NOMEM_NEVER", "NOMEM_NOW", "OUT_OF_DEVICE", "TOO_LARGE", "LOST",
    "SEALED",     "QUEUE_FULL",  "CONTEXT",   "CANCELLED",     "TIMEOUT",   "LIMIT",
    "CLOSED",     "NUMERIC",     "INTERNAL",  "BUSY",
};

struct value {
    double number;
    const char *text; // NULL: a number
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const struct figure *find(const struct figure *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

static const struct figure *find_figure(const struct run *run, const char *name,
                                        const void **ret_base);

static struct value read_value(const struct figure *f, const void *base)
{
    const void *at = (const char *)base + f->offset;
    switch (f->type) {
    case I64: return (struct value){.number = (double)*(const int64_t *)at};
    case U64: return (struct value){.number = (double)*(const uint64_t *)at};
    case U32: return (struct value){.number = *(const uint32_t *)at};
    case I32: return (struct value){.number = *(const int32_t *)at};
    case F64: return (struct value){.number = *(const double *)at};
    case FLAG: return (struct value){.number = *(const bool *)at};
    case TEXT: return (struct value){.text = at};
    case STATUS: break;
    }
    const int status = -*(const int *)at;
    const bool known = status >= 0 && (size_t)status < COUNT(status_names);
    return (struct value){.text = known ? status_names[status] : "?"};
}

// ---- words ----

// A want as words; quotes hold one together.
struct words {
    char text[160];
    const char *word[8];
    unsigned n;
};

static void split(const struct plm_world_want *want, struct words *w)
{
    *w = (struct words){0};
    snprintf(w->text, sizeof(w->text), "%s %s %s", want->name, want->op, want->value);
    for (char *at = w->text; w->n < COUNT(w->word);) {
        at += strspn(at, " ");
        if (*at == '\0')
            return;
        const char end = *at == '"' ? '"' : ' ';
        at += *at == '"';
        w->word[w->n++] = at;
        at = strchr(at, end);
        if (at == NULL)
            return;
        *at++ = '\0';
    }
}

static bool is_op(const char *word)
{
    static const char *const ops[] = {"==", "!=", ">=", "<=", ">", "<"};
    for (size_t i = 0; i < COUNT(ops); i++) {
        if (strcmp(word, ops[i]) == 0)
            return true;
    }
    return false;
}

static bool holds(int order, const char *op)
{
    return strcmp(op, "==") == 0   ? order == 0
           : strcmp(op, "!=") == 0 ? order != 0
           : strcmp(op, ">=") == 0 ? order >= 0
           : strcmp(op, "<=") == 0 ? order <= 0
           : op[0] == '>'          ? order > 0
                                   : order < 0;
}

// A number, or what another figure of the run is.
static bool number_of(const struct run *run, const char *text, double *ret)
{
    const void *base;
    const struct figure *f = find_figure(run, text, &base);
    if (f == NULL)
        return number_read(text, ret);
    const struct value v = read_value(f, base);
    *ret = v.number;
    return v.text == NULL;
}

// One figure with what follows it: nothing, a value, or an operator and a value. *ret_used words.
static void judge(struct run *run, const char *what, const struct value *v, const struct words *w,
                  unsigned at, unsigned *ret_used)
{
    const char *op = "==", *value = NULL;
    unsigned used = 0;
    if (at < w->n && is_op(w->word[at]))
        op = w->word[at + used++];
    if (at + used < w->n)
        value = w->word[at + used++];
    *ret_used = used;
    if (value == NULL && (v->text != NULL || used > 0)) {
        fault(run, FAULT_WANT, "%s: no value to compare with", what);
    } else if (v->text != NULL) {
        if (!holds(strcmp(v->text, value), op) || (op[0] != '=' && op[0] != '!'))
            fault(run, FAULT_WANT, "%s is %s, wanted %s %s", what, v->text, op, value);
    } else {
        double number = 0;
        if (value == NULL) {
            op = "!=";
        } else if (!number_of(run, value, &number)) {
            fault(run, FAULT_WANT,
                  "%s: \"%s\" is no comparison (== != < <= > >=), number or figure", what, value);
            return;
        }
        if (!holds((v->number > number) - (v->number < number), op))
            fault(run, FAULT_WANT, "%s is %.17g, wanted %s %s", what, v->number, op,
                  value != NULL ? value : "0");
    }
}

// "request N FIELD [OP] VALUE", and more fields behind it.
static void want_request(struct run *run, const struct words *w)
{
    const unsigned long number = w->n > 1 ? strtoul(w->word[1], NULL, 10) : 0;
    if (number < 1 || number > run->world->n_requests || w->n < 3) {
        fault(run, FAULT_WANT, "request %s: there is none, or no field is named",
              w->n > 1 ? w->word[1] : "");
        return;
    }
    const struct played *p = &run->requests[number - 1];
    for (unsigned at = 2; at < w->n && run->fault == NO_FAULT;) {
        char what[64];
        const struct figure *f = find(requests, COUNT(requests), w->word[at]);
        snprintf(what, sizeof(what), "request %lu: %.32s", number, w->word[at]);
        if (f == NULL) {
            fault(run, FAULT_WANT, "%s is no figure of a request", what);
            return;
        }
        const struct value v = read_value(f, p);
        unsigned used;
        judge(run, what, &v, w, at + 1, &used);
        at += 1 + used;
    }
}

// A text in the message of the start's error or of any refusal or failed end.
static bool is_said(const struct run *run, const char *text)
{
    bool said = strstr(run->start_error.message, text) != NULL;
    for (uint32_t i = 0; i < run->world->n_requests && !said; i++)
        said = strstr(run->requests[i].refusal.message, text) != NULL;
    return said;
}

static const struct figure *find_figure(const struct run *run, const char *name,
                                        const void **ret_base)
{
    const struct figure *f = find(runs, COUNT(runs), name);
    *ret_base = run;
    if (f == NULL && strncmp(name, "metrics.", 8) == 0) {
        f = find(metrics, COUNT(metrics), name + 8);
        *ret_base = &run->metrics;
    }
    if (f == NULL && strncmp(name, "plan.", 5) == 0) {
        f = find(plan, COUNT(plan), name + 5);
        *ret_base = &run->plan;
    }
    return f;
}

static void want(struct run *run, const struct plm_world_want *asked)
{
    struct words w;
    const void *base;
    split(asked, &w);
    if (w.n > 2 && strcmp(w.word[0], "on") == 0) {
        if (strcmp(w.word[1], run->backend != NULL ? "card" : "sim") != 0)
            return;
        w.n -= 2;
        memmove(w.word, w.word + 2, w.n * sizeof(w.word[0]));
    }
    if (w.n == 0)
        return;
    if (strcmp(w.word[0], "request") == 0) {
        want_request(run, &w);
        return;
    }
    if (strcmp(w.word[0], "says") == 0) {
        if (w.n < 2 || !is_said(run, w.word[1]))
            fault(run, FAULT_WANT, "nobody says \"%s\"; the start said \"%s\"",
                  w.n < 2 ? "" : w.word[1], run->start_error.message);
        return;
    }
    if (strcmp(w.word[0], "offer_accepted") == 0) {
        if (run->n_offers == 0 || run->n_offers_taken != run->n_offers)
            fault(run, FAULT_WANT, "%u of %u offers were taken", run->n_offers_taken,
                  run->n_offers);
        return;
    }
    const struct figure *f = find_figure(run, w.word[0], &base);
    if (f == NULL) {
        fault(run, FAULT_WANT, "there is no figure \"%s\"; the tables in want.c list them",
              w.word[0]);
        return;
    }
    const struct value v = read_value(f, base);
    unsigned used;
    judge(run, w.word[0], &v, &w, 1, &used);
}

void want_check(struct run *run)
{
    for (uint32_t i = 0; i < run->world->n_wants && run->fault == NO_FAULT; i++)
        want(run, &run->world->wants[i]);
}
