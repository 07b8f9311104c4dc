"""What every package holds, as a tree below a prefix, and the words about it that packages repeat."""
import gzip
import json
import os
import subprocess
import tempfile
from typing import NamedTuple

import notices
from floor import ROOT, read

SUMMARY = "Fast checkpoint and restore of CUDA programs, unmodified"
DOCUMENTS = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"]
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


def documents(metadata):
    """What people read: the texts of the repository, and the licences of what is linked in."""
    tree = {f"share/doc/cudasnap/{name}": File(data(os.path.join(ROOT, name))) for name in DOCUMENTS}
    for path in below("docs"):
        if path.endswith(".md") and not path.startswith("docs/runs/"):
            tree[f"share/doc/cudasnap/{path}"] = File(data(os.path.join(ROOT, path)))
    for path in below("examples"):
        mode = 0o755 if os.access(os.path.join(ROOT, path), os.X_OK) else 0o644
        tree[f"share/doc/cudasnap/{path}"] = File(data(os.path.join(ROOT, path)), mode)
    tree["share/doc/cudasnap/THIRD-PARTY.txt"] = File(notices.text(metadata).encode())
    return tree


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
