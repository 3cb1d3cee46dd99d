// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/staging.h"

#include <string.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/memory.h"
#include "backends/vulkan/types.h"

// Loading moves gigabytes: the host fills one segment while the others travel. Given back before
// the peak is measured.
#define LOAD_SEGMENTS 4u
#define LOAD_BYTES    (16ull << 20)
// A step's inputs are some hundred KiB at most; results of some rows of logits go in pieces.
#define SERVE_SEGMENTS 4u
#define SERVE_BYTES    (1ull << 20)
#define COPIES         64u // that wait in one segment; a step has about ten

struct copy {
    struct plm_vk_range to;
    uint64_t ring_offset;
};

// A part of a ring with the commands that empty it.
struct segment {
    VkCommandPool pool;
    VkCommandBuffer commands;
    uint64_t begin; // in the ring
    uint64_t used;
    uint32_t n;
    struct copy copies[COPIES];
    bool recorded;
    VkSemaphore busy_until; // this timeline reaches busy_value; VK_NULL_HANDLE: idle
    uint64_t busy_value;
};

struct ring {
    struct plm_vk_memory memory;
    uint64_t charged;
    uint64_t segment_bytes;
    uint32_t n, next;
    struct segment segments[LOAD_SEGMENTS];
};
_Static_assert(SERVE_SEGMENTS <= LOAD_SEGMENTS, "both rings have room");

struct plm_vk_staging {
    struct ring load, serve;
    int64_t host_charged; // for the serving ring
};

// ---- rings ----

static void ring_destroy(struct plm_backend_device *dev, struct ring *ring)
{
    for (uint32_t i = 0; i < ring->n; i++)
        dev->vk->DestroyCommandPool(dev->handle, ring->segments[i].pool, NULL);
    plm_vk_memory_destroy(dev, &ring->memory);
    atomic_fetch_sub(&dev->taken_bytes, ring->charged);
    memset(ring, 0, sizeof(*ring));
}

static int ring_create(struct plm_backend_device *dev, uint32_t n, uint64_t segment_bytes,
                       struct ring *ring)
{
    const struct plm_vk_types *types = &dev->physical.types;
    ring->segment_bytes = segment_bytes;
    int rc = plm_vk_memory_create(dev, types->pinned, n * segment_bytes, &ring->memory);
    if (rc != PLM_OK)
        return rc;
    if (dev->physical.memory.memoryTypes[types->pinned].heapIndex == types->heap)
        ring->charged = ring->memory.taken;
    atomic_fetch_add(&dev->taken_bytes, ring->charged);
    for (ring->n = 0; ring->n < n && rc == PLM_OK; ring->n++) {
        ring->segments[ring->n].begin = ring->n * segment_bytes;
        struct segment *s = &ring->segments[ring->n];
        rc = plm_vk_commands_create(dev, 1, &s->pool, &s->commands);
    }
    return rc;
}

int plm_vk_staging_create(struct plm_backend_device *dev, struct plm_vk_staging **ret)
{
    struct plm_vk_staging *s = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*s));
    if (s == NULL)
        return PLM_ERR_NOMEM_HOST;
    int rc = ring_create(dev, LOAD_SEGMENTS, LOAD_BYTES, &s->load);
    if (rc == PLM_OK)
        rc = ring_create(dev, SERVE_SEGMENTS, SERVE_BYTES, &s->serve);
    // What stays is in one account or the other.
    if (rc == PLM_OK && s->serve.charged == 0) {
        rc = plm_host_charge(dev->host, PLM_HOST_DEVICE, (int64_t)s->serve.memory.taken);
        s->host_charged = rc == PLM_OK ? (int64_t)s->serve.memory.taken : 0;
    }
    if (rc != PLM_OK) {
        plm_vk_staging_destroy(dev, s);
        return rc;
    }
    *ret = s;
    return PLM_OK;
}

void plm_vk_staging_destroy(struct plm_backend_device *dev, struct plm_vk_staging *s)
{
    if (s == NULL)
        return;
    ring_destroy(dev, &s->load);
    ring_destroy(dev, &s->serve);
    plm_host_discharge(dev->host, PLM_HOST_DEVICE, s->host_charged);
    plm_free(dev->host, s);
}

