// SPDX-License-Identifier: Apache-2.0
#include "core/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"

// Capacity of the list where the caller names none: about 14 dispatches for each of 64 layers fit
// four times over.
#define DEFAULT_DISPATCHES 4096u
// Dispatches that a list may have at all; keeps the list's memory below 2 GiB.
#define MAX_DISPATCHES (1u << 23)
// First size of the table of live slabs; it doubles from there.
#define FIRST_SLABS 32u

struct plm_device {
    const struct plm_backend *backend;
    struct plm_device_opts opts;
    // Written by reopen alone; threads that read the device meanwhile hold it for reading.
    pthread_rwlock_t dev_lock;
    struct plm_backend_device *dev; // NULL: closed, and a reopen failed
    struct plm_caps caps;           // a copy, since it outlives what it describes
    struct plm_host *host;
    const void *configured; // what the backend made of the id, for every open; or NULL
    uint32_t max_dispatches;
    uint32_t open_dispatches; // in the list now
    uint64_t last_value;      // of the timeline, as submit returned it

    struct plm_slab *slabs; // live ones by address; copies are checked against them
    size_t n_slabs;
    size_t cap_slabs;

    atomic_bool sealed;
    atomic_bool in_step;
    atomic_bool lost;
    int64_t patience_ns; // of waits without a limit of their own; 0: for ever
    // Read by metrics threads while the engine's thread counts.
    _Atomic uint64_t allocs;
    _Atomic uint64_t frees;
    _Atomic uint64_t allocs_refused;
    _Atomic uint64_t allocs_in_step;
    _Atomic uint64_t dispatches;
    _Atomic uint64_t submits;
    _Atomic uint64_t resizes;
};

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// Remembers a loss, so that it is sticky whatever the backend says next.
static int result(struct plm_device *d, int rc)
{
    if (rc == PLM_ERR_LOST)
        atomic_store(&d->lost, true);
    return rc;
}

static bool is_lost(const struct plm_device *d)
{
    return atomic_load(&d->lost);
}

// ---- open and close ----

static const struct plm_backend *find_backend(const char *id, size_t name_len)
{
    for (const struct plm_backend *const *b = plm_backends; *b != NULL; b++) {
        if (strlen((*b)->name) == name_len && memcmp((*b)->name, id, name_len) == 0)
            return *b;
    }
    return NULL;
}

static int fail_unknown(const char *id, size_t name_len, struct plm_error *err)
{
    char names[128] = "";
    size_t used = 0;
    for (const struct plm_backend *const *b = plm_backends; *b != NULL; b++) {
        int n =
            snprintf(names + used, sizeof(names) - used, "%s%s", used > 0 ? ", " : "", (*b)->name);
        if (n < 0 || (size_t)n >= sizeof(names) - used)
            break;
        used += (size_t)n;
    }
    return plm_fail(
        err, PLM_ERR_NOT_FOUND,
        "this build has no backend '%.*s'; it has: %s (a device is BACKEND, "
        "BACKEND:WHICH or BACKEND:WHICH,OPTION=VALUE; meson's -Dbackends builds others)",
        (int)(name_len < 32 ? name_len : 32), id, names);
}

// The part after ':' as a number below 2^16; false where it is none.
static bool parse_index(const char *s, uint32_t *ret)
{
    uint32_t value = 0;
    if (*s == '\0')
        return false;
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || value > 6553)
            return false;
        value = value * 10 + (uint32_t)(*s - '0');
    }
    *ret = value;
    return true;
}

// What an id says behind its backend's name.
struct argument {
    const void *configured; // what the backend made of it, or NULL
    uint32_t index;
};

static int read_argument(const struct plm_backend *backend, struct plm_host *host, const char *id,
                         const char *text, struct argument *ret, struct plm_error *err)
{
    if (backend->configure != NULL)
        return backend->configure(host, text, &ret->configured, err);
    if (!parse_index(text, &ret->index))
        return plm_fail(err, PLM_ERR_INVALID, "device '%.64s': what follows ':' is no device index",
                        id);
    return PLM_OK;
}

int plm_device_check_id(struct plm_host *host, const char *id, struct plm_error *err)
{
    const char *colon = id != NULL ? strchr(id, ':') : NULL;
    if (colon == NULL)
        return PLM_OK;
    struct argument argument = {.configured = NULL};
    char name[16] = "";
    const struct plm_backend *backend = find_backend(id, (size_t)(colon - id));
    if (backend == NULL) {
        if ((size_t)(colon - id) < sizeof(name))
            memcpy(name, id, (size_t)(colon - id));
        return plm_backend_check_options(name, colon + 1, err);
    }
    int rc = read_argument(backend, host, id, colon + 1, &argument, err);
    if (rc == PLM_OK && argument.configured != NULL && backend->release != NULL)
        backend->release(host, argument.configured);
    return rc;
}

