/* A driver that does something new to a buffer while a debugger, or a process checkpointer, keeps the shim's helpers stopped in
 * the middle of it: gives it up piece by piece, maps over what it gave up, protects what is left. */
#include "driver.h"
#include "stopper.h"

#define LENGTH (256 * MIB)
#define HALF (LENGTH / 2)
#define ROUNDS 8

static long address_space_before;

static unsigned char *request_and_stop(void)
{
    for (int try = 0; try < 100; try++) {
        unsigned char *buffer = request(LENGTH);
        if (order_now(STOP) > 0)
            return buffer;
        release(buffer, LENGTH);
    }
    fail("no helper could be stopped");
    return NULL;
}

static void let_go(void)
{
    order_now(RELEASE);
    expect_no_helper_within(10);
    /* Finds that nothing waits any more. */
    release(request(64 * MIB), 64 * MIB);
    expect_no_helper_within(10);
}

static void prepare(void)
{
    start_stopper();
    load_driver();
    address_space_before = address_space_kib();
}

static const char *end(int met)
{
    static char detail[32];
    expect(address_space_kib() - address_space_before < 1024, "address space is lost");
    make_source(64 * MIB);
    cycle(64 * MIB);
    snprintf(detail, sizeof detail, "%d", met);
    return detail;
}

/* Also twice, and across the pieces that were given up before. */
static const char *pieces(void)
{
    int kept = 0;
    prepare();
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *buffer = request_and_stop();
        for (size_t at = 0; at < LENGTH; at += LENGTH / 8)
            release(buffer + at, LENGTH / 8);
        for (size_t at = 0; at < LENGTH; at += LENGTH / 8)
            kept += is_mapped(buffer + at);
        release(buffer + LENGTH / 16, HALF);
        let_go();
        for (size_t at = 0; at < LENGTH; at += LENGTH / 8)
            expect(!is_mapped(buffer + at), "addresses are kept for nobody");
    }
    return end(kept);
}

static void *map_over(int by_driver, void *at, size_t length)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, access = PROT_READ | PROT_WRITE;
    return by_driver ? driver.map(at, length, access, flags) : mmap(at, length, access, flags, -1, 0);
}

/* What lies there then is not the shim's to unmap. */
static const char *over(void)
{
    prepare();
    for (int round = 0; round < ROUNDS; round++) {
        const size_t length = round < 4 ? 16 * MIB : LENGTH;
        unsigned char *buffer = request_and_stop(), *at = buffer + (LENGTH - length) / 4 * (size_t)(round / 2);
        release(buffer, LENGTH);
        order_in(100, RELEASE);
        expect(map_over(round % 2, at, length) == at, "nothing can be mapped over it");
        memset(at, 42, length);
        order_met();
        let_go();
        for (size_t byte = 0; byte < length; byte += 4096)
            expect(is_mapped(at + byte) && at[byte] == 42, "somebody else's memory was changed");
        munmap(at, length);
    }
    return end(ROUNDS);
}

/* The first half is given up, the second may not be written any more. */
static const char *protected_rest(void)
{
    prepare();
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *buffer = request_and_stop();
        release(buffer, HALF);
        order_in(100, RELEASE);
        expect(cuda.mprotect(buffer + HALF, HALF, PROT_READ) == 0, "it cannot be protected");
        order_met();
        let_go();
        expect(buffer[HALF] == 0 && buffer[LENGTH - 1] == 0, "what is left was changed");
        release(buffer + HALF, HALF);
    }
    return end(ROUNDS);
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"pieces", pieces}, {"over", over}, {"protected-rest", protected_rest}, {NULL, NULL}};
    return run_attack(attacks, count, arguments);
}
