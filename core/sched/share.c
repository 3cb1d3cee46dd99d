// SPDX-License-Identifier: Apache-2.0
// Whose turn it is. Sequences are shared by tenant, within a tenant by request: who has fewest
// running goes first, then who came first. So each request has its turn while another one's further
// choices wait, and each tenant while another one's requests do; and since at equal numbers arrival
// decides, the oldest request always runs with one sequence at least, and nobody starves.
//
// Tenants that wait are compared one by one: there are few places for them. The requests of a
// tenant stand in lists by their number of running sequences in doublings, so that nothing here
// costs more with more requests.
#include "core/sched/sched_impl.h"

static uint32_t rank_of(uint32_t running)
{
    uint32_t rank = 0;
    for (; running > 0 && rank + 1 < PLM_SHARE_RANKS; running /= 2)
        rank++;
    return rank;
}

static struct plm_seq *first_of(const struct plm_share *share, bool begun)
{
    if (share->waiting.head != NULL)
        return share->waiting.head;
    return begun ? NULL : share->queued;
}

// ---- lists of sequences ----

void plm_seq_insert(struct plm_seq_list *list, struct plm_seq *at, struct plm_seq *seq)
{
    seq->next = at;
    seq->prev = at != NULL ? at->prev : list->tail;
    if (seq->prev != NULL)
        seq->prev->next = seq;
    else
        list->head = seq;
    if (at != NULL)
        at->prev = seq;
    else
        list->tail = seq;
    list->n++;
}

void plm_seq_unlink(struct plm_seq_list *list, struct plm_seq *seq)
{
    if (seq->prev != NULL)
        seq->prev->next = seq->next;
    else
        list->head = seq->next;
    if (seq->next != NULL)
        seq->next->prev = seq->prev;
    else
        list->tail = seq->prev;
    seq->prev = seq->next = NULL;
    list->n--;
}

// ---- lists of requests ----

static void unlist(struct plm_sched *s, struct plm_share *share)
{
    struct plm_tenant *tenant = &s->tenants[share->tenant];
    struct plm_share_list *list = &tenant->ranks[share->rank];
    if (!share->listed)
        return;
    if (share->prev != NULL)
        share->prev->next = share->next;
    else
        list->head = share->next;
    if (share->next != NULL)
        share->next->prev = share->prev;
    else
        list->tail = share->prev;
    share->prev = share->next = NULL;
    share->listed = false;
    if (--tenant->waiting == 0)
        s->tenants_waiting &= ~(UINT64_C(1) << share->tenant);
}

// Those with nothing running stand by arrival, the others take turns.
static struct plm_share *place_of(const struct plm_share_list *list, const struct plm_share *share)
{
    struct plm_share *at = NULL;
    const uint64_t order = first_of(share, false)->order;
    if (share->rank == 0 && list->tail != NULL && first_of(list->tail, false)->order > order)
        for (at = list->head; first_of(at, false)->order < order;)
            at = at->next;
    return at;
}

static void list(struct plm_sched *s, struct plm_share *share)
{
    struct plm_tenant *tenant = &s->tenants[share->tenant];
    if (first_of(share, false) == NULL)
        return;
    share->rank = (uint8_t)rank_of(share->running);
    struct plm_share_list *list = &tenant->ranks[share->rank];
    struct plm_share *at = place_of(list, share);
    share->next = at;
    share->prev = at != NULL ? at->prev : list->tail;
    if (share->prev != NULL)
        share->prev->next = share;
    else
        list->head = share;
    if (at != NULL)
        at->prev = share;
    else
        list->tail = share;
    share->listed = true;
    tenant->waiting++;
    s->tenants_waiting |= UINT64_C(1) << share->tenant;
}

// ---- what changes ----

void plm_share_join(struct plm_seq *seq)
{
    seq->share = seq->parent != NULL ? seq->parent->share : &seq->own_share;
    if (seq->parent == NULL)
        seq->own_share = (struct plm_share){.tenant = (uint32_t)(seq->tenant % PLM_TENANTS)};
}

void plm_share_count(struct plm_sched *s, struct plm_seq *seq, int by)
{
    struct plm_share *share = seq->share;
    s->changes++;
    s->tenants[share->tenant].running += (uint32_t)by;
    if (!share->listed) {
        share->running += (uint32_t)by;
        return;
    }
    unlist(s, share);
    share->running += (uint32_t)by;
    list(s, share);
}

