/* A program that ends, or becomes another, while another of its threads is in the middle of a cycle: a worker's exit, a crash,
 * an exec of a supervisor. The arguments: how, and after how many milliseconds. */
#include "attack.h"

#define LENGTH (128 * MIB)

static void *cycles_for_ever(void *unused)
{
    unsigned char *restored = plain_memory(LENGTH);
    for (;;) {
        unsigned char *buffer = request(LENGTH);
        copy_all(buffer, source, LENGTH);
        copy_all(restored, buffer, LENGTH);
        release(buffer, LENGTH);
    }
    return unused;
}

static void become_another(void)
{
    /* Its only thread is its first. */
    execl("/bin/sh", "sh", "-c", "set /proc/$$/task/*; exit $((10 + $#))", NULL);
}

static void crash(void)
{
    *(volatile int *)(uintptr_t)8 = 1;
}

static void depart(const char *how)
{
    if (strcmp(how, "exit") == 0)
        exit(5);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(6);
    if (strcmp(how, "_exit") == 0)
        _exit(7);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "exec") == 0)
        become_another();
    if (strcmp(how, "crash") == 0)
        crash();
    if (strcmp(how, "term") == 0)
        raise(SIGTERM);
}

static const char *in_the_middle(void)
{
    pthread_t thread;
    load_cuda();
    make_source(LENGTH);
    expect(pthread_create(&thread, NULL, cycles_for_ever, NULL) == 0, "no thread");
    if (!attack_arguments[0] || !attack_arguments[1])
        fail("how, and when?");
    sleep_ms(atoi(attack_arguments[1]));
    depart(attack_arguments[0]);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {{"now", in_the_middle}, {NULL, NULL}};
    return run_attack(attacks, count, arguments);
}
