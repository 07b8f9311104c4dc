/* A program that maps and copies before any constructor (its DT_PREINIT_ARRAY), and asks libraries that were preloaded beside
 * the shim what happened to them in theirs. Then its driver checkpoints. */
#include "attack.h"
#include "early.h"

static const char *wrong_early = "preinit did not run";
static uint32_t shim_was_ready = 1;
static int errno_early;

static void before_constructors(int count, char **arguments, char **environment)
{
    (void)count;
    (void)arguments;
    (void)environment;
    wrong_early = map_and_copy_early();
    errno_early = errno;
    shim_was_ready = *record_word(PID_OFFSET);
}

__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_constructors;

static const char *preinit_array(void)
{
    if (wrong_early)
        fail("%s", wrong_early);
    expect(errno_early == EINVAL, "a refusal has no errno");
    expect(shim_was_ready == 0, "the shim's constructor came first");
    expect(*record_word(PID_OFFSET) != 0, "the shim's constructor has not run");
    load_cuda();
    make_source(64 * MIB);
    cycle(64 * MIB);
    return NULL;
}

/* The library says when it ran, and what was wrong. */
static const char *beside(void)
{
    const char *(*report)(uint32_t *) = (const char *(*)(uint32_t *))dlsym(RTLD_DEFAULT, "early_report");
    uint32_t shims_pid = 0;
    expect(report != NULL, "there is no library beside the shim");
    const char *wrong = report(&shims_pid);
    if (wrong)
        fail("%s", wrong);
    load_cuda();
    make_source(64 * MIB);
    cycle(64 * MIB);
    return shims_pid ? "after" : "before";
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"preinit", preinit_array},
        {"beside", beside},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