int plm_device_open(const char *id, const struct plm_device_opts *opts, struct plm_device **ret,
                    struct plm_error *err)
{
    if (opts == NULL || opts->host == NULL || ret == NULL)
        return plm_fail(err, PLM_ERR_INVALID,
                        "opening a device needs options, a host and a result");
    if (id == NULL)
        id = "cpu";
    const char *colon = strchr(id, ':');
    size_t name_len = colon != NULL ? (size_t)(colon - id) : strlen(id);
    const struct plm_backend *backend = find_backend(id, name_len);
    int rc;
    if (backend == NULL) {
        rc = plm_device_check_id(opts->host, id, err); // a wrong option is wrong in every build
        return rc != PLM_OK ? rc : fail_unknown(id, name_len, err);
    }
    struct plm_device_opts own = *opts;
    struct argument argument = {.index = own.index};
    rc = colon != NULL ? read_argument(backend, opts->host, id, colon + 1, &argument, err) : PLM_OK;
    if (rc != PLM_OK)
        return rc;
    const void *configured = argument.configured;
    own.index = argument.index;
    if (colon != NULL && backend->configure != NULL)
        own.backend_opts = configured;
    rc = plm_device_open_backend(backend, &own, ret, err);
    if (rc == PLM_OK)
        (*ret)->configured = configured;
    else if (configured != NULL)
        backend->release(opts->host, configured);
    return rc;
}

static bool caps_are_sane(const struct plm_caps *caps)
{
    return caps->granularity_bytes > 0 && caps->align_bytes > 0 &&
           (caps->align_bytes & (caps->align_bytes - 1)) == 0 && caps->max_slabs > 0 &&
           caps->max_slab_bytes > 0;
}

// Without its backend's device yet.
static struct plm_device *device_alloc(const struct plm_backend *backend,
                                       const struct plm_device_opts *opts)
{
    struct plm_device *d = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*d));
    if (d == NULL)
        return NULL;
    if (pthread_rwlock_init(&d->dev_lock, NULL) != 0) {
        plm_free(opts->host, d);
        return NULL;
    }
    d->backend = backend;
    d->opts = *opts;
    if (d->opts.max_dispatches == 0)
        d->opts.max_dispatches = DEFAULT_DISPATCHES;
    if (d->opts.clock == NULL)
        d->opts.clock = plm_clock_system();
    d->host = opts->host;
    d->max_dispatches = d->opts.max_dispatches;
    return d;
}

int plm_device_open_backend(const struct plm_backend *backend, const struct plm_device_opts *opts,
                            struct plm_device **ret, struct plm_error *err)
{
    if (backend == NULL || opts == NULL || opts->host == NULL || ret == NULL)
        return plm_fail(err, PLM_ERR_INVALID, "opening a device needs a backend and a host");
    if (opts->max_dispatches > MAX_DISPATCHES)
        return plm_fail(err, PLM_ERR_INVALID, "a list of %" PRIu32 " dispatches; the most is %u",
                        opts->max_dispatches, MAX_DISPATCHES);
    struct plm_device *d = device_alloc(backend, opts);
    if (d == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a device");
    int rc = backend->open(&d->opts, &d->dev, err);
    if (rc != PLM_OK) {
        d->dev = NULL;
        plm_device_close(d);
        return rc;
    }
    d->caps = *backend->caps(d->dev);
    if (!caps_are_sane(&d->caps)) {
        plm_device_close(d);
        return plm_fail(err, PLM_ERR_INTERNAL, "backend '%s' reports impossible capabilities",
                        backend->name);
    }
    *ret = d;
    return PLM_OK;
}

// Other threads see the new device, or that there is none.
static void set_dev(struct plm_device *d, struct plm_backend_device *dev)
{
    pthread_rwlock_wrlock(&d->dev_lock);
    d->dev = dev;
    atomic_store(&d->lost, dev == NULL);
    pthread_rwlock_unlock(&d->dev_lock);
}

void plm_device_lose(struct plm_device *d)
{
    atomic_store(&d->lost, true);
}

void plm_device_set_patience(struct plm_device *d, int64_t ns)
{
    d->patience_ns = ns;
}

// What plans and layouts were made from must be as it was.
static bool caps_are_same(const struct plm_caps *a, const struct plm_caps *b)
{
    return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->driver, b->driver) == 0 &&
           strcmp(a->isa, b->isa) == 0 && strcmp(a->device_class, b->device_class) == 0 &&
           a->granularity_bytes == b->granularity_bytes && a->align_bytes == b->align_bytes &&
           a->max_slab_bytes == b->max_slab_bytes && a->max_slabs == b->max_slabs &&
           a->prefers == b->prefers && a->few_rows == b->few_rows;
}

