/* Initialises CUDA without a context, says `ready PID` and waits for the end of its input: a CUDA process that costs next to
 * nothing, for tests that need many. A first argument becomes its name. With CUINIT_HOLD set it also holds what stops a process
 * dump, an io_uring where the kernel allows one, and a memfd. CUINIT_THREADS and CUINIT_MAPPINGS make it as large as real ones
 * are; with CUINIT_SKIP set libcuda is only loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void hold(void)
{
    char parameters[120] = {0};
    const int memory = memfd_create("held\033[31m", 0);
    const long ring = syscall(SYS_io_uring_setup, 4, parameters);
    fprintf(stderr, "memfd %d ring %ld\n", memory, ring);
}

static void *idle(void *unused)
{
    pause();
    return unused;
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static void grow(void)
{
    pthread_t thread;
    for (long i = number("CUINIT_THREADS"); i > 0; i--)
        if (pthread_create(&thread, NULL, idle, NULL) != 0)
            exit(1);
    /* Neighbours with different rights are not merged. */
    for (long i = number("CUINIT_MAPPINGS"); i > 0; i--)
        if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            exit(1);
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(unsigned int) = driver ? (int (*)(unsigned int))dlsym(driver, "cuInit") : NULL;
    if (!init) {
        fprintf(stderr, "cuinit: %s\n", dlerror());
        return 1;
    }
    if (!getenv("CUINIT_SKIP") && init(0) != 0)
        return 1;
    if (argc > 1)
        prctl(PR_SET_NAME, argv[1]);
    if (getenv("CUINIT_HOLD"))
        hold();
    grow();
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}
