/* What a shim must not be: a worker thread made at load time does the populating of the driver's buffer, and the caller waits
 * for it. Works, until all threads but the caller are frozen. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static sem_t work, done;
static char *volatile base;
static volatile size_t length;

static void *worker(void *unused) {
    for (;;) {
        sem_wait(&work);
        for (size_t at = 0; at < length; at += 4096)
            base[at] = 0;
        sem_post(&done);
    }
    return unused;
}

__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    sem_init(&work, 0, 0);
    sem_init(&done, 0, 0);
    pthread_create(&thread, NULL, worker, NULL);
}

void *mmap(void *address, size_t bytes, int rights, int flags, int file, off_t offset) {
    int buffer = (flags & MAP_POPULATE) && (flags & MAP_ANONYMOUS) && bytes >= 32u << 20;
    if (buffer)
        flags &= ~MAP_POPULATE;
    void *memory = (void *)syscall(SYS_mmap, address, bytes, rights, flags, file, offset);
    if (buffer && memory != MAP_FAILED) {
        base = memory;
        length = bytes;
        sem_post(&work);
        while (sem_wait(&done) != 0) {
        }
    }
    return memory;
}
