// SPDX-License-Identifier: Apache-2.0
// Launches are host records. At submit they are compared with what the command buffers hold:
// decode repeats its list, because its inputs lie at fixed addresses and only their contents
// change, and then nothing is recorded. On an H100 that saves 0.6 ms of 500 dispatches.
#include "backends/vulkan/list.h"

#include <string.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/pipelines.h"
#include "backends/vulkan/split.h"
#include "backends/vulkan/staging.h"
#include "backends/vulkan/variants.h"
#include "core/base/checked.h"

// Lists that are kept recorded: a decode step, its neighbour with one sequence more or less, a
// chunk of a prompt, and one that comes and goes (blocks that move, a check).
#define RECORDINGS 4
// A command buffer is recorded anew while an earlier submit of it still runs only when the caller
// did not wait for four steps. Longer than any step; the caller's own watch ends before.
#define REUSE_WAIT_NS INT64_C(60000000000)

// One launch. Compared by its bytes: there is no padding.
struct dispatch {
    VkPipeline pipeline;
    uint64_t work; // plm_vk_work
    struct plm_vk_grid grid;
    uint16_t args_bytes;
    uint16_t barrier; // before it
    unsigned char args[PLM_VK_PUSH_BYTES];
};

// A list as a driver holds it.
struct recording {
    VkCommandPool pool;
    VkCommandBuffer *parts; // n_parts of the list
    struct dispatch *dispatches;
    uint32_t n;      // 0: nothing that can be submitted again
    uint32_t n_used; // parts that the recorded list has
    uint64_t limit;  // of work per part, as it was cut by
    uint64_t work;   // of all dispatches
    uint64_t value;  // of its last submit
};

struct plm_vk_list {
    uint32_t cap, n;
    uint32_t n_parts; // command buffers of a recording
    bool barrier;     // before the next launch
    struct dispatch *dispatches;
    struct recording recordings[RECORDINGS];
    struct plm_vk_pace pace;
    const struct recording *running; // went last, and its end was not seen yet
    int64_t submitted_ns;
    VkSemaphore part_timeline; // tells the driver that parts are jobs of their own
    uint64_t part_value;
    VkSubmitInfo2 *infos; // n_parts of each
    VkCommandBufferSubmitInfo *buffers;
    VkSemaphoreSubmitInfo *signals;
    struct plm_vk_list_counters counters;
};

// ---- life ----

static int create_recording(struct plm_backend_device *dev, struct plm_vk_list *list,
                            struct recording *rec)
{
    rec->dispatches = plm_calloc(dev->host, PLM_HOST_DEVICE, list->cap, sizeof(*rec->dispatches));
    rec->parts = plm_calloc(dev->host, PLM_HOST_DEVICE, list->n_parts, sizeof(VkCommandBuffer));
    if (rec->dispatches == NULL || rec->parts == NULL)
        return PLM_ERR_NOMEM_HOST;
    return plm_vk_commands_create(dev, list->n_parts, &rec->pool, rec->parts);
}

static int create_submit(struct plm_backend_device *dev, struct plm_vk_list *list)
{
    const uint32_t n = list->n_parts;
    list->infos = plm_calloc(dev->host, PLM_HOST_DEVICE, n, sizeof(*list->infos));
    list->buffers = plm_calloc(dev->host, PLM_HOST_DEVICE, n + 1, sizeof(*list->buffers));
    list->signals = plm_calloc(dev->host, PLM_HOST_DEVICE, n, sizeof(*list->signals));
    if (list->infos == NULL || list->buffers == NULL || list->signals == NULL)
        return PLM_ERR_NOMEM_HOST;
    for (uint32_t i = 0; i <= n; i++)
        list->buffers[i].sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO;
    return plm_vk_timeline_create(dev, &list->part_timeline);
}

int plm_vk_list_create(struct plm_backend_device *dev, uint32_t max_dispatches,
                       struct plm_vk_list **ret, struct plm_error *err)
{
    struct plm_vk_list *list = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*list));
    int r = list != NULL ? PLM_OK : PLM_ERR_NOMEM_HOST;
    if (r == PLM_OK) {
        list->cap = max_dispatches;
        list->n_parts = plm_vk_parts(dev->caps.max_submit_ms, max_dispatches);
        plm_vk_pace_init(&list->pace, dev->caps.max_submit_ms);
        list->dispatches =
            plm_calloc(dev->host, PLM_HOST_DEVICE, max_dispatches, sizeof(*list->dispatches));
        r = list->dispatches != NULL ? create_submit(dev, list) : PLM_ERR_NOMEM_HOST;
    }
    for (uint32_t i = 0; i < RECORDINGS && r == PLM_OK; i++)
        r = create_recording(dev, list, &list->recordings[i]);
    if (r != PLM_OK) {
        plm_vk_list_destroy(dev, list);
        return plm_fail(err, r, "no command buffers for lists of %u dispatches: %s", max_dispatches,
                        plm_strstatus(r));
    }
    *ret = list;
    return PLM_OK;
}

