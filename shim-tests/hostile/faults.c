/* Programs that handle faults of their own memory: a collector's write barrier, a region that is filled when it is touched, a
 * checkpointer that counts the pages that change. The handler makes the page accessible, and the copy goes on. */
#include "attack.h"

#define LENGTH (64 * MIB)
#define PAGE ((size_t)4096)
/* Every chunk has several, in parts of different threads. */
#define STEP (512 * PAGE / 4)

static volatile int faults;

static void repair(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    faults++;
    if (mprotect((void *)((uintptr_t)info->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(3);
}

static void protect(unsigned char *memory, size_t from, size_t step, int protection)
{
    for (size_t offset = from; offset < LENGTH; offset += step)
        expect(mprotect(memory + offset, PAGE, protection) == 0, "a page cannot be protected");
}

static void expect_faults(size_t count)
{
    expect(faults == (int)count, "not every page has faulted once");
    faults = 0;
}

/* As the driver does: through two staging buffers in turn, and these are whole. */
static void copy_through(unsigned char *staging, unsigned char *to, const unsigned char *from, int into_buffer)
{
    for (size_t offset = 0; offset < LENGTH; offset += CHUNK) {
        unsigned char *stage = staging + offset / CHUNK % 2 * CHUNK;
        if (into_buffer)
            memcpy(stage, from + offset, CHUNK);
        cuda.memcpy(into_buffer ? to + offset : stage, into_buffer ? stage : from + offset, CHUNK);
        if (!into_buffer)
            memcpy(to + offset, stage, CHUNK);
    }
}

static const char *repaired(void)
{
    const struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    load_cuda();
    make_source(LENGTH);
    unsigned char *restored = plain_memory(LENGTH);
    expect(sigaction(SIGSEGV, &action, NULL) == 0, "no handler");
    unsigned char *buffer = request(LENGTH);
    protect(source, STEP - PAGE, STEP, PROT_NONE);
    copy_all(buffer, source, LENGTH);
    expect_faults(LENGTH / STEP);
    expect_source(buffer, LENGTH);
    protect(restored, 0, STEP, PROT_READ);
    copy_all(restored, buffer, LENGTH);
    expect_faults(LENGTH / STEP);
    expect_source(restored, LENGTH);
    expect(helpers() == 0, "a helper outlives its phase");
    release(buffer, LENGTH);
    cycle(LENGTH);
    return NULL;
}

/* Staging that was read in one phase may be refused for writing in the next. */
static const char *staged(void)
{
    const struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    load_cuda();
    make_source(LENGTH);
    unsigned char *restored = plain_memory(LENGTH), *staging = plain_memory(2 * CHUNK);
    expect(sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0, "no handler");
    unsigned char *buffer = request(LENGTH);
    copy_through(staging, buffer, source, 1);
    expect_source(buffer, LENGTH);
    for (size_t offset = 0; offset < 2 * CHUNK; offset += STEP)
        expect(mprotect(staging + offset, PAGE, PROT_READ) == 0, "a page cannot be protected");
    copy_through(staging, restored, buffer, 0);
    expect_faults(2 * CHUNK / STEP);
    expect_source(restored, LENGTH);
    release(buffer, LENGTH);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {{"repaired", repaired}, {"staged", staged}, {NULL, NULL}};
    return run_attack(attacks, count, arguments);
}
