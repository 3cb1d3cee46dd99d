// SPDX-License-Identifier: Apache-2.0
// What we use of NVIDIA's driver API, in our own declarations, so that building needs no toolkit:
// types, constants and entry points as libcuda.so.1 has them (its ABI). Handles are pointers to the
// driver's own incomplete structs, enumerations are unsigned int. tests/unit/test_cuda_api.c
// compares all of it with cuda.h and cudaTypedefs.h at compile time where that is installed.
#ifndef PLM_CUDA_API_H
#define PLM_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int plm_cu_result;
typedef int plm_cu_device;
typedef unsigned long long plm_cu_ptr;    // device address
typedef unsigned long long plm_cu_memory; // of cuMemCreate
typedef struct CUctx_st *plm_cu_context;
typedef struct CUmod_st *plm_cu_module;
typedef struct CUfunc_st *plm_cu_function;
typedef struct CUkern_st *plm_cu_kernel;
typedef struct CUstream_st *plm_cu_stream;
typedef struct CUevent_st *plm_cu_event;
typedef struct CUgraph_st *plm_cu_graph;
typedef struct CUgraphNode_st *plm_cu_graph_node;
typedef struct CUgraphExec_st *plm_cu_graph_exec;

typedef struct {
    char bytes[16];
} plm_cu_uuid;

typedef struct {
    unsigned int type; // PLM_CU_MEM_LOCATION_DEVICE
    int id;
} plm_cu_mem_location;

typedef struct {
    unsigned int type; // PLM_CU_MEM_ALLOCATION_PINNED
    unsigned int handle_types;
    plm_cu_mem_location location;
    void *win32;
    unsigned char flags[8];
} plm_cu_mem_prop;

typedef struct {
    plm_cu_mem_location location;
    unsigned int flags; // PLM_CU_MEM_ACCESS_READWRITE
} plm_cu_mem_access;

typedef struct {
    unsigned int id; // PLM_CU_LAUNCH_PROGRAMMATIC
    char pad[4];
    union {
        uint64_t words[8];
        int programmatic; // 1: may begin before its predecessor has ended
    } value;
} plm_cu_launch_attribute;

typedef struct {
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    plm_cu_stream stream;
    plm_cu_launch_attribute *attributes;
    unsigned int n_attributes;
} plm_cu_launch_config;

typedef struct {
    plm_cu_function function;
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    void **params;
    void **extra;
    plm_cu_kernel kernel;
    plm_cu_context context;
} plm_cu_kernel_node;

typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} plm_cu_graph_edge;

