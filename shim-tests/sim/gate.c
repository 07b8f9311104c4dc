/* The gate that a lock closes: API calls wait outside it, and the lock waits for those inside. */
#include "slots.h"

#include <unistd.h>

#include "driver.h"

CUresult gate_enter(void)
{
    if (atomic_load(&driver.owner) != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    for (;;) {
        atomic_fetch_add(&driver.active, 1);
        if (!atomic_load(&driver.locked))
            return CUDA_SUCCESS;
        gate_leave();
        futex_wait(&driver.locked, 1, -1);
    }
}

void gate_leave(void)
{
    if (atomic_fetch_sub(&driver.active, 1) == 1 && atomic_load(&driver.locked))
        futex_wake(&driver.active);
}

bool gate_close(uint32_t timeout_ms)
{
    const uint64_t end = now_ns() + (uint64_t)timeout_ms * 1000000u;
    atomic_store(&driver.locked, 1);
    for (;;) {
        uint32_t inside = atomic_load(&driver.active);
        if (inside == 0)
            return true;
        if ((timeout_ms && now_ns() >= end) || caller_gone()) {
            gate_open();
            return false;
        }
        futex_wait(&driver.active, inside, 10);
    }
}

void gate_open(void)
{
    atomic_store(&driver.locked, 0);
    futex_wake(&driver.locked);
}
