/* Where a slot of libcuda lies, as the loader's own relocation names it. */
#ifndef SLOTOF_H
#define SLOTOF_H

#include "attack.h"

#include <elf.h>
#include <link.h>

static inline void **slot_of(const char *symbol)
{
    struct link_map *map;
    const ElfW(Rela) *entries = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t bytes = 0;
    expect(dlinfo(cuda.handle, RTLD_DI_LINKMAP, &map) == 0, "no link map");
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag; entry++) {
        switch (entry->d_tag) {
        case DT_JMPREL: entries = (const void *)entry->d_un.d_ptr; break;
        case DT_PLTRELSZ: bytes = entry->d_un.d_val; break;
        case DT_SYMTAB: symbols = (const void *)entry->d_un.d_ptr; break;
        case DT_STRTAB: names = (const void *)entry->d_un.d_ptr; break;
        }
    }
    for (size_t i = 0; i < bytes / sizeof *entries; i++)
        if (strcmp(names + symbols[ELF64_R_SYM(entries[i].r_info)].st_name, symbol) == 0)
            return (void **)(map->l_addr + entries[i].r_offset);
    fail("there is no slot for %s", symbol);
    return NULL;
}

#endif
