// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/library.h"

#include <dlfcn.h>
#include <stdio.h>

void *plm_library_open(const char *const *names, const char **ret_name, char *why, size_t size)
{
    size_t used = 0;
    for (const char *const *name = names; *name != NULL; name++) {
        void *handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        *ret_name = *name;
        if (handle != NULL)
            return handle;
        const char *text = dlerror();
        const int len = used < size ? snprintf(why + used, size - used, "%s%s",
                                               used > 0 ? "; " : "", text != NULL ? text : *name)
                                    : 0;
        used += len > 0 ? (size_t)len : 0;
    }
    return NULL;
}
