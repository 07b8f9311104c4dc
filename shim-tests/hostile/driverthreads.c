/* A driver whose threads do what the recorded ones never did: ask for the buffer on one and copy on another, end in the middle,
 * copy at the same time, work inside a signal handler, or leave a copy by a jump, as programs with managed memory do. */
#include "driver.h"

#include <setjmp.h>
#include <sys/time.h>

#define LENGTH (48 * MIB + 777)

static unsigned char *buffer, *restored;

static void prepare(void)
{
    make_source(LENGTH);
    restored = plain_memory(LENGTH);
}

/* 0 = as large as usual. */
static size_t stack_size;

static pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack_size)
        expect(pthread_attr_setstacksize(&attributes, stack_size) == 0, "no such stack");
    expect(pthread_create(&thread, &attributes, body, argument) == 0, "no thread");
    return thread;
}

static void on_a_thread(void *(*body)(void *), void *argument)
{
    pthread_join(start(body, argument), NULL);
}

static void *ask(void *unused)
{
    buffer = request(LENGTH);
    return unused;
}

static void *copy_in(void *unused)
{
    copy_all(buffer, source, LENGTH);
    return unused;
}

static void *copy_out(void *unused)
{
    copy_all(restored, buffer, LENGTH);
    return unused;
}

static void *give_up(void *unused)
{
    release(buffer, LENGTH);
    return unused;
}

/* Every step on a thread of its own that is gone before the next. */
static const char *relay(void)
{
    prepare();
    for (int round = 0; round < 3; round++) {
        memset(restored, 0, LENGTH);
        on_a_thread(ask, NULL);
        on_a_thread(copy_in, NULL);
        on_a_thread(copy_out, NULL);
        expect_source(restored, LENGTH);
        on_a_thread(give_up, NULL);
    }
    expect_no_helper_within(5);
    return NULL;
}

/* The same on the smallest stacks that pthreads grant. */
static const char *relay_on_small_stacks(void)
{
    stack_size = 16384;
    return relay();
}

/* The thread goes after half of its copies, with the libc's knowledge or without. */
static void *half_of_it(void *without)
{
    buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH / 2);
    if (without)
        syscall(SYS_exit, 0);
    pthread_exit(NULL);
}

static const char *ends_in_the_middle(void)
{
    prepare();
    for (size_t without = 0; without < 2; without++) {
        on_a_thread(half_of_it, (void *)without);
        expect_no_helper_within(5);
        copy_all(buffer + LENGTH / 2, source + LENGTH / 2, LENGTH - LENGTH / 2);
        expect_source(buffer, LENGTH);
        copy_all(restored, buffer, LENGTH);
        expect_source(restored, LENGTH);
        release(buffer, LENGTH);
    }
    cycle(LENGTH);
    return NULL;
}

/* Two threads at once: the same buffer in opposite directions, each its own half; then buffers of their own. */
static void *other_half(void *rounds)
{
    for (size_t round = 0; round < (size_t)rounds; round++) {
        copy_all(restored, buffer, LENGTH / 2);
        expect_source(restored, LENGTH / 2);
    }
    return NULL;
}

static void *own_buffer(void *unused)
{
    for (int round = 0; round < 6; round++) {
        unsigned char *own = request(LENGTH), *out = plain_memory(LENGTH);
        copy_all(own, source, LENGTH);
        copy_all(out, own, LENGTH);
        expect_source(out, LENGTH);
        release(own, LENGTH);
        munmap(out, LENGTH);
    }
    return unused;
}

static const char *at_once(void)
{
    prepare();
    buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH / 2);
    const pthread_t reader = start(other_half, (void *)6);
    for (int round = 0; round < 6; round++) {
        copy_all(buffer + LENGTH / 2, source + round, LENGTH - LENGTH / 2 - 6);
        expect(memcmp(buffer + LENGTH / 2, source + round, LENGTH - LENGTH / 2 - 6) == 0, "contents are wrong");
    }
    pthread_join(reader, NULL);
    release(buffer, LENGTH);
    const pthread_t other = start(own_buffer, NULL);
    own_buffer(NULL);
    pthread_join(other, NULL);
    expect_no_helper_within(5);
    cycle(LENGTH);
    return NULL;
}

static volatile int handled;
static unsigned char *in_handler;

