/* A library whose constructor maps and copies, before or after the shim's: allocators, profilers, sanitizers. */
#define _GNU_SOURCE
#include "early.h"

#include <dlfcn.h>
#include <stdint.h>

static const char *wrong = "the constructor did not run";
static uint32_t shims_pid;

__attribute__((constructor)) static void construct(void)
{
    wrong = map_and_copy_early();
    if (!wrong && errno != EINVAL)
        wrong = "a refusal has no errno";
    const char *record = dlsym(RTLD_DEFAULT, "cudasnap_record");
    if (record)
        memcpy(&shims_pid, record + PID_OFFSET, sizeof shims_pid);
}

const char *early_report(uint32_t *pid)
{
    *pid = shims_pid;
    return wrong;
}
