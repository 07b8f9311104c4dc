/* A program in which the kernel refuses this or that (refuse.c, preloaded, says what) while the driver checkpoints it: as under
 * a container's seccomp profile, an old kernel, or one that is out of something. What cannot be opened any more is opened
 * before. */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#define LENGTH (34 * MIB + 4321)

/* What the process holds, by descriptors that were opened in time. */
static int maps = -1;
static DIR *tasks, *descriptors;

static int entries(DIR *folder)
{
    int count = 0;
    rewinddir(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    return count;
}

/* Lines of /proc/self/maps, and the bytes that they span. */
static size_t mapped_bytes(int *lines)
{
    static char text[1 << 20];
    size_t length = 0, sum = 0, from, to;
    for (ssize_t got; (got = pread(maps, text + length, sizeof text - 1 - length, (off_t)length)) > 0;)
        length += (size_t)got;
    text[length] = 0;
    *lines = 0;
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (sscanf(line, "%zx-%zx", &from, &to) == 2 && from < (size_t)1 << 63) {
            sum += to - from;
            ++*lines;
        }
    }
    return sum;
}

static void look_in_time(void)
{
    maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    tasks = opendir("/proc/self/task");
    descriptors = opendir("/proc/self/fd");
    expect(maps >= 0 && tasks && descriptors, "/proc cannot be read");
    /* What the shim goes by when it cannot see who asks. */
    prctl(PR_SET_NAME, "cuda00001400057");
}

static void expect_alone(const char *when)
{
    for (const double end = now() + 5; entries(tasks) != 1; sleep_ms(1))
        if (now() > end)
            fail("a helper stays %s", when);
}

/* One cycle; "" or what the driver was answered instead. */
static const char *one_cycle(unsigned char *restored)
{
    static char refusal[64];
    unsigned char *buffer = cuda.mmap(LENGTH, DRIVERS_FLAGS);
    if (buffer == MAP_FAILED) {
        snprintf(refusal, sizeof refusal, "refused %d", errno);
        return refusal;
    }
    copy_all(buffer, source, LENGTH);
    expect_alone("after the checkpoint");
    expect_source(buffer, LENGTH);
    memset(restored, 0, LENGTH);
    copy_all(restored, buffer, LENGTH);
    expect_alone("after the restore");
    expect_source(restored, LENGTH);
    if (cuda.munmap(buffer, LENGTH) != 0) {
        snprintf(refusal, sizeof refusal, "munmap refused %d", errno);
        return refusal;
    }
    return "";
}

static const char *cycles(int count)
{
    int lines_before, lines_after;
    unsigned char *restored = plain_memory(LENGTH);
    const char *said = "";
    const size_t before = mapped_bytes(&lines_before);
    const int open_before = entries(descriptors);
    raise(SIGUSR2);
    for (int cycle = 0; cycle < count && !*said; cycle++)
        said = one_cycle(restored);
    const size_t after = mapped_bytes(&lines_after);
    expect(entries(descriptors) == open_before, "a descriptor stays open");
    if (!*said && lines_after > lines_before)
        fail("%d mappings stay", lines_after - lines_before);
    if (!*said && after > before + MIB)
        fail("%zu bytes stay mapped", after - before);
    return said;
}

static const char *three(void)
{
    make_source(LENGTH);
    look_in_time();
    return cycles(3);
}

/* No descriptor is free: `ulimit -n 0`, or a server at its limit. */
static const char *no_descriptor(void)
{
    const struct rlimit none = {0, 0};
    make_source(LENGTH);
    look_in_time();
    expect(setrlimit(RLIMIT_NOFILE, &none) == 0, "the limit cannot be set");
    return cycles(3);
}

/* The buffer is kept from cycle to cycle, with a limit: how much of it is resident, in MiB. */
static const char *kept(void)
{
    static char detail[32];
    unsigned char there[LENGTH / 4096];
    size_t resident = 0;
    make_source(LENGTH);
    look_in_time();
    unsigned char *restored = plain_memory(LENGTH);
    if (attack_arguments[0])
        expect(mlockall(MCL_FUTURE) == 0, "mlockall");
    raise(SIGUSR2);
    unsigned char *buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH);
    copy_all(restored, buffer, LENGTH);
    expect_source(restored, LENGTH);
    release(buffer, LENGTH);
    if (mincore(buffer, sizeof there * 4096, there) == 0)
        for (size_t page = 0; page < sizeof there; page++)
            resident += there[page] & 1;
    const char *said = one_cycle(restored);
    expect(!*said, said);
    snprintf(detail, sizeof detail, "%zu", resident * 4096 / MIB);
    return detail;
}

/* Its list of mappings cannot be read when what is kept is to go: it goes later, not never. */
static const char *undropped(void)
{
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH);
    release(buffer, LENGTH);
    expect(is_mapped(buffer), "it is not kept");
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    expect(setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit");
    *drop_word() = 1;
    munmap(plain_memory(4096), 4096);
    expect(is_mapped(buffer) && *drop_word() == 1, "it went unseen");
    unsigned char *other = request(LENGTH);
    copy_all(other, source, LENGTH);
    expect_source(other, LENGTH);
    release(other, LENGTH);
    expect(setrlimit(RLIMIT_NOFILE, &before) == 0, "no limit");
    *drop_word() = 1;
    munmap(plain_memory(4096), 4096);
    expect(!is_mapped(buffer) && !is_mapped(other) && *drop_word() == 0, "it does not go");
    return "";
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"three", three}, {"undropped", undropped}, {"no-descriptor", no_descriptor}, {"kept", kept}, {NULL, NULL}};
    load_cuda();
    return run_attack(attacks, count, arguments);
}
