/* Sizes and places of the driver's mappings, as the recorded traces show them. */
#include "slots.h"

#include "plan.h"

#define PAGE 4096u

struct region_shape plan_region(enum region region)
{
    const int read_write = PROT_READ | PROT_WRITE;
    switch (region) {
    case REGION_NOTIFIER:
    case REGION_DOORBELL:
        return (struct region_shape){PAGE, 0, read_write};
    case REGION_RING:
        return (struct region_shape){9 * PAGE, 0, read_write};
    case REGION_SEMAPHORE_0:
    case REGION_SEMAPHORE_1:
        return (struct region_shape){16 * PAGE, 0, read_write};
    case REGION_TABLE:
        return (struct region_shape){1515 * PAGE, 6202384, read_write};
    case REGION_PUSH_A:
    case REGION_PUSH_B:
    case REGION_STAGE_0:
    case REGION_STAGE_1:
    case REGION_CHANNEL:
        return (struct region_shape){CHUNK, 0, read_write};
    case REGION_WINDOW:
        return (struct region_shape){56 * MIB, 0, read_write};
    case REGION_USERMODE_A:
    case REGION_USERMODE_B:
        return (struct region_shape){16 * PAGE, 0, PROT_WRITE};
    case REGION_TIMER:
        return (struct region_shape){PAGE, 0, PROT_READ};
    case REGION_HOST_A:
    case REGION_WRITE_COMBINED:
    case REGION_HOST_B:
    case REGION_HOST_C:
    case REGION_HOST_D:
        return (struct region_shape){CHUNK, CHUNK, read_write};
    default: /* the single pages */
        return (struct region_shape){PAGE, PAGE, read_write};
    }
}

uint64_t plan_region_offset(enum region region)
{
    uint64_t offset = 0;
    for (int r = 0; r < (int)region; r++) {
        uint64_t bytes = plan_region((enum region)r).bytes;
        offset += (bytes + CHUNK - 1) / CHUNK * CHUNK;
    }
    return offset;
}

uint64_t plan_vram_offset(void)
{
    return plan_region_offset(REGION_COUNT);
}

uint64_t plan_low_address(int ordinal, enum region region)
{
    const uint64_t big = 0x200000 + (uint64_t)ordinal * 0x800000;
    /* The first device leaves five pages between ring and doorbell; the second, in the traces, does not. */
    const uint64_t small = ordinal == 0 ? 0x10000 : 0x40000 + (uint64_t)(ordinal - 1) * 0x2b000;
    const uint64_t doorbell = small + (ordinal == 0 ? 0xf000 : 0xa000);
    switch (region) {
    case REGION_NOTIFIER:
        return small;
    case REGION_RING:
        return small + PAGE;
    case REGION_DOORBELL:
        return doorbell;
    case REGION_SEMAPHORE_0:
        return doorbell + PAGE;
    case REGION_SEMAPHORE_1:
        return doorbell + 17 * PAGE;
    case REGION_PUSH_A:
        return big;
    case REGION_PUSH_B:
        return big + CHUNK;
    case REGION_STAGE_0:
        return big + 2 * CHUNK;
    default:
        return big + 3 * CHUNK;
    }
}

uint64_t plan_host_address(int ordinal, enum region region)
{
    const uint64_t base = 0x200600000 + (uint64_t)ordinal * 0x5400000;
    switch (region) {
    case REGION_CHANNEL:
        return base;
    case REGION_WINDOW:
        return base + CHUNK;
    case REGION_HOST_D:
        return base + 0x4000000;
    case REGION_HOST_C:
        return base + 0x4200000;
    case REGION_HOST_B:
        return base + 0x4400000;
    default:
        return 0;
    }
}
