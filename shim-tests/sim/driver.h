/* The state of a process that uses the simulated driver: one object, in the library's data, so that it travels
 * with the process when that is dumped and restored. */
#ifndef DRIVER_H
#define DRIVER_H

#include <pthread.h>

#include "channel.h"
#include "cuda_api.h"
#include "fault.h"
#include "plan.h"

#define DEVICE_POINTER_BASE 0x700000000000ull
#define DEVICE_POINTER_SHIFT 40

struct device {
    bool in_use;      /* a context exists */
    int retained;     /* primary context's count */
    int file;         /* backing file; -1 while checkpointed */
    uint64_t context_chunks;
    uint64_t used_bytes;
    struct plan_block *blocks; /* sorted by offset */
    size_t block_count, block_room;
    void *address[REGION_COUNT]; /* where each region is, or was before the checkpoint */
    struct CUctx_st *current_marker;
};

struct CUctx_st {
    int device;
    int alive;
};

struct driver {
    _Atomic int owner; /* pid after cuInit; a forked child is not initialised */
    pthread_mutex_t lock; /* of everything below that an API call changes */
    int device_count;
    uint64_t device_bytes;
    uint64_t context_mib;
    struct device device[MAX_DEVICES];
    struct CUctx_st context[MAX_DEVICES];

    _Atomic uint32_t locked; /* the gate: API calls wait while it is 1 */
    _Atomic uint32_t active; /* API calls inside */
    _Atomic uint32_t state;  /* CUprocessState */
    bool context_unchecked;  /* restored, and the context's own memory not yet compared */
    bool context_lost;       /* it differed: every call fails from now on, as after a GPU fault */

    int command_pipe[2], answer_pipe[2];
    char *buffer; /* live between checkpoint and restore */
    uint64_t length;
    struct fault_options fault; /* from the target's environment */
};

extern struct driver driver __attribute__((visibility("hidden")));
extern _Thread_local int current_device __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* Every API call that needs the driver is between these. `gate_enter` waits while the process is locked. */
CUresult gate_enter(void);
void gate_leave(void);
/* Restore thread: close the gate and wait until no call is inside; false after `timeout_ms` (0: no limit). */
bool gate_close(uint32_t timeout_ms);
void gate_open(void);

CUresult device_attach(struct device *device, int ordinal); /* cuInit: what exists without a context */
void device_detach(struct device *device);
CUresult device_open(struct device *device, int ordinal);   /* creates the context */
void device_close(struct device *device);                   /* frees everything of it */
CUresult device_allocate(struct device *device, size_t bytes, uint64_t *offset);
CUresult device_free(struct device *device, uint64_t offset);
/* Length of the allocation that holds `offset`, from there to its end; 0: none. */
uint64_t device_room(const struct device *device, uint64_t offset);
void device_back(const struct device *device, uint64_t offset, uint64_t bytes);
int device_file_create(int ordinal);
bool context_intact(struct device *device, int ordinal);

int restore_thread_start(void);
/* How many devices are in use. */
int driver_plan(struct plan_process *process);
CUresult phase_checkpoint(const struct command *command);
CUresult phase_restore(const struct command *command);
void answer_send(const struct answer *answer);
/* True if the process that sent the current command is gone. */
bool caller_gone(void);

#endif
