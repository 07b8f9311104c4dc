/* Attacks on libcuda's slots: other hookers, the loader's late resolutions, a libcuda that is unloaded. */
#include "slotof.h"

#define LENGTH (64 * MIB)

static void *(*behind)(void *, const void *, size_t);
static int seen;

static void *other_hook(void *to, const void *from, size_t length)
{
    seen++;
    return behind(to, from, length);
}

/* Somebody else hooks the slot while ours is in it, and goes on to ours for as long as the process lives. */
static void chain(int takes_back)
{
    char word[8];
    load_cuda();
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH);
    void **slot = slot_of("memcpy");
    *(void **)&behind = *slot;
    *slot = (void *)other_hook;
    copy_all(buffer, source, LENGTH);
    expect_source(buffer, LENGTH);
    release(buffer, LENGTH);
    expect(*slot == (void *)other_hook, "the other hook was taken out");
    cuda.memcpy(word, "between", 8);
    if (takes_back)
        *slot = *(void **)&behind;
    cycle(LENGTH);
    cuda.memcpy(word, "between", 8);
    cycle(LENGTH);
    expect(strcmp(word, "between") == 0, "a copy of another kind is wrong");
    expect(seen >= 33, "the other hook was left out");
}

static const char *chain_stays(void)
{
    chain(0);
    return NULL;
}

static const char *chain_taken_back(void)
{
    chain(1);
    return NULL;
}

/* Goes on to nobody. */
static void *own_copy(void *to, const void *from, size_t length)
{
    return memmove(to, from, length);
}

/* Somebody else's function lies over both of ours for copies and stays, munmap's is ours: the next request finds it there. */
static void take_copies(void *function)
{
    load_cuda();
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH);
    void **copy = slot_of("memcpy"), **move = slot_of("memmove");
    *(void **)&behind = *copy;
    *copy = *move = function;
    copy_all(buffer, source, LENGTH);
    release(buffer, LENGTH);
    buffer = request(LENGTH);
    copy_all(buffer, source, LENGTH);
    expect_source(buffer, LENGTH);
    release(buffer, LENGTH);
    expect(helpers() == 0, "a helper outlives its buffer");
}

static const char *copies_taken(void)
{
    take_copies((void *)own_copy);
    return NULL;
}

static const char *copies_passed_on(void)
{
    take_copies((void *)other_hook);
    return NULL;
}

/* A resolution that began in another thread before the request, and ends after it: the loader writes over our hook. The
 * thread's next mmap shows it. */
static const char *late_resolution(void)
{
    load_cuda();
    make_source(LENGTH);
    const long before = address_space_kib();
    unsigned char *buffer = request(LENGTH);
    *slot_of("memcpy") = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5");
    *slot_of("munmap") = dlsym(RTLD_DEFAULT, "munmap");
    munmap(plain_memory(4096), 4096);
    copy_all(buffer, source, LENGTH);
    expect_source(buffer, LENGTH);
    release(buffer, LENGTH);
    expect(helpers() == 0, "a helper outlives its buffer");
    expect(address_space_kib() - before < 1024, "address space is lost");
    return NULL;
}

/* libcuda goes while a buffer of it lives. */
static unsigned char *unload_with_buffer(void)
{
    load_cuda();
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH);
    cuda.memcpy(buffer, source, CHUNK);
    expect_no_helper_within(5);
    expect(dlclose(cuda.handle) == 0, "dlclose failed");
    expect(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY) == NULL, "libcuda is still there");
    return buffer;
}

/* Another comes to lie elsewhere, and where the old one's slots were is the program's memory. */
static const char *unload(void)
{
    unsigned char *buffer = unload_with_buffer();
    munmap(plain_memory(4096), 4096);
    munmap(plain_memory(100 * MIB), 100 * MIB);
    expect_source(buffer, CHUNK);
    /* Takes the place where the old one was. */
    plain_memory(64 * MIB);
    load_cuda();
    cycle(LENGTH);
    release(buffer, LENGTH);
    cycle(LENGTH);
    return NULL;
}

/* The same libcuda comes back, mostly to where it was: its slots are the loader's again. */
static const char *unload_and_load(void)
{
    unsigned char *buffer = unload_with_buffer();
    load_cuda();
    cycle(LENGTH);
    release(buffer, LENGTH);
    cycle(LENGTH);
    return NULL;
}

/* The program maps over the buffer that nobody can unmap any more: the last buffer goes, and its slots are gone already. */
static const char *unload_and_map_over(void)
{
    unsigned char *buffer = unload_with_buffer();
    void *over = mmap(buffer, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    expect(over == buffer, "the buffer cannot be mapped over");
    load_cuda();
    cycle(LENGTH);
    cycle(LENGTH);
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"chain", chain_stays},
        {"chain-back", chain_taken_back},
        {"copies-taken", copies_taken},
        {"copies-passed-on", copies_passed_on},
        {"late", late_resolution},
        {"unload", unload},
        {"unload-load", unload_and_load},
        {"unload-over", unload_and_map_over},
        {NULL, NULL},
    };
    return run_attack(attacks, count, arguments);
}
