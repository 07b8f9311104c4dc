"""Which programs there are, in order of importance: what each is, how it is started, how long it takes, what it needs."""

import os
import shutil
import sys
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass
class Program:
    name: str
    title: str
    seconds: int  # expected on one H200, both arms
    command: list
    modules: tuple = ()  # must be importable
    packages: tuple = ()  # whose versions go into the table
    env: dict = field(default_factory=dict)
    gpus: int = 1
    tree: bool = False  # all CUDA processes below it, itself included
    memory: int = 16  # GiB of main memory for both arms and one buffer
    gpu_memory: int = 24  # GiB on each GPU for both arms
    prepare: list = field(default_factory=list)  # runs once, before
    http: bool = False
    reference: bool = False  # each answer differs from the one before; compared with a process that nobody checkpoints
    ask: str = "ask"
    reply: str = "answer "
    cycles: int = 2


def script(name, *arguments):
    return [sys.executable, "-u", os.path.join(HERE, name), *arguments]


def transformers_command():
    """The package's own command, where it is installed beside this Python."""
    beside = os.path.join(os.path.dirname(sys.executable), "transformers")
    found = beside if os.access(beside, os.X_OK) else shutil.which("transformers")
    return [found] if found else [sys.executable, "-m", "transformers.cli.transformers"]


def servers(model, device):
    listen = ["--host", "127.0.0.1", "--port", "{port}"]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    common = {"http": True, "env": offline, "prepare": script("build_model.py", model)}
    return [
        Program(
            "serve", "`transformers serve`, Llama of 3.0 billion parameters, bf16", 110,
            [*transformers_command(), "serve", model, *listen, "--device", device],
            modules=("transformers", "fastapi", "uvicorn", "openai", "pydantic", "accelerate"), packages=("transformers", "torch"), **common,
        ),
        Program(
            "vllm", "vLLM, the same model", 240,
            ["vllm", "serve", model, *listen, "--gpu-memory-utilization", "0.1"],
            modules=("vllm",), packages=("vllm", "torch"), tree=True, gpu_memory=40, **common,
        ),
        Program(
            "sglang", "SGLang, the same model", 240,
            [sys.executable, "-m", "sglang.launch_server", "--model-path", model, *listen, "--mem-fraction-static", "0.1"],
            modules=("sglang",), packages=("sglang", "torch"), tree=True, gpu_memory=40, **common,
        ),
    ]  # fmt: skip


def single():
    torch = {"modules": ("torch",), "packages": ("torch",)}
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    no_sharing = {**segments, "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0"}
    return [
        Program("train", "PyTorch training loop, AdamW, 340 million parameters", 50, script("train.py"), **torch, reference=True),
        Program("pinned", "PyTorch, 16 GiB of pinned host memory", 70, script("pinned.py"), **torch, memory=42),
        Program("compile", "torch.compile, CUDA graphs", 90, script("compiled.py"), modules=("torch",), packages=("torch", "triton")),
        Program("segments", "PyTorch, expandable segments", 40, script("segments.py"), **torch, env=segments),
        Program("jax", "JAX", 60, script("jax_host.py"), modules=("jax",), packages=("jax", "jaxlib"), gpu_memory=30),
        Program("cupy", "CuPy", 35, script("cupy_host.py"), modules=("cupy",), packages=("cupy-cuda13x", "cupy-cuda12x")),
        Program("triton", "Triton kernels", 35, script("triton_host.py"), modules=("torch", "triton"), packages=("triton", "torch")),
        Program("segments-private", "PyTorch, expandable segments that cannot be shared", 40, script("segments.py"), **torch, env=no_sharing),
    ]


def several(gpus):
    """Parents with a worker for each GPU. NCCL three times: by its own choice, without peer memory, over sockets alone."""
    torch = {"modules": ("torch",), "packages": ("torch",), "gpus": gpus, "tree": True, "memory": 24 * gpus}
    no_peers = {"NCCL_P2P_DISABLE": "1"}
    sockets = {**no_peers, "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}
    command = script("workers.py", str(gpus))
    each = "a worker process for each GPU"
    return [
        Program("workers", f"PyTorch, {each}", 60, command, **torch),
        Program("nccl", f"PyTorch, {each}, NCCL", 60, [*command, "nccl"], **torch),
        Program("nccl-sockets", f"PyTorch, {each}, NCCL over sockets", 60, [*command, "nccl"], **torch, env=sockets),
        Program("nccl-no-peers", f"PyTorch, {each}, NCCL without peer memory", 60, [*command, "nccl"], **torch, env=no_peers),
    ]


def simulated(simapp):
    """Programs for the simulated driver: they go the same way as the others, and nothing else is said by them."""
    command = [simapp, "64"]
    refuse = {"CUDASIM_FAULT": "copy:middle,phase=checkpoint,unmap"}
    words = {"ask": "sum", "reply": "bad ", "memory": 1, "gpu_memory": 1}
    small = {"memory": 1, "gpu_memory": 1}
    return [
        Program("lines", "simapp", 8, command, **words),
        Program("reference", "simapp, compared with one that nobody checkpoints", 8, command, **words, reference=True),
        Program("tree", "two simapps below a parent", 10, script("sim_workers.py", simapp, "64"), tree=True, **small),
        Program("stream", "an HTTP server over simapp", 20, script("sim_http.py", simapp, "4", "{port}"), tree=True, http=True, **small),
        Program("refused", "simapp, a driver that refuses", 6, command, **words, env=refuse),
        Program("absent", "a package that is not there", 6, command, modules=("no_such_module",), **words),
        Program("two-gpus", "more GPUs than there are", 6, command, gpus=64, **words),
    ]


def programs(model, device="cuda:0", gpus=2):
    serve, *others = servers(model, device)
    return [serve, *single(), *several(gpus), *others]
