/* The last step into a container: takes away what container runtimes take away by default, and becomes the program.
 *
 *     confine [--strict] [--keep CAP]... [--user ID] [--no-new-privileges] PROGRAM [ARGUMENT]...
 *
 * Capabilities are those that Docker and containerd leave to root, and those asked for by number. The system call filter is modelled on
 * their default profile for x86-64 on a kernel of 4.8 or later: what that refuses without more capabilities is refused here, with the
 * same error, and so is every call that is newer than the profile. --strict refuses also what older profiles did: ptrace and the two
 * calls that read and write another process's memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int kept_by_default[] = {
    CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FSETID,  CAP_FOWNER,           CAP_MKNOD,      CAP_NET_RAW, CAP_SETGID,
    CAP_SETUID,  CAP_SETFCAP,      CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_KILL,    CAP_AUDIT_WRITE,
};

/* With a capability that lifts the refusal, or -1. */
static const struct refusal {
    int call;
    int lifted_by;
} refusals[] = {
    {SYS_acct, CAP_SYS_PACCT},
    {SYS_add_key, -1},
    {SYS_bpf, CAP_SYS_ADMIN},
    {SYS_clock_settime, CAP_SYS_TIME},
    {SYS_delete_module, CAP_SYS_MODULE},
    {SYS_fanotify_init, CAP_SYS_ADMIN},
    {SYS_finit_module, CAP_SYS_MODULE},
    {SYS_fsconfig, CAP_SYS_ADMIN},
    {SYS_fsmount, CAP_SYS_ADMIN},
    {SYS_fsopen, CAP_SYS_ADMIN},
    {SYS_fspick, CAP_SYS_ADMIN},
    {SYS_get_mempolicy, CAP_SYS_NICE},
    {SYS_init_module, CAP_SYS_MODULE},
    {SYS_io_uring_enter, -1},
    {SYS_io_uring_register, -1},
    {SYS_io_uring_setup, -1},
    {SYS_ioperm, CAP_SYS_RAWIO},
    {SYS_iopl, CAP_SYS_RAWIO},
    {SYS_kcmp, CAP_SYS_PTRACE},
    {SYS_kexec_file_load, -1},
    {SYS_kexec_load, -1},
    {SYS_keyctl, -1},
    {SYS_lookup_dcookie, CAP_SYS_ADMIN},
    {SYS_mbind, CAP_SYS_NICE},
    {SYS_migrate_pages, -1},
    {SYS_mount, CAP_SYS_ADMIN},
    {SYS_move_mount, CAP_SYS_ADMIN},
    {SYS_move_pages, -1},
    {SYS_open_by_handle_at, CAP_DAC_READ_SEARCH},
    {SYS_open_tree, CAP_SYS_ADMIN},
    {SYS_perf_event_open, CAP_SYS_ADMIN},
    {SYS_pidfd_getfd, CAP_SYS_PTRACE},
    {SYS_pivot_root, -1},
    {SYS_process_madvise, CAP_SYS_PTRACE},
    {SYS_quotactl, CAP_SYS_ADMIN},
    {SYS_reboot, CAP_SYS_BOOT},
    {SYS_request_key, -1},
    {SYS_set_mempolicy, CAP_SYS_NICE},
    {SYS_setdomainname, CAP_SYS_ADMIN},
    {SYS_sethostname, CAP_SYS_ADMIN},
    {SYS_setns, CAP_SYS_ADMIN},
    {SYS_settimeofday, CAP_SYS_TIME},
    {SYS_swapoff, -1},
    {SYS_swapon, -1},
    {SYS_syslog, CAP_SYSLOG},
    {SYS_umount2, CAP_SYS_ADMIN},
    {SYS_unshare, CAP_SYS_ADMIN},
    {SYS_userfaultfd, -1},
    {SYS_vhangup, CAP_SYS_TTY_CONFIG},
};

static const int refused_when_strict[] = {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev};

/* futex_waitv, the newest call that the profile allows. */
enum { NEWEST = 449 };
#define NEW_NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP)

static uint64_t kept;
static struct sock_filter filter[512];
static unsigned short used;

static void give_up(const char *what)
{
    fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
    _exit(97);
}

static void add(struct sock_filter instruction)
{
    if (used == sizeof filter / sizeof *filter)
        give_up("the filter is too long");
    filter[used++] = instruction;
}

static void load(size_t offset)
{
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void answer(uint32_t action)
{
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static void refuse(int call, int error)
{
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1));
    answer(SECCOMP_RET_ERRNO | (uint32_t)error);
}

/* Threads and children, no namespaces. */
static void refuse_namespaces_of_clone(void)
{
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
    load(offsetof(struct seccomp_data, args));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)NEW_NAMESPACES, 0, 1));
    answer(SECCOMP_RET_ERRNO | EPERM);
    answer(SECCOMP_RET_ALLOW);
}

static void make_filter(int strict)
{
    load(offsetof(struct seccomp_data, arch));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    answer(SECCOMP_RET_ERRNO | EPERM);
    load(offsetof(struct seccomp_data, nr));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST, 0, 1));
    answer(SECCOMP_RET_ERRNO | EPERM);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (refusals[i].lifted_by < 0 || !(kept >> refusals[i].lifted_by & 1))
            refuse(refusals[i].call, EPERM);
    for (size_t i = 0; strict && i < sizeof refused_when_strict / sizeof *refused_when_strict; i++)
        refuse(refused_when_strict[i], EPERM);
    if (!(kept >> CAP_SYS_ADMIN & 1)) {
        /* The flags lie in memory that a filter cannot read: libc takes clone then. */
        refuse(SYS_clone3, ENOSYS);
        refuse_namespaces_of_clone();
    }
    answer(SECCOMP_RET_ALLOW);
}

/* Root has, after the next exec, what this leaves. */
static void drop_capabilities(void)
{
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (!(kept >> capability & 1) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
            give_up("a capability stays");
}

static void become(long user)
{
    if (user >= 0 && (setgroups(0, NULL) != 0 || setresgid((gid_t)user, (gid_t)user, (gid_t)user) != 0 ||
                      setresuid((uid_t)user, (uid_t)user, (uid_t)user) != 0))
        give_up("another user");
}

int main(int count, char **arguments)
{
    int strict = 0, no_new_privileges = 0, at = 1;
    long user = -1;
    for (size_t i = 0; i < sizeof kept_by_default / sizeof *kept_by_default; i++)
        kept |= 1ULL << kept_by_default[i];
    for (; at < count && strncmp(arguments[at], "--", 2) == 0; at++) {
        if (strcmp(arguments[at], "--strict") == 0)
            strict = 1;
        else if (strcmp(arguments[at], "--no-new-privileges") == 0)
            no_new_privileges = 1;
        else if (strcmp(arguments[at], "--keep") == 0 && at + 1 < count)
            kept |= 1ULL << atoi(arguments[++at]);
        else if (strcmp(arguments[at], "--user") == 0 && at + 1 < count)
            user = atol(arguments[++at]);
        else
            give_up(arguments[at]);
    }
    if (at >= count)
        give_up("no program");
    make_filter(strict);
    drop_capabilities();
    if (no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        give_up("no_new_privs");
    const struct sock_fprog program = {.len = used, .filter = filter};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        give_up("the kernel takes no filter");
    become(user);
    execvp(arguments[at], arguments + at);
    give_up(arguments[at]);
}
