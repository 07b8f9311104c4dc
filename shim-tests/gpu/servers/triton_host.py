"""Triton: kernels of its own, compiled at run time, over 3 GiB.

One mixes every word in place of a copy and sums them up, one is a softmax. The answer: the sum and a digest of the softmax.
"""

import os
import shutil

import torch

import lines
import tensors

try:
    import triton
    import triton.language as tl
except ImportError as error:
    lines.missing(f"Triton is not installed: {error}")

BLOCK = 1024


@triton.jit
def mix(words, mixed, count, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(words + places, mask=inside, other=0)
    x ^= x << 13
    x ^= x >> 7
    x ^= x << 17
    tl.store(mixed + places, x * (2 * places + 1), mask=inside)


@triton.jit
def softmax(rows, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < columns
    x = tl.load(rows + row * columns + places, mask=inside, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + places, x / tl.sum(x, axis=0), mask=inside)


def main():
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        lines.missing("no C compiler here, which Triton needs")
    # Without a GPU every block takes a millisecond.
    weights = tensors.pieces(3)[: max(1, 12 // lines.SCALE)]
    mixed = torch.empty_like(weights[0])
    torch.manual_seed(1)
    rows = torch.randn(512 // lines.SCALE, BLOCK - 24, device=lines.DEVICE)
    out = torch.empty_like(rows)

    def answer():
        sums = []
        for piece in weights:
            mix[(triton.cdiv(piece.numel(), BLOCK),)](piece, mixed, piece.numel(), BLOCK=BLOCK)
            sums.append(tensors.fingerprint(mixed))
        softmax[(rows.shape[0],)](rows, out, rows.shape[1], BLOCK=BLOCK)
        return lines.digest(repr(sums).encode()), tensors.digest(out)

    answer()
    lines.serve(answer)


main()
