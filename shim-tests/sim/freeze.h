/* Stops every thread of a process but one, as a process checkpointer does, with the caller as its ptracer. */
#ifndef FREEZE_H
#define FREEZE_H

#include <stdbool.h>

#define MAX_FROZEN 4096

struct frozen {
    int count;
    int tid[MAX_FROZEN];
};

/* Seizes and stops all threads of `pid` but `spare`; on failure nothing stays stopped. */
bool freeze(int pid, int spare, struct frozen *frozen);
void thaw(struct frozen *frozen);

#endif
