"""Contents of PyTorch tensors that can be told from others bit for bit."""

import torch

import lines

PIECE = (256 << 20) // 8 // lines.SCALE  # words of 8 bytes: 256 MiB
WINDOW = 8 << 20  # words that are looked at at once


def pieces(gib, device=None):
    """So many GiB of random words, from a fixed seed."""
    device = torch.device(device or lines.DEVICE)
    generator = torch.Generator(device=device)
    made = []
    for number in range(gib * 4):
        generator.manual_seed(1000 + number)
        piece = torch.empty(PIECE, dtype=torch.int64, device=device)
        made.append(piece.random_(-(2**61), 2**61, generator=generator))
    return made


def fingerprint(*tensors):
    """One number that depends on every bit and its place. Sums of integers: the order in which they are added does not matter."""
    total = 0
    for tensor in tensors:
        raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
        words = raw[: raw.numel() // 8 * 8].view(torch.int64)
        for start in range(0, words.numel(), WINDOW):
            window = words[start : start + WINDOW]
            places = torch.arange(start, start + window.numel(), device=window.device).mul_(2).add_(1)
            total = (total * 31 + int(places.mul_(window).sum())) % 2**64
        total = (total * 31 + int(raw[words.numel() * 8 :].to(torch.int64).sum())) % 2**64
    return f"{total:016x}"


def digest(tensor):
    return lines.digest(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
