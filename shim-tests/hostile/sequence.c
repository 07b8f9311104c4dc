/* A driver that does anything at all in random order: asks, copies, gives up parts, moves, protects, maps over, forks, pauses, on
 * two threads. The same seed makes the same calls with and without the shim, so the checksums must be the same.
 * `sequence run SEED COUNT` prints one checksum per sequence; with SEQUENCE_TRACE set, one line per step on stderr. With `fill`
 * behind them every new buffer is filled at once: a kept one is not empty, as the kernel's is. */
#include "driver.h"

#include <errno.h>

#define BUFFERS 3
#define STEPS 24
/* Copies and changes stay within; longer than what the shim answers. */
#define SHORTEST (32 * MIB)
#define LONGEST (36 * MIB)
#define ROOM (64 * MIB)

static struct {
    unsigned char *at;
    size_t length;
} buffers[BUFFERS];

/* What the driver copies to, and where buffers are moved to. */
static unsigned char *device, *rooms;
static uint32_t seed;
static int is_child, trace, fills;

static unsigned char *room_of(int i)
{
    return rooms + (size_t)i * ROOM;
}

/* A room that is a hole may get a new buffer, which cannot be moved onto itself, and is lost when another is moved there. */
static void cover_room(int i)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    expect(mmap(room_of(i), ROOM, PROT_NONE, flags, -1, 0) == room_of(i), "no room");
}

static size_t below(size_t limit)
{
    const size_t high = next_random(&seed);
    return (high << 20 ^ next_random(&seed)) % limit;
}

static int any_buffer(void)
{
    const int first = (int)below(BUFFERS);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[(first + i) % BUFFERS].at)
            return (first + i) % BUFFERS;
    return -1;
}

/* Mostly whole chunks, often odd, sometimes next to nothing, now and then all. */
static size_t a_length(size_t limit)
{
    size_t length;
    switch (below(8)) {
    case 0: length = below(3); break;
    case 1: length = below(5000); break;
    case 2: length = limit; break;
    case 3: length = below(9 * MIB); break;
    default: length = CHUNK; break;
    }
    return length < limit ? length : limit;
}

/* The other thread copies what it is told to. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const unsigned char *from;
    size_t length;
    int busy;
} other = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *other_thread(void *target)
{
    for (;;) {
        pthread_mutex_lock(&other.lock);
        while (!other.busy)
            pthread_cond_wait(&other.changed, &other.lock);
        pthread_mutex_unlock(&other.lock);
        cuda.memcpy(target, other.from, other.length);
        pthread_mutex_lock(&other.lock);
        other.busy = 0;
        pthread_cond_broadcast(&other.changed);
        pthread_mutex_unlock(&other.lock);
    }
    return NULL;
}

static void tell_other(const unsigned char *from, size_t length)
{
    pthread_mutex_lock(&other.lock);
    other.from = from;
    other.length = length;
    other.busy = 1;
    pthread_cond_broadcast(&other.changed);
    pthread_mutex_unlock(&other.lock);
}

static void wait_for_other(void)
{
    pthread_mutex_lock(&other.lock);
    while (other.busy)
        pthread_cond_wait(&other.changed, &other.lock);
    pthread_mutex_unlock(&other.lock);
}

/* Steps. Each gets a buffer that lives. */

static void copy(int i, int out)
{
    const size_t length = a_length(buffers[i].length), at = below(buffers[i].length - length + 1);
    void *(*call)(void *, const void *, size_t) = below(2) ? cuda.memcpy : cuda.memmove;
    unsigned char *side = buffers[i].at + at;
    const size_t elsewhere = below(LONGEST - length + 1);
    if (!is_writable(side, length))
        return;
    if (out)
        call(device + elsewhere, side, length);
    else
        call(side, source + elsewhere, length);
    add_memory(out ? device + elsewhere : side, length < MIB ? length : MIB);
}

static void step_copy_in(int i) { copy(i, 0); }
static void step_copy_out(int i) { copy(i, 1); }

