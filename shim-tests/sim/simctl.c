/* `simctl lock|checkpoint|restore|unlock|state|tid|cycle|frozen-cycle PID [TIMEOUT_MS]`: calls the checkpoint API of
 * whatever libcuda.so.1 the loader finds. A frozen cycle stops all threads of the target but the restore thread, as its
 * ptracer, around checkpoint and restore. Prints the seconds that each step took; ends with the CUresult as exit code (255
 * for those above 254) and its text on stderr. */
#include "host_api.h"

#include <string.h>
#include <time.h>

#include "freeze.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static CUresult step(const char *action, int pid, unsigned timeout_ms)
{
    static const char *const names[] = {"running", "locked", "checkpointed", "failed"};
    CUcheckpointLockArgs lock = {.timeoutMs = timeout_ms};
    CUcheckpointCheckpointArgs checkpoint = {{0}};
    CUcheckpointRestoreArgs restore = {0};
    CUcheckpointUnlockArgs unlock = {{0}};
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    CUresult rc;
    int tid = 0;
    if (strcmp(action, "state") == 0) {
        rc = cuCheckpointProcessGetState(pid, &state);
        if (!rc)
            puts(names[state & 3]);
        return rc;
    }
    if (strcmp(action, "tid") == 0) {
        rc = cuCheckpointProcessGetRestoreThreadId(pid, &tid);
        if (!rc)
            printf("%d\n", tid);
        return rc;
    }
    const double start = seconds();
    if (strcmp(action, "lock") == 0)
        rc = cuCheckpointProcessLock(pid, &lock);
    else if (strcmp(action, "checkpoint") == 0)
        rc = cuCheckpointProcessCheckpoint(pid, &checkpoint);
    else if (strcmp(action, "restore") == 0)
        rc = cuCheckpointProcessRestore(pid, &restore);
    else
        rc = cuCheckpointProcessUnlock(pid, &unlock);
    printf("%s %.6f\n", action, seconds() - start);
    return rc;
}

static int report(const char *action, int pid, CUresult rc)
{
    if (rc)
        fprintf(stderr, "simctl: %s %d: %d (%s)\n", action, pid, rc, error_text(rc));
    return rc > 254 ? 255 : rc;
}

/* Lock, checkpoint, restore, unlock; stops at the first error. */
static CUresult cycle(int pid, unsigned timeout_ms, int freezes)
{
    static const char *const actions[] = {"lock", "checkpoint", "restore", "unlock"};
    static struct frozen frozen;
    CUresult rc = CUDA_SUCCESS;
    int tid = 0;
    for (int i = 0; i < 4 && !rc; i++) {
        if (i == 1 && freezes && (cuCheckpointProcessGetRestoreThreadId(pid, &tid) || !freeze(pid, tid, &frozen))) {
            fprintf(stderr, "simctl: cannot freeze %d\n", pid);
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
        rc = step(actions[i], pid, timeout_ms);
        report(actions[i], pid, rc);
        if (i == 2 || rc)
            thaw(&frozen);
    }
    return rc;
}

static int known(const char *action)
{
    static const char *const actions[] = {"lock",  "checkpoint", "restore", "unlock",
                                          "state", "tid",        "cycle",   "frozen-cycle"};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(action, actions[i]) == 0)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3 || !known(argv[1])) {
        fprintf(stderr,
                "usage: simctl lock|checkpoint|restore|unlock|state|tid|cycle|frozen-cycle PID [TIMEOUT_MS]\n");
        return 254;
    }
    const int pid = atoi(argv[2]);
    const unsigned timeout_ms = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    load_api();
    CUresult rc = cuInit(0);
    if (rc || !cuCheckpointProcessLock)
        return report("cuInit", pid, rc ? rc : CUDA_ERROR_NOT_SUPPORTED);
    const int freezes = strcmp(argv[1], "frozen-cycle") == 0;
    if (freezes || strcmp(argv[1], "cycle") == 0) {
        rc = cycle(pid, timeout_ms, freezes);
        return rc > 254 ? 255 : rc;
    }
    return report(argv[1], pid, step(argv[1], pid, timeout_ms));
}
