"""PyTorch with expandable segments (PYTORCH_CUDA_ALLOC_CONF): device memory that is reserved, mapped and unmapped piece by piece.

4 GiB of weights with holes where others were freed and given back to the driver. The answer is a fingerprint of the weights and a digest of
a product.
"""

import torch

import lines
import tensors


def expandable():
    return any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())


def main():
    kept = tensors.pieces(4)
    between = tensors.pieces(2)
    kept += tensors.pieces(1)
    del between[::2]
    if lines.DEVICE != "cpu":
        torch.cuda.empty_cache()
        if not expandable():
            lines.missing("the allocator made no expandable segment")
    torch.manual_seed(3)
    left = torch.randn(4096 // lines.SCALE, 4096 // lines.SCALE, device=lines.DEVICE)

    def answer():
        # New memory each time: the segment grows and shrinks.
        product = torch.relu(left @ left) @ left
        return tensors.fingerprint(*kept, *between), tensors.digest(product)

    answer()
    lines.serve(answer)


main()
