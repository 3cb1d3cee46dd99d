// SPDX-License-Identifier: Apache-2.0
// Modules: images are looked into, and a kernel is found only where its name stands in the image
// and kernels.def has it.
#include <string.h>

#include "fake.h"

int fake_module_load(const void *image, struct fake_module **ret)
{
    struct fake_ctx *ctx;
    struct world w;
    const char *symbols;
    size_t bytes;
    int r = fake_begin(&ctx, PLACE_MODULE, 0);
    if (r != FAKE_OK)
        return r;
    rules_world(&w);
    r = fake_front.image(image, w.arch, &symbols, &bytes);
    if (r != FAKE_OK)
        return r;
    const struct null_script *script = fake_script();
    r = script != NULL ? fake_script_result(script->pipeline(script->ctx))
                       : fake_driver_bytes(ctx, (int64_t)bytes);
    if (r != FAKE_OK)
        return r;
    struct fake_module *m = fake_object_new(FAKE_MODULE, ctx, sizeof(*m));
    if (m == NULL)
        return FAKE_OOM;
    m->symbols = symbols;
    m->symbols_bytes = bytes;
    m->bytes = script != NULL ? 0 : bytes;
    account_add(ACCOUNT_modules_loaded, 1);
    *ret = m;
    return FAKE_OK;
}

int fake_module_unload(struct fake_module *m)
{
    if (!fake_object_is(m, FAKE_MODULE))
        return FAKE_INVALID_HANDLE;
    struct fake_ctx *ctx = m->object.ctx;
    if (fake_stream_uses(ctx, m))
        rules_misuse("a module is unloaded whose kernels are queued");
    fake_run_all(ctx);
    for (struct fake_function *f = NULL, *next; true; f = next) {
        next = fake_object_next(ctx, FAKE_FUNCTION, f);
        if (f != NULL && f->module == m)
            fake_object_free(f);
        if (next == NULL)
            break;
    }
    fake_driver_bytes(ctx, -(int64_t)m->bytes);
    fake_object_free(m);
    account_add(ACCOUNT_modules_unloaded, 1);
    return FAKE_OK;
}

static bool stands_in(const struct fake_module *m, const char *name)
{
    const size_t n = strlen(name) + 1; // names end in a zero there
    return memmem(m->symbols, m->symbols_bytes, name, n) != NULL;
}

int fake_module_function(struct fake_module *m, const char *name, struct fake_function **ret)
{
    struct fake_ctx *ctx;
    struct world w;
    const int r = fake_begin(&ctx, PLACE_FUNCTION, 0);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(m, FAKE_MODULE) || m->object.ctx != ctx)
        return FAKE_INVALID_HANDLE;
    const struct plm_gpu_kernel *kernel = plm_gpu_kernel_named(name);
    if (kernel == NULL || !stands_in(m, name))
        return FAKE_NOT_FOUND;
    struct fake_function *f = fake_object_new(FAKE_FUNCTION, ctx, sizeof(*f));
    if (f == NULL)
        return FAKE_OOM;
    f->module = m;
    f->kernel = kernel;
    f->waits = true;
    rules_world(&w);
    for (uint32_t i = 0; i < w.n_unawaited; i++)
        f->waits = f->waits && strcmp(w.unawaited[i], name) != 0;
    account_add(ACCOUNT_functions_found, 1);
    *ret = f;
    return FAKE_OK;
}

// A card would read whatever lies behind short arguments, and leave out what a short grid misses.
bool fake_launch_fits(const struct fake_launch *l)
{
    const struct plm_gpu_kernel *kernel = l->function->kernel;
    const char *name = kernel->symbol;
    if (l->args_bytes != kernel->args_bytes || l->shared_bytes != 0 ||
        l->block[0] != kernel->threads || l->block[1] != 1 || l->block[2] != 1) {
        rules_misuse("%s: %u bytes of arguments, blocks of %u threads, %u bytes of shared memory: "
                     "not the kernel's",
                     name, l->args_bytes, l->block[0], l->shared_bytes);
        return false;
    }
    const struct plm_gpu_kernel *fits = NULL;
    for (uint32_t i = 0; (fits = plm_gpu_kernel_of(kernel->op, l->args, i)) != NULL; i++) {
        if (fits == kernel)
            break;
    }
    const struct plm_gpu_grid grid = kernel->grid(l->args);
    if (fits == NULL) {
        rules_misuse("%s does not run these arguments", name);
        return false;
    }
    if (grid.x != l->grid[0] || grid.y != l->grid[1] || grid.z != l->grid[2]) {
        rules_misuse("%s: a grid of %u x %u x %u, where these arguments want %llu x %llu x %llu",
                     name, l->grid[0], l->grid[1], l->grid[2], (unsigned long long)grid.x,
                     (unsigned long long)grid.y, (unsigned long long)grid.z);
        return false;
    }
    return true;
}
