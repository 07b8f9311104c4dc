/* A driver that does to its buffer's mapping what the recorded ones never did: gives parts of it up, moves it, protects it, maps
 * over it, gives advice about it; at every moment of a cycle. So may the next version of it, and so do drivers of other devices
 * that were ported to the same interface. Prints a checksum of what was in memory after each change. */
#include "driver.h"

#define LENGTH (40 * MIB + 4321)

/* A buffer as it is after a change; where it lies may have changed too. */
struct place {
    unsigned char *at;
    size_t length;
};

static unsigned char *elsewhere;

/* Each change gets the buffer's address and says where the buffer is then. */

static struct place here(unsigned char *buffer)
{
    return (struct place){buffer, LENGTH};
}

static void must(int condition)
{
    expect(condition, "the kernel refuses a change");
}

static struct place head(unsigned char *buffer)
{
    must(cuda.munmap(buffer, 8 * MIB) == 0);
    return here(buffer);
}

static struct place tail(unsigned char *buffer)
{
    must(cuda.munmap(buffer + 20 * MIB, LENGTH - 20 * MIB) == 0);
    return here(buffer);
}

static struct place middle(unsigned char *buffer)
{
    must(cuda.munmap(buffer + 16 * MIB + PAGE, 4 * MIB + 100) == 0);
    return here(buffer);
}

static struct place several(unsigned char *buffer)
{
    for (size_t offset = MIB; offset < 40 * MIB; offset += 7 * MIB)
        must(cuda.munmap(buffer + offset, MIB + 1) == 0);
    return here(buffer);
}

static struct place pieces(unsigned char *buffer)
{
    for (size_t offset = 0; offset < LENGTH; offset += 9 * MIB)
        must(cuda.munmap(buffer + offset, LENGTH - offset < 9 * MIB ? LENGTH - offset : 9 * MIB) == 0);
    return here(buffer);
}

static struct place all_but_a_page(unsigned char *buffer)
{
    must(cuda.munmap(buffer + PAGE, LENGTH - PAGE) == 0);
    return here(buffer);
}

/* The length in whole pages, and one that the kernel rounds up to the same. */
static struct place rounded(unsigned char *buffer)
{
    must(cuda.munmap(buffer, whole_pages(LENGTH) - 1) == 0);
    return here(buffer);
}

/* What lies behind is nobody's; a little of it, and more than any tail. */
static struct place more(unsigned char *buffer)
{
    must(cuda.munmap(buffer, LENGTH + 64 * 1024) == 0);
    return here(buffer);
}

static struct place much_more(unsigned char *buffer)
{
    must(cuda.munmap(buffer, LENGTH + 3 * MIB) == 0);
    return here(buffer);
}

static struct place twice(unsigned char *buffer)
{
    must(cuda.munmap(buffer, LENGTH) == 0 && cuda.munmap(buffer, LENGTH) == 0);
    return here(buffer);
}

static struct place refused_munmap(unsigned char *buffer)
{
    must(cuda.munmap(buffer + 1, LENGTH) == -1 && cuda.munmap(buffer + 100, MIB) == -1);
    must(cuda.munmap(buffer, 0) == -1 && cuda.munmap(buffer + PAGE, 0) == -1);
    return here(buffer);
}

static struct place grow(unsigned char *buffer)
{
    unsigned char *at = driver.remap(buffer, LENGTH, 70 * MIB, MREMAP_MAYMOVE, NULL);
    must(at != MAP_FAILED);
    return (struct place){at, 70 * MIB};
}

/* The kernel may do it or not; the program does not look. */
static struct place grow_in_place(unsigned char *buffer)
{
    void *at = driver.remap(buffer, LENGTH, LENGTH + 8 * PAGE, 0, NULL);
    if (at != MAP_FAILED)
        must(cuda.munmap(buffer + whole_pages(LENGTH), 8 * PAGE) == 0);
    return here(buffer);
}

static struct place shrink(unsigned char *buffer)
{
    must(driver.remap(buffer, LENGTH, 12 * MIB + 5, 0, NULL) == buffer);
    return here(buffer);
}

