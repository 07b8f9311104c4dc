"""What every package holds, as a tree below a prefix, and the words about it that packages repeat."""
import gzip
import json
import os
import re
import subprocess
import tempfile
from typing import NamedTuple

import notices
from floor import ROOT, read

SUMMARY = "Fast checkpoint and restore of CUDA programs, unmodified"
DOCUMENTS = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"]
FROM_A_PACKAGE = """*This README came with a package, which has installed tool and library ([what is in it{packages}): begin at "Use it", with
`cudasnap run`. `scripts/`, `target/` and `shim-tests/` are in a checkout of {repository}.*
"""
# Scripts that people run where the tool is: programs of their own, not documents, which slim images leave out.
PROGRAMS = {
    "cudasnap-entrypoint": "examples/container/entrypoint",
    "cudasnap-is-active": "examples/runbook/is-active",
    "cudasnap-restore-or-cold-start": "examples/runbook/restore-or-cold-start",
    "cudasnap-dump-and-restore": "examples/criu/dump-and-restore",
}
COMPLETIONS = {
    "bash": "share/bash-completion/completions/cudasnap",
    "zsh": "share/zsh/site-functions/_cudasnap",
    "fish": "share/fish/vendor_completions.d/cudasnap.fish",
}


class File(NamedTuple):
    """A file of a package."""

    data: bytes
    mode: int = 0o644


class Built(NamedTuple):
    """What was built, and how it is called."""

    library: str
    tool: str
    build: str
    version: str
    repository: str
    # Of everything in the packages: seconds since 1970.
    date: int

    @property
    def place(self):
        """The library's path below a prefix: no two builds of it have the same one."""
        return f"lib/cudasnap/{self.version}-{self.build[:12]}/libcudasnap.so"


def workspace():
    """Cargo's view of the workspace: the one place that knows the version."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def date():
    """SOURCE_DATE_EPOCH, or the date of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    # What no zip file can hold is earlier than 1980.
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 315532800


def tool(built):
    """The part of the tree that is no library."""
    tree = {"bin/cudasnap": File(data(built.tool), 0o755)}
    for name, path in PROGRAMS.items():
        tree[f"bin/{name}"] = File(data(os.path.join(ROOT, path)), 0o755)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([built.tool, "man", folder], check=True)
        for name in os.listdir(folder):
            tree[f"share/man/man1/{name}"] = File(data(os.path.join(folder, name)))
    for shell, path in COMPLETIONS.items():
        done = subprocess.run([built.tool, "completions", shell], check=True, stdout=subprocess.PIPE)
        tree[path] = File(done.stdout)
    return tree


def library(built):
    """The library where it belongs."""
    return {built.place: File(data(built.library))}


def documents(metadata, repository):
    """What people read: the texts of the repository, and the licences of what is linked in."""
    tree = {f"share/doc/cudasnap/{path}": file for path, file in texts(repository).items()}
    tree["share/doc/cudasnap/THIRD-PARTY.txt"] = File(notices.text(metadata).encode())
    return tree


def texts(repository):
    """Documents and examples, by their paths in the repository. Links that lead out of these lead to the repository."""
    paths = [*DOCUMENTS, *(path for path in below("docs") if path.endswith(".md") and not path.startswith("docs/runs/"))]
    paths += below("examples")
    tree = {}
    for path in paths:
        file = os.path.join(ROOT, path)
        text = data(file)
        if path.endswith(".md"):
            text = linked(path, text.decode(), paths, repository).encode()
        tree[path] = File(text, 0o755 if os.access(file, os.X_OK) else 0o644)
    return tree


def readme(present, repository):
    """The README, for who has these files of the repository beside it."""
    return linked("README.md", read(os.path.join(ROOT, "README.md")), present, repository)


def linked(path, text, present, repository):
    """A document whose links lead to what is present, or to the repository."""
    def target(match):
        link, _, anchor = match.group(1).partition("#")
        to = os.path.normpath(os.path.join(os.path.dirname(path), link))
        if not link or "://" in link or to in present:
            return match.group(0)
        kind = "tree" if os.path.isdir(os.path.join(ROOT, to)) else "blob"
        return f"]({repository}/{kind}/main/{to}{'#' if anchor else ''}{anchor})"

    text = re.sub(r"\]\(([^)\s]+)\)", target, text)
    if path == "README.md":
        # What follows begins with commands of a checkout.
        title, rest = text.split("\n", 1)
        text = f"{title}\n\n{FROM_A_PACKAGE.format(repository=repository, packages=linked('', '](docs/packages.md)', present, repository))}{rest}"
    return text


def below(folder):
    """Files below a folder of the repository, by their paths in it."""
    for place, _, names in os.walk(os.path.join(ROOT, folder)):
        yield from (os.path.relpath(os.path.join(place, name), ROOT) for name in names)


def packed(file):
    """A file for those who want it compressed: with no name and no date in it."""
    return File(gzip.compress(file.data, 9, mtime=0), file.mode)


def data(path):
    with open(path, "rb") as file:
        return file.read()


def description():
    """A few lines about it: the first paragraph of the README."""
    paragraphs = read(os.path.join(ROOT, "README.md")).split("\n\n")
    return paragraphs[1].strip()
