/* What children of a server do under the shim, for the libraries that fork beside it: a child that maps and unmaps memory of the
 * size of a buffer and looks whether it is alone in its process, and one that becomes another program at once. */
#ifndef FORKED_H
#define FORKED_H

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static inline int threads_here(void)
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

/* The body of a forked child. Its exit status says what is wrong. */
static inline void child(void)
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

static inline pid_t vfork_true(void)
{
    const pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(6);
    }
    return pid;
}

#endif
