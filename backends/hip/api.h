// SPDX-License-Identifier: Apache-2.0
// What we use of the HIP runtime, in our own declarations, so that building needs no ROCm: types,
// constants and entry points as libamdhip64 has them since 5.2 (its ABI). Handles are pointers to
// its own incomplete structs, enumerations are unsigned int. tests/unit/test_hip_api.c compares
// all of it with hip_runtime_api.h at compile time where that is installed.
#ifndef PLM_HIP_API_H
#define PLM_HIP_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int plm_hip_result;
typedef struct ihipModule_t *plm_hip_module;
typedef struct ihipModuleSymbol_t *plm_hip_function;
typedef struct ihipStream_t *plm_hip_stream;
typedef struct ihipEvent_t *plm_hip_event;
typedef struct ihipGraph *plm_hip_graph;
typedef struct hipGraphExec *plm_hip_graph_exec;

typedef struct {
    char bytes[16]; // text: the card's unique number in hexadecimal
} plm_hip_uuid;

// hipDeviceProp_t, of which we want the name of the architecture alone ("gfx90a:sramecc+:xnack-").
// The struct changed with HIP 6, where hipGetDevicePropertiesR0600 has the new one and
// hipGetDeviceProperties kept the old.
typedef struct {
    char bytes[4096]; // more than either is long
} plm_hip_properties;
#define PLM_HIP_ARCH_NAME_BYTES  256
#define PLM_HIP_ARCH_NAME_AT     396 // in the old struct, 792 bytes long
#define PLM_HIP_ARCH_NAME_AT_600 1160

// Results that we tell apart: X(ours, AMD's, value).
// clang-format off
#define PLM_HIP_RESULTS(X) \
    X(SUCCESS, hipSuccess, 0) X(INVALID_VALUE, hipErrorInvalidValue, 1) \
    X(OUT_OF_MEMORY, hipErrorOutOfMemory, 2) X(NOT_INITIALIZED, hipErrorNotInitialized, 3) \
    X(DEINITIALIZED, hipErrorDeinitialized, 4) \
    X(INVALID_CONFIGURATION, hipErrorInvalidConfiguration, 9) \
    X(INSUFFICIENT_DRIVER, hipErrorInsufficientDriver, 35) \
    X(PRIOR_LAUNCH_FAILURE, hipErrorPriorLaunchFailure, 53) \
    X(INVALID_DEVICE_FUNCTION, hipErrorInvalidDeviceFunction, 98) \
    X(NO_DEVICE, hipErrorNoDevice, 100) X(INVALID_DEVICE, hipErrorInvalidDevice, 101) \
    X(INVALID_IMAGE, hipErrorInvalidImage, 200) X(INVALID_CONTEXT, hipErrorInvalidContext, 201) \
    X(NO_BINARY_FOR_GPU, hipErrorNoBinaryForGpu, 209) \
    X(ECC_NOT_CORRECTABLE, hipErrorECCNotCorrectable, 214) \
    X(INVALID_KERNEL_FILE, hipErrorInvalidKernelFile, 218) \
    X(INVALID_SOURCE, hipErrorInvalidSource, 300) X(FILE_NOT_FOUND, hipErrorFileNotFound, 301) \
    X(SHARED_OBJECT_INIT_FAILED, hipErrorSharedObjectInitFailed, 303) \
    X(INVALID_HANDLE, hipErrorInvalidHandle, 400) X(ILLEGAL_STATE, hipErrorIllegalState, 401) \
    X(NOT_FOUND, hipErrorNotFound, 500) X(NOT_READY, hipErrorNotReady, 600) \
    X(ILLEGAL_ADDRESS, hipErrorIllegalAddress, 700) \
    X(LAUNCH_OUT_OF_RESOURCES, hipErrorLaunchOutOfResources, 701) \
    X(LAUNCH_TIMEOUT, hipErrorLaunchTimeOut, 702) \
    X(CONTEXT_IS_DESTROYED, hipErrorContextIsDestroyed, 709) X(ASSERT, hipErrorAssert, 710) \
    X(HOST_MEMORY_ALREADY_REGISTERED, hipErrorHostMemoryAlreadyRegistered, 712) \
    X(LAUNCH_FAILURE, hipErrorLaunchFailure, 719) X(NOT_SUPPORTED, hipErrorNotSupported, 801) \
    X(STREAM_CAPTURE_UNSUPPORTED, hipErrorStreamCaptureUnsupported, 900) \
    X(STREAM_CAPTURE_INVALIDATED, hipErrorStreamCaptureInvalidated, 901) \
    X(STREAM_CAPTURE_UNMATCHED, hipErrorStreamCaptureUnmatched, 903) \
    X(STREAM_CAPTURE_IMPLICIT, hipErrorStreamCaptureImplicit, 906) \
    X(STREAM_CAPTURE_WRONG_THREAD, hipErrorStreamCaptureWrongThread, 908) \
    X(UNKNOWN, hipErrorUnknown, 999) X(RUNTIME_MEMORY, hipErrorRuntimeMemory, 1052) \
    X(RUNTIME_OTHER, hipErrorRuntimeOther, 1053)

