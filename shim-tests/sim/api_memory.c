/* Device memory and pinned host memory of the driver API. Device memory is reached by pread and pwrite on the
 * backing file: it is mapped nowhere in the target. */
#include "slots.h"

#include <unistd.h>

#include "driver_api.h"
#include "session.h"

#define PIECE (1 << 20)
#define HEADER 4096
#define MAX_PINNED 64

/* Pinned memory that is held; under driver.lock. What does not fit in here is copied without pace. */
static struct {
    const char *start;
    size_t bytes;
} pinned[MAX_PINNED];

static void pinned_note(const char *start, size_t bytes)
{
    for (int i = 0; i < MAX_PINNED; i++)
        if (!pinned[i].start) {
            pinned[i].start = start;
            pinned[i].bytes = bytes;
            return;
        }
}

static void pinned_forget(const char *start)
{
    for (int i = 0; i < MAX_PINNED; i++)
        if (pinned[i].start == start)
            pinned[i].start = NULL;
}

static bool is_pinned(const char *host, size_t bytes)
{
    for (int i = 0; i < MAX_PINNED; i++)
        if (pinned[i].start && host >= pinned[i].start && bytes <= pinned[i].bytes &&
            (size_t)(host - pinned[i].start) <= pinned[i].bytes - bytes)
            return true;
    return false;
}

static struct device *current(void)
{
    return current_device < 0 || !driver.device[current_device].in_use ? NULL : &driver.device[current_device];
}

static CUdeviceptr to_pointer(int device, uint64_t offset)
{
    return DEVICE_POINTER_BASE + ((CUdeviceptr)device << DEVICE_POINTER_SHIFT) + offset;
}

/* The device and offset that a pointer names, if `bytes` from there lie in one allocation. */
static struct device *find(CUdeviceptr pointer, uint64_t bytes, uint64_t *offset)
{
    if (pointer < DEVICE_POINTER_BASE)
        return NULL;
    const CUdeviceptr rest = pointer - DEVICE_POINTER_BASE;
    const CUdeviceptr number = rest >> DEVICE_POINTER_SHIFT;
    if (number >= (CUdeviceptr)driver.device_count || !driver.device[number].in_use)
        return NULL;
    *offset = rest & (((CUdeviceptr)1 << DEVICE_POINTER_SHIFT) - 1);
    return device_room(&driver.device[number], *offset) >= bytes ? &driver.device[number] : NULL;
}

static bool transfer(int file, uint64_t offset, char *host, size_t bytes, bool write)
{
    const off_t at = (off_t)(plan_vram_offset() + offset);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write ? pwrite(file, host + done, bytes - done, at + (off_t)done)
                                : pread(file, host + done, bytes - done, at + (off_t)done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUresult rc = api_enter();
    if (rc)
        return rc;
    struct device *device = current();
    uint64_t offset = 0;
    if (!device)
        return api_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!pointer || bytes == 0)
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    rc = device_allocate(device, bytes, &offset);
    if (!rc)
        *pointer = to_pointer(current_device, offset);
    return api_leave(rc);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    const CUresult rc = api_enter();
    if (rc || !pointer)
        return rc ? rc : api_leave(CUDA_SUCCESS);
    uint64_t offset;
    struct device *device = find(pointer, 1, &offset);
    return api_leave(device ? device_free(device, offset) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    const CUresult rc = api_enter();
    if (rc)
        return rc;
    const struct device *device = current();
    if (!device)
        return api_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!available || !total)
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    *available = driver.device_bytes - device->used_bytes;
    *total = driver.device_bytes;
    return api_leave(CUDA_SUCCESS);
}

static CUresult host_copy(CUdeviceptr pointer, void *host, size_t bytes, bool write)
{
    const CUresult rc = api_enter();
    if (rc)
        return rc;
    uint64_t offset;
    struct device *device = find(pointer, bytes, &offset);
    if (!device || (!host && bytes))
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    const uint64_t start = now_ns();
    if (!transfer(device->file, offset, host, bytes, write))
        return api_leave(CUDA_ERROR_UNKNOWN);
    if (is_pinned(host, bytes))
        dma_pace(start, bytes);
    return api_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return host_copy(to, (void *)(uintptr_t)from, bytes, true);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return host_copy(from, to, bytes, false);
}

static char piece[PIECE]; /* under driver.lock */

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const CUresult rc = api_enter();
    if (rc)
        return rc;
    uint64_t source_at, target_at;
    struct device *source = find(from, bytes, &source_at), *target = find(to, bytes, &target_at);
    if (!source || !target)
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t done = 0; done < bytes; done += PIECE) {
        const size_t step = bytes - done < PIECE ? bytes - done : PIECE;
        if (!transfer(source->file, source_at + done, piece, step, false) ||
            !transfer(target->file, target_at + done, piece, step, true))
            return api_leave(CUDA_ERROR_UNKNOWN);
    }
    return api_leave(CUDA_SUCCESS);
}

static CUresult fill(CUdeviceptr to, unsigned int value, size_t bytes)
{
    const CUresult rc = api_enter();
    if (rc)
        return rc;
    uint64_t offset;
    struct device *device = find(to, bytes, &offset);
    if (!device)
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < PIECE / sizeof value; i++)
        ((unsigned int *)(void *)piece)[i] = value;
    for (size_t done = 0; done < bytes; done += PIECE) {
        const size_t step = bytes - done < PIECE ? bytes - done : PIECE;
        if (!transfer(device->file, offset + done, piece, step, true))
            return api_leave(CUDA_ERROR_UNKNOWN);
    }
    return api_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill(to, value * 0x01010101u, count);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count)
{
    return to % 4 ? CUDA_ERROR_INVALID_VALUE : fill(to, value, count * 4);
}

/* Pinned memory is the process's own anonymous memory: in the traces it neither passes through the buffer nor is
 * mapped anew. The page in front of it keeps its length. */
EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    const CUresult rc = api_enter();
    if (rc)
        return rc;
    if (!pointer || bytes == 0)
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    const size_t length = HEADER + (bytes + 4095) / 4096 * 4096;
    char *p = mmap64(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return api_leave(CUDA_ERROR_OUT_OF_MEMORY);
    madvise(p, length, MADV_DONTFORK);
    *(size_t *)(void *)p = length;
    *pointer = p + HEADER;
    pinned_note(*pointer, bytes);
    return api_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

EXPORT CUresult cuMemFreeHost(void *pointer)
{
    const CUresult rc = api_enter();
    if (rc || !pointer)
        return rc ? rc : api_leave(CUDA_ERROR_INVALID_VALUE);
    char *p = (char *)pointer - HEADER;
    pinned_forget(pointer);
    return api_leave(munmap(p, *(size_t *)(void *)p) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
