// SPDX-License-Identifier: Apache-2.0
// Whose fault it is: the search for the one request at which steps fail.
#include <string.h>

#include "core/engine/impl.h"

static uint64_t arrival(const struct plim_request *request)
{
    return request->choices[0].seq.order;
}

// ---- suspects ----

static void forget_suspect(struct plim_request *request)
{
    request->suspect = false;
    for (uint32_t i = 0; i < request->n; i++) {
        request->choices[i].goal = 0;
        request->choices[i].seq.picked = false;
    }
}

static void add_suspect(struct plm_search *s, struct plim_request *request)
{
    if (request->suspect)
        return;
    request->suspect = true;
    uint32_t at = s->n++;
    for (; at > 0 && arrival(s->suspects[at - 1]) > arrival(request); at--)
        s->suspects[at] = s->suspects[at - 1];
    s->suspects[at] = request;
}

static void suspect_only(struct plm_search *s, struct plim_request *request)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->suspects[i] != request)
            forget_suspect(s->suspects[i]);
    }
    s->suspects[0] = request;
    s->n = 1;
}

void plm_search_end(struct plim_engine *engine)
{
    struct plm_search *s = &engine->search;
    for (uint32_t i = 0; i < s->n; i++)
        forget_suspect(s->suspects[i]);
    s->n = s->n_probe = 0;
    plm_sched_restrict(engine->sched, false);
}

// Those with rows in the step that failed, in the place of the suspects that there were: a probe
// holds no others. They are cleared when they have computed what they were about to compute.
static void collect(struct plim_engine *engine)
{
    struct plm_search *s = &engine->search;
    struct plm_seq *seq;
    plm_search_end(engine);
    for (uint32_t i = 0; (seq = plm_sched_running_at(engine->sched, i)) != NULL; i++) {
        struct plm_choice *choice = (struct plm_choice *)seq;
        const uint32_t rows = plm_sched_rows(engine->sched, seq);
        if (rows == 0)
            continue;
        choice->goal = seq->n_computed + rows;
        add_suspect(s, choice->request);
    }
    s->n_probe = s->n;
}

// ---- probes ----

// Whether what is wrong with a request may come from another one, with blocks of the prefix cache.
static bool borrows(const struct plim_request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        if (request->choices[i].seq.use_cache && request->choices[i].seq.borrows)
            return true;
    }
    return false;
}

// All of it is computed anew then, with no block of others; those are not trusted any more.
static void borrow_nothing(struct plim_engine *engine, struct plim_request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        struct plm_seq *seq = &request->choices[i].seq;
        plm_sched_forget(engine->sched, seq);
        seq->use_cache = false;
        if (seq->state == PLM_SEQ_RUNNING)
            plm_sched_preempt(engine->sched, seq);
    }
}

static void next_probe(struct plim_engine *engine)
{
    struct plm_search *s = &engine->search;
    s->n_probe = s->one_by_one ? 1 : s->n - s->n / 2;
    for (uint32_t i = 0; i < s->n; i++) {
        struct plim_request *request = s->suspects[i];
        for (uint32_t c = 0; c < request->n; c++)
            request->choices[c].seq.picked = i < s->n_probe;
    }
    if (s->n_probe == 1 && borrows(s->suspects[0]))
        borrow_nothing(engine, s->suspects[0]);
    plm_sched_restrict(engine->sched, true);
    engine->counts.replays++;
}

static void remove_suspects(struct plim_engine *engine, uint32_t first, uint32_t n)
{
    struct plm_search *s = &engine->search;
    for (uint32_t i = first; i < first + n; i++)
        forget_suspect(s->suspects[i]);
    memmove(&s->suspects[first], &s->suspects[first + n],
            (s->n - first - n) * sizeof(struct plim_request *));
    s->n -= n;
    if (first < s->n_probe)
        s->n_probe -= n;
    if (s->n == 0)
        plm_search_end(engine);
    else if (s->n_probe == 0)
        next_probe(engine);
}

