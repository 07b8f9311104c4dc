/* Measures the ceiling of the driver's own copy loop: preloaded, it leaves out the loop's copies. For measurement only.
 *
 * LD_PRELOAD=libfreecopy.so FREECOPY_REPORT=/path PROGRAM
 *
 * A copy of exactly 2 MiB that libcuda makes into the buffer of a checkpoint, which is the newest mapping of at least 32 MiB that
 * libcuda asked for with MAP_POPULATE, returns at once: the buffer's contents are WRONG, and the process can only be thrown
 * away. Every other copy, of libcuda's or of anybody's, is made as ever. What was left out, and when, is written to the
 * file FREECOPY_REPORT as struct report, through a shared mapping: the process that reads it needs nothing of this one.
 *
 * memcpy is called by other libraries before this one is relocated (IFUNC resolvers): it uses nothing that a relocation fills in. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 2 << 20, SMALLEST_BUFFER = 32 << 20 };

/* shim-tests/src/ceiling.rs reads it. */
struct report {
    uint64_t buffer_bytes;  /* length of the buffer */
    uint64_t skipped;       /* copies that were left out */
    uint64_t made;          /* copies into the buffer that were made */
    uint64_t first_ns;      /* CLOCK_MONOTONIC of the first that was left out */
    uint64_t last_ns;       /* and of the last */
    uint64_t mmap_ns;       /* how long the buffer's mmap took */
};

static struct report own_report;
static struct report *report = &own_report;
static uintptr_t buffer, buffer_end;
static uintptr_t cuda, cuda_end;

static void *raw_copy(void *to, const void *from, size_t bytes) {
    void *result = to;
    if ((uintptr_t)to - (uintptr_t)from >= bytes) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    } else {
        /* Overlapping: memcpy@GLIBC_2.2.5 tolerates it. */
        to = (char *)to + bytes - 1;
        from = (const char *)from + bytes - 1;
        __asm__ volatile("std; rep movsb; cld" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    }
    return result;
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static const char *parse_hex(const char *at, uintptr_t *value) {
    for (*value = 0; hex_digit(*at) >= 0; at++)
        *value = *value << 4 | (uintptr_t)hex_digit(*at);
    return at;
}

static int names_libcuda(const char *line) {
    static const char name[] = "/libcuda.so";
    for (; *line; line++) {
        size_t at = 0;
        while (name[at] && line[at] == name[at])
            at++;
        if (!name[at])
            return 1;
    }
    return 0;
}

static void take_line(const char *line) {
    uintptr_t start, end;
    const char *at = parse_hex(line, &start);
    parse_hex(at + 1, &end);
    if (!names_libcuda(line))
        return;
    cuda = cuda ? cuda : start;
    cuda_end = end;
}

/* Where libcuda is mapped, from /proc/self/maps, read without buffers of libc. */
static void find_libcuda(void) {
    char block[512], line[512];
    size_t length = 0;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t got; file >= 0 && (got = read(file, block, sizeof block)) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            if (block[i] != '\n') {
                if (length < sizeof line - 1)
                    line[length++] = block[i];
                continue;
            }
            line[length] = 0;
            take_line(line);
            length = 0;
        }
    }
    if (file >= 0)
        close(file);
}

static int is_libcuda(const void *caller) {
    const uintptr_t address = (uintptr_t)caller;
    if (!cuda)
        find_libcuda();
    return cuda && address >= cuda && address < cuda_end;
}

static void *copy(void *to, const void *from, size_t bytes, const void *caller) {
    const uintptr_t at = (uintptr_t)to;
    /* The first test fails for every copy but the driver's. */
    if (at < buffer || at >= buffer_end || !is_libcuda(caller))
        return raw_copy(to, from, bytes);
    if (bytes != CHUNK) {
        report->made++;
        return raw_copy(to, from, bytes);
    }
    const uint64_t now = now_ns();
    report->first_ns = report->first_ns ? report->first_ns : now;
    report->last_ns = now;
    report->skipped++;
    return to;
}

__attribute__((visibility("default"))) void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    return copy(to, from, bytes, __builtin_return_address(0));
}

__attribute__((visibility("default"))) void *memmove(void *to, const void *from, size_t bytes) {
    return copy(to, from, bytes, __builtin_return_address(0));
}

static void *map(void *address, size_t bytes, int protection, int flags, int file, off_t offset, const void *caller) {
    const uint64_t start = now_ns();
    const long result = syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
    if (result == -1)
        return MAP_FAILED;
    if (bytes >= SMALLEST_BUFFER && (flags & MAP_POPULATE) && is_libcuda(caller)) {
        report->buffer_bytes = bytes;
        report->mmap_ns = now_ns() - start;
        buffer = (uintptr_t)result;
        buffer_end = buffer + bytes;
    }
    return (void *)result;
}

__attribute__((visibility("default"))) void *mmap(void *address, size_t bytes, int protection, int flags, int file,
                                                  off_t offset) {
    return map(address, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

__attribute__((visibility("default"))) void *mmap64(void *address, size_t bytes, int protection, int flags, int file,
                                                    off64_t offset) {
    return map(address, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

__attribute__((constructor)) static void open_report(void) {
    const char *path = getenv("FREECOPY_REPORT");
    if (!path)
        return;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    if (ftruncate(file, sizeof own_report) == 0) {
        void *shared = (void *)syscall(SYS_mmap, NULL, sizeof own_report, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
        if (shared != MAP_FAILED)
            report = shared;
    }
    close(file);
}
