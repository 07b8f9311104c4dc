/* Attacks by the program itself, which is not libcuda and may do what it likes: small stacks, names, children, limits. */
#include "attack.h"

#include <sys/resource.h>

#define LENGTH (64 * MIB)

/* Has the form of the driver's request, but libcuda does not make it. */
static void look_like_the_driver(void)
{
    void *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, DRIVERS_FLAGS, -1, 0);
    if (at != MAP_FAILED)
        munmap(at, LENGTH);
}

static void *look_like_it_on_a_thread(void *unused)
{
    look_like_the_driver();
    return unused;
}

static void run_thread(void *(*body)(void *), size_t stack)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack)
        expect(pthread_attr_setstacksize(&attributes, stack) == 0, "no such stack");
    expect(pthread_create(&thread, &attributes, body, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
}

/* The smallest stack that pthreads grant, with and without a buffer that lives. */
static const char *thread_stack(void)
{
    run_thread(look_like_it_on_a_thread, 16384);
    load_cuda();
    run_thread(look_like_it_on_a_thread, 16384);
    unsigned char *buffer = request(LENGTH);
    run_thread(look_like_it_on_a_thread, 16384);
    release(buffer, LENGTH);
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    look_like_the_driver();
}

/* 12 KiB above a page that must not be touched. */
static const char *signal_stack(void)
{
    unsigned char *memory = plain_memory(16384);
    mprotect(memory, 4096, PROT_NONE);
    const stack_t stack = {.ss_sp = memory + 4096, .ss_size = 12288};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    expect(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "no signal stack");
    raise(SIGUSR1);
    load_cuda();
    unsigned char *buffer = request(LENGTH);
    raise(SIGUSR1);
    release(buffer, LENGTH);
    return NULL;
}

static void *under_the_drivers_name(void *unused)
{
    prctl(PR_SET_NAME, "cuda0");
    for (int i = 0; i < 10; i++) {
        unsigned char *at = mmap(NULL, 4 * LENGTH, PROT_READ | PROT_WRITE, DRIVERS_FLAGS, -1, 0);
        expect(at != MAP_FAILED && helpers() == 0, "a helper serves a stranger");
        at[4 * LENGTH - 1] = 1;
        /* Not through libcuda: the shim would not learn of it. */
        munmap(at, 4 * LENGTH);
    }
    return unused;
}

/* Another preload has the last word on what the shim does not answer. */
static const char *refused_behind(void)
{
    load_cuda();
    expect(cuda.mmap(LENGTH, DRIVERS_FLAGS) == MAP_FAILED, "the request went past the other preload");
    return NULL;
}

static const char *name(void)
{
    load_cuda();
    run_thread(under_the_drivers_name, 0);
    return NULL;
}

static unsigned char *shared_buffer;

/* In a child of fork: the parent's buffer and slots, but none of its helpers. */
static void in_fork_child(int round)
{
    const long before = address_space_kib();
    expect(memcmp(shared_buffer, source, LENGTH) == 0, "the child's buffer is wrong");
    copy_all(shared_buffer, source, LENGTH);
    if (round % 2)
        cycle(LENGTH);
    if (round / 2 == 1) {
        release(shared_buffer, LENGTH / 2);
        cuda.memcpy(shared_buffer + LENGTH / 2, source, CHUNK);
        release(shared_buffer + LENGTH / 2, LENGTH / 2);
    }
    if (round / 2 == 2) {
        release(shared_buffer, LENGTH);
        /* A request of its own has made the shim forget the parent's buffer: then the tail stays. */
        expect(round % 2 || !is_mapped(shared_buffer + LENGTH), "the child keeps the shim's tail");
    }
    expect(address_space_kib() - before < 1024, "the child has lost address space");
    expect_no_helper_within(5);
    _exit(0);
}

static const char *fork_child(void)
{
    load_cuda();
    make_source(LENGTH);
    shared_buffer = request(LENGTH);
    copy_all(shared_buffer, source, LENGTH);
    for (int round = 0; round < 6; round++) {
        int status = 1;
        const pid_t child = fork();
        if (child == 0)
            in_fork_child(round);
        expect(waitpid(child, &status, 0) == child && status == 0, "a child failed");
    }
    expect_source(shared_buffer, LENGTH);
    release(shared_buffer, LENGTH);
    cycle(LENGTH);
    return NULL;
}

/* Runs in the parent's memory. */
static void in_vfork_child(int round)
{
    cuda.memcpy(source, shared_buffer, 100000);
    cuda.memcpy(shared_buffer, source, 100000);
    look_like_the_driver();
    if (round % 2)
        cuda.munmap(cuda.mmap(LENGTH, DRIVERS_FLAGS), LENGTH);
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
}

static const char *vfork_child(void)
{
    load_cuda();
    make_source(LENGTH);
    shared_buffer = request(LENGTH);
    copy_all(shared_buffer, source, LENGTH);
    for (int round = 0; round < 10; round++) {
        int status = 1;
        const pid_t child = vfork();
        if (child == 0)
            in_vfork_child(round);
        expect(waitpid(child, &status, 0) == child && status == 0, "a child failed");
    }
    expect_source(shared_buffer, LENGTH);
    unsigned char *restored = plain_memory(LENGTH);
    copy_all(restored, shared_buffer, LENGTH);
    expect_source(restored, LENGTH);
    release(shared_buffer, LENGTH);
    expect_no_helper_within(5);
    cycle(LENGTH);
    return NULL;
}

/* The tool may set the word in any program; where nothing can be dropped it must not slow every mmap down for good. */
static const char *drop_word_alone(void)
{
    volatile uint32_t *drop = drop_word();
    *drop = 1;
    munmap(plain_memory(4096), 4096);
    expect(*drop == 0, "the drop word stays");
    return NULL;
}

/* A program that has used up its descriptors, between the phases. */
static const char *no_descriptors(void)
{
    struct rlimit before, none;
    load_cuda();
    make_source(LENGTH);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    unsigned char *buffer = request(LENGTH), *restored = plain_memory(LENGTH);
    expect(setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit");
    copy_all(buffer, source, LENGTH);
    copy_all(restored, buffer, LENGTH);
    setrlimit(RLIMIT_NOFILE, &before);
    expect_source(restored, LENGTH);
    release(buffer, LENGTH);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"thread-stack", thread_stack},
        {"signal-stack", signal_stack},
        {"name", name},
        {"refused-behind", refused_behind},
        {"fork", fork_child},
        {"vfork", vfork_child},
        {"drop-word", drop_word_alone},
        {"no-descriptors", no_descriptors},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
