// SPDX-License-Identifier: Apache-2.0
// Kernels, lists and copies: what runs for real runs on the inner backend.
#include <string.h>

#include "backends/sim/sim_internal.h"

#define DIGEST_PRIME   UINT64_C(1099511628211)      // of FNV-1a
#define SPILL_SLOWDOWN 10                           // of lists that use what lies in slow memory
#define POISON_HANG_NS (INT64_C(3600) * 1000000000) // an hour: longer than any watchdog waits

// ---- kernels ----

// Takes the bytes of a kernel's code at its first use.
static int load_kernel(struct plm_backend_device *dev, enum plm_op op)
{
    if (dev->loaded[op])
        return PLM_OK;
    plm_sim_lock(dev);
    int r = plm_sim_driver_take(dev, dev->script.kernel_bytes);
    plm_sim_unlock(dev);
    dev->loaded[op] = r == PLM_OK;
    return r;
}

int plm_sim_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                    struct plm_error *err)
{
    if (plm_sim_is_lost(dev))
        return plm_fail(err, PLM_ERR_LOST, "the simulated device is lost");
    for (int op = 0; op < PLM_OPS; op++) {
        int r = load_kernel(dev, (enum plm_op)op);
        if (r != PLM_OK)
            return plm_fail(err, r, "no memory for the code of kernel %d", op);
    }
    return dev->inner != NULL ? dev->script.inner->warm_up(dev->inner, needs, err) : PLM_OK;
}

// ---- what the host copied in ----

static const struct plm_sim_note *find_note(const struct plm_backend_device *dev, uint64_t addr,
                                            uint64_t bytes)
{
    for (uint64_t i = 0; i < dev->n_notes && i < PLM_SIM_NOTES; i++) {
        const struct plm_sim_note *note = &dev->notes[(dev->n_notes - 1 - i) % PLM_SIM_NOTES];
        if (addr >= note->addr && addr - note->addr < note->bytes &&
            bytes <= note->bytes - (addr - note->addr))
            return note;
    }
    return NULL;
}

static bool holds_token(const struct plm_backend_device *dev, const void *src, uint64_t bytes)
{
    if (dev->script.poison == PLM_SIM_POISON_NONE || bytes % sizeof(int32_t) != 0)
        return false;
    for (uint64_t i = 0; i < bytes / sizeof(int32_t); i++) {
        if (memcmp((const char *)src + i * sizeof(int32_t), &dev->script.poison_token,
                   sizeof(int32_t)) == 0)
            return true;
    }
    return false;
}

