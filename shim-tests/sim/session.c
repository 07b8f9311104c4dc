/* Finds a target's restore thread, opens its pipes, and sends commands. */
#include "slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "session.h"

#define CHECK_MS 200

static bool read_name(int pid, int tid, char *name, size_t room)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", pid, tid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t n = read(file, name, room - 1);
    close(file);
    name[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* `cuda`, five hex digits, six hex digits, newline. */
static bool parse_name(const char *name, int *command_number, int *answer_number)
{
    char digits[12];
    if (strlen(name) != 16 || strncmp(name, "cuda", 4) != 0 || strspn(name + 4, "0123456789abcdef") != 11)
        return false;
    memcpy(digits, name + 4, sizeof digits);
    digits[11] = '\0';
    *answer_number = (int)strtol(digits + 5, NULL, 16);
    digits[5] = '\0';
    *command_number = (int)strtol(digits, NULL, 16);
    return true;
}

/* As the real driver: 304 if there is no such process, 3 if it has no restore thread. */
CUresult session_find(int pid, int *tid, int *command_number, int *answer_number)
{
    char path[64], name[32];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = pid > 0 ? opendir(path) : NULL;
    if (!tasks)
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult rc = CUDA_ERROR_NOT_INITIALIZED;
    for (struct dirent *entry; rc && (entry = readdir(tasks));) {
        *tid = atoi(entry->d_name);
        if (*tid > 0 && read_name(pid, *tid, name, sizeof name) && parse_name(name, command_number, answer_number))
            rc = CUDA_SUCCESS;
    }
    closedir(tasks);
    return rc;
}

static int open_pipe(int pid, int number, int mode)
{
    char path[64], link[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    const ssize_t n = readlink(path, link, sizeof link);
    if (n < 5 || strncmp(link, "pipe:", 5) != 0)
        return -1;
    return open(path, mode | O_CLOEXEC);
}

CUresult session_open(struct session *session, int pid)
{
    static _Atomic uint32_t calls;
    int command_number, answer_number;
    *session = (struct session){.pid = pid, .command_pipe = -1, .answer_pipe = -1};
    const CUresult rc = session_find(pid, &session->tid, &command_number, &answer_number);
    if (rc)
        return rc;
    session->command_pipe = open_pipe(pid, command_number, O_WRONLY);
    session->answer_pipe = open_pipe(pid, answer_number, O_RDONLY);
    if (session->command_pipe < 0 || session->answer_pipe < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    while (flock(session->command_pipe, LOCK_EX) != 0)
        if (errno != EINTR)
            return CUDA_ERROR_OPERATING_SYSTEM;
    session->nonce = ((uint64_t)getpid() << 32 | atomic_fetch_add(&calls, 1)) ^ now_ns() << 8;
    return CUDA_SUCCESS;
}

void session_close(struct session *session)
{
    if (session->command_pipe >= 0)
        close(session->command_pipe);
    if (session->answer_pipe >= 0)
        close(session->answer_pipe);
}

bool session_alive(const struct session *session)
{
    char name[32];
    return read_name(session->pid, session->tid, name, sizeof name);
}

/* The next answer to this session's command; older ones were meant for callers that died. */
static bool next_answer(const struct session *session, struct answer *answer)
{
    for (;;) {
        struct pollfd p = {.fd = session->answer_pipe, .events = POLLIN};
        const int ready = poll(&p, 1, CHECK_MS);
        if (ready == 0 && !session_alive(session))
            return false;
        if (ready <= 0)
            continue;
        if (read(session->answer_pipe, answer, sizeof *answer) != (ssize_t)sizeof *answer)
            return false;
        if (answer->nonce == session->nonce)
            return true;
    }
}

/* A target that died must not take its caller along. */
static bool write_command(const struct session *session, const struct command *command)
{
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    const bool written = write(session->command_pipe, command, sizeof *command) == (ssize_t)sizeof *command;
    const struct timespec none = {0, 0};
    if (!written)
        sigtimedwait(&pipe, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return written;
}

CUresult session_call(struct session *session, struct command *command, uint32_t *state)
{
    struct answer answer;
    command->nonce = session->nonce;
    if (!write_command(session, command) || !next_answer(session, &answer))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (answer.phase_begins) {
        const CUresult rc = dma_attach(session, &answer);
        if (rc == CUDA_SUCCESS)
            dma_serve(session);
        const bool ended = rc == CUDA_SUCCESS && next_answer(session, &answer);
        if (ended && answer.result == CUDA_SUCCESS && command->kind == COMMAND_CHECKPOINT)
            dma_scrap(session);
        dma_detach(session);
        if (!ended)
            return rc ? rc : CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (state)
        *state = answer.state;
    return answer.result;
}