uint64_t plm_vk_staging_trim(struct plm_backend_device *dev)
{
    struct plm_vk_staging *s = dev->staging;
    if (s == NULL || s->load.n == 0)
        return 0;
    plm_vk_settle(dev);
    const uint64_t bytes = s->load.memory.taken;
    ring_destroy(dev, &s->load);
    return bytes;
}

// ---- segments ----

// The next segment of a ring, empty, once the device is done with what was in it.
static int segment_take(struct plm_backend_device *dev, struct ring *ring, struct segment **ret)
{
    struct segment *s = &ring->segments[ring->next];
    if (s->busy_until != VK_NULL_HANDLE) {
        int rc = plm_vk_finish(dev, s->busy_until, s->busy_value);
        if (rc != PLM_OK)
            return rc;
        s->busy_until = VK_NULL_HANDLE;
        s->n = 0;
        s->used = 0;
        s->recorded = false;
    }
    *ret = s;
    return PLM_OK;
}

static void segment_leave(struct ring *ring, VkSemaphore timeline, uint64_t value)
{
    struct segment *s = &ring->segments[ring->next];
    s->busy_until = timeline;
    s->busy_value = value;
    ring->next = (ring->next + 1) % ring->n;
}

static bool overlaps(const struct plm_vk_range *a, const struct plm_vk_range *b)
{
    return a->addr < b->addr + b->bytes && b->addr < a->addr + a->bytes;
}

// Whether copy i of a segment writes where one since `since` wrote.
static bool rewrites(const struct segment *s, uint32_t since, uint32_t i)
{
    for (uint32_t k = since; k < i; k++) {
        if (overlaps(&s->copies[k].to, &s->copies[i].to))
            return true;
    }
    return false;
}

static void record_copy(const struct plm_backend_device *dev, VkCommandBuffer commands,
                        VkBuffer src, uint64_t src_offset, VkBuffer dst, uint64_t dst_offset,
                        uint64_t bytes)
{
    const VkBufferCopy2 region = {.sType = VK_STRUCTURE_TYPE_BUFFER_COPY_2,
                                  .srcOffset = src_offset,
                                  .dstOffset = dst_offset,
                                  .size = bytes};
    const VkCopyBufferInfo2 info = {.sType = VK_STRUCTURE_TYPE_COPY_BUFFER_INFO_2,
                                    .srcBuffer = src,
                                    .dstBuffer = dst,
                                    .regionCount = 1,
                                    .pRegions = &region};
    dev->vk->CmdCopyBuffer2(commands, &info);
}

static int record_begin(struct plm_backend_device *dev, struct segment *s)
{
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkResult r = dev->vk->ResetCommandPool(dev->handle, s->pool, 0);
    if (r == VK_SUCCESS)
        r = dev->vk->BeginCommandBuffer(s->commands, &begin);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    // All that was submitted before has read and written what is copied now.
    plm_vk_memory_barrier(dev, s->commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                          VK_ACCESS_2_MEMORY_WRITE_BIT, VK_PIPELINE_STAGE_2_COPY_BIT,
                          VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT);
    return PLM_OK;
}

// The copies of a segment into the device.
static int record(struct plm_backend_device *dev, const struct ring *ring, struct segment *s)
{
    int rc = record_begin(dev, s);
    if (rc != PLM_OK)
        return rc;
    uint32_t since = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct copy *c = &s->copies[i];
        if (rewrites(s, since, i)) {
            plm_vk_memory_barrier(dev, s->commands, VK_PIPELINE_STAGE_2_COPY_BIT,
                                  VK_ACCESS_2_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_2_COPY_BIT,
                                  VK_ACCESS_2_TRANSFER_WRITE_BIT);
            since = i;
        }
        record_copy(dev, s->commands, ring->memory.buffer, c->ring_offset, c->to.buffer,
                    c->to.offset, c->to.bytes);
    }
    plm_vk_memory_barrier(dev, s->commands, VK_PIPELINE_STAGE_2_COPY_BIT,
                          VK_ACCESS_2_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                          VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT);
    rc = plm_vk_status(dev, dev->vk->EndCommandBuffer(s->commands));
    s->recorded = rc == PLM_OK;
    return rc;
}

