/* A libcuda.so.1 that does what its program says. It has the real one's shape where the shim looks: the soname, and calls
 * that go through its own lazily bound slots. C, because rustc links libraries with their slots bound at once. */
#include "../sim/slots.h"

EXPORT void *fake_mmap(size_t length, int flags)
{
    return mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
}

EXPORT int fake_munmap(void *address, size_t length)
{
    return munmap(address, length);
}

EXPORT void *fake_mremap(void *address, size_t old_length, size_t new_length, int flags)
{
    return mremap(address, old_length, new_length, flags);
}

EXPORT int fake_mprotect(void *address, size_t length, int protection)
{
    return mprotect(address, length, protection);
}

EXPORT void *fake_memcpy(void *to, const void *from, size_t length)
{
    return memcpy(to, from, length);
}

EXPORT void *fake_memmove(void *to, const void *from, size_t length)
{
    return memmove(to, from, length);
}

EXPORT void *fake_map(void *address, size_t length, int protection, int flags)
{
    return mmap(address, length, protection, flags, -1, 0);
}

EXPORT void *fake_map64(void *address, size_t length, int protection, int flags)
{
    return mmap64(address, length, protection, flags, -1, 0);
}

EXPORT void *fake_remap(void *address, size_t old_length, size_t new_length, int flags, void *target)
{
    return mremap(address, old_length, new_length, flags, target);
}

EXPORT int fake_madvise(void *address, size_t length, int advice)
{
    return madvise(address, length, advice);
}
