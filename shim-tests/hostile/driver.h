/* What programs share whose driver does something new: more of its calls, and a checksum, so that a run under the shim can be
 * compared with one of a plain libcuda. */
#ifndef DRIVER_H
#define DRIVER_H

#include "attack.h"

#include <fcntl.h>

#define PAGE ((size_t)4096)

static struct {
    void *(*map)(void *, size_t, int, int);
    void *(*remap)(void *, size_t, size_t, int, void *);
    int (*madvise)(void *, size_t, int);
} driver;

static inline void load_driver(void)
{
    load_cuda();
    *(void **)&driver.map = dlsym(cuda.handle, "fake_map");
    *(void **)&driver.remap = dlsym(cuda.handle, "fake_remap");
    *(void **)&driver.madvise = dlsym(cuda.handle, "fake_madvise");
}

static uint64_t sum = 0xcbf29ce484222325;

static inline void add_to_sum(uint64_t word)
{
    sum = (sum ^ word) * 0x100000001b3;
    sum ^= sum >> 29;
}

/* Also of what may not be read, or is not there: the kernel reads it, and says how much. */
static inline void add_memory(const unsigned char *memory, size_t length)
{
    static uint64_t words[MIB / 8];
    /* Opened each time: after a fork the parent's would still be the parent's. */
    const int self = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    expect(self >= 0, "no /proc/self/mem");
    for (size_t offset = 0; offset < length;) {
        const size_t want = length - offset < MIB ? length - offset : MIB;
        const ssize_t got = pread(self, words, want, (off_t)(uintptr_t)(memory + offset));
        const size_t there = got > 0 ? (size_t)got : 0;
        add_to_sum(there);
        memset((char *)words + there, 0, MIB - there < 8 ? MIB - there : 8);
        for (size_t word = 0; word < (there + 7) / 8; word++)
            add_to_sum(words[word]);
        /* Behind a page that is not there. */
        offset += there ? there : PAGE;
    }
    close(self);
}

/* Lets the shim, where it is, give back what waited for a helper that came late: on a busy machine one may. */
static inline void let_the_shim_tidy_up(void)
{
    if (!dlsym(RTLD_DEFAULT, "cudasnap_record"))
        return;
    *drop_word() = 1;
    munmap(plain_memory(PAGE), PAGE);
}

static inline const char *the_sum(void)
{
    static char detail[32];
    snprintf(detail, sizeof detail, "%016llx", (unsigned long long)sum);
    return detail;
}

static inline size_t whole_pages(size_t length)
{
    return (length + PAGE - 1) & ~(PAGE - 1);
}

/* The protection of the page at an address as the kernel lists it: "rw-p", or "" where nothing is mapped. */
static inline const char *listed(const void *address, unsigned long *from, unsigned long *to)
{
    static char mode[8];
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    expect(maps != NULL, "no /proc/self/maps");
    mode[0] = 0;
    while (fgets(line, sizeof line, maps)) {
        char found[8];
        if (sscanf(line, "%lx-%lx %7s", from, to, found) == 3 && (uintptr_t)address >= *from && (uintptr_t)address < *to)
            strcpy(mode, found);
        if (mode[0])
            break;
    }
    fclose(maps);
    return mode;
}

/* Whether the driver may write the whole range. */
static inline int is_writable(const unsigned char *address, size_t length)
{
    const unsigned char *end = address + length;
    while (address < end) {
        unsigned long from, to;
        if (strncmp(listed(address, &from, &to), "rw", 2) != 0)
            return 0;
        address = (const unsigned char *)to;
    }
    return 1;
}

#endif
