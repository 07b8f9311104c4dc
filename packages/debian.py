"""Two Debian packages: the tool, and the library in one of its own whose name carries version and build.

So an upgrade leaves the library of running processes alone: it installs the next one beside it, as with kernels.
"""
import hashlib
import os

import archives
import contents
import floor
from contents import File

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: cudasnap
Source: {repository}

Files: *
Copyright: {holder}
License: MIT or Apache-2.0

License: MIT
{mit}

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
"""
# Where Debian's shells look instead.
MOVED = {"share/zsh/site-functions/": "share/zsh/vendor-completions/"}


def name_of_library(built):
    return f"libcudasnap-{built.version}-{built.build[:12]}"


def copyright_text(built, holder_file):
    lines = holder_file.strip().splitlines()
    holder = next(line.removeprefix("Copyright (c)").strip() for line in lines if line.startswith("Copyright"))
    mit = "\n".join(f" {line}" if line else " ." for line in lines)
    return COPYRIGHT.format(repository=built.repository, holder=holder, mit=mit)


def documents(built, name):
    """What Debian wants of every package."""
    folder = f"usr/share/doc/{name}"
    mit = floor.read(os.path.join(floor.ROOT, "LICENSE-MIT"))
    changes = File(contents.data(os.path.join(floor.ROOT, "CHANGELOG.md")))
    return {
        f"{folder}/copyright": File(copyright_text(built, mit).encode()),
        f"{folder}/changelog.gz": contents.packed(changes),
    }


def of_library(built, tree):
    """Name and bytes of the library's package."""
    name = name_of_library(built)
    files = {f"usr/{path}": file for path, file in tree.items()} | documents(built, name)
    about = f"{contents.SUMMARY} (library)\n This build of it; others can be installed beside it."
    prerm = floor.read(os.path.join(floor.HERE, "debian", "prerm.library")).replace("@LIBRARY@", f"/usr/{built.place}")
    return package(built, name, "libs", f"libc6 (>= {floor.GLIBC})", about, files, {"prerm": File(prerm.encode(), 0o755)})


def of_tool(built, tree):
    """Name and bytes of the tool's package, which brings the library of the same build with it."""
    files = documents(built, "cudasnap")
    for path, file in tree.items():
        for old, new in MOVED.items():
            path = path.replace(old, new)
        if path.startswith("share/man/"):
            path, file = f"{path}.gz", contents.packed(file)
        if not path.endswith(("CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE")):
            files[f"usr/{path}"] = file
    depends = f"libc6 (>= {floor.GLIBC}), {name_of_library(built)} (= {built.version})"
    lines = "".join(f"\n {line}" for line in contents.description().splitlines())
    prerm = File(contents.data(os.path.join(floor.HERE, "debian", "prerm.tool")), 0o755)
    return package(built, "cudasnap", "utils", depends, contents.SUMMARY + lines, files, {"prerm": prerm})


def package(built, name, section, depends, about, files, scripts):
    """A package's file name and bytes."""
    size = sum(len(file.data) for file in files.values())
    control = f"""Package: {name}
Version: {built.version}
Architecture: amd64
Maintainer: The cudasnap authors <{built.repository}>
Installed-Size: {-(-size // 1024)}
Depends: {depends}
Section: {section}
Priority: optional
Homepage: {built.repository}
Description: {about}
"""
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {path}\n" for path, file in sorted(files.items()))
    head = {"control": File(control.encode()), "md5sums": File(sums.encode())} | scripts
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", archives.tar_gz(head, built.date, "./")),
        ("data.tar.gz", archives.tar_gz(files, built.date, "./")),
    ]
    return f"{name}_{built.version}_amd64.deb", archives.ar(members, built.date)
