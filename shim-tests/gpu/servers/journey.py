"""One program's way: without the library, then with it, both asked before, between and after the checkpoints."""

import subprocess
import time
from dataclasses import dataclass, field

from cycles import Broken, Refusal, Tool
from sessions import Completions, Lines, Trouble


@dataclass
class Arm:
    name: str
    answers: list = field(default_factory=list)
    cycles: list = field(default_factory=list)
    refusal: Refusal | None = None
    harm: str = ""  # what the refusal did to the program
    detail: str = ""  # of the refusal, the harm, or the request on its way
    in_flight: str = ""  # how the cycle with a request on its way went
    end: str = ""
    problems: list = field(default_factory=list)

    def told(self):
        refusal = self.refusal and {"step": self.refusal.step, "code": self.refusal.code, "text": self.refusal.text}
        return {
            "cycles": self.cycles, "answers": self.answers, "refusal": refusal, "harm": self.harm, "detail": self.detail,
            "in_flight": self.in_flight, "end": self.end, "problems": self.problems,
        }  # fmt: skip


class Journey:
    """`dry`: nothing is checkpointed, everything else is done (a machine without a GPU)."""

    def __init__(self, program, tool, left, dry=False):
        self.program, self.dry, self.left = program, dry, left
        self.tool = Tool(tool, lambda: min(left(), 60))

    def cycle(self, session, arm):
        if self.dry:
            return
        taken = {}
        for verb in ("checkpoint", "restore"):
            taken[verb] = self.tool.step(verb, session.pid, self.program.tree)
            if arm.name == "shim" and taken[verb]["library"] != ["effective"]:
                arm.problems.append(f"{verb} {len(arm.cycles) + 1}: library {', '.join(taken[verb]['library']) or 'not seen'}")
        if taken["checkpoint"]["pids"] != taken["restore"]["pids"]:
            arm.problems.append("not the same processes were checkpointed and restored")
        arm.cycles.append(taken)

    def ask(self, session, arm, expected):
        """One more answer, which must be the expected one: that of the reference, else the first."""
        arm.answers.append(session.ask())
        number = len(arm.answers) - 1
        want = expected[number] if expected else arm.answers[0]
        if arm.answers[-1] != want:
            when = f"after cycle {len(arm.cycles)}" if arm.cycles or number > 1 else "without any checkpoint"
            raise Trouble(f"answer {number + 1} differs {when}: {arm.answers[-1]} in place of {want}")

    def harmed(self, session, arm, expected):
        """Whether a refused program goes on as before, in words that are the same for all arms."""
        if arm.refusal.step not in ("lock", "checkpoint"):
            return "it stays checkpointed"
        end = time.monotonic() + 60
        session.left = lambda: min(self.left(), end - time.monotonic())
        answered = len(arm.answers)
        try:
            self.ask(session, arm, expected)
            return "none"
        except Trouble as trouble:
            arm.detail = str(trouble)
            return "other answers" if len(arm.answers) > answered else "no answers any more"

    def with_stream(self, session, arm, expected):
        """A cycle while an answer is on its way. What goes wrong here takes nothing from the cycles before."""
        try:
            later = session.ask_across(lambda: self.cycle(session, arm))
            self.ask(session, arm, expected)
        except Refusal as refusal:
            arm.in_flight, arm.detail = f"refused: {refusal.step}, error {refusal.code}", str(refusal)
        except (Trouble, Broken) as trouble:
            arm.in_flight, arm.detail = "broken", str(trouble)
        else:
            arm.in_flight = "the same"
            if arm.cycles:
                arm.cycles[-1]["in_flight"] = later

    def travel(self, session, arm, expected):
        for _ in range(2):
            self.ask(session, arm, expected)
        for _ in range(self.program.cycles):
            try:
                self.cycle(session, arm)
            except Refusal as refusal:
                arm.refusal = refusal
                arm.harm = self.harmed(session, arm, expected)
                return
            self.ask(session, arm, expected)
        if self.program.http:
            self.with_stream(session, arm, expected)
        if arm.in_flight not in ("", "the same"):
            return
        if arm.name == "shim" and arm.cycles:
            for pid in arm.cycles[-1]["checkpoint"]["pids"]:
                arm.problems += self.tool.record_problems(pid, len(arm.cycles))
        arm.end = session.stop()

    def go(self, session, arm, expected=()):
        """Never raises for what the program or the tool did wrong."""
        try:
            self.travel(session, arm, expected)
        except (Trouble, Broken, Refusal, OSError, subprocess.SubprocessError) as problem:
            arm.problems.append(str(problem))
        return arm


def reference_answers(session, program):
    return [session.ask() for _ in range(2 + program.cycles)]


def open_session(program, command, environment, log, left, model):
    if program.http:
        return Completions(command, environment, log, left, model=model)
    return Lines(command, environment, log, left, ask=program.ask, reply=program.reply)


def verdict(program, stock, shim):
    """Outcome and why, of both arms."""
    if stock.problems:
        both = "; ".join(f"{arm.name}: {problem}" for arm in (stock, shim) for problem in arm.problems)
        # Without any checkpoint it is the program, or this harness, that is wrong.
        return ("stock fails" if stock.cycles else "wrong"), both
    problems = list(shim.problems)
    if bool(stock.refusal) != bool(shim.refusal) or (stock.refusal and not shim.refusal.same(stock.refusal)):
        problems.append(f"refused: {shim.refusal or 'no'}; without the library: {stock.refusal or 'no'}")
    elif stock.harm != shim.harm:
        problems.append(f"the refusal's harm: {shim.harm}; without the library: {stock.harm}")
    # An answer after a request that broke off may be missing.
    elif any(a != b for a, b in zip(stock.answers, shim.answers)):
        problems.append(f"answers: {shim.answers}; without the library: {stock.answers}")
    if stock.in_flight != shim.in_flight and shim.in_flight != "the same" and not problems:
        problems.append(f"a request on its way: {shim.in_flight} ({shim.detail}); without the library: {stock.in_flight}")
    if stock.end and stock.end != shim.end and not problems:
        problems.append(f"it ends with {shim.end}; without the library with {stock.end}")
    if problems:
        return "wrong", "; ".join(problems)
    if stock.refusal:
        return "refused", f"with and without the library: {stock.refusal}; harm: {stock.harm}"
    flight = "" if stock.in_flight in ("", "the same") else f"request on its way: {stock.in_flight} ({stock.detail}), without the library too"
    return "ok", flight
