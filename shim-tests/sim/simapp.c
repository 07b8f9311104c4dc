/* `simapp MIB [--zeros MIB] [--devices N] [--pinned MIB] [--seed S]`: holds device memory with known contents, and beside it as much as
 * `--zeros` says on each device that holds zeros, as a server's cache that nobody has written; answers on stdin:
 * `sum` (`bad N`: wrong words), `rewrite` (new contents, but for the zeros; `ok`), `extra MIB` (one more piece, in place of the one from before;
 * `ok`), `threads` (`threads N`), `busy` (says `busy`, fills 512 MiB in one call, says `idle`), `child` (forks one that waits for its parent's end; `child PID`),
 * `quit`. */
#include "host_api.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "pattern.h"

#define MIB ((size_t)1 << 20)
#define BIG_PIECE (1024 * MIB)
#define WINDOW (8 * MIB)
#define MAX_PIECES 4096

struct piece {
    int device;        /* -1: pinned host memory */
    int is_zeros;
    CUdeviceptr pointer;
    size_t bytes;      /* a multiple of 8 */
    uint64_t *host;
};

static struct piece pieces[MAX_PIECES];
static int piece_count;
static CUcontext contexts[64];
static uint64_t seed = 1;
static uint64_t *window;

static void check(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    fprintf(stderr, "simapp: %s: %d (%s)\n", what, rc, error_text(rc));
    exit(1);
}

static struct piece *add_piece(int device, size_t bytes)
{
    if (piece_count == MAX_PIECES) {
        fprintf(stderr, "simapp: more than %d pieces\n", MAX_PIECES);
        exit(1);
    }
    struct piece *p = &pieces[piece_count++];
    *p = (struct piece){.device = device, .bytes = bytes};
    return p;
}

static uint64_t key_of(const struct piece *p)
{
    return pattern_word(seed, (uint64_t)(p - pieces) * 64 + (uint64_t)(p->device + 1));
}

