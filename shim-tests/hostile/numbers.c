/* A program in a pid namespace of its own that sees the outer one's /proc, as `nsenter --pid` and sandboxes leave it: what /proc lists under
 * the number of a thread is another thread. A tracer outside stops helpers in the middle of their parts. */
#include "attack.h"

#include <sched.h>
#include <sys/ptrace.h>

#define LENGTH (256 * MIB)
#define ROUNDS 60
/* As many rounds in which a copy waited are enough. */
#define ENOUGH 3
#define HOLD_MS 300
/* Numbers of helpers inside come after those of as many idle threads, and outside after those of as many processes that are gone: so one
 * of the idle threads has the outer number that a helper has inside. */
#define DUMMIES 200
#define IDLE 210

static struct control {
    _Atomic int go, stopped, released;
} *control;

static void *idle(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void start_idle_threads(void)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int i = 0; i < IDLE; i++) {
        pthread_t thread;
        expect(pthread_create(&thread, &small, idle, NULL) == 0, "no thread");
    }
}

/* Whether the copy waited for helpers that were stopped. One that returned before they went on has all its bytes already: nothing is written
 * any more. */
static int copy_once(unsigned char *staging, const unsigned char *buffer)
{
    control->stopped = control->released = 0;
    control->go = 1;
    cuda.memcpy(staging, buffer, LENGTH);
    const int waited = control->stopped > 0 && control->released;
    if (control->stopped > 0 && !control->released) {
        memset(staging, 0xEE, LENGTH);
        while (!control->released)
            sleep_ms(1);
        sleep_ms(50);
        for (size_t i = 0; i < LENGTH; i++)
            expect(staging[i] == 0xEE, "a helper wrote after the copy had returned");
    }
    while (control->go)
        sleep_ms(1);
    return waited;
}

static void inside(void)
{
    int waited = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    start_idle_threads();
    make_source(LENGTH);
    load_cuda();
    unsigned char *buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH);
    unsigned char *staging = plain_memory(LENGTH);
    for (int round = 0; round < ROUNDS && waited < ENOUGH; round++)
        waited += copy_once(staging, buffer);
    _exit(waited);
}

static void hold_helpers(pid_t program)
{
    int ids[64], stopped[64], count = 0;
    const int found = list_helpers(program, ids, 64);
    for (int i = 0; i < found; i++) {
        int status;
        if (ptrace(PTRACE_SEIZE, ids[i], 0, 0) != 0)
            continue;
        ptrace(PTRACE_INTERRUPT, ids[i], 0, 0);
        if (waitpid(ids[i], &status, __WALL) == ids[i] && WIFSTOPPED(status))
            stopped[count++] = ids[i];
    }
    control->stopped = count;
    sleep_ms(HOLD_MS);
    /* Told after they go on: a copy that returns before did not wait. */
    while (count > 0)
        ptrace(PTRACE_DETACH, stopped[--count], 0, 0);
    control->released = 1;
}

static const char *outer(void)
{
    static char detail[32];
    int status;
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(control != MAP_FAILED, "no shared memory");
    for (int i = 0; i < DUMMIES; i++) {
        const pid_t dummy = fork();
        if (dummy == 0)
            _exit(0);
        waitpid(dummy, NULL, 0);
    }
    expect(unshare(CLONE_NEWPID) == 0, "no pid namespace: run as root");
    const pid_t program = fork();
    if (program == 0)
        inside();
    while (waitpid(program, &status, WNOHANG) != program) {
        if (!control->go) {
            sleep_ms(1);
            continue;
        }
        sleep_ms(8);
        hold_helpers(program);
        control->go = 0;
    }
    if (!WIFEXITED(status))
        fail("the program ended with wait status %x", status);
    snprintf(detail, sizeof detail, "%d", WEXITSTATUS(status));
    return detail;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {{"outer", outer}, {NULL, NULL}};
    return run_attack(attacks, count, arguments);
}
