/* A process in which everything happens at once, in an order that a seed decides: two driver's threads with buffers of their own, a
 * tool that writes the record's control words without pause, threads that map over their own memory, and children of fork
 * that are drivers themselves. */
#include "attack.h"

#define SHORTEST (32 * MIB)
#define LONGEST (72 * MIB)

static volatile int over, children_end;
static volatile long buffers, children, words;
static const char *volatile wrong;

static size_t random_length(uint32_t *state)
{
    return SHORTEST + (size_t)next_random(state) * 3 % (LONGEST - SHORTEST);
}

static void copy_somehow(unsigned char *to, const unsigned char *from, size_t length, uint32_t *state)
{
    for (size_t offset = 0, piece; offset < length; offset += piece) {
        const size_t most[] = {4096, 70000, CHUNK, 8 * MIB};
        piece = 1 + next_random(state) % most[next_random(state) % 4];
        if (piece > length - offset)
            piece = length - offset;
        (next_random(state) % 2 ? cuda.memcpy : cuda.memmove)(to + offset, from + offset, piece);
    }
}

/* What the driver does with a buffer, and what it might do. */
static const char *one_buffer(uint32_t *state, unsigned char *restored)
{
    const size_t length = random_length(state);
    unsigned char *buffer = cuda.mmap(length, DRIVERS_FLAGS);
    if (buffer == MAP_FAILED)
        return "a request was refused";
    const uint32_t kind = next_random(state) % 8;
    if (kind != 0) {
        copy_somehow(buffer, source, length, state);
        if (memcmp(buffer, source, length) != 0)
            return "a checkpoint is wrong";
        memset(restored, 0, length);
        copy_somehow(restored, buffer, length, state);
        if (memcmp(restored, source, length) != 0)
            return "a restore is wrong";
    }
    if (kind == 1) {
        const size_t half = length / 2 & ~(size_t)4095;
        if (cuda.munmap(buffer, half) != 0)
            return "a part cannot be unmapped";
        if (memcmp(buffer + half, source + half, length - half) != 0)
            return "the rest is wrong";
        buffer += half;
        return cuda.munmap(buffer, length - half) == 0 ? NULL : "the rest cannot be unmapped";
    }
    return cuda.munmap(buffer, length) == 0 ? NULL : "a buffer cannot be unmapped";
}

static void *drive(void *seed)
{
    uint32_t state = (uint32_t)(uintptr_t)seed;
    unsigned char *restored = plain_memory(LONGEST);
    for (; !over && !wrong; buffers++) {
        const char *what = one_buffer(&state, restored);
        if (what)
            wrong = what;
    }
    munmap(restored, LONGEST);
    return NULL;
}

static void *write_words(void *seed)
{
    uint32_t state = (uint32_t)(uintptr_t)seed;
    volatile uint32_t *const mode = record_word(MODE_OFFSET), *const cap = record_word(THREAD_CAP_OFFSET), *const drop = drop_word();
    for (; !over; words++) {
        *mode = next_random(&state) % 5;
        *cap = next_random(&state) % 3 ? next_random(&state) % 5 : next_random(&state) << 8;
        *drop = next_random(&state) % 8 == 0;
        if (words % 16 == 0)
            usleep(100);
    }
    return NULL;
}

static void *map_over_own(void *unused)
{
    char *own = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (!over) {
        char *at = mmap(own + 65536, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        char *other = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != own + 65536 || other == MAP_FAILED)
            wrong = "a mapping was refused";
        *at = 1;
        other[LONGEST - 1] = 1;
        if (munmap(other, LONGEST) != 0)
            wrong = "a mapping cannot be unmapped";
        usleep(50);
    }
    munmap(own, MIB);
    return unused;
}

static void be_a_driver(uint32_t seed)
{
    unsigned char *restored = plain_memory(LONGEST);
    alarm(60);
    for (int round = 0; round < 2; round++)
        if (one_buffer(&seed, restored) != NULL)
            _exit(1);
    for (double end = now() + 10; threads_here() != 1; usleep(1000))
        if (now() > end)
            _exit(2);
    _exit(0);
}

static void *fork_drivers(void *seed)
{
    uint32_t state = (uint32_t)(uintptr_t)seed;
    for (; !over && !wrong; children++) {
        const pid_t child = fork();
        if (child == 0)
            be_a_driver(next_random(&state));
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            wrong = "a child's buffer is wrong";
        if (wrong)
            children_end = status;
        usleep(5000);
    }
    return NULL;
}

static int descriptors(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    for (struct dirent *entry; list && (entry = readdir(list));)
        count++;
    closedir(list);
    return count;
}

static void run_all(uint32_t seed, double seconds)
{
    void *(*const bodies[])(void *) = {drive, drive, write_words, map_over_own, fork_drivers};
    pthread_t threads[5];
    over = 0;
    for (uintptr_t i = 0; i < 5; i++)
        expect(pthread_create(&threads[i], NULL, bodies[i], (void *)(seed * 8 + i)) == 0, "no thread");
    for (const double end = now() + seconds; !wrong && now() < end;)
        sleep_ms(10);
    over = 1;
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    if (wrong)
        fail("%s (%x)", wrong, children_end);
}

/* As a tool would: on, no cap, and what is kept goes. */
static void calm_down(uint32_t mode)
{
    *record_word(MODE_OFFSET) = mode;
    *record_word(THREAD_CAP_OFFSET) = 0;
    *drop_word() = 1;
    munmap(plain_memory(4096), 4096);
    expect_no_helper_within(10);
    expect(*drop_word() == 0, "what was kept does not go");
}

static const char *all(void)
{
    static char detail[96];
    const uint32_t seed = attack_arguments[0] ? (uint32_t)atoi(attack_arguments[0]) : 1;
    const double seconds = attack_arguments[0] && attack_arguments[1] ? atof(attack_arguments[1]) : 4;
    load_cuda();
    make_source(LONGEST);
    const uint32_t mode = *record_word(MODE_OFFSET);
    run_all(seed, 1);
    calm_down(mode);
    const long before = address_space_kib();
    const int open = descriptors();
    run_all(seed + 1, seconds);
    calm_down(mode);
    if (address_space_kib() - before > 4096)
        fail("%ld KiB of address space are lost", address_space_kib() - before);
    expect(descriptors() == open, "a descriptor is lost");
    cycle(SHORTEST + 12345);
    snprintf(detail, sizeof detail, "%ld buffers %ld children %ld words", buffers, children, words);
    return detail;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"all", all},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
