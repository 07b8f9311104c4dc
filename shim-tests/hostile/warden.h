/* A second process that keeps a helper of the shim stopped in a flush that outlives its copy, as a debugger or a process checkpointer might by
 * chance. Here it is made certain: the CPU stops whoever enters the shim's flush; the driver's thread waits there, in the middle of its own
 * part, until a helper has come to the flushes that it has put off. Then the copy returns while that helper is held.
 *
 * The driver's thread is traced from system call to system call: there it gives its orders, and there it is seen to wait. */
#ifndef WARDEN_H
#define WARDEN_H

#include "stopper.h"

#include <errno.h>
#include <stddef.h>

enum warden_order {
    /* Nothing new. */
    GO_ON,
    /* The next helper that enters a flush of that source is held. */
    HOLD,
    /* Nobody is to be held any more. */
    CALM,
    /* The held one goes on; or it is ended, alone. */
    LET_GO,
    END_IT,
    /* The same when the driver's thread has been seen to wait. */
    LET_GO_WHEN_WAITED_FOR,
    END_WHEN_WAITED_FOR,
};

/* So often the driver's thread offers its CPU before it counts as waiting. */
#define OFFERS 5

static struct warden {
    _Atomic int order;
    _Atomic int ready;
    /* A helper is held. */
    _Atomic int held;
    /* How often anybody has entered a flush. */
    _Atomic int flushes;
    /* The driver's thread was seen to wait. */
    _Atomic int waited;
    /* The source: a helper may still be at the one before. */
    uintptr_t source, source_end;
    /* What the held helper was about to flush. */
    _Atomic uintptr_t from;
} *warden;

#ifdef __x86_64__

/* What the second process knows. */
static struct {
    pid_t driver;
    uintptr_t flush;
    int armed, helpers, held, driver_is_held, offers;
    enum warden_order when_waited_for;
} ward;

static inline void watch_flush(pid_t thread)
{
    /* The first register holds the address; an instruction is watched. */
    ptrace(PTRACE_POKEUSER, thread, offsetof(struct user, u_debugreg[0]), ward.flush);
    ptrace(PTRACE_POKEUSER, thread, offsetof(struct user, u_debugreg[7]), 1);
}

static inline void go_on(pid_t thread, int signal)
{
    ptrace(thread == ward.driver ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0, signal);
}

static inline void free_driver(void)
{
    if (ward.driver_is_held)
        go_on(ward.driver, 0);
    ward.driver_is_held = 0;
}

static inline void release_held(int ends)
{
    if (ward.held && ends) {
        make_exit(ward.held);
        ward.helpers--;
    } else if (ward.held) {
        go_on(ward.held, 0);
    }
    ward.held = 0;
    atomic_store(&warden->held, 0);
}

static inline void take_order(void)
{
    const enum warden_order order = (enum warden_order)atomic_exchange(&warden->order, GO_ON);
    switch (order) {
    case HOLD: ward.armed = 1; break;
    case CALM: ward.armed = 0; break;
    case LET_GO:
    case END_IT:
        release_held(order == END_IT);
        ward.when_waited_for = GO_ON;
        break;
    case LET_GO_WHEN_WAITED_FOR:
    case END_WHEN_WAITED_FOR:
        ward.when_waited_for = order;
        ward.offers = 0;
        atomic_store(&warden->waited, 0);
        break;
    default: break;
    }
}

static inline void at_drivers_syscall(const struct user_regs_struct *registers)
{
    take_order();
    const int begins = registers->rax == (unsigned long long)-ENOSYS;
    if (!ward.when_waited_for || !begins || registers->orig_rax != SYS_sched_yield || ++ward.offers < OFFERS)
        return;
    atomic_store(&warden->waited, 1);
    release_held(ward.when_waited_for == END_WHEN_WAITED_FOR);
    ward.when_waited_for = GO_ON;
}

/* Whether the thread stays where it is. */
static inline int at_flush(pid_t thread, const struct user_regs_struct *registers)
{
    atomic_fetch_add(&warden->flushes, 1);
    if (!ward.armed || registers->rdi < warden->source || registers->rdi >= warden->source_end)
        return 0;
    if (thread == ward.driver) {
        ward.driver_is_held = ward.helpers > 0;
        return ward.driver_is_held;
    }
    ward.armed = 0;
    ward.held = thread;
    atomic_store(&warden->from, registers->rdi);
    atomic_store(&warden->held, 1);
    free_driver();
    return 1;
}

static inline void at_stop(pid_t thread, int status)
{
    struct user_regs_struct registers;
    const int event = status >> 16, signal = WSTOPSIG(status);
    ptrace(PTRACE_GETREGS, thread, 0, &registers);
    /* Told to its parent when it is born; its own first stop may come before or after. */
    ward.helpers += event == PTRACE_EVENT_CLONE;
    if (event == PTRACE_EVENT_STOP && thread != ward.driver)
        watch_flush(thread);
    if (signal == (SIGTRAP | 0x80) && thread == ward.driver)
        at_drivers_syscall(&registers);
    const int trapped = !event && signal == SIGTRAP && registers.rip == ward.flush;
    if (trapped && at_flush(thread, &registers))
        return;
    go_on(thread, event || trapped || signal == (SIGTRAP | 0x80) ? 0 : signal);
}

static inline void attend(void)
{
    for (int status;;) {
        const pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 || (thread == ward.driver && !WIFSTOPPED(status)))
            _exit(0);
        if (WIFSTOPPED(status)) {
            at_stop(thread, status);
            continue;
        }
        ward.helpers--;
        /* It had left as the copy began: in the next one there is another. */
        if (ward.helpers == 0)
            free_driver();
    }
}

static inline void be_warden(void)
{
    int status;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(0);
    close(1);
    const long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD;
    if (ptrace(PTRACE_SEIZE, ward.driver, 0, options) != 0)
        _exit(1);
    ptrace(PTRACE_INTERRUPT, ward.driver, 0, 0);
    if (waitpid(ward.driver, &status, __WALL) != ward.driver || !WIFSTOPPED(status))
        _exit(1);
    watch_flush(ward.driver);
    atomic_store(&warden->ready, 1);
    go_on(ward.driver, 0);
    attend();
}

static inline uintptr_t base_of_shim(void)
{
    Dl_info found;
    void *record = dlsym(RTLD_DEFAULT, "cudasnap_record");
    expect(record && dladdr(record, &found), "the shim is not here");
    return (uintptr_t)found.dli_fbase;
}

/* `flush` is where in the shim the function that flushes begins. The calling thread is the driver's. */
static inline void start_warden(uintptr_t flush)
{
    ward.driver = getpid();
    ward.flush = base_of_shim() + flush;
    warden = mmap(NULL, sizeof *warden, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(warden != MAP_FAILED, "no shared memory");
    const pid_t child = fork();
    expect(child >= 0, "fork failed");
    if (child == 0)
        be_warden();
    prctl(PR_SET_PTRACER, child, 0, 0, 0);
    while (!atomic_load(&warden->ready)) {
        int status;
        expect(waitpid(child, &status, WNOHANG) == 0, "this process cannot be traced");
        sleep_ms(1);
    }
}

/* Given at the next system call, which is this one. */
static inline void tell_warden(enum warden_order order)
{
    atomic_store(&warden->order, (int)order);
    while (atomic_load(&warden->order) != GO_ON)
        syscall(SYS_getppid);
}

static inline void hold_at(const void *source, size_t length)
{
    warden->source = (uintptr_t)source;
    warden->source_end = warden->source + length;
    tell_warden(HOLD);
}

#endif
#endif
