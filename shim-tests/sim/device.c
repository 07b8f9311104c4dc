/* A device: its backing file (driver host memory, then device memory), from cuInit on; its context and its allocations.
 *
 * The file is a memfd: it has no name to clean up, its memory goes with its last user, and the caller of a
 * phase reaches it through /proc/PID/fd. Device memory is never mapped into the target. */
#include "slots.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <unistd.h>

#include "driver.h"
#include "pattern.h"

#define PIECE_WORDS (64 * 1024)

int device_file_create(int ordinal)
{
    char name[32];
    snprintf(name, sizeof name, DEVICE_FILE "%d", ordinal);
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)(plan_vram_offset() + driver.device_bytes)) != 0) {
        close(file);
        file = -1;
    }
    return file;
}

/* Allocates a range of the backing file, so that page allocation, which no GPU has, does not hold up the DMA. */
void device_back(const struct device *device, uint64_t offset, uint64_t bytes)
{
    fallocate(device->file, FALLOC_FL_KEEP_SIZE, (off_t)(plan_vram_offset() + offset), (off_t)bytes);
}

/* Fills or checks one range of the context's own bytes; the number of wrong words. */
static uint64_t range_pass(const struct device *device, uint64_t key, uint64_t offset, uint64_t bytes, bool check)
{
    static uint64_t words[PIECE_WORDS];
    uint64_t wrong = 0;
    for (uint64_t done = 0; done < bytes; done += sizeof words) {
        const size_t step = bytes - done < sizeof words ? (size_t)(bytes - done) : sizeof words;
        const uint64_t first = (offset + done) / 8;
        const off_t at = (off_t)(offset + done);
        if (!check)
            pattern_fill(words, step / 8, key, first);
        ssize_t moved = check ? pread(device->file, words, step, at) : pwrite(device->file, words, step, at);
        if (moved != (ssize_t)step)
            return 1;
        if (check)
            wrong += pattern_wrong(words, step / 8, key, first);
    }
    return wrong;
}

static bool context_pass(const struct device *device, int ordinal, bool check)
{
    const uint64_t key = 0xc0de000000000000u + (uint64_t)ordinal;
    uint64_t offset, bytes, wrong = 0;
    for (int i = 0; plan_context_range(device->context_chunks, i, &offset, &bytes); i++)
        wrong += range_pass(device, key, offset, bytes, check);
    return wrong == 0;
}

bool context_intact(struct device *device, int ordinal)
{
    return context_pass(device, ordinal, true);
}

/* Reserves a place for a region that exists while the process runs: at its address if that is free, else
 * anywhere, on a 2 MiB boundary if it is that long. */
