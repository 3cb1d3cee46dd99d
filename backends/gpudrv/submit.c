// SPDX-License-Identifier: Apache-2.0
// Gives the open list to the stream: one launch after the other, or as the replay of a graph
// (graphs.c).
#include "backends/gpudrv/impl.h"

// Gives the list to the stream kernel by kernel. Where the driver has no room for one, those before
// it have run, or will: they are waited for, so that the caller may free what they use, and a next
// submit goes on after them, so that each still runs once. Discarded instead, they are the first
// part of a step that is to be run again from its start, or of a move whose target nobody reads.
static int launch_each(struct plm_backend_device *dev)
{
    struct plm_gpu_list *list = dev->list;
    const bool early = plm_gpu_list_is_early(dev);
    for (; list->done < list->n; list->done++) {
        const struct plm_gpu_launch launch = plm_gpu_dispatch_launch(&list->dispatches[list->done]);
        int rc = plm_gpu_status(dev, dev->driver->launch(dev->lib, dev->stream, early, &launch));
        if (rc != PLM_OK) {
            const int settled = plm_gpu_settle(dev);
            return settled == PLM_OK ? rc : settled;
        }
        dev->counters.launched++;
    }
    return PLM_OK;
}

int plm_gpu_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    struct plm_gpu_list *list = dev->list;
    uint64_t before;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    if (list->done > 0 || !plm_gpu_replay(dev, &rc))
        rc = launch_each(dev);
    if (rc == PLM_OK) {
        list->done = list->n;
        rc = plm_gpu_advance(dev);
    }
    plm_gpu_leave(dev, before);
    if (rc != PLM_OK)
        return rc;
    *ret_value = dev->value;
    plm_gpu_discard(dev);
    return PLM_OK;
}

int plm_gpu_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    uint64_t before;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    rc = plm_gpu_wait_value(dev, value, timeout_ns);
    plm_gpu_leave(dev, before);
    return rc;
}
