/* An auditor of the loader (LD_AUDIT): latrace, ltrace-like tools, HPCToolkit. With -DCALLS it is told of every call through a
 * slot and of its return, so that the loader itself stands on the stack between libcuda and the shim. */
#define _GNU_SOURCE
#include <link.h>

unsigned la_version(unsigned version)
{
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)map, (void)space, (void)cookie;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name)
{
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    return symbol->st_value;
}

#ifdef CALLS
Elf64_Addr la_x86_64_gnu_pltenter(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, La_x86_64_regs *registers,
                                  unsigned *flags, const char *name, long *frame)
{
    (void)index, (void)from, (void)to, (void)registers, (void)flags, (void)name;
    /* Its return is wanted too. */
    *frame = 256;
    return symbol->st_value;
}

unsigned la_x86_64_gnu_pltexit(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                               const La_x86_64_regs *registers, La_x86_64_retval *result, const char *name)
{
    (void)symbol, (void)index, (void)from, (void)to, (void)registers, (void)result, (void)name;
    return 0;
}
#endif
