/* The copies of a phase, with the faults and mutations that apply to them. */
#include "slots.h"

#include <time.h>

#include "phase.h"

static void pause_ms(uint32_t ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* Places in the buffer are as odd as the allocations are long. */
typedef uint64_t loose_word __attribute__((aligned(1), may_alias));

/* The driver's own loop: bytes that do not pass through the memcpy slot. */
static void own_copy(volatile char *to, const volatile char *from, uint64_t bytes)
{
    volatile loose_word *to_words = (volatile loose_word *)to;
    const volatile loose_word *from_words = (const volatile loose_word *)from;
    for (uint64_t i = 0; i < bytes / 8; i++)
        to_words[i] = from_words[i];
}

static void move_bytes(struct phase *phase, const struct plan_op *op, uint64_t withheld, uint64_t cut)
{
    char *inside = driver.buffer + op->buffer_offset;
    char *outside = phase_device(op)->address[op->region];
    char *to = phase->restore ? outside : inside, *from = phase->restore ? inside : outside;
    own_copy(to, from, withheld);
    memcpy(to + withheld, from + withheld, op->bytes - withheld - cut);
}

/* The first copy through staging in the second half of the plan. */
static bool is_middle(struct phase *phase, const struct plan_op *op, uint64_t number)
{
    if (phase->middle_done || op->kind != OP_COPY_STAGE || number < phase->copies / 2 || op->bytes != CHUNK)
        return false;
    phase->middle_done = true;
    return true;
}

static void mutate_or_withhold(struct phase *phase, const struct plan_op *op)
{
    const struct fault_options *fault = &phase->fault;
    uint64_t withheld = phase->restore ? fault->in_restore : fault->in_checkpoint;
    withheld *= fault->withhold < op->bytes ? fault->withhold / 8 * 8 : op->bytes;
    const bool mutates = fault->mutates_restore == phase->restore;
    if (!mutates || fault->mutation == MUTATE_NONE) {
        move_bytes(phase, op, withheld, 0);
    } else if (fault->mutation == MUTATE_SKIP_16) {
        move_bytes(phase, op, 0, 16);
    } else if (fault->mutation == MUTATE_LATE_COPY) {
        phase->late = true;
        phase->late_op = *op;
    }
}

/* A late copy is made when its staging buffer has been used again: in a checkpoint before that buffer's next
 * copy, in a restore after the DMA (see `phase_visit`). */
static void late_copy(struct phase *phase, const struct plan_op *op)
{
    if (phase->late && !phase->restore && op->kind == OP_COPY_STAGE && op->region == phase->late_op.region) {
        phase->late = false;
        move_bytes(phase, &phase->late_op, 0, 0);
    }
}

static void pauses(struct phase *phase, const struct plan_op *op, uint64_t number)
{
    if (phase->fault.pause_ms && number == phase->fault.pause_copy)
        pause_ms(phase->fault.pause_ms);
    const uint32_t bit = 1u << op->device;
    if (phase->devices_seen && !(phase->devices_seen & bit) && phase->fault.device_pause_ms)
        pause_ms(phase->fault.device_pause_ms);
    phase->devices_seen |= bit;
}

CUresult copy_perform(struct phase *phase, const struct plan_op *op)
{
    const uint64_t number = phase->copy++;
    const bool staged = op->kind == OP_COPY_STAGE;
    uint32_t *request = &phase->stage_request[op->device][op->region == REGION_STAGE_1];
    pauses(phase, op, number);
    if (number == phase->fail_copy)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (staged && !dma_wait(phase, *request))
        return CUDA_ERROR_OPERATING_SYSTEM;
    late_copy(phase, op);
    if (is_middle(phase, op, number))
        mutate_or_withhold(phase, op);
    else
        move_bytes(phase, op, 0, 0);
    if (staged && !phase->restore)
        *request = dma_submit(phase, DMA_POISON, op);
    return CUDA_SUCCESS;
}