static void fill_piece(struct piece *p)
{
    if (p->device < 0) {
        pattern_fill(p->host, p->bytes / 8, key_of(p), 0);
        return;
    }
    check(cuCtxSetCurrent(contexts[p->device]), "cuCtxSetCurrent");
    if (p->is_zeros) {
        check(cuMemsetD8_v2(p->pointer, 0, p->bytes), "cuMemsetD8");
        check(cuCtxSynchronize(), "cuCtxSynchronize");
        return;
    }
    for (size_t done = 0; done < p->bytes; done += WINDOW) {
        const size_t step = p->bytes - done < WINDOW ? p->bytes - done : WINDOW;
        pattern_fill(window, step / 8, key_of(p), done / 8);
        check(cuMemcpyHtoD_v2(p->pointer + done, window, step), "cuMemcpyHtoD");
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

static uint64_t not_zero(const uint64_t *words, size_t count)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += words[i] != 0;
    return wrong;
}

/* A piece that cannot be read counts as wrong from there on. */
static uint64_t wrong_words(const struct piece *p)
{
    uint64_t wrong = 0;
    if (p->device < 0)
        return pattern_wrong(p->host, p->bytes / 8, key_of(p), 0);
    CUresult rc = cuCtxSetCurrent(contexts[p->device]);
    for (size_t done = 0; done < p->bytes; done += WINDOW) {
        const size_t step = p->bytes - done < WINDOW ? p->bytes - done : WINDOW;
        if (!rc)
            rc = cuMemcpyDtoH_v2(window, p->pointer + done, step);
        if (rc) {
            fprintf(stderr, "simapp: cannot read device memory: %d (%s)\n", rc, error_text(rc));
            return wrong + (p->bytes - done) / 8;
        }
        wrong += p->is_zeros ? not_zero(window, step / 8) : pattern_wrong(window, step / 8, key_of(p), done / 8);
    }
    return wrong;
}

/* Pieces of 1 GiB, the rest, and in place of the last 8 MiB a piece of an odd size, which needs as much on a device that
 * allocates in steps of 2 MiB. */
static void allocate_device(int device, size_t bytes)
{
    check(cuDevicePrimaryCtxRetain(&contexts[device], device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(contexts[device]), "cuCtxSetCurrent");
    const size_t odd = bytes > 8 * MIB ? 6 * MIB + 1000 : 0;
    while (bytes > 0) {
        size_t step = bytes > BIG_PIECE ? BIG_PIECE : bytes;
        if (odd && bytes <= BIG_PIECE && bytes > 8 * MIB)
            step = bytes - 8 * MIB;
        else if (odd && bytes == 8 * MIB)
            step = odd;
        struct piece *p = add_piece(device, step);
        check(cuMemAlloc_v2(&p->pointer, step), "cuMemAlloc");
        bytes -= step;
        if (step == odd)
            bytes = 0;
    }
}

static void allocate_zeros(int device, size_t bytes)
{
    check(cuCtxSetCurrent(contexts[device]), "cuCtxSetCurrent");
    for (size_t step; bytes > 0; bytes -= step) {
        step = bytes > BIG_PIECE ? BIG_PIECE : bytes;
        struct piece *p = add_piece(device, step);
        p->is_zeros = 1;
        check(cuMemAlloc_v2(&p->pointer, step), "cuMemAlloc");
    }
}

static int count_threads(void)
{
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        threads += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return threads;
}

/* The last piece, on the first device; 0 MiB: none. */
static void set_extra(size_t mib)
{
    static int there;
    check(cuCtxSetCurrent(contexts[0]), "cuCtxSetCurrent");
    if (there)
        check(cuMemFree_v2(pieces[--piece_count].pointer), "cuMemFree");
    there = mib > 0;
    if (!there)
        return;
    struct piece *p = add_piece(0, mib * MIB);
    check(cuMemAlloc_v2(&p->pointer, p->bytes), "cuMemAlloc");
    fill_piece(p);
}

/* One call that lasts, for locks to wait on. */
static void busy(void)
{
    static CUdeviceptr scratch;
    check(cuCtxSetCurrent(contexts[0]), "cuCtxSetCurrent");
    if (!scratch)
        check(cuMemAlloc_v2(&scratch, 512 * MIB), "cuMemAlloc");
    puts("busy");
    fflush(stdout);
    check(cuMemsetD8_v2(scratch, 0x5a, 512 * MIB), "cuMemsetD8");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    puts("idle");
}

static pid_t start_child(void)
{
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            sleep(1);
        _exit(0);
    }
    return child;
}

static void answer(const char *line)
{
    uint64_t wrong = 0;
    if (strcmp(line, "quit") == 0)
        exit(0);
    if (strcmp(line, "sum") == 0) {
        for (int i = 0; i < piece_count; i++)
            wrong += wrong_words(&pieces[i]);
        printf("bad %llu\n", (unsigned long long)wrong);
    } else if (strcmp(line, "rewrite") == 0) {
        seed++;
        for (int i = 0; i < piece_count; i++)
            if (!pieces[i].is_zeros)
                fill_piece(&pieces[i]);
        puts("ok");
    } else if (strncmp(line, "extra ", 6) == 0) {
        set_extra(strtoull(line + 6, NULL, 10));
        puts("ok");
    } else if (strcmp(line, "threads") == 0) {
        printf("threads %d\n", count_threads());
    } else if (strcmp(line, "busy") == 0) {
        busy();
    } else if (strcmp(line, "child") == 0) {
        printf("child %d\n", (int)start_child());
    } else {
        printf("unknown %s\n", line);
    }
    fflush(stdout);
}

struct options {
    size_t device_bytes, zero_bytes, pinned_bytes;
    int devices;
};

static struct options parse(int argc, char **argv)
{
    struct options options = {.devices = 1};
    for (int i = 1; i < argc; i++) {
        const int has_value = i + 1 < argc;
        if (strcmp(argv[i], "--devices") == 0 && has_value)
            options.devices = atoi(argv[++i]);
        else if (strcmp(argv[i], "--zeros") == 0 && has_value)
            options.zero_bytes = strtoull(argv[++i], NULL, 10) * MIB;
        else if (strcmp(argv[i], "--pinned") == 0 && has_value)
            options.pinned_bytes = strtoull(argv[++i], NULL, 10) * MIB;
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            seed = strtoull(argv[++i], NULL, 10);
        else
            options.device_bytes = strtoull(argv[i], NULL, 10) * MIB;
    }
    if (options.device_bytes == 0 || options.devices < 1 || options.devices > 64) {
        fprintf(stderr, "usage: simapp MIB [--zeros MIB] [--devices N] [--pinned MIB] [--seed S]\n");
        exit(2);
    }
    return options;
}

int main(int argc, char **argv)
{
    const struct options options = parse(argc, argv);
    load_api();
    check(cuInit(0), "cuInit");
    for (int d = 0; d < options.devices; d++)
        allocate_device(d, options.device_bytes);
    check(cuCtxSetCurrent(contexts[0]), "cuCtxSetCurrent");
    check(cuMemAllocHost_v2((void **)&window, WINDOW), "cuMemAllocHost");
    if (options.pinned_bytes) {
        struct piece *p = add_piece(-1, options.pinned_bytes);
        check(cuMemAllocHost_v2((void **)&p->host, p->bytes), "cuMemAllocHost");
    }
    for (int d = 0; d < options.devices; d++)
        allocate_zeros(d, options.zero_bytes);
    for (int i = 0; i < piece_count; i++)
        fill_piece(&pieces[i]);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(line);
    }
    return 0;
}
