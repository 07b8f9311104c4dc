"""A server with 16 GiB of pinned host memory (cudaHostAlloc, by PyTorch's pin_memory) beside 2 GiB on the GPU.

The answer: what the CPU reads in it, what the GPU is given of it by copies, and what is on the GPU.
"""

import torch

import lines
import tensors

GIB = 16
EACH = (1 << 30) // 8 // lines.SCALE  # words in one piece


def main():
    on_gpu = tensors.pieces(2)
    pin = lines.DEVICE != "cpu"
    staged = torch.empty(EACH, dtype=torch.int64, device=lines.DEVICE)
    generator = torch.Generator(device=lines.DEVICE)
    host = []
    for number in range(GIB):
        generator.manual_seed(number)
        piece = torch.empty(EACH, dtype=torch.int64, pin_memory=pin)
        piece.copy_(staged.random_(-(2**61), 2**61, generator=generator))
        assert not pin or piece.is_pinned()
        host.append(piece)

    def answer():
        by_cpu = [int(piece.sum()) for piece in host]
        by_gpu = []
        for piece in host:
            staged.copy_(piece, non_blocking=True)
            by_gpu.append(tensors.fingerprint(staged))
        return lines.digest(repr(by_cpu).encode()), lines.digest(repr(by_gpu).encode()), tensors.fingerprint(*on_gpu)

    answer()
    lines.serve(answer)


main()
