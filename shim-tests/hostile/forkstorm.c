/* Preloaded beside the shim: a thread that forks, vforks and spawns without pause. Each forked child maps, maps over, unmaps,
 * and looks whether it is alone in its process. FORKSTORM_OUT names a file that always holds
 * "FORKS VFORKS SPAWNS BAD ...". */
#define _GNU_SOURCE
#include "forked.h"

#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;
static const char *out;

static pid_t spawn_true(void)
{
    char *arguments[] = {"true", NULL};
    char *environment[] = {NULL};
    pid_t pid = -1;
    return posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environment) == 0 ? pid : -1;
}

static void tell(const unsigned long *made, unsigned long bad, int status)
{
    char text[128], next[4096];
    const int length = snprintf(text, sizeof text, "%lu %lu %lu %lu status %d\n", made[0], made[1], made[2], bad, status);
    snprintf(next, sizeof next, "%s.next", out);
    const int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (write(fd, text, (size_t)length) != length)
        abort();
    close(fd);
    /* A reader finds the old numbers or the new ones. */
    rename(next, out);
}

static void *storm(void *unused)
{
    unsigned long made[3] = {0}, bad = 0;
    int last = 0;
    (void)unused;
    for (unsigned long count = 0;; count++) {
        pid_t pid = -1;
        int status = 0;
        switch (count % 3) {
        case 0:
            pid = fork();
            if (pid == 0)
                child();
            break;
        case 1:
            pid = vfork_true();
            break;
        case 2:
            pid = spawn_true();
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            bad++;
            last = status;
        }
        made[count % 3]++;
        tell(made, bad, last);
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;
    out = getenv("FORKSTORM_OUT");
    /* Programs that it executes have this library too: a storm of theirs would tell its own numbers in the same file. */
    unsetenv("FORKSTORM_OUT");
    if (out)
        pthread_create(&thread, NULL, storm, NULL);
}
