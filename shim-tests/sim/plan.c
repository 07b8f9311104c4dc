/* The rule behind the eight recorded traces.
 *
 * A device's part of the buffer is: 4 MiB + 128 KiB of context, the allocations with their exact bytes (the latest first), the
 * context's 2 MiB blocks with a tail of 512 KiB, more context with a tail of 813,184 bytes, then a mixture of host regions and
 * single chunks. Only a device with a context has such a part; phases set up and tear down every device. A chunk of
 * device memory goes through the device's two staging buffers in turn. In a checkpoint the DMA runs one chunk ahead:
 * a chunk is copied out when the next one has been asked for, while host regions are copied at once; that alone makes the
 * offsets step back. In a restore nothing is ahead, so offsets rise. Devices are set up and torn down in
 * ascending order and copied in descending order; the last chunk of each waits for its teardown. */
#include "slots.h"

#include "plan.h"

#define HEAD_TAIL (128 * 1024u)
#define BLOCKS_TAIL (512 * 1024u)
#define EXTRA_TAIL 813184u
#define HEAD_CHUNKS 2u
#define EXTRA_CHUNKS_FULL 35u /* of the 241 context chunks of the recorded driver */
#define ALL_CHUNKS_FULL 241u
#define SINGLE_CHUNKS 12u     /* the chunks among the host regions */

struct walk {
    const struct plan_process *process;
    plan_visitor visit;
    void *context;
    uint64_t offset;              /* next byte of the buffer */
    uint64_t vram;                /* next byte of the device's context memory */
    int stage[MAX_DEVICES];       /* staging buffer that the next chunk takes */
    struct plan_op pending[MAX_DEVICES]; /* checkpoint: the copy that the DMA is filling */
    bool has_pending[MAX_DEVICES];
    bool restore;
};

static uint64_t extra_chunks(uint64_t context_chunks)
{
    uint64_t share = context_chunks * EXTRA_CHUNKS_FULL / ALL_CHUNKS_FULL;
    return share < EXTRA_CHUNKS_FULL ? share : EXTRA_CHUNKS_FULL;
}

static uint64_t round_chunk(uint64_t bytes)
{
    return (bytes + CHUNK - 1) / CHUNK * CHUNK;
}

static uint64_t fixed_bytes(void)
{
    uint64_t bytes = HEAD_CHUNKS * CHUNK + HEAD_TAIL + BLOCKS_TAIL + EXTRA_TAIL + SINGLE_CHUNKS * CHUNK;
    for (int r = REGION_PHASE_COUNT; r < REGION_COUNT; r++)
        bytes += plan_region((enum region)r).copied;
    return bytes;
}

uint64_t plan_context_chunks(uint64_t mib)
{
    uint64_t fixed = fixed_bytes();
    return mib * MIB > fixed ? (mib * MIB - fixed) / CHUNK : 0;
}

uint64_t plan_context_bytes(uint64_t context_chunks)
{
    /* Head, blocks, extra and singles each begin on a chunk of their own. */
    return (HEAD_CHUNKS + 1 + context_chunks + 1 + 1 + SINGLE_CHUNKS) * CHUNK;
}

bool plan_context_range(uint64_t context_chunks, int index, uint64_t *file_offset, uint64_t *bytes)
{
    const uint64_t extra = extra_chunks(context_chunks);
    const uint64_t length[] = {HEAD_CHUNKS * CHUNK + HEAD_TAIL, (context_chunks - extra) * CHUNK + BLOCKS_TAIL,
                               extra * CHUNK + EXTRA_TAIL, SINGLE_CHUNKS * CHUNK};
    const int ranges = sizeof length / sizeof *length;
    if (index >= ranges) {
        const int region = REGION_PHASE_COUNT + index - ranges;
        if (region >= REGION_WINDOW)
            return false;
        *file_offset = plan_region_offset((enum region)region);
        *bytes = plan_region((enum region)region).copied;
        return true;
    }
    *file_offset = plan_vram_offset();
    for (int i = 0; i < index; i++)
        *file_offset += round_chunk(length[i]);
    *bytes = length[index];
    return true;
}

uint64_t plan_length(const struct plan_process *process)
{
    uint64_t bytes = 0;
    for (int d = 0; d < process->device_count; d++) {
        const struct plan_device *device = &process->device[d];
        if (!device->in_use)
            continue;
        bytes += fixed_bytes() + device->context_chunks * CHUNK;
        for (size_t b = 0; b < device->block_count; b++)
            bytes += device->blocks[b].bytes;
    }
    return bytes;
}

struct plan_block plan_block_at(uint64_t offset, uint64_t bytes)
{
    return (struct plan_block){offset, bytes < CHUNK ? CHUNK : bytes};
}

uint64_t plan_block_end(const struct plan_block *block)
{
    return block->offset + round_chunk(block->bytes);
}