int plm_device_reopen(struct plm_device *d, struct plm_error *err)
{
    struct plm_backend_device *old = d->dev, *dev;
    if (d->n_slabs > 0)
        return plm_fail(err, PLM_ERR_INVALID, "%zu slabs of the device were not freed", d->n_slabs);
    set_dev(d, NULL);
    d->backend->close(old);
    d->open_dispatches = 0;
    d->last_value = 0;
    atomic_store(&d->in_step, false);
    atomic_store(&d->sealed, false);
    int rc = d->backend->open(&d->opts, &dev, err);
    if (rc != PLM_OK)
        return rc;
    if (!caps_are_same(&d->caps, d->backend->caps(dev))) {
        d->backend->close(dev);
        return plm_fail(err, PLM_ERR_LOST, "another device answers in the place of %s",
                        d->caps.name);
    }
    set_dev(d, dev);
    return PLM_OK;
}

size_t plm_device_close(struct plm_device *d)
{
    if (d == NULL)
        return 0;
    size_t left = d->n_slabs;
    // Freed all the same: the caller's defect must not become a leak of device memory.
    while (d->n_slabs > 0)
        d->backend->free(d->dev, &d->slabs[--d->n_slabs]);
    d->backend->close(d->dev);
    pthread_rwlock_destroy(&d->dev_lock);
    if (d->configured != NULL)
        d->backend->release(d->host, d->configured);
    plm_free(d->host, d->slabs);
    plm_free(d->host, d);
    return left;
}

const struct plm_caps *plm_device_caps(const struct plm_device *d)
{
    return &d->caps;
}

void plm_device_counters(const struct plm_device *d, struct plm_device_counters *ret)
{
    ret->allocs = atomic_load_explicit(&d->allocs, memory_order_relaxed);
    ret->frees = atomic_load_explicit(&d->frees, memory_order_relaxed);
    ret->allocs_refused = atomic_load_explicit(&d->allocs_refused, memory_order_relaxed);
    ret->allocs_in_step = atomic_load_explicit(&d->allocs_in_step, memory_order_relaxed);
    ret->dispatches = atomic_load_explicit(&d->dispatches, memory_order_relaxed);
    ret->submits = atomic_load_explicit(&d->submits, memory_order_relaxed);
    ret->resizes = atomic_load_explicit(&d->resizes, memory_order_relaxed);
}

void plm_device_seal(struct plm_device *d, bool sealed)
{
    atomic_store(&d->sealed, sealed);
}

bool plm_device_sealed(const struct plm_device *d)
{
    return atomic_load(&d->sealed);
}

void plm_device_step_begin(struct plm_device *d)
{
    atomic_store(&d->in_step, true);
}

void plm_device_step_end(struct plm_device *d)
{
    atomic_store(&d->in_step, false);
}

// ---- slabs ----

