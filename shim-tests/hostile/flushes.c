/* A driver that takes a staging buffer away right after a copy out of it has returned: one that fails in mid-loop and cleans up, or one that
 * moves its staging buffers. The shim may still be flushing that buffer's lines then (rule: whoever takes pages away waits), and here a helper
 * is made to stand in that flush. Arguments: the attack, and where in the shim the function that flushes begins. */
#include "driver.h"
#include "slotof.h"
#include "warden.h"

#include <malloc.h>

#define LENGTH (40 * MIB)
/* Of no more parts than one helper can put off. */
#define STAGE MIB
#define TRIES 60

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static unsigned char *buffer, *elsewhere;
static unsigned char *stage[2];
/* How far the checkpoint has come. */
static size_t at;

static void copy_out_of(unsigned char *from, size_t length)
{
    memcpy(from, source + at, length);
    cuda.memcpy(buffer + at, from, length);
}

static void begin(void)
{
    buffer = request(LENGTH);
    for (at = 0; at < 2 * STAGE; at += STAGE)
        copy_out_of(stage[at / STAGE], STAGE);
}

/* A copy has returned, and a helper is held in the flush of what it has copied of it. Again where the crew had just left for want of
 * copies, or no helper was to be had in time. */
static void hold_after(unsigned char *from, size_t length)
{
    hold_at(from, length);
    for (int try = 0; try == 0 || !atomic_load(&warden->held); try++) {
        expect(try < TRIES, "no helper flushes after its copy");
        copy_out_of(from, length);
    }
    expect(memcmp(buffer + at, source + at, length) == 0, "a copy that has returned is not complete");
    at += length;
}

static void finish(void)
{
    copy_all(buffer + at, source + at, LENGTH - at);
    expect_source(buffer, LENGTH);
    unsigned char *restored = plain_memory(LENGTH);
    copy_all(restored, buffer, LENGTH);
    expect_source(restored, LENGTH);
    munmap(restored, LENGTH);
    release(buffer, LENGTH);
    expect_no_helper_within(10);
}

static void prepare(void)
{
    expect(attack_arguments[0] != NULL, "where is the flush?");
    start_warden(strtoul(attack_arguments[0], NULL, 16));
    load_driver();
    make_source(LENGTH);
    for (int i = 0; i < 2; i++)
        stage[i] = shared_memory(STAGE);
}

/* The ways in which a driver takes a staging buffer away. */

static void unmaps(unsigned char *from)
{
    release(from, STAGE);
}

static void maps_over(unsigned char *from)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    expect(driver.map(from, STAGE, PROT_NONE, flags) == from, "nothing can be mapped over it");
}

static void program_maps_over(unsigned char *from)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    expect(mmap(from, STAGE, PROT_NONE, flags, -1, 0) == from, "nothing can be mapped over it");
}

static void moves_away(unsigned char *from)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    expect(driver.remap(from, STAGE, STAGE, flags, elsewhere) == elsewhere, "it cannot be moved");
}

static void moves_over(unsigned char *from)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    expect(driver.remap(elsewhere, STAGE, STAGE, flags, from) == from, "nothing can be moved over it");
}

static void protects(unsigned char *from)
{
    expect(cuda.mprotect(from, STAGE, PROT_NONE) == 0, "it cannot be protected");
}

static void frees(unsigned char *from)
{
    expect(driver.madvise(from, STAGE, MADV_DONTNEED) == 0, "its pages cannot be freed");
}

/* Kernels before 6.13 do not know it; others are asked for it on memory of one process. */
static void guards(unsigned char *from)
{
    (void)driver.madvise(from, STAGE, MADV_GUARD_INSTALL);
}

static const struct way {
    const char *name;
    void (*take)(unsigned char *);
} ways[] = {
    {"munmap", unmaps},       {"mmap", maps_over},     {"mmap-of-program", program_maps_over},
    {"mremap", moves_away},   {"mremap-over", moves_over}, {"mprotect", protects},
    {"madvise", frees},       {"guard", guards},
};

static const struct way *the_way(void)
{
    expect(attack_arguments[1] != NULL, "which way?");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, attack_arguments[1]) == 0)
            return &ways[i];
    fail("there is no way of that name");
    return NULL;
}

static void take_away(const struct way *way, int which, enum warden_order order, int waits)
{
    elsewhere = shared_memory(STAGE);
    tell_warden(order);
    way->take(stage[which]);
    expect(atomic_load(&warden->waited) == waits, waits ? "pages go from under a flush" : "a call waits for nobody");
    tell_warden(LET_GO);
    munmap(stage[which], STAGE);
    munmap(elsewhere, STAGE);
    stage[which] = shared_memory(STAGE);
}