// Other constants: X(ours, AMD's, value).
#define PLM_HIP_CONSTANTS(X) \
    X(PLM_HIP_ATTR_CONCURRENT_MANAGED, hipDeviceAttributeConcurrentManagedAccess, 9) \
    X(PLM_HIP_ATTR_INTEGRATED, hipDeviceAttributeIntegrated, 16) \
    X(PLM_HIP_ATTR_MULTIPROCESSORS, hipDeviceAttributeMultiprocessorCount, 63) \
    X(PLM_HIP_STREAM_NON_BLOCKING, hipStreamNonBlocking, 1) \
    X(PLM_HIP_EVENT_NO_TIMING, hipEventDisableTiming, 2) \
    X(PLM_HIP_HOST_PORTABLE, hipHostMallocPortable, 1) \
    X(PLM_HIP_HOST_MAPPED, hipHostMallocMapped, 2) \
    X(PLM_HIP_REGISTER_MAPPED, hipHostRegisterMapped, 2) \
    X(PLM_HIP_COPY_TO_DEVICE, hipMemcpyHostToDevice, 1) \
    X(PLM_HIP_COPY_TO_HOST, hipMemcpyDeviceToHost, 2) \
    X(PLM_HIP_FUNC_LOCAL_BYTES, HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3) \
    X(PLM_HIP_CAPTURE_RELAXED, hipStreamCaptureModeRelaxed, 2)
// clang-format on
enum {
#define X(NAME, theirs, value) PLM_HIP_##NAME = (value),
    PLM_HIP_RESULTS(X)
#undef X
#define X(name, theirs, value) name = (value),
        PLM_HIP_CONSTANTS(X)
#undef X
};

// The list `extra` of a launch: pointer and size of the packed arguments.
#define PLM_HIP_EXTRA_POINTER ((void *)0x01)
#define PLM_HIP_EXTRA_SIZE    ((void *)0x02)
#define PLM_HIP_EXTRA_END     ((void *)0x03)

// Entry points: X(name, parameters) is hip<name>; every one returns plm_hip_result.
// clang-format off
#define PLM_HIP_REQUIRED(X) \
    X(Init, (unsigned int flags)) \
    X(RuntimeGetVersion, (int *version)) \
    X(GetDeviceCount, (int *count)) \
    X(DeviceGetName, (char *name, int len, int device)) \
    X(DeviceGetUuid, (plm_hip_uuid *uuid, int device)) \
    X(DeviceTotalMem, (size_t *bytes, int device)) \
    X(DeviceGetAttribute, (int *value, unsigned int attribute, int device)) \
    X(SetDevice, (int device)) \
    X(GetDevice, (int *device)) \
    X(DeviceReset, (void)) \
    X(MemGetInfo, (size_t *free, size_t *total)) \
    X(Malloc, (void **ptr, size_t bytes)) \
    X(Free, (void *ptr)) \
    X(HostMalloc, (void **ptr, size_t bytes, unsigned int flags)) \
    X(HostFree, (void *ptr)) \
    X(HostRegister, (void *ptr, size_t bytes, unsigned int flags)) \
    X(HostUnregister, (void *ptr)) \
    X(HostGetDevicePointer, (void **ptr, void *host, unsigned int flags)) \
    X(MemcpyAsync, (void *dst, const void *src, size_t bytes, unsigned int kind, \
      plm_hip_stream stream)) \
    X(ModuleLoadData, (plm_hip_module *module, const void *image)) \
    X(ModuleUnload, (plm_hip_module module)) \
    X(ModuleGetFunction, (plm_hip_function *function, plm_hip_module module, const char *name)) \
    X(FuncGetAttribute, (int *value, unsigned int attribute, plm_hip_function function)) \
    X(ModuleLaunchKernel, (plm_hip_function function, \
      unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
      unsigned int block_x, unsigned int block_y, unsigned int block_z, \
      unsigned int shared_bytes, plm_hip_stream stream, void **params, void **extra)) \
    X(StreamCreateWithFlags, (plm_hip_stream *stream, unsigned int flags)) \
    X(StreamDestroy, (plm_hip_stream stream)) \
    X(EventCreateWithFlags, (plm_hip_event *event, unsigned int flags)) \
    X(EventDestroy, (plm_hip_event event)) \
    X(EventRecord, (plm_hip_event event, plm_hip_stream stream)) \
    X(EventQuery, (plm_hip_event event))
// Absent from some versions; the graphs come all or none.
#define PLM_HIP_OPTIONAL(X) \
    X(GetDeviceProperties, (plm_hip_properties *ret, int device)) \
    X(StreamBeginCapture, (plm_hip_stream stream, unsigned int mode)) \
    X(StreamEndCapture, (plm_hip_stream stream, plm_hip_graph *graph)) \
    X(GraphInstantiateWithFlags, \
      (plm_hip_graph_exec *exec, plm_hip_graph graph, unsigned long long flags)) \
    X(GraphLaunch, (plm_hip_graph_exec exec, plm_hip_stream stream)) \
    X(GraphExecDestroy, (plm_hip_graph_exec exec)) \
    X(GraphDestroy, (plm_hip_graph graph))
// Not in 5.2 yet.
#define PLM_HIP_LATER(X) \
    X(GetDevicePropertiesR0600, (plm_hip_properties *ret, int device)) \
    X(GraphUpload, (plm_hip_graph_exec exec, plm_hip_stream stream))
// clang-format on

// Names of errors, the one entry point that returns no result.
typedef const char *plm_hip_get_error_name(plm_hip_result result);

struct plm_hip_fns {
#define X(name, params) plm_hip_result(*name) params;
    PLM_HIP_REQUIRED(X)
    PLM_HIP_OPTIONAL(X)
    PLM_HIP_LATER(X)
#undef X
    plm_hip_get_error_name *GetErrorName;
};

#endif
