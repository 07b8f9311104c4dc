/* A program that is interrupted all the time: a profiler's timer whose handler maps and copies on a small signal stack, and
 * storms of SIGTERM and SIGCHLD in a server that takes its signals in one thread. */
#include "attack.h"

#include <errno.h>
#include <sys/time.h>

#define LENGTH (64 * MIB)
#define SMALL 100000

static volatile int in_copy, checked, ticking, requests_too;
static volatile long ticks, inside;
static unsigned char *volatile live;
static unsigned char scratch[SMALL];
static const char *volatile wrong;

/* In a handler nothing may be printed; the program does it. */
static void note(int right, const char *what)
{
    if (!right)
        wrong = what;
}

static void map_and_unmap(size_t length, int flags)
{
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
    note(at != MAP_FAILED && munmap(at, length) == 0, "a handler's mapping failed");
}

static void map_over(void)
{
    static void *own;
    if (!own)
        own = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *at = mmap(own, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    note(at == own, "a handler cannot map over its own");
}

/* The interrupted thread may be in the middle of the shim's own work on that buffer. */
static void copy_from_buffer(void)
{
    if (!live || !in_copy)
        return;
    inside++;
    cuda.memcpy(scratch, live, SMALL);
    note(memcmp(scratch, source, SMALL) == 0, "a handler's copy from the buffer is wrong");
}

static void copy_elsewhere(void)
{
    cuda.memmove(scratch, source + MIB, SMALL);
    note(memcmp(scratch, source + MIB, SMALL) == 0, "a handler's copy is wrong");
}

/* By libcuda itself: inside another request, inside a copy, inside an munmap. */
static void request_and_release(void)
{
    unsigned char *own = cuda.mmap(32 * MIB, DRIVERS_FLAGS);
    note(own != MAP_FAILED, "a handler's request was refused");
    cuda.memcpy(own + 32 * MIB - SMALL, source, SMALL);
    note(memcmp(own + 32 * MIB - SMALL, source, SMALL) == 0, "a handler's buffer is wrong");
    note(cuda.munmap(own, 32 * MIB) == 0, "a handler's munmap failed");
}

/* Once: the program gets on between two ticks, however long a handler takes. */
static void tick_in(long microseconds)
{
    const struct itimerval time = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &time, NULL);
}

static void on_timer(int number)
{
    (void)number;
    const int before = errno;
    errno = 77;
    switch (ticks++ % 4) {
    case 0: map_and_unmap(8192, MAP_PRIVATE | MAP_ANONYMOUS); break;
    case 1: map_over(); break;
    case 2: copy_from_buffer(); break;
    case 3: copy_elsewhere(); break;
    }
    /* Has the form of the driver's request, but libcuda does not make it. */
    if (ticks % 64 == 0)
        map_and_unmap(32 * MIB, DRIVERS_FLAGS);
    if (requests_too && ticks % 32 == 5)
        request_and_release();
    note(errno == 77, "a call that succeeded has changed errno");
    errno = before;
    tick_in(ticking ? 200 : 0);
}

static void signal_stack(size_t size)
{
    unsigned char *memory = plain_memory(4096 + size);
    mprotect(memory, 4096, PROT_NONE);
    const stack_t stack = {.ss_sp = memory + 4096, .ss_size = size};
    expect(sigaltstack(&stack, NULL) == 0, "no signal stack");
}

static void copy_interrupted(unsigned char *to, const unsigned char *from)
{
    for (size_t offset = 0; offset < LENGTH; offset += CHUNK) {
        in_copy = 1;
        cuda.memcpy(to + offset, from + offset, CHUNK);
        in_copy = 0;
        if (offset == 0 && !live)
            live = to;
    }
    expect_source(to, LENGTH);
}

