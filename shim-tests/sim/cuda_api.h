/* The part of the CUDA driver API that the simulated driver exports and its host programs use.
 * Names, numbers and layouts are those of the public cuda.h (12.8 and later), so a program compiled
 * against this header runs unchanged on the real driver. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef uint64_t cuuint64_t;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999
};

typedef enum CUprocessState_enum {
    CU_PROCESS_STATE_RUNNING = 0,
    CU_PROCESS_STATE_LOCKED = 1,
    CU_PROCESS_STATE_CHECKPOINTED = 2,
    CU_PROCESS_STATE_FAILED = 3
} CUprocessState;

typedef struct CUcheckpointLockArgs_st {
    unsigned int timeoutMs; /* 0: wait for ever */
    unsigned int reserved0;
    cuuint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct CUcheckpointCheckpointArgs_st {
    cuuint64_t reserved[8];
} CUcheckpointCheckpointArgs;

typedef struct CUcheckpointRestoreArgs_st {
    void *gpuPairs;
    unsigned int gpuPairsCount;
    char reserved[64 - sizeof(void *) - sizeof(unsigned int)];
} CUcheckpointRestoreArgs;

typedef struct CUcheckpointUnlockArgs_st {
    cuuint64_t reserved[8];
} CUcheckpointUnlockArgs;

/* One line per function: result, name, parameters. The simulated driver declares its exports from this
 * table; the host programs load their pointers from it. */
#define CUDA_API(X)                                                                                        \
    X(cuInit, (unsigned int flags))                                                                        \
    X(cuDriverGetVersion, (int *version))                                                                  \
    X(cuGetErrorString, (CUresult error, const char **text))                                               \
    X(cuGetErrorName, (CUresult error, const char **name))                                                 \
    X(cuDeviceGetCount, (int *count))                                                                      \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                                       \
    X(cuDeviceGetName, (char *name, int length, CUdevice device))                                          \
    X(cuDeviceTotalMem, (unsigned int *bytes, CUdevice device))                                            \
    X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                              \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                    \
    X(cuDevicePrimaryCtxRelease, (CUdevice device))                                                        \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                     \
    X(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device))                          \
    X(cuCtxSetCurrent, (CUcontext context))                                                                \
    X(cuCtxGetCurrent, (CUcontext * context))                                                              \
    X(cuCtxSynchronize, (void))                                                                            \
    X(cuCtxDestroy_v2, (CUcontext context))                                                                \
    X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                                \
    X(cuMemFree_v2, (CUdeviceptr pointer))                                                                 \
    X(cuMemGetInfo_v2, (size_t * available, size_t *total))                                                \
    X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                                   \
    X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                         \
    X(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                   \
    X(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count))                                  \
    X(cuMemsetD32_v2, (CUdeviceptr to, unsigned int value, size_t count))                                  \
    X(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned int flags))                                  \
    X(cuMemAllocHost_v2, (void **pointer, size_t bytes))                                                   \
    X(cuMemFreeHost, (void *pointer))                                                                      \
    X(cuCheckpointProcessGetRestoreThreadId, (int pid, int *tid))                                          \
    X(cuCheckpointProcessGetState, (int pid, CUprocessState *state))                                       \
    X(cuCheckpointProcessLock, (int pid, CUcheckpointLockArgs *args))                                      \
    X(cuCheckpointProcessCheckpoint, (int pid, CUcheckpointCheckpointArgs *args))                          \
    X(cuCheckpointProcessRestore, (int pid, CUcheckpointRestoreArgs *args))                                \
    X(cuCheckpointProcessUnlock, (int pid, CUcheckpointUnlockArgs *args))

#endif
