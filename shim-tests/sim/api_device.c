/* Devices, contexts and errors of the driver API. */
#include "slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver_api.h"

static uint64_t option(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*end == '\0')
        return value;
    fprintf(stderr, "cudasim: %s: not a number: '%s'\n", name, text);
    return otherwise;
}

static CUresult initialise(void)
{
    if (atomic_load(&driver.owner) == getpid())
        return CUDA_SUCCESS;
    if (atomic_load(&driver.owner) != 0)
        return CUDA_ERROR_NOT_INITIALIZED; /* a forked child */
    const uint64_t devices = option("CUDASIM_DEVICES", 1);
    driver.device_count = devices > MAX_DEVICES ? MAX_DEVICES : (int)devices;
    driver.device_bytes = option("CUDASIM_DEVICE_MIB", 65536) / 2 * 2 * MIB;
    driver.context_mib = option("CUDASIM_CONTEXT_MIB", 64);
    fault_parse(getenv("CUDASIM_FAULT"), getenv("CUDASIM_MUTATE"), &driver.fault);
    for (int d = 0; d < MAX_DEVICES; d++)
        driver.device[d].file = -1;
    if (driver.device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    CUresult rc = CUDA_SUCCESS;
    for (int d = 0; d < driver.device_count && !rc; d++)
        rc = device_attach(&driver.device[d], d);
    if (!rc && restore_thread_start() != 0)
        rc = CUDA_ERROR_OPERATING_SYSTEM;
    if (rc) {
        for (int d = 0; d < driver.device_count; d++)
            device_detach(&driver.device[d]);
        return rc;
    }
    atomic_store(&driver.owner, getpid());
    return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    const CUresult rc = initialise();
    pthread_mutex_unlock(&driver.lock);
    return rc;
}

/* In front of every call that reaches a device. The context's own memory is compared here, in the first call after
 * a restore, so that the comparison is no part of the restore's time. */
CUresult api_enter(void)
{
    const CUresult rc = gate_enter();
    if (rc)
        return rc;
    pthread_mutex_lock(&driver.lock);
    if (driver.context_unchecked) {
        driver.context_unchecked = false;
        for (int d = 0; d < driver.device_count; d++)
            if (driver.device[d].in_use && !context_intact(&driver.device[d], d))
                driver.context_lost = true;
    }
    if (!driver.context_lost)
        return CUDA_SUCCESS;
    return api_leave(CUDA_ERROR_LAUNCH_FAILED);
}

CUresult api_leave(CUresult rc)
{
    pthread_mutex_unlock(&driver.lock);
    gate_leave();
    return rc;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

static CUresult known_device(CUdevice device)
{
    if (atomic_load(&driver.owner) != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    return device >= 0 && device < driver.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    if (atomic_load(&driver.owner) != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = driver.device_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    const CUresult rc = known_device(ordinal);
    if (!rc && device)
        *device = ordinal;
    return rc ? rc : device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    const CUresult rc = known_device(device);
    if (rc)
        return rc;
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "cudasim device %d", device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    const CUresult rc = known_device(device);
    if (!rc && bytes)
        *bytes = driver.device_bytes;
    return rc ? rc : bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t wide;
    const CUresult rc = cuDeviceTotalMem_v2(&wide, device);
    if (!rc && bytes)
        *bytes = wide > UINT32_MAX ? UINT32_MAX : (unsigned int)wide;
    return rc ? rc : bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* One context per device: what the real driver makes of a second one shows in no trace. */
static CUresult context_open(CUcontext *context, CUdevice device, bool make_current)
{
    CUresult rc = known_device(device);
    if (rc || !context)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    rc = api_enter();
    if (rc)
        return rc;
    struct device *d = &driver.device[device];
    if (!d->in_use)
        rc = device_open(d, device);
    if (!rc) {
        d->retained++;
        driver.context[device].device = device;
        *context = &driver.context[device];
        if (make_current)
            current_device = device;
    }
    return api_leave(rc);
}

static CUresult context_close(CUdevice device)
{
    CUresult rc = api_enter();
    if (rc)
        return rc;
    struct device *d = &driver.device[device];
    if (!d->in_use)
        return api_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (--d->retained == 0)
        device_close(d);
    return api_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return context_open(context, device, false);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    const CUresult rc = known_device(device);
    return rc ? rc : context_close(device);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    (void)flags;
    return context_open(context, device, true);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (current_device == context->device)
        current_device = -1;
    return context_close(context->device);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    const CUresult rc = api_enter();
    if (rc)
        return rc;
    current_device = context ? context->device : -1;
    return api_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult rc = api_enter();
    if (rc)
        return rc;
    *context = current_device < 0 ? NULL : &driver.context[current_device];
    return api_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSynchronize(void)
{
    const CUresult rc = api_enter();
    return rc ? rc : api_leave(current_device < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
}