// Index of the first live slab that starts above addr.
static size_t slab_above(const struct plm_device *d, uint64_t addr)
{
    size_t lo = 0;
    size_t hi = d->n_slabs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->slabs[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool range_is_live(const struct plm_device *d, uint64_t addr, uint64_t bytes)
{
    size_t above = slab_above(d, addr);
    if (above == 0)
        return false;
    const struct plm_slab *slab = &d->slabs[above - 1];
    uint64_t offset = addr - slab->addr;
    return offset <= slab->bytes && bytes <= slab->bytes - offset;
}

// Makes room for one more entry before the backend is asked, so that recording cannot fail.
static int reserve_entry(struct plm_device *d)
{
    if (d->n_slabs < d->cap_slabs)
        return PLM_OK;
    size_t cap = d->cap_slabs > 0 ? d->cap_slabs * 2 : FIRST_SLABS;
    struct plm_slab *moved =
        plm_realloc(d->host, PLM_HOST_DEVICE, d->slabs, cap * sizeof(*d->slabs));
    if (moved == NULL)
        return PLM_ERR_NOMEM_HOST;
    d->slabs = moved;
    d->cap_slabs = cap;
    return PLM_OK;
}

static bool slab_is_sane(const struct plm_device *d, const struct plm_slab *slab, uint64_t bytes)
{
    return slab->addr != 0 && slab->addr % d->caps.align_bytes == 0 && slab->bytes == bytes &&
           slab->taken_bytes >= bytes && slab->taken_bytes % d->caps.granularity_bytes == 0 &&
           slab->addr <= UINT64_MAX - slab->taken_bytes;
}

static int take(struct plm_device *d, enum plm_slab_kind kind, uint64_t bytes, struct plm_slab *ret)
{
    if (bytes == 0 || kind == PLM_SLAB_IMPORTED)
        return PLM_ERR_INVALID;
    if (is_lost(d))
        return PLM_ERR_LOST;
    if (bytes > d->caps.max_slab_bytes)
        return PLM_ERR_TOO_LARGE;
    if (d->n_slabs >= d->caps.max_slabs)
        return PLM_ERR_OUT_OF_DEVICE;
    int rc = reserve_entry(d);
    if (rc != PLM_OK)
        return rc;
    struct plm_slab slab = {0};
    rc = result(d, d->backend->alloc(d->dev, kind, bytes, NULL, &slab));
    if (rc != PLM_OK)
        return rc;
    if (!slab_is_sane(d, &slab, bytes)) {
        d->backend->free(d->dev, &slab);
        return PLM_ERR_INTERNAL;
    }
    size_t at = slab_above(d, slab.addr);
    memmove(&d->slabs[at + 1], &d->slabs[at], (d->n_slabs - at) * sizeof(slab));
    d->slabs[at] = slab;
    d->n_slabs++;
    count(&d->allocs);
    *ret = slab;
    return PLM_OK;
}

int plm_device_alloc(struct plm_device *d, enum plm_slab_kind kind, uint64_t bytes,
                     struct plm_slab *ret)
{
    if (atomic_load(&d->in_step))
        count(&d->allocs_in_step);
    if (atomic_load(&d->sealed)) {
        count(&d->allocs_refused);
        return PLM_ERR_SEALED;
    }
    return take(d, kind, bytes, ret);
}

int plm_device_alloc_resize(struct plm_device *d, uint64_t bytes, struct plm_slab *ret)
{
    if (atomic_load(&d->in_step)) {
        count(&d->allocs_in_step);
        count(&d->allocs_refused);
        return PLM_ERR_SEALED;
    }
    int rc = take(d, PLM_SLAB_ELASTIC, bytes, ret);
    if (rc == PLM_OK)
        count(&d->resizes);
    return rc;
}

void plm_device_free(struct plm_device *d, struct plm_slab *slab)
{
    if (slab == NULL || slab->bytes == 0)
        return;
    size_t above = slab_above(d, slab->addr);
    // A slab that is not ours, or was freed before, must not reach the backend.
    if (above > 0 && d->slabs[above - 1].addr == slab->addr) {
        struct plm_slab own = d->slabs[above - 1];
        memmove(&d->slabs[above - 1], &d->slabs[above], (d->n_slabs - above) * sizeof(own));
        d->n_slabs--;
        if (own.kind == PLM_SLAB_ELASTIC && atomic_load(&d->sealed))
            count(&d->resizes);
        d->backend->free(d->dev, &own);
        count(&d->frees);
    }
    *slab = (struct plm_slab){0};
}

// ---- readings ----

// Drivers report free > total, 0/0 and use beyond the device (reference: budget queries of Vulkan
// and of unified memory). What was impossible is bounded and no longer believed.
static void clamp_info(struct plm_mem_info *info)
{
    bool impossible = info->total_bytes == 0 || info->free_bytes > info->total_bytes ||
                      info->process_use_bytes > info->total_bytes;
    if (info->free_bytes > info->total_bytes)
        info->free_bytes = info->total_bytes;
    if (info->process_use_bytes > info->total_bytes)
        info->process_use_bytes = info->total_bytes;
    if (info->budget_bytes > info->total_bytes)
        info->budget_bytes = info->total_bytes;
    if (info->total_bytes == 0)
        info->confidence = PLM_CONFIDENCE_NONE;
    else if (impossible && info->confidence > PLM_CONFIDENCE_LOW)
        info->confidence = PLM_CONFIDENCE_LOW;
    if (info->source == NULL)
        info->source = "unnamed";
    if (info->n_cgroups > PLM_CGROUP_LEVELS)
        info->n_cgroups = PLM_CGROUP_LEVELS;
    for (uint32_t i = 0; i < info->n_cgroups; i++) {
        if (info->cgroups[i].reclaimable_bytes > info->cgroups[i].current_bytes)
            info->cgroups[i].reclaimable_bytes = info->cgroups[i].current_bytes;
    }
}

int plm_device_query_free(struct plm_device *d, struct plm_mem_info *ret)
{
    struct plm_mem_info info = {0};
    pthread_rwlock_rdlock(&d->dev_lock);
    int rc = is_lost(d) ? PLM_ERR_LOST : result(d, d->backend->query_free(d->dev, &info));
    pthread_rwlock_unlock(&d->dev_lock);
    if (rc != PLM_OK)
        return rc;
    clamp_info(&info);
    *ret = info;
    return PLM_OK;
}

int plm_device_empty_cache(struct plm_device *d, uint64_t *ret_released,
                           struct plm_mem_info *ret_info)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    struct plm_mem_info info = {0};
    uint64_t released = 0;
    int rc = result(d, d->backend->empty_cache(d->dev, &released, &info));
    if (rc != PLM_OK)
        return rc;
    clamp_info(&info);
    if (ret_released != NULL)
        *ret_released = released;
    if (ret_info != NULL)
        *ret_info = info;
    return PLM_OK;
}

// ---- weights ----

int plm_device_weight_layout(const struct plm_device *d, enum plm_type type, uint32_t n_in,
                             uint32_t n_out, struct plm_weight_layout *ret)
{
    if (n_in == 0 || n_out == 0)
        return PLM_ERR_INVALID;
    if (d->dev == NULL)
        return PLM_ERR_LOST;
    return d->backend->weight_layout(d->dev, type, n_in, n_out, ret);
}

int plm_backend_weight_layout(const char *name, enum plm_type type, uint32_t n_in, uint32_t n_out,
                              struct plm_weight_layout *ret)
{
    const struct plm_backend *backend = find_backend(name, strlen(name));
    if (backend == NULL)
        return PLM_ERR_NOT_FOUND;
    if (n_in == 0 || n_out == 0)
        return PLM_ERR_INVALID;
    return backend->weight_layout(NULL, type, n_in, n_out, ret);
}

void plm_device_weight_pack(const struct plm_device *d, enum plm_type type, uint32_t n_in,
                            uint32_t n_out, uint32_t first, uint32_t rows, const void *src,
                            void *dst)
{
    if (rows == 0 || first >= n_out || rows > n_out - first)
        return;
    d->backend->weight_pack(d->dev, type, n_in, n_out, first, rows, src, dst);
}

int plm_device_warm_up(struct plm_device *d, const struct plm_kernel_needs *needs,
                       struct plm_error *err)
{
    if (is_lost(d))
        return plm_fail(err, PLM_ERR_LOST, "the device is lost");
    return result(d, d->backend->warm_up(d->dev, needs, err));
}

// ---- lists ----

static int launch(struct plm_device *d, enum plm_op op, uint64_t units, const void *args,
                  size_t args_bytes)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    if (units == 0)
        return PLM_OK;
    if (units >= UINT32_MAX || d->open_dispatches >= d->max_dispatches)
        return PLM_ERR_LIMIT;
    int rc = result(d, d->backend->launch(d->dev, op, (uint32_t)units, args, args_bytes));
    if (rc != PLM_OK)
        return rc;
    d->open_dispatches++;
    count(&d->dispatches);
    return PLM_OK;
}

