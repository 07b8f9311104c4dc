"""CuPy: 3 GiB of arrays, kernels compiled at run time (NVRTC), cuBLAS, cuFFT and a generator on the GPU.

The answer: a checksum of the arrays by a kernel of its own, and digests of a product, a transform and random numbers.
"""

import lines

try:
    import cupy
except ImportError as error:
    lines.missing(f"CuPy is not installed: {error}")

PIECE = (256 << 20) // 8 // lines.SCALE

# Sums of integers: the order in which the GPU adds them does not matter.
CHECKSUM = r"""
extern "C" __global__ void checksum(const unsigned long long *words, unsigned long long count, unsigned long long *sum) {
    unsigned long long part = 0;
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
         i += (unsigned long long)gridDim.x * blockDim.x)
        part += words[i] * (2 * i + 1);
    atomicAdd(sum, part);
}
"""


def main():
    kernel = cupy.RawKernel(CHECKSUM, "checksum")
    arrays = [cupy.arange(PIECE, dtype=cupy.int64) * 6364136223846793005 ^ number for number in range(12)]
    left = cupy.random.default_rng(1).standard_normal((2048, 2048), dtype=cupy.float32)

    def checksum(array):
        total = cupy.zeros(1, cupy.uint64)
        kernel((256,), (256,), (array, cupy.uint64(array.size), total))
        return int(total[0])

    def answer():
        drawn = cupy.random.default_rng(2).standard_normal(4096, dtype=cupy.float32)
        results = left @ left, cupy.fft.rfft(left, axis=1), drawn
        sums = repr([checksum(array) for array in arrays]).encode()
        return [lines.digest(sums), *(lines.digest(cupy.asnumpy(result).tobytes()) for result in results)]

    answer()
    lines.serve(answer)


main()