static int emit(struct walk *walk, enum op_kind kind, int device, enum region region, uint64_t bytes)
{
    struct plan_op op = {.kind = kind, .device = device, .region = region, .bytes = bytes, .restore = walk->restore};
    return walk->visit(walk->context, &op);
}

static int flush_pending(struct walk *walk, int device)
{
    if (!walk->has_pending[device])
        return 0;
    walk->has_pending[device] = false;
    return walk->visit(walk->context, &walk->pending[device]);
}

/* One chunk of at most 2 MiB through a staging buffer. */
static int stage_chunk(struct walk *walk, int device, uint64_t file_offset, uint64_t bytes)
{
    enum region stage = walk->stage[device] ? REGION_STAGE_1 : REGION_STAGE_0;
    walk->stage[device] ^= 1;
    struct plan_op submit = {.kind = OP_SUBMIT, .device = device, .region = stage, .bytes = bytes,
                             .file_offset = file_offset, .restore = walk->restore};
    struct plan_op copy = {.kind = OP_COPY_STAGE, .device = device, .region = stage, .bytes = bytes,
                           .buffer_offset = walk->offset, .restore = walk->restore};
    walk->offset += bytes;
    int rc;
    if (walk->restore) {
        rc = walk->visit(walk->context, &copy);
        return rc ? rc : walk->visit(walk->context, &submit);
    }
    rc = walk->visit(walk->context, &submit);
    if (!rc)
        rc = flush_pending(walk, device);
    walk->pending[device] = copy;
    walk->has_pending[device] = true;
    return rc;
}

static int device_range(struct walk *walk, int device, uint64_t vram, uint64_t bytes)
{
    int rc = 0;
    for (uint64_t done = 0; done < bytes && !rc; done += CHUNK) {
        uint64_t step = bytes - done < CHUNK ? bytes - done : CHUNK;
        rc = stage_chunk(walk, device, plan_vram_offset() + vram + done, step);
    }
    return rc;
}

static int context_range(struct walk *walk, int device, uint64_t bytes)
{
    uint64_t vram = walk->vram;
    walk->vram += round_chunk(bytes);
    return device_range(walk, device, vram, bytes);
}

static int host_region(struct walk *walk, int device, enum region region)
{
    uint64_t bytes = plan_region(region).copied;
    if (region == REGION_WRITE_COMBINED && !walk->restore)
        return stage_chunk(walk, device, plan_region_offset(region), bytes);
    struct plan_op op = {.kind = OP_COPY_HOST, .device = device, .region = region, .bytes = bytes,
                         .buffer_offset = walk->offset, .restore = walk->restore};
    walk->offset += bytes;
    return walk->visit(walk->context, &op);
}

static int all_blocks(struct walk *walk, int device)
{
    const struct plan_device *shape = &walk->process->device[device];
    const uint64_t chunks = shape->context_chunks - extra_chunks(shape->context_chunks);
    int rc = 0;
    for (size_t b = shape->block_count; b > 0 && !rc; b--)
        rc = device_range(walk, device, shape->blocks[b - 1].offset, shape->blocks[b - 1].bytes);
    return rc ? rc : context_range(walk, device, chunks * CHUNK + BLOCKS_TAIL);
}

/* What follows the large ranges: `REGION_NOTIFIER` stands for one chunk of context memory. */
static int mixture(struct walk *walk, int device)
{
    static const enum region order[] = {
        REGION_TABLE,    REGION_NOTIFIER, REGION_HOST_A,   REGION_NOTIFIER, REGION_NOTIFIER,       REGION_NOTIFIER,
        REGION_NOTIFIER, REGION_NOTIFIER, REGION_NOTIFIER, REGION_WRITE_COMBINED, REGION_NOTIFIER, REGION_HOST_B,
        REGION_NOTIFIER, REGION_HOST_C};
    int rc = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order && !rc; i++)
        rc = order[i] == REGION_NOTIFIER ? context_range(walk, device, CHUNK) : host_region(walk, device, order[i]);
    for (int r = REGION_PAGE_FIRST; r <= REGION_PAGE_LAST && !rc; r++)
        rc = host_region(walk, device, (enum region)r);
    for (int i = 0; i < 3 && !rc; i++)
        rc = context_range(walk, device, CHUNK);
    return rc;
}

static int copies(struct walk *walk)
{
    int rc = 0;
    for (int d = walk->process->device_count - 1; d >= 0 && !rc; d--) {
        if (!walk->process->device[d].in_use)
            continue;
        walk->vram = 0;
        rc = context_range(walk, d, HEAD_CHUNKS * CHUNK + HEAD_TAIL);
        if (!rc)
            rc = all_blocks(walk, d);
        if (!rc)
            rc = context_range(walk, d, extra_chunks(walk->process->device[d].context_chunks) * CHUNK + EXTRA_TAIL);
        if (!rc)
            rc = mixture(walk, d);
    }
    return rc;
}

