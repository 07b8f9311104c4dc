/* Preloaded beside the shim: a thread that forks, vforks and spawns without pause. Each forked child maps, maps over, unmaps,
 * and looks whether it is alone in its process. FORKSTORM_OUT names a file that always holds "forks N bad M". */
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

static void *storm(void *unused)
{
    (void)unused;
    for (unsigned long count = 1, bad = 0;; count++) {
        pid_t pid;
        int status = 0;
        switch (count % 3) {
        case 0:
            pid = spawn_true();
            break;
        case 1:
            pid = vfork_true();
            break;
        default:
            pid = fork();
            if (pid == 0)
                child();
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            bad++;
        char text[64];
        int length = snprintf(text, sizeof text, "forks %lu bad %lu status %d\n", count, bad, status);
        int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd >= 0 && write(fd, text, (size_t)length) != length)
            abort();
        close(fd);
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