#define PLM_OP(NAME, name, units, tolerance)                                                       \
    int plm_launch_##name(struct plm_device *device, const struct plm_##name##_args *a)            \
    {                                                                                              \
        _Static_assert(sizeof(*a) <= 128, "arguments fit the push constants");                     \
        return launch(device, PLM_OP_##NAME, (units), a, sizeof(*a));                              \
    }
#include "kernels/ops.def"
#undef PLM_OP

static bool tunes(const struct plm_device *d)
{
    return d->dev != NULL && d->backend->variants != NULL && plm_device_caps(d)->tunes;
}

uint32_t plm_device_variants(const struct plm_device *d, enum plm_op op, const void *args,
                             char name[PLM_TUNING_NAME_BYTES])
{
    name[0] = '\0';
    return tunes(d) ? d->backend->variants(d->dev, op, args, name) : 1;
}

const char *plm_device_variant_name(const struct plm_device *d, enum plm_op op, uint32_t index)
{
    return tunes(d) ? d->backend->variant_name(d->dev, op, index) : NULL;
}

int plm_device_choose(struct plm_device *d, enum plm_op op, const void *args, uint32_t index)
{
    char name[PLM_TUNING_NAME_BYTES];
    if (is_lost(d))
        return PLM_ERR_LOST;
    if (index >= plm_device_variants(d, op, args, name))
        return PLM_ERR_INVALID;
    return tunes(d) ? d->backend->choose(d->dev, op, args, index) : PLM_OK;
}

int plm_device_barrier(struct plm_device *d)
{
    return is_lost(d) ? PLM_ERR_LOST : result(d, d->backend->barrier(d->dev));
}

int plm_device_submit(struct plm_device *d, uint64_t *ret_value)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    uint64_t value = 0;
    int rc = result(d, d->backend->submit(d->dev, &value));
    if (rc != PLM_OK)
        return rc;
    d->open_dispatches = 0;
    d->last_value = value;
    count(&d->submits);
    if (ret_value != NULL)
        *ret_value = value;
    return PLM_OK;
}

