/* Attacks on helpers: somebody keeps them stopped, or kills one alone. */
#include "stopper.h"

#define LENGTH (256 * MIB + 4096)
#define TRIES 60

static long address_space_before;

static void prepare(void)
{
    start_stopper();
    load_cuda();
    address_space_before = address_space_kib();
}

/* A buffer whose helpers are stopped in the middle of prefault. */
static unsigned char *request_and_stop(size_t length)
{
    for (int try = 0; try < TRIES; try++) {
        unsigned char *buffer = request(length);
        if (order_now(STOP) > 0)
            return buffer;
        release(buffer, length);
    }
    fail("no helper could be stopped");
    return NULL;
}

/* The helpers go on, where they were stopped. When they are gone, the next request finds that nothing waits any more. */
static void let_go(void)
{
    order_now(RELEASE);
    expect_no_helper_within(5);
    release(request(64 * MIB), 64 * MIB);
    expect_no_helper_within(5);
}

static void expect_nothing_lost(void)
{
    expect(address_space_kib() - address_space_before < 1024, "address space is lost");
}

/* Again until a helper was caught inside a unit of prefault: only then are the addresses kept. */
static void unmap_half(int second_half)
{
    const size_t half = 128 * MIB;
    int kept = 0;
    prepare();
    for (int try = 0; try < TRIES && !kept; try++) {
        unsigned char *buffer = request_and_stop(LENGTH);
        unsigned char *gone = second_half ? buffer + half : buffer, *stays = second_half ? buffer : buffer + half;
        release(gone, second_half ? LENGTH - half : half);
        kept = is_mapped(gone);
        memset(stays, 1, second_half ? half : LENGTH - half);
        let_go();
        expect(stays[0] == 1 && stays[half - 1] == 1, "the half that stays was changed");
        release(stays, second_half ? half : LENGTH - half);
        expect_nothing_lost();
    }
    expect(kept, "no helper was caught inside a unit");
}

static const char *first_half(void)
{
    unmap_half(0);
    return NULL;
}

static const char *second_half(void)
{
    unmap_half(1);
    return NULL;
}

static const char *whole(void)
{
    unsigned char there[LENGTH / 4096];
    prepare();
    unsigned char *buffer = request_and_stop(LENGTH);
    release(buffer, LENGTH);
    /* The addresses wait for the helper, the memory does not. */
    expect(mincore(buffer, LENGTH, there) == 0, "a helper's addresses are gone");
    for (size_t page = 0; page < LENGTH / 4096; page++)
        expect(!(there[page] & 1), "memory is kept");
    let_go();
    expect_nothing_lost();
    return NULL;
}

/* The crew is of no use for ten buffers. */
static const char *many(void)
{
    prepare();
    make_source(64 * MIB);
    address_space_before = address_space_kib();
    release(request_and_stop(LENGTH), LENGTH);
    for (int i = 0; i < 10; i++) {
        unsigned char *buffer = request(64 * MIB);
        copy_all(buffer, source, 64 * MIB);
        expect_source(buffer, 64 * MIB);
        release(buffer, 64 * MIB);
    }
    let_go();
    expect_nothing_lost();
    return NULL;
}

/* One long copy each way, in whose middle the order comes. */
static int in_mid_copy(enum order order)
{
    int met = 0;
    unsigned char *buffer = request(LENGTH), *restored = plain_memory(LENGTH);
    order_in(3, order);
    cuda.memcpy(buffer, source, LENGTH);
    met += order_met();
    expect_source(buffer, LENGTH);
    order_in(3, order);
    cuda.memcpy(restored, buffer, LENGTH);
    met += order_met();
    expect_source(restored, LENGTH);
    munmap(restored, LENGTH);
    release(buffer, LENGTH);
    expect_no_helper_within(5);
    return met;
}

static const char *in_mid_copies(enum order order)
{
    static char detail[32];
    int met = 0;
    prepare();
    make_source(LENGTH);
    for (int round = 0; round < 3; round++)
        met += in_mid_copy(order);
    snprintf(detail, sizeof detail, "%d", met);
    return detail;
}

static const char *held_in_a_part(void)
{
    return in_mid_copies(STOP_FOR_300_MS);
}

static const char *killed_in_a_part(void)
{
    return in_mid_copies(EXIT);
}

/* A helper that was ended in the middle of a unit of prefault touches nothing any more, and nobody waits for it: not a change of
 * the buffer's protection, not the munmap of a half, not the next buffer's prefault. */
static const char *killed_in_prefault(void)
{
    static char detail[32];
    /* Smaller than elsewhere: nothing here must last. */
    const size_t length = 64 * MIB + 4096, half = 32 * MIB;
    int met = 0;
    prepare();
    for (int try = 0; try < 6; try++) {
        unsigned char *buffer = request(length);
        met += order_now(EXIT);
        if (try % 2)
            expect(cuda.mprotect(buffer, length, PROT_READ | PROT_WRITE) == 0, "an mprotect failed");
        release(buffer, half);
        expect(!is_mapped(buffer), "addresses wait for a helper that is dead");
        memset(buffer + half, 1, length - half);
        release(buffer + half, length - half);
    }
    expect_no_helper_within(5);
    release(request(64 * MIB), 64 * MIB);
    expect_nothing_lost();
    make_source(length);
    cycle(length);
    snprintf(detail, sizeof detail, "%d", met);
    return detail;
}

/* A libcuda whose slots cannot be held: its request is answered when all is populated, but not by a helper that somebody
 * keeps. */
static const char *relro(void)
{
    static char detail[32];
    double took = 0;
    int met = 0;
    prepare();
    for (int try = 0; try < TRIES && !met; try++) {
        order_in(5 + 5 * try, STOP);
        const double began = now();
        unsigned char *buffer = request(LENGTH);
        took = now() - began;
        met = order_met();
        memset(buffer, 1, LENGTH);
        release(buffer, LENGTH);
        let_go();
    }
    expect(met > 0, "no helper could be stopped");
    expect_nothing_lost();
    snprintf(detail, sizeof detail, "%.3f", took);
    return detail;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"first-half", first_half},
        {"second-half", second_half},
        {"whole", whole},
        {"many", many},
        {"held", held_in_a_part},
        {"killed", killed_in_a_part},
        {"killed-in-prefault", killed_in_prefault},
        {"relro", relro},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
