/* Pointers to the driver API for a host program, from whatever libcuda.so.1 the loader finds: simulated or real. */
#ifndef HOST_API_H
#define HOST_API_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_api.h"

#define POINTER(name, parameters) static CUresult(*name) parameters __attribute__((unused));
CUDA_API(POINTER)
#undef POINTER

/* A driver older than the checkpoint API leaves those pointers NULL. */
static void load_api(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define LOAD(name, parameters) *(void **)(&name) = dlsym(library, #name);
    CUDA_API(LOAD)
#undef LOAD
}

static inline const char *error_text(CUresult error)
{
    const char *text = NULL;
    if (cuGetErrorString)
        cuGetErrorString(error, &text);
    return text ? text : "unknown error";
}

#endif
