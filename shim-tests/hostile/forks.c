/* A server that forks, vforks or spawns without pause while its driver checkpoints and restores: subprocess calls, health checks,
 * workers of a pre-forking server. Only children that were made while a copy ran count. Forked children leave at once, copy
 * the buffer that they inherited, map and ask for a buffer of their own, or execute something else. */
#include "attack.h"

#include <fcntl.h>
#include <spawn.h>

#define LENGTH (32 * MIB)

extern char **environ;

static volatile int over, copying;
/* Holds the source while it is not NULL, in a child too. */
static unsigned char *volatile live;
static volatile long cycles;

static void copy_and_check(unsigned char *to, const unsigned char *from)
{
    copying = 1;
    copy_all(to, from, LENGTH);
    copying = 0;
    expect_source(to, LENGTH);
}

static void *cycle_without_pause(void *unused)
{
    unsigned char *restored = plain_memory(LENGTH);
    /* No child needs it, and each fork would make the next cycle take all its pages anew. */
    madvise(restored, LENGTH, MADV_DONTFORK);
    for (; !over; cycles++) {
        unsigned char *buffer = request(LENGTH);
        copy_and_check(buffer, source);
        live = buffer;
        memset(restored, 0, LENGTH);
        copy_and_check(restored, buffer);
        live = NULL;
        release(buffer, LENGTH);
    }
    munmap(restored, LENGTH);
    return unused;
}

/* The parent's helpers and its state, which another thread may have been using, are not the child's. */
static void copy_in_child(void)
{
    unsigned char *const buffer = live;
    if (!buffer)
        return;
    expect_source(buffer, CHUNK);
    cuda.memcpy(buffer + CHUNK, buffer, CHUNK);
    expect_source(buffer + CHUNK, CHUNK);
    cuda.memmove(buffer, source + CHUNK, CHUNK);
    expect(memcmp(buffer, source + CHUNK, CHUNK) == 0, "a child's copy is wrong");
}

static void map_in_child(void)
{
    unsigned char *at = plain_memory(4 * MIB);
    memset(at, 1, 4 * MIB);
    void *over_it = mmap(at, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    expect(over_it == at && at[5] == 0 && at[MIB] == 1, "a child's mapping is wrong");
    expect(munmap(at, 4 * MIB) == 0, "a child's munmap failed");
}

static void run_true(void)
{
    execl("/bin/true", "true", (char *)NULL);
    _exit(7);
}

static void in_fork_child(long round)
{
    expect(threads_here() == 1, "a child is not alone");
    switch (round % 4) {
    case 1:
        copy_in_child();
        break;
    case 2:
        map_in_child();
        if (round % 8 == 2)
            cycle(LENGTH);
        break;
    case 3:
        run_true();
    }
    expect(threads_here() == 1, "a helper serves a child");
    _exit(0);
}

static pid_t make_fork(long round)
{
    const pid_t child = fork();
    if (child == 0)
        in_fork_child(round);
    return child;
}

/* Runs in the parent's memory, beside the parent's other threads. */
static pid_t make_vfork(long round)
{
    static char from[4096] = "a copy through libcuda", to[4096];
    const pid_t child = vfork();
    if (child == 0) {
        cuda.memcpy(to, from, sizeof from);
        void *at = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || munmap(at, 4 * MIB) != 0 || to[5] != from[5])
            _exit(6);
        if (round % 2)
            run_true();
        _exit(0);
    }
    return child;
}

static pid_t make_spawn(long round)
{
    char *arguments[] = {"sh", "-c", "exit 0", NULL}, *nothing[] = {"true", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    const int failed = round % 8 ? posix_spawn(&child, "/bin/true", &actions, NULL, nothing, environ)
                                 : posix_spawnp(&child, "sh", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : child;
}

/* Until so many children were made while a copy ran. */
static const char *run(pid_t (*make)(long))
{
    static char detail[64];
    const long wanted = attack_arguments[0] ? atol(attack_arguments[0]) : 1000;
    pthread_t thread;
    long during = 0;
    load_cuda();
    make_source(LENGTH);
    expect(pthread_create(&thread, NULL, cycle_without_pause, NULL) == 0, "no thread");
    for (long round = 0; during < wanted; round++) {
        int status = 1;
        while (!copying)
            usleep(20);
        const int before = copying;
        const pid_t child = make(round);
        during += before;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            fail("child %ld: status %x", round, status);
    }
    over = 1;
    pthread_join(thread, NULL);
    expect_no_helper_within(5);
    cycle(LENGTH);
    snprintf(detail, sizeof detail, "%ld", cycles + 1);
    return detail;
}

static const char *forks(void)
{
    return run(make_fork);
}

static const char *vforks(void)
{
    return run(make_vfork);
}

static const char *spawns(void)
{
    return run(make_spawn);
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"fork", forks},
        {"vfork", vforks},
        {"spawn", spawns},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