void plm_vk_list_destroy(struct plm_backend_device *dev, struct plm_vk_list *list)
{
    if (list == NULL)
        return;
    for (uint32_t i = 0; i < RECORDINGS; i++) {
        struct recording *rec = &list->recordings[i];
        dev->vk->DestroyCommandPool(dev->handle, rec->pool, NULL);
        plm_free(dev->host, rec->dispatches);
        plm_free(dev->host, rec->parts);
    }
    dev->vk->DestroySemaphore(dev->handle, list->part_timeline, NULL);
    plm_free(dev->host, list->infos);
    plm_free(dev->host, list->buffers);
    plm_free(dev->host, list->signals);
    plm_free(dev->host, list->dispatches);
    plm_free(dev->host, list);
}

// ---- the open list ----

int plm_vk_append(struct plm_backend_device *dev, const struct plm_vk_kernel *kernel,
                  const void *args, size_t args_bytes)
{
    struct plm_vk_list *list = dev->list;
    const VkPipeline pipeline = plm_vk_pipeline_find(dev->pipelines, kernel);
    if (pipeline == VK_NULL_HANDLE)
        return PLM_ERR_UNSUPPORTED;
    if (list->n == list->cap)
        return PLM_ERR_LIMIT;
    struct dispatch *d = &list->dispatches[list->n];
    *d = (struct dispatch){
        .pipeline = pipeline,
        .work = plm_vk_work(plm_vk_kernel_op(kernel), args),
        .grid = plm_vk_kernel_grid(kernel, args),
        .args_bytes = (uint16_t)args_bytes,
        .barrier = list->n > 0 && list->barrier,
    };
    memcpy(d->args, args, args_bytes);
    list->barrier = false;
    list->n++;
    return PLM_OK;
}

int plm_vk_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                  size_t args_bytes)
{
    (void)units; // a kernel's grid follows from the arguments
    struct plm_vk_kernel kernel;
    const uint32_t index = plm_vk_chosen(&dev->pipelines->choices, op, args);
    if (atomic_load(&dev->lost))
        return PLM_ERR_LOST;
    int r = plm_vk_kernel_of(&dev->pipelines->kernels, op, args, index, &kernel);
    return r == PLM_OK ? plm_vk_append(dev, &kernel, args, args_bytes) : r;
}

int plm_vk_barrier(struct plm_backend_device *dev)
{
    dev->list->barrier = true;
    return atomic_load(&dev->lost) ? PLM_ERR_LOST : PLM_OK;
}

void plm_vk_discard(struct plm_backend_device *dev)
{
    dev->list->n = 0;
    dev->list->barrier = false;
}

// ---- recording ----

#define SHADER_READ_WRITE                                                                          \
    (VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT)

static int begin_part(struct plm_backend_device *dev, VkCommandBuffer part)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    int r = plm_vk_status(dev, dev->vk->BeginCommandBuffer(part, &info));
    if (r == PLM_OK) // what ran before: earlier lists and parts, and copies
        plm_vk_memory_barrier(dev, part,
                              VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_COPY_BIT,
                              VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT,
                              VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, SHADER_READ_WRITE);
    return r;
}

static int end_part(struct plm_backend_device *dev, VkCommandBuffer part)
{
    plm_vk_memory_barrier(dev, part, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT,
                          VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT,
                          VK_PIPELINE_STAGE_2_COPY_BIT | VK_PIPELINE_STAGE_2_HOST_BIT,
                          VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT |
                              VK_ACCESS_2_HOST_READ_BIT | VK_ACCESS_2_HOST_WRITE_BIT);
    return plm_vk_status(dev, dev->vk->EndCommandBuffer(part));
}

static void record_piece(const struct plm_backend_device *dev, VkCommandBuffer part,
                         const struct dispatch *d, const struct plm_vk_piece *piece)
{
    if (d->barrier && piece->index == 0)
        plm_vk_memory_barrier(dev, part, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT,
                              VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT,
                              VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, SHADER_READ_WRITE);
    dev->vk->CmdBindPipeline(part, VK_PIPELINE_BIND_POINT_COMPUTE, d->pipeline);
    dev->vk->CmdPushConstants(part, dev->pipelines->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                              d->args_bytes, d->args);
    dev->vk->CmdDispatchBase(part, piece->base.x, piece->base.y, piece->base.z, piece->size.x,
                             piece->size.y, piece->size.z);
}

