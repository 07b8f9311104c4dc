"""Makes the table of docs/compatibility.md from what gpu-servers wrote: table.py [--doc FILE [--add]] servers.json...

Prints it, and puts it between the markers of FILE. Of a program that is in several files the last one counts, but for runs in which it was
skipped or left out. Dry runs are refused. With --add rows and remarks that are in FILE stay, but for rows of programs that ran anew.
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


REFUSED = "¹ Without the library too, at the same step and with the same error; its words are below."


def title(row):
    return row.split(" | ")[0].removeprefix("| ")


def table(runs, before=""):
    """The table of these runs behind what is kept of the one before."""
    programs = list(chosen(runs))
    head, rule, *made = rows(programs)
    said = [f"- {escaped(line)}" for line in remarks(programs)]
    renewed = {title(row) for row in made}
    kept = [line for line in before.splitlines() if line.startswith("| ") and line != head and title(line) not in renewed]
    told = [line for line in before.splitlines() if line.startswith("- ") and line not in said]
    lines = [head, rule, *kept, *made]
    if any("refused by the driver ¹" in row for row in kept + made):
        lines += ["", REFUSED]
    return "\n".join([*lines, "", *told, *said]) + "\n"


def parts(path):
    """The text of a file before, between and after the markers."""
    with open(path) as file:
        head, begin, rest = file.read().partition(BEGIN)
    inner, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"table: {path} has no markers")
    return head, inner, tail


def put(path, made):
    head, _, tail = parts(path)
    with open(path, "w") as file:
        file.write(f"{head}{BEGIN}\n{made}{END}{tail}")


def main():
    parser = argparse.ArgumentParser(prog="table")
    parser.add_argument("--doc")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("runs", nargs="+")
    given = parser.parse_args()
    runs = []
    for path in given.runs:
        with open(path) as file:
            runs.append(json.load(file))
    if given.add and not given.doc:
        parser.error("--add needs the --doc to add to")
    made = table(runs, parts(given.doc)[1] if given.add else "")
    sys.stdout.write(made)
    if given.doc:
        put(given.doc, made)


main()
