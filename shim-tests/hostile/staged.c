/* Two driver's threads that copy through staging buffers of their own and take each away, in a way that a seed decides, as soon as a copy
 * has returned; meanwhile children of fork and vfork come and go, a timer interrupts, a tool writes the record's control words, and somebody
 * stops helpers wherever they are. Every call that takes pages away comes while a helper may be in the middle of a flush of them. */
#include "driver.h"
#include "stopper.h"

#include <sys/time.h>

#define SHORTEST (33 * MIB)
#define LONGEST (72 * MIB)
/* Of base pages so much is given back by many threads. */
#define LARGE (130 * MIB)
#define STAGE MIB

static volatile int over;
static volatile long copies, children, stops;
static const char *volatile wrong;

static void need(int condition, const char *what)
{
    if (!condition)
        wrong = what;
}

static unsigned char *new_stage(void)
{
    void *stage = mmap(NULL, STAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(stage != MAP_FAILED, "no memory");
    return stage;
}

static void map_over(unsigned char *stage)
{
    need(driver.map(stage, STAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED) == stage, "a map over it");
}

/* Takes it away; another is returned. Addresses that were unmapped may be another thread's at once. */
static unsigned char *take_away(unsigned char *stage, uint32_t way)
{
    unsigned char *other = new_stage();
    const int moves = MREMAP_MAYMOVE | MREMAP_FIXED;
    switch (way) {
    case 0: need(cuda.munmap(stage, STAGE) == 0, "an munmap"); return other;
    case 1: need(cuda.mprotect(stage, STAGE, PROT_NONE) == 0, "an mprotect"); break;
    case 2: need(driver.remap(stage, STAGE, STAGE, moves, other) == other, "an mremap"); return other;
    case 3: need(driver.remap(other, STAGE, STAGE, moves, stage) == stage, "an mremap over it"); return stage;
    case 4: need(driver.madvise(stage, STAGE, MADV_DONTNEED) == 0, "advice"); break;
    case 5: (void)driver.madvise(stage, STAGE, MADV_REMOVE); break;
    case 6:
        need(cuda.munmap(stage + STAGE / 2, 1) == 0, "an munmap of a byte");
        cuda.munmap(stage, STAGE / 2);
        cuda.munmap(stage + STAGE / 2 + PAGE, STAGE / 2 - PAGE);
        return other;
    default: map_over(stage); break;
    }
    cuda.munmap(stage, STAGE);
    return other;
}

static void checkpoint(unsigned char *buffer, size_t length, unsigned char *stage[2], uint32_t *state)
{
    for (size_t offset = 0, piece; offset < length && !wrong; offset += piece) {
        unsigned char **place = &stage[offset / STAGE % 2], *from = *place;
        piece = length - offset < STAGE ? length - offset : STAGE;
        memcpy(from, source + offset, piece);
        (next_random(state) % 2 ? cuda.memcpy : cuda.memmove)(buffer + offset, from, piece);
        copies++;
        if (next_random(state) % 3 == 0)
            *place = take_away(from, next_random(state) % 8);
        else
            memset(from, 0xee, piece);
    }
}

static void *drive(void *seed)
{
    uint32_t state = (uint32_t)(uintptr_t)seed;
    unsigned char *stage[2] = {new_stage(), new_stage()}, *restored = plain_memory(LARGE);
    while (!over && !wrong) {
        const size_t length = next_random(&state) % 4 ? SHORTEST + (size_t)next_random(&state) * 5 % (LONGEST - SHORTEST) : LARGE;
        unsigned char *buffer = cuda.mmap(length, DRIVERS_FLAGS);
        need(buffer != MAP_FAILED, "a request was refused");
        if (wrong)
            break;
        checkpoint(buffer, length, stage, &state);
        need(memcmp(buffer, source, length) == 0, "a checkpoint is wrong");
        if (next_random(&state) % 2) {
            copy_all(restored, buffer, length);
            need(memcmp(restored, source, length) == 0, "a restore is wrong");
        }
        need(cuda.munmap(buffer, length) == 0, "a buffer cannot be unmapped");
    }
    munmap(restored, LARGE);
    munmap(stage[0], STAGE);
    munmap(stage[1], STAGE);
    return NULL;
}

static void *write_words(void *seed)
{
    uint32_t state = (uint32_t)(uintptr_t)seed;
    while (!over && !wrong) {
        *record_word(MODE_OFFSET) = next_random(&state) % 8 ? 0 : next_random(&state) % 3;
        *record_word(THREAD_CAP_OFFSET) = next_random(&state) % 6;
        *drop_word() = next_random(&state) % 8 == 0;
        usleep(3000);
    }
    return NULL;
}

static void *bear_children(void *unused)
{
    static const char *const nothing[] = {"true", NULL};
    for (; !over && !wrong; children++) {
        int status = 0;
        const pid_t child = children % 2 ? fork() : vfork();
        if (child == 0) {
            if (children % 4 < 2)
                execv("/bin/true", (char *const *)nothing);
            _exit(0);
        }
        need(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child did not end well");
        usleep(2000);
    }
    return unused;
}

static void *stop_helpers(void *unused)
{
    for (int held = 0; !over && !wrong; held = !held) {
        stops += order_now(held ? RELEASE : STOP) > 0;
        sleep_ms(held ? 15 : 5);
    }
    order_now(RELEASE);
    return unused;
}

static void on_timer(int signal)
{
    (void)signal;
}

static void interrupt_every(int us)
{
    const struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    const struct itimerval timer = {{0, us}, {0, us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void run_all(uint32_t seed, double seconds)
{
    void *(*const bodies[])(void *) = {drive, drive, write_words, bear_children, stop_helpers};
    pthread_t threads[5];
    over = 0;
    interrupt_every(1500);
    for (uintptr_t i = 0; i < 5; i++)
        expect(pthread_create(&threads[i], NULL, bodies[i], (void *)(seed * 8 + i)) == 0, "no thread");
    for (const double end = now() + seconds; !wrong && now() < end;)
        sleep_ms(10);
    over = 1;
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    interrupt_every(0);
    if (wrong)
        fail("%s", wrong);
}

static void calm_down(uint32_t mode)
{
    *record_word(MODE_OFFSET) = mode;
    *record_word(THREAD_CAP_OFFSET) = 0;
    expect_no_helper_within(10);
    let_the_shim_tidy_up();
    expect(*drop_word() == 0, "what was kept does not go");
}

static const char *all(void)
{
    static char detail[96];
    const uint32_t seed = attack_arguments[0] ? (uint32_t)atoi(attack_arguments[0]) : 1;
    const double seconds = attack_arguments[0] && attack_arguments[1] ? atof(attack_arguments[1]) : 4;
    start_stopper();
    load_driver();
    make_source(LARGE);
    const uint32_t mode = *record_word(MODE_OFFSET);
    run_all(seed, 1);
    calm_down(mode);
    const long before = address_space_kib();
    run_all(seed + 1, seconds);
    calm_down(mode);
    if (address_space_kib() - before > 4096)
        fail("%ld KiB of address space are lost", address_space_kib() - before);
    cycle(SHORTEST + 12345);
    snprintf(detail, sizeof detail, "%ld copies %ld children %ld stops", copies, children, stops);
    return detail;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {{"all", all}, {NULL, NULL}};
    return run_attack(attacks, count, arguments);
}
