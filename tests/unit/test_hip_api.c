// SPDX-License-Identifier: Apache-2.0
// backends/hip/api.h against hip_runtime_api.h: it compiles or it does not.
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>

#include <stdbool.h>

#include "backends/hip/api.h"

#define X(name, theirs, value) _Static_assert((int)(theirs) == (value), #theirs);
PLM_HIP_RESULTS(X)
PLM_HIP_CONSTANTS(X)
#undef X

_Static_assert(sizeof(plm_hip_uuid) == sizeof(hipUUID), "hipUUID");
_Static_assert(sizeof(plm_hip_properties) >= sizeof(hipDeviceProp_t), "hipDeviceProp_t");
_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) ==
                   (HIP_VERSION_MAJOR >= 6 ? PLM_HIP_ARCH_NAME_AT_600 : PLM_HIP_ARCH_NAME_AT),
               "hipDeviceProp_t.gcnArchName");

// Entry points: the same parameters once our names of types stand for theirs.
#define plm_hip_uuid       hipUUID
#define plm_hip_properties hipDeviceProp_t
#define X(name, params)                                                                            \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&hip##name), plm_hip_result(*) params), \
                   #name);
PLM_HIP_REQUIRED(X)
PLM_HIP_OPTIONAL(X)
#if HIP_VERSION_MAJOR >= 6
PLM_HIP_LATER(X)
#endif
#undef X

int main(void)
{
    // Addresses are no constants for the compiler.
    const bool same = PLM_HIP_EXTRA_END == HIP_LAUNCH_PARAM_END &&
                      PLM_HIP_EXTRA_POINTER == HIP_LAUNCH_PARAM_BUFFER_POINTER &&
                      PLM_HIP_EXTRA_SIZE == HIP_LAUNCH_PARAM_BUFFER_SIZE;
    return same ? 0 : 1;
}
