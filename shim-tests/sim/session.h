/* The calling side of the checkpoint API: one open conversation with a target. */
#ifndef SESSION_H
#define SESSION_H

#include <sys/types.h>

#include "channel.h"
#include "cuda_api.h"

struct session {
    int pid, tid;
    int command_pipe, answer_pipe; /* -1: not open */
    uint64_t nonce;
    int device_count;
    int file[MAX_DEVICES];
    char *stage[MAX_DEVICES][2];
    struct doorbell *doorbell;
};

CUresult session_find(int pid, int *tid, int *command_number, int *answer_number);
CUresult session_open(struct session *session, int pid);
void session_close(struct session *session);
/* Sends the command and waits for its result; serves DMA in between if the target begins a phase. */
CUresult session_call(struct session *session, struct command *command, uint32_t *state);
bool session_alive(const struct session *session);

CUresult dma_attach(struct session *session, const struct answer *answer);
/* Does the requests of a phase until the target says it is over, or dies. */
void dma_serve(struct session *session);
void dma_detach(struct session *session);
/* A transfer that began at `start` ends no earlier than the rate of `CUDASIM_DMA_GBPS` lets it. */
void dma_pace(uint64_t start, uint64_t bytes);
/* After a successful checkpoint: noise over everything the devices hold, then the memory is freed. */
void dma_scrap(const struct session *session);

#endif