void plm_share_wait(struct plm_sched *s, struct plm_seq *seq)
{
    struct plm_share *share = seq->share;
    s->changes++;
    unlist(s, share);
    if (seq->state == PLM_SEQ_QUEUED) {
        share->queued = seq;
    } else {
        // Preempted ones come youngest first, released forks oldest first.
        struct plm_seq *at = NULL;
        if (share->waiting.tail != NULL && share->waiting.tail->order > seq->order)
            for (at = share->waiting.head; at->order < seq->order;)
                at = at->next;
        plm_seq_insert(&share->waiting, at, seq);
        s->paused++;
    }
    list(s, share);
}

void plm_share_unwait(struct plm_sched *s, struct plm_seq *seq)
{
    struct plm_share *share = seq->share;
    s->changes++;
    unlist(s, share);
    if (share->queued == seq) {
        share->queued = NULL;
    } else {
        plm_seq_unlink(&share->waiting, seq);
        s->paused--;
    }
    list(s, share);
}

// ---- whose turn it is ----

static struct plm_seq *next_of(const struct plm_tenant *tenant, bool begun)
{
    for (uint32_t rank = 0; rank < PLM_SHARE_RANKS; rank++) {
        for (struct plm_share *at = tenant->ranks[rank].head; at != NULL; at = at->next) {
            struct plm_seq *seq = first_of(at, begun);
            if (seq != NULL)
                return seq;
        }
    }
    return NULL;
}

struct plm_seq *plm_share_next(const struct plm_sched *s, bool begun)
{
    struct plm_seq *best = NULL;
    uint32_t least = UINT32_MAX;
    if (s->paused == 0 && (begun || s->queue.n == 0))
        return NULL;
    for (uint64_t left = s->tenants_waiting; left != 0; left &= left - 1) {
        const struct plm_tenant *tenant = &s->tenants[__builtin_ctzll(left)];
        if (tenant->running > least)
            continue;
        struct plm_seq *seq = next_of(tenant, begun);
        if (seq == NULL || (tenant->running == least && seq->order > best->order))
            continue;
        best = seq;
        least = tenant->running;
    }
    return best;
}

struct plm_seq *plm_share_next_selected(const struct plm_sched *s)
{
    struct plm_seq *best = NULL;
    for (uint32_t i = 0; i < PLM_TENANTS * PLM_SHARE_RANKS; i++) {
        const struct plm_tenant *tenant = &s->tenants[i / PLM_SHARE_RANKS];
        const struct plm_share *at = tenant->ranks[i % PLM_SHARE_RANKS].head;
        for (; at != NULL; at = at->next) {
            struct plm_seq *seq = at->waiting.head;
            while (seq != NULL && !seq->selected)
                seq = seq->next;
            if (seq != NULL && (best == NULL || seq->order < best->order))
                best = seq;
        }
    }
    return best;
}

// ---- who gives way ----

// Whether the share of `running` is larger than that of `waiting` even after one changed places.
static bool has_more(const struct plm_sched *s, const struct plm_share *running,
                     const struct plm_share *waiting)
{
    if (running->tenant != waiting->tenant)
        return s->tenants[running->tenant].running > s->tenants[waiting->tenant].running + 1;
    return running->running > waiting->running + 1;
}

static bool is_larger(const struct plm_sched *s, const struct plm_seq *a, const struct plm_seq *b)
{
    const uint32_t of_a = s->tenants[a->share->tenant].running;
    const uint32_t of_b = s->tenants[b->share->tenant].running;
    if (of_a != of_b)
        return of_a > of_b;
    if (a->share->running != b->share->running)
        return a->share->running > b->share->running;
    return a->order > b->order;
}

struct plm_seq *plm_share_victim(const struct plm_sched *s, const struct plm_seq *seq)
{
    struct plm_seq *victim = NULL;
    const struct plm_seq *oldest = NULL;
    for (uint32_t i = 0; i < s->running; i++) {
        struct plm_seq *at = s->slots[i].seq;
        oldest = oldest == NULL || at->order < oldest->order ? at : oldest;
        if (at->n_tokens >= at->stays_until && has_more(s, at->share, seq->share) &&
            (victim == NULL || is_larger(s, at, victim)))
            victim = at;
    }
    // The younger ones of its request came back too lately: the next to come may find one.
    return victim == oldest ? NULL : victim;
}