static const char *run_interrupted(size_t stack)
{
    static char detail[64];
    const struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_ONSTACK | SA_RESTART};
    load_cuda();
    make_source(LENGTH);
    signal_stack(stack);
    expect(sigaction(SIGALRM, &action, NULL) == 0, "no handler");
    ticking = 1;
    tick_in(200);
    int rounds = 0;
    for (const double end = now() + 30; rounds < 8 || (inside < 30 && now() < end); rounds++) {
        unsigned char *buffer = request(LENGTH), *restored = plain_memory(LENGTH);
        copy_interrupted(buffer, source);
        copy_interrupted(restored, buffer);
        live = NULL;
        release(buffer, LENGTH);
        munmap(restored, LENGTH);
    }
    ticking = 0;
    sleep_ms(10);
    if (wrong)
        fail("%s", wrong);
    expect(inside >= 30, "the handler never met a copy");
    expect_no_helper_within(5);
    cycle(LENGTH);
    snprintf(detail, sizeof detail, "%d", rounds + 1);
    return detail;
}

static const char *timer(void)
{
    return run_interrupted(12288);
}

static const char *timer_requests(void)
{
    requests_too = 1;
    return run_interrupted(65536);
}

static volatile int over;
static volatile long taken, stolen;
static sigset_t storm_signals;

static void *take_signals(void *unused)
{
    while (!over) {
        const struct timespec limit = {0, 10000000};
        if (sigtimedwait(&storm_signals, NULL, &limit) > 0)
            taken++;
    }
    return unused;
}

/* No thread of the program has these signals open: one that runs this is the shim's. Calls nothing of libc's. */
static void on_stolen(int number)
{
    (void)number;
    stolen++;
}

static void *send_signals(void *unused)
{
    const int numbers[] = {SIGTERM, SIGCHLD, SIGUSR1};
    /* With a breath in between: the test is about who gets them, not about CPUs that are taken. */
    for (unsigned i = 0; !over; i++) {
        kill(getpid(), numbers[i % 3]);
        if (i % 8 == 0)
            usleep(100);
    }
    return unused;
}

static unsigned long long blocked_in(int tid)
{
    char path[64], line[256];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "SigBlk: %llx", &mask) == 1)
            break;
    if (file)
        fclose(file);
    return mask;
}

/* SIGKILL and SIGSTOP cannot be blocked. 0 is a thread that has ended meanwhile. */
static void *look_at_masks(void *unused)
{
    const unsigned long long all = ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1));
    int ids[64];
    for (; !over; usleep(200))
        for (int i = list_helpers(getpid(), ids, 64); i > 0; i--) {
            const unsigned long long mask = blocked_in(ids[i - 1]);
            note(mask == all || mask == 0, "a helper has signals open");
            checked += mask == all;
        }
    return unused;
}

static const char *storm(void)
{
    static char detail[64];
    static void *(*const bodies[])(void *) = {take_signals, send_signals, look_at_masks};
    const struct sigaction action = {.sa_handler = on_stolen};
    pthread_t threads[3];
    load_cuda();
    make_source(LENGTH);
    sigemptyset(&storm_signals);
    const int numbers[] = {SIGTERM, SIGCHLD, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        sigaddset(&storm_signals, numbers[i]);
        sigaction(numbers[i], &action, NULL);
    }
    pthread_sigmask(SIG_BLOCK, &storm_signals, NULL);
    for (int i = 0; i < 3; i++)
        expect(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0, "no thread");
    int rounds = 0;
    for (const double end = now() + 30; rounds < 20 || ((checked < 20 || taken < 1000) && now() < end); rounds++)
        cycle(LENGTH);
    over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    if (wrong)
        fail("%s", wrong);
    expect(stolen == 0, "a thread of the shim has taken a signal");
    expect(checked >= 20 && taken >= 1000, "no helper, or no signal, was seen");
    snprintf(detail, sizeof detail, "%d", rounds);
    return detail;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"timer", timer},
        {"timer-requests", timer_requests},
        {"storm", storm},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