/* It waits for a helper that somebody keeps, until it is let go or is no more, and for no other. */
static const char *waits(void)
{
    const struct way *way = the_way();
    prepare();
    begin();
    hold_after(stage[0], STAGE);
    take_away(way, 0, LET_GO_WHEN_WAITED_FOR, 1);
    hold_after(stage[1], STAGE);
    take_away(way, 1, END_WHEN_WAITED_FOR, 1);
    hold_after(stage[0], STAGE);
    tell_warden(END_IT);
    take_away(way, 0, LET_GO_WHEN_WAITED_FOR, 0);
    hold_after(stage[0], STAGE);
    take_away(way, 1, LET_GO_WHEN_WAITED_FOR, 0);
    finish();
    return NULL;
}

/* The buffer goes first, and with the last buffer the slots: but not those through which the source may go. */
static const char *after_the_buffer(void)
{
    const struct way *way = the_way();
    prepare();
    const long before = address_space_kib();
    begin();
    hold_after(stage[0], STAGE);
    release(buffer, LENGTH);
    take_away(way, 0, LET_GO_WHEN_WAITED_FOR, 1);
    expect_no_helper_within(10);
    cycle(LENGTH);
    cycle(LENGTH);
    expect(address_space_kib() - before < 1024, "address space is lost");
    return NULL;
}

/* The next buffer comes and goes meanwhile. */
static const char *over_the_next_buffer(void)
{
    const struct way *way = the_way();
    prepare();
    begin();
    hold_after(stage[0], STAGE);
    release(buffer, LENGTH);
    cuda.memcpy(stage[1], source, STAGE);
    unsigned char *next = request(LENGTH);
    copy_all(next, source, LENGTH);
    expect_source(next, LENGTH);
    release(next, LENGTH);
    take_away(way, 0, LET_GO_WHEN_WAITED_FOR, 1);
    expect_no_helper_within(10);
    cycle(LENGTH);
    return NULL;
}

/* The copy that covers the buffer ends the phase: it waits for no such helper for ever, and the source may not go either. */
static const char *last_copy(void)
{
    prepare();
    for (int try = 0; !atomic_load(&warden->held); try++) {
        expect(try < TRIES, "no helper flushes after the last copy");
        begin();
        copy_all(buffer + at, source + at, LENGTH - STAGE - at);
        at = LENGTH - STAGE;
        hold_at(stage[0], STAGE);
        copy_out_of(stage[0], STAGE);
        tell_warden(CALM);
        if (!atomic_load(&warden->held))
            release(buffer, LENGTH);
    }
    expect_source(buffer, LENGTH);
    take_away(&ways[1], 0, LET_GO_WHEN_WAITED_FOR, 1);
    at = LENGTH;
    finish();
    return NULL;
}

/* What lies between two staging buffers is nobody's source, nor is the other buffer. */
static const char *neighbours(void)
{
    prepare();
    for (int i = 0; i < 2; i++)
        munmap(stage[i], STAGE);
    unsigned char *area = shared_memory(3 * STAGE);
    stage[0] = area, stage[1] = area + 2 * STAGE;
    begin();
    for (int i = 0; i < 2; i++, at += STAGE)
        copy_out_of(stage[i], STAGE);
    hold_after(stage[0], STAGE);
    tell_warden(LET_GO_WHEN_WAITED_FOR);
    release(area + STAGE, STAGE);
    release(stage[1], STAGE);
    expect(!atomic_load(&warden->waited), "a call waits for the flush of something else");
    tell_warden(LET_GO);
    finish();
    return NULL;
}

/* A length of one byte is a page's, and a source may begin in the middle of one. */
static const char *one_byte(void)
{
    prepare();
    begin();
    copy_out_of(stage[0] + 512, STAGE - PAGE);
    hold_after(stage[0] + 512, STAGE - PAGE);
    unsigned char *page = (unsigned char *)(atomic_load(&warden->from) & ~(PAGE - 1));
    expect(page + PAGE > stage[0] + 512 && page < stage[0] + STAGE, "it flushes something else");
    tell_warden(LET_GO_WHEN_WAITED_FOR);
    release(page, 1);
    expect(atomic_load(&warden->waited), "a page goes from under a flush");
    finish();
    return NULL;
}

/* A child has no helper to wait for: not for the parent's source, nor for its own buffer. */
static const char *child(void)
{
    int status;
    prepare();
    begin();
    hold_after(stage[0], STAGE);
    const pid_t child = fork();
    if (child == 0) {
        release(stage[0], STAGE);
        expect(driver.map(stage[1], STAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED) == stage[1], "no map");
        release(buffer, LENGTH);
        cycle(LENGTH);
        _exit(0);
    }
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child did not end well");
    take_away(&ways[0], 0, LET_GO_WHEN_WAITED_FOR, 1);
    finish();
    return NULL;
}

