/* What the caller of the checkpoint API and the target's restore thread say to each other.
 *
 * Commands and answers go through two pipes of the target, which the caller opens under /proc/PID/fd; their
 * numbers are in the restore thread's name, `cuda` + 5 hex digits (commands) + 6 (answers). So the meeting place
 * is part of the process itself and is dumped and restored with it. The caller holds flock() on the command
 * pipe for the length of a call: callers queue, and the restore thread learns that a caller died by getting that lock, or by the
 * next caller's command.
 *
 * DMA requests go through the doorbell page of the last device, which exists only inside a phase. The
 * target writes `ring` and `submitted`, the caller `completed`; both are futex words. Requests are done in order. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

#define OPTION_BYTES 192
#define RING_SLOTS 16u
#define DEVICE_FILE "cudasim-device"

enum command_kind { COMMAND_STATE, COMMAND_LOCK, COMMAND_CHECKPOINT, COMMAND_RESTORE, COMMAND_UNLOCK };

struct command {
    uint64_t nonce; /* an answer carries that of its command; others are left-overs of a dead caller */
    uint32_t kind;
    uint32_t timeout_ms;
    char fault[OPTION_BYTES]; /* the caller's CUDASIM_FAULT and CUDASIM_MUTATE; empty: the target's own */
    char mutate[OPTION_BYTES];
};

struct answer {
    uint64_t nonce;
    uint32_t phase_begins; /* 1: serve DMA on the files below, the result follows in a second answer */
    int32_t result;
    uint32_t state;
    uint32_t device_count;
    int32_t file[MAX_DEVICES]; /* descriptors in the target */
};

enum dma_kind { DMA_TO_STAGE, DMA_FROM_STAGE, DMA_POISON };

struct dma_request {
    uint32_t kind;
    uint32_t device;
    uint32_t stage;
    uint32_t bytes;
    uint64_t file_offset;
};

struct doorbell {
    _Atomic uint32_t submitted;
    _Atomic uint32_t completed;
    _Atomic uint32_t finished; /* the target asks for nothing more in this phase */
    _Atomic uint32_t broken;   /* the caller could not do a request */
    _Atomic uint32_t poll;     /* bumped with every submission and with `finished`: what the caller sleeps on */
    struct dma_request ring[RING_SLOTS];
};

void futex_wait(_Atomic uint32_t *word, uint32_t seen, int timeout_ms);
void futex_wake(_Atomic uint32_t *word);
/* Waits briefly without sleeping; false if the word still holds `seen`. Short, because a test machine has two CPUs. */
bool spin_while_equal(_Atomic uint32_t *word, uint32_t seen);
uint64_t now_ns(void);

#endif