void plm_device_discard(struct plm_device *d)
{
    d->open_dispatches = 0;
    if (!is_lost(d))
        d->backend->discard(d->dev);
}

int plm_device_capture(struct plm_device *d)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    if (!d->caps.graphs || d->backend->capture == NULL)
        return PLM_ERR_UNSUPPORTED;
    if (atomic_load(&d->sealed))
        return PLM_ERR_SEALED;
    return result(d, d->backend->capture(d->dev));
}

int plm_device_wait(struct plm_device *d, uint64_t value, int64_t timeout_ns)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    if (value > d->last_value)
        return PLM_ERR_INVALID; // would never be reached
    const bool impatient = timeout_ns < 0 && d->patience_ns > 0;
    int r = result(d, d->backend->wait(d->dev, value, impatient ? d->patience_ns : timeout_ns));
    if (r == PLM_ERR_TIMEOUT && impatient)
        plm_device_lose(d); // its callers wait for an end, and free what it may still read
    return r;
}

int plm_device_run(struct plm_device *device, int appended)
{
    uint64_t value;
    int r = appended == PLM_OK ? plm_device_submit(device, &value) : appended;
    if (r != PLM_OK) {
        plm_device_discard(device);
        return r;
    }
    return plm_device_wait(device, value, -1);
}

int plm_device_copy_in(struct plm_device *d, uint64_t dst, const void *src, uint64_t bytes)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    if (bytes == 0)
        return PLM_OK;
    if (src == NULL || !range_is_live(d, dst, bytes))
        return PLM_ERR_INVALID;
    return result(d, d->backend->copy_in(d->dev, dst, src, bytes));
}

int plm_device_copy_in_parts(struct plm_device *d, uint64_t dst, const struct plm_copy_part *parts,
                             uint32_t n)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    uint64_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (parts[i].src == NULL || parts[i].at < end ||
            !plm_add_u64(parts[i].at, parts[i].bytes, &end))
            return PLM_ERR_INVALID;
    }
    if (end == 0)
        return PLM_OK;
    if (!range_is_live(d, dst, end))
        return PLM_ERR_INVALID;
    if (d->backend->copy_in_parts != NULL)
        return result(d, d->backend->copy_in_parts(d->dev, dst, parts, n));
    int r = PLM_OK;
    for (uint32_t i = 0; i < n && r == PLM_OK; i++)
        r = plm_device_copy_in(d, dst + parts[i].at, parts[i].src, parts[i].bytes);
    return r;
}

int plm_device_copy_out(struct plm_device *d, void *dst, uint64_t src, uint64_t bytes)
{
    if (is_lost(d))
        return PLM_ERR_LOST;
    if (bytes == 0)
        return PLM_OK;
    if (dst == NULL || !range_is_live(d, src, bytes))
        return PLM_ERR_INVALID;
    return result(d, d->backend->copy_out(d->dev, dst, src, bytes));
}

int plm_device_status(const struct plm_device *d)
{
    pthread_rwlock_t *lock = (pthread_rwlock_t *)(uintptr_t)&d->dev_lock; // not what is observed
    pthread_rwlock_rdlock(lock);
    int rc = is_lost(d) ? PLM_ERR_LOST : d->backend->status(d->dev);
    pthread_rwlock_unlock(lock);
    return rc;
}

void plm_device_mark(struct plm_device *device, enum plm_phase phase, uint64_t step)
{
    if (device->dev != NULL && device->backend->mark != NULL)
        device->backend->mark(device->dev, phase, step);
}
