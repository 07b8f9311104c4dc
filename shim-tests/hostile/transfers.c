/* A driver whose copies are none of the recorded ones: all in one call, one byte at a time, between buffers, across a buffer's
 * edges, twice, none at all, a restore first, ten checkpoints into one buffer, five buffers at once; requests of other forms.
 * Prints a checksum of what was in memory. */
#include "driver.h"

#define LENGTH (48 * MIB + 777)

static unsigned char *restored;

static void prepare(void)
{
    make_source(LENGTH);
    restored = plain_memory(LENGTH);
}

static void expect_crew_gone(void)
{
    expect_no_helper_within(5);
}

/* The whole buffer in one call of each kind, each way. */
static const char *whole(void)
{
    void *(*const copies[])(void *, const void *, size_t) = {cuda.memcpy, cuda.memmove};
    prepare();
    for (int kind = 0; kind < 2; kind++) {
        unsigned char *buffer = request(LENGTH);
        expect(copies[kind](buffer, source, LENGTH) == buffer, "a copy returns something else");
        expect(helpers() == 0, "a helper outlives its phase");
        add_memory(buffer, LENGTH);
        memset(restored, 0, LENGTH);
        copies[kind](restored, buffer, LENGTH);
        expect(helpers() == 0, "a helper outlives its phase");
        add_memory(restored, LENGTH);
        release(buffer, LENGTH);
    }
    return the_sum();
}

/* No byte, also of nothing; one byte; chunks of odd sizes at odd places on both sides. */
static const char *small(void)
{
    prepare();
    unsigned char *buffer = request(LENGTH);
    cuda.memcpy(buffer, NULL, 0);
    cuda.memcpy(NULL, buffer, 0);
    cuda.memmove(buffer + LENGTH, source, 0);
    for (size_t at = 0; at < 5000; at++)
        cuda.memcpy(buffer + at, source + 2 * at, 1);
    cuda.memcpy(buffer + LENGTH - 1, source, 1);
    for (size_t at = 5000, size = 1; at + size < LENGTH - 1; at += size, size = size * 5 / 3 + 1) {
        cuda.memcpy(buffer + at, source + (at ^ 1), size);
        cuda.memmove(restored + at / 2, buffer + at, size);
    }
    add_memory(buffer, LENGTH);
    add_memory(restored, LENGTH);
    release(buffer, LENGTH);
    expect_crew_gone();
    cycle(LENGTH);
    return the_sum();
}

/* Copies that begin or end outside. Memory of the driver's own lies directly before the buffer, and before that what cannot be
 * told apart. */
