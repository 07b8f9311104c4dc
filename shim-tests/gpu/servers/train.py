"""A PyTorch training loop: a transformer of some 340 million parameters, AdamW, dropout, batches from a generator on the GPU.

Each `ask` is ten more steps; the answer is their losses, bit for bit, and a fingerprint of all weights and of the optimizer's state. Compared
with the same loop in a process that nobody checkpointed.
"""

import os

# Before CUDA is initialised: what makes matrix products repeat themselves.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

import lines
import tensors

WORDS = 4096
WIDTH = max(64, 1536 // lines.SCALE)
DEPTH = 12 if lines.SCALE == 1 else 2
HEADS = WIDTH // 64 if lines.SCALE == 1 else 2
STEPS = 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, batch):
        return self.out(self.layers(self.words(batch)))


class Loop:
    def __init__(self):
        torch.use_deterministic_algorithms(True)
        # Attention by plain matrix products: the fused kernels' way back does not always repeat itself.
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.manual_seed(1)
        self.model = Model().to(lines.DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.generator = torch.Generator(device=lines.DEVICE)
        self.generator.manual_seed(2)

    def step(self):
        batch = torch.randint(WORDS, (8, 129), device=lines.DEVICE, generator=self.generator)
        logits = self.model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1:].reshape(-1))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def answer(self):
        losses = torch.stack([self.step() for _ in range(STEPS)]).cpu().tolist()
        state = [value for entry in self.optimizer.state.values() for value in entry.values() if torch.is_tensor(value)]
        return [*(loss.hex() for loss in losses), tensors.fingerprint(*self.model.parameters(), *state)]


def main():
    loop = Loop()
    loop.answer()  # the first steps are served before anything is checkpointed
    lines.serve(loop.answer)


main()
