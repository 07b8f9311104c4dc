/* Attacks by what is copied, in which order, between which buffers. */
#include "attack.h"

#define LENGTH (64 * MIB + 4321)

static const char *cycles(void)
{
    make_source(LENGTH);
    cycle(LENGTH);
    cycle(LENGTH);
    return NULL;
}

/* A header that is written when everything else is there. The last copy covers the buffer, though it goes to its start. */
static const char *header_last(void)
{
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH);
    copy_all(buffer + CHUNK, source + CHUNK, LENGTH - CHUNK);
    cuda.memcpy(buffer, source, CHUNK);
    expect(helpers() == 0, "a helper outlives its phase");
    expect_source(buffer, LENGTH);
    release(buffer, LENGTH);
    return NULL;
}

static const char *descending(void)
{
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH);
    for (size_t offset = LENGTH / CHUNK * CHUNK + CHUNK; offset > 0;) {
        offset -= CHUNK;
        cuda.memcpy(buffer + offset, source + offset, chunk_at(offset, LENGTH));
    }
    expect(helpers() == 0, "a helper outlives its phase");
    expect_source(buffer, LENGTH);
    release(buffer, LENGTH);
    return NULL;
}

/* Each chunk goes in and comes out again before the next: every copy turns the phase. */
static const char *turns(void)
{
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH), *restored = plain_memory(LENGTH);
    for (size_t offset = 0; offset < LENGTH; offset += CHUNK) {
        cuda.memcpy(buffer + offset, source + offset, chunk_at(offset, LENGTH));
        cuda.memcpy(restored + offset, buffer + offset, chunk_at(offset, LENGTH));
    }
    expect_source(buffer, LENGTH);
    expect_source(restored, LENGTH);
    release(buffer, LENGTH);
    expect(helpers() == 0, "a helper outlives its buffer");
    return NULL;
}

/* Two pieces of memory with a shadow each: what libcuda copies between the pieces is copied between the shadows too. Piece 0
 * is the buffer with a margin before it, so that copies may begin outside and end inside. */
#define MARGIN ((size_t)65536)
#define ODD_LENGTH (40 * MIB + 777)
#define PIECE (MARGIN + 40 * MIB + 4096)

static struct {
    unsigned char *real[2], *shadow[2];
    uint32_t random;
} model;

static size_t odd_length(void)
{
    const uint32_t die = next_random(&model.random) % 8;
    const size_t number = next_random(&model.random);
    if (die == 0)
        return number % 2;
    return die < 4 ? number % 5000 : number % (3 * MIB);
}

/* Mostly anywhere; sometimes across the buffer's first or last byte. */
static size_t odd_offset(size_t length)
{
    const size_t number = next_random(&model.random);
    size_t offset = number % (PIECE - length);
    if (number % 5 == 0)
        offset = MARGIN > length / 2 ? MARGIN - length / 2 : 0;
    if (number % 5 == 1)
        offset = PIECE - length - number % 3;
    return offset < PIECE - length ? offset : PIECE - length;
}

static void odd_copy(void)
{
    const size_t length = odd_length();
    const uint32_t sides = next_random(&model.random);
    const int to = sides >> 3 & 1, from = sides >> 4 & 1;
    const size_t at = odd_offset(length);
    /* Within one piece half of the copies overlap. */
    const size_t back = at > 100 ? at - 100 : at;
    const size_t other = to == from && sides & 4 ? back : odd_offset(length);
    void *(*copy)(void *, const void *, size_t) = sides & 2 ? cuda.memcpy : cuda.memmove;
    unsigned char *target = model.real[to] + at;
    expect(copy(target, model.real[from] + other, length) == target, "a copy returns something else");
    memmove(model.shadow[to] + at, model.shadow[from] + other, length);
}

static void odd_start(void)
{
    unsigned char *buffer = request(ODD_LENGTH), *before = buffer - MARGIN;
    void *margin = mmap(before, MARGIN, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    expect(margin == before, "the margin cannot be mapped");
    model.real[0] = before;
    model.real[1] = plain_memory(PIECE);
    for (int piece = 0; piece < 2; piece++)
        model.shadow[piece] = plain_memory(PIECE);
    for (size_t byte = 0; byte < PIECE; byte++)
        model.shadow[1][byte] = (unsigned char)next_random(&model.random);
    memcpy(model.real[1], model.shadow[1], PIECE);
}

static const char *odd(void)
{
    static char detail[64];
    long copies = 0;
    expect(attack_arguments[0] != NULL, "which seed?");
    model.random = (uint32_t)strtoul(attack_arguments[0], NULL, 10);
    odd_start();
    for (const double end = now() + 2; now() < end; copies++)
        odd_copy();
    for (int piece = 0; piece < 2; piece++)
        expect(memcmp(model.real[piece], model.shadow[piece], PIECE) == 0, "contents are not the shadow's");
    release(model.real[0] + MARGIN, ODD_LENGTH);
    expect_no_helper_within(5);
    snprintf(detail, sizeof detail, "%ld copies", copies);
    return detail;
}

/* A buffer is asked for while another lives; the older is used again, and given up first. */
static const char *second(void)
{
    make_source(LENGTH);
    const long before = address_space_kib();
    unsigned char *first = request(LENGTH), *newer;
    copy_all(first, source, LENGTH / 2);
    newer = request(LENGTH);
    copy_all(newer, source, LENGTH);
    copy_all(first + LENGTH / 2, source + LENGTH / 2, LENGTH - LENGTH / 2);
    expect_source(first, LENGTH);
    expect_source(newer, LENGTH);
    release(first, LENGTH);
    expect_source(newer, LENGTH);
    release(newer, LENGTH);
    expect(helpers() == 0, "a helper outlives its buffer");
    expect(address_space_kib() - before < 1024, "address space is lost");
    return NULL;
}

/* A buffer that nothing is ever copied to. */
static const char *unused(void)
{
    make_source(LENGTH);
    unsigned char *buffer = request(LENGTH);
    /* A helper has no name of its own before it has run. */
    sleep_ms(500);
    expect_no_helper_within(5);
    release(buffer, LENGTH);
    return NULL;
}

/* One munmap takes two buffers. What comes to lie there next must stay whole: nothing of the shim's may be unmapped later. */
static const char *over_two(void)
{
    make_source(LENGTH);
    unsigned char *first = request(LENGTH), *newer = request(LENGTH);
    unsigned char *low = first < newer ? first : newer, *high = first < newer ? newer : first;
    const size_t both = (size_t)(high - low) + LENGTH;
    expect(both < 2 * LENGTH + 8 * MIB, "the buffers are no neighbours");
    release(low, both);
    unsigned char *others = plain_memory(both);
    memset(others, 9, both);
    cycle(LENGTH);
    for (size_t byte = 0; byte < both; byte += 512)
        expect(others[byte] == 9, "somebody else's memory was changed");
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {
        {"cycles", cycles}, {"header-last", header_last}, {"descending", descending}, {"turns", turns},
        {"odd", odd},       {"second", second},           {"unused", unused},         {"over-two", over_two},
        {NULL, NULL},
    };
    load_cuda();
    return run_attack(attacks, count, arguments);
}
