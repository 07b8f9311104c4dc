/* Another preload that hooks mmap and munmap: allocators, memory profilers, communication libraries. It goes on by RTLD_NEXT
 * (NEXT), by a jump in place of its last call (JUMP), makes the system calls by itself (RAW), or those for fixed addresses alone (FIXED), as
 * one that keeps books of the address space, or refuses what is large (REFUSE), as one that keeps a budget. ONLY64: it hooks mmap64, not mmap. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef ONLY64
#define mmap mapper_map
#define BODY "mapper_map"
#else
#define BODY "mmap"
#endif

/* Read by the program's tests. */
volatile unsigned long mapper_calls;

#ifdef RAW

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    mapper_calls++;
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

int munmap(void *address, size_t length)
{
    return (int)syscall(SYS_munmap, address, length);
}

#else

typedef void *map(void *, size_t, int, int, int, off_t);
typedef int unmap(void *, size_t);

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#ifdef JUMP
__attribute__((optimize("optimize-sibling-calls")))
#else
__attribute__((optimize("no-optimize-sibling-calls")))
#endif
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    static map *go_on;
    mapper_calls++;
#ifdef FIXED
    if (flags & MAP_FIXED)
        return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
#endif
#ifdef REFUSE
    if (length >= 32u << 20 && (flags & MAP_POPULATE))
        return MAP_FAILED;
#endif
    if (!go_on)
        *(void **)&go_on = next("mmap");
    return go_on(address, length, protection, flags, fd, offset);
}

int munmap(void *address, size_t length)
{
    static unmap *go_on;
    if (!go_on)
        *(void **)&go_on = next("munmap");
    return go_on(address, length);
}

#endif

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
    __attribute__((alias(BODY)));
