/* A driver with two staging buffers that come round, filled by the GPU between its copies: whatever way the shim's copies are made in,
 * and while several ways take turns, no byte of an older filling may be copied. Its pieces are small, so that there are enough of
 * them for turns. */
#include "attack.h"

#define LENGTH (160 * MIB + 4321)
/* Shorter pieces are copied by the caller alone. */
#define PIECE ((size_t)64 << 10)

static unsigned char *staging[2];

static size_t piece_at(size_t offset)
{
    return LENGTH - offset < PIECE ? LENGTH - offset : PIECE;
}

static void checkpoint(unsigned char *buffer)
{
    for (size_t offset = 0, turn = 0; offset < LENGTH; offset += PIECE, turn ^= 1) {
        memcpy(staging[turn], source + offset, piece_at(offset));
        cuda.memcpy(buffer + offset, staging[turn], piece_at(offset));
    }
    expect(helpers() == 0, "a helper outlives its phase");
    expect_source(buffer, LENGTH);
}

static void restore(const unsigned char *buffer)
{
    for (size_t offset = 0, turn = 0; offset < LENGTH; offset += PIECE, turn ^= 1) {
        cuda.memcpy(staging[turn], buffer + offset, piece_at(offset));
        expect(memcmp(staging[turn], source + offset, piece_at(offset)) == 0, "a staging buffer is wrong");
    }
    expect(helpers() == 0, "a helper outlives its phase");
}

/* Three cycles: with an option the buffer of the second and third is there already. */
static const char *cycles(void)
{
    make_source(LENGTH);
    for (int turn = 0; turn < 2; turn++)
        staging[turn] = shared_memory(PIECE);
    for (int cycle = 0; cycle < 3; cycle++) {
        unsigned char *buffer = request(LENGTH);
        checkpoint(buffer);
        restore(buffer);
        release(buffer, LENGTH);
        /* What is kept must not make the next contents right. */
        for (size_t word = 0; word < LENGTH / 4; word += 1024)
            ((uint32_t *)source)[word] ^= 0x01010101u * (uint32_t)(cycle + 1);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    static const struct attack attacks[] = {{"cycles", cycles}, {NULL, NULL}};
    load_cuda();
    return run_attack(attacks, count, arguments);
}