static const char *edges(void)
{
    const size_t margin = 64 * 1024;
    prepare();
    unsigned char *buffer = request(LENGTH), *before = buffer - margin;
    void *at = mmap(before, margin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    expect(at == before, "the margin cannot be mapped");
    cuda.memcpy(before, source, 3 * MIB);
    add_memory(before, margin + 3 * MIB);
    cuda.memmove(buffer + 100, before + 50, 2 * MIB);
    cuda.memmove(before + 50, buffer + 100, 2 * MIB);
    add_memory(before, margin + 3 * MIB);
    cuda.memmove(buffer + 8 * MIB, buffer + 7 * MIB + 13, 4 * MIB);
    cuda.memmove(buffer + 7 * MIB + 13, buffer + 8 * MIB, 4 * MIB);
    /* To the last byte of the last page, which is not the buffer's. */
    cuda.memcpy(buffer + LENGTH - MIB, source, whole_pages(LENGTH) - LENGTH + MIB);
    add_memory(before, margin + whole_pages(LENGTH));
    release(buffer, LENGTH);
    munmap(before, margin);
    expect_crew_gone();
    cycle(LENGTH);
    return the_sum();
}

/* The first half comes twice before the second: what was covered is not the whole buffer. */
static const char *half_twice(void)
{
    const size_t half = 24 * MIB;
    prepare();
    unsigned char *buffer = request(LENGTH);
    cuda.memcpy(buffer + CHUNK, source, half);
    cuda.memcpy(buffer + CHUNK, source + 5, half);
    cuda.memcpy(buffer + CHUNK, source + 9, half);
    add_memory(buffer, LENGTH);
    release(buffer, LENGTH);
    return the_sum();
}

/* A chunk is copied again, as after an error of the device: what counts twice would end the phase too early. */
static const char *chunk_again(void)
{
    prepare();
    unsigned char *buffer = request(LENGTH);
    for (size_t offset = 0; offset < LENGTH; offset += CHUNK)
        for (int time = 0; time < 2; time++)
            cuda.memcpy(buffer + offset, source + offset, chunk_at(offset, LENGTH));
    expect_source(buffer, LENGTH);
    expect(helpers() == 0, "a helper outlives its phase");
    release(buffer, LENGTH);
    return NULL;
}

/* The process was not checkpointed by this driver: the first copy comes out of the buffer, or the driver wrote into it. */
static const char *restore_first(void)
{
    prepare();
    unsigned char *buffer = request(LENGTH);
    copy_all(restored, buffer, LENGTH);
    add_memory(restored, LENGTH);
    expect(helpers() == 0, "a helper outlives its phase");
    release(buffer, LENGTH);
    buffer = request(LENGTH);
    memcpy(buffer, source, LENGTH);
    copy_all(restored, buffer, LENGTH);
    expect_source(restored, LENGTH);
    release(buffer, LENGTH);
    cycle(LENGTH);
    return the_sum();
}

/* One buffer for the life of the process. */
static const char *many_checkpoints(void)
{
    prepare();
    unsigned char *buffer = request(LENGTH);
    for (size_t round = 0; round < 10; round++) {
        copy_all(buffer, source + round, LENGTH - round);
        copy_all(buffer + LENGTH - round, source, round);
        expect(round == 0 || helpers() == 0, "a helper outlives its phase");
        memset(restored, 0, LENGTH);
        copy_all(restored, buffer, LENGTH);
        expect(helpers() == 0, "a helper outlives its phase");
        add_memory(restored, LENGTH);
    }
    release(buffer, LENGTH);
    return the_sum();
}

/* Seven buffers live; copies between them; the last one asked for is the one that is copied to first. */
static const char *seven(void)
{
    unsigned char *buffers[7];
    prepare();
    for (int i = 0; i < 7; i++) {
        buffers[i] = request(LENGTH);
        cuda.memcpy(buffers[i] + i, source + 3 * i, 9 * MIB);
        if (i > 0)
            cuda.memcpy(buffers[i] + 20 * MIB, buffers[i - 1] + i, 8 * MIB);
    }
    for (int i = 6; i >= 0; i--)
        cuda.memmove(buffers[i] + 30 * MIB, buffers[(i + 3) % 7] + 20 * MIB, 8 * MIB + 1);
    for (int i = 0; i < 7; i++)
        add_memory(buffers[i], LENGTH);
    for (int i = 0; i < 7; i++)
        release(buffers[i * 3 % 7], LENGTH);
    expect_crew_gone();
    cycle(LENGTH);
    return the_sum();
}

/* What lies at a buffer's old addresses is somebody else's, also while another buffer lives: once the driver has unmapped the
 * old one, once the program itself. */
static const char *reuse(void)
{
    prepare();
    unsigned char *other = request(40 * MIB);
    for (int by_program = 0; by_program < 2; by_program++) {
        unsigned char *buffer = request(LENGTH);
        copy_all(buffer, source, LENGTH);
        if (by_program)
            munmap(buffer, whole_pages(LENGTH));
        else
            release(buffer, LENGTH);
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        expect(mmap(buffer, LENGTH, PROT_READ | PROT_WRITE, flags, -1, 0) == buffer, "the addresses are taken");
        copy_all(buffer, source, LENGTH);
        copy_all(restored, buffer, LENGTH);
        expect_source(restored, LENGTH);
        munmap(buffer, whole_pages(LENGTH));
    }
    release(other, 40 * MIB);
    expect_crew_gone();
    cycle(LENGTH);
    return NULL;
}

/* What the program sees of it in its own list of mappings: one mapping, readable and writable, private, of no file. */
static const char *listed_as(void)
{
    unsigned long from, to;
    prepare();
    unsigned char *buffer = request(LENGTH);
    for (int copied = 0; copied < 2; copied++) {
        expect(strcmp(listed(buffer, &from, &to), "rw-p") == 0, "it is listed with other rights");
        expect(from <= (uintptr_t)buffer && to - (uintptr_t)buffer >= LENGTH, "it is more than one mapping");
        expect(mincore(buffer, LENGTH, restored) == 0, "some of it is not mapped");
        copy_all(buffer, source, LENGTH);
    }
    expect_source(buffer, LENGTH);
    release(buffer, LENGTH);
    expect(mincore(buffer, LENGTH, restored) != 0, "it is still mapped");
    return NULL;
}

/* Requests of other forms, one of each; the detail is for people. */
static const char *forms(void)
{
    static const struct {
        size_t length;
        int flags;
    } forms[] = {
        {32 * MIB - 1, DRIVERS_FLAGS},
        {32 * MIB, DRIVERS_FLAGS},
        {32 * MIB + 1, DRIVERS_FLAGS},
        {33 * MIB, DRIVERS_FLAGS | MAP_NORESERVE},
        {33 * MIB, DRIVERS_FLAGS | MAP_STACK},
        {33 * MIB, DRIVERS_FLAGS | MAP_LOCKED},
        {33 * MIB, MAP_PRIVATE | MAP_ANONYMOUS},
        {33 * MIB, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE},
        {33 * MIB, DRIVERS_FLAGS | MAP_NONBLOCK},
    };
    prepare();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        unsigned char *buffer = cuda.mmap(forms[i].length, forms[i].flags);
        expect(buffer != MAP_FAILED, "a request was refused");
        copy_all(buffer, source, forms[i].length);
        expect_source(buffer, forms[i].length);
        release(buffer, forms[i].length);
    }
    void *const hint = source - 200 * MIB;
    unsigned char *buffer = driver.map(hint, 33 * MIB, PROT_READ | PROT_WRITE, DRIVERS_FLAGS);
    expect(buffer == hint, "a hint is not followed");
    copy_all(buffer, source, 33 * MIB);
    expect_source(buffer, 33 * MIB);
    release(buffer, 33 * MIB);
    expect(cuda.mmap(0, DRIVERS_FLAGS) == MAP_FAILED, "a request of nothing was granted");
    expect(cuda.mmap((size_t)1 << 62, DRIVERS_FLAGS) == MAP_FAILED, "a request of everything was granted");
    expect_crew_gone();
    return NULL;
}