// Results that we tell apart: X(ours, NVIDIA's, value).
// clang-format off
#define PLM_CU_RESULTS(X) \
    X(SUCCESS, CUDA_SUCCESS, 0) X(INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 1) \
    X(OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2) \
    X(NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED, 3) \
    X(DEINITIALIZED, CUDA_ERROR_DEINITIALIZED, 4) X(STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY, 34) \
    X(DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE, 46) \
    X(NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100) X(INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE, 101) \
    X(INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE, 200) \
    X(INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201) \
    X(NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU, 209) \
    X(ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
    X(INVALID_PTX, CUDA_ERROR_INVALID_PTX, 218) \
    X(NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) \
    X(JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221) \
    X(UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) \
    X(JIT_COMPILATION_DISABLED, CUDA_ERROR_JIT_COMPILATION_DISABLED, 223) \
    X(CONTAINED, CUDA_ERROR_CONTAINED, 226) X(INVALID_SOURCE, CUDA_ERROR_INVALID_SOURCE, 300) \
    X(SHARED_OBJECT_INIT_FAILED, CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303) \
    X(OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM, 304) \
    X(INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400) X(NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500) \
    X(NOT_READY, CUDA_ERROR_NOT_READY, 600) X(ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
    X(LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) \
    X(LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT, 702) \
    X(CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
    X(ASSERT, CUDA_ERROR_ASSERT, 710) \
    X(HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
    X(HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR, 714) \
    X(ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) \
    X(MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS, 716) \
    X(INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) \
    X(INVALID_PC, CUDA_ERROR_INVALID_PC, 718) X(LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, 719) \
    X(NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED, 800) \
    X(NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801) \
    X(SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY, 802) \
    X(SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
    X(MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED, 805) \
    X(MPS_RPC_FAILURE, CUDA_ERROR_MPS_RPC_FAILURE, 806) \
    X(MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_SERVER_NOT_READY, 807) \
    X(MPS_MAX_CLIENTS_REACHED, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 808) \
    X(MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED, 810) \
    X(STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
    X(STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) \
    X(STREAM_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903) \
    X(STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906) \
    X(STREAM_CAPTURE_WRONG_THREAD, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908) \
    X(GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910) \
    X(EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE, 911) X(UNKNOWN, CUDA_ERROR_UNKNOWN, 999)
// clang-format on
enum {
#define X(NAME, theirs, value) PLM_CU_##NAME = (value),
    PLM_CU_RESULTS(X)
#undef X
};

// Other constants: X(ours, NVIDIA's, value).
// clang-format off
#define PLM_CU_CONSTANTS(X) \
    X(PLM_CU_ATTR_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
    X(PLM_CU_ATTR_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED, 18) \
    X(PLM_CU_ATTR_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20) \
    X(PLM_CU_ATTR_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
    X(PLM_CU_ATTR_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
    X(PLM_CU_ATTR_CONCURRENT_MANAGED, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89) \
    X(PLM_CU_ATTR_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) \
    X(PLM_CU_ATTR_MPS, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 133) \
    X(PLM_CU_COMPUTE_MODE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED, 2) \
    X(PLM_CU_CTX_BLOCKING_SYNC, CU_CTX_SCHED_BLOCKING_SYNC, 4) \
    X(PLM_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1) \
    X(PLM_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC, 1) \
    X(PLM_CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING, 2) \
    X(PLM_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1) \
    X(PLM_CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP, 2) \
    X(PLM_CU_REGISTER_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP, 2) \
    X(PLM_CU_FUNC_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3) \
    X(PLM_CU_MEM_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED, 1) \
    X(PLM_CU_MEM_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1) \
    X(PLM_CU_MEM_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) \
    X(PLM_CU_MEM_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0) \
    X(PLM_CU_LAUNCH_PROGRAMMATIC, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6) \
    X(PLM_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2) \
    X(PLM_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)
// clang-format on
enum {
#define X(name, theirs, value) name = (value),
    PLM_CU_CONSTANTS(X)
#undef X
};

// The list `extra` of a launch: pointer and size of the packed arguments.
#define PLM_CU_EXTRA_END     ((void *)0x00)
#define PLM_CU_EXTRA_POINTER ((void *)0x01)
#define PLM_CU_EXTRA_SIZE    ((void *)0x02)

// Entry points: X(name, suffix, since, parameters) is cu<name><suffix>, with these parameters since
// that version of CUDA; every one returns plm_cu_result. cuGetProcAddress is asked for cu<name> as
// it was in `since`; without it the library is asked for cu<name><suffix>.
// clang-format off
#define PLM_CU_REQUIRED(X) \
    X(Init, , 2000, (unsigned int flags)) \
    X(DriverGetVersion, , 2020, (int *version)) \
    X(DeviceGetCount, , 2000, (int *count)) \
    X(DeviceGet, , 2000, (plm_cu_device *device, int ordinal)) \
    X(DeviceGetName, , 2000, (char *name, int len, plm_cu_device device)) \
    X(DeviceGetUuid, _v2, 11040, (plm_cu_uuid *uuid, plm_cu_device device)) \
    X(DeviceTotalMem, _v2, 3020, (size_t *bytes, plm_cu_device device)) \
    X(DeviceGetAttribute, , 2000, (int *value, unsigned int attribute, plm_cu_device device)) \
    X(CtxCreate, _v2, 3020, (plm_cu_context *context, unsigned int flags, plm_cu_device device)) \
    X(CtxDestroy, _v2, 4000, (plm_cu_context context)) \
    X(CtxPushCurrent, _v2, 4000, (plm_cu_context context)) \
    X(CtxPopCurrent, _v2, 4000, (plm_cu_context *context)) \
    X(MemGetInfo, _v2, 3020, (size_t *free, size_t *total)) \
    X(MemAlloc, _v2, 3020, (plm_cu_ptr *ptr, size_t bytes)) \
    X(MemFree, _v2, 3020, (plm_cu_ptr ptr)) \
    X(MemHostAlloc, , 2020, (void **ptr, size_t bytes, unsigned int flags)) \
    X(MemFreeHost, , 2000, (void *ptr)) \
    X(MemHostRegister, _v2, 6050, (void *ptr, size_t bytes, unsigned int flags)) \
    X(MemHostUnregister, , 4000, (void *ptr)) \
    X(MemHostGetDevicePointer, _v2, 3020, (plm_cu_ptr *ptr, void *host, unsigned int flags)) \
    X(MemcpyHtoDAsync, _v2, 3020, \
      (plm_cu_ptr dst, const void *src, size_t bytes, plm_cu_stream stream)) \
    X(MemcpyDtoHAsync, _v2, 3020, (void *dst, plm_cu_ptr src, size_t bytes, plm_cu_stream stream)) \
    X(ModuleLoadData, , 2000, (plm_cu_module *module, const void *image)) \
    X(ModuleUnload, , 2000, (plm_cu_module module)) \
    X(ModuleGetFunction, , 2000, \
      (plm_cu_function *function, plm_cu_module module, const char *name)) \
    X(FuncGetAttribute, , 2020, (int *value, unsigned int attribute, plm_cu_function function)) \
    X(LaunchKernel, , 4000, \
      (plm_cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
       unsigned int block_x, unsigned int block_y, unsigned int block_z, \
       unsigned int shared_bytes, plm_cu_stream stream, void **params, void **extra)) \
    X(StreamCreate, , 2000, (plm_cu_stream *stream, unsigned int flags)) \
    X(StreamDestroy, _v2, 4000, (plm_cu_stream stream)) \
    X(EventCreate, , 2000, (plm_cu_event *event, unsigned int flags)) \
    X(EventDestroy, _v2, 4000, (plm_cu_event event)) \
    X(EventRecord, , 2000, (plm_cu_event event, plm_cu_stream stream)) \
    X(EventQuery, , 2000, (plm_cu_event event))
// Absent from some drivers: names of errors; the rest comes in groups, all of a group or none.
#define PLM_CU_OPTIONAL(X) \
    X(GetErrorName, , 6000, (plm_cu_result result, const char **name)) \
    X(MemAddressReserve, , 10020, (plm_cu_ptr *ptr, size_t bytes, size_t alignment, \
      plm_cu_ptr where, unsigned long long flags)) \
    X(MemAddressFree, , 10020, (plm_cu_ptr ptr, size_t bytes)) \
    X(MemCreate, , 10020, (plm_cu_memory *memory, size_t bytes, const plm_cu_mem_prop *prop, \
      unsigned long long flags)) \
    X(MemRelease, , 10020, (plm_cu_memory memory)) \
    X(MemMap, , 10020, (plm_cu_ptr ptr, size_t bytes, size_t offset, plm_cu_memory memory, \
      unsigned long long flags)) \
    X(MemUnmap, , 10020, (plm_cu_ptr ptr, size_t bytes)) \
    X(MemSetAccess, , 10020, \
      (plm_cu_ptr ptr, size_t bytes, const plm_cu_mem_access *access, size_t count)) \
    X(MemGetAllocationGranularity, , 10020, \
      (size_t *bytes, const plm_cu_mem_prop *prop, unsigned int option)) \
    X(LaunchKernelEx, , 11060, (const plm_cu_launch_config *config, plm_cu_function function, \
      void **params, void **extra)) \
    X(StreamBeginCapture, _v2, 10010, (plm_cu_stream stream, unsigned int mode)) \
    X(StreamEndCapture, , 10000, (plm_cu_stream stream, plm_cu_graph *graph)) \
    X(StreamGetCaptureInfo, _v3, 12030, (plm_cu_stream stream, unsigned int *status, \
      uint64_t *id, plm_cu_graph *graph, const plm_cu_graph_node **nodes, \
      const plm_cu_graph_edge **edges, size_t *n)) \
    X(GraphInstantiateWithFlags, , 11040, \
      (plm_cu_graph_exec *exec, plm_cu_graph graph, unsigned long long flags)) \
    X(GraphUpload, , 11010, (plm_cu_graph_exec exec, plm_cu_stream stream)) \
    X(GraphLaunch, , 10000, (plm_cu_graph_exec exec, plm_cu_stream stream)) \
    X(GraphExecKernelNodeSetParams, _v2, 12000, (plm_cu_graph_exec exec, \
      plm_cu_graph_node node, const plm_cu_kernel_node *params)) \
    X(GraphExecDestroy, , 10000, (plm_cu_graph_exec exec)) \
    X(GraphDestroy, , 10000, (plm_cu_graph graph))
// clang-format on

// cuGetProcAddress_v2 itself, which only the library can be asked for (CUDA 12.0).
typedef plm_cu_result plm_cu_get_proc_address(const char *symbol, void **function, int version,
                                              uint64_t flags, unsigned int *status);

struct plm_cu_fns {
#define X(name, suffix, since, params) plm_cu_result(*name) params;
    PLM_CU_REQUIRED(X)
    PLM_CU_OPTIONAL(X)
#undef X
};

#endif
