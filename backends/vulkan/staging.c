// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "backends/vulkan/impl.h"

// Loading moves gigabytes: the host fills one segment while the others travel. Given back before
// the peak is measured.
#define LOAD_SEGMENTS 4u
#define LOAD_BYTES    (16ull << 20)
// A step's inputs are some hundred KiB at most; results of some rows of logits go in pieces.
#define SERVE_SEGMENTS 4u
#define SERVE_BYTES    (1ull << 20)
#define COPIES         64u // that wait in one segment; a step has about ten

struct copy {
    uint64_t at; // device address, to find overlaps
    VkBuffer buffer;
    uint64_t offset; // in it
    uint64_t ring_offset;
    uint64_t bytes;
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
    // Copies have a timeline of their own, so that the values of submitted lists grow by one.
    VkSemaphore timeline;
    uint64_t value;
};

// ---- rings ----

static int segment_create(struct plm_backend_device *dev, struct segment *s)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = dev->physical.queue_family};
    VkResult r = dev->vk->CreateCommandPool(dev->handle, &pool, NULL, &s->pool);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    const VkCommandBufferAllocateInfo info = {.sType =
                                                  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = s->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = 1};
    return plm_vk_status(dev, dev->vk->AllocateCommandBuffers(dev->handle, &info, &s->commands));
}

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
    if (rc == PLM_OK && dev->physical.type == VK_PHYSICAL_DEVICE_TYPE_CPU)
        rc = plm_hostmem_commit(&dev->machine, ring->memory.host, n * segment_bytes, NULL, NULL);
    if (rc != PLM_OK)
        return rc;
    if (dev->physical.memory.memoryTypes[types->pinned].heapIndex == types->heap)
        ring->charged = ring->memory.taken;
    atomic_fetch_add(&dev->taken_bytes, ring->charged);
    for (ring->n = 0; ring->n < n && rc == PLM_OK; ring->n++) {
        ring->segments[ring->n].begin = ring->n * segment_bytes;
        rc = segment_create(dev, &ring->segments[ring->n]);
    }
    return rc;
}

int plm_vk_staging_create(struct plm_backend_device *dev, struct plm_vk_staging **ret)
{
    struct plm_vk_staging *s = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*s));
    if (s == NULL)
        return PLM_ERR_NOMEM_HOST;
    int rc = plm_vk_timeline_create(dev, &s->timeline);
    if (rc == PLM_OK)
        rc = ring_create(dev, LOAD_SEGMENTS, LOAD_BYTES, &s->load);
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
    dev->vk->DestroySemaphore(dev->handle, s->timeline, NULL);
    plm_free(dev->host, s);
}

int plm_vk_staging_settle(struct plm_backend_device *dev, int64_t timeout_ns)
{
    return plm_vk_timeline_wait(dev, dev->staging->timeline, dev->staging->value, timeout_ns);
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
        int rc = plm_vk_timeline_wait(dev, s->busy_until, s->busy_value, -1);
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

static void barrier(const struct plm_backend_device *dev, VkCommandBuffer commands,
                    VkPipelineStageFlags2 before, VkAccessFlags2 wrote, VkPipelineStageFlags2 after,
                    VkAccessFlags2 access)
{
    const VkMemoryBarrier2 memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                     .srcStageMask = before,
                                     .srcAccessMask = wrote,
                                     .dstStageMask = after,
                                     .dstAccessMask = access};
    const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                   .memoryBarrierCount = 1,
                                   .pMemoryBarriers = &memory};
    dev->vk->CmdPipelineBarrier2(commands, &info);
}

