/* A driver whose buffer comes from the pool of 2 MiB pages: they are taken by many threads before it has the address, so that no touch of its own
 * is a SIGBUS, and a helper that somebody stops or kills in the middle is waited for no longer than any other. */
#include "driver.h"
#include "stopper.h"

#define LENGTH (200 * MIB + 4321)
#define TRIES 60

static long space;

static void prepare(void)
{
    start_stopper();
    load_driver();
    make_source(LENGTH);
    space = address_space_kib();
}

/* Whether it lies in pages of the pool, all of them there. */
static void expect_filled(unsigned char *buffer)
{
    static unsigned char there[LENGTH / 4096 + 2];
    expect(mincore(buffer, LENGTH, there) == 0, "the buffer is not mapped");
    for (size_t page = 0; page < (LENGTH + 4095) / 4096; page++)
        expect(there[page] & 1, "a page was not taken");
}

/* Each time a little later in the request, whose 100 pages take two threads some 20 ms. */
static const char *interrupted(enum order order)
{
    static char detail[32];
    int met = 0;
    prepare();
    for (int try = 0; met < 3 && try < TRIES; try++) {
        order_in(1 + try % 12, order);
        unsigned char *buffer = request(LENGTH);
        met += order_met() > 0;
        expect_filled(buffer);
        copy_all(buffer, source, LENGTH);
        expect_source(buffer, LENGTH);
        release(buffer, LENGTH);
        order_now(RELEASE);
        expect_no_helper_within(10);
        let_the_shim_tidy_up();
    }
    expect(met > 0, "no helper was met");
    expect(address_space_kib() - space < 1024, "address space is lost");
    cycle(LENGTH);
    snprintf(detail, sizeof detail, "%d", met);
    return detail;
}

static const char *held(void)
{
    return interrupted(STOP);
}

static const char *held_for_a_while(void)
{
    return interrupted(STOP_FOR_300_MS);
}

static const char *killed(void)
{
    return interrupted(EXIT);
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"held", held}, {"held-for-a-while", held_for_a_while}, {"killed", killed}, {NULL, NULL}};
    return run_attack(attacks, count, arguments);
}
