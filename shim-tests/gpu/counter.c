/* A CUDA program with a kernel of its own: counter [MIB]
 *
 * A kernel adds 1 to every element of an array in device memory; MIB of filler with a pattern lie beside it. A 64-bit device
 * variable is for those who look into the checkpointed program. Prints `ready PID`; answers `step` with `value N` after one
 * launch, `sum` with `bad N` (elements that are not the number of launches, and filler words that changed), `set N` with
 * `ok` (the variable is N), `grow` with `ok` (a kernel has added 1 to it, so that its value was never in host memory), `get` with
 * `variable N`; ends on `quit` or end of input. */
#include <inttypes.h>
#include <stdint.h>
#include <unistd.h>

#include "cu.h"

enum { ELEMENTS = 1 << 20, BLOCK = 256, PIECE = 1 << 20 };

/* Target and version are filled in: a driver may have dropped the oldest target. */
static const char kernel_text[] =
    ".version 7.0\n.target %s\n.address_size 64\n"
    ".visible .global .align 8 .u64 variable;\n"
    ".visible .entry grow() {\n"
    "  .reg .b64 %%d<3>;\n"
    "  ld.global.u64 %%d1, [variable]; add.u64 %%d2, %%d1, 1; st.global.u64 [variable], %%d2;\n"
    "  ret;\n}\n"
    ".visible .entry bump(.param .u64 array, .param .u32 count) {\n"
    "  .reg .pred %%p<2>; .reg .b32 %%r<7>; .reg .b64 %%d<5>;\n"
    "  ld.param.u64 %%d1, [array]; ld.param.u32 %%r1, [count];\n"
    "  mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ntid.x; mov.u32 %%r4, %%tid.x;\n"
    "  mad.lo.s32 %%r5, %%r2, %%r3, %%r4;\n"
    "  setp.ge.u32 %%p1, %%r5, %%r1;\n"
    "  @%%p1 bra DONE;\n"
    "  cvta.to.global.u64 %%d2, %%d1; mul.wide.u32 %%d3, %%r5, 4; add.s64 %%d4, %%d2, %%d3;\n"
    "  ld.global.u32 %%r6, [%%d4]; add.u32 %%r6, %%r6, 1; st.global.u32 [%%d4], %%r6;\n"
    "DONE:\n  ret;\n}\n";

static int (*cuModuleLoadData)(void **module, const void *image);
static int (*cuModuleGetFunction)(void **function, void *module, const char *name);
static int (*cuModuleGetGlobal_v2)(device_pointer *to, size_t *bytes, void *module, const char *name);
static int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                             void **extra);

static device_pointer array, filler, variable;
static size_t filler_words;
static void *bump, *grow;
static uint32_t host[PIECE];

static uint32_t pattern(size_t word) { return (uint32_t)(word * 2654435761u ^ word >> 7); }

static void load_kernel(void *library) {
    static const char *const targets[] = {"sm_70", "sm_75", "sm_80", "sm_90"};
    *(void **)&cuModuleLoadData = cu_symbol(library, "cuModuleLoadData");
    *(void **)&cuModuleGetFunction = cu_symbol(library, "cuModuleGetFunction");
    *(void **)&cuModuleGetGlobal_v2 = cu_symbol(library, "cuModuleGetGlobal_v2");
    *(void **)&cuLaunchKernel = cu_symbol(library, "cuLaunchKernel");
    void *module;
    int code = 0;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        char text[sizeof kernel_text + 16];
        snprintf(text, sizeof text, kernel_text, targets[i]);
        code = cuModuleLoadData(&module, text);
        if (code == 0)
            break;
    }
    cu_check(code, "cuModuleLoadData");
    CU(cuModuleGetFunction(&bump, module, "bump"));
    CU(cuModuleGetFunction(&grow, module, "grow"));
    CU(cuModuleGetGlobal_v2(&variable, NULL, module, "variable"));
}

static void fill(void) {
    if (filler_words == 0)
        return;
    CU(cuMemAlloc_v2(&filler, filler_words * 4));
    for (size_t done = 0; done < filler_words; done += PIECE) {
        for (size_t i = 0; i < PIECE; i++)
            host[i] = pattern(done + i);
        CU(cuMemcpyHtoD_v2(filler + done * 4, host, sizeof host));
    }
}

static void launch(void) {
    unsigned count = ELEMENTS;
    void *parameters[] = {&array, &count};
    CU(cuLaunchKernel(bump, ELEMENTS / BLOCK, 1, 1, BLOCK, 1, 1, 0, NULL, parameters, NULL));
    CU(cuCtxSynchronize());
}

static uint64_t variable_now(void) {
    uint64_t value;
    CU(cuMemcpyDtoH_v2(&value, variable, sizeof value));
    return value;
}

static void set_variable(uint64_t value) { CU(cuMemcpyHtoD_v2(variable, &value, sizeof value)); }

static void grow_variable(void) {
    CU(cuLaunchKernel(grow, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CU(cuCtxSynchronize());
}

static size_t wrong_words(uint32_t launches) {
    size_t wrong = 0;
    for (size_t done = 0; done < ELEMENTS; done += PIECE) {
        CU(cuMemcpyDtoH_v2(host, array + done * 4, sizeof host));
        for (size_t i = 0; i < PIECE; i++)
            wrong += host[i] != launches;
    }
    for (size_t done = 0; done < filler_words; done += PIECE) {
        CU(cuMemcpyDtoH_v2(host, filler + done * 4, sizeof host));
        for (size_t i = 0; i < PIECE; i++)
            wrong += host[i] != pattern(done + i);
    }
    return wrong;
}

int main(int argc, char **argv) {
    filler_words = argc > 1 ? strtoull(argv[1], NULL, 10) << 18 : 0;
    load_kernel(cu_open());
    CU(cuMemAlloc_v2(&array, ELEMENTS * 4));
    CU(cuMemsetD32_v2(array, 0, ELEMENTS));
    set_variable(0);
    fill();
    uint32_t launches = 0;
    char line[64];
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n") != 0) {
        if (strcmp(line, "step\n") == 0) {
            uint32_t value;
            launch();
            launches++;
            CU(cuMemcpyDtoH_v2(&value, array, sizeof value));
            printf("value %u\n", value);
        } else if (strcmp(line, "sum\n") == 0) {
            printf("bad %zu\n", wrong_words(launches));
        } else if (strncmp(line, "set ", 4) == 0) {
            set_variable(strtoull(line + 4, NULL, 10));
            printf("ok\n");
        } else if (strcmp(line, "grow\n") == 0) {
            grow_variable();
            printf("ok\n");
        } else if (strcmp(line, "get\n") == 0) {
            printf("variable %" PRIu64 "\n", variable_now());
        } else {
            printf("unknown\n");
        }
        fflush(stdout);
    }
    return 0;
}
