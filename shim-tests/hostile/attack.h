/* What every hostile program is made of: the fake libcuda, a source with known contents, and how a result is told. A program
 * runs the attack that its first argument names, prints one line ("ok ..." or "BAD ..."), and waits until its stdin ends, so
 * that the test can read the shim's record in it. */
#ifndef ATTACK_H
#define ATTACK_H

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
/* The driver copies in pieces of this. */
#define CHUNK (2 * MIB)
/* What the driver asks for its buffer with. */
#define DRIVERS_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE)

static struct {
    void *handle;
    void *(*mmap)(size_t, int);
    int (*munmap)(void *, size_t);
    void *(*mremap)(void *, size_t, size_t, int);
    int (*mprotect)(void *, size_t, int);
    void *(*memcpy)(void *, const void *, size_t);
    void *(*memmove)(void *, const void *, size_t);
} cuda;

static unsigned char *source;

/* Results */

static inline void fail(const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    printf("BAD ");
    vprintf(what, arguments);
    puts("");
    fflush(stdout);
    _exit(1);
}

static inline void expect(int condition, const char *what)
{
    if (!condition)
        fail("%s", what);
}

static inline void wait_for_stdin(void)
{
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
}

struct attack {
    const char *name;
    /* Returns what the result's line should say, or NULL. */
    const char *(*run)(void);
};

static char **attack_arguments;

static inline int run_attack(const struct attack *attacks, int count, char **arguments)
{
    attack_arguments = arguments + 2;
    for (; count > 1 && attacks->name; attacks++) {
        if (strcmp(attacks->name, arguments[1]) != 0)
            continue;
        const char *detail = attacks->run();
        printf("ok %s\n", detail ? detail : "");
        fflush(stdout);
        wait_for_stdin();
        return 0;
    }
    fail("there is no attack of that name");
    return 1;
}

/* Time and what the process holds */

static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void sleep_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0)
        ;
}

/* A page's worth of 4 KiB: every machine that the suite runs on. */
static inline long address_space_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    expect(file && fscanf(file, "%ld", &pages) == 1, "statm cannot be read");
    fclose(file);
    return pages * 4;
}

static inline int is_mapped(const void *address)
{
    unsigned char there;
    return mincore((void *)((uintptr_t)address & ~(uintptr_t)4095), 1, &there) == 0;
}

/* A helper that was just born has no name yet: this counts it. */
static inline int threads_here(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    expect(tasks != NULL, "no list of threads");
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Ids of the shim's threads of a process, at most `max`. */
static inline int list_helpers(pid_t pid, int *ids, int max)
{
    char path[300], name[32];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *entry; tasks && (entry = readdir(tasks)) && count < max;) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        if (fgets(name, sizeof name, file) && strncmp(name, "csnap-", 6) == 0)
            ids[count++] = atoi(entry->d_name);
        fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

static inline int helpers(void)
{
    int ids[64];
    return list_helpers(getpid(), ids, 64);
}

static inline void expect_no_helper_within(int seconds)
{
    for (double end = now() + seconds; helpers() != 0; sleep_ms(1))
        expect(now() < end, "a helper stays");
}

/* A word of the shim's record. */
static inline volatile uint32_t *record_word(size_t offset)
{
    char *record = dlsym(RTLD_DEFAULT, "cudasnap_record");
    expect(record != NULL, "the shim is not here");
    return (volatile uint32_t *)(record + offset);
}

/* The record's control word `drop`. */
static inline volatile uint32_t *drop_word(void)
{
    return record_word(DROP_OFFSET);
}

/* The driver's calls */

static inline void use_cuda(void *handle)
{
    if (!handle)
        fail("%s", dlerror());
    cuda.handle = handle;
    *(void **)&cuda.mmap = dlsym(cuda.handle, "fake_mmap");
    *(void **)&cuda.munmap = dlsym(cuda.handle, "fake_munmap");
    *(void **)&cuda.mremap = dlsym(cuda.handle, "fake_mremap");
    *(void **)&cuda.mprotect = dlsym(cuda.handle, "fake_mprotect");
    *(void **)&cuda.memcpy = dlsym(cuda.handle, "fake_memcpy");
    *(void **)&cuda.memmove = dlsym(cuda.handle, "fake_memmove");
}

static inline void load_cuda(void)
{
    use_cuda(dlopen("libcuda.so.1", RTLD_LAZY));
}

static inline unsigned char *request(size_t length)
{
    unsigned char *buffer = cuda.mmap(length, DRIVERS_FLAGS);
    expect(buffer != MAP_FAILED, "a request was refused");
    return buffer;
}

static inline void release(void *buffer, size_t length)
{
    expect(cuda.munmap(buffer, length) == 0, "an munmap failed");
}

static inline unsigned char *plain_memory(size_t length)
{
    unsigned char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED, "no memory");
    return memory;
}

/* As the driver's staging buffers are: only from such memory may a flush come after its copy. */
static inline unsigned char *shared_memory(size_t length)
{
    unsigned char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED, "no shared memory");
    return memory;
}

/* The same for every program: a wrong byte can be looked up. */
static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static inline void make_source(size_t length)
{
    uint32_t state = 12345;
    source = plain_memory(length);
    for (size_t word = 0; word < length / 4; word++) {
        ((uint32_t *)source)[word] = next_random(&state);
        /* A random number has 24 bits: no byte should be 0 wherever a new buffer's is. */
        source[word * 4 + 3] = (unsigned char)(word >> 3 | 1);
    }
}

static inline size_t chunk_at(size_t offset, size_t length)
{
    return length - offset < CHUNK ? length - offset : CHUNK;
}

/* Copies as the driver does, chunk by chunk, the same range of both. */
static inline void copy_all(unsigned char *to, const unsigned char *from, size_t length)
{
    for (size_t offset = 0; offset < length; offset += CHUNK)
        cuda.memcpy(to + offset, from + offset, chunk_at(offset, length));
}

static inline void expect_source(const unsigned char *memory, size_t length)
{
    expect(memcmp(memory, source, length) == 0, "contents are wrong");
}

/* A whole checkpoint and restore of `length` bytes of the source. */
static inline void cycle(size_t length)
{
    unsigned char *buffer = request(length);
    copy_all(buffer, source, length);
    expect_source(buffer, length);
    unsigned char *restored = plain_memory(length);
    copy_all(restored, buffer, length);
    expect_source(restored, length);
    expect(helpers() == 0, "a helper outlives its phase");
    munmap(restored, length);
    release(buffer, length);
}

#endif