static int reserve_and_map(struct walk *walk, int device, enum region region)
{
    uint64_t bytes = plan_region(region).bytes;
    int rc = emit(walk, OP_HINT, device, region, bytes);
    return rc ? rc : emit(walk, OP_MAP, device, region, bytes);
}

static int probes(struct walk *walk, int device, int count, enum region region)
{
    int rc = 0;
    for (int i = 0; i < count && !rc; i++)
        rc = emit(walk, OP_PROBE, device, region, plan_region(region).bytes);
    return rc;
}

/* The numbers of failed reservations are those of the traces: none for the very first page, six for a later
 * page, five for nine pages. */
static int setup(struct walk *walk, int device)
{
    static const struct {
        enum region region;
        int probes;
    } order[] = {{REGION_NOTIFIER, 6}, {REGION_PUSH_A, 0},  {REGION_PUSH_B, 0},      {REGION_RING, 5},
                 {REGION_DOORBELL, 6}, {REGION_STAGE_0, 0}, {REGION_STAGE_1, 0}, {REGION_SEMAPHORE_0, 0},
                 {REGION_SEMAPHORE_1, 0}};
    int rc = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order && !rc; i++) {
        rc = probes(walk, device, device == 0 && i == 0 ? 0 : order[i].probes, order[i].region);
        if (!rc)
            rc = reserve_and_map(walk, device, order[i].region);
    }
    return rc;
}

static int teardown(struct walk *walk, int device)
{
    static const enum region order[] = {REGION_STAGE_0, REGION_SEMAPHORE_0, REGION_STAGE_1, REGION_SEMAPHORE_1,
                                        REGION_DOORBELL, REGION_RING, REGION_PUSH_B, REGION_PUSH_A, REGION_NOTIFIER};
    int rc = flush_pending(walk, device);
    for (size_t i = 0; i < sizeof order / sizeof *order && !rc; i++) {
        uint64_t bytes = plan_region(order[i]).bytes;
        rc = emit(walk, OP_PLACEHOLDER, device, order[i], bytes);
        if (!rc)
            rc = emit(walk, OP_UNMAP, device, order[i], bytes);
    }
    return rc;
}

static int each_device(struct walk *walk, int (*step)(struct walk *, int))
{
    int rc = 0;
    for (int d = 0; d < walk->process->device_count && !rc; d++)
        rc = step(walk, d);
    return rc;
}

static int host_maps(struct walk *walk, enum op_kind kind)
{
    int rc = 0;
    for (int d = walk->process->device_count - 1; d >= 0; d--)
        for (int r = REGION_PHASE_COUNT; r < REGION_HOST_END && walk->process->device[d].in_use && !rc; r++)
            rc = emit(walk, kind, d, (enum region)r, plan_region((enum region)r).bytes);
    return rc;
}

static int usermode_maps(struct walk *walk, enum op_kind kind)
{
    static const enum region leave[] = {REGION_TIMER, REGION_USERMODE_A, REGION_USERMODE_B};
    static const enum region enter[] = {REGION_USERMODE_A, REGION_USERMODE_B, REGION_TIMER};
    int rc = 0;
    for (int d = 0; d < walk->process->device_count; d++)
        for (int i = 0; i < 3 && !rc; i++) {
            enum region region = kind == OP_MAP ? enter[i] : leave[i];
            rc = emit(walk, kind, d, region, plan_region(region).bytes);
        }
    return rc;
}

int plan_placeholders(const struct plan_process *process, plan_visitor visit, void *context)
{
    struct walk walk = {.process = process, .visit = visit, .context = context};
    int rc = host_maps(&walk, OP_PLACEHOLDER);
    return rc ? rc : usermode_maps(&walk, OP_PLACEHOLDER);
}

int plan_teardown(const struct plan_process *process, bool restore, plan_visitor visit, void *context)
{
    struct walk walk = {.process = process, .visit = visit, .context = context, .restore = restore};
    return each_device(&walk, teardown);
}

int plan_checkpoint(const struct plan_process *process, plan_visitor visit, void *context)
{
    struct walk walk = {.process = process, .visit = visit, .context = context};
    int rc = emit(&walk, OP_MAP_BUFFER, 0, REGION_COUNT, plan_length(process));
    if (!rc)
        rc = each_device(&walk, setup);
    if (!rc)
        rc = copies(&walk);
    if (!rc)
        rc = each_device(&walk, teardown);
    return rc ? rc : plan_placeholders(process, visit, context);
}

int plan_restore(const struct plan_process *process, plan_visitor visit, void *context)
{
    struct walk walk = {.process = process, .visit = visit, .context = context, .restore = true};
    int rc = usermode_maps(&walk, OP_MAP);
    if (!rc)
        rc = host_maps(&walk, OP_MAP);
    if (!rc)
        rc = each_device(&walk, setup);
    if (!rc)
        rc = copies(&walk);
    if (!rc)
        rc = each_device(&walk, teardown);
    return rc ? rc : emit(&walk, OP_UNMAP_BUFFER, 0, REGION_COUNT, plan_length(process));
}