static void step_copy_all(int i)
{
    const size_t length = buffers[i].length < LONGEST ? buffers[i].length : LONGEST;
    if (!is_writable(buffers[i].at, length))
        return;
    if (below(2))
        copy_all(buffers[i].at, source, length);
    copy_all(device, buffers[i].at, length);
}

static void step_copy_between(int i)
{
    const int j = any_buffer();
    const size_t length = a_length(6 * MIB);
    unsigned char *to = buffers[i].at + below(8 * MIB), *from = buffers[j].at + below(8 * MIB);
    if (is_writable(to, length) && is_writable(from, length))
        cuda.memmove(to, from, length);
}

static void step_write(int i)
{
    const size_t length = a_length(4 * MIB), at = below(buffers[i].length - length + 1);
    if (is_writable(buffers[i].at + at, length))
        memset(buffers[i].at + at, (int)below(256), length);
}

/* Never the first or the last page: what lies next to a hole at an end differs with and without the shim. */
static unsigned char *inner_range(int i, size_t *length)
{
    const size_t pages = buffers[i].length / PAGE - 2;
    const size_t count = 1 + below(below(4) ? 64 : pages / 8);
    *length = count * PAGE;
    return buffers[i].at + PAGE * (1 + below(pages - count));
}

static void step_unmap_part(int i)
{
    size_t length;
    unsigned char *at = inner_range(i, &length);
    expect(cuda.munmap(at, length - below(PAGE)) == 0, "an munmap failed");
}

static void step_protect(int i)
{
    static const int kinds[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE};
    size_t length;
    unsigned char *at = inner_range(i, &length);
    /* Fails where there is a hole. */
    (void)cuda.mprotect(at, length, kinds[below(4)]);
}

static void step_map_over(int i)
{
    size_t length;
    unsigned char *at = inner_range(i, &length);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (below(3) ? MAP_FIXED : MAP_FIXED_NOREPLACE);
    if (below(2))
        driver.map(at, length, PROT_READ | PROT_WRITE, flags);
    else
        mmap(at, length, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static void step_advise(int i)
{
    static const int advices[] = {MADV_DONTNEED, MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_DONTDUMP, MADV_COLD, MADV_WILLNEED};
    size_t length;
    unsigned char *at = inner_range(i, &length);
    (void)driver.madvise(at, length, advices[below(6)]);
}

/* Before Linux 6.17 the kernel moves one mapping, and refuses what advice has split into several: then all stays where it was. It may
 * have emptied the room before. With the shim the mappings may be others, but what the buffer holds is the same wherever it lies. */
static void step_move(int i)
{
    unsigned char *const room = room_of(i);
    const size_t length = buffers[i].length;
    if (buffers[i].at == room || !is_writable(buffers[i].at, length))
        return;
    if (driver.remap(buffers[i].at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room) {
        buffers[i].at = room;
        return;
    }
    expect(errno == EFAULT && is_writable(buffers[i].at, length), "it cannot be moved");
    cover_room(i);
}

static void step_shrink(int i)
{
    const size_t length = SHORTEST - below(4 * MIB);
    if (buffers[i].length <= length || !is_writable(buffers[i].at, buffers[i].length))
        return;
    expect(driver.remap(buffers[i].at, buffers[i].length, length, 0, NULL) == buffers[i].at, "it cannot be shortened");
    buffers[i].length = length;
}

static void release_one(int i)
{
    release(buffers[i].at, buffers[i].length);
    if (buffers[i].at == room_of(i))
        cover_room(i);
    buffers[i].at = NULL;
}

static void step_pause(int i)
{
    (void)i;
    sleep_ms((long)below(30));
}

static void add_all(void)
{
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i].at)
            add_memory(buffers[i].at, buffers[i].length);
    add_memory(device, LONGEST);
}

static void some_steps(int count);

/* The child goes its own way for a while, and tells its checksum. */
static void step_fork(int i)
{
    int ends[2];
    uint64_t its = 0;
    (void)i;
    if (is_child)
        return;
    expect(pipe(ends) == 0, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        some_steps(5);
        add_all();
        expect(helpers() == 0 || helpers() < 32, "too many helpers");
        expect(write(ends[1], &sum, 8) == 8, "nobody reads");
        _exit(0);
    }
    next_random(&seed);
    close(ends[1]);
    expect(read(ends[0], &its, 8) == 8, "a child has failed");
    close(ends[0]);
    int status = 1;
    expect(waitpid(child, &status, 0) == child && status == 0, "a child has failed");
    add_to_sum(its);
}

/* Two threads copy at once, from and to different halves. */
static void step_two_threads(int i)
{
    const size_t half = buffers[i].length / 2 & ~(PAGE - 1);
    if (is_child || !is_writable(buffers[i].at, buffers[i].length))
        return;
    tell_other(buffers[i].at, half);
    copy_all(buffers[i].at + half, source, buffers[i].length - half);
    wait_for_other();
    add_memory(buffers[i].at + half, MIB);
}

static const struct {
    const char *name;
    void (*take)(int);
    size_t weight;
} steps[] = {
    {"copy in", step_copy_in, 12},     {"copy out", step_copy_out, 12}, {"copy all", step_copy_all, 3},
    {"between", step_copy_between, 2}, {"write", step_write, 2},        {"unmap a part", step_unmap_part, 2},
    {"protect", step_protect, 2},      {"map over", step_map_over, 2},  {"advise", step_advise, 3},
    {"move", step_move, 1},            {"shrink", step_shrink, 1},      {"release", release_one, 5},
    {"pause", step_pause, 2},          {"fork", step_fork, 1},          {"two threads", step_two_threads, 2},
};

static void ask_for(int i)
{
    buffers[i].length = SHORTEST + below(LONGEST - SHORTEST);
    buffers[i].at = request(buffers[i].length);
    if (fills)
        copy_all(buffers[i].at, source, buffers[i].length);
}

static void one_step(void)
{
    const int i = any_buffer(), fresh = (int)below(BUFFERS);
    if (i < 0 || (!buffers[fresh].at && below(5) == 0)) {
        ask_for(fresh);
        return;
    }
    size_t number = 0, all = 0;
    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++)
        all += steps[step].weight;
    for (size_t die = below(all); die >= steps[number].weight; number++)
        die -= steps[number].weight;
    steps[number].take(i);
    if (trace)
        fprintf(stderr, "%s%s: %016llx\n", is_child ? "  child: " : "", steps[number].name, (unsigned long long)sum);
}