// A guard is one byte all over, and not zero: no list of tokens or positions looks so.
static bool is_guard(const unsigned char *data, uint64_t bytes)
{
    return bytes == PLM_SIM_BYTES && data[0] != 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

// What is written over.
static void forget_copies(struct plm_backend_device *dev, uint64_t dst, uint64_t bytes)
{
    for (uint64_t i = 0; i < dev->n_notes && i < PLM_SIM_NOTES; i++) {
        struct plm_sim_note *old = &dev->notes[i];
        if (old->addr < dst + bytes && dst < old->addr + old->bytes)
            old->bytes = 0;
    }
}

static void remember_copy(struct plm_backend_device *dev, uint64_t dst, const void *src,
                          uint64_t bytes)
{
    const bool is_small = bytes <= PLM_SIM_BYTES;
    // It is the newest one even where it lies in the place of an older one: the ring drops by age.
    forget_copies(dev, dst, bytes);
    if (!is_small && dev->script.poison == PLM_SIM_POISON_NONE)
        return; // nobody asks for it
    struct plm_sim_note *note = &dev->notes[dev->n_notes++ % PLM_SIM_NOTES];
    note->addr = dst;
    note->bytes = bytes;
    note->poison = holds_token(dev, src, bytes);
    if (is_small) {
        memcpy(note->data, src, bytes);
        if (is_guard(note->data, bytes))
            dev->guard = *note;
    }
}

// ---- lists ----

// Keeps of a dispatch what the script asks about.
static void look_at(struct plm_backend_device *dev, enum plm_op op, const void *args)
{
    if (op == PLM_OP_GET_ROWS) {
        const struct plm_get_rows_args *rows = args;
        const struct plm_sim_note *note = find_note(dev, rows->tokens, 4ull * rows->rows);
        dev->poisoned |= note != NULL && note->poison;
    } else if (op == PLM_OP_MATMUL) {
        dev->logits = *(const struct plm_matmul_args *)args; // the last one is the head's
        dev->best = (struct plm_argmax_args){0};
    } else if (op == PLM_OP_ARGMAX) {
        dev->best = *(const struct plm_argmax_args *)args;
        dev->best_copy = 0;
    } else if (op == PLM_OP_SAMPLE) {
        const struct plm_sample_args *a = args;
        dev->best = (struct plm_argmax_args){.x = a->x, .dst = a->dst, .rows = a->rows, .n = a->n};
        dev->best_copy = 0;
    } else if (op == PLM_OP_COPY && ((const struct plm_copy_args *)args)->src == dev->best.dst) {
        dev->best_copy = ((const struct plm_copy_args *)args)->dst;
    }
}

// Whether a dispatch waits for slow memory: what names its ranges by them, a forward's wherever
// anything of ours lies there.
static bool is_slow(const struct plm_backend_device *dev, enum plm_op op, const void *args)
{
    if (dev->spilled == NULL)
        return false;
    switch (op) {
    case PLM_OP_COPY:
        return plm_sim_is_spilled(dev, ((const struct plm_copy_args *)args)->src) ||
               plm_sim_is_spilled(dev, ((const struct plm_copy_args *)args)->dst);
    case PLM_OP_FILL: return plm_sim_is_spilled(dev, ((const struct plm_fill_args *)args)->dst);
    case PLM_OP_VERIFY: return plm_sim_is_spilled(dev, ((const struct plm_verify_args *)args)->src);
    default: return true;
    }
}

int plm_sim_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                   size_t args_bytes)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    int r = load_kernel(dev, op);
    if (r == PLM_OK && dev->inner != NULL)
        r = dev->script.inner->launch(dev->inner, op, units, args, args_bytes);
    if (r != PLM_OK)
        return r;
    if (dev->script.poison != PLM_SIM_POISON_NONE)
        look_at(dev, op, args);
    if (op == PLM_OP_MATMUL) {
        // Logits may lie where inputs of a step with another layout lay.
        const struct plm_matmul_args *a = args;
        forget_copies(dev, a->dst, 4ull * a->rows * a->ld_dst);
    }
    dev->open_dispatches++;
    dev->open_kernels = (dev->open_kernels ^ ((uint64_t)op + 1)) * DIGEST_PRIME;
    dev->open_slow |= is_slow(dev, op, args);
    if (dev->caps.tunes)
        dev->open_ns += plm_sim_variant_ns(dev, op, args);
    // One thread counts: no locked instruction for each of a step's many launches.
    atomic_store_explicit(&dev->world->launches,
                          atomic_load_explicit(&dev->world->launches, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return PLM_OK;
}

int plm_sim_barrier(struct plm_backend_device *dev)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    return dev->inner != NULL ? dev->script.inner->barrier(dev->inner) : PLM_OK;
}

static void empty_list(struct plm_backend_device *dev)
{
    dev->open_dispatches = 0;
    dev->open_kernels = 0;
    dev->open_slow = false;
    dev->open_ns = 0;
    dev->poisoned = false;
}

void plm_sim_discard(struct plm_backend_device *dev)
{
    empty_list(dev);
    if (dev->inner != NULL)
        dev->script.inner->discard(dev->inner);
}

static bool has_graph(const struct plm_backend_device *dev)
{
    for (uint32_t i = 0; i < dev->n_graphs; i++) {
        if (dev->graphs[i] == dev->open_kernels)
            return true;
    }
    return false;
}

