// SPDX-License-Identifier: Apache-2.0
// Drivers load code when it is first asked for, and take device memory for it. So all that a plan
// launches is loaded at the warm-up, before anything is measured.
#include <string.h>

#include "backends/gpudrv/impl.h"

struct plm_gpu_modules {
    size_t n_images;
    void **modules; // one per image, NULL where it is not loaded yet
    void *functions[PLM_GPU_KERNELS];
};

int plm_gpu_modules_create(struct plm_backend_device *dev, struct plm_gpu_modules **ret)
{
    struct plm_gpu_modules *m = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*m));
    if (m == NULL)
        return PLM_ERR_NOMEM_HOST;
    m->n_images = *dev->driver->n_images;
    m->modules = plm_calloc(dev->host, PLM_HOST_DEVICE, m->n_images, sizeof(*m->modules));
    if (m->modules == NULL) {
        plm_free(dev->host, m);
        return PLM_ERR_NOMEM_HOST;
    }
    *ret = m;
    return PLM_OK;
}

void plm_gpu_modules_destroy(struct plm_backend_device *dev, struct plm_gpu_modules *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->n_images; i++) {
        if (m->modules[i] != NULL)
            dev->driver->module_unload(dev->lib, m->modules[i]);
    }
    plm_free(dev->host, m->modules);
    plm_free(dev->host, m);
}

void *plm_gpu_function(const struct plm_gpu_modules *modules, const struct plm_gpu_kernel *kernel)
{
    return modules->functions[kernel - plm_gpu_kernels];
}

// ---- loading ----

static const char *what_is_wrong(plm_gpu_r r)
{
    switch (r) {
    case PLM_GPU_NO_IMAGE:
        return "it has no code for this card (of the build, -Dnvcc_archs and -Dhipcc_archs say for "
               "which it has; compute_90 is for NVIDIA's later ones)";
    case PLM_GPU_BAD_IMAGE: return "it is corrupt";
    case PLM_GPU_BAD_PTX: return "the driver's compiler cannot translate it for this card";
    case PLM_GPU_OUT_OF_MEMORY: return "the card has no room for it";
    case PLM_GPU_NOT_FOUND: return "it is not there";
    default: return "the driver refuses it";
    }
}

static int load_image(struct plm_backend_device *dev, size_t i, struct plm_error *err)
{
    const struct plm_gpu_image *image = &dev->driver->images[i];
    void **module = &dev->modules->modules[i];
    if (*module != NULL)
        return PLM_OK;
    plm_gpu_r r = dev->driver->module_load(dev->lib, image->data, module);
    if (r == PLM_GPU_OK)
        return PLM_OK;
    *module = NULL;
    int rc = plm_gpu_status(dev, r);
    return plm_fail(err, rc, "%s: %s (%s): the embedded image '%s' cannot be loaded: %s (%s)",
                    dev->driver->name, dev->card.name, dev->card.arch, image->name,
                    what_is_wrong(r), dev->driver->last_error(dev->lib));
}

struct load {
    struct plm_backend_device *dev;
    struct plm_error *err;
};

static int fail_kernel(struct load *l, const struct plm_gpu_kernel *kernel, plm_gpu_r r)
{
    struct plm_backend_device *dev = l->dev;
    int rc = plm_gpu_status(dev, r);
    return plm_fail(l->err, rc, "%s: %s (%s): the kernel %s cannot be used: %s (%s)",
                    dev->driver->name, dev->card.name, dev->card.arch, kernel->symbol,
                    what_is_wrong(r), dev->driver->last_error(dev->lib));
}

// Local memory is taken for as many threads as the card can hold, at the first launch, whenever
// that is: 792 MiB for 4 KiB a thread (measured: H100).
static int check_local(struct load *l, const struct plm_gpu_kernel *kernel, void *function)
{
    uint64_t local;
    plm_gpu_r r = l->dev->driver->function_local(l->dev->lib, function, &local);
    if (r != PLM_GPU_OK)
        return fail_kernel(l, kernel, r);
    if (local == 0)
        return PLM_OK;
    return plm_fail(l->err, PLM_ERR_UNSUPPORTED,
                    "%s: %s (%s): the kernel %s takes %llu bytes of local memory a thread; none "
                    "may take any",
                    l->dev->driver->name, l->dev->card.name, l->dev->card.arch, kernel->symbol,
                    (unsigned long long)local);
}

// Which image has a kernel does not follow from its name: each is asked.
static int find_function(void *ctx, const struct plm_gpu_kernel *kernel)
{
    struct load *l = ctx;
    struct plm_gpu_modules *m = l->dev->modules;
    void **function = &m->functions[kernel - plm_gpu_kernels];
    plm_gpu_r r = *function != NULL ? PLM_GPU_OK : PLM_GPU_NOT_FOUND;
    for (size_t i = 0; i < m->n_images && r == PLM_GPU_NOT_FOUND; i++)
        r = l->dev->driver->module_function(l->dev->lib, m->modules[i], kernel->symbol, function);
    if (r == PLM_GPU_OK)
        return check_local(l, kernel, *function);
    *function = NULL;
    return fail_kernel(l, kernel, r);
}

int plm_gpu_modules_load(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                         struct plm_error *err)
{
    struct load l = {.dev = dev, .err = err};
    int rc = PLM_OK;
    for (size_t i = 0; i < dev->modules->n_images && rc == PLM_OK; i++)
        rc = load_image(dev, i, err);
    return rc == PLM_OK ? plm_gpu_kernels_each(needs, find_function, &l) : rc;
}
