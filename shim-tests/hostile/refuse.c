/* A seccomp profile, as strict containers have it, or a kernel that is out of something: system calls answered with an errno
 * and not made. Preloaded; from SIGUSR2 on, or from the beginning with REFUSE_AT_ONCE set, in all threads, and for good, it refuses
 * what REFUSE lists:
 *
 *     madvise@14=ENOMEM,mmap@>=8192=EPERM,clone=EAGAIN
 *
 * A number behind @ is compared with one argument: advice of madvise, length of mmap, munmap, mprotect and mremap, option of
 * prctl, operation of futex, signal of tgkill. Behind @>= the argument must be that or more, behind @<= that or less. DONE in place of an
 * errno says that the call succeeded, as an emulating supervisor may. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct name {
    const char *word;
    int number;
    int argument;
};

static const struct name calls[] = {
    {"clock_gettime", SYS_clock_gettime, 0},
    {"clone", SYS_clone, 0},
    {"clone3", SYS_clone3, 0},
    {"futex", SYS_futex, 1},
    {"getpid", SYS_getpid, 0},
    {"gettid", SYS_gettid, 0},
    {"madvise", SYS_madvise, 2},
    {"mmap", SYS_mmap, 1},
    {"mprotect", SYS_mprotect, 1},
    {"mremap", SYS_mremap, 1},
    {"munmap", SYS_munmap, 1},
    {"openat", SYS_openat, 0},
    {"prctl", SYS_prctl, 0},
    {"prlimit64", SYS_prlimit64, 0},
    {"process_vm_readv", SYS_process_vm_readv, 0},
    {"rt_sigprocmask", SYS_rt_sigprocmask, 0},
    {"sched_getaffinity", SYS_sched_getaffinity, 0},
    {"sched_yield", SYS_sched_yield, 0},
    {"sigaltstack", SYS_sigaltstack, 0},
    {"tgkill", SYS_tgkill, 2},
    {NULL, 0, 0},
};

static const struct name errors[] = {
    {"DONE", 0, 0},        {"EACCES", EACCES, 0}, {"EAGAIN", EAGAIN, 0}, {"EFAULT", EFAULT, 0}, {"EINTR", EINTR, 0},
    {"EINVAL", EINVAL, 0}, {"EMFILE", EMFILE, 0}, {"ENOMEM", ENOMEM, 0}, {"ENOSYS", ENOSYS, 0},
    {"EPERM", EPERM, 0},   {NULL, 0, 0},
};

static struct sock_filter filter[512];
static unsigned short used;

static void give_up(const char *what)
{
    fprintf(stderr, "refuse: %s\n", what);
    _exit(97);
}

static const struct name *look_up(const struct name *names, const char *word, size_t length)
{
    for (; names->word; names++)
        if (strlen(names->word) == length && memcmp(names->word, word, length) == 0)
            return names;
    give_up("REFUSE has a word that is not known");
    return NULL;
}

static void add(struct sock_filter instruction)
{
    if (used == sizeof filter / sizeof *filter)
        give_up("REFUSE is too long");
    filter[used++] = instruction;
}

static void load(size_t offset)
{
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

enum relation { EQUAL, OR_MORE, OR_LESS };
#define COMPARISON 5

/* Goes on when the loaded word is equal, else skips so many instructions. */
static void equal_or_skip(uint32_t value, uint8_t skip)
{
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip));
}

/* Goes on to the next instruction when the argument is as asked, else skips that one. As long, whatever is asked. */
static void compare(int argument, uint64_t value, enum relation relation)
{
    const size_t low = offsetof(struct seccomp_data, args) + 8 * (size_t)argument, high = low + 4;
    const uint32_t top = (uint32_t)(value >> 32), bottom = (uint32_t)value;
    load(high);
    /* Above, below: decided by the upper half alone. */
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, top, relation == OR_MORE ? 3 : 4, 0));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, top, 0, relation == OR_LESS ? 2 : 3));
    load(low);
    if (relation == EQUAL)
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bottom, 0, 1));
    else if (relation == OR_MORE)
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bottom, 0, 1));
    else
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, bottom, 1, 0));
}

static void add_rule(const char *rule)
{
    const char *equals = strrchr(rule, '='), *at = strchr(rule, '@');
    if (!equals)
        give_up("a rule without =");
    const struct name *call = look_up(calls, rule, (size_t)((at ? at : equals) - rule));
    const struct name *error = look_up(errors, equals + 1, strlen(equals + 1));
    const enum relation relation = !at || (at[1] != '<' && at[1] != '>') ? EQUAL : at[1] == '>' ? OR_MORE : OR_LESS;
    load(offsetof(struct seccomp_data, nr));
    equal_or_skip((uint32_t)call->number, (uint8_t)(at ? COMPARISON + 1 : 1));
    if (at)
        compare(call->argument, strtoull(at + (relation == EQUAL ? 1 : 3), NULL, 10), relation);
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error->number));
}

static void refuse(int unused)
{
    (void)unused;
    const struct sock_fprog program = {.len = used, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        give_up("no_new_privs");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        give_up("the kernel takes no filter");
}

__attribute__((constructor)) static void prepare(void)
{
    const char *list = getenv("REFUSE");
    if (!list)
        give_up("REFUSE is not set");
    char *copy = strdup(list), *rest = copy;
    for (char *rule; (rule = strsep(&rest, ",")) != NULL;)
        add_rule(rule);
    free(copy);
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const struct sigaction action = {.sa_handler = refuse, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    if (getenv("REFUSE_AT_ONCE"))
        refuse(0);
}
