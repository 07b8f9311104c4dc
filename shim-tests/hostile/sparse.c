/* A driver whose device memory is mostly zeros, as a server's is whose cache of keys and values nobody has used yet. Zeros may be left out of
 * the buffer, but never where something else lies: what an earlier checkpoint left in a kept buffer, what the driver copied before or put
 * there by itself. */
#include "attack.h"

#include <setjmp.h>
#include <sys/time.h>

#define LENGTH (160 * MIB + 4321)
/* What is not zero in a mostly empty source: every so many bytes, so long. */
#define EVERY (40 * MIB)
#define FULL (3 * MIB)

static unsigned char *staging[2];

/* Resident bytes of the process that are its own: pages that read as zeros without being there do not count. */
static long own_kib(void)
{
    long size, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    expect(file && fscanf(file, "%ld %ld %ld", &size, &resident, &shared) == 3, "statm cannot be read");
    fclose(file);
    return (resident - shared) * 4;
}

static void copy_through_staging(unsigned char *buffer, size_t from, size_t to)
{
    for (size_t offset = from, turn = 0; offset < to; offset += CHUNK, turn ^= 1) {
        const size_t length = to - offset < CHUNK ? to - offset : CHUNK;
        memcpy(staging[turn], source + offset, length);
        cuda.memcpy(buffer + offset, staging[turn], length);
    }
}

/* A restore, chunk by chunk, looked at before the next. */
static void expect_restored(const unsigned char *buffer)
{
    for (size_t offset = 0; offset < LENGTH; offset += CHUNK) {
        cuda.memcpy(staging[0], buffer + offset, chunk_at(offset, LENGTH));
        expect(memcmp(staging[0], source + offset, chunk_at(offset, LENGTH)) == 0, "what is restored is wrong");
    }
    expect(helpers() == 0, "a helper outlives its phase");
}

static void empty_most_of_the_source(void)
{
    for (size_t offset = 0; offset < LENGTH; offset += EVERY) {
        const size_t full = offset + FULL, end = offset + EVERY < LENGTH ? offset + EVERY : LENGTH;
        if (full < end)
            memset(source + full, 0, end - full);
    }
    /* One byte in the middle of nothing. */
    source[20 * MIB + 77] = 1;
}

static void prepare(void)
{
    make_source(LENGTH);
    for (int turn = 0; turn < 2; turn++)
        staging[turn] = memset(shared_memory(CHUNK), 7, CHUNK);
}

/* How many KiB the buffer took. */
static const char *mostly_zero(void)
{
    static char text[32];
    prepare();
    empty_most_of_the_source();
    const long before = own_kib();
    unsigned char *buffer = request(LENGTH);
    /* The driver takes its time to set its staging buffers up, and helpers have nothing to do but to prefault. */
    sleep_ms(300);
    copy_through_staging(buffer, 0, LENGTH);
    expect(helpers() == 0, "a helper outlives its phase");
    snprintf(text, sizeof text, "%ld", own_kib() - before);
    expect_restored(buffer);
    release(buffer, LENGTH);
    return text;
}

/* Full first; the buffer that is kept is full of that when most of the memory is empty. */
static const char *kept_full(void)
{
    prepare();
    for (int cycle = 0; cycle < 3; cycle++) {
        unsigned char *buffer = request(LENGTH);
        copy_through_staging(buffer, 0, LENGTH);
        expect_source(buffer, LENGTH);
        expect_restored(buffer);
        release(buffer, LENGTH);
        if (cycle == 0)
            empty_most_of_the_source();
    }
    return NULL;
}

/* The driver writes some of its buffer by itself, and copies zeros over that; it copies a part twice, zeros the second time. */
static const char *written_before(void)
{
    prepare();
    unsigned char *buffer = request(LENGTH);
    memset(buffer + 11 * MIB, 9, 2 * MIB);
    buffer[100 * MIB + 5] = 3;
    copy_through_staging(buffer, 60 * MIB, 70 * MIB);
    empty_most_of_the_source();
    copy_through_staging(buffer, 0, LENGTH);
    expect_source(buffer, LENGTH);
    expect_restored(buffer);
    release(buffer, LENGTH);
    return NULL;
}

/* The driver's way out of a copy. A byte of its buffer tells that copies have been there: by then threads have left out a good deal of
 * what lies before it. */
static sigjmp_buf way_out;
static volatile sig_atomic_t in_copy;
static const volatile unsigned char *witness;

static void leave_copy(int number)
{
    (void)number;
    if (in_copy && *witness == 1)
        siglongjmp(way_out, 1);
}

/* Whether a copy of zeros, with one byte that is none, was left in its middle. */
static int is_left(unsigned char *buffer, const unsigned char *zeros)
{
    witness = buffer + 20 * MIB + 77;
    in_copy = 0;
    if (sigsetjmp(way_out, 1) != 0) {
        in_copy = 0;
        return 1;
    }
    in_copy = 1;
    cuda.memcpy(buffer, zeros, LENGTH);
    in_copy = 0;
    return 0;
}

static void tick(long microseconds)
{
    const struct itimerval time = {{0, microseconds}, {0, microseconds}};
    expect(setitimer(ITIMER_REAL, &time, NULL) == 0, "no timer");
}

/* What was left out until then is not the next checkpoint's, of which nothing is zero. */
static const char *jumped(void)
{
    const struct sigaction action = {.sa_handler = leave_copy};
    prepare();
    unsigned char *zeros = plain_memory(LENGTH);
    /* Base pages of its own: it shall take its time. */
    for (size_t page = 0; page < LENGTH; page += 4096)
        zeros[page] = 0;
    zeros[20 * MIB + 77] = 1;
    expect(sigaction(SIGALRM, &action, NULL) == 0, "no handler");
    tick(200);
    int left = 0;
    for (const double end = now() + 60; !left && now() < end;) {
        unsigned char *buffer = request(LENGTH);
        left = is_left(buffer, zeros);
        release(buffer, LENGTH);
    }
    tick(0);
    expect(left, "no copy was met");
    unsigned char *buffer = request(LENGTH);
    copy_through_staging(buffer, 0, LENGTH);
    expect_source(buffer, LENGTH);
    expect_restored(buffer);
    release(buffer, LENGTH);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"mostly-zero", mostly_zero},       {"kept-full", kept_full}, {"written-before", written_before},
        {"jumped", jumped}, {NULL, NULL}};
    load_cuda();
    return run_attack(attacks, count, arguments);
}
