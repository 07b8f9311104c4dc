/* The checkpoint API, called from any process of the same user. */
#include "slots.h"

#include <stdlib.h>
#include <unistd.h>

#include "driver_api.h"
#include "session.h"

static void send_option(char *to, const char *name)
{
    const char *text = getenv(name);
    const size_t length = text ? strlen(text) : 0;
    memcpy(to, text ? text : "", length < OPTION_BYTES ? length : OPTION_BYTES - 1);
}

static CUresult call(int pid, enum command_kind kind, uint32_t timeout_ms, uint32_t *state)
{
    if (atomic_load(&driver.owner) != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    struct session session;
    struct command command = {.kind = kind, .timeout_ms = timeout_ms};
    CUresult rc = session_open(&session, pid);
    if (!rc) {
        send_option(command.fault, "CUDASIM_FAULT");
        send_option(command.mutate, "CUDASIM_MUTATE");
        rc = session_call(&session, &command, state);
    }
    session_close(&session);
    return rc;
}

EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    int command_number, answer_number, found;
    if (atomic_load(&driver.owner) != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!tid)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult rc = session_find(pid, &found, &command_number, &answer_number);
    if (!rc)
        *tid = found;
    return rc;
}

EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    uint32_t value = 0;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult rc = call(pid, COMMAND_STATE, 0, &value);
    if (!rc)
        *state = (CUprocessState)value;
    return rc;
}

EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    return call(pid, COMMAND_LOCK, args ? args->timeoutMs : 0, NULL);
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    (void)args;
    return call(pid, COMMAND_CHECKPOINT, 0, NULL);
}

/* Moving to other GPUs is not simulated. */
EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    if (args && args->gpuPairsCount != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    return call(pid, COMMAND_RESTORE, 0, NULL);
}

EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    (void)args;
    return call(pid, COMMAND_UNLOCK, 0, NULL);
}
