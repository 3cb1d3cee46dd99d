// SPDX-License-Identifier: Apache-2.0
// Fault bisection: the one request at which steps fail is found by replays of ever fewer of them.
#include "core/engine/bisect.h"

#include <string.h>

#include "core/engine/request.h"

int plm_bisect_init(struct plm_bisect *b, struct plm_host *host, struct plm_sched *sched,
                    plim_metrics *counts, uint32_t max_sequences)
{
    *b = (struct plm_bisect){.sched = sched, .counts = counts};
    b->candidates = plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(struct plim_request *));
    return b->candidates != NULL ? PLM_OK : PLM_ERR_NOMEM_HOST;
}

void plm_bisect_finish(struct plm_bisect *b, struct plm_host *host)
{
    plm_free(host, b->candidates);
    b->candidates = NULL;
}

static uint64_t arrival(const struct plim_request *request)
{
    return request->choices[0].seq.order;
}

// ---- candidates ----

static void forget_candidate(struct plim_request *request)
{
    request->candidate = false;
    for (uint32_t i = 0; i < request->n; i++) {
        request->choices[i].goal = 0;
        request->choices[i].seq.selected = false;
    }
}

static void add_candidate(struct plm_bisect *b, struct plim_request *request)
{
    if (request->candidate)
        return;
    request->candidate = true;
    uint32_t at = b->n++;
    for (; at > 0 && arrival(b->candidates[at - 1]) > arrival(request); at--)
        b->candidates[at] = b->candidates[at - 1];
    b->candidates[at] = request;
}

static void keep_only(struct plm_bisect *b, struct plim_request *request)
{
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->candidates[i] != request)
            forget_candidate(b->candidates[i]);
    }
    b->candidates[0] = request;
    b->n = 1;
}

void plm_bisect_end(struct plm_bisect *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        forget_candidate(b->candidates[i]);
    b->n = b->n_probe = 0;
    plm_sched_restrict(b->sched, false);
}

// Those with rows in the step that failed, in the place of the candidates that there were: a probe
// holds no others. They are cleared when they have computed what they were about to compute.
static void collect(struct plm_bisect *b)
{
    struct plm_seq *seq;
    plm_bisect_end(b);
    for (uint32_t i = 0; (seq = plm_sched_running_at(b->sched, i)) != NULL; i++) {
        struct plm_choice *choice = (struct plm_choice *)seq;
        const uint32_t rows = plm_sched_rows(b->sched, seq);
        if (rows == 0)
            continue;
        choice->goal = seq->n_computed + rows;
        add_candidate(b, choice->request);
    }
    b->n_probe = b->n;
}

// ---- probes ----

// Whether what is wrong with a request may come from another one, with blocks of the prefix cache.
static bool shares_cache(const struct plim_request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        if (request->choices[i].seq.use_cache && request->choices[i].seq.shares_cache)
            return true;
    }
    return false;
}

// All of it is computed anew then, with no block of others; those are not trusted any more.
static void share_nothing(struct plm_bisect *b, struct plim_request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        struct plm_seq *seq = &request->choices[i].seq;
        plm_sched_forget(b->sched, seq);
        seq->use_cache = false;
        if (seq->state == PLM_SEQ_RUNNING)
            plm_sched_preempt(b->sched, seq);
    }
}

static void next_probe(struct plm_bisect *b)
{
    b->n_probe = b->one_by_one ? 1 : b->n - b->n / 2;
    for (uint32_t i = 0; i < b->n; i++) {
        struct plim_request *request = b->candidates[i];
        for (uint32_t c = 0; c < request->n; c++)
            request->choices[c].seq.selected = i < b->n_probe;
    }
    if (b->n_probe == 1 && shares_cache(b->candidates[0]))
        share_nothing(b, b->candidates[0]);
    plm_sched_restrict(b->sched, true);
    b->counts->replays++;
}

static void remove_candidates(struct plm_bisect *b, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        forget_candidate(b->candidates[i]);
    memmove(&b->candidates[first], &b->candidates[first + n],
            (b->n - first - n) * sizeof(struct plim_request *));
    b->n -= n;
    if (first < b->n_probe)
        b->n_probe -= n;
    if (b->n == 0)
        plm_bisect_end(b);
    else if (b->n_probe == 0)
        next_probe(b);
}

void plm_bisect_drop(struct plm_bisect *b, struct plim_request *request)
{
    for (uint32_t i = 0; request->candidate && i < b->n; i++) {
        if (b->candidates[i] == request)
            remove_candidates(b, i, 1);
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
            choice->seq.selected = false;
        }
    }
}

void plm_bisect_passed(struct plm_bisect *b)
{
    bool all = true;
    for (uint32_t i = 0; i < b->n_probe; i++) {
        step_aside(b->candidates[i]);
        all = all && cleared(b->candidates[i]);
    }
    if (!all)
        return;
    if (b->n > 0)
        remove_candidates(b, 0, b->n_probe);
}

bool plm_bisect_make_room(struct plm_bisect *b)
{
    struct plm_seq *seq, *victim = NULL;
    if (b->n == 0)
        return false;
    for (uint32_t i = 0; (seq = plm_sched_running_at(b->sched, i)) != NULL; i++) {
        if (!seq->selected && (victim == NULL || seq->order > victim->order))
            victim = seq;
    }
    if (victim != NULL)
        plm_sched_preempt(b->sched, victim);
    else
        plm_bisect_end(b); // what waits in it can not run alone either
    return true;
}

// ---- verdicts ----

struct plim_request *plm_bisect_take_faulty(struct plm_bisect *b)
{
    return b->n_faulty > 0 ? b->candidates[--b->n_faulty] : NULL;
}

void plm_bisect_failed(struct plm_bisect *b, int status, struct plim_request *culprit)
{
    collect(b);
    b->one_by_one = false;
    plm_sched_abandon(b->sched);
    if (culprit != NULL)
        keep_only(b, culprit);
    if (b->n > 1 || (status == PLM_ERR_NUMERIC && shares_cache(b->candidates[0]))) {
        next_probe(b);
        return;
    }
    culprit = b->candidates[0];
    plm_bisect_end(b);
    for (uint32_t i = 0; i < culprit->n; i++)
        plm_sched_forget(b->sched, &culprit->choices[i].seq);
    b->candidates[0] = culprit;
    b->n_faulty = 1;
}

void plm_bisect_lost(struct plm_bisect *b, uint64_t loss, bool again)
{
    const bool alone = b->n > 0 && b->n_probe == 1;
    uint32_t n_faulty = 0;
    collect(b);
    b->one_by_one = true;
    plm_sched_abandon(b->sched);
    const uint32_t n = b->n;
    // Whoever is left after a second loss was in one of them alone.
    if (again || alone)
        plm_bisect_end(b);
    for (uint32_t i = 0; i < n; i++) {
        struct plim_request *request = b->candidates[i];
        const bool both = again && request->lost_with + 1 == loss;
        request->lost_with = loss;
        if (alone || both)
            b->candidates[n_faulty++] = request;
    }
    b->n_faulty = n_faulty;
    if (b->n > 0)
        next_probe(b);
}
