// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <dlfcn.h>

bool fake_control_open(struct fake_control *ret, const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return false;
    *(void **)&ret->set = dlsym(handle, "plm_fake_gpu_set");
    *(void **)&ret->count = dlsym(handle, "plm_fake_gpu_count");
    *(void **)&ret->null = dlsym(handle, "plm_fake_gpu_null");
    return ret->set != NULL && ret->count != NULL && ret->null != NULL;
}
