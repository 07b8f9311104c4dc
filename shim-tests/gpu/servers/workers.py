"""A parent with one worker process for each GPU (torch.multiprocessing, spawn): workers.py GPUS [nccl]

Each worker holds 3 GiB of its own and answers through a pipe; the parent does not use CUDA. With `nccl` each answer includes an
all-reduce over all GPUs. The answer has each worker's words.
"""

import os
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import lines
import tensors

SHARED = (64 << 20) // 8 // lines.SCALE  # words that are reduced over all workers


def join(rank, count, meeting):
    backend = "gloo" if lines.DEVICE == "cpu" else "nccl"
    options = {} if lines.DEVICE == "cpu" else {"device_id": torch.device("cuda", rank)}
    torch.distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=count, **options)


def work(rank, count, meeting, pipe):
    device = "cpu" if lines.DEVICE == "cpu" else f"cuda:{rank}"
    if device != "cpu":
        torch.cuda.set_device(rank)
    if meeting:
        join(rank, count, meeting)
    weights = tensors.pieces(3, device)
    weights[0] += rank
    left = torch.full((2048 // lines.SCALE, 2048 // lines.SCALE), 0.5 + rank, device=device)
    shared = torch.empty(SHARED, dtype=torch.int64, device=device)

    def answer():
        words = [tensors.fingerprint(*weights), tensors.digest(left @ left)]
        if meeting:
            # Integers: however they are reduced, the result is the same.
            shared.copy_(weights[0][:SHARED])
            torch.distributed.all_reduce(shared)
            words.append(tensors.fingerprint(shared))
        return words

    answer()
    pipe.send("ready")
    while pipe.recv() == "ask":
        pipe.send(answer())
    if meeting:
        torch.distributed.destroy_process_group()


def main():
    count = int(sys.argv[1])
    meeting = ""
    if "nccl" in sys.argv[2:]:
        meeting = os.path.join(tempfile.mkdtemp(), "meeting")
    context = torch.multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for rank in range(count):
        here, there = context.Pipe()
        worker = context.Process(target=work, args=(rank, count, meeting, there), daemon=True)
        worker.start()
        there.close()
        pipes.append(here)
        workers.append(worker)
    for pipe in pipes:
        pipe.recv()

    def answer():
        for pipe in pipes:
            pipe.send("ask")
        return [word for pipe in pipes for word in pipe.recv()]

    lines.serve(answer)
    for pipe in pipes:
        pipe.send("quit")
    for worker in workers:
        worker.join(60)
    sys.exit(any(worker.exitcode for worker in workers))


if __name__ == "__main__":
    main()
