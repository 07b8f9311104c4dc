"""Runs the plan: log, JSON and exit status. Called by scripts/gpu-servers, which says what the options mean."""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import journey
import plan
from sessions import Missing, Trouble

FAILED, CANNOT, INCOMPLETE = 1, 2, 3

# For dry runs without a GPU: small sizes, no other device, one thread each.
CPU = {
    "SERVERS_DEVICE": "cpu", "SERVERS_SCALE": "16", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TRITON_INTERPRET": "1",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip


def options():
    parser = argparse.ArgumentParser(prog="gpu-servers", add_help=False)
    parser.add_argument("--artifacts", required=True)
    parser.add_argument("--out", default=".")
    parser.add_argument("--deadline", type=float, default=570)
    parser.add_argument("--only", default="")
    parser.add_argument("--touch-gib", type=int)
    parser.add_argument("--plan", action="store_true")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--sim", action="store_true")
    mode.add_argument("--cpu", action="store_true")
    return parser.parse_args()


def machine_line():
    with open("/proc/meminfo") as meminfo:
        total = int(meminfo.readline().split()[1]) / 2**20
    return f"{os.cpu_count()} CPUs, {total:.0f} GiB, kernel {platform.release()}, Python {platform.python_version()}"


def available_gib():
    with open("/proc/meminfo") as meminfo:
        return next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable")) / 2**20


def limit_gib():
    """What this machine or its control group allows."""
    with open("/proc/meminfo") as meminfo:
        total = int(meminfo.readline().split()[1]) / 2**20
    try:
        with open("/sys/fs/cgroup/memory.max") as limit:
            return int(limit.read()) / 2**30
    except (OSError, ValueError):
        return total


class Run:
    def __init__(self, chosen, work):
        self.chosen = chosen
        self.begin = time.monotonic()
        self.art = os.path.abspath(chosen.artifacts)
        self.tool = os.path.join(self.art, "cudasnap")
        self.library = os.path.join(self.art, "libcudasnap.so")
        self.out = os.path.abspath(chosen.out)
        self.work = work
        self.results = []
        self.device, self.driver, self.gpus = "", "", []
        self.programs = self.choose()
        if not chosen.plan:
            os.makedirs(self.out, exist_ok=True)
            self.log = open(os.path.join(self.out, "gpu-servers.log"), "w")

    def say(self, text):
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def left(self):
        return self.chosen.deadline - (time.monotonic() - self.begin)

    def choose(self):
        if self.chosen.sim:
            known = plan.simulated(os.path.join(self.art, "simapp"))
        else:
            self.model = os.path.join(self.work, "model")
            known = plan.programs(self.model, "cpu" if self.chosen.cpu else "cuda:0")
        names = [name for name in self.chosen.only.split(",") if name]
        unknown = set(names) - {program.name for program in known}
        if unknown:
            raise ValueError(f"no program {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in known)}")
        return [program for program in known if not names or program.name in names]

    def look(self):
        """What GPUs there are, by the tool, which does not initialise CUDA."""
        if self.chosen.cpu:
            self.device = "none: nothing is checkpointed"
            return
        done = subprocess.run([self.tool, "status", "--json"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        nvml = json.loads(done.stdout)["nvml"]
        self.gpus, self.driver = nvml["gpus"], nvml["driver"]
        if not self.gpus:
            raise OSError(f"no NVIDIA GPU here: {nvml['reason']}")
        self.device = f"{len(self.gpus)} x {self.gpus[0]['name']}"

    def free_gpu_gib(self):
        if not self.gpus:
            return 1e6
        self.look()
        return min(gpu["free"] for gpu in self.gpus) / 2**30

    def touch(self):
        """A fresh virtual machine's memory is slow the first time, whoever takes it: all arms should find it as they will later."""
        if self.chosen.cpu or self.chosen.sim or not any(program.memory > 1 for program in self.programs):
            return
        gib = self.chosen.touch_gib
        if gib is None:
            gib = int(min(72 * max(1, len(self.gpus)), limit_gib() * 0.8))
        if gib:
            done = subprocess.run(
                [os.path.join(self.art, "touch_mem"), str(gib), "60"], capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            self.say(f"touch: {(done.stdout + done.stderr).strip()}")

    # One program.

    def obstacle(self, program):
        """Why it is not run: outcome and reason."""
        if len(self.gpus) < program.gpus and not self.chosen.cpu:
            return "skipped", f"{len(self.gpus)} GPU(s) here, {program.gpus} are needed"
        for module in program.modules:
            if importlib.util.find_spec(module) is None:
                return "skipped", f"the Python package {module} is not installed"
        if shutil.which(program.command[0]) is None:
            return "skipped", f"{program.command[0]} is not there"
        if program.seconds > self.left():
            return "left out", f"it takes about {program.seconds} s, {self.left():.0f} s are left"
        if self.chosen.cpu:
            return None
        if available_gib() < program.memory:
            return "left out", f"{available_gib():.0f} GiB of main memory are free, {program.memory} are needed"
        if self.free_gpu_gib() < program.gpu_memory:
            return "left out", f"{self.free_gpu_gib():.0f} GiB on the GPU are free, {program.gpu_memory} are needed"
        return None

    def environment(self, program):
        environment = {**os.environ, **program.env}
        # One for both arms: compilers choose kernels by timing them, and another choice rounds otherwise (seen on an H200 with
        # torch.compile: the answers of two starts differed, before any checkpoint).
        own = os.path.join(self.work, program.name)
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"):
            environment[name] = os.path.join(own, name.lower())
        environment["CUDASNAP_LIB"] = self.library
        if program.gpus == 1 and not self.chosen.sim and not self.chosen.cpu:
            environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
        if self.chosen.cpu:
            environment.update(CPU)
        return environment

    def prepare(self, program, left):
        if not program.prepare or os.path.isdir(self.model):
            return
        done = subprocess.run(
            program.prepare, capture_output=True, text=True, timeout=max(1, left()), stdin=subprocess.DEVNULL,
            env=self.environment(program),
        )  # fmt: skip
        if done.returncode != 0:
            raise Trouble(f"preparation: status {done.returncode}: {done.stderr.strip()[-400:]}")
        self.say(f"   {done.stdout.strip().splitlines()[-1]}")

    def start(self, program, arm, left):
        command = program.command
        if arm == "shim":
            command = [self.tool, "run", "--require", "--", *command]
        log = os.path.join(self.work, f"{program.name}-{arm}.log")
        model = getattr(self, "model", "")
        return journey.open_session(program, command, self.environment(program), log, left, model)

    def travel(self, program, left):
        """All arms are started at once, to save time; they travel one after the other."""
        names = [*(["reference"] if program.reference else []), "stock", "shim"]
        sessions, arms = {}, {}
        try:
            for name in names:
                sessions[name] = self.start(program, name, left)
            for name in names:
                try:
                    sessions[name].ready()
                except Trouble as trouble:
                    raise Trouble(f"{name} does not start: {trouble}") from None
            expected = []
            if program.reference:
                expected = journey.reference_answers(sessions["reference"], program)
                sessions["reference"].stop()
            way = journey.Journey(program, self.tool, left, self.chosen.cpu)
            for name in ("stock", "shim"):
                arms[name] = way.go(sessions[name], journey.Arm(name), expected)
                sessions[name].kill()
                self.say(f"   {name}: {summary(arms[name])}")
        finally:
            for name, session in sessions.items():
                session.kill()
                self.keep_log(program, name)
        return arms

    def keep_log(self, program, arm):
        with open(os.path.join(self.work, f"{program.name}-{arm}.log"), errors="replace") as log:
            said = log.read()
        self.log.write(f"---- {program.name}, {arm}\n{said[:200]}{'...' if len(said) > 4200 else ''}\n{said[200:][-4000:]}\n")

    def one(self, program):
        begin = time.monotonic()
        limit = min(self.left(), (60 + 2 * program.seconds) * (4 if self.chosen.cpu else 1))
        left = lambda: limit - (time.monotonic() - begin)  # noqa: E731
        arms = {}
        obstacle = self.obstacle(program)
        self.say(f"== {program.name}: {program.title} ({time.monotonic() - self.begin:.0f} s)")
        if obstacle:
            outcome, why = obstacle
        else:
            try:
                self.prepare(program, left)
                arms = self.travel(program, left)
                outcome, why = journey.verdict(program, arms["stock"], arms["shim"])
                if self.chosen.cpu and outcome == "ok":
                    outcome = "dry"
            except Missing as missing:
                outcome, why = "skipped", str(missing)
            except (Trouble, OSError, subprocess.SubprocessError) as trouble:
                outcome, why = "wrong", str(trouble)
        taken = time.monotonic() - begin
        self.say(f"{outcome.upper() if outcome == 'wrong' else outcome}: {program.name} ({taken:.0f} s){': ' + why if why else ''}")
        self.results.append(
            {
                "name": program.name, "title": program.title, "outcome": outcome, "why": why, "gpus": program.gpus,
                "versions": versions(program.packages), "seconds": round(taken, 1),
                "arms": {name: arm.told() for name, arm in arms.items()},
            }
        )  # fmt: skip
        self.write()

    def write(self):
        told = {
            "schema": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine_line(), "device": self.device,
            "driver": self.driver, "cudasnap": self.version(), "mode": "sim" if self.chosen.sim else "cpu" if self.chosen.cpu else "gpu",
            "programs": self.results,
        }  # fmt: skip
        path = os.path.join(self.out, "servers.json")
        with open(path + ".new", "w") as file:
            json.dump(told, file, indent=1)
        os.replace(path + ".new", path)

    def version(self):
        done = subprocess.run([self.tool, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stdout.strip()

    def all(self):
        for program in self.programs:
            self.one(program)
        counts = {}
        for result in self.results:
            counts[result["outcome"]] = counts.get(result["outcome"], 0) + 1
        self.say(f"gpu-servers: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}; {time.monotonic() - self.begin:.0f} s")
        if counts.get("wrong"):
            return FAILED
        return INCOMPLETE if counts.get("left out") or counts.get("stock fails") else 0


def versions(packages):
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def summary(arm):
    """One line of what an arm did."""
    parts = [
        f"{cycle['checkpoint']['seconds']:.2f} + {cycle['restore']['seconds']:.2f} s"
        + (f" ({cycle['checkpoint']['bytes'] / 1e9:.2f} GB)" if cycle["checkpoint"]["bytes"] else "")
        for cycle in arm.cycles
    ]
    flight = arm.in_flight and f"request on its way: {arm.in_flight}"
    for text in (arm.refusal and f"refused: {arm.refusal}", flight, arm.detail, *arm.problems):
        if text:
            parts.append(text)
    return "; ".join([*parts, f"{len(arm.answers)} answers", arm.end or "not ended by itself"])


def print_plan(programs):
    total = 0
    for program in programs:
        total += program.seconds
        print(f"{program.name:17} {program.seconds:4} s  {program.gpus} GPU{'s' if program.gpus > 1 else ' '}  {program.title}")
    print(f"{'all':17} {total:4} s")


ENDING = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


def ended(number, _frame):
    """Once: a second signal must not stop the programs from being ended, which are in sessions of their own."""
    for other in ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main():
    for number in ENDING:
        signal.signal(number, ended)
    chosen = options()
    work = tempfile.mkdtemp(prefix="gpu-servers-")
    try:
        return at_work(chosen, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def at_work(chosen, work):
    try:
        run = Run(chosen, work)
        if chosen.plan:
            print_plan(run.programs)
            return 0
        run.look()
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        print(f"gpu-servers: {error}", file=sys.stderr)
        return CANNOT
    run.say(f"device: {run.device}, driver {run.driver}; {machine_line()}; {time.strftime('%F', time.gmtime())}")
    run.touch()
    return run.all()


sys.exit(main())
