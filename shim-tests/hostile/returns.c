/* A driver that lets a large buffer go: its pages are given back by many threads before it is unmapped. Its neighbours stay, nothing of it does,
 * and a helper that somebody stops or kills in the middle is waited for no longer than any other. */
#include "driver.h"
#include "stopper.h"

/* Of base pages so much is given back by many threads. */
#define LENGTH (200 * MIB + 4321)
#define TRIES 60

static unsigned char *before, *behind;
static long space;

/* Memory of the program at an address, if that is free. */
static unsigned char *mapped_at(unsigned long address, size_t length)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    return mmap((void *)address, length, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static unsigned char *neighbour(unsigned long address, int value)
{
    unsigned char *memory = mapped_at(address, MIB);
    return memory == MAP_FAILED ? memory : memset(memory, value, MIB);
}

/* Mappings of the program that touch the buffer on both sides, as they come where the kernel puts the next one below the last. */
static void surround(unsigned char *buffer)
{
    unsigned long from, to;
    expect(listed(buffer, &from, &to)[0] == 'r', "the buffer is not mapped");
    before = neighbour(from - MIB, 11);
    behind = neighbour(to, 12);
}

static void expect_untouched(unsigned char *memory, int value)
{
    for (size_t byte = 0; memory != MAP_FAILED && byte < MIB; byte++)
        expect(memory[byte] == value, "a neighbour's memory was changed");
    if (memory != MAP_FAILED)
        munmap(memory, MIB);
}

static void expect_neighbours(void)
{
    expect(before != MAP_FAILED || behind != MAP_FAILED, "the buffer has no neighbour");
    expect_untouched(before, 11);
    expect_untouched(behind, 12);
}

/* A whole checkpoint's buffer between its neighbours. */
static unsigned char *filled(void)
{
    unsigned char *buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH);
    expect_source(buffer, LENGTH);
    expect_no_helper_within(10);
    surround(buffer);
    return buffer;
}

/* Where one was that the driver has let go, and nobody in its way. */
static unsigned char *let_go(void)
{
    unsigned char *buffer = filled();
    release(buffer, LENGTH);
    expect(helpers() == 0, "a helper outlives its buffer");
    expect_neighbours();
    return buffer;
}

static int is_resident(const unsigned char *memory, size_t length)
{
    static unsigned char there[LENGTH / 4096 + 2];
    if (mincore((void *)memory, length, there) != 0)
        return 0;
    for (size_t page = 0; page < (length + 4095) / 4096; page++)
        if (there[page] & 1)
            return 1;
    return 0;
}

static void prepare(void)
{
    start_stopper();
    load_driver();
    make_source(LENGTH);
    space = address_space_kib();
}

static const char *end(int met)
{
    static char detail[32];
    expect_no_helper_within(10);
    let_the_shim_tidy_up();
    expect(address_space_kib() - space < 1024, "address space is lost");
    cycle(LENGTH);
    snprintf(detail, sizeof detail, "%d", met);
    return detail;
}

/* What is mapped where it was is the program's, and its copies are no buffer's. */
static const char *all(void)
{
    prepare();
    for (int round = 0; round < 3; round++) {
        unsigned char *buffer = let_go();
        expect(!is_mapped(buffer) && !is_mapped(buffer + LENGTH - 1), "the buffer is still there");
        unsigned char *other = mapped_at((unsigned long)buffer, LENGTH);
        expect(other == buffer, "its addresses are not free");
        copy_all(other, source, CHUNK);
        expect_source(other, CHUNK);
        munmap(other, LENGTH);
    }
    return end(0);
}

/* The addresses stay for the next buffer, and are empty. */
static const char *reserved(void)
{
    prepare();
    for (int round = 0; round < 3; round++) {
        unsigned char *buffer = let_go();
        expect(is_mapped(buffer) && !is_resident(buffer, LENGTH), "the range is not empty");
    }
    return end(0);
}

static const char *interrupted(enum order order)
{
    int met = 0, tries = 0;
    prepare();
    for (; met < 3 && tries < TRIES; tries++) {
        unsigned char *buffer = filled();
        order_in(tries % 8, order);
        release(buffer, LENGTH);
        met += order_met() > 0;
        expect(!is_resident(buffer, LENGTH), "memory is kept");
        expect_neighbours();
        order_now(RELEASE);
        expect_no_helper_within(10);
    }
    expect(met > 0, "no helper was met");
    return end(met);
}

static const char *held(void)
{
    return interrupted(STOP);
}

static const char *killed(void)
{
    return interrupted(EXIT);
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"all", all}, {"reserved", reserved}, {"held", held}, {"killed", killed}, {NULL, NULL}};
    return run_attack(attacks, count, arguments);
}
