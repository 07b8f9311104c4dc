/* Preloaded behind the shim by the soak: what other threads of a server do while the driver checkpoints it. One thread allocates and
 * frees, loads and unloads a library, starts and joins a thread; another forks children that look whether they are alone. Each
 * works while a page that SOAK_PAGE names says so, and counts there. It also switches the process's huge pages off and on. */
#define _GNU_SOURCE
#include "forked.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* The same words in shim-tests/src/soak/mate.rs. */
static struct page {
    _Atomic uint32_t allocate, fork, no_huge_pages;
    /* Threads in the middle of something. */
    _Atomic uint32_t busy;
    /* What `no_huge_pages` was when it was last obeyed. */
    _Atomic uint32_t obeyed;
    _Atomic uint32_t rounds, forks, bad;
} *page;

static void rest(long us)
{
    const struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

/* Whether to work now. Busy is said first and looked at last by whoever waits for rest. */
static int begins(_Atomic uint32_t *wanted)
{
    atomic_fetch_add(&page->busy, 1);
    if (atomic_load(wanted))
        return 1;
    atomic_fetch_sub(&page->busy, 1);
    return 0;
}

static void *allocate_a_little(void *unused)
{
    free(malloc(5000));
    return unused;
}

static int allocate(uint32_t round)
{
    void *piece[64];
    pthread_t thread;
    for (int i = 0; i < 64; i++)
        piece[i] = malloc(16 + (size_t)(round * 64 + (uint32_t)i) * 2654435761u % 40000);
    for (int i = 0; i < 64; i++)
        free(piece[i]);
    /* More than malloc keeps: a mapping of its own, through the mmap that the shim exports. */
    char *large = malloc(3 << 20);
    if (!large)
        return 0;
    memset(large, 1, 4096);
    free(large);
    void *library = round % 4 == 0 ? dlopen("libutil.so.1", RTLD_NOW) : NULL;
    if (library)
        dlclose(library);
    if (round % 4 == 1 && (pthread_create(&thread, NULL, allocate_a_little, NULL) != 0 || pthread_join(thread, NULL) != 0))
        return 0;
    return 1;
}

static void *allocator(void *unused)
{
    uint32_t huge_pages_off = 0;
    for (;;) {
        const uint32_t off = atomic_load(&page->no_huge_pages);
        if (off != huge_pages_off && prctl(PR_SET_THP_DISABLE, off, 0, 0, 0) == 0)
            huge_pages_off = off;
        atomic_store(&page->obeyed, huge_pages_off);
        if (begins(&page->allocate)) {
            if (!allocate(atomic_fetch_add(&page->rounds, 1)))
                atomic_fetch_add(&page->bad, 1);
            atomic_fetch_sub(&page->busy, 1);
        }
        /* The driver needs the CPUs too. */
        rest(atomic_load(&page->allocate) ? 200 : 2000);
    }
    return unused;
}

static int fork_one(uint32_t number)
{
    int status = -1;
    const pid_t pid = number % 3 == 0 ? vfork_true() : fork();
    if (pid == 0)
        child();
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void *forker(void *unused)
{
    for (;;) {
        if (begins(&page->fork)) {
            if (!fork_one(atomic_fetch_add(&page->forks, 1)))
                atomic_fetch_add(&page->bad, 1);
            atomic_fetch_sub(&page->busy, 1);
        }
        /* After each fork all pages are copied once more when they are written. */
        rest(2000);
    }
    return unused;
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("SOAK_PAGE");
    const int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    pthread_t thread;
    if (file < 0)
        return;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    /* What the arenas of malloc hold must not hide a leak. */
    mallopt(M_ARENA_MAX, 2);
    /* Programs that it executes have the shim, and no threads of this kind. */
    unsetenv("SOAK_PAGE");
    if (page == MAP_FAILED || pthread_create(&thread, NULL, allocator, NULL) != 0 ||
        pthread_create(&thread, NULL, forker, NULL) != 0)
        abort();
}
