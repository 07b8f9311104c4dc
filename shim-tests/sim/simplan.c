/* Prints, as CSV in the format of the recorded traces, the plan of a process that does not exist:
 * `simplan checkpoint|restore CONTEXT_MIB DEVICE [DEVICE ...]`. A DEVICE that the process sees is `-` if it has no context there,
 * else the sizes of its allocations in their order, separated by commas: in MiB, or in bytes with a `b` behind. Addresses
 * that the kernel chooses are printed as the name of the region. */
#include "slots.h"

#include <stdio.h>
#include <stdlib.h>

#include "plan.h"

#define MAX_BLOCKS 64

static void print_address(const struct plan_op *op)
{
    uint64_t fixed = op->region < REGION_PHASE_COUNT ? plan_low_address(op->device, op->region)
                                                     : plan_host_address(op->device, op->region);
    if (fixed)
        printf("0x%llx", (unsigned long long)fixed);
    else
        printf("d%d.r%d", op->device, (int)op->region);
}

static int print_op(void *context, const struct plan_op *op)
{
    static const char *const hint = ",0,0x22\n", *const placeholder = ",0,0x32\n";
    const unsigned long long bytes = op->bytes;
    (void)context;
    switch (op->kind) {
    case OP_SUBMIT:
        return 0;
    case OP_MAP_BUFFER:
        printf("0,0,mmap,,buffer,,%llu,3,0x8022\n", bytes);
        return 0;
    case OP_UNMAP_BUFFER:
        printf("0,0,munmap,,buffer,,%llu,,\n", bytes);
        return 0;
    case OP_PROBE:
        printf("0,0,mmap,,probe.%llu,,%llu%s", bytes, bytes, hint);
        printf("0,0,munmap,,probe.%llu,,%llu,,\n", bytes, bytes);
        return 0;
    case OP_COPY_STAGE:
    case OP_COPY_HOST:
        printf("0,0,memcpy,%s,", op->restore ? "from_buffer" : "to_buffer");
        print_address(op);
        printf(",%llu,%llu,,\n", (unsigned long long)op->buffer_offset, bytes);
        return 0;
    default:
        printf("0,0,%s,,", op->kind == OP_UNMAP ? "munmap" : "mmap");
        print_address(op);
        printf(",,%llu", bytes);
        if (op->kind == OP_MAP)
            printf(",%d,0x11\n", plan_region(op->region).protection);
        else
            fputs(op->kind == OP_UNMAP ? ",,\n" : op->kind == OP_HINT ? hint : placeholder, stdout);
        return 0;
    }
}

/* False if the text is no list of sizes, or too long a one. */
static bool parse_device(const char *text, uint64_t context_chunks, struct plan_device *device)
{
    static struct plan_block blocks[MAX_DEVICES * MAX_BLOCKS];
    static size_t used;
    *device = (struct plan_device){.context_chunks = context_chunks, .blocks = &blocks[used]};
    if (strcmp(text, "-") == 0)
        return true;
    device->in_use = true;
    uint64_t offset = plan_context_bytes(context_chunks);
    for (;;) {
        char *end;
        uint64_t bytes = strtoull(text, &end, 10);
        if (end == text || bytes == 0 || device->block_count == MAX_BLOCKS)
            return false;
        if (*end == 'b')
            end++;
        else
            bytes *= MIB;
        blocks[used] = plan_block_at(offset, bytes);
        offset = plan_block_end(&blocks[used++]);
        device->block_count++;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

int main(int argc, char **argv)
{
    struct plan_process process = {.device_count = argc - 3};
    bool good = argc >= 4 && process.device_count <= MAX_DEVICES;
    for (int d = 0; good && d < process.device_count; d++)
        good = parse_device(argv[3 + d], plan_context_chunks(strtoull(argv[2], NULL, 10)), &process.device[d]);
    if (!good) {
        fprintf(stderr, "usage: simplan checkpoint|restore CONTEXT_MIB DEVICE [DEVICE ...]\n"
                        "DEVICE: SIZE[,SIZE...] (MiB, or bytes as 1000b), or - for one without a context\n");
        return 2;
    }
    puts("t_us,duration_us,call,direction,address,buffer_offset,bytes,prot,flags_hex");
    return strcmp(argv[1], "restore") == 0 ? plan_restore(&process, print_op, NULL)
                                           : plan_checkpoint(&process, print_op, NULL);
}