static void some_steps(int count)
{
    while (count-- > 0)
        one_step();
}

static const char *run(void)
{
    static char detail[17 * 1000];
    size_t used = 0;
    expect(attack_arguments[0] && attack_arguments[1], "which seed, and how many?");
    const uint32_t first = (uint32_t)strtoul(attack_arguments[0], NULL, 10);
    const uint32_t count = (uint32_t)strtoul(attack_arguments[1], NULL, 10);
    expect(count <= 1000, "too many");
    fills = attack_arguments[2] != NULL;
    trace = getenv("SEQUENCE_TRACE") != NULL;
    make_source(LONGEST);
    device = plain_memory(LONGEST);
    rooms = mmap(NULL, BUFFERS * ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(rooms != MAP_FAILED, "no rooms");
    pthread_t thread;
    expect(pthread_create(&thread, NULL, other_thread, plain_memory(LONGEST)) == 0, "no thread");
    for (uint32_t number = 0; number < count; number++) {
        seed = (first + number) * 2654435761u;
        sum = 0xcbf29ce484222325;
        some_steps(STEPS);
        add_all();
        for (int i = 0; i < BUFFERS; i++)
            if (buffers[i].at)
                release_one(i);
        used += (size_t)snprintf(detail + used, sizeof detail - used, "%016llx ", (unsigned long long)sum);
    }
    expect_no_helper_within(5);
    return detail;
}

/* Sequences, and a cycle after them. */
static const char *run_and_cycle(void)
{
    const char *sums = run();
    cycle(SHORTEST);
    return sums;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {{"run", run_and_cycle}, {NULL, NULL}};
    load_driver();
    return run_attack(attacks, count, arguments);
}
