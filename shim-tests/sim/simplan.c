/* Prints, as CSV in the format of the recorded traces, the plan of a process that does not exist:
 * `simplan checkpoint|restore CONTEXT_MIB MIB [MIB ...]`, one MIB per device in use. Addresses that the
 * kernel chooses are printed as the name of the region. */
#include "slots.h"

#include <stdio.h>
#include <stdlib.h>

#include "plan.h"

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

int main(int argc, char **argv)
{
    if (argc < 4 || argc - 3 > MAX_DEVICES) {
        fprintf(stderr, "usage: simplan checkpoint|restore CONTEXT_MIB MIB [MIB ...]\n");
        return 2;
    }
    struct plan_process process = {.device_count = argc - 3};
    struct plan_block blocks[MAX_DEVICES];
    const uint64_t chunks = plan_context_chunks(strtoull(argv[2], NULL, 10));
    for (int d = 0; d < process.device_count; d++) {
        blocks[d].offset = plan_context_bytes(chunks);
        blocks[d].bytes = strtoull(argv[3 + d], NULL, 10) * MIB / CHUNK * CHUNK;
        process.device[d] = (struct plan_device){chunks, &blocks[d], 1};
    }
    puts("t_us,duration_us,call,direction,address,buffer_offset,bytes,prot,flags_hex");
    return strcmp(argv[1], "restore") == 0 ? plan_restore(&process, print_op, NULL)
                                           : plan_checkpoint(&process, print_op, NULL);
}
