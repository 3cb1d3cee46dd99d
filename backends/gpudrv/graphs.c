// SPDX-License-Identifier: Apache-2.0
// A list that was captured at the start runs as one call: launching 300 kernels one by one takes
// the host 1 ms (3.2 us each, measured: H100), and a graph leaves less time between them. Decode
// repeats its kernels; what differs from step to step are grids and a few arguments, which are set
// before the replay where the driver does that. Elsewhere (HIP, whose updates of graphs are wrong
// or slow in many versions) a list runs as a graph only where it is the captured one byte for byte.
// No graph is made after the seal.
#include <string.h>

#include "backends/gpudrv/impl.h"

struct graph {
    uint32_t n;
    bool early;                          // its kernels begin before their predecessor has ended
    struct plm_gpu_dispatch *dispatches; // as the graph would run them now
    void **nodes;                        // of them, where they can be set
    void *captured;                      // whose nodes they are: kept as long as they are used
    void *exec;
    bool given_up; // the driver does not set its arguments; kept, since it may be in flight
};

struct plm_gpu_graphs {
    uint32_t n;
    struct graph at[PLM_GPU_GRAPHS_MAX];
};

int plm_gpu_graphs_create(struct plm_backend_device *dev, struct plm_gpu_graphs **ret)
{
    *ret = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(**ret));
    return *ret != NULL ? PLM_OK : PLM_ERR_NOMEM_HOST;
}

static void graph_free(struct plm_backend_device *dev, struct graph *g)
{
    if (g->exec != NULL)
        dev->driver->graph_exec_destroy(dev->lib, g->exec);
    if (g->captured != NULL)
        dev->driver->graph_destroy(dev->lib, g->captured);
    plm_free(dev->host, g->dispatches);
    plm_free(dev->host, g->nodes);
    *g = (struct graph){0};
}

void plm_gpu_graphs_destroy(struct plm_backend_device *dev, struct plm_gpu_graphs *graphs)
{
    if (graphs == NULL)
        return;
    for (uint32_t i = 0; i < graphs->n; i++)
        graph_free(dev, &graphs->at[i]);
    plm_free(dev->host, graphs);
}

void plm_gpu_counters(const struct plm_backend_device *dev, struct plm_gpu_counters *ret)
{
    *ret = dev->counters;
}

// ---- finding ----

static bool same(const struct plm_gpu_dispatch *a, const struct plm_gpu_dispatch *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

// Whether the graph can run the list.
static bool fits(const struct plm_backend_device *dev, const struct graph *g)
{
    const struct plm_gpu_list *list = dev->list;
    if (g->given_up || g->n != list->n || g->early != plm_gpu_list_is_early(dev))
        return false;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct plm_gpu_dispatch *a = &g->dispatches[i], *b = &list->dispatches[i];
        if (a->function != b->function || a->threads != b->threads ||
            a->args_bytes != b->args_bytes || (!dev->card.graphs_settable && !same(a, b)))
            return false;
    }
    return true;
}

static struct graph *find(const struct plm_backend_device *dev)
{
    for (uint32_t i = 0; i < dev->graphs->n; i++) {
        if (fits(dev, &dev->graphs->at[i]))
            return &dev->graphs->at[i];
    }
    return NULL;
}

// ---- capture ----

// Gives the list to a stream that captures.
static plm_gpu_r capture_list(struct plm_backend_device *dev, struct graph *g)
{
    const struct plm_gpu_driver *driver = dev->driver;
    plm_gpu_r r = driver->capture_begin(dev->lib, dev->stream);
    if (r != PLM_GPU_OK)
        return r;
    for (uint32_t i = 0; i < g->n && r == PLM_GPU_OK; i++) {
        const struct plm_gpu_launch launch = plm_gpu_dispatch_launch(&g->dispatches[i]);
        r = driver->launch(dev->lib, dev->stream, g->early, &launch);
        if (r == PLM_GPU_OK && dev->card.graphs_settable)
            r = driver->capture_node(dev->lib, dev->stream, &g->nodes[i]);
    }
    const plm_gpu_r ended = driver->capture_end(dev->lib, dev->stream, &g->captured);
    return r != PLM_GPU_OK ? r : ended;
}

