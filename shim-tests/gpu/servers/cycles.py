"""Checkpoint and restore through the tool, what it says about them, and the library's own record."""

import json
import os
import subprocess
import time


class Refusal(Exception):
    """What the driver refused, or did not survive: the step, its code, the tool's words."""

    def __init__(self, step, code, text):
        super().__init__(f"{step}: {text} ({code})")
        self.step, self.code, self.text = step, code, text

    def same(self, other):
        return (self.step, self.code) == (other.step, other.code)


class Broken(Exception):
    """The tool, or what it was asked to do, did not work, and not for a reason of the driver's."""


class Tool:
    def __init__(self, path, left):
        self.path, self.left = path, left

    def call(self, *words):
        """Its JSON object, and the seconds that the whole call took."""
        begin = time.monotonic()
        try:
            done = subprocess.run(
                [self.path, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=max(1, self.left())
            )
        except subprocess.TimeoutExpired:
            raise Refusal(words[0], "no end", f"cudasnap {words[0]} does not come back") from None
        try:
            return json.loads(done.stdout), time.monotonic() - begin
        except ValueError:
            raise Broken(f"cudasnap {' '.join(words)}: status {done.returncode}: {done.stderr.strip()[-300:]}") from None

    def step(self, verb, pid, tree):
        """`checkpoint` or `restore` of a process, or of all below it. Seconds are those in the driver's calls, of the slowest process."""
        limits = ["--patience", "60"] + (["--timeout", "30"] if verb == "checkpoint" else [])
        said, wall = self.call(verb, "--json", *limits, *(["--tree"] if tree else []), str(pid))
        for process in said["processes"]:
            for trouble in process["troubles"]:
                # Code 0: not an error of the driver's, but what came of its call (the process died, say).
                raise Refusal(trouble["step"] or verb, trouble["code"], trouble["text"])
        if said["status"] != 0:
            raise Broken(f"cudasnap {verb}: status {said['status']}: {'; '.join(said['errors']) or 'no reason given'}")
        done = [process for process in said["processes"] if process["outcome"] == "done"]
        if not done:
            raise Broken(f"cudasnap {verb}: nothing was done")
        steps = [step for process in done for step in process["steps"]]
        recorded = [step["recorded"] for step in steps if step.get("recorded")]
        return {
            "seconds": max(sum(step["seconds"] for step in process["steps"]) for process in done),
            "wall": wall,
            "pids": [process["pid"] for process in done],
            "steps": {name: max(step["seconds"] for step in steps if step["step"] == name) for name in {step["step"] for step in steps}},
            "bytes": sum(entry["bytes"] for entry in recorded),
            "library": sorted({step["library"] for step in steps if "library" in step}),
        }

    def record_problems(self, pid, cycles):
        """What in the library's account of a process is not as it must be after so many whole cycles."""
        said, _ = self.call("status", "--json", str(pid))
        record = next(((process.get("library") or {}).get("record") for process in said["processes"]), None)
        if not record:
            return [f"process {pid}: the library is not in it, or its record cannot be read"]
        return [f"process {pid}: {problem}" for problem in record_faults(record, cycles) + helpers_left(pid)]


def record_faults(record, cycles):
    counters, history = record["counters"], record["history"]
    faults = []
    if (counters["requests"], counters["answered"]) != (cycles, cycles):
        faults.append(f"{counters['answered']} of {counters['requests']} requests answered, {cycles} expected")
    ways = [phase["direction"] for phase in history]
    if ways != ["checkpoint", "restore"] * min(cycles, 4):
        faults.append(f"phases {ways} after {cycles} cycles")
    for phase in history:
        if phase["end"] != "covered" or phase["copied"] != phase["expected"] or not phase["copied"]:
            faults.append(f"{phase['direction']} {phase['end']}: {phase['copied']} of {phase['expected']} bytes")
    if counters["steps"]:
        faults.append(f"steps down: {counters['steps']}")
    return faults


def helpers_left(pid, patience=10):
    """Threads of the library that do not go away."""
    end = time.monotonic() + patience
    while True:
        names = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{thread}/comm") as comm:
                    names.append(comm.read().strip())
            except OSError:
                pass
        left = [name for name in names if name.startswith("csnap-")]
        if not left:
            return []
        if time.monotonic() > end:
            return [f"helpers are left: {', '.join(left)}"]
        time.sleep(0.05)
