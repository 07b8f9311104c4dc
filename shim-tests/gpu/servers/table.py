"""Makes the table of docs/compatibility.md from what gpu-servers wrote: table.py [--doc FILE] servers.json...

Prints it, and puts it between the markers of FILE. Of a program that is in several files the last one counts, but for runs in which it was
skipped or left out. Dry runs are refused.
"""

import argparse
import json
import statistics
import sys

BEGIN, END = "<!-- servers: begin -->", "<!-- servers: end -->"
NOT_RUN = ("skipped", "left out")


def chosen(runs):
    """Name, program and its run, in the order of the first run that has it."""
    found = {}
    for run in runs:
        if run["mode"] != "gpu":
            raise SystemExit(f"table: a dry run ({run['mode']}) says nothing about a GPU")
        for program in run["programs"]:
            before = found.get(program["name"])
            if before is None or program["outcome"] not in NOT_RUN or before[0]["outcome"] in NOT_RUN:
                found[program["name"]] = program, run
    return found.values()


def median(program, arm, verb):
    cycles = program["arms"].get(arm, {}).get("cycles", [])
    # A cycle with a request on its way also waits for that.
    idle = [cycle[verb]["seconds"] for cycle in cycles if "in_flight" not in cycle]
    return statistics.median(idle) if idle else None


def times(program):
    cells = []
    for verb in ("checkpoint", "restore"):
        stock, shim = (median(program, arm, verb) for arm in ("stock", "shim"))
        cells += [f"{seconds:.2f} s" if seconds is not None else "-" for seconds in (stock, shim)]
        cells.append(f"{stock / shim:.1f}" if stock and shim else "-")
    return cells


def contents(program):
    if program["outcome"] == "ok":
        later = program["arms"]["shim"]["in_flight"]
        return "the same answers" + (", a stream on its way too" if later == "the same" else "")
    words = {"refused": "refused by the driver ¹", "wrong": "**WRONG**", "stock fails": "wrong without the library"}
    return words[program["outcome"]]


def buffer(program):
    sizes = [cycle["checkpoint"]["bytes"] for cycle in program["arms"].get("shim", {}).get("cycles", [])]
    return f"{sizes[-1] / 1e9:.2f} GB" if sizes else "-"


def escaped(text):
    return " ".join(text.replace("|", "\\|").split())


def rows(programs):
    yield "| program | version | GPUs | buffer | checkpoint: stock | cudasnap | ratio | restore: stock | cudasnap | ratio | contents | date | machine |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|---|"
    for program, run in programs:
        if program["outcome"] in NOT_RUN:
            continue
        version = ", ".join(f"{name} {number}" for name, number in program["versions"].items())
        cells = [program["title"], version, str(program["gpus"]), buffer(program), *times(program), contents(program), run["date"], run["device"]]
        yield "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def remarks(programs):
    """What is below the table: machines, refusals in the driver's words, what did not run and why."""
    machines = {f"{run['device']}, {run['date']}: driver {run['driver']}, {run['machine']}, {run['cudasnap']}" for _, run in programs}
    yield from sorted(machines)
    for program, _ in programs:
        if program["outcome"] not in NOT_RUN and program["why"]:
            yield f"{program['title']}: {program['why']}"
    for program, _ in programs:
        if program["outcome"] in NOT_RUN:
            yield f"Not run: {program['title']}: {program['why']}"


def table(runs):
    programs = list(chosen(runs))
    said = list(rows(programs))
    if any(program["outcome"] == "refused" for program, _ in programs):
        said += ["", "¹ Without the library too, at the same step and with the same error; its words are below."]
    return "\n".join([*said, "", *(f"- {escaped(line)}" for line in remarks(programs))]) + "\n"


def put(path, made):
    with open(path) as file:
        text = file.read()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"table: {path} has no markers")
    with open(path, "w") as file:
        file.write(f"{head}{BEGIN}\n{made}{END}{tail}")


def main():
    parser = argparse.ArgumentParser(prog="table")
    parser.add_argument("--doc")
    parser.add_argument("runs", nargs="+")
    given = parser.parse_args()
    runs = []
    for path in given.runs:
        with open(path) as file:
            runs.append(json.load(file))
    made = table(runs)
    sys.stdout.write(made)
    if given.doc:
        put(given.doc, made)


main()
