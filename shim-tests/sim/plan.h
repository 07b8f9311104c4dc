/* The order of a checkpoint and of a restore, computed from what each device holds. Pure: no memory of the
 * process is touched here, so `simplan` can print the plan of a process that does not exist. */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB ((uint64_t)1 << 20)
#define CHUNK (2 * MIB)
#define MAX_DEVICES 8
#define HOST_PAGES 19

/* The driver's mappings of one device. Those before PHASE_COUNT exist only inside a phase, at low addresses; the others exist
 * while the process runs and are placeholders while it is checkpointed: those before HOST_END from the context on, the rest
 * from cuInit on. So a device without a context has all but the middle ones. */
enum region {
    REGION_NOTIFIER,   /* 0x10000 */
    REGION_PUSH_A,     /* 0x200000 */
    REGION_PUSH_B,     /* 0x400000 */
    REGION_RING,       /* 0x11000 */
    REGION_DOORBELL,   /* 0x1f000: the page through which the DMA is requested */
    REGION_STAGE_0,    /* 0x600000 */
    REGION_STAGE_1,    /* 0x800000 */
    REGION_SEMAPHORE_0, /* 0x20000 */
    REGION_SEMAPHORE_1, /* 0x30000 */
    REGION_PHASE_COUNT,
    REGION_TABLE = REGION_PHASE_COUNT, /* the 6 MB of host memory whose copied length is no multiple of a page */
    REGION_HOST_A,
    REGION_WRITE_COMBINED, /* slow to read: a checkpoint takes it through staging, a restore writes it directly */
    REGION_HOST_B,
    REGION_HOST_C,
    REGION_PAGE_FIRST,                                         /* HOST_PAGES single pages */
    REGION_HOST_D = REGION_PAGE_FIRST + HOST_PAGES,
    REGION_PAGE_LAST,
    REGION_WINDOW,  /* 56 MiB that no copy touches */
    REGION_CHANNEL, /* 2 MiB that no copy touches */
    REGION_HOST_END,
    REGION_USERMODE_A = REGION_HOST_END, /* write-only doorbells */
    REGION_USERMODE_B,
    REGION_TIMER, /* read-only page */
    REGION_COUNT
};

struct region_shape {
    uint64_t bytes;  /* length of the mapping */
    uint64_t copied; /* bytes that travel through the buffer; 0: none */
    int protection;
};

struct region_shape plan_region(enum region region);

/* Offset of a region in its device's backing file, and where device memory begins in it. */
uint64_t plan_region_offset(enum region region);
uint64_t plan_vram_offset(void);

/* Where a mapping of a phase is asked for. */
uint64_t plan_low_address(int ordinal, enum region region);
/* Where a host region with a fixed place is asked for; 0: anywhere. */
uint64_t plan_host_address(int ordinal, enum region region);

struct plan_block {
    uint64_t offset; /* in device memory, a multiple of CHUNK */
    uint64_t bytes;  /* that travel; see plan_block_at */
};

struct plan_device {
    bool in_use;             /* a context exists; without one there is nothing to copy */
    uint64_t context_chunks; /* see plan_context_chunks */
    const struct plan_block *blocks; /* sorted by offset */
    size_t block_count;
};

struct plan_process {
    int device_count; /* all devices that the process sees */
    struct plan_device device[MAX_DEVICES];
};

enum op_kind {
    OP_MAP_BUFFER,   /* mmap(NULL, LEN, rw, private|anonymous|populate) */
    OP_UNMAP_BUFFER,
    OP_HINT,         /* no-access mapping at a hint: reserves the address of a phase's mapping */
    OP_PROBE,        /* a reservation that finds its address taken: mapped elsewhere and unmapped at once */
    OP_MAP,          /* shared, fixed: driver memory */
    OP_PLACEHOLDER,  /* private, anonymous, fixed, no access */
    OP_UNMAP,        /* of a placeholder of a phase's mapping */
    OP_SUBMIT,       /* ask the DMA for one chunk: device -> staging, or staging -> device */
    OP_COPY_STAGE,   /* memcpy between buffer and staging */
    OP_COPY_HOST     /* memcpy between buffer and a host region */
};

struct plan_op {
    enum op_kind kind;
    int device;
    enum region region;
    uint64_t bytes;
    uint64_t buffer_offset;
    uint64_t file_offset; /* OP_SUBMIT: the chunk's place in the backing file */
    bool restore;
};

/* Called once per operation; a value other than 0 ends the plan and is handed back. */
typedef int (*plan_visitor)(void *context, const struct plan_op *op);

/* How many 2 MiB chunks of context memory a device needs so that a bare context adds about `mib` to LEN. */
uint64_t plan_context_chunks(uint64_t mib);
/* Device memory that the context itself occupies, from the start of device memory. */
uint64_t plan_context_bytes(uint64_t context_chunks);
/* The ranges of a device's backing file that hold the context's own bytes and travel through the buffer, one
 * per index from 0; false after the last. */
bool plan_context_range(uint64_t context_chunks, int index, uint64_t *file_offset, uint64_t *bytes);
/* The block of an allocation: its exact bytes, as in the traces, but not less than a chunk, in which the real driver packs
 * small ones. It takes whole chunks of device memory; `plan_block_end` is where the next may begin. */
struct plan_block plan_block_at(uint64_t offset, uint64_t bytes);
uint64_t plan_block_end(const struct plan_block *block);
uint64_t plan_length(const struct plan_process *process);

int plan_checkpoint(const struct plan_process *process, plan_visitor visit, void *context);
int plan_restore(const struct plan_process *process, plan_visitor visit, void *context);
/* The tail of a phase that failed: teardown of the phase's mappings, and placeholders. */
int plan_teardown(const struct plan_process *process, bool restore, plan_visitor visit, void *context);
int plan_placeholders(const struct plan_process *process, plan_visitor visit, void *context);

#endif
