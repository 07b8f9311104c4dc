/* Driver's threads that are ended in the middle of a copy by libc: cancelled, or with pthread_exit in a handler. libc unwinds their
 * stack, the shim's frames too. And handlers on a signal stack that the kernel disarms, inside the thread's own stack. */
#include "attack.h"

#include <sys/time.h>

#define LENGTH (64 * MIB)
#define LARGE (512 * MIB)

static unsigned char *buffer, *restored;
static volatile int copying, copied, cleaned;

static void note_cleanup(void *unused)
{
    (void)unused;
    cleaned++;
}

static void *copy_in_one_call(void *by_request)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(note_cleanup, NULL);
    if (by_request)
        buffer = request(LARGE);
    copying = 1;
    if (by_request)
        cuda.memcpy(buffer, source, LARGE);
    else
        cuda.memcpy(restored, buffer, LARGE);
    copied = 1;
    pthread_cleanup_pop(0);
    return by_request;
}

static void on_signal(int number)
{
    (void)number;
    pthread_exit(NULL);
}

static void end_in_mid_copy(int cancel, int in_checkpoint, long after_us)
{
    pthread_t thread;
    copying = copied = cleaned = 0;
    expect(pthread_create(&thread, NULL, copy_in_one_call, in_checkpoint ? &buffer : NULL) == 0, "no thread");
    while (!copying)
        usleep(100);
    usleep((useconds_t)after_us);
    if (cancel)
        pthread_cancel(thread);
    else
        pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    expect(!copied, "the copy was over before");
    expect(cleaned == 1, "a cleanup handler did not run");
    expect_no_helper_within(10);
}

static void ended(int cancel)
{
    const struct sigaction action = {.sa_handler = on_signal};
    load_cuda();
    make_source(LARGE);
    restored = plain_memory(LARGE);
    expect(sigaction(SIGUSR1, &action, NULL) == 0, "no handler");
    end_in_mid_copy(cancel, 1, 5000);
    copy_all(buffer, source, LARGE);
    expect_source(buffer, LARGE);
    release(buffer, LARGE);
    buffer = request(LARGE);
    copy_all(buffer, source, LARGE);
    end_in_mid_copy(cancel, 0, 5000);
    copy_all(restored, buffer, LARGE);
    expect_source(restored, LARGE);
    release(buffer, LARGE);
    cycle(LENGTH);
    cycle(LENGTH);
}

static const char *cancel(void)
{
    ended(1);
    return NULL;
}

static const char *exit_in_handler(void)
{
    ended(0);
    return NULL;
}

/* A signal stack that the kernel disarms while it is in use (SS_AUTODISARM, for handlers that switch stacks) and that lies in the
 * frame of a function which calls the driver: nothing says that a handler runs on it, and it lies above the frames that it
 * has interrupted. */
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
#define SMALL 100000

static unsigned char scratch[SMALL];
static volatile int in_copy, wrong, armed;
static volatile long inside;

/* Once, and anew by each handler when it is done: on a busy machine a clock that goes on leaves no time for anything else. */
static void arm(void)
{
    const struct itimerval soon = {{0, 0}, {0, 200}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void copy_from_buffer(int number)
{
    (void)number;
    if (in_copy) {
        inside++;
        cuda.memcpy(scratch, buffer, SMALL);
        wrong += memcmp(scratch, source, SMALL) != 0;
    }
    if (armed)
        arm();
}

static void copy_interrupted(unsigned char *to, const unsigned char *from)
{
    memset(to + CHUNK, 0, LENGTH - CHUNK);
    for (size_t offset = CHUNK; offset < LENGTH; offset += CHUNK) {
        in_copy = 1;
        cuda.memcpy(to + offset, from + offset, CHUNK);
        in_copy = 0;
    }
    expect_source(to, LENGTH);
}

static __attribute__((noinline)) void disarmed_round(void)
{
    unsigned char stack[32768];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack, .ss_flags = (int)SS_AUTODISARM}, none = {.ss_flags = SS_DISABLE};
    buffer = request(LENGTH);
    cuda.memcpy(buffer, source, CHUNK);
    expect(sigaltstack(&own, NULL) == 0, "no signal stack");
    copy_interrupted(buffer, source);
    cuda.memcpy(restored, buffer, CHUNK);
    copy_interrupted(restored, buffer);
    sigaltstack(&none, NULL);
    release(buffer, LENGTH);
}

static const char *disarmed(void)
{
    static char detail[64];
    const struct sigaction action = {.sa_handler = copy_from_buffer, .sa_flags = SA_ONSTACK | SA_RESTART};
    load_cuda();
    make_source(LENGTH);
    restored = plain_memory(LENGTH);
    expect(sigaction(SIGALRM, &action, NULL) == 0, "no handler");
    int rounds = 0;
    for (const double end = now() + 30; rounds < 8 || (inside < 200 && now() < end); rounds++) {
        armed = 1;
        arm();
        disarmed_round();
        armed = 0;
        expect(!wrong, "a handler's copy is wrong");
    }
    expect(inside >= 30, "the handler never met a copy");
    expect_no_helper_within(5);
    cycle(LENGTH);
    snprintf(detail, sizeof detail, "%ld", inside);
    return detail;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"cancel", cancel},
        {"exit", exit_in_handler},
        {"disarmed", disarmed},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
