// SPDX-License-Identifier: Apache-2.0
#include "core/model/staging.h"

#include "core/base/thread.h"

struct stage {
    struct plm_staging *staging;
    struct plm_staging_chunk chunk;
    void *file;  // what is read
    void *image; // what is copied in, where the host does not see the device's memory
    int status;
    struct plm_error err;

    pthread_t thread;
    bool has_thread; // else the owner does its work
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool busy, quit; // under lock; busy: the chunk is the thread's
};

struct plm_staging {
    struct plm_host *host;
    const struct plm_gguf *gguf;
    struct plm_device *device;
    uint64_t n_put, n_taken; // chunk n has stage n % STAGES
    uint32_t n_stages;       // whose locks are there
    struct stage stages[PLM_STAGING_STAGES];
};

// ---- a stage ----

static void read_and_relay(struct stage *s)
{
    const struct plm_staging *staging = s->staging;
    const struct plm_staging_chunk *c = &s->chunk;
    const struct plm_weight *w = c->weight;
    s->err = (struct plm_error){0};
    s->status =
        plm_gguf_read(staging->gguf, w->tensor, c->file_at, s->file, c->file_bytes, &s->err);
    if (s->status == PLM_OK)
        plm_device_weight_pack(staging->device, w->tensor->type, w->n_in, w->n_out, c->first,
                               c->rows, s->file, c->visible != NULL ? c->visible : s->image);
}

static void *run(void *arg)
{
    struct stage *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->quit)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->quit)
            break;
        pthread_mutex_unlock(&s->lock);
        read_and_relay(s);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static bool begin_stage(struct plm_staging *staging, struct stage *s)
{
    s->staging = staging;
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return false;
    if (pthread_cond_init(&s->changed, NULL) == 0)
        return true;
    pthread_mutex_destroy(&s->lock);
    return false;
}

static void end_stage(struct stage *s)
{
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->quit = true; // a chunk that it has is finished first
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    plm_free(s->staging->host, s->image);
    plm_free(s->staging->host, s->file);
}

// ---- all ----

struct plm_staging *plm_staging_create(struct plm_host *host, const struct plm_gguf *gguf,
                                       struct plm_device *device)
{
    struct plm_staging *staging = plm_calloc(host, PLM_HOST_MODEL, 1, sizeof(*staging));
    if (staging == NULL)
        return NULL;
    staging->host = host;
    staging->gguf = gguf;
    staging->device = device;
    while (staging->n_stages < PLM_STAGING_STAGES) {
        if (!begin_stage(staging, &staging->stages[staging->n_stages])) {
            plm_staging_destroy(staging);
            return NULL;
        }
        staging->n_stages++;
    }
    return staging;
}

void plm_staging_destroy(struct plm_staging *staging)
{
    if (staging == NULL)
        return;
    for (uint32_t i = 0; i < staging->n_stages; i++)
        end_stage(&staging->stages[i]);
    plm_free(staging->host, staging);
}

bool plm_staging_is_full(const struct plm_staging *staging)
{
    return staging->n_put - staging->n_taken == PLM_STAGING_STAGES;
}

bool plm_staging_is_empty(const struct plm_staging *staging)
{
    return staging->n_put == staging->n_taken;
}

static bool take_buffer(struct plm_staging *staging, void **buffer)
{
    if (*buffer == NULL)
        *buffer = plm_malloc(staging->host, PLM_HOST_MODEL, PLM_STAGING_BYTES);
    return *buffer != NULL;
}

int plm_staging_put(struct plm_staging *staging, const struct plm_staging_chunk *chunk,
                    struct plm_error *err)
{
    struct stage *s = &staging->stages[staging->n_put % PLM_STAGING_STAGES];
    if (!take_buffer(staging, &s->file) ||
        (chunk->visible == NULL && !take_buffer(staging, &s->image)))
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to read and re-lay %llu bytes",
                        PLM_STAGING_BYTES);
    staging->n_put++;
    s->chunk = *chunk;
    s->has_thread = s->has_thread || plm_thread_start(&s->thread, 0, run, s);
    if (!s->has_thread) {
        read_and_relay(s);
        return PLM_OK;
    }
    pthread_mutex_lock(&s->lock);
    s->busy = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return PLM_OK;
}

int plm_staging_take(struct plm_staging *staging, struct plm_staging_chunk *ret,
                     struct plm_error *err)
{
    struct stage *s = &staging->stages[staging->n_taken++ % PLM_STAGING_STAGES];
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    *ret = s->chunk;
    if (s->status != PLM_OK) {
        if (err != NULL)
            *err = s->err;
        return s->status;
    }
    if (ret->visible != NULL)
        return PLM_OK;
    const int r = plm_device_copy_in(staging->device, ret->addr, s->image, ret->bytes);
    return r == PLM_OK ? r
                       : plm_fail(err, r, "weights could not be copied to the device %s: %s",
                                  plm_device_caps(staging->device)->name, plm_strstatus(r));
}
