/* The one extra thread of a process that uses the driver: it waits for commands and does the target's side. */
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "driver.h"

struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Thread_local int current_device = -1;

void answer_send(const struct answer *answer)
{
    /* Shorter than PIPE_BUF: written whole or not at all. */
    while (write(driver.answer_pipe[1], answer, sizeof *answer) < 0 && errno == EINTR)
        ;
}

bool caller_gone(void)
{
    /* Callers write only while they hold the lock, so a command that waits comes from the caller's successor. */
    struct pollfd successor = {.fd = driver.command_pipe[0], .events = POLLIN};
    if (poll(&successor, 1, 0) > 0)
        return true;
    /* The caller holds this lock on an open file of its own. */
    if (flock(driver.command_pipe[0], LOCK_EX | LOCK_NB) != 0)
        return false;
    flock(driver.command_pipe[0], LOCK_UN);
    return true;
}

static CUresult expect(uint32_t state)
{
    return atomic_load(&driver.state) == state ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult command_lock(uint32_t timeout_ms)
{
    CUresult rc = expect(CU_PROCESS_STATE_RUNNING);
    if (rc)
        return rc;
    if (!gate_close(timeout_ms))
        return CUDA_ERROR_NOT_READY;
    atomic_store(&driver.state, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

static CUresult command_unlock(void)
{
    CUresult rc = expect(CU_PROCESS_STATE_LOCKED);
    if (rc)
        return rc;
    atomic_store(&driver.state, CU_PROCESS_STATE_RUNNING);
    gate_open();
    return CUDA_SUCCESS;
}

static CUresult perform(const struct command *command)
{
    CUresult rc;
    switch (command->kind) {
    case COMMAND_STATE:
        return CUDA_SUCCESS;
    case COMMAND_LOCK:
        return command_lock(command->timeout_ms);
    case COMMAND_CHECKPOINT:
        rc = expect(CU_PROCESS_STATE_LOCKED);
        return rc ? rc : phase_checkpoint(command);
    case COMMAND_RESTORE:
        rc = expect(CU_PROCESS_STATE_CHECKPOINTED);
        return rc ? rc : phase_restore(command);
    case COMMAND_UNLOCK:
        return command_unlock();
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static void *restore_thread(void *unused)
{
    for (;;) {
        struct command command;
        ssize_t n = read(driver.command_pipe[0], &command, sizeof command);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof command)
            return unused;
        struct answer answer = {.nonce = command.nonce};
        answer.result = perform(&command);
        answer.state = atomic_load(&driver.state);
        answer_send(&answer);
    }
}

/* Named from here, so that cuInit does not return before the thread can be found. */
int restore_thread_start(void)
{
    if (pipe2(driver.command_pipe, O_CLOEXEC) != 0 || pipe2(driver.answer_pipe, O_CLOEXEC) != 0)
        return errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, restore_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return rc;
    char name[16];
    snprintf(name, sizeof name, "cuda%05x%06x", (unsigned)driver.command_pipe[0] & 0xfffff,
             (unsigned)driver.answer_pipe[0] & 0xffffff);
    pthread_setname_np(thread, name);
    return pthread_detach(thread);
}

int driver_plan(struct plan_process *process)
{
    int in_use = 0;
    *process = (struct plan_process){.device_count = driver.device_count};
    for (int d = 0; d < driver.device_count; d++) {
        const struct device *device = &driver.device[d];
        process->device[d] =
            (struct plan_device){device->in_use, device->context_chunks, device->blocks, device->block_count};
        in_use += device->in_use;
    }
    return in_use;
}
