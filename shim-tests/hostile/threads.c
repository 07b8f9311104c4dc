/* Attacks by more than one thread in the driver, and by a driver's thread that leaves in mid-copy. */
#include "attack.h"

#include <setjmp.h>

static volatile int over;

/* Lets kept buffers be dropped, from a thread that has nothing to do with the driver. */
static void *drop_without_pause(void *word)
{
    volatile uint32_t *drop = word;
    while (!over) {
        *drop = 1;
        munmap(plain_memory(4096), 4096);
    }
    return NULL;
}

/* Each buffer is given up in mid-prefault, while the other thread may be using the shim's state. */
static const char *dropper(void)
{
    static char detail[64];
    pthread_t thread;
    int buffers = 0;
    load_cuda();
    expect(pthread_create(&thread, NULL, drop_without_pause, (void *)drop_word()) == 0, "no thread");
    for (const double end = now() + 3; now() < end; buffers++)
        release(request(128 * MIB), 128 * MIB);
    over = 1;
    pthread_join(thread, NULL);
    expect_no_helper_within(5);
    snprintf(detail, sizeof detail, "%d buffers", buffers);
    return detail;
}

#define SHARED (128 * MIB)
static unsigned char *shared, *restored;

static void own_buffer(void)
{
    unsigned char *own = request(40 * MIB);
    cuda.memcpy(own, source, 3 * MIB);
    expect_source(own, 3 * MIB);
    release(own, 40 * MIB);
}

/* One half of the shared buffer, in and out, and now and then a buffer of its own. */
static void *one_of_two(void *first)
{
    const size_t from = (size_t)(uintptr_t)first;
    for (size_t at = from; at < from + SHARED / 2; at += MIB) {
        cuda.memcpy(shared + at, source + at, MIB);
        cuda.memcpy(restored + at, shared + at, MIB);
        expect(memcmp(restored + at, source + at, MIB) == 0, "contents are wrong");
        if (at % (16 * MIB) == 0)
            own_buffer();
    }
    return NULL;
}

static const char *two_drivers(void)
{
    load_cuda();
    make_source(SHARED);
    shared = request(SHARED);
    restored = plain_memory(SHARED);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        expect(pthread_create(&thread, NULL, one_of_two, (void *)(uintptr_t)(SHARED / 2)) == 0, "no thread");
        one_of_two(NULL);
        pthread_join(thread, NULL);
    }
    release(shared, SHARED);
    expect_no_helper_within(5);
    cycle(SHARED);
    return NULL;
}

#define LARGE (512 * MIB)
static volatile int copying, copied;

static void *copy_in_one_call(void *unused)
{
    shared = request(LARGE);
    copying = 1;
    cuda.memcpy(shared, source, LARGE);
    copied = 1;
    return unused;
}

/* Ends the thread alone, without the libc's knowledge. */
static void on_kill(int number)
{
    (void)number;
    syscall(SYS_exit, 0);
}

static const char *death_in_mid_copy(void)
{
    const struct sigaction action = {.sa_handler = on_kill};
    pthread_t thread;
    load_cuda();
    make_source(LARGE);
    sigaction(SIGUSR1, &action, NULL);
    expect(pthread_create(&thread, NULL, copy_in_one_call, NULL) == 0, "no thread");
    while (!copying)
        sleep_ms(1);
    sleep_ms(5);
    pthread_kill(thread, SIGUSR1);
    /* The kernel tells of the end of any thread. */
    pthread_join(thread, NULL);
    sleep_ms(100);
    expect_no_helper_within(10);
    expect(!copied, "the copy was over before");
    release(shared, LARGE);
    cycle(64 * MIB);
    return NULL;
}

static sigjmp_buf back;

static void on_fault(int number)
{
    siglongjmp(back, number);
}

/* The program knows that its memory may be missing, and leaves libcuda's copy by a jump. So short that the caller copies
 * alone: a fault in a helper cannot be the program's to handle. */
static const char *jump_out_of_a_copy(void)
{
    const struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    /* The kernel unmaps no such length of 2 MiB pages. */
    const size_t length = LARGE - 4321;
    load_cuda();
    make_source(LARGE);
    sigaction(SIGSEGV, &action, NULL);
    shared = request(length);
    cuda.memcpy(shared, source, 64 * MIB);
    mprotect(source + 65 * MIB, 4096, PROT_NONE);
    if (sigsetjmp(back, 1) == 0) {
        cuda.memcpy(shared + 65 * MIB - 20000, source + 65 * MIB - 20000, 30000);
        fail("the copy has returned");
    }
    expect_no_helper_within(10);
    release(shared, length);
    cycle(64 * MIB);
    cycle(64 * MIB);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"dropper", dropper},
        {"two-drivers", two_drivers},
        {"death", death_in_mid_copy},
        {"jump", jump_out_of_a_copy},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
