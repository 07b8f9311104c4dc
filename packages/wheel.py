"""The Python wheel: library and tool where `pip` puts programs and data, and a module that tells where the library is."""
import base64
import hashlib
import os

import archives
import contents
import floor
from contents import File

MODULE = os.path.join(floor.HERE, "python", "cudasnap")


def tag():
    """Machines that may install it: those with this glibc or a newer one, under the new name and, where it has one, the old."""
    major, minor = floor.GLIBC.split(".")
    new = f"manylinux_{major}_{minor}_x86_64"
    old = {"2.17": "manylinux2014_x86_64."}.get(floor.GLIBC, "")
    return f"py3-none-{old}{new}"


def metadata(built):
    """What package indexes and `pip show` print."""
    lines = [
        "Metadata-Version: 2.4",
        "Name: cudasnap",
        f"Version: {built.version}",
        f"Summary: {contents.SUMMARY}",
        "License-Expression: MIT OR Apache-2.0",
        "License-File: LICENSE-MIT",
        "License-File: LICENSE-APACHE",
        "License-File: THIRD-PARTY.txt",
        f"Project-URL: Source, {built.repository}",
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
    ]
    # A page of an index has no files beside it.
    return ("\n".join(lines) + "\n\n" + contents.readme([], built.repository)).encode()


def write(built, tree):
    """The wheel's name and bytes."""
    stem = f"cudasnap-{built.version}"
    info, data = f"{stem}.dist-info", f"{stem}.data"
    files = {f"cudasnap/{name}": File(contents.data(os.path.join(MODULE, name))) for name in ("__init__.py", "__main__.py")}
    for path, file in sorted(tree.items()):
        name = path.rsplit("/", 1)[1]
        if path.startswith("bin/"):
            files[f"{data}/scripts/{name}"] = file
        elif not path.startswith("share/doc/"):
            files[f"{data}/data/{path}"] = file
        elif name.startswith(("LICENSE-", "THIRD-PARTY")):
            files[f"{info}/licenses/{name}"] = file
    files[f"{info}/METADATA"] = File(metadata(built))
    wheel = "\n".join(f"Tag: py3-none-{platform}" for platform in tag().split("-")[2].split("."))
    files[f"{info}/WHEEL"] = File(f"Wheel-Version: 1.0\nGenerator: cudasnap\nRoot-Is-Purelib: false\n{wheel}\n".encode())
    # It lists all others, and itself without a sum.
    files[f"{info}/RECORD"] = File(record(files, f"{info}/RECORD"))
    return f"{stem}-{tag()}.whl", archives.zip_of(files, built.date)


def record(files, own):
    lines = []
    for path, file in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(file.data)}")
    return ("\n".join([*lines, f"{own},,"]) + "\n").encode()
