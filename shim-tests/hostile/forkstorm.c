/* Preloaded beside the shim: a thread that forks, vforks and spawns without pause. Each forked child maps, maps over, unmaps,
 * and looks whether it is alone in its process. FORKSTORM_OUT names a file that always holds
 * "FORKS VFORKS SPAWNS BAD ...". */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *out;

static int threads_here(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    if (!tasks)
        return -1;
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void child(void)
{
    const size_t length = 40u << 20;
    char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        _exit(2);
    memset(at, 1, 1 << 20);
    if (mmap(at, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at || at[5] != 0)
        _exit(3);
    if (munmap(at, length) != 0)
        _exit(4);
    free(strdup("allocated"));
    _exit(threads_here() == 1 ? 0 : 5);
}

static pid_t spawn_true(void)
{
    char *arguments[] = {"true", NULL};
    char *environment[] = {NULL};
    pid_t pid = -1;
    return posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environment) == 0 ? pid : -1;
}

static pid_t vfork_true(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(6);
    }
    return pid;
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
    if (out)
        pthread_create(&thread, NULL, storm, NULL);
}
