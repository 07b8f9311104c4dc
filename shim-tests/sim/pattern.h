/* The known contents: one 64-bit word per counter. Additions, shifts and xors only, so that a compiler vectorises it. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t pattern_word(uint64_t key, uint64_t index)
{
    uint64_t z = key + index * 0x9e3779b97f4a7c15u;
    z ^= z >> 31;
    z += z << 21;
    z ^= z >> 17;
    z += z << 5;
    return z ^ (z >> 29);
}

static inline void pattern_fill(uint64_t *words, size_t count, uint64_t key, uint64_t first)
{
    for (size_t i = 0; i < count; i++)
        words[i] = pattern_word(key, first + i);
}

static inline uint64_t pattern_wrong(const uint64_t *words, size_t count, uint64_t key, uint64_t first)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += words[i] != pattern_word(key, first + i);
    return wrong;
}

#endif