int plm_sim_capture(struct plm_backend_device *dev)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    if (has_graph(dev))
        return PLM_OK;
    if (dev->n_graphs == PLM_SIM_GRAPHS)
        return PLM_ERR_LIMIT;
    plm_sim_lock(dev);
    int r = plm_sim_driver_take(dev, dev->script.graph_bytes);
    plm_sim_unlock(dev);
    if (r != PLM_OK)
        return r;
    dev->graphs[dev->n_graphs++] = dev->open_kernels;
    atomic_fetch_add(&dev->world->graphs, 1);
    return PLM_OK;
}

// What the script says of this submit. PLM_OK: it runs.
static int check_submit(struct plm_backend_device *dev)
{
    struct plm_sim_state *state = &dev->world->state;
    uint64_t missing = 0;
    plm_sim_happen(dev, PLM_SIM_AT_SUBMIT, atomic_fetch_add(&dev->world->submits, 1) + 1);
    if (dev->poisoned && dev->script.poison == PLM_SIM_POISON_LOST)
        atomic_store(&dev->lost, true);
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    if (state->fail_submits > 0) {
        state->fail_submits--;
        return PLM_ERR_OUT_OF_DEVICE;
    }
    if (dev->script.overcommits)
        plm_sim_free_bytes(dev, &missing);
    return missing > 0 ? PLM_ERR_OUT_OF_DEVICE : PLM_OK;
}

// How long the open list takes.
static int64_t list_ns(struct plm_backend_device *dev)
{
    struct plm_sim_state *state = &dev->world->state;
    int64_t factor = state->slow > 1 ? (int64_t)state->slow : 1, ns;
    if (dev->open_slow)
        factor *= SPILL_SLOWDOWN;
    if (__builtin_mul_overflow(dev->script.dispatch_ns, (int64_t)dev->open_dispatches, &ns) ||
        __builtin_add_overflow(ns, dev->script.submit_ns, &ns) ||
        __builtin_add_overflow(ns, dev->open_ns, &ns) || __builtin_mul_overflow(ns, factor, &ns) ||
        __builtin_add_overflow(ns, state->hang_ns, &ns) ||
        (dev->poisoned && dev->script.poison == PLM_SIM_POISON_HANG &&
         __builtin_add_overflow(ns, POISON_HANG_NS, &ns)) ||
        ns > INT64_MAX / 2)
        ns = INT64_MAX / 2;
    state->hang_ns = 0;
    return ns;
}

static int run_inner(struct plm_backend_device *dev)
{
    uint64_t value;
    if (dev->inner == NULL)
        return PLM_OK;
    int r = dev->script.inner->submit(dev->inner, &value);
    return r == PLM_OK ? dev->script.inner->wait(dev->inner, value, -1) : r;
}

// The logits of all rows become NaN, as one bad row of a shared buffer makes them; what was found
// of them says so.
static int spoil_logits(struct plm_backend_device *dev)
{
    static const uint32_t nan_bits = 0x7FC00000;
    uint32_t words[256];
    const struct plm_matmul_args *m = &dev->logits;
    uint64_t left = (uint64_t)m->rows * m->ld_dst, at = m->dst;
    int r = PLM_OK;
    for (size_t i = 0; i < 256; i++)
        words[i] = nan_bits;
    while (dev->inner != NULL && left > 0 && r == PLM_OK) {
        const uint64_t n = left < 256 ? left : 256;
        r = dev->script.inner->copy_in(dev->inner, at, words, n * 4);
        at += n * 4;
        left -= n;
    }
    for (uint32_t i = 0; dev->inner != NULL && i < dev->best.rows && r == PLM_OK; i++) {
        const struct plm_argmax_record record = {.n_wrong = dev->best.n};
        r = dev->script.inner->copy_in(dev->inner, dev->best.dst + i * sizeof(record), &record,
                                       sizeof(record));
        if (r == PLM_OK && dev->best_copy != 0)
            r = dev->script.inner->copy_in(dev->inner, dev->best_copy + i * sizeof(record), &record,
                                           sizeof(record));
    }
    return r;
}

