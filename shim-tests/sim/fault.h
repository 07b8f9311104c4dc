/* Faults and mutations on request: CUDASIM_FAULT and CUDASIM_MUTATE. */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum copy_choice { COPY_NONE, COPY_NUMBER, COPY_MIDDLE, COPY_BEFORE_LAST };
/* What becomes of the buffer after a failure; by default a checkpoint unmaps it and a restore keeps it. */
enum buffer_choice { BUFFER_DEFAULT, BUFFER_UNMAP, BUFFER_KEEP };
enum mutation { MUTATE_NONE, MUTATE_SKIP_COPY, MUTATE_SKIP_16, MUTATE_LATE_COPY };

struct fault_options {
    enum copy_choice fail_at;
    uint64_t fail_number;
    enum buffer_choice after_failure;
    bool in_checkpoint;     /* the phases that the fault applies to */
    bool in_restore;
    uint64_t withhold;      /* bytes copied by the driver's own loop */
    uint32_t device_pause_ms;
    uint32_t pause_ms;
    uint64_t pause_copy;
    bool mmap_refused;
    bool never_unmap;
    uint32_t times;         /* how often `copy:` and `mmap-refused` strike; 0: every time */
    enum mutation mutation;
    bool mutates_restore;   /* else the checkpoint */
};

/* Unknown words are reported on stderr and ignored. */
void fault_parse(const char *fault, const char *mutate, struct fault_options *options);

#endif
