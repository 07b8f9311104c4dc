/* Freezing with PTRACE_SEIZE and PTRACE_INTERRUPT. Repeated until a pass finds no new thread. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "freeze.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static bool holds(const struct frozen *frozen, int tid)
{
    for (int i = 0; i < frozen->count; i++)
        if (frozen->tid[i] == tid)
            return true;
    return false;
}

static bool stop(int tid)
{
    int status;
    if (ptrace(PTRACE_SEIZE, tid, 0, 0) != 0)
        return false;
    return ptrace(PTRACE_INTERRUPT, tid, 0, 0) == 0 && waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status);
}

/* The number of threads newly stopped; -1: one could not be. */
static int pass(int pid, int spare, struct frozen *frozen)
{
    char path[64];
    int stopped = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return -1;
    for (struct dirent *entry; stopped >= 0 && (entry = readdir(tasks));) {
        const int tid = atoi(entry->d_name);
        if (tid <= 0 || tid == spare || holds(frozen, tid))
            continue;
        if (frozen->count == MAX_FROZEN || !stop(tid)) {
            stopped = -1;
        } else {
            frozen->tid[frozen->count++] = tid;
            stopped++;
        }
    }
    closedir(tasks);
    return stopped;
}

bool freeze(int pid, int spare, struct frozen *frozen)
{
    int stopped;
    frozen->count = 0;
    while ((stopped = pass(pid, spare, frozen)) > 0)
        ;
    if (stopped < 0)
        thaw(frozen);
    return stopped == 0;
}

void thaw(struct frozen *frozen)
{
    for (int i = 0; i < frozen->count; i++)
        ptrace(PTRACE_DETACH, frozen->tid[i], 0, 0);
    frozen->count = 0;
}
