/* The few calls of the CUDA driver API that the GPU programs use, loaded from libcuda.so.1 at run time. The machine that
 * builds them has no cuda.h; names, types and numbers are those of the public one. */
#ifndef CUDASNAP_CU_H
#define CUDASNAP_CU_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long device_pointer;

#define CU_CALLS(X)                                                                                                    \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDeviceGet, (int *device, int ordinal))                                                                         \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                          \
    X(cuCtxSetCurrent, (void *context))                                                                                \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuMemAlloc_v2, (device_pointer *to, size_t bytes))                                                               \
    X(cuMemsetD32_v2, (device_pointer to, unsigned value, size_t count))                                               \
    X(cuMemcpyHtoD_v2, (device_pointer to, const void *from, size_t bytes))                                            \
    X(cuMemcpyDtoH_v2, (void *to, device_pointer from, size_t bytes))                                                  \
    X(cuMemHostAlloc, (void **to, size_t bytes, unsigned flags))

#define CU_DECLARE(name, parameters) static int(*name) parameters;
CU_CALLS(CU_DECLARE)

/* Ends the program with the call's name when it failed: nothing here can go on without its device. */
static void cu_check(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "%s: error %d\n", what, code);
        exit(1);
    }
}
#define CU(call) cu_check((call), #call)

static void *cu_symbol(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return symbol;
}

/* Loads the driver, and makes device 0's primary context current. Returns the library. */
static void *cu_open(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define CU_LOAD(name, parameters) *(void **)&name = cu_symbol(library, #name);
    CU_CALLS(CU_LOAD)
    void *context;
    int device;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    return library;
}

#endif