// Submits commands on the copies' own timeline, after those that wait in the serving ring.
static int submit(struct plm_backend_device *dev, VkCommandBuffer commands)
{
    struct plm_vk_staging *staging = dev->staging;
    VkCommandBufferSubmitInfo buffers[2];
    uint32_t n = 0;
    VkCommandBuffer waiting;
    int rc = plm_vk_staging_flush(dev, &waiting);
    if (rc != PLM_OK)
        return rc;
    const VkCommandBuffer both[2] = {waiting, commands};
    for (uint32_t i = 0; i < 2; i++) {
        if (both[i] != VK_NULL_HANDLE)
            buffers[n++] = (VkCommandBufferSubmitInfo){
                .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = both[i]};
    }
    const VkSemaphoreSubmitInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                          .semaphore = dev->copies.semaphore,
                                          .value = dev->copies.value + 1,
                                          .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    const VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                .commandBufferInfoCount = n,
                                .pCommandBufferInfos = buffers,
                                .signalSemaphoreInfoCount = 1,
                                .pSignalSemaphoreInfos = &signal};
    rc = plm_vk_status(dev, dev->vk->QueueSubmit2(dev->queue, 1, &info, VK_NULL_HANDLE));
    if (rc != PLM_OK)
        return rc;
    dev->copies.value++;
    if (waiting != VK_NULL_HANDLE)
        segment_leave(&staging->serve, dev->copies.semaphore, dev->copies.value);
    return PLM_OK;
}

int plm_vk_staging_flush(struct plm_backend_device *dev, VkCommandBuffer *ret)
{
    struct plm_vk_staging *staging = dev->staging;
    *ret = VK_NULL_HANDLE;
    if (staging == NULL)
        return PLM_OK;
    struct segment *s = &staging->serve.segments[staging->serve.next];
    if (s->busy_until != VK_NULL_HANDLE || s->n == 0)
        return PLM_OK;
    int rc = s->recorded ? PLM_OK : record(dev, &staging->serve, s);
    if (rc == PLM_OK)
        *ret = s->commands;
    return rc;
}

void plm_vk_staging_submitted(struct plm_backend_device *dev, uint64_t value)
{
    struct plm_vk_staging *staging = dev->staging;
    if (staging == NULL)
        return;
    struct segment *s = &staging->serve.segments[staging->serve.next];
    if (s->busy_until == VK_NULL_HANDLE && s->recorded)
        segment_leave(&staging->serve, dev->timeline.semaphore, value);
}

void plm_vk_staging_forget(struct plm_backend_device *dev, uint64_t addr, uint64_t bytes)
{
    struct plm_vk_staging *staging = dev->staging;
    if (staging == NULL)
        return;
    const struct plm_vk_range gone = {.addr = addr, .bytes = bytes};
    struct segment *s = &staging->serve.segments[staging->serve.next];
    uint32_t kept = 0;
    for (uint32_t i = 0; s->busy_until == VK_NULL_HANDLE && i < s->n; i++) {
        if (!overlaps(&s->copies[i].to, &gone))
            s->copies[kept++] = s->copies[i];
    }
    if (s->busy_until == VK_NULL_HANDLE && kept < s->n) {
        s->n = kept;
        s->used = kept > 0 ? s->used : 0; // without a copy, no submit would empty the segment
        s->recorded = false;
    }
}

// ---- copies ----

// What of a range comes after `done` bytes, of at most so many.
static struct plm_vk_range part_of(const struct plm_vk_range *whole, uint64_t done, uint64_t most)
{
    struct plm_vk_range part = *whole;
    part.addr += done;
    part.offset += done;
    part.bytes = whole->bytes - done < most ? whole->bytes - done : most;
    return part;
}

// Puts a copy into a segment of a ring, which must have room for it.
static void segment_append(const struct ring *ring, struct segment *s,
                           const struct plm_vk_range *to, const void *src)
{
    s->copies[s->n++] = (struct copy){.to = *to, .ring_offset = s->begin + s->used};
    memcpy((char *)ring->memory.host + s->begin + s->used, src, to->bytes);
    s->used += (to->bytes + 15) / 16 * 16; // copies of aligned words are the fast ones
    s->recorded = false;
}

