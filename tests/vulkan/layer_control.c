// SPDX-License-Identifier: Apache-2.0
#include "layer_control.h"

#include <dlfcn.h>

bool layer_control_open(struct layer_control *ret, const char *path)
{
    // Never unloaded, if it is there: what lavapipe keeps in globals would look leaked without
    // them.
    dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return false;
    }
    *(void **)&ret->set = dlsym(library, "plm_vk_faults_set");
    *(void **)&ret->count = dlsym(library, "plm_vk_faults_count");
    *(void **)&ret->null = dlsym(library, "plm_vk_null_set");
    return ret->set != NULL && ret->count != NULL && ret->null != NULL;
}
