/* Maps files that must not be read: one that was cut off after it was mapped, under the name of a libcuda too. Then a thread
 * with the restore thread's name makes a request that looks like the driver's. Prints "alive". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void map_and_cut(const char *folder, const char *name, int protection)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%d", folder, name, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 1 << 16) != 0)
        exit(2);
    if (mmap(NULL, 1 << 16, protection, MAP_PRIVATE, fd, 0) == MAP_FAILED)
        exit(3);
    if (ftruncate(fd, 0) != 0)
        exit(4);
    unlink(path);
    close(fd);
}

static void *request(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, "cuda00001400057");
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    return mmap(NULL, 64u << 20, PROT_READ | PROT_WRITE, flags, -1, 0);
}

int main(int count, char **arguments)
{
    pthread_t thread;
    void *result = MAP_FAILED;
    if (count < 2)
        return 5;
    map_and_cut(arguments[1], "data", PROT_READ);
    map_and_cut(arguments[1], "libcuda.so.1", PROT_READ);
    if (pthread_create(&thread, NULL, request, NULL) != 0)
        return 6;
    pthread_join(thread, &result);
    puts(result == MAP_FAILED ? "refused" : "alive");
    return 0;
}
