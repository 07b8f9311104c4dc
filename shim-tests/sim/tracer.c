/* Preloaded logger: every mmap, munmap and buffer memcpy that a driver's restore thread makes through libcuda's
 * slots during one checkpoint and restore, written as CSV to $SIMTRACER_OUT when the buffer is unmapped. Works on
 * the simulated and on the real driver. It sees mmap and munmap by interposition, and swaps libcuda's memcpy slot
 * when the buffer appears. It is no model for a shim: it takes the loader's lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ROOM (1u << 20)
#define SMALLEST_BUFFER ((size_t)32 << 20)

struct row {
    uint64_t start_ns, end_ns, address, offset, bytes;
    int protection, flags; /* flags -1: no mmap */
    char kind;             /* m, u, or the copy's direction: t(o buffer), f(rom buffer) */
};

static struct row *rows;
static size_t row_count;
static char *buffer;
static size_t buffer_bytes;
static uint64_t origin_ns;
static void **memcpy_slot;
static void *(*memcpy_before)(void *, const void *, size_t);

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool in_restore_thread(void)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return strncmp(name, "cuda", 4) == 0 && strspn(name + 4, "0123456789abcdef") == strlen(name + 4);
}

static void add(struct row row)
{
    row.end_ns = now_ns();
    if (rows && row_count < ROOM)
        rows[row_count++] = row;
}

static void *traced_memcpy(void *to, const void *from, size_t bytes)
{
    const char *begin = buffer, *end = buffer + buffer_bytes;
    const bool into = (char *)to >= begin && (char *)to < end;
    const bool out = (const char *)from >= begin && (const char *)from < end;
    if (!buffer || !(into || out))
        return memcpy_before(to, from, bytes);
    struct row row = {.start_ns = now_ns(), .bytes = bytes, .flags = -1, .kind = into ? 't' : 'f'};
    row.address = (uint64_t)(uintptr_t)(into ? from : to);
    row.offset = (uint64_t)((into ? (char *)to : (const char *)from) - begin);
    memcpy_before(to, from, bytes);
    add(row);
    return to;
}

static const void *dynamic(const struct dl_phdr_info *info, const ElfW(Dyn) *entries, ElfW(Sxword) tag)
{
    for (; entries->d_tag != DT_NULL; entries++)
        if (entries->d_tag == tag) {
            /* glibc relocates these in place, other loaders do not. */
            const uintptr_t value = entries->d_un.d_ptr;
            return (const void *)(value < info->dlpi_addr ? value + info->dlpi_addr : value);
        }
    return NULL;
}

static size_t dynamic_value(const ElfW(Dyn) *entries, ElfW(Sxword) tag)
{
    for (; entries->d_tag != DT_NULL; entries++)
        if (entries->d_tag == tag)
            return entries->d_un.d_val;
    return 0;
}

static int find_slot(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libcuda.so"))
        return 0;
    const ElfW(Dyn) *entries = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entries = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const ElfW(Rela) *relocations = dynamic(info, entries, DT_JMPREL);
    const ElfW(Sym) *symbols = dynamic(info, entries, DT_SYMTAB);
    const char *strings = dynamic(info, entries, DT_STRTAB);
    const size_t count = dynamic_value(entries, DT_PLTRELSZ) / sizeof *relocations;
    for (size_t i = 0; relocations && symbols && strings && i < count; i++)
        if (strcmp(strings + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name, "memcpy") == 0)
            memcpy_slot = (void **)(info->dlpi_addr + relocations[i].r_offset);
    return memcpy_slot != NULL;
}

static void hold_memcpy(void)
{
    if (!memcpy_slot && !dl_iterate_phdr(find_slot, NULL))
        return;
    const uintptr_t page = (uintptr_t)memcpy_slot & ~(uintptr_t)4095;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
    __atomic_store_n(memcpy_slot, (void *)traced_memcpy, __ATOMIC_SEQ_CST);
}

static void print_rows(FILE *out)
{
    fputs("t_us,duration_us,call,direction,address,buffer_offset,bytes,prot,flags_hex\n", out);
    for (size_t i = 0; i < row_count; i++) {
        const struct row *r = &rows[i];
        fprintf(out, "%llu,%llu,", (unsigned long long)(r->start_ns - origin_ns) / 1000,
                (unsigned long long)(r->end_ns - r->start_ns) / 1000);
        if (r->kind == 't' || r->kind == 'f')
            fprintf(out, "memcpy,%s,0x%llx,%llu,%llu,,\n", r->kind == 't' ? "to_buffer" : "from_buffer",
                    (unsigned long long)r->address, (unsigned long long)r->offset, (unsigned long long)r->bytes);
        else if (r->kind == 'u')
            fprintf(out, "munmap,,0x%llx,,%llu,,\n", (unsigned long long)r->address, (unsigned long long)r->bytes);
        else
            fprintf(out, "mmap,,0x%llx,,%llu,%d,0x%x\n", (unsigned long long)r->address,
                    (unsigned long long)r->bytes, r->protection, r->flags);
    }
}

static void write_out(void)
{
    const char *path = getenv("SIMTRACER_OUT");
    FILE *out = path ? fopen(path, "w") : NULL;
    if (!out)
        return;
    print_rows(out);
    fclose(out);
}

static bool is_buffer_request(void *hint, size_t bytes, int flags)
{
    return !hint && bytes >= SMALLEST_BUFFER && (flags & MAP_POPULATE) && (flags & MAP_ANONYMOUS);
}

static void *traced_mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
    const uint64_t start = now_ns();
    void *p = (void *)syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
    const bool begins = is_buffer_request(hint, bytes, flags);
    if ((!buffer && !begins) || p == MAP_FAILED || !in_restore_thread())
        return p;
    if (begins) {
        if (!rows)
            rows = (struct row *)syscall(SYS_mmap, NULL, ROOM * sizeof *rows, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        row_count = 0;
        origin_ns = start;
        buffer = p;
        buffer_bytes = bytes;
        hold_memcpy();
    }
    add((struct row){.start_ns = start, .address = (uint64_t)(uintptr_t)p, .bytes = bytes,
                     .protection = protection, .flags = flags, .kind = 'm'});
    return p;
}

EXPORT void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return traced_mmap(hint, bytes, protection, flags, file, offset);
}

EXPORT void *mmap64(void *hint, size_t bytes, int protection, int flags, int file, off64_t offset)
{
    return traced_mmap(hint, bytes, protection, flags, file, offset);
}

EXPORT int munmap(void *p, size_t bytes)
{
    const uint64_t start = now_ns();
    const int rc = (int)syscall(SYS_munmap, p, bytes);
    if (!buffer || rc != 0 || !in_restore_thread())
        return rc;
    add((struct row){.start_ns = start, .address = (uint64_t)(uintptr_t)p, .bytes = bytes, .flags = -1, .kind = 'u'});
    if (p == buffer) {
        buffer = NULL;
        write_out();
    }
    return rc;
}

/* The oldest version: what libcuda's own slot is bound to. */
__attribute__((constructor)) static void start(void)
{
    memcpy_before = memmove;
}
