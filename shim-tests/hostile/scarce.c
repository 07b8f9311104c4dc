/* A program that is short of something while the driver checkpoints it: a server that locks its memory (mlockall) under
 * RLIMIT_MEMLOCK, one that has as many mappings as the kernel allows, one that forks while its buffer fills its container. What
 * the driver maps after its buffer must still be had. */
#include "attack.h"

#include <errno.h>
#include <linux/capability.h>
#include <spawn.h>
#include <sys/resource.h>

#define LENGTH (34 * MIB + 4321)
#define SMALL_MAPPINGS 12

static long argument(void)
{
    expect(attack_arguments[0] != NULL, "an argument is missing");
    return strtol(attack_arguments[0], NULL, 10);
}

/* What the driver maps besides its buffer: staging, and channels that do not merge. False when the kernel refuses one. */
static int driver_goes_on(void)
{
    void *mapping[SMALL_MAPPINGS];
    size_t length[SMALL_MAPPINGS];
    int count = 0, all = 1;
    for (; count < SMALL_MAPPINGS && all; count += all) {
        const int protection = count % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        length[count] = count < 2 ? 2 * MIB : 65536;
        mapping[count] = mmap(NULL, length[count], protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        all = mapping[count] != MAP_FAILED;
    }
    while (count-- > 0)
        munmap(mapping[count], length[count]);
    return all;
}

/* A cycle of a driver that needs its small mappings too: what came of it. */
static const char *whole_cycle(unsigned char *restored)
{
    unsigned char *buffer = cuda.mmap(LENGTH, DRIVERS_FLAGS);
    if (buffer == MAP_FAILED)
        return "no buffer";
    const int went_on = driver_goes_on();
    if (went_on) {
        copy_all(buffer, source, LENGTH);
        expect_source(buffer, LENGTH);
        copy_all(restored, buffer, LENGTH);
        expect_source(restored, LENGTH);
    }
    release(buffer, LENGTH);
    return went_on ? "cycle" : "stuck";
}

/* Locked bytes, as the kernel counts them. */
static size_t locked_bytes(void)
{
    char line[128];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmLck: %zu kB", &kib) == 1)
            break;
    expect(file != NULL, "status cannot be read");
    fclose(file);
    return kib * 1024;
}

static void give_up_privilege(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    expect(syscall(SYS_capget, &header, data) == 0, "capget");
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    expect(syscall(SYS_capset, &header, data) == 0, "capset");
}

static const char *two_cycles(unsigned char *restored)
{
    const char *said = whole_cycle(restored);
    return strcmp(said, "cycle") == 0 ? whole_cycle(restored) : said;
}

/* All memory is locked, now and later, by a program that may. */
static const char *locked(void)
{
    make_source(LENGTH);
    unsigned char *restored = plain_memory(LENGTH);
    expect(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    return two_cycles(restored);
}

/* By one that has used up its limit before the driver asks. */
static const char *locked_out(void)
{
    make_source(LENGTH);
    unsigned char *restored = plain_memory(LENGTH);
    expect(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    give_up_privilege();
    return two_cycles(restored);
}

/* By one whose limit allows so many MiB more than the buffer. */
static const char *locked_within(void)
{
    const long room = argument();
    make_source(LENGTH);
    unsigned char *restored = plain_memory(LENGTH);
    expect(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    const rlim_t most = (rlim_t)((long)(locked_bytes() + LENGTH) + room * (long)MIB);
    expect(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){most, most}) == 0, "the limit cannot be raised");
    give_up_privilege();
    return two_cycles(restored);
}

/* Mappings until the kernel allows no more. */
static void take_every_mapping(void)
{
    const size_t page = 4096, pages = 1 << 18;
    unsigned char *area = mmap(NULL, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t at = 2;
    expect(area != MAP_FAILED, "no addresses");
    while (at < pages && mprotect(area + at * page, page, PROT_READ) == 0)
        at += 2;
    expect(at < pages, "the kernel allows more mappings than this test can make");
    /* The last one: another kind of mapping at the end of the last. */
    while (mmap(NULL, page, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        ;
}

/* So many mappings are left to be made. The driver's buffer needs none where it can merge with a neighbour of its kind. */
static const char *mappings(void)
{
    enum { SPARE = 256 };
    const long left = argument();
    unsigned char *restored = plain_memory(LENGTH), *spare = plain_memory(2 * SPARE * 4096);
    make_source(LENGTH);
    for (int page = 0; page < SPARE; page++)
        expect(mprotect(spare + (2 * page + 1) * 4096, 4096, PROT_NONE) == 0, "mprotect");
    take_every_mapping();
    for (long page = 0; page < left; page++)
        expect(munmap(spare + (2 * page) * 4096, 4096) == 0, "munmap");
    if (left > 0)
        plain_memory(65536);
    return two_cycles(restored);
}

/* Children of every kind while the buffer, so many MiB, fills what there is. */
static const char *forks(void)
{
    const size_t length = (size_t)argument() * MIB;
    char *const words[] = {"true", NULL};
    pid_t child;
    int status;
    make_source(CHUNK);
    unsigned char *buffer = request(length);
    for (size_t offset = 0; offset < length; offset += CHUNK)
        cuda.memcpy(buffer + offset, source, chunk_at(offset, length));
    for (int turn = 0; turn < 3; turn++) {
        child = fork();
        expect(child >= 0, "fork is refused");
        if (child == 0) {
            /* A child reads all of it, and writes some. */
            for (size_t offset = 0; offset < length; offset += CHUNK)
                if (memcmp(buffer + offset, source, chunk_at(offset, length)) != 0)
                    _exit(2);
            memset(buffer + (size_t)turn * CHUNK, turn, 4096);
            _exit(0);
        }
        expect(waitpid(child, &status, 0) == child && status == 0, "a child ends badly");
        extern char **environ;
        expect(posix_spawnp(&child, "true", NULL, NULL, words, environ) == 0, "posix_spawn is refused");
        expect(waitpid(child, &status, 0) == child && status == 0, "a spawned child ends badly");
    }
    for (size_t offset = 0; offset < length; offset += CHUNK)
        expect(memcmp(buffer + offset, source, chunk_at(offset, length)) == 0, "a child changed the buffer");
    release(buffer, length);
    return "cycle";
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"locked", locked}, {"locked-out", locked_out}, {"locked-within", locked_within},
        {"mappings", mappings}, {"forks", forks}, {NULL, NULL}};
    load_cuda();
    return run_attack(attacks, count, arguments);
}
