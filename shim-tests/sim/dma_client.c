/* The target's side of the doorbell page. */
#include "slots.h"

#include "phase.h"

#define CHECK_MS 100

static bool reached(uint32_t completed, uint32_t request)
{
    return (int32_t)(completed - request) >= 0;
}

bool dma_wait(struct phase *phase, uint32_t request)
{
    struct doorbell *bell = phase->doorbell;
    if (!bell)
        return true;
    for (;;) {
        const uint32_t completed = atomic_load_explicit(&bell->completed, memory_order_acquire);
        if (reached(completed, request))
            return true;
        if (atomic_load(&bell->broken))
            return false;
        if (spin_while_equal(&bell->completed, completed))
            continue;
        futex_wait(&bell->completed, completed, CHECK_MS);
        if (atomic_load(&bell->completed) == completed && caller_gone())
            return false;
    }
}

static void ring_bell(struct doorbell *bell)
{
    atomic_fetch_add(&bell->poll, 1);
    futex_wake(&bell->poll);
}

/* Returns the request's number. */
uint32_t dma_submit(struct phase *phase, enum dma_kind kind, const struct plan_op *op)
{
    struct doorbell *bell = phase->doorbell;
    if (!bell)
        return 0;
    const uint32_t last = atomic_load(&bell->submitted);
    if (!dma_wait(phase, last - (RING_SLOTS - 1)))
        return last;
    bell->ring[last % RING_SLOTS] = (struct dma_request){
        .kind = kind, .device = (uint32_t)op->device, .stage = op->region == REGION_STAGE_1,
        .bytes = (uint32_t)op->bytes, .file_offset = op->file_offset};
    atomic_store(&bell->submitted, last + 1);
    ring_bell(bell);
    return last + 1;
}

/* Waits for what has been asked for, then lets the caller go on without the page. */
void dma_finish(struct phase *phase)
{
    struct doorbell *bell = phase->doorbell;
    if (!bell)
        return;
    dma_wait(phase, atomic_load(&bell->submitted));
    atomic_store(&bell->finished, 1);
    ring_bell(bell);
    phase->doorbell = NULL;
}
