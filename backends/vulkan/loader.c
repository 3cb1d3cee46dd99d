// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/loader.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backends/vulkan/instance.h"

const char *const plm_vk_loader_names[] = {"libvulkan.so.1", "libvulkan.so", NULL};

static PFN_vkVoidFunction instance_proc(const struct plm_vk_fns *vk, VkInstance instance,
                                        const char *name, const char **missing)
{
    PFN_vkVoidFunction fn = vk->GetInstanceProcAddr(instance, name);
    if (fn == NULL && *missing == NULL)
        *missing = name;
    return fn;
}

// dlsym returns an object pointer; POSIX promises that it holds a function's address.
static PFN_vkGetInstanceProcAddr symbol(void *library, const char *name)
{
    union {
        void *object;
        PFN_vkGetInstanceProcAddr fn;
    } at = {.object = dlsym(library, name)};
    return at.fn;
}

int plm_vk_loader_open(const char *const *names, void **ret_library, struct plm_vk_fns *ret,
                       struct plm_error *err)
{
    char why[160] = "";
    for (const char *const *name = names; *name != NULL; name++) {
        void *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            const char *text = dlerror();
            if (name == names && text != NULL)
                snprintf(why, sizeof(why), "%s", text);
            continue;
        }
        struct plm_vk_fns vk = {.GetInstanceProcAddr = symbol(library, "vkGetInstanceProcAddr")};
        const char *missing = vk.GetInstanceProcAddr == NULL ? "vkGetInstanceProcAddr" : NULL;
        if (missing == NULL) {
#define X(fn) vk.fn = (PFN_vk##fn)instance_proc(&vk, NULL, "vk" #fn, &missing);
            PLM_VK_GLOBAL(X)
#undef X
        }
        if (missing != NULL) {
            dlclose(library);
            return plm_fail(err, PLM_ERR_UNSUPPORTED,
                            "vulkan: %s has no %s: it is no Vulkan loader of 1.1 or later "
                            "(Debian package: libvulkan1)",
                            *name, missing);
        }
        *ret_library = library;
        *ret = vk;
        return PLM_OK;
    }
    return plm_fail(err, PLM_ERR_NOT_FOUND,
                    "vulkan: no Vulkan loader: tried %s and %s (%s); install one "
                    "(Debian package: libvulkan1) and a driver",
                    names[0], names[0] != NULL && names[1] != NULL ? names[1] : "no other",
                    why[0] != '\0' ? why : "no reason given");
}

void plm_vk_loader_close(void *library)
{
    if (library != NULL)
        dlclose(library);
}

int plm_vk_instance_functions(struct plm_vk_instance *instance, struct plm_error *err)
{
    struct plm_vk_fns *vk = &instance->vk;
    const char *missing = NULL;
#define X(fn) vk->fn = (PFN_vk##fn)instance_proc(vk, instance->handle, "vk" #fn, &missing);
    PLM_VK_INSTANCE(X)
#undef X
    if (missing != NULL)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "vulkan: the loader has no %s", missing);
    return PLM_OK;
}

int plm_vk_device_functions(struct plm_vk_fns *vk, VkDevice device, struct plm_error *err)
{
    const char *missing = NULL;
#define X(fn)                                                                                      \
    vk->fn = (PFN_vk##fn)vk->GetDeviceProcAddr(device, "vk" #fn);                                  \
    if (vk->fn == NULL && missing == NULL)                                                         \
        missing = "vk" #fn;
    PLM_VK_DEVICE(X)
#undef X
#define X(fn) vk->fn = (PFN_vk##fn)vk->GetDeviceProcAddr(device, "vk" #fn);
    PLM_VK_OPTIONAL(X)
#undef X
    if (missing != NULL)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "vulkan: the driver has no %s", missing);
    return PLM_OK;
}