void plm_search_drop(struct plim_engine *engine, struct plim_request *request)
{
    struct plm_search *s = &engine->search;
    for (uint32_t i = 0; request->suspect && i < s->n; i++) {
        if (s->suspects[i] == request)
            remove_suspects(engine, i, 1);
    }
}

static bool cleared(const struct plim_request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        const struct plm_choice *choice = &request->choices[i];
        if (choice->live && choice->seq.n_computed < choice->goal)
            return false;
    }
    return true;
}

// Choices that came so far step aside: else the first of them would go on to its end, in the blocks
// that the others of its request wait for, while everybody else waits for those.
static void step_aside(struct plim_request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        struct plm_choice *choice = &request->choices[i];
        if (choice->seq.n_computed >= choice->goal) {
            choice->goal = 0;
            choice->seq.picked = false;
        }
    }
}

void plm_search_passed(struct plim_engine *engine)
{
    struct plm_search *s = &engine->search;
    bool all = true;
    for (uint32_t i = 0; i < s->n_probe; i++) {
        step_aside(s->suspects[i]);
        all = all && cleared(s->suspects[i]);
    }
    if (!all)
        return;
    if (s->n > 0)
        remove_suspects(engine, 0, s->n_probe);
}

bool plm_search_make_room(struct plim_engine *engine)
{
    struct plm_seq *seq, *victim = NULL;
    if (engine->search.n == 0)
        return false;
    for (uint32_t i = 0; (seq = plm_sched_running_at(engine->sched, i)) != NULL; i++) {
        if (!seq->picked && (victim == NULL || seq->order > victim->order))
            victim = seq;
    }
    if (victim != NULL)
        plm_sched_preempt(engine->sched, victim);
    else
        plm_search_end(engine); // what waits in it can not run alone either
    return true;
}

// ---- verdicts ----

static const char *what_happened(int status)
{
    switch (status) {
    case PLM_ERR_NUMERIC: return "the model gave logits that are not finite numbers";
    case PLM_ERR_TIMEOUT: return "a step of this request did not end in time";
    case PLM_ERR_LOST: return "the device was lost in steps of this request";
    default: return "the forward of this request failed";
    }
}

static void convict(struct plim_engine *engine, struct plim_request *request, int status)
{
    engine->counts.poisoned++;
    plm_logf(&engine->core->log, PLM_LOG_ERROR, "a request is ended: %s (%s)",
             what_happened(status), plm_strstatus(status));
    plm_step_fail(engine, request, status, what_happened(status));
}

void plm_search_failed(struct plim_engine *engine, int status, struct plim_request *culprit)
{
    struct plm_search *s = &engine->search;
    collect(engine);
    s->one_by_one = false;
    plm_sched_abandon(engine->sched);
    if (culprit != NULL)
        suspect_only(s, culprit);
    if (s->n > 1 || (status == PLM_ERR_NUMERIC && borrows(s->suspects[0]))) {
        next_probe(engine);
        return;
    }
    culprit = s->suspects[0];
    plm_search_end(engine);
    for (uint32_t i = 0; i < culprit->n; i++)
        plm_sched_forget(engine->sched, &culprit->choices[i].seq);
    convict(engine, culprit, status);
}

void plm_search_lost(struct plim_engine *engine, int status, bool again)
{
    struct plm_search *s = &engine->search;
    const uint64_t loss = engine->counts.losses;
    const bool alone = s->n > 0 && s->n_probe == 1;
    collect(engine);
    s->one_by_one = true;
    plm_sched_abandon(engine->sched);
    for (uint32_t i = s->n; i-- > 0;) {
        struct plim_request *request = s->suspects[i];
        const bool both = again && request->lost_with + 1 == loss;
        request->lost_with = loss;
        if (alone || both)
            convict(engine, request, status);
    }
    // Whoever is left after a second loss was in one of them alone.
    if (again || alone)
        plm_search_end(engine);
    else if (s->n > 0)
        next_probe(engine);
}
