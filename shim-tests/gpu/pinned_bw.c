/* Rate of pinned copies, the limit that checkpoint and restore are compared with: pinned_bw [MIB [REPEATS]]
 *
 * Copies MIB (default 1024) from and to pinned host memory REPEATS times (default 10) each way, checks the bytes that came
 * back, and prints one line of JSON: best and median in GB/s (10^9 bytes). */
#include <stdint.h>
#include <time.h>

#include "cu.h"

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_rates(const char *name, double *seconds, int count, double bytes, const char *after) {
    qsort(seconds, count, sizeof *seconds, ascending);
    printf("\"%s\": {\"best\": %.2f, \"median\": %.2f}%s", name, bytes / seconds[0] / 1e9, bytes / seconds[count / 2] / 1e9,
           after);
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1024) << 20;
    int repeats = argc > 2 ? atoi(argv[2]) : 10;
    if (bytes == 0 || repeats < 1 || repeats > 1000) {
        fprintf(stderr, "usage: pinned_bw [MIB [REPEATS 1..1000]]\n");
        return 2;
    }
    device_pointer device;
    uint64_t *host;
    cu_open();
    CU(cuMemAlloc_v2(&device, bytes));
    CU(cuMemHostAlloc((void **)&host, bytes, 0));
    for (size_t i = 0; i < bytes / 8; i++)
        host[i] = i * 0x9e3779b97f4a7c15u;
    double to[1000], from[1000];
    for (int i = 0; i < repeats; i++) {
        double start = now();
        CU(cuMemcpyHtoD_v2(device, host, bytes));
        CU(cuCtxSynchronize());
        to[i] = now() - start;
    }
    memset(host, 0, bytes);
    for (int i = 0; i < repeats; i++) {
        double start = now();
        CU(cuMemcpyDtoH_v2(host, device, bytes));
        CU(cuCtxSynchronize());
        from[i] = now() - start;
    }
    for (size_t i = 0; i < bytes / 8; i++) {
        if (host[i] != i * 0x9e3779b97f4a7c15u) {
            fprintf(stderr, "word %zu came back wrong\n", i);
            return 1;
        }
    }
    printf("{\"bytes\": %zu, \"repeats\": %d, ", bytes, repeats);
    print_rates("host_to_device_gbs", to, repeats, bytes, ", ");
    print_rates("device_to_host_gbs", from, repeats, bytes, "}\n");
    return 0;
}
