// SPDX-License-Identifier: Apache-2.0
// Copies of pageable memory go through buffers of the driver's that it takes and grows as it likes.
// So every copy goes through pinned rings of our own, taken at open.
#include <string.h>

#include "backends/gpudrv/impl.h"

// Loading moves gigabytes: the host fills one segment while the others travel. Given back before
// the peak is measured.
#define LOAD_BYTES (16ull << 20)
// A step's inputs are some hundred KiB at most; results of some rows of logits go in pieces.
#define SERVE_BYTES (1ull << 20)
#define SEGMENTS    4u
#define ALIGN       256u // copies of aligned pieces are the fast ones

// A part of a ring: filled from its start, left when it is full or something else is to go first.
struct segment {
    void *event; // after the last copy out of it, once it was left
    bool busy;   // left, and the event was not seen yet
    uint64_t used;
};

struct ring {
    char *host; // NULL: given back
    uint64_t segment_bytes;
    uint32_t next; // the segment that is filled
    struct segment segments[SEGMENTS];
};

struct plm_gpu_staging {
    struct ring load, serve;
    int64_t charged; // to the host's budget, for the serving ring, which stays
};

// ---- rings ----

static void ring_destroy(struct plm_backend_device *dev, struct ring *ring)
{
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        if (ring->segments[i].event != NULL)
            dev->driver->event_destroy(dev->lib, ring->segments[i].event);
    }
    if (ring->host != NULL)
        dev->driver->host_free(dev->lib, ring->host);
    memset(ring, 0, sizeof(*ring));
}

static int ring_create(struct plm_backend_device *dev, uint64_t segment_bytes, struct ring *ring)
{
    void *host;
    uint64_t addr;
    plm_gpu_r r = dev->driver->host_alloc(dev->lib, SEGMENTS * segment_bytes, &host, &addr);
    if (r == PLM_GPU_OUT_OF_MEMORY)
        return PLM_ERR_NOMEM_HOST;
    if (r != PLM_GPU_OK)
        return plm_gpu_status(dev, r);
    ring->host = host;
    ring->segment_bytes = segment_bytes;
    for (uint32_t i = 0; i < SEGMENTS && r == PLM_GPU_OK; i++)
        r = dev->driver->event_create(dev->lib, &ring->segments[i].event);
    return plm_gpu_status(dev, r);
}

int plm_gpu_staging_create(struct plm_backend_device *dev, struct plm_gpu_staging **ret)
{
    struct plm_gpu_staging *s = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*s));
    if (s == NULL)
        return PLM_ERR_NOMEM_HOST;
    int rc = ring_create(dev, LOAD_BYTES, &s->load);
    if (rc == PLM_OK)
        rc = ring_create(dev, SERVE_BYTES, &s->serve);
    if (rc == PLM_OK)
        rc = plm_host_charge(dev->host, PLM_HOST_DEVICE, SEGMENTS * SERVE_BYTES);
    if (rc == PLM_OK)
        s->charged = SEGMENTS * SERVE_BYTES;
    if (rc != PLM_OK) {
        plm_gpu_staging_destroy(dev, s);
        return rc;
    }
    *ret = s;
    return PLM_OK;
}

void plm_gpu_staging_destroy(struct plm_backend_device *dev, struct plm_gpu_staging *s)
{
    if (s == NULL)
        return;
    ring_destroy(dev, &s->load);
    ring_destroy(dev, &s->serve);
    plm_host_discharge(dev->host, PLM_HOST_DEVICE, s->charged);
    plm_free(dev->host, s);
}

uint64_t plm_gpu_staging_trim(struct plm_backend_device *dev)
{
    struct ring *load = &dev->staging->load;
    const uint64_t bytes = load->host != NULL ? SEGMENTS * load->segment_bytes : 0;
    ring_destroy(dev, load);
    return bytes;
}

// ---- segments ----

// The segment that is filled, once the device is done with what was in it.
static int segment_take(struct plm_backend_device *dev, struct ring *ring, struct segment **ret)
{
    struct segment *s = &ring->segments[ring->next];
    if (s->busy) {
        int rc = plm_gpu_finish(dev, s->event);
        if (rc != PLM_OK)
            return rc;
        s->busy = false;
        s->used = 0;
    }
    *ret = s;
    return PLM_OK;
}

