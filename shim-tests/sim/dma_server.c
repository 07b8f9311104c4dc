/* The "DMA" of a phase, in the calling process: the target's threads may all be stopped but one. */
#include "slots.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

#define DEFAULT_GBPS 25.0
#define SLEEP_SLACK_NS 70000u /* what a sleep may overrun; the rest is spun */
#define POISON_STRIDE 32u     /* words: every 256 bytes */
#define NOISE_WORDS (64 * 1024)

static char *map_shared(int file, enum region region)
{
    void *p = mmap(NULL, plan_region(region).bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file,
                   (off_t)plan_region_offset(region));
    return p == MAP_FAILED ? NULL : p;
}

CUresult dma_attach(struct session *session, const struct answer *answer)
{
    session->device_count = 0;
    for (uint32_t d = 0; d < answer->device_count && d < MAX_DEVICES; d++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", session->pid, answer->file[d]);
        const int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0)
            return CUDA_ERROR_OPERATING_SYSTEM;
        session->file[session->device_count++] = file;
        session->stage[d][0] = map_shared(file, REGION_STAGE_0);
        session->stage[d][1] = map_shared(file, REGION_STAGE_1);
        if (!session->stage[d][0] || !session->stage[d][1])
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (d + 1 == answer->device_count)
            session->doorbell = (struct doorbell *)(void *)map_shared(file, REGION_DOORBELL);
    }
    return session->doorbell ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void dma_detach(struct session *session)
{
    for (int d = 0; d < session->device_count; d++) {
        for (int s = 0; s < 2; s++)
            if (session->stage[d][s])
                munmap(session->stage[d][s], CHUNK);
        session->stage[d][0] = session->stage[d][1] = NULL;
        close(session->file[d]);
    }
    if (session->doorbell)
        munmap(session->doorbell, plan_region(REGION_DOORBELL).bytes);
    session->doorbell = NULL;
    session->device_count = 0;
}

static double rate_gbps(void)
{
    const char *text = getenv("CUDASIM_DMA_GBPS");
    return text && *text ? strtod(text, NULL) : DEFAULT_GBPS;
}

/* A transfer takes as long as the option's rate says, or as long as the copy itself if that is longer. */
static void wait_until(uint64_t end)
{
    uint64_t now = now_ns();
    if (now + SLEEP_SLACK_NS < end) {
        const uint64_t rest = end - now - SLEEP_SLACK_NS;
        struct timespec t = {(time_t)(rest / 1000000000u), (long)(rest % 1000000000u)};
        nanosleep(&t, NULL);
    }
    while (now_ns() < end)
        ;
}

void dma_pace(uint64_t start, uint64_t bytes)
{
    const double gbps = rate_gbps();
    if (gbps > 0)
        wait_until(start + (uint64_t)((double)bytes / gbps));
}

static bool move(int file, char *stage, const struct dma_request *request)
{
    for (uint32_t done = 0; done < request->bytes;) {
        const off_t at = (off_t)(request->file_offset + done);
        const ssize_t n = request->kind == DMA_TO_STAGE ? pread(file, stage + done, request->bytes - done, at)
                                                        : pwrite(file, stage + done, request->bytes - done, at);
        if (n <= 0)
            return false;
        done += (uint32_t)n;
    }
    return true;
}

/* A part that is read too late, or was written too late, differs in at least one word of each 256 bytes. */
static void poison(char *stage, uint32_t bytes)
{
    uint64_t *words = (uint64_t *)(void *)stage;
    for (uint32_t i = 0; i < bytes / sizeof *words; i += POISON_STRIDE)
        words[i] = 0xbadc0ffee0ddf00du;
}

static bool perform(const struct session *session, const struct dma_request *request, double gbps)
{
    if (request->device >= (uint32_t)session->device_count || request->stage > 1 || request->bytes > CHUNK)
        return false;
    char *stage = session->stage[request->device][request->stage];
    if (request->kind == DMA_POISON) {
        poison(stage, request->bytes);
        return true;
    }
    const uint64_t start = now_ns();
    if (!move(session->file[request->device], stage, request))
        return false;
    if (gbps > 0)
        wait_until(start + (uint64_t)(request->bytes / gbps));
    return true;
}

static bool answered(const struct session *session)
{
    struct pollfd p = {.fd = session->answer_pipe, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

void dma_serve(struct session *session)
{
    struct doorbell *bell = session->doorbell;
    const double gbps = rate_gbps();
    uint32_t done = 0;
    for (;;) {
        const uint32_t seen = atomic_load(&bell->poll);
        const bool finished = atomic_load(&bell->finished);
        if (atomic_load(&bell->submitted) != done) {
            if (!perform(session, &bell->ring[done % RING_SLOTS], gbps))
                atomic_store(&bell->broken, 1);
            atomic_store_explicit(&bell->completed, ++done, memory_order_release);
            futex_wake(&bell->completed);
        } else if (finished) {
            return;
        } else if (!spin_while_equal(&bell->poll, seen)) {
            futex_wait(&bell->poll, seen, 100);
            if (atomic_load(&bell->poll) == seen && (answered(session) || !session_alive(session)))
                return;
        }
    }
}

/* Only what exists: holes of the file hold nothing. */
static void overwrite(int file, const uint64_t *noise, size_t bytes)
{
    off_t at = (off_t)plan_vram_offset();
    while ((at = lseek(file, at, SEEK_DATA)) >= 0) {
        const off_t end = lseek(file, at, SEEK_HOLE);
        while (at < end) {
            const size_t step = (size_t)(end - at) < bytes ? (size_t)(end - at) : bytes;
            if (pwrite(file, noise, step, at) != (ssize_t)step)
                return;
            at += (off_t)step;
        }
    }
}

/* CUDASIM_NOISE=0 leaves the noise out, for measurements: it costs as much as the copy loop. */
static bool wants_noise(void)
{
    const char *text = getenv("CUDASIM_NOISE");
    return !text || strcmp(text, "0") != 0;
}

void dma_scrap(const struct session *session)
{
    uint64_t *noise = wants_noise() ? malloc(NOISE_WORDS * sizeof *noise) : NULL;
    uint64_t x = now_ns() | 1;
    for (size_t i = 0; noise && i < NOISE_WORDS; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        noise[i] = x;
    }
    for (int d = 0; d < session->device_count; d++) {
        if (noise)
            overwrite(session->file[d], noise, NOISE_WORDS * sizeof *noise);
        if (ftruncate(session->file[d], 0) != 0)
            perror("cudasim: freeing device memory");
    }
    free(noise);
}
