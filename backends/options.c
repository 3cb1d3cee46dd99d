// SPDX-License-Identifier: Apache-2.0
// Options of cards, checked apart from list.c: tests have lists of their own.
#include <string.h>

#include "backends/shared/card_opts.h"
#include "core/backend.h"

int plm_backend_check_options(const char *backend, const char *text, struct plm_error *err)
{
    if (strcmp(backend, "vulkan") == 0) {
        struct plm_vk_opts opts;
        return plm_vk_opts_parse(text, &opts, err);
    }
    struct plm_gpu_opts opts;
    if (strcmp(backend, "cuda") == 0 || strcmp(backend, "hip") == 0)
        return plm_gpu_opts_parse(backend, text, &opts, err);
    return PLM_OK;
}
