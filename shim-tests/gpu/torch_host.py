"""A PyTorch process to checkpoint: torch_host.py [GIB]

Holds GIB of weights, a captured CUDA graph and 256 MiB of pinned host memory. Prints `ready PID`; answers `sum` with
`bad N`: weights that differ from what their seed makes, elements of the graph's output that a replay computes otherwise than
at first, pinned words that changed (seen by the CPU, and by the GPU through a copy). `rewrite` fills everything with new
values. Ends on `quit` or end of input.
"""

import os
import sys

import torch

PIECE = 64 << 20  # elements of 4 bytes: 256 MiB
PINNED = 64 << 20


class Host:
    def __init__(self, gib):
        self.generator = torch.Generator(device="cuda")
        count = max(1, round(gib * 4))
        self.weights = [torch.empty(PIECE, dtype=torch.int32, device="cuda") for _ in range(count)]
        # Made once, so that checking does not change how much memory the process holds.
        self.fresh = torch.empty(PIECE, dtype=torch.int32, device="cuda")
        self.pinned = torch.empty(PINNED, dtype=torch.int32, pin_memory=True)
        self.expected_pinned = torch.empty(PINNED, dtype=torch.int32)
        self.inputs = torch.empty(2048, 2048, device="cuda")
        self.layer = torch.empty(2048, 2048, device="cuda")
        self.graph, self.output = self.capture()
        # New ones each time would be kept by the allocator and look like a leak.
        self.seen_output = torch.empty(self.output.shape)
        self.expected_output = torch.empty(self.output.shape)
        self.seed = 0
        self.rewrite()

    def compute(self):
        return torch.relu(self.inputs @ self.layer) @ self.layer

    def capture(self):
        self.inputs.fill_(1)
        self.layer.fill_(1)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up outside the capture
            self.compute()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self.compute()
        return graph, output

    def make(self, number, into):
        self.generator.manual_seed(self.seed * 1000 + number)
        return into.random_(-(2**31), 2**31 - 1, generator=self.generator)

    def rewrite(self):
        self.seed += 1
        for number, weights in enumerate(self.weights):
            self.make(number, weights)
        torch.arange(self.seed, self.seed + PINNED, dtype=torch.int32, out=self.expected_pinned)
        self.pinned.copy_(self.expected_pinned)
        self.generator.manual_seed(self.seed)
        self.inputs.normal_(generator=self.generator)
        self.layer.normal_(generator=self.generator)
        self.replay(self.expected_output)

    def replay(self, into):
        self.output.zero_()
        self.graph.replay()
        torch.cuda.synchronize()
        into.copy_(self.output)

    def wrong(self):
        wrong = 0
        for number, weights in enumerate(self.weights):
            wrong += int((weights != self.make(number, self.fresh)).sum())
        self.replay(self.seen_output)
        wrong += int((self.seen_output != self.expected_output).sum())
        wrong += int((self.pinned != self.expected_pinned).sum())
        self.fresh.copy_(self.pinned, non_blocking=True)
        ramp = torch.arange(self.seed, self.seed + PINNED, dtype=torch.int32, device="cuda")
        wrong += int((self.fresh != ramp).sum())
        torch.cuda.synchronize()
        return wrong


def main():
    host = Host(float(sys.argv[1]) if len(sys.argv) > 1 else 6)
    print(f"ready {os.getpid()}", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "quit":
            break
        if word == "sum":
            print(f"bad {host.wrong()}", flush=True)
        elif word == "rewrite":
            host.rewrite()
            print("ok", flush=True)
        else:
            print("unknown", flush=True)


main()