// A piece of a load: it travels at once.
static int load_piece(struct plm_backend_device *dev, const struct plm_vk_range *to,
                      const void *src)
{
    struct plm_vk_staging *staging = dev->staging;
    struct ring *ring = &staging->load;
    struct segment *s;
    int rc = segment_take(dev, ring, &s);
    if (rc != PLM_OK)
        return rc;
    s->n = 0; // what a submit that failed left
    s->used = 0;
    segment_append(ring, s, to, src);
    rc = record(dev, ring, s);
    if (rc == PLM_OK)
        rc = submit(dev, s->commands);
    if (rc == PLM_OK)
        segment_leave(ring, dev->copies.semaphore, dev->copies.value);
    return rc;
}

// A piece that waits for the next submit of a list; a full segment travels at once.
static int serve_piece(struct plm_backend_device *dev, const struct plm_vk_range *to,
                       const void *src)
{
    struct ring *ring = &dev->staging->serve;
    struct segment *s;
    int rc = segment_take(dev, ring, &s);
    if (rc != PLM_OK)
        return rc;
    if (s->n == COPIES || to->bytes > ring->segment_bytes - s->used) {
        rc = submit(dev, VK_NULL_HANDLE);
        if (rc == PLM_OK)
            rc = segment_take(dev, ring, &s);
        if (rc != PLM_OK)
            return rc;
    }
    segment_append(ring, s, to, src);
    return PLM_OK;
}

int plm_vk_staging_in(struct plm_backend_device *dev, const struct plm_vk_range *to,
                      const void *src)
{
    struct plm_vk_staging *staging = dev->staging;
    const bool load = staging->load.n > 0 && to->bytes > staging->serve.segment_bytes / 4;
    const uint64_t most = load ? staging->load.segment_bytes : staging->serve.segment_bytes;
    for (uint64_t done = 0; done < to->bytes;) {
        const struct plm_vk_range piece = part_of(to, done, most);
        const void *from = (const char *)src + done;
        int rc = load ? load_piece(dev, &piece, from) : serve_piece(dev, &piece, from);
        if (rc != PLM_OK)
            return rc;
        done += piece.bytes;
    }
    return PLM_OK;
}

// A piece out of the device: copied into a segment, waited for, read.
static int piece_out(struct plm_backend_device *dev, struct ring *ring, void *dst,
                     const struct plm_vk_range *from)
{
    struct segment *s;
    // What waits goes first, so that the segment taken is an empty one.
    VkCommandBuffer waiting;
    int rc = plm_vk_staging_flush(dev, &waiting);
    if (rc == PLM_OK && waiting != VK_NULL_HANDLE)
        rc = submit(dev, VK_NULL_HANDLE);
    if (rc == PLM_OK)
        rc = segment_take(dev, ring, &s);
    if (rc == PLM_OK)
        rc = record_begin(dev, s);
    if (rc != PLM_OK)
        return rc;
    record_copy(dev, s->commands, from->buffer, from->offset, ring->memory.buffer, s->begin,
                from->bytes);
    plm_vk_memory_barrier(dev, s->commands, VK_PIPELINE_STAGE_2_COPY_BIT,
                          VK_ACCESS_2_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_2_HOST_BIT,
                          VK_ACCESS_2_HOST_READ_BIT);
    rc = plm_vk_status(dev, dev->vk->EndCommandBuffer(s->commands));
    if (rc == PLM_OK)
        rc = submit(dev, s->commands);
    if (rc != PLM_OK)
        return rc;
    rc = plm_vk_finish(dev, dev->copies.semaphore, dev->copies.value);
    if (rc == PLM_OK)
        memcpy(dst, (const char *)ring->memory.host + s->begin, from->bytes);
    return rc;
}

int plm_vk_staging_out(struct plm_backend_device *dev, void *dst, const struct plm_vk_range *from)
{
    struct plm_vk_staging *staging = dev->staging;
    struct ring *ring = staging->load.n > 0 ? &staging->load : &staging->serve;
    for (uint64_t done = 0; done < from->bytes;) {
        const struct plm_vk_range piece = part_of(from, done, ring->segment_bytes);
        int rc = piece_out(dev, ring, (char *)dst + done, &piece);
        if (rc != PLM_OK)
            return rc;
        done += piece.bytes;
    }
    return PLM_OK;
}