/* A kept buffer's addresses are free: what is mapped there is used by nobody else, and stays. */
static const char *over_kept(void)
{
    prepare();
    for (int part = 0; part < 4; part++) {
        unsigned char *buffer = request(LENGTH);
        copy_all(buffer, source, LENGTH);
        release(buffer, LENGTH);
        unsigned char *over = buffer + part * 13 * MIB;
        const size_t length = 3 * MIB;
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        /* The last without the C library. */
        void *at = part == 3 ? (void *)syscall(SYS_mmap, over, length, PROT_READ | PROT_WRITE, flags, -1, 0)
                             : mmap(over, length, PROT_READ | PROT_WRITE, flags, -1, 0);
        expect(at == over, "nothing can be mapped over it");
        memset(over, 42, length);
        cycle(LENGTH);
        cycle(LENGTH - 5 * MIB);
        for (size_t byte = 0; byte < length; byte += 64)
            expect(over[byte] == 42, "somebody else's memory was changed");
        munmap(over, length);
    }
    return NULL;
}

/* Sources and targets that are no plain memory. */
static const char *other_memory(void)
{
    prepare();
    const size_t length = 8 * MIB;
    FILE *file = tmpfile();
    expect(file && fwrite(source, 1, length, file) == length && fflush(file) == 0, "no file");
    unsigned char *of_file = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    unsigned char *shared = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    expect(of_file != MAP_FAILED && shared != MAP_FAILED, "no mapping");
    expect(mprotect(source, length, PROT_READ) == 0, "no protection");
    unsigned char *buffer = request(LENGTH);
    cuda.memcpy(buffer, source, length);
    cuda.memcpy(buffer + length, of_file, length);
    cuda.memcpy(buffer + 2 * length, shared, length);
    expect(memcmp(buffer, buffer + length, length) == 0, "a file's contents are wrong");
    expect(memcmp(buffer, buffer + 2 * length, length) == 0, "a file's contents are wrong");
    memset(buffer, 3, length);
    cuda.memcpy(shared, buffer, length);
    add_memory(shared, length);
    add_memory(of_file, length);
    release(buffer, LENGTH);
    fclose(file);
    return the_sum();
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"whole", whole},
        {"small", small},
        {"edges", edges},
        {"half-twice", half_twice},
        {"chunk-again", chunk_again},
        {"restore-first", restore_first},
        {"many-checkpoints", many_checkpoints},
        {"seven", seven},
        {"reuse", reuse},
        {"listed", listed_as},
        {"forms", forms},
        {"over-kept", over_kept},
        {"other-memory", other_memory},
        {NULL, NULL},
    };
    load_driver();
    return run_attack(attacks, count, arguments);
}