static struct place move(unsigned char *buffer)
{
    must(driver.remap(buffer, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
    return here(elsewhere);
}

static struct place move_a_part(unsigned char *buffer)
{
    must(driver.remap(buffer + 4 * MIB, 3 * MIB, 3 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
    add_memory(elsewhere, 3 * MIB);
    return here(buffer);
}

static struct place move_over(unsigned char *buffer)
{
    memset(elsewhere, 77, 5 * MIB);
    must(driver.remap(elsewhere, 5 * MIB, 5 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, buffer + 10 * MIB) == buffer + 10 * MIB);
    return here(buffer);
}

/* What is left behind is as empty as new. */
static struct place move_without_unmap(unsigned char *buffer)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    must(driver.remap(buffer, LENGTH, LENGTH, flags, elsewhere) == elsewhere);
    add_memory(buffer, LENGTH);
    must(cuda.munmap(buffer, LENGTH) == 0);
    return here(elsewhere);
}

static struct place read_only(unsigned char *buffer)
{
    must(cuda.mprotect(buffer, LENGTH, PROT_READ) == 0);
    return here(buffer);
}

static struct place no_access(unsigned char *buffer)
{
    must(cuda.mprotect(buffer + 2 * MIB, 11 * MIB, PROT_NONE) == 0);
    return here(buffer);
}

static struct place there_and_back(unsigned char *buffer)
{
    must(cuda.mprotect(buffer, LENGTH, PROT_NONE) == 0);
    must(cuda.mprotect(buffer, LENGTH, PROT_READ | PROT_WRITE) == 0);
    return here(buffer);
}

static struct place refused_protection(unsigned char *buffer)
{
    must(cuda.mprotect(buffer + 1, LENGTH, PROT_NONE) == -1);
    return here(buffer);
}

#define OVER (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)
#define BESIDE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)

static struct place mapped_over(unsigned char *buffer)
{
    must(driver.map(buffer, LENGTH, PROT_READ | PROT_WRITE, OVER) == buffer);
    return here(buffer);
}

static struct place mapped_over_in_part(unsigned char *buffer)
{
    must(driver.map(buffer + 6 * MIB, 9 * MIB, PROT_READ | PROT_WRITE, OVER) == buffer + 6 * MIB);
    must(driver.map(buffer + 30 * MIB, MIB, PROT_NONE, OVER) == buffer + 30 * MIB);
    return here(buffer);
}

static struct place program_maps_over(unsigned char *buffer)
{
    must(mmap(buffer, LENGTH, PROT_READ | PROT_WRITE, OVER, -1, 0) == buffer);
    return here(buffer);
}

static struct place program_maps_over_in_part(unsigned char *buffer)
{
    must(mmap(buffer + 39 * MIB, PAGE, PROT_READ, OVER, -1, 0) == buffer + 39 * MIB);
    return here(buffer);
}

static struct place refused_beside(unsigned char *buffer)
{
    must(driver.map(buffer, LENGTH, PROT_READ | PROT_WRITE, BESIDE) == MAP_FAILED);
    must(driver.map(buffer + 7 * MIB, PAGE, PROT_READ | PROT_WRITE, BESIDE) == MAP_FAILED);
    must(mmap(buffer + 3 * MIB, MIB, PROT_READ | PROT_WRITE, BESIDE, -1, 0) == MAP_FAILED);
    return here(buffer);
}

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* Kernels before 6.13 do not know it. */
static struct place guard_pages(unsigned char *buffer)
{
    const int known = driver.madvise(buffer + 32 * MIB, 4 * MIB, MADV_GUARD_INSTALL) == 0;
    sleep_ms(30);
    if (known)
        must(driver.madvise(buffer + 32 * MIB, 4 * MIB, MADV_GUARD_INSTALL + 1) == 0);
    return here(buffer);
}

static struct place dropped(unsigned char *buffer)
{
    must(driver.madvise(buffer + 5 * MIB, 20 * MIB, MADV_DONTNEED) == 0);
    return here(buffer);
}

/* None of it changes what can be read. */
static struct place advised(unsigned char *buffer)
{
    static const int advices[] = {MADV_DONTFORK, MADV_DOFORK,     MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_DONTDUMP,
                                  MADV_DODUMP,   MADV_NOHUGEPAGE, MADV_HUGEPAGE,  MADV_WILLNEED,    MADV_SEQUENTIAL,
                                  MADV_RANDOM,   MADV_NORMAL,     MADV_COLD};
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        /* Some kernels are built without some. */
        (void)driver.madvise(buffer, LENGTH, advices[i]);
        (void)driver.madvise(buffer + 3 * MIB, 5 * MIB, advices[i]);
    }
    return here(buffer);
}

static struct place pinned(unsigned char *buffer)
{
    must(mlock(buffer, 16 * MIB) == 0 && munlock(buffer, 16 * MIB) == 0);
    return here(buffer);
}

struct change {
    const char *kind;
    struct place (*make)(unsigned char *);
};

static const struct change changes[] = {
    {"munmap", head},           {"munmap", tail},
    {"munmap", middle},         {"munmap", several},
    {"munmap", pieces},         {"munmap", all_but_a_page},
    {"whole", rounded},         {"whole", twice},
    {"whole", more},            {"munmap", much_more},
    {"refused", refused_munmap},
    {"mremap", grow},           {"mremap", grow_in_place},
    {"mremap", shrink},         {"mremap", move},
    {"mremap", move_a_part},    {"mremap", move_over},
    {"mremap", move_without_unmap},
    {"mprotect", read_only},    {"mprotect", no_access},
    {"mprotect", there_and_back},
    {"refused", refused_protection},
    {"fixed", mapped_over},     {"fixed", mapped_over_in_part},
    {"fixed", program_maps_over},
    {"fixed", program_maps_over_in_part},
    {"refused", refused_beside},
    {"guard", guard_pages},     {"advice", dropped},
    {"advice", advised},        {"advice", pinned},
};

/* The chunks of a range that can be written; the others would be a signal to any driver. */
static void copy_in(struct place place, size_t from, size_t to)
{
    for (; from < to; from += CHUNK) {
        const size_t length = to - from < CHUNK ? to - from : CHUNK;
        if (is_writable(place.at + from, length))
            cuda.memcpy(place.at + from, source + from, length);
    }
}

static void copy_out(struct place place, unsigned char *restored, size_t from, size_t to)
{
    for (; from < to; from += CHUNK) {
        const size_t length = to - from < CHUNK ? to - from : CHUNK;
        if (is_writable(place.at + from, length))
            cuda.memcpy(restored + from, place.at + from, length);
    }
}

/* The change comes after as many halves of a cycle: 0 = as soon as the buffer is there. */
static void one_cycle(const struct change *change, int halves, unsigned char *restored)
{
    const size_t half = 20 * MIB;
    struct place place = here(request(LENGTH));
    for (int done = 0; done < 4; done++) {
        if (done == halves)
            place = change->make(place.at);
        switch (done) {
        case 0: copy_in(place, 0, half); break;
        case 1: copy_in(place, half, LENGTH); break;
        case 2: copy_out(place, restored, 0, half); break;
        case 3: copy_out(place, restored, half, LENGTH); break;
        default: break;
        }
    }
    add_memory(place.at, LENGTH);
    add_memory(restored, LENGTH);
    release(place.at, place.length);
    expect_no_helper_within(5);
}

static void fresh_neighbours(void)
{
    /* What lies above a buffer is mapped just before it. */
    static void *above;
    if (above)
        munmap(above, 4 * MIB);
    above = mmap(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(above != MAP_FAILED, "no memory");
    munmap(elsewhere, 80 * MIB);
    expect(mmap(elsewhere, 80 * MIB, PROT_READ | PROT_WRITE, OVER, -1, 0) == elsewhere, "no memory");
}

/* All changes of a kind, each at four moments. */
static const char *all_of_a_kind(void)
{
    expect(attack_arguments[0] != NULL, "which kind?");
    make_source(LENGTH);
    unsigned char *restored = plain_memory(LENGTH);
    elsewhere = plain_memory(80 * MIB);
    fresh_neighbours();
    const long before = address_space_kib();
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        if (strcmp(changes[i].kind, attack_arguments[0]) != 0)
            continue;
        for (int halves = 0; halves < 4; halves++) {
            fresh_neighbours();
            one_cycle(&changes[i], halves, restored);
            fresh_neighbours();
            let_the_shim_tidy_up();
            expect(address_space_kib() - before < 512, "address space is lost");
        }
    }
    cycle(LENGTH);
    return the_sum();
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {{"all", all_of_a_kind}, {NULL, NULL}};
    load_driver();
    return run_attack(attacks, count, arguments);
}
