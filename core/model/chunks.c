// SPDX-License-Identifier: Apache-2.0
#include "core/model/chunks.h"

#include "core/base/thread.h"

struct worker {
    struct plm_chunks *chunks;
    struct plm_chunk chunk;
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

struct plm_chunks {
    struct plm_host *host;
    const struct plm_gguf *gguf;
    struct plm_device *device;
    uint64_t n_put, n_taken; // chunk n has worker n % PLM_CHUNK_WORKERS
    uint32_t n_workers;      // whose locks are there
    struct worker workers[PLM_CHUNK_WORKERS];
};

// ---- a worker ----

static void read_and_relay(struct worker *s)
{
    const struct plm_chunks *chunks = s->chunks;
    const struct plm_chunk *c = &s->chunk;
    const struct plm_weight *w = c->weight;
    s->err = (struct plm_error){0};
    s->status = plm_gguf_read(chunks->gguf, w->tensor, c->file_at, s->file, c->file_bytes, &s->err);
    if (s->status == PLM_OK)
        plm_device_weight_pack(chunks->device, w->tensor->type, w->n_in, w->n_out, c->first,
                               c->rows, s->file, c->visible != NULL ? c->visible : s->image);
}

static void *run(void *arg)
{
    struct worker *s = arg;
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

static bool begin_worker(struct plm_chunks *chunks, struct worker *s)
{
    s->chunks = chunks;
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return false;
    if (pthread_cond_init(&s->changed, NULL) == 0)
        return true;
    pthread_mutex_destroy(&s->lock);
    return false;
}

static void end_worker(struct worker *s)
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
    plm_free(s->chunks->host, s->image);
    plm_free(s->chunks->host, s->file);
}

// ---- all ----

struct plm_chunks *plm_chunks_create(struct plm_host *host, const struct plm_gguf *gguf,
                                     struct plm_device *device)
{
    struct plm_chunks *chunks = plm_calloc(host, PLM_HOST_MODEL, 1, sizeof(*chunks));
    if (chunks == NULL)
        return NULL;
    chunks->host = host;
    chunks->gguf = gguf;
    chunks->device = device;
    while (chunks->n_workers < PLM_CHUNK_WORKERS) {
        if (!begin_worker(chunks, &chunks->workers[chunks->n_workers])) {
            plm_chunks_destroy(chunks);
            return NULL;
        }
        chunks->n_workers++;
    }
    return chunks;
}

void plm_chunks_destroy(struct plm_chunks *chunks)
{
    if (chunks == NULL)
        return;
    for (uint32_t i = 0; i < chunks->n_workers; i++)
        end_worker(&chunks->workers[i]);
    plm_free(chunks->host, chunks);
}

bool plm_chunks_is_full(const struct plm_chunks *chunks)
{
    return chunks->n_put - chunks->n_taken == PLM_CHUNK_WORKERS;
}

bool plm_chunks_is_empty(const struct plm_chunks *chunks)
{
    return chunks->n_put == chunks->n_taken;
}

static bool take_buffer(struct plm_chunks *chunks, void **buffer)
{
    if (*buffer == NULL)
        *buffer = plm_malloc(chunks->host, PLM_HOST_MODEL, PLM_CHUNK_BYTES);
    return *buffer != NULL;
}

int plm_chunks_put(struct plm_chunks *chunks, const struct plm_chunk *chunk, struct plm_error *err)
{
    struct worker *s = &chunks->workers[chunks->n_put % PLM_CHUNK_WORKERS];
    if (!take_buffer(chunks, &s->file) ||
        (chunk->visible == NULL && !take_buffer(chunks, &s->image)))
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to read and re-lay %llu bytes",
                        PLM_CHUNK_BYTES);
    chunks->n_put++;
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

int plm_chunks_take(struct plm_chunks *chunks, struct plm_chunk *ret, struct plm_error *err)
{
    struct worker *s = &chunks->workers[chunks->n_taken++ % PLM_CHUNK_WORKERS];
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
    const int r = plm_device_copy_in(chunks->device, ret->addr, s->image, ret->bytes);
    return r == PLM_OK ? r
                       : plm_fail(err, r, "weights could not be copied to the device %s: %s",
                                  plm_device_caps(chunks->device)->name, plm_strstatus(r));
}
