/* Touches and frees memory: touch_mem GIB SECONDS
 *
 * On a freshly booted virtual machine the first touch of each page also pays the hypervisor (0.3 to 3 GB/s were seen), and
 * some machines grow their memory only as it is used. Stops at GIB, after SECONDS, or when the machine stays short of
 * memory for 5 s; prints what it touched. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

enum { STEP = 256 << 20, MOST_THREADS = 16 };
static const long RESERVE = 3L << 30;

static atomic_long steps_left;
static atomic_long touched;
static double deadline;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static long available_bytes(void) {
    long kilobytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %ld kB", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

/* Memory may grow a moment after it ran short. */
static int has_room(void) {
    double until = now() + 5;
    while (available_bytes() < RESERVE) {
        if (now() > until || now() > deadline)
            return 0;
        usleep(100000);
    }
    return 1;
}

static void *touch(void *unused) {
    (void)unused;
    while (atomic_fetch_sub(&steps_left, 1) > 0 && now() < deadline && has_room()) {
        char *memory = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            break;
        madvise(memory, STEP, MADV_HUGEPAGE);
        for (long at = 0; at < STEP; at += 4096)
            memory[at] = 1;
        atomic_fetch_add(&touched, STEP);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: touch_mem GIB SECONDS\n");
        return 2;
    }
    double start = now();
    atomic_store(&steps_left, atol(argv[1]) * 4);
    deadline = start + atof(argv[2]);
    pthread_t threads[MOST_THREADS];
    int count = get_nprocs() < MOST_THREADS ? get_nprocs() : MOST_THREADS;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, touch, NULL) != 0)
            count = i;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    double seconds = now() - start;
    printf("touched %.1f GiB in %.1f s (%.1f GB/s) with %d threads\n", atomic_load(&touched) / 1073741824.0, seconds,
           atomic_load(&touched) / 1e9 / seconds, count);
    return 0;
}