static void *reserve(int ordinal, enum region region)
{
    const size_t bytes = plan_region(region).bytes;
    void *hint = (void *)(uintptr_t)plan_host_address(ordinal, region);
    if (hint || bytes < CHUNK)
        return mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *p = mmap(NULL, bytes + CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return p;
    char *start = (char *)(((uintptr_t)p + CHUNK - 1) / CHUNK * CHUNK);
    if (start > p)
        munmap(p, (size_t)(start - p));
    const size_t length = (bytes + 4095) / 4096 * 4096;
    munmap(start + length, (size_t)(p + bytes + CHUNK - start) - length);
    return start;
}

/* The single pages are one block, numbered downwards. */
static bool reserve_pages(struct device *device)
{
    const int count = HOST_PAGES + 1;
    char *p = mmap(NULL, (size_t)count * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    for (int i = 0; i < HOST_PAGES; i++)
        device->address[REGION_PAGE_FIRST + i] = p + (size_t)(count - 1 - i) * 4096;
    device->address[REGION_PAGE_LAST] = p;
    return true;
}

static bool map_regions(struct device *device, int ordinal, int first, int end)
{
    for (int r = first; r < end; r++) {
        const struct region_shape shape = plan_region((enum region)r);
        const bool page = r == REGION_PAGE_LAST || (r >= REGION_PAGE_FIRST && r < REGION_HOST_D);
        if (!page)
            device->address[r] = reserve(ordinal, (enum region)r);
        if (device->address[r] == MAP_FAILED)
            return false;
        void *p = mmap(device->address[r], shape.bytes, shape.protection, MAP_SHARED | MAP_FIXED, device->file,
                       (off_t)plan_region_offset((enum region)r));
        if (p == MAP_FAILED)
            return false;
    }
    return true;
}

static void unmap_regions(struct device *device, int first, int end)
{
    for (int r = first; r < end; r++) {
        if (device->address[r] && device->address[r] != MAP_FAILED)
            munmap(device->address[r], plan_region((enum region)r).bytes);
        device->address[r] = NULL;
    }
}

CUresult device_attach(struct device *device, int ordinal)
{
    device->file = device_file_create(ordinal);
    return device->file >= 0 && map_regions(device, ordinal, REGION_HOST_END, REGION_COUNT)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OPERATING_SYSTEM;
}

void device_detach(struct device *device)
{
    unmap_regions(device, REGION_HOST_END, REGION_COUNT);
    if (device->file >= 0)
        close(device->file);
    *device = (struct device){.file = -1};
}

CUresult device_open(struct device *device, int ordinal)
{
    device->context_chunks = plan_context_chunks(driver.context_mib);
    device->used_bytes = plan_context_bytes(device->context_chunks);
    if (device->used_bytes > driver.device_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    device_back(device, 0, device->used_bytes);
    if (!reserve_pages(device) || !map_regions(device, ordinal, REGION_PHASE_COUNT, REGION_HOST_END) ||
        !context_pass(device, ordinal, false)) {
        device_close(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device->in_use = true;
    return CUDA_SUCCESS;
}

void device_close(struct device *device)
{
    unmap_regions(device, REGION_PHASE_COUNT, REGION_HOST_END);
    if (device->blocks)
        munmap(device->blocks, device->block_room * sizeof *device->blocks);
    fallocate(device->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              (off_t)(plan_vram_offset() + driver.device_bytes));
    device->in_use = false;
    device->retained = 0;
    device->blocks = NULL;
    device->block_count = device->block_room = 0;
}

static bool make_room(struct device *device)
{
    if (device->block_count < device->block_room)
        return true;
    const size_t before = device->block_room * sizeof *device->blocks, after = before ? 2 * before : 4096;
    void *p = before ? mremap(device->blocks, before, after, MREMAP_MAYMOVE)
                     : mmap(NULL, after, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    device->blocks = p;
    device->block_room = after / sizeof *device->blocks;
    return true;
}

/* First fit, in whole chunks: what the real driver does with small allocations shows in no trace. */
CUresult device_allocate(struct device *device, size_t bytes, uint64_t *offset)
{
    const struct plan_block alone = plan_block_at(0, bytes);
    const uint64_t length = plan_block_end(&alone);
    if (length < bytes || length > driver.device_bytes - device->used_bytes || !make_room(device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t at = plan_context_bytes(device->context_chunks);
    size_t i = 0;
    for (; i < device->block_count && device->blocks[i].offset - at < length; i++)
        at = plan_block_end(&device->blocks[i]);
    if (at + length > driver.device_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memmove(&device->blocks[i + 1], &device->blocks[i], (device->block_count - i) * sizeof *device->blocks);
    device->blocks[i] = plan_block_at(at, bytes);
    device->block_count++;
    device->used_bytes += length;
    device_back(device, at, length);
    *offset = at;
    return CUDA_SUCCESS;
}

static size_t block_of(const struct device *device, uint64_t offset)
{
    size_t i = 0;
    while (i < device->block_count && device->blocks[i].offset + device->blocks[i].bytes <= offset)
        i++;
    return i;
}

CUresult device_free(struct device *device, uint64_t offset)
{
    const size_t i = block_of(device, offset);
    if (i == device->block_count || device->blocks[i].offset != offset)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t bytes = plan_block_end(&device->blocks[i]) - offset;
    fallocate(device->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(plan_vram_offset() + offset),
              (off_t)bytes);
    device->used_bytes -= bytes;
    device->block_count--;
    memmove(&device->blocks[i], &device->blocks[i + 1], (device->block_count - i) * sizeof *device->blocks);
    return CUDA_SUCCESS;
}

uint64_t device_room(const struct device *device, uint64_t offset)
{
    const size_t i = block_of(device, offset);
    if (i == device->block_count || offset < device->blocks[i].offset)
        return 0;
    return device->blocks[i].offset + device->blocks[i].bytes - offset;
}

