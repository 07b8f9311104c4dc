/* What somebody may do before any constructor ran: a mapping of the form of the driver's request, copies, refusals. */
#ifndef EARLY_H
#define EARLY_H

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

/* Returns what is wrong, or NULL. No libc call but those under test: its caller may run before anything is ready. */
static inline const char *map_and_copy_early(void)
{
    enum { LENGTH = 40 << 20 };
    static char from[5000] = "early";
    static volatile size_t length = sizeof from;
    char *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED)
        return "a request of the driver's form was refused";
    memcpy(at + LENGTH - length, from, length);
    memmove(at, at + LENGTH - length, length);
    if (memcmp(at, from, length) != 0)
        return "contents are wrong";
    if (mmap(at, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at || at[0] != 0)
        return "it cannot be mapped over";
    if (munmap(at, LENGTH) != 0)
        return "munmap failed";
    errno = 0;
    if (mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return "a mapping of no bytes was made";
    return errno == EINVAL || errno == 0 ? NULL : "a refusal has the wrong errno";
}

#endif
