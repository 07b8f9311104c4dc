/* A handler that forks in the middle of a copy, of a request, of an munmap; the child goes on from there, without the helpers that
 * its memory says there are. And a process whose first thread is the driver's and ends in mid-copy, while others go on. */
#include "attack.h"

#include <sys/time.h>

#define LENGTH (64 * MIB)

static unsigned char *buffer, *restored;
static volatile int in_call, is_child, wrong;
static volatile long children, started;

/* Once: the program gets on between two forks, however long they take. */
static void tick_in(long microseconds)
{
    const struct itimerval time = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &time, NULL);
}

static void fork_here(int number)
{
    (void)number;
    if (is_child || started >= 8)
        return;
    tick_in(2000 + started * 700);
    if (!in_call)
        return;
    started++;
    const pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        alarm(60);
    }
    wrong += child < 0;
}

/* In a child, everything that the parent does in the rest of its round, and nothing more. */
static void end_child(void)
{
    if (!is_child)
        return;
    for (double end = now() + 10; threads_here() != 1; usleep(1000))
        if (now() > end)
            _exit(2);
    _exit(0);
}

static void one_round(void)
{
    in_call = 1;
    buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH);
    in_call = 0;
    expect_source(buffer, LENGTH);
    memset(restored, 0, LENGTH);
    in_call = 1;
    copy_all(restored, buffer, LENGTH);
    release(buffer, LENGTH);
    in_call = 0;
    expect_source(restored, LENGTH);
    expect(!is_mapped(buffer), "the buffer is still there");
    end_child();
}

static void wait_for_children(void)
{
    int status;
    for (pid_t child; (child = waitpid(-1, &status, 0)) > 0; children++)
        if (status != 0)
            fail("a child has ended with %x", status);
}

static const char *forks_in_handler(void)
{
    static char detail[64];
    const struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
    load_cuda();
    make_source(LENGTH);
    restored = plain_memory(LENGTH);
    expect(sigaction(SIGALRM, &action, NULL) == 0, "no handler");
    const double end = now() + 40;
    for (int round = 0; round < 6 || (children < 20 && now() < end); round++) {
        started = 0;
        tick_in(500 + round % 5 * 1000);
        one_round();
        tick_in(0);
        wait_for_children();
    }
    expect(!wrong, "no child");
    expect(children >= 20, "the handler never met a call");
    cycle(LENGTH);
    snprintf(detail, sizeof detail, "%ld", children);
    return detail;
}

#define LARGE (512 * MIB)
static volatile int copying;

static void on_signal(int number)
{
    (void)number;
    pthread_exit(NULL);
}

static void *go_on(void *first)
{
    while (!copying)
        usleep(100);
    int helped;
    while (!(helped = helpers()))
        usleep(100);
    pthread_kill((pthread_t)first, SIGUSR1);
    sleep_ms(100);
    expect_no_helper_within(30);
    release(buffer, LARGE);
    expect(!is_mapped(buffer), "the buffer is still there");
    cycle(LENGTH);
    cycle(LENGTH);
    printf("ok %d helpers, %u answered\n", helped, *record_word(ANSWERED_OFFSET));
    fflush(stdout);
    wait_for_stdin();
    _exit(0);
}

static const char *first_thread(void)
{
    const struct sigaction action = {.sa_handler = on_signal};
    pthread_t thread;
    load_cuda();
    make_source(LARGE);
    sigaction(SIGUSR1, &action, NULL);
    expect(pthread_create(&thread, NULL, go_on, (void *)pthread_self()) == 0, "no thread");
    buffer = request(LARGE);
    copying = 1;
    cuda.memcpy(buffer, source, LARGE);
    fail("the copy was over before");
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"forks-in-handler", forks_in_handler},
        {"first-thread", first_thread},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
