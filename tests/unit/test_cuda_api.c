// SPDX-License-Identifier: Apache-2.0
// backends/cuda/api.h against cuda.h and cudaTypedefs.h: it compiles or it does not.
#include <cudaTypedefs.h>

#include <stdbool.h>

#include "backends/cuda/api.h"

#define SAME(ours, theirs)                                                                         \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs)
#define SAME_AT(ours, mine, theirs, field)                                                         \
    _Static_assert(offsetof(ours, mine) == offsetof(theirs, field), #theirs "." #field)

SAME(plm_cu_uuid, CUuuid);
SAME(plm_cu_mem_location, CUmemLocation);
SAME(plm_cu_mem_prop, CUmemAllocationProp);
SAME_AT(plm_cu_mem_prop, type, CUmemAllocationProp, type);
SAME_AT(plm_cu_mem_prop, location, CUmemAllocationProp, location);
SAME(plm_cu_mem_access, CUmemAccessDesc);
SAME_AT(plm_cu_mem_access, flags, CUmemAccessDesc, flags);
SAME(plm_cu_launch_attribute, CUlaunchAttribute);
SAME_AT(plm_cu_launch_attribute, value.programmatic, CUlaunchAttribute,
        value.programmaticStreamSerializationAllowed);
SAME(plm_cu_launch_config, CUlaunchConfig);
SAME_AT(plm_cu_launch_config, block, CUlaunchConfig, blockDimX);
SAME_AT(plm_cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_AT(plm_cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_AT(plm_cu_launch_config, attributes, CUlaunchConfig, attrs);
SAME_AT(plm_cu_launch_config, n_attributes, CUlaunchConfig, numAttrs);
SAME(plm_cu_kernel_node, CUDA_KERNEL_NODE_PARAMS);
SAME_AT(plm_cu_kernel_node, grid, CUDA_KERNEL_NODE_PARAMS, gridDimX);
SAME_AT(plm_cu_kernel_node, block, CUDA_KERNEL_NODE_PARAMS, blockDimX);
SAME_AT(plm_cu_kernel_node, shared_bytes, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SAME_AT(plm_cu_kernel_node, params, CUDA_KERNEL_NODE_PARAMS, kernelParams);
SAME_AT(plm_cu_kernel_node, extra, CUDA_KERNEL_NODE_PARAMS, extra);
SAME_AT(plm_cu_kernel_node, context, CUDA_KERNEL_NODE_PARAMS, ctx);
SAME(plm_cu_graph_edge, CUgraphEdgeData);

#define X(name, theirs, value) _Static_assert((int)(theirs) == (value), #theirs);
PLM_CU_RESULTS(X)
PLM_CU_CONSTANTS(X)
#undef X

// Entry points: the parameters that they have since the version that we ask for, once our names of
// types stand for theirs.
#define plm_cu_device        CUdevice
#define plm_cu_ptr           CUdeviceptr
#define plm_cu_memory        CUmemGenericAllocationHandle
#define plm_cu_uuid          CUuuid
#define plm_cu_mem_prop      CUmemAllocationProp
#define plm_cu_mem_access    CUmemAccessDesc
#define plm_cu_launch_config CUlaunchConfig
#define plm_cu_kernel_node   CUDA_KERNEL_NODE_PARAMS
#define plm_cu_graph_edge    CUgraphEdgeData
#define X(name, suffix, since, params)                                                             \
    _Static_assert(__builtin_types_compatible_p(PFN_cu##name##_v##since, plm_cu_result(*) params), \
                   #name);
PLM_CU_REQUIRED(X)
PLM_CU_OPTIONAL(X)
#undef X

int main(void)
{
    // Addresses are no constants for the compiler.
    const bool same = PLM_CU_EXTRA_END == CU_LAUNCH_PARAM_END &&
                      PLM_CU_EXTRA_POINTER == CU_LAUNCH_PARAM_BUFFER_POINTER &&
                      PLM_CU_EXTRA_SIZE == CU_LAUNCH_PARAM_BUFFER_SIZE;
    return same ? 0 : 1;
}