// A step wrote `bytes` beyond its workspace: the first bytes of the guard are not its own.
static int overrun(struct plm_backend_device *dev, uint64_t bytes)
{
    unsigned char wrong[PLM_SIM_BYTES] = {0};
    const uint64_t n = bytes < dev->guard.bytes ? bytes : dev->guard.bytes;
    if (n == 0)
        return PLM_OK;
    for (uint64_t i = 0; i < dev->n_notes && i < PLM_SIM_NOTES; i++) {
        if (dev->notes[i].addr == dev->guard.addr && dev->notes[i].bytes == dev->guard.bytes)
            memcpy(dev->notes[i].data, wrong, n);
    }
    return dev->inner != NULL ? dev->script.inner->copy_in(dev->inner, dev->guard.addr, wrong, n)
                              : PLM_OK;
}

int plm_sim_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    plm_sim_lock(dev);
    int r = check_submit(dev);
    const int64_t ns = r == PLM_OK ? list_ns(dev) : 0;
    const uint64_t over = r == PLM_OK ? dev->world->state.overrun : 0;
    if (over > 0)
        dev->world->state.overrun = 0;
    plm_sim_unlock(dev);
    if (r == PLM_OK)
        r = run_inner(dev);
    if (r != PLM_OK)
        return r;
    dev->nan = dev->poisoned && dev->script.poison == PLM_SIM_POISON_NAN;
    if (dev->nan)
        r = spoil_logits(dev);
    if (r == PLM_OK && over > 0)
        r = overrun(dev, over);
    // Lists run one after the other; where none takes time, the clock need not be asked.
    if (ns > 0 || dev->busy_until > 0) {
        const int64_t now = plm_sim_now(dev);
        dev->busy_from = dev->busy_until > now ? dev->busy_until : now;
        dev->busy_until = dev->busy_from > INT64_MAX - ns ? INT64_MAX : dev->busy_from + ns;
    }
    if (has_graph(dev))
        atomic_fetch_add(&dev->world->replays, 1);
    empty_list(dev);
    *ret_value = ++dev->timeline;
    return r;
}

// Lets time pass until then, but no longer than so long; below 0: no limit.
static int pass_until(struct plm_backend_device *dev, int64_t until_ns, int64_t timeout_ns)
{
    if (until_ns == 0 || dev->clock == NULL)
        return PLM_OK;
    const int64_t start = plm_sim_now(dev);
    const bool late = timeout_ns >= 0 && until_ns > start && until_ns - start > timeout_ns;
    const int64_t end = late ? start + timeout_ns : until_ns;
    for (int64_t now = start; now < end; now = plm_sim_now(dev))
        dev->clock->sleep_ns(dev->clock->ctx, end - now);
    return late ? PLM_ERR_TIMEOUT : PLM_OK;
}

int plm_sim_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    if (value > dev->timeline)
        return PLM_ERR_TIMEOUT;
    return pass_until(dev, value == dev->timeline ? dev->busy_until : dev->busy_from, timeout_ns);
}

int plm_sim_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    if (!dev->caps.async)
        pass_until(dev, dev->busy_until, -1);
    // What stands above a simulated device may copy the guard and what lies behind it at once.
    const uint64_t first =
        bytes > PLM_SIM_BYTES && is_guard(src, PLM_SIM_BYTES) ? PLM_SIM_BYTES : 0;
    if (first > 0)
        remember_copy(dev, dst, src, first);
    remember_copy(dev, dst + first, (const char *)src + first, bytes - first);
    return dev->inner != NULL ? dev->script.inner->copy_in(dev->inner, dst, src, bytes) : PLM_OK;
}

int plm_sim_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    static const uint32_t nan_bits = 0x7FC00000;
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    pass_until(dev, dev->busy_until, -1);
    if (dev->inner != NULL)
        return dev->script.inner->copy_out(dev->inner, dst, src, bytes);
    const struct plm_sim_note *note = bytes <= PLM_SIM_BYTES ? find_note(dev, src, bytes) : NULL;
    if (note != NULL && note->bytes <= PLM_SIM_BYTES) {
        memcpy(dst, note->data + (src - note->addr), bytes);
        return PLM_OK;
    }
    memset(dst, 0, bytes);
    for (uint64_t i = 0; dev->nan && i < bytes / 4; i++)
        memcpy((char *)dst + i * 4, &nan_bits, 4);
    return PLM_OK;
}
