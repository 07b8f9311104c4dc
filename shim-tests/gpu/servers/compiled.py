"""torch.compile and CUDA graphs: the same blocks compiled, compiled with CUDA graphs (`reduce-overhead`), and in a graph of their own.

Some 1.6 GB of weights. Each `ask` runs all three on fixed input; the answer has a digest of each output. The compiled ones are compiled
before `ready`, by Triton and the machine's C compiler.
"""

import importlib.util
import os
import shutil

import torch
from torch import nn

import lines
import tensors

WIDTH = 4096 // lines.SCALE
DEPTH = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, -1, 64).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def needs():
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        lines.missing("no C compiler here, which Triton and torch.compile need")
    if lines.DEVICE != "cpu" and importlib.util.find_spec("triton") is None:
        lines.missing("Triton is not installed")


class Host:
    def __init__(self):
        torch.manual_seed(1)
        dtype = torch.bfloat16
        with torch.device(lines.DEVICE):
            self.model = nn.Sequential(*(Block() for _ in range(DEPTH))).to(dtype).eval()
            self.input = torch.randn(4, 256 // lines.SCALE, WIDTH, dtype=dtype)
        self.plain = torch.compile(self.model)
        self.reduced = torch.compile(self.model, mode="reduce-overhead")
        self.graph = None

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up outside the capture
            self.model(self.input)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.model(self.input)

    def replay(self):
        if self.graph is None:  # no GPU: a dry run
            return self.model(self.input)
        self.output.zero_()
        self.graph.replay()
        return self.output

    @torch.no_grad()
    def warm(self):
        # The first two runs of `reduce-overhead` warm up and record.
        for _ in range(3):
            self.plain(self.input)
            self.reduced(self.input)
        if lines.DEVICE != "cpu":
            self.capture()

    @torch.no_grad()
    def answer(self):
        torch.compiler.cudagraph_mark_step_begin()
        outputs = [self.plain(self.input).clone(), self.reduced(self.input).clone(), self.replay().clone()]
        return [tensors.digest(output) for output in outputs]


def main():
    needs()
    host = Host()
    host.warm()
    lines.serve(host.answer)


main()
