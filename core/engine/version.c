// SPDX-License-Identifier: Apache-2.0
// Status codes and the version of the library.
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/plimsoll.h"

#define STR_(x) #x
#define STR(x)  STR_(x)

// The public codes are the core's.
#define SAME(name) _Static_assert((int)PLIM_##name == (int)PLM_##name, #name)
SAME(OK);
SAME(ERR_INVALID);
SAME(ERR_FORMAT);
SAME(ERR_UNSUPPORTED);
SAME(ERR_NOT_FOUND);
SAME(ERR_IO);
SAME(ERR_NOMEM_HOST);
SAME(ERR_NOMEM_NEVER);
SAME(ERR_NOMEM_NOW);
SAME(ERR_OUT_OF_DEVICE);
SAME(ERR_TOO_LARGE);
SAME(ERR_LOST);
SAME(ERR_SEALED);
SAME(ERR_QUEUE_FULL);
SAME(ERR_CONTEXT);
SAME(ERR_CANCELLED);
SAME(ERR_TIMEOUT);
SAME(ERR_LIMIT);
SAME(ERR_CLOSED);
SAME(ERR_NUMERIC);
SAME(ERR_INTERNAL);
SAME(ERR_BUSY);
SAME(LOG_ERROR);
SAME(LOG_DEBUG);

const char *plim_strstatus(int status)
{
    return plm_strstatus(status);
}

const char *plim_version(void)
{
    return STR(PLIM_VERSION_MAJOR) "." STR(PLIM_VERSION_MINOR) "." STR(PLIM_VERSION_PATCH);
}

#ifdef PLM_BACKEND_CUDA
#define CUDA ", cuda"
#else
#define CUDA ""
#endif
#ifdef PLM_BACKEND_HIP
#define HIP ", hip"
#else
#define HIP ""
#endif
#ifdef PLM_BACKEND_VULKAN
#define VULKAN ", vulkan"
#else
#define VULKAN ""
#endif
#define BACKENDS "cpu, sim" CUDA HIP VULKAN

const char *plim_build_info(void)
{
#if defined(__clang__)
    return "backends " BACKENDS "; clang " __clang_version__;
#else
    return "backends " BACKENDS "; gcc " __VERSION__;
#endif
}

uint32_t plim_version_number(void)
{
    return PLIM_VERSION_NUMBER;
}
