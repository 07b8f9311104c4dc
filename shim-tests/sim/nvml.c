/* libnvidia-ml.so.1 beside the simulated driver: its devices, their memory, and the processes that have a context.
 *
 * What it says is looked up when it is asked: a device's memory is the backing file of each process that holds one open
 * (/proc/PID/fd), so a process that is checkpointed is not listed, as with the real one. Signatures and numbers are those
 * of nvml.h (R580). Options are read in the caller. */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "channel.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEVICES 8
#define NAME_ROOM 96
#define LEAST_CONTEXT (46ull << 20)

enum nvml_return {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
};

struct nvml_memory {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

struct nvml_process {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

typedef void *nvml_device;

static long option(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static unsigned int device_count(void)
{
    const long count = option("CUDASIM_DEVICES", 1);
    return count < 1 ? 1 : count > MAX_DEVICES ? MAX_DEVICES : (unsigned int)count;
}

/* Handles are the numbers, counted from 1. */
static int number_of(nvml_device device)
{
    const uintptr_t number = (uintptr_t)device;
    return number >= 1 && number <= device_count() ? (int)number - 1 : -1;
}

/* Bytes of device memory that the process holds on the device; 0: none, or it may not be looked into. */
static unsigned long long used_by(const char *pid, const char *name)
{
    char path[300], link[NAME_ROOM];
    unsigned long long used = 0;
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *files = opendir(path);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        snprintf(path, sizeof path, "/proc/%s/fd/%.16s", pid, entry->d_name);
        const ssize_t n = readlink(path, link, sizeof link - 1);
        struct stat about;
        if (n <= 0)
            continue;
        link[n] = '\0';
        if (strcmp(link, name) != 0 || stat(path, &about) != 0)
            continue;
        const unsigned long long held = (unsigned long long)about.st_blocks * 512;
        /* Some of it is the driver's host memory; before there is a context there is hardly more than that. */
        used = held >= LEAST_CONTEXT ? held : 0;
        if (used && getenv("CUDASIM_CLAIMED_MIB"))
            used = strtoull(getenv("CUDASIM_CLAIMED_MIB"), NULL, 10) << 20;
        break;
    }
    if (files)
        closedir(files);
    return used;
}

/* Calls `each` for every process that has memory on the device. */
static void for_each_process(int number, void (*each)(void *context, int pid, unsigned long long used), void *context)
{
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "/memfd:" DEVICE_FILE "%d (deleted)", number);
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        const int pid = atoi(entry->d_name);
        const unsigned long long used = pid > 0 ? used_by(entry->d_name, name) : 0;
        if (used)
            each(context, pid, used);
    }
    if (processes)
        closedir(processes);
}

static void add_up(void *sum, int pid, unsigned long long used)
{
    (void)pid;
    *(unsigned long long *)sum += used;
}

struct listing {
    struct nvml_process *processes;
    unsigned int room, count;
};

static void list(void *context, int pid, unsigned long long used)
{
    struct listing *listing = context;
    if (listing->count < listing->room)
        listing->processes[listing->count] = (struct nvml_process){(unsigned int)pid, used, UINT32_MAX, UINT32_MAX};
    listing->count++;
}

static int copy_text(char *to, unsigned int room, const char *text)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) + 1 > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

EXPORT int nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

EXPORT int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(int error)
{
    return error == NVML_SUCCESS ? "Success" : error == NVML_ERROR_NOT_SUPPORTED ? "Not Supported" : "Invalid Argument";
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned int room)
{
    const char *set = getenv("CUDASIM_DRIVER_VERSION");
    return copy_text(version, room, set && *set ? set : "580.159.04");
}

EXPORT int nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = device_count();
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *device)
{
    if (!device || index >= device_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvml_device)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetName(nvml_device device, char *name, unsigned int room)
{
    char text[NAME_ROOM];
    if (number_of(device) < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "cudasim device %d", number_of(device));
    return copy_text(name, room, text);
}

EXPORT int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned int room)
{
    char text[NAME_ROOM];
    if (number_of(device) < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "GPU-cda51000-0000-0000-0000-%012d", number_of(device));
    return copy_text(uuid, room, text);
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory *memory)
{
    const int number = number_of(device);
    if (!memory || number < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned long long used = (unsigned long long)option("CUDASIM_FOREIGN_MIB", 0) << 20;
    for_each_process(number, add_up, &used);
    memory->total = (unsigned long long)option("CUDASIM_DEVICE_MIB", 65536) << 20;
    memory->reserved = 0;
    memory->used = used < memory->total ? used : memory->total;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned int *count,
                                                   struct nvml_process *processes)
{
    if (!count || number_of(device) < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct listing listing = {processes, processes ? *count : 0, 0};
    for_each_process(number_of(device), list, &listing);
    const bool fits = listing.count <= listing.room;
    *count = listing.count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetPersistenceMode(nvml_device device, unsigned int *mode)
{
    if (!mode || number_of(device) < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mode = option("CUDASIM_PERSISTENCE", 1) != 0;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMigMode(nvml_device device, unsigned int *current, unsigned int *pending)
{
    if (!current || !pending || number_of(device) < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!getenv("CUDASIM_MIG"))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = option("CUDASIM_MIG", 0) != 0;
    return NVML_SUCCESS;
}