// Parts of the open list under a limit of work per part; recorded into rec, where there is one.
static int walk(struct plm_backend_device *dev, struct recording *rec, uint64_t limit,
                uint32_t *ret_parts)
{
    const struct plm_vk_list *list = dev->list;
    struct plm_vk_cut cut = {.limit = limit};
    uint32_t begun = 0;
    int r = PLM_OK;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct dispatch *d = &list->dispatches[i];
        const uint32_t pieces = plm_vk_pieces(limit, d->work, d->grid);
        for (uint32_t k = 0; k < pieces; k++) {
            const uint32_t part = plm_vk_cut_add(&cut, d->work / pieces);
            if (rec == NULL)
                continue;
            if (part == begun) {
                if (begun > 0)
                    r = end_part(dev, rec->parts[begun - 1]);
                if (r == PLM_OK)
                    r = begin_part(dev, rec->parts[begun++]);
                if (r != PLM_OK)
                    return r;
            }
            const struct plm_vk_piece piece = plm_vk_piece(d->grid, pieces, k);
            record_piece(dev, rec->parts[part], d, &piece);
        }
    }
    *ret_parts = cut.n_parts;
    return begun > 0 ? end_part(dev, rec->parts[begun - 1]) : PLM_OK;
}

// The limit under which the open list has no more parts than there are command buffers.
static uint64_t fit_limit(struct plm_backend_device *dev, uint64_t limit)
{
    uint32_t parts;
    while (walk(dev, NULL, limit, &parts) == PLM_OK && parts > dev->list->n_parts)
        limit = limit < UINT64_MAX / 2 ? limit * 2 : UINT64_MAX;
    return limit;
}

static int record(struct plm_backend_device *dev, struct recording *rec, uint64_t limit)
{
    struct plm_vk_list *list = dev->list;
    rec->n = 0;
    int r = plm_vk_status(dev, dev->vk->ResetCommandPool(dev->handle, rec->pool, 0));
    if (r == PLM_OK)
        r = walk(dev, rec, limit, &rec->n_used);
    if (r != PLM_OK)
        return r;
    memcpy(rec->dispatches, list->dispatches, list->n * sizeof(*list->dispatches));
    rec->n = list->n;
    rec->limit = limit;
    rec->work = 0;
    for (uint32_t i = 0; i < list->n; i++)
        rec->work += list->dispatches[i].work;
    list->counters.recorded++;
    return PLM_OK;
}

// The recording of the open list: the one that holds it, or the one that was used longest ago,
// recorded anew.
static int find_recording(struct plm_backend_device *dev, struct recording **ret)
{
    struct plm_vk_list *list = dev->list;
    struct recording *oldest = &list->recordings[0];
    const uint64_t limit = fit_limit(dev, plm_vk_pace_limit(&list->pace));
    for (uint32_t i = 0; i < RECORDINGS; i++) {
        struct recording *rec = &list->recordings[i];
        if (rec->value < oldest->value)
            oldest = rec;
        if (rec->n != list->n || rec->limit != limit ||
            memcmp(rec->dispatches, list->dispatches, list->n * sizeof(*list->dispatches)) != 0)
            continue;
        list->counters.repeated++;
        *ret = rec;
        return plm_vk_wait(dev, rec->value, REUSE_WAIT_NS);
    }
    *ret = oldest;
    int r = plm_vk_wait(dev, oldest->value, REUSE_WAIT_NS);
    return r == PLM_OK ? record(dev, oldest, limit) : r;
}

// ---- submit ----

// Batches of one call, which the driver takes all or none. Each but the last signals a timeline
// that nobody waits for: without a signal drivers join neighbouring batches into one job.
static uint32_t fill_batches(struct plm_backend_device *dev, const struct recording *rec,
                             VkCommandBuffer flush, uint64_t value)
{
    struct plm_vk_list *list = dev->list;
    const uint32_t n = rec != NULL && rec->n_used > 0 ? rec->n_used : 1;
    uint32_t buffer = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = buffer;
        if (i == 0 && flush != VK_NULL_HANDLE)
            list->buffers[buffer++].commandBuffer = flush;
        if (rec != NULL)
            list->buffers[buffer++].commandBuffer = rec->parts[i];
        list->signals[i] = (VkSemaphoreSubmitInfo){
            .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
            .semaphore = i == n - 1 ? dev->timeline.semaphore : list->part_timeline,
            .value = i == n - 1 ? value : list->part_value + i + 1,
            .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
        };
        list->infos[i] = (VkSubmitInfo2){
            .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
            .commandBufferInfoCount = buffer - first,
            .pCommandBufferInfos = &list->buffers[first],
            .signalSemaphoreInfoCount = 1,
            .pSignalSemaphoreInfos = &list->signals[i],
        };
    }
    return n;
}

