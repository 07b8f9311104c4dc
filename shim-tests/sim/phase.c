/* Carries out a phase's plan, and puts things back when it fails. */
#include "slots.h"

#include <unistd.h>

#include "phase.h"

struct device *phase_device(const struct plan_op *op)
{
    return &driver.device[op->device];
}

static CUresult map_buffer(struct phase *phase, uint64_t bytes)
{
    /* More than an address space holds: the kernel itself refuses. */
    const uint64_t asked = phase->strikes && phase->fault.mmap_refused ? bytes + ((uint64_t)1 << 47) : bytes;
    void *p = mmap(NULL, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver.buffer = p;
    driver.length = bytes;
    return CUDA_SUCCESS;
}

static CUresult unmap_buffer(struct phase *phase)
{
    if (!phase->fault.never_unmap && munmap(driver.buffer, driver.length) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    driver.buffer = NULL;
    driver.length = 0;
    return CUDA_SUCCESS;
}

/* A reservation whose address is taken lands elsewhere and is given up, as the real driver's search does. */
static CUresult probe(const struct plan_op *op)
{
    void *taken = (void *)(uintptr_t)plan_low_address(0, REGION_NOTIFIER);
    void *p = mmap(taken, op->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || munmap(p, op->bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static CUresult reserve_low(const struct plan_op *op)
{
    void *hint = (void *)(uintptr_t)plan_low_address(op->device, op->region);
    void *p = mmap(hint, op->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    phase_device(op)->address[op->region] = p;
    return CUDA_SUCCESS;
}

static CUresult map_driver_memory(struct phase *phase, const struct plan_op *op)
{
    struct device *device = phase_device(op);
    void *p = mmap(device->address[op->region], op->bytes, plan_region(op->region).protection,
                   MAP_SHARED | MAP_FIXED, device->file, (off_t)plan_region_offset(op->region));
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (op->region == REGION_DOORBELL && op->device == phase->process.device_count - 1)
        phase->doorbell = p;
    return CUDA_SUCCESS;
}

static CUresult placeholder(struct phase *phase, const struct plan_op *op)
{
    struct device *device = phase_device(op);
    if (!device->address[op->region])
        return CUDA_SUCCESS; /* a failed set-up did not get that far */
    const bool stage = op->region == REGION_STAGE_0 || op->region == REGION_STAGE_1;
    if (stage && phase->restore)
        dma_wait(phase, phase->stage_request[op->device][op->region == REGION_STAGE_1]);
    if (op->region == REGION_DOORBELL && op->device == phase->process.device_count - 1)
        dma_finish(phase);
    void *p = mmap(device->address[op->region], op->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult unmap_low(const struct plan_op *op)
{
    struct device *device = phase_device(op);
    if (device->address[op->region])
        munmap(device->address[op->region], op->bytes);
    device->address[op->region] = NULL;
    return CUDA_SUCCESS;
}

static CUresult submit(struct phase *phase, const struct plan_op *op)
{
    uint32_t *request = &phase->stage_request[op->device][op->region == REGION_STAGE_1];
    if (!phase->restore) {
        *request = dma_submit(phase, DMA_TO_STAGE, op);
        return CUDA_SUCCESS;
    }
    dma_submit(phase, DMA_FROM_STAGE, op);
    *request = dma_submit(phase, DMA_POISON, op);
    if (phase->late) {
        phase->late = false;
        dma_wait(phase, *request);
        memcpy(phase_device(op)->address[op->region], driver.buffer + phase->late_op.buffer_offset, op->bytes);
    }
    return CUDA_SUCCESS;
}

int phase_visit(void *context, const struct plan_op *op)
{
    struct phase *phase = context;
    switch (op->kind) {
    case OP_MAP_BUFFER:
        return map_buffer(phase, op->bytes);
    case OP_UNMAP_BUFFER:
        return unmap_buffer(phase);
    case OP_HINT:
        return reserve_low(op);
    case OP_PROBE:
        return probe(op);
    case OP_MAP:
        return map_driver_memory(phase, op);
    case OP_PLACEHOLDER:
        return placeholder(phase, op);
    case OP_UNMAP:
        return unmap_low(op);
    case OP_SUBMIT:
        return submit(phase, op);
    default:
        return copy_perform(phase, op);
    }
}

static int count_copies(void *context, const struct plan_op *op)
{
    *(uint64_t *)context += op->kind == OP_COPY_STAGE || op->kind == OP_COPY_HOST;
    return 0;
}

static uint64_t failing_copy(const struct phase *phase)
{
    if (!phase->strikes)
        return UINT64_MAX;
    switch (phase->fault.fail_at) {
    case COPY_NUMBER:
        return phase->fault.fail_number;
    case COPY_MIDDLE:
        return phase->copies / 2;
    case COPY_BEFORE_LAST:
        return phase->copies - 2;
    default:
        return UINT64_MAX;
    }
}

/* A fault of the target's own environment strikes `times` phases; one sent with the command strikes that one. */
static void choose_fault(struct phase *phase, const struct command *command)
{
    const bool sent = command->fault[0] || command->mutate[0];
    if (sent)
        fault_parse(command->fault, command->mutate, &phase->fault);
    else
        phase->fault = driver.fault;
    const bool asks = phase->fault.fail_at != COPY_NONE || phase->fault.mmap_refused;
    const bool here = phase->restore ? phase->fault.in_restore : phase->fault.in_checkpoint;
    phase->strikes = asks && here;
    if (phase->strikes && !sent && driver.fault.times > 0 && --driver.fault.times == 0) {
        driver.fault.fail_at = COPY_NONE;
        driver.fault.mmap_refused = false;
    }
}

static void begin(struct phase *phase, const struct command *command, bool restore)
{
    *phase = (struct phase){.restore = restore};
    phase->devices_in_use = driver_plan(&phase->process);
    if (phase->devices_in_use == 0)
        return;
    choose_fault(phase, command);
    plan_checkpoint(&phase->process, count_copies, &phase->copies);
    phase->fail_copy = failing_copy(phase);
}

/* Tells the caller where the device files are; from then on it serves DMA. */
static void announce(const struct phase *phase, const struct command *command)
{
    static const struct doorbell empty;
    struct answer answer = {.nonce = command->nonce, .phase_begins = 1};
    answer.device_count = (uint32_t)phase->process.device_count;
    for (int n = 0; n < phase->process.device_count; n++)
        answer.file[n] = driver.device[n].file;
    const int last = driver.device[phase->process.device_count - 1].file;
    if (pwrite(last, &empty, sizeof empty, (off_t)plan_region_offset(REGION_DOORBELL)) == (ssize_t)sizeof empty)
        answer_send(&answer);
}

static void close_files(const struct phase *phase)
{
    for (int n = 0; n < phase->process.device_count; n++) {
        struct device *device = &driver.device[n];
        if (device->file >= 0)
            close(device->file);
        device->file = -1;
    }
}

/* The device files keep all contents until the whole plan is through, so a failure loses nothing. */
static void undo(struct phase *phase)
{
    plan_teardown(&phase->process, phase->restore, phase_visit, phase);
    if (phase->restore) {
        plan_placeholders(&phase->process, phase_visit, phase);
        close_files(phase);
    }
    const enum buffer_choice choice = phase->fault.after_failure;
    if (driver.buffer && (choice == BUFFER_UNMAP || (choice == BUFFER_DEFAULT && !phase->restore))) {
        munmap(driver.buffer, driver.length);
        driver.buffer = NULL;
    }
}

CUresult phase_checkpoint(const struct command *command)
{
    struct phase phase;
    begin(&phase, command, false);
    if (phase.devices_in_use > 0) {
        announce(&phase, command);
        const CUresult rc = plan_checkpoint(&phase.process, phase_visit, &phase);
        if (rc) {
            undo(&phase);
            return rc;
        }
        close_files(&phase);
    }
    atomic_store(&driver.state, CU_PROCESS_STATE_CHECKPOINTED);
    return CUDA_SUCCESS;
}

static CUresult recreate_files(struct phase *phase)
{
    for (int n = 0; n < phase->process.device_count; n++) {
        const int file = device_file_create(n);
        if (file < 0)
            return CUDA_ERROR_OPERATING_SYSTEM;
        struct device *device = &driver.device[n];
        device->file = file;
        if (!device->in_use)
            continue;
        device_back(device, 0, plan_context_bytes(device->context_chunks));
        for (size_t b = 0; b < device->block_count; b++)
            device_back(device, device->blocks[b].offset, device->blocks[b].bytes);
    }
    return CUDA_SUCCESS;
}

CUresult phase_restore(const struct command *command)
{
    struct phase phase;
    begin(&phase, command, true);
    if (phase.devices_in_use > 0) {
        CUresult rc = recreate_files(&phase);
        if (!rc) {
            announce(&phase, command);
            rc = plan_restore(&phase.process, phase_visit, &phase);
        }
        if (rc) {
            undo(&phase);
            if (!driver.buffer)
                atomic_store(&driver.state, CU_PROCESS_STATE_FAILED);
            return rc;
        }
        driver.context_unchecked = true;
    }
    atomic_store(&driver.state, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}