/* The next signal: not before the handler is through, however slow the machine is. */
static void ring(long after_us)
{
    const struct itimerval timer = {{0, 0}, {0, after_us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static volatile int ringing;

static void was_handled(void)
{
    handled++;
    if (ringing)
        ring(3700);
}

/* A whole small cycle, in whatever the signal came into. */
static void cycle_in_handler(int number)
{
    (void)number;
    unsigned char *own = request(33 * MIB);
    cuda.memcpy(own + 1, source, 3 * MIB);
    cuda.memcpy(in_handler, own + 1, 3 * MIB);
    expect(memcmp(in_handler, source, 3 * MIB) == 0, "contents are wrong");
    release(own, 33 * MIB);
    was_handled();
}

/* Out of and into the buffer that the interrupted copy is about. */
static void copies_in_handler(int number)
{
    (void)number;
    cuda.memcpy(in_handler, buffer + LENGTH - 3 * MIB, 3 * MIB);
    cuda.memcpy(buffer + LENGTH - 3 * MIB, source + LENGTH - 3 * MIB, 3 * MIB);
    was_handled();
}

static void interrupted_cycles(void (*handler)(int))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    prepare();
    in_handler = plain_memory(3 * MIB);
    expect(sigaction(SIGALRM, &action, NULL) == 0, "no handler");
    for (int round = 0; round < 100 && (round < 4 || handled < 5); round++) {
        buffer = request(LENGTH);
        ringing = 1;
        ring(3700);
        cuda.memcpy(buffer, source, LENGTH);
        cuda.memcpy(restored, buffer, LENGTH);
        copy_all(buffer, source, LENGTH);
        copy_all(restored, buffer, LENGTH);
        ringing = 0;
        ring(0);
        expect_source(buffer, LENGTH);
        expect_source(restored, LENGTH);
        release(buffer, LENGTH);
    }
    expect(handled >= 5, "no signal came");
    expect_no_helper_within(5);
    cycle(LENGTH);
}

static const char *request_in_handler(void)
{
    interrupted_cycles(cycle_in_handler);
    return NULL;
}

static const char *copy_in_handler(void)
{
    interrupted_cycles(copies_in_handler);
    return NULL;
}

static sigjmp_buf back;

static void on_fault(int number)
{
    siglongjmp(back, number);
}

/* So short that the caller copies alone: the fault is the program's to handle. */
static void leave_a_copy(unsigned char *hole)
{
    if (sigsetjmp(back, 1) == 0) {
        cuda.memcpy(buffer + (hole - source) - 20000, hole - 20000, 30000);
        fail("the copy has returned");
    }
}

static __attribute__((noinline)) void leave_deeper(unsigned char *hole, int depth)
{
    volatile char frame[500];
    frame[0] = frame[499] = (char)depth;
    if (depth > 0)
        leave_deeper(hole, depth - 1);
    else
        leave_a_copy(hole);
    frame[1] = frame[0];
}

/* On its own stack, or on another; from the same depth of the stack as what comes then, or from deeper. */
static void jump(int own_stack, int depth)
{
    static unsigned char stack[128 * 1024];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    const struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER | (own_stack ? 0 : SA_ONSTACK)};
    unsigned char *hole = source + 10 * MIB;
    expect(sigaltstack(&other, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0, "no handler");
    buffer = request(LENGTH);
    copy_all(buffer, source, 10 * MIB - 2 * CHUNK);
    mprotect(hole, PAGE, PROT_NONE);
    leave_deeper(hole, depth);
    mprotect(hole, PAGE, PROT_READ | PROT_WRITE);
    copy_all(buffer, source, LENGTH);
    expect_source(buffer, LENGTH);
    copy_all(restored, buffer, LENGTH);
    expect_source(restored, LENGTH);
    release(buffer, LENGTH);
    cycle(LENGTH);
}

static const char *jumps(void)
{
    prepare();
    const long before = address_space_kib();
    for (int depth = 0; depth < 8; depth++)
        for (int own_stack = 0; own_stack < 2; own_stack++)
            jump(own_stack, depth);
    expect_no_helper_within(5);
    expect(address_space_kib() - before < 1024, "address space is lost");
    return NULL;
}

/* Deaths: the program asks for them, and must die as it would on a plain libcuda. */

static const char *source_without_access(void)
{
    prepare();
    buffer = request(LENGTH);
    mprotect(source + 20 * MIB, 8 * MIB, PROT_NONE);
    cuda.memcpy(buffer, source, LENGTH);
    return NULL;
}

static const char *target_read_only(void)
{
    prepare();
    buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH);
    mprotect(restored, LENGTH, PROT_READ);
    cuda.memcpy(restored, buffer, LENGTH);
    return NULL;
}

/* By the program itself, as soon as it is there. */
static const char *buffer_gone(void)
{
    prepare();
    buffer = request(LENGTH);
    munmap(buffer, LENGTH);
    copy_all(buffer, source, LENGTH);
    return NULL;
}

static const char *buffer_read_only(void)
{
    prepare();
    buffer = request(LENGTH);
    mprotect(buffer, LENGTH, PROT_READ);
    copy_all(buffer, source, LENGTH);
    return NULL;
}

static const char *file_too_short(void)
{
    prepare();
    FILE *file = tmpfile();
    expect(file && ftruncate(fileno(file), (off_t)MIB) == 0, "no file");
    unsigned char *of_file = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    buffer = request(LENGTH);
    cuda.memcpy(buffer, of_file, 4 * MIB);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"relay", relay},
        {"relay-small", relay_on_small_stacks},
        {"ends", ends_in_the_middle},
        {"at-once", at_once},
        {"request-in-handler", request_in_handler},
        {"copy-in-handler", copy_in_handler},
        {"jumps", jumps},
        {"source-without-access", source_without_access},
        {"target-read-only", target_read_only},
        {"buffer-gone", buffer_gone},
        {"buffer-read-only", buffer_read_only},
        {"file-too-short", file_too_short},
        {NULL, NULL},
    };
    load_driver();
    return run_attack(attacks, count, arguments);
}
