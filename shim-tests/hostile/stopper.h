/* A second process that stops helpers of the shim at whatever instruction they are at, as a debugger does, and keeps them
 * stopped, or has them killed alone: by an exit system call that it makes them do. */
#ifndef STOPPER_H
#define STOPPER_H

#include "attack.h"

#include <stdatomic.h>
#include <sys/ptrace.h>
#include <sys/user.h>

enum order { DONE, STOP, RELEASE, STOP_FOR_300_MS, EXIT };

static struct stopper {
    _Atomic int order;
    int delay_ms;
    /* How many helpers the last order met. */
    int count;
} *stopper;

static int stopped[64];
static int stopped_count;

static inline int stop(int id)
{
    int status;
    if (ptrace(PTRACE_SEIZE, id, 0, 0) != 0)
        return 0;
    ptrace(PTRACE_INTERRUPT, id, 0, 0);
    return waitpid(id, &status, __WALL) == id && WIFSTOPPED(status);
}

static inline void stop_all(pid_t program)
{
    int ids[64];
    int count = list_helpers(program, ids, 64);
    for (int i = 0; i < count; i++)
        if (stop(ids[i]))
            stopped[stopped_count++] = ids[i];
}

static inline void release_all(void)
{
    while (stopped_count > 0)
        ptrace(PTRACE_DETACH, stopped[--stopped_count], 0, 0);
}

/* The program and this process have the same libc at the same address. */
static inline uintptr_t syscall_instruction(void)
{
    const unsigned char *code = (const unsigned char *)&syscall;
    while (code[0] != 0x0f || code[1] != 0x05)
        code++;
    return (uintptr_t)code;
}

static inline void make_exit(int id)
{
#ifdef __x86_64__
    struct user_regs_struct registers;
    int status;
    ptrace(PTRACE_GETREGS, id, 0, &registers);
    registers.rip = syscall_instruction();
    registers.rax = SYS_exit;
    registers.rdi = 0;
    /* Not inside a system call that would be restarted. */
    registers.orig_rax = (unsigned long long)-1;
    ptrace(PTRACE_SETREGS, id, 0, &registers);
    ptrace(PTRACE_CONT, id, 0, 0);
    waitpid(id, &status, __WALL);
#else
    (void)id;
#endif
}

static inline void obey(int order, pid_t program)
{
    sleep_ms(stopper->delay_ms);
    if (order != RELEASE) {
        stop_all(program);
        stopper->count = stopped_count;
    }
    if (order == STOP_FOR_300_MS)
        sleep_ms(300);
    if (order == STOP_FOR_300_MS || order == RELEASE)
        release_all();
    while (order == EXIT && stopped_count > 0)
        make_exit(stopped[--stopped_count]);
}

/* Must run before anything else: the tracing process should hold no more than it needs. */
static inline void start_stopper(void)
{
    const pid_t program = getpid();
    stopper = mmap(NULL, sizeof *stopper, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(stopper != MAP_FAILED, "no shared memory");
    pid_t child = fork();
    expect(child >= 0, "fork failed");
    if (child > 0) {
        /* Where Yama is: a process may trace only its descendants, unless they say otherwise. */
        prctl(PR_SET_PTRACER, child, 0, 0, 0);
        return;
    }
    /* The test waits for the end of both. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(0);
    close(1);
    for (; getppid() == program; sleep_ms(1)) {
        const int order = atomic_load(&stopper->order);
        if (order == DONE)
            continue;
        obey(order, program);
        atomic_store(&stopper->order, DONE);
    }
    _exit(0);
}

/* Gives an order that is carried out after so long, while the program goes on. */
static inline void order_in(int delay_ms, enum order order)
{
    stopper->delay_ms = delay_ms;
    stopper->count = 0;
    atomic_store(&stopper->order, (int)order);
}

/* Waits until the last order is carried out; how many helpers it met. */
static inline int order_met(void)
{
    while (atomic_load(&stopper->order) != DONE)
        sleep_ms(1);
    return stopper->count;
}

static inline int order_now(enum order order)
{
    order_in(0, order);
    return order_met();
}

#endif
