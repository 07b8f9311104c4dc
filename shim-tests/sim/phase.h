/* One checkpoint or restore in the target: the plan's operations, carried out in order. */
#ifndef PHASE_H
#define PHASE_H

#include "driver.h"

struct phase {
    bool restore;
    struct plan_process process;
    int devices_in_use; /* 0: the phase does nothing */
    struct fault_options fault;
    bool strikes;         /* `copy:` and `mmap-refused` apply to this phase */
    uint64_t copies;      /* in the whole plan */
    uint64_t copy;        /* number of the next one */
    uint64_t fail_copy;   /* UINT64_MAX: none */
    bool middle_done;     /* the copy that withholding and mutations apply to has been seen */
    bool late;            /* MUTATE_LATE_COPY: a copy is owed */
    struct plan_op late_op;
    uint32_t devices_seen;
    struct doorbell *doorbell;
    uint32_t stage_request[MAX_DEVICES][2]; /* number of the last request on each staging buffer */
};

int phase_visit(void *context, const struct plan_op *op); /* plan_visitor; returns a CUresult */

/* DMA requests of the phase. `dma_wait` returns false if the caller is gone or could not do a request. */
uint32_t dma_submit(struct phase *phase, enum dma_kind kind, const struct plan_op *op);
bool dma_wait(struct phase *phase, uint32_t request);
void dma_finish(struct phase *phase);

CUresult copy_perform(struct phase *phase, const struct plan_op *op);

struct device *phase_device(const struct plan_op *op);

#endif
