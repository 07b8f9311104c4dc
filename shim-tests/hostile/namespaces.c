/* Programs with more than one libcuda or more than one copy of the shim, and programs that close them: plug-in hosts, Python
 * wheels that bring a libcuda of their own beside the system's. */
#include "attack.h"

#include <link.h>

#define LENGTH (64 * MIB)

static const char *path_of_shim(void)
{
    Dl_info info;
    expect(dladdr((void *)record_word(0), &info) != 0, "nobody knows the shim's path");
    return info.dli_fname;
}

static uint64_t counter(void *handle, size_t offset)
{
    char *record = dlsym(handle, "cudasnap_record");
    expect(record != NULL, "there is no second record");
    return *(volatile uint64_t *)(record + offset);
}

/* A second copy of both, which know nothing of the first. */
static void *second_copies(void)
{
    Lmid_t space;
    void *shim = dlmopen(LM_ID_NEWLM, path_of_shim(), RTLD_NOW);
    expect(shim && dlinfo(shim, RTLD_DI_LMID, &space) == 0, "no second copy of the shim");
    use_cuda(dlmopen(space, "libcuda.so.1", RTLD_LAZY));
    return shim;
}

static const char *both_copies(void)
{
    static char detail[64];
    load_cuda();
    make_source(LENGTH);
    cycle(LENGTH);
    unsigned char *first = request(LENGTH);
    copy_all(first, source, LENGTH);
    void *shim = second_copies();
    cycle(LENGTH);
    cycle(LENGTH);
    expect(counter(shim, REQUESTS_OFFSET) == 2 && counter(shim, ANSWERED_OFFSET) == 2, "the second copy did nothing");
    load_cuda();
    unsigned char *restored = plain_memory(LENGTH);
    copy_all(restored, first, LENGTH);
    expect_source(restored, LENGTH);
    release(first, LENGTH);
    cycle(LENGTH);
    expect_no_helper_within(5);
    snprintf(detail, sizeof detail, "%d %d", (int)counter(RTLD_DEFAULT, ANSWERED_OFFSET), (int)counter(shim, ANSWERED_OFFSET));
    return detail;
}

/* Another file with the same soname. */
static void *second_libcuda(void)
{
    char path[4096];
    expect(dlinfo(cuda.handle, RTLD_DI_ORIGIN, path) == 0, "nobody knows libcuda's folder");
    strcat(path, "/second/libcuda.so.1");
    return dlopen(path, RTLD_LAZY);
}

/* In turn, and then a buffer of each at the same time. */
static const char *second(void)
{
    load_cuda();
    void *handles[] = {cuda.handle, second_libcuda()};
    expect(handles[1] && handles[0] != handles[1], "there is no second libcuda");
    make_source(LENGTH);
    for (int i = 0; i < 4; i++) {
        use_cuda(handles[i % 2]);
        cycle(LENGTH);
    }
    unsigned char *buffers[2], *restored = plain_memory(LENGTH);
    for (int i = 0; i < 2; i++) {
        use_cuda(handles[i]);
        buffers[i] = request(LENGTH);
        copy_all(buffers[i], source, LENGTH);
    }
    for (int i = 0; i < 2; i++) {
        use_cuda(handles[i]);
        memset(restored, 0, LENGTH);
        copy_all(restored, buffers[i], LENGTH);
        expect_source(restored, LENGTH);
        release(buffers[i], LENGTH);
    }
    expect_no_helper_within(5);
    for (int i = 0; i < 2; i++) {
        use_cuda(handles[i]);
        cycle(LENGTH);
    }
    return NULL;
}

/* The shim's helpers are in the middle of prefault, and its functions in libcuda's slots. */
static const char *close_in_prefault(void)
{
    make_source(LENGTH);
    for (int round = 0; round < 8; round++) {
        void *shim = second_copies();
        unsigned char *buffer = request(512 * MIB);
        if (round % 2)
            cuda.memcpy(buffer, source, CHUNK);
        dlclose(cuda.handle);
        dlclose(shim);
        /* They go on with it until they have done it, or 20 ms after the last copy. */
        while (threads_here() > 1)
            sleep_ms(1);
        munmap(buffer, 512 * MIB);
    }
    load_cuda();
    cycle(LENGTH);
    return counter(RTLD_DEFAULT, ANSWERED_OFFSET) == 1 ? "served" : "not served";
}

/* A process that looks at the library by loading it, again and again. */
static const char *open_and_close(void)
{
    load_cuda();
    make_source(LENGTH);
    cycle(LENGTH);
    long before = 0;
    for (int round = 0; round < 100; round++) {
        void *handle = dlopen(path_of_shim(), RTLD_NOW);
        expect(handle && dlsym(handle, "cudasnap_record") == (void *)record_word(0), "another copy was loaded");
        dlclose(handle);
        if (round == 1)
            before = address_space_kib();
    }
    expect(address_space_kib() - before < 64, "address space is lost");
    cycle(LENGTH);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"both", both_copies},
        {"second", second},
        {"close", close_in_prefault},
        {"again", open_and_close},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