static int make(struct plm_backend_device *dev, struct graph *g)
{
    const struct plm_gpu_list *list = dev->list;
    g->n = list->n;
    g->early = plm_gpu_list_is_early(dev);
    g->dispatches = plm_calloc(dev->host, PLM_HOST_DEVICE, g->n, sizeof(*g->dispatches));
    g->nodes = plm_calloc(dev->host, PLM_HOST_DEVICE, g->n, sizeof(*g->nodes));
    if (g->dispatches == NULL || g->nodes == NULL)
        return PLM_ERR_NOMEM_HOST;
    memcpy(g->dispatches, list->dispatches, g->n * sizeof(*g->dispatches));
    plm_gpu_r r = capture_list(dev, g);
    if (r == PLM_GPU_OK)
        r = dev->driver->graph_instantiate(dev->lib, g->captured, dev->stream, &g->exec);
    int rc = plm_gpu_status(dev, r);
    return rc == PLM_OK ? plm_gpu_settle(dev) : rc; // until it is uploaded
}

int plm_gpu_capture(struct plm_backend_device *dev)
{
    struct plm_gpu_graphs *graphs = dev->graphs;
    uint64_t before;
    if (atomic_load(&dev->lost))
        return PLM_ERR_LOST;
    if (dev->list->n == 0 || find(dev) != NULL)
        return PLM_OK;
    if (graphs->n == PLM_GPU_GRAPHS_MAX)
        return PLM_ERR_LIMIT;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    struct graph *g = &graphs->at[graphs->n];
    rc = make(dev, g);
    if (rc == PLM_OK) {
        graphs->n++;
        dev->counters.captured++;
    } else {
        graph_free(dev, g);
    }
    plm_gpu_leave(dev, before);
    if (rc != PLM_ERR_UNSUPPORTED)
        return rc;
    plm_logf(dev->log, PLM_LOG_WARN, "%s: %s makes no graph of a list: it runs kernel by kernel",
             dev->driver->name, dev->card.name);
    return PLM_ERR_LIMIT;
}

// ---- replay ----

// Makes the graph run what the list says. What is in flight keeps the arguments that it began with.
static plm_gpu_r set(struct plm_backend_device *dev, struct graph *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        const struct plm_gpu_dispatch *d = &dev->list->dispatches[i];
        if (same(&g->dispatches[i], d))
            continue;
        const struct plm_gpu_launch launch = plm_gpu_dispatch_launch(d);
        plm_gpu_r r = dev->driver->graph_set(dev->lib, g->exec, g->nodes[i], &launch);
        if (r != PLM_GPU_OK)
            return r;
        g->dispatches[i] = *d;
        dev->counters.set++;
    }
    return PLM_GPU_OK;
}

bool plm_gpu_replay(struct plm_backend_device *dev, int *ret_result)
{
    struct graph *g = find(dev);
    if (g == NULL)
        return false;
    plm_gpu_r r = set(dev, g);
    if (r == PLM_GPU_OK) {
        r = dev->driver->graph_launch(dev->lib, g->exec, dev->stream);
        *ret_result = plm_gpu_status(dev, r); // out of memory: nothing of it ran
        dev->counters.replayed += r == PLM_GPU_OK;
        return true;
    }
    *ret_result = plm_gpu_status(dev, r);
    if (*ret_result == PLM_ERR_LOST)
        return true;
    // A driver that does not set one argument is not asked again: the list runs kernel by kernel.
    plm_logf(dev->log, PLM_LOG_WARN, "%s: a graph is given up: its arguments cannot be set: %s",
             dev->driver->name, dev->driver->last_error(dev->lib));
    g->given_up = true;
    return false;
}
