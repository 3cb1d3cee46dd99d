// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/workers.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct list {
    struct plm_job *first, *last;
    size_t n;
};

struct plm_workers {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct list waiting, finished;
    size_t jobs_max;
    bool closing, joined;
    int fd;
    unsigned n_threads;
    unsigned n_large; // of them that run a large job
    struct thread {
        pthread_t id;
        struct plm_workers *workers;
        uint64_t owner; // of the job that it took last
        bool used;      // it took one
    } threads[];
};

static void append(struct list *list, struct plm_job *job)
{
    job->next = NULL;
    if (list->last != NULL)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
    list->n++;
}

static void cut(struct list *list, struct plm_job *before, struct plm_job *job)
{
    if (before != NULL)
        before->next = job->next;
    else
        list->first = job->next;
    if (list->last == job)
        list->last = before;
    list->n--;
}

// How many threads took a job of that owner last.
static unsigned served(const struct plm_workers *w, uint64_t owner)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_threads; i++)
        n += w->threads[i].used && w->threads[i].owner == owner;
    return n;
}

// Whether one more thread may run a large job.
static bool takes_large(const struct plm_workers *w)
{
    return w->n_large == 0 || w->n_large + 1 < w->n_threads;
}

// The next job, or NULL. Looks at all that wait, which are bounded.
static struct plm_job *take(struct plm_workers *w)
{
    struct plm_job *found = NULL, *before_found = NULL, *before = NULL;
    unsigned least = UINT_MAX;
    for (struct plm_job *job = w->waiting.first; job != NULL && least > 0; job = job->next) {
        const unsigned n = job->large && !takes_large(w) ? UINT_MAX : served(w, job->owner);
        if (n < least) {
            least = n;
            found = job;
            before_found = before;
        }
        before = job;
    }
    if (found != NULL)
        cut(&w->waiting, before_found, found);
    return found;
}

static void *work(void *arg)
{
    struct thread *self = arg;
    struct plm_workers *w = self->workers;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        struct plm_job *job = take(w);
        if (job == NULL && w->closing)
            break; // what is left are large jobs, for those that run one
        if (job == NULL) {
            pthread_cond_wait(&w->cond, &w->mutex);
            continue;
        }
        self->owner = job->owner;
        self->used = true;
        w->n_large += job->large;
        pthread_mutex_unlock(&w->mutex);
        job->run(job);
        pthread_mutex_lock(&w->mutex);
        w->n_large -= job->large;
        append(&w->finished, job);
        uint64_t one = 1;
        ssize_t r = write(w->fd, &one, sizeof(one));
        (void)r; // fails only when it is readable already
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

struct plm_workers *plm_workers_create(unsigned threads, size_t jobs_max, bool *ret_no_thread)
{
    struct plm_workers *w = calloc(1, sizeof(*w) + threads * sizeof(w->threads[0]));
    if (w == NULL)
        return NULL;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->cond, NULL);
    w->jobs_max = jobs_max;
    w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_lock(&w->mutex); // they look at n_threads
    while (w->fd >= 0 && w->n_threads < threads) {
        struct thread *thread = &w->threads[w->n_threads];
        thread->workers = w;
        if (pthread_create(&thread->id, NULL, work, thread) != 0)
            break;
        w->n_threads++;
    }
    pthread_mutex_unlock(&w->mutex);
    if (w->n_threads == threads)
        return w;
    *ret_no_thread |= w->fd >= 0;
    plm_workers_destroy(w);
    return NULL;
}

void plm_workers_join(struct plm_workers *w)
{
    if (w->joined)
        return;
    w->joined = true;
    pthread_mutex_lock(&w->mutex);
    w->closing = true;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mutex);
    for (unsigned i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i].id, NULL);
}

void plm_workers_destroy(struct plm_workers *w)
{
    if (w == NULL)
        return;
    plm_workers_join(w);
    if (w->fd >= 0)
        close(w->fd);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->cond);
    free(w);
}

int plm_workers_fd(const struct plm_workers *w)
{
    return w->fd;
}

bool plm_workers_push(struct plm_workers *w, struct plm_job *job)
{
    pthread_mutex_lock(&w->mutex);
    bool room = w->waiting.n < w->jobs_max && !w->closing;
    if (room) {
        append(&w->waiting, job);
        pthread_cond_signal(&w->cond);
    }
    pthread_mutex_unlock(&w->mutex);
    return room;
}

struct plm_job *plm_workers_finished(struct plm_workers *w)
{
    uint64_t count;
    ssize_t r = read(w->fd, &count, sizeof(count));
    (void)r;
    pthread_mutex_lock(&w->mutex);
    struct plm_job *first = w->finished.first;
    w->finished = (struct list){0};
    pthread_mutex_unlock(&w->mutex);
    return first;
}