static void submitted(struct plm_backend_device *dev, struct recording *rec, uint32_t parts)
{
    struct plm_vk_list *list = dev->list;
    list->running = rec;
    list->part_value += parts - 1;
    list->counters.parts += parts;
    list->submitted_ns = plm_now(dev->clock);
    if (rec != NULL)
        rec->value = dev->timeline.value;
}

int plm_vk_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    struct plm_vk_list *list = dev->list;
    struct recording *rec = NULL;
    VkCommandBuffer flush = VK_NULL_HANDLE;
    if (atomic_load(&dev->lost))
        return PLM_ERR_LOST;
    int r = plm_vk_staging_flush(dev, &flush);
    if (r == PLM_OK && list->n > 0)
        r = find_recording(dev, &rec);
    if (r == PLM_OK) {
        const uint32_t n = fill_batches(dev, rec, flush, dev->timeline.value + 1);
        r = plm_vk_status(dev, dev->vk->QueueSubmit2(dev->queue, n, list->infos, VK_NULL_HANDLE));
        if (r == PLM_OK) {
            *ret_value = ++dev->timeline.value;
            plm_vk_staging_submitted(dev, dev->timeline.value);
            submitted(dev, rec, n);
            plm_vk_discard(dev);
        }
    }
    // A driver that has no room for a submit, be it the host's, gets more by what the core gives
    // up.
    return r == PLM_ERR_NOMEM_HOST ? PLM_ERR_OUT_OF_DEVICE : r;
}

// ---- waiting ----

int plm_vk_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    struct plm_vk_list *list = dev->list;
    const int r = plm_vk_timeline_wait(dev, dev->timeline.semaphore, value, timeout_ns);
    if (r == PLM_OK && list->running != NULL && value == dev->timeline.value) {
        plm_vk_pace_learn(&list->pace, list->running->work, list->running->n,
                          plm_now(dev->clock) - list->submitted_ns);
        list->running = NULL;
    }
    return r;
}

// ---- warm-up ----

// A part as long as any can be. Kernel and arguments change with every dispatch, as drivers leave
// out what repeats.
static int record_longest(struct plm_backend_device *dev, VkCommandBuffer part, uint32_t n)
{
    const struct plm_vk_pipelines *p = dev->pipelines;
    struct dispatch d = {.args_bytes = PLM_VK_PUSH_BYTES, .barrier = true};
    const struct plm_vk_piece piece = {.size = {1, 1, 1}};
    int r = begin_part(dev, part);
    if (r != PLM_OK)
        return r;
    for (uint32_t i = 0, slot = 0; i < n; i++, slot++) {
        while (p->slots[slot & (p->n_slots - 1)].handle == VK_NULL_HANDLE)
            slot++;
        d.pipeline = p->slots[slot & (p->n_slots - 1)].handle;
        memcpy(d.args, &i, sizeof(i));
        record_piece(dev, part, &d, &piece);
    }
    return end_part(dev, part);
}

int plm_vk_list_warm_up(struct plm_backend_device *dev)
{
    struct plm_vk_list *list = dev->list;
    const uint32_t n = plm_vk_part_dispatches(dev->caps.max_submit_ms, list->cap);
    int r = PLM_OK;
    for (uint32_t i = 0; i < RECORDINGS && r == PLM_OK; i++) {
        struct recording *rec = &list->recordings[i];
        r = plm_vk_wait(dev, rec->value, REUSE_WAIT_NS);
        rec->n = 0;
        if (r == PLM_OK)
            r = plm_vk_status(dev, dev->vk->ResetCommandPool(dev->handle, rec->pool, 0));
        for (uint32_t k = 0; k < list->n_parts && r == PLM_OK; k++)
            r = record_longest(dev, rec->parts[k], n);
    }
    return r;
}

void plm_vk_list_counters(const struct plm_backend_device *dev, struct plm_vk_list_counters *ret)
{
    *ret = dev->list->counters;
}