static bool overlaps(const struct copy *a, const struct copy *b)
{
    return a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

// Whether copy i of a segment writes where one since `since` wrote.
static bool rewrites(const struct segment *s, uint32_t since, uint32_t i)
{
    for (uint32_t k = since; k < i; k++) {
        if (overlaps(&s->copies[k], &s->copies[i]))
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
    barrier(dev, s->commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_WRITE_BIT,
            VK_PIPELINE_STAGE_2_COPY_BIT,
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
            barrier(dev, s->commands, VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT,
                    VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT);
            since = i;
        }
        record_copy(dev, s->commands, ring->memory.buffer, c->ring_offset, c->buffer, c->offset,
                    c->bytes);
    }
    barrier(dev, s->commands, VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
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
                                          .semaphore = staging->timeline,
                                          .value = staging->value + 1,
                                          .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    const VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                .commandBufferInfoCount = n,
                                .pCommandBufferInfos = buffers,
                                .signalSemaphoreInfoCount = 1,
                                .pSignalSemaphoreInfos = &signal};
    rc = plm_vk_status(dev, dev->vk->QueueSubmit2(dev->queue, 1, &info, VK_NULL_HANDLE));
    if (rc != PLM_OK)
        return rc;
    staging->value++;
    if (waiting != VK_NULL_HANDLE)
        segment_leave(&staging->serve, staging->timeline, staging->value);
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
        segment_leave(&staging->serve, dev->timeline, value);
}

void plm_vk_staging_forget(struct plm_backend_device *dev, uint64_t addr, uint64_t bytes)
{
    struct plm_vk_staging *staging = dev->staging;
    if (staging == NULL)
        return;
    const struct copy gone = {.at = addr, .bytes = bytes};
    struct segment *s = &staging->serve.segments[staging->serve.next];
    uint32_t kept = 0;
    for (uint32_t i = 0; s->busy_until == VK_NULL_HANDLE && i < s->n; i++) {
        if (!overlaps(&s->copies[i], &gone))
            s->copies[kept++] = s->copies[i];
    }
    if (s->busy_until == VK_NULL_HANDLE && kept < s->n) {
        s->n = kept;
        s->recorded = false;
    }
}

// ---- copies ----

// Puts a copy into a segment of a ring, which must have room for it.
static void segment_append(const struct ring *ring, struct segment *s, const struct copy *copy,
                           const void *src)
{
    s->copies[s->n] = *copy;
    s->copies[s->n].ring_offset = s->begin + s->used;
    memcpy((char *)ring->memory.host + s->begin + s->used, src, copy->bytes);
    s->n++;
    s->used += (copy->bytes + 15) / 16 * 16; // copies of aligned words are the fast ones
    s->recorded = false;
}

// A piece of a load: it travels at once.
static int load_piece(struct plm_backend_device *dev, const struct copy *copy, const void *src)
{
    struct plm_vk_staging *staging = dev->staging;
    struct ring *ring = &staging->load;
    struct segment *s;
    int rc = segment_take(dev, ring, &s);
    if (rc != PLM_OK)
        return rc;
    s->n = 0; // what a submit that failed left
    s->used = 0;
    segment_append(ring, s, copy, src);
    rc = record(dev, ring, s);
    if (rc == PLM_OK)
        rc = submit(dev, s->commands);
    if (rc == PLM_OK)
        segment_leave(ring, staging->timeline, staging->value);
    return rc;
}

// A piece that waits for the next submit of a list; a full segment travels at once.
static int serve_piece(struct plm_backend_device *dev, const struct copy *copy, const void *src)
{
    struct ring *ring = &dev->staging->serve;
    struct segment *s;
    int rc = segment_take(dev, ring, &s);
    if (rc != PLM_OK)
        return rc;
    if (s->n == COPIES || copy->bytes > ring->segment_bytes - s->used) {
        rc = submit(dev, VK_NULL_HANDLE);
        if (rc == PLM_OK)
            rc = segment_take(dev, ring, &s);
        if (rc != PLM_OK)
            return rc;
    }
    segment_append(ring, s, copy, src);
    return PLM_OK;
}

static int ring_in(struct plm_backend_device *dev, const struct copy *whole, const void *src)
{
    struct plm_vk_staging *staging = dev->staging;
    const bool load = staging->load.n > 0 && whole->bytes > staging->serve.segment_bytes / 4;
    const uint64_t most = load ? staging->load.segment_bytes : staging->serve.segment_bytes;
    for (uint64_t done = 0; done < whole->bytes;) {
        const uint64_t rest = whole->bytes - done;
        const struct copy piece = {.at = whole->at + done,
                                   .buffer = whole->buffer,
                                   .offset = whole->offset + done,
                                   .bytes = rest < most ? rest : most};
        const void *from = (const char *)src + done;
        int rc = load ? load_piece(dev, &piece, from) : serve_piece(dev, &piece, from);
        if (rc != PLM_OK)
            return rc;
        done += piece.bytes;
    }
    return PLM_OK;
}

// A piece out of the device: copied into a segment, waited for, read.
static int piece_out(struct plm_backend_device *dev, struct ring *ring, const struct copy *copy,
                     void *dst)
{
    struct plm_vk_staging *staging = dev->staging;
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
    record_copy(dev, s->commands, copy->buffer, copy->offset, ring->memory.buffer, s->begin,
                copy->bytes);
    barrier(dev, s->commands, VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT);
    rc = plm_vk_status(dev, dev->vk->EndCommandBuffer(s->commands));
    if (rc == PLM_OK)
        rc = submit(dev, s->commands);
    if (rc != PLM_OK)
        return rc;
    rc = plm_vk_timeline_wait(dev, staging->timeline, staging->value, -1);
    if (rc == PLM_OK)
        memcpy(dst, (const char *)ring->memory.host + s->begin, copy->bytes);
    return rc;
}

static int ring_out(struct plm_backend_device *dev, void *dst, const struct copy *whole)
{
    struct plm_vk_staging *staging = dev->staging;
    struct ring *ring = staging->load.n > 0 ? &staging->load : &staging->serve;
    for (uint64_t done = 0; done < whole->bytes;) {
        const uint64_t rest = whole->bytes - done;
        const struct copy piece = {.buffer = whole->buffer,
                                   .offset = whole->offset + done,
                                   .bytes =
                                       rest < ring->segment_bytes ? rest : ring->segment_bytes};
        int rc = piece_out(dev, ring, &piece, (char *)dst + done);
        if (rc != PLM_OK)
            return rc;
        done += piece.bytes;
    }
    return PLM_OK;
}

// Where the address lies; host: where the host may copy by itself, once the device is done, else
// NULL.
static int locate(struct plm_backend_device *dev, uint64_t addr, uint64_t bytes, struct copy *ret,
                  void **ret_host)
{
    *ret = (struct copy){.at = addr, .bytes = bytes};
    if (!plm_vk_find(dev, addr, &ret->buffer, &ret->offset, ret_host))
        return PLM_ERR_INVALID;
    if (*ret_host == NULL)
        return PLM_OK;
    *ret_host = (char *)*ret_host + ret->offset;
    return plm_vk_timeline_wait(dev, dev->timeline, dev->value, -1);
}

int plm_vk_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes)
{
    struct copy whole;
    void *host;
    int rc = locate(dev, dst, bytes, &whole, &host);
    if (rc != PLM_OK)
        return rc;
    if (host == NULL)
        return ring_in(dev, &whole, src);
    memcpy(host, src, bytes);
    return PLM_OK;
}

int plm_vk_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    struct copy whole;
    void *host;
    int rc = locate(dev, src, bytes, &whole, &host);
    if (rc != PLM_OK)
        return rc;
    if (host == NULL)
        return ring_out(dev, dst, &whole);
    memcpy(dst, host, bytes);
    return PLM_OK;
}