/* Where not every such call is told to the shim. */

/* No flush outlives its copy: none is made after it at all. The source goes at once. */
static void expect_no_late_flush(void)
{
    for (int round = 0; round < 12; round++) {
        hold_at(stage[round % 2], STAGE);
        copy_out_of(stage[round % 2], STAGE);
        at += STAGE;
        expect(atomic_load(&warden->flushes) == 0, "a flush outlives its copy");
        maps_over(stage[round % 2]);
        const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
        expect(mmap(stage[round % 2], STAGE, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED, "no memory");
    }
    tell_warden(CALM);
}

/* Another preload in front of the shim answers libcuda's maps, those by one of the two names perhaps. */
static const char *unseen_maps(void)
{
    prepare();
    if (attack_arguments[1])
        *(void **)&driver.map = dlsym(cuda.handle, attack_arguments[1]);
    begin();
    expect_no_late_flush();
    finish();
    return NULL;
}

static int other_protect(void *address, size_t length, int protection)
{
    return (int)syscall(SYS_mprotect, address, length, protection);
}

static int other_advise(void *address, size_t length, int advice)
{
    return (int)syscall(SYS_madvise, address, length, advice);
}

static int other_unmap(void *address, size_t length)
{
    return (int)syscall(SYS_munmap, address, length);
}

static const struct hook {
    const char *symbol;
    void *function;
} hooks[] = {
    {"mprotect", (void *)other_protect}, {"madvise", (void *)other_advise}, {"munmap", (void *)other_unmap}};

static void hook_slot(const char *symbol)
{
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (strcmp(hooks[i].symbol, symbol) == 0)
            *slot_of(symbol) = hooks[i].function;
}

/* Somebody else's function stands in one of libcuda's slots since the buffer before. */
static const char *hooked_before(void)
{
    expect(attack_arguments[0] && attack_arguments[1], "which slot?");
    prepare();
    unsigned char *first = request(LENGTH);
    hook_slot(attack_arguments[1]);
    copy_all(first, source, LENGTH);
    release(first, LENGTH);
    begin();
    expect_no_late_flush();
    finish();
    return NULL;
}

/* Since the request. */
static const char *hooked_meanwhile(void)
{
    expect(attack_arguments[0] && attack_arguments[1], "which slot?");
    prepare();
    buffer = request(LENGTH);
    hook_slot(attack_arguments[1]);
    for (at = 0; at < 2 * STAGE; at += STAGE)
        copy_out_of(stage[at / STAGE], STAGE);
    expect_no_late_flush();
    finish();
    return NULL;
}

/* Memory of an allocator comes round like a staging buffer: freed, and given out again. Its free is no call of libcuda's. */
static const char *allocated(void)
{
    prepare();
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    begin();
    unsigned char *first = NULL;
    int again = 0;
    for (int round = 0; round < 12; round++, at += STAGE) {
        unsigned char *memory = malloc(STAGE);
        expect(memory != NULL, "no memory");
        hold_at(memory, STAGE);
        again += memory == first;
        first = first ? first : memory;
        copy_out_of(memory, STAGE);
        expect(atomic_load(&warden->flushes) == 0, "a flush of memory that is freed outlives its copy");
        free(memory);
    }
    tell_warden(CALM);
    expect(again > 5, "the allocator gave out other memory");
    finish();
    return NULL;
}

/* What comes round at the address of a staging buffer that was given up is no staging buffer. */
static const char *recycled(void)
{
    prepare();
    begin();
    copy_out_of(stage[0], STAGE);
    at += STAGE;
    unmaps(stage[0]);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *memory = mmap(stage[0], STAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    expect(memory == stage[0], "its addresses are not free");
    const int before = atomic_load(&warden->flushes);
    expect(before > 0, "there was no flush after a copy");
    hold_at(memory, STAGE);
    for (int round = 0; round < 4; round++, at += STAGE)
        copy_out_of(memory, STAGE);
    expect(atomic_load(&warden->flushes) == before, "a flush of memory that is freed outlives its copy");
    tell_warden(CALM);
    munmap(memory, STAGE);
    finish();
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"waits", waits},
        {"after-buffer", after_the_buffer},
        {"next-buffer", over_the_next_buffer},
        {"last-copy", last_copy},
        {"neighbours", neighbours},
        {"one-byte", one_byte},
        {"child", child},
        {"unseen-maps", unseen_maps},
        {"hooked-before", hooked_before},
        {"hooked-meanwhile", hooked_meanwhile},
        {"allocated", allocated},
        {"recycled", recycled},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