static int segment_leave(struct plm_backend_device *dev, struct ring *ring)
{
    struct segment *s = &ring->segments[ring->next];
    int rc = plm_gpu_status(dev, dev->driver->event_record(dev->lib, s->event, dev->stream));
    if (rc != PLM_OK)
        return rc;
    s->busy = true;
    ring->next = (ring->next + 1) % SEGMENTS;
    return PLM_OK;
}

// A segment with room for so many bytes (at most its size), and where they begin.
static int segment_room(struct plm_backend_device *dev, struct ring *ring, uint64_t bytes,
                        struct segment **ret, char **ret_at)
{
    int rc = segment_take(dev, ring, ret);
    if (rc == PLM_OK && bytes > ring->segment_bytes - (*ret)->used) {
        rc = segment_leave(dev, ring);
        if (rc == PLM_OK)
            rc = segment_take(dev, ring, ret);
    }
    if (rc == PLM_OK)
        *ret_at =
            ring->host + (uint64_t)(*ret - ring->segments) * ring->segment_bytes + (*ret)->used;
    return rc;
}

// ---- copies ----

// Parts that fit into a segment, as one copy.
static int piece_in(struct plm_backend_device *dev, struct ring *ring, uint64_t dst,
                    const struct plm_copy_part *parts, uint32_t n)
{
    const uint64_t from = parts[0].at, bytes = parts[n - 1].at + parts[n - 1].bytes - from;
    struct segment *s;
    char *at;
    int rc = segment_room(dev, ring, bytes, &s, &at);
    if (rc != PLM_OK)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        memcpy(at + (parts[i].at - from), parts[i].src, parts[i].bytes);
    dst += from;
    rc = plm_gpu_status(dev, dev->driver->copy_in(dev->lib, dev->stream, dst, at, bytes));
    if (rc != PLM_OK)
        return rc;
    s->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return PLM_OK;
}

// One part of any size.
static int part_in(struct plm_backend_device *dev, uint64_t dst, const struct plm_copy_part *part)
{
    struct plm_gpu_staging *s = dev->staging;
    // Small copies of a load keep out of the way of its large ones.
    struct ring *ring =
        s->load.host != NULL && part->bytes > s->serve.segment_bytes / 4 ? &s->load : &s->serve;
    for (uint64_t done = 0; done < part->bytes;) {
        const uint64_t left = part->bytes - done;
        const struct plm_copy_part piece = {
            .src = (const char *)part->src + done,
            .at = part->at + done,
            .bytes = left < ring->segment_bytes ? left : ring->segment_bytes};
        int rc = piece_in(dev, ring, dst, &piece, 1);
        if (rc != PLM_OK)
            return rc;
        done += piece.bytes;
    }
    return PLM_OK;
}

int plm_gpu_staging_in(struct plm_backend_device *dev, uint64_t dst,
                       const struct plm_copy_part *parts, uint32_t n)
{
    struct ring *serve = &dev->staging->serve;
    int rc = PLM_OK;
    for (uint32_t i = 0, end; i < n && rc == PLM_OK; i = end) {
        end = i + 1;
        while (end < n && parts[end].at + parts[end].bytes - parts[i].at <= serve->segment_bytes)
            end++;
        rc = end == i + 1 ? part_in(dev, dst, &parts[i])
                          : piece_in(dev, serve, dst, &parts[i], end - i);
    }
    return rc;
}

// The segment is left, so that its event tells when the bytes are there.
static int piece_out(struct plm_backend_device *dev, struct ring *ring, void *dst, uint64_t src,
                     uint64_t bytes)
{
    struct segment *s;
    char *at;
    int rc = segment_room(dev, ring, bytes, &s, &at);
    if (rc == PLM_OK)
        rc = plm_gpu_status(dev, dev->driver->copy_out(dev->lib, dev->stream, at, src, bytes));
    if (rc == PLM_OK)
        rc = segment_leave(dev, ring);
    if (rc == PLM_OK)
        rc = plm_gpu_finish(dev, s->event);
    if (rc == PLM_OK)
        memcpy(dst, at, bytes);
    return rc;
}

int plm_gpu_staging_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    struct plm_gpu_staging *s = dev->staging;
    struct ring *ring = s->load.host != NULL ? &s->load : &s->serve;
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t left = bytes - done;
        const uint64_t piece = left < ring->segment_bytes ? left : ring->segment_bytes;
        int rc = piece_out(dev, ring, (char *)dst + done, src + done, piece);
        if (rc != PLM_OK)
            return rc;
        done += piece;
    }
    return PLM_OK;
}
