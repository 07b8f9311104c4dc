/* Preloaded beside the shim: a busy server. Its threads hold the locks of libc most of the time: they allocate (MALLOC_ARENA_MAX=1
 * makes it one lock), load and unload a library, create and join threads, fork, and map memory, some of it as the driver asks
 * for its buffer. BUSY_BOARD names a file that the test has mapped too: it starts and stops the work there, sees who is
 * inside which call, and asks whether a call would return: a prober that needs a lock of a stopped thread does not answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum worker { ALLOCATES, ALLOCATES_TOO, LOADS, CREATES, FORKS, MAPS, WORKERS };
enum prober { ALLOCATOR, LOADER, CREATOR, PROBERS };
enum place { OUTSIDE, INSIDE, RESTING };

/* The same in shim-tests/src/busy.rs. */
static struct board {
    _Atomic uint32_t works; /* a bit for each worker */
    struct {
        _Atomic uint32_t id, place, rounds;
    } worker[WORKERS];
    struct {
        _Atomic uint32_t id, asked, answered;
    } prober[PROBERS];
} *board;

static void sleep_us(long us)
{
    const struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

/* A compiler takes out what is only allocated and freed. */
static void allocate_one(size_t bytes)
{
    void *volatile piece = malloc(bytes);
    free(piece);
}

/* Not the tcache's sizes, which take no lock. */
static void allocate(unsigned seed)
{
    void *piece[16];
    for (unsigned i = 0; i < 16; i++)
        piece[i] = malloc(1500 + (seed * 7919 + i * 104729) % 60000);
    for (unsigned i = 0; i < 16; i++)
        free(piece[i * 5 % 16]);
}

static void load(void)
{
    void *library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library || dlclose(library) != 0)
        abort();
}

static void *nothing(void *unused)
{
    return unused;
}

static void create(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        abort();
}

static void fork_once(void)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        allocate_one(5000);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        abort();
}

/* Through the shim's export. */
static void map(unsigned seed)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (seed % 64 ? 0 : MAP_POPULATE);
    const size_t length = seed % 64 ? (size_t)1 << 20 : (size_t)32 << 20;
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    void *over = mmap(memory, length / 2, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (over != memory || memory[0] != 0 || munmap(memory, length) != 0)
        abort();
}

static void work(enum worker me, unsigned seed)
{
    switch (me) {
    case LOADS:
        load();
        break;
    case CREATES:
        create();
        break;
    case FORKS:
        fork_once();
        break;
    case MAPS:
        map(seed);
        break;
    default:
        allocate(seed * 2 + me);
    }
}

static void *worker(void *number)
{
    const enum worker me = (enum worker)(uintptr_t)number;
    atomic_store(&board->worker[me].id, (uint32_t)syscall(SYS_gettid));
    for (unsigned seed = 1;; seed++) {
        while (!(atomic_load(&board->works) >> me & 1)) {
            atomic_store(&board->worker[me].place, RESTING);
            sleep_us(500);
        }
        atomic_store(&board->worker[me].place, INSIDE);
        work(me, seed);
        atomic_store(&board->worker[me].place, OUTSIDE);
        atomic_fetch_add(&board->worker[me].rounds, 1);
        /* Else six threads that never wait take all CPUs from the test. */
        sleep_us(200);
    }
    return NULL;
}

/* Sleeps in the kernel until it is asked. */
static void *prober(void *number)
{
    const enum prober me = (enum prober)(uintptr_t)number;
    atomic_store(&board->prober[me].id, (uint32_t)syscall(SYS_gettid));
    for (uint32_t done = 0;;) {
        const uint32_t asked = atomic_load(&board->prober[me].asked);
        if (asked == done) {
            syscall(SYS_futex, &board->prober[me].asked, FUTEX_WAIT, done, NULL, NULL, 0);
            continue;
        }
        if (me == ALLOCATOR)
            allocate_one(3000);
        else if (me == LOADER)
            dlsym(RTLD_DEFAULT, "getpid");
        else
            create();
        atomic_store(&board->prober[me].answered, done = asked);
    }
    return NULL;
}

static void *together(void *barrier)
{
    pthread_barrier_wait(barrier);
    return NULL;
}

/* libc keeps the stacks of threads that have ended. It has as many as it will need from the start, so that none looks like a
 * mapping that somebody has lost. */
static void keep_stacks(void)
{
    pthread_barrier_t barrier;
    pthread_t thread[3];
    pthread_barrier_init(&barrier, NULL, 3);
    for (int i = 0; i < 3; i++)
        if (pthread_create(&thread[i], NULL, together, &barrier) != 0)
            abort();
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("BUSY_BOARD");
    const int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (board == MAP_FAILED)
        abort();
    pthread_t thread;
    for (uintptr_t i = 0; i < WORKERS + PROBERS; i++) {
        void *(*run)(void *) = i < WORKERS ? worker : prober;
        if (pthread_create(&thread, NULL, run, (void *)(i < WORKERS ? i : i - WORKERS)) != 0)
            abort();
    }
    keep_stacks();
}
