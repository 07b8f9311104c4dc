"""The licences of what is linked into library and tool."""
import hashlib
import os
import re

import floor

OURS = re.compile(r"^cudasnap(-|$)")
NAMES = re.compile(r"^(LICEN[SC]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
HEAD = """What is linked into libcudasnap.so and cudasnap beside their own code, and under which licences.

Rust's standard library: MIT or Apache-2.0 (the texts are those of LICENSE-MIT and LICENSE-APACHE), copyright the Rust project
contributors; https://www.rust-lang.org. The crates in it, and their licences, are in COPYRIGHT-library.html of that toolchain.
LLVM's libunwind: Apache-2.0 with LLVM exceptions, copyright its contributors; https://llvm.org. A few start-up functions of the GNU C
library, with the permission that its licence gives for that.
"""


def text(metadata):
    """A list of the crates, then every licence text once, with the crates that it came with."""
    crates = sorted(linked(metadata), key=lambda crate: (crate["name"], crate["version"]))
    lines = [f"{crate['name']} {crate['version']}: {crate['license']}; {crate['repository']}" for crate in crates]
    texts = {}
    for crate in crates:
        for body in licences(os.path.dirname(crate["manifest_path"])):
            # Differences in blanks alone are none.
            key = hashlib.sha256(" ".join(body.split()).encode()).hexdigest()
            texts.setdefault(key, (body, []))[1].append(f"{crate['name']} {crate['version']}")
    parts = [f"{'-' * 100}\n{', '.join(names)}\n{'-' * 100}\n\n{body.strip()}\n" for body, names in texts.values()]
    return "\n".join([HEAD, *lines, "", *parts])


def linked(metadata):
    """Crates that library and tool depend on, but for ours and for what only the build needs."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [key for key, package in packages.items() if package["name"] in ("cudasnap", "cudasnap-cli")]
    seen = set(todo)
    while todo:
        for below in nodes[todo.pop()]["deps"]:
            is_normal = any(kind["kind"] is None for kind in below["dep_kinds"])
            is_macro = any("proc-macro" in target["kind"] for target in packages[below["pkg"]]["targets"])
            if is_normal and not is_macro and below["pkg"] not in seen:
                seen.add(below["pkg"])
                todo.append(below["pkg"])
    return [packages[key] for key in seen if not OURS.match(packages[key]["name"])]


def licences(folder):
    """Texts of the files beside a crate's manifest that are named like licences."""
    names = sorted(name for name in os.listdir(folder) if NAMES.match(name))
    paths = [os.path.join(folder, name) for name in names]
    return [floor.read(path) for path in paths if os.path.isfile(path)]
