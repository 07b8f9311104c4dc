"""Builds library and tool for an old glibc.

The compiler and the linker are the usual ones. What decides which symbols of glibc there are comes from a pinned Zig, in a folder that
the linker searches first: libraries that hold the symbols of that version and no newer ones, the start files of that time, and an
unwinder without `_dl_find_object` (glibc 2.35). A function that is newer is therefore an error of the linker.
"""
import os
import shutil
import subprocess
import sys

GLIBC = "2.17"
TARGET = "x86_64-unknown-linux-gnu"
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
LIBRARIES = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"]


class NotFetched(Exception):
    """Zig cannot be had here."""


def built_in(target):
    """Folder of what is built for packages."""
    return os.path.join(target, "package")


def fetch(target):
    """Zig's program; from the package registry unless it is there already."""
    folder = os.path.join(built_in(target), "zig")
    program = os.path.join(folder, "ziglang", "zig")
    pins = os.path.join(HERE, "zig.txt")
    stamp = os.path.join(folder, "zig.txt")
    if os.path.exists(stamp) and read(stamp) == read(pins):
        return program
    new = f"{folder}.new.{os.getpid()}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--no-deps"]
    fetched = subprocess.run(pip + ["--only-binary=:all:", "--require-hashes", "--target", new, "-r", pins], check=False)
    if fetched.returncode != 0:
        shutil.rmtree(new, ignore_errors=True)
        raise NotFetched("pip cannot fetch what packages/zig.txt names")
    shutil.copy(pins, new)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(new, folder)
    return program


def old_glibc(target):
    """The folder with the parts of the old glibc, made where it is missing."""
    zig = fetch(target)
    folder = os.path.join(built_in(target), f"glibc-{GLIBC}")
    stamp = os.path.join(folder, "made-by")
    recipe = read(os.path.join(HERE, "zig.txt")) + read(os.path.abspath(__file__))
    if os.path.exists(stamp) and read(stamp) == recipe:
        return folder
    new = f"{folder}.new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    place(linked_with(zig, new), new)
    write(os.path.join(new, "made-by"), recipe)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(new, folder)
    # The folder's own name is in it.
    write(os.path.join(folder, "cc"), f"#!/bin/sh\nexec {os.environ.get('CC', 'cc')} -B'{folder}' \"$@\"\n", 0o755)
    return folder


def linked_with(zig, folder):
    """Files that Zig hands its linker for an empty program."""
    empty = os.path.join(folder, "empty.c")
    write(empty, "int main(void) { return 0; }\n")
    # Started beside its cache it names the files in there from here on: no blank is in those names.
    beside = os.path.dirname(os.path.dirname(zig))
    cache = os.path.join(beside, "cache")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    command = [zig, "cc", "-v", "-pie", "-fPIE", "-target", f"x86_64-linux-gnu.{GLIBC}", empty, "-lunwind", "-o", f"{empty}.out"]
    done = subprocess.run(command, cwd=beside, env=environment, check=False, stderr=subprocess.PIPE, text=True)
    lines = [line for line in done.stderr.splitlines() if "Scrt1.o" in line and f"{empty}.out" in line]
    if done.returncode != 0 or not lines:
        sys.exit(f"package: zig does not link: {done.stderr[-2000:]}")
    return {os.path.basename(word): os.path.join(beside, word) for word in lines[-1].split() if "/" in word}


def place(files, folder):
    """Puts them under the names that the linker looks for."""
    for name in LIBRARIES + ["Scrt1.o", "libc_nonshared.a"]:
        shutil.copy(files[name], folder)
    shutil.copy(files["libld.so.2"], os.path.join(folder, "ld-linux-x86-64.so.2"))
    for name in LIBRARIES[1:]:
        os.symlink(name, os.path.join(folder, name[:name.rindex(".")]))
    write(os.path.join(folder, "libc.so"), "GROUP(libc.so.6 libc_nonshared.a AS_NEEDED(ld-linux-x86-64.so.2))\n")
    # Under the names by which the build scripts and Rust's standard library ask for an unwinder.
    shutil.copy(files["libunwind.a"], os.path.join(folder, "libgcc_eh.a"))
    write(os.path.join(folder, "libgcc_s.so"), "INPUT(libgcc_eh.a)\n")


def flags(folder):
    """Of rustc: those of .cargo/config.toml, the folder, and no path of this machine in what is built."""
    cargo = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    sources = os.path.join(cargo, "registry", "src")
    registries = sorted(os.listdir(sources)) if os.path.isdir(sources) else []
    renamed = [f"{os.path.join(sources, name)}=/crates" for name in registries] + [f"{ROOT}=/cudasnap"]
    linker = [f"link-arg=-B{folder}", "link-arg=-Wl,-z,defs", "force-frame-pointers=yes"]
    return [f"-C{flag}" for flag in linker] + [f"--remap-path-prefix={pair}" for pair in renamed]


def build(target):
    """Builds both; their paths, and the library's build id, which the tool is told."""
    folder = old_glibc(target)
    environment = {
        **os.environ,
        "CC": os.path.join(folder, "cc"),
        "CARGO_TARGET_DIR": built_in(target),
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags(folder)),
        "CARGO_PROFILE_RELEASE_DEBUG": "none",
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
        "CARGO_INCREMENTAL": "0",
    }
    cargo = ["cargo", "build", "--quiet", "--locked", "--release", "--target", TARGET, "-p"]
    subprocess.run(cargo + ["cudasnap"], cwd=ROOT, env=environment, check=True)
    out = os.path.join(built_in(target), TARGET, "release")
    library = os.path.join(out, "libcudasnap.so")
    identity = build_id(library)
    subprocess.run(cargo + ["cudasnap-cli"], cwd=ROOT, env={**environment, "CUDASNAP_BUILD": identity[:12]}, check=True)
    return library, os.path.join(out, "cudasnap"), identity


def build_id(path):
    """The GNU build id of a 64-bit library, as hexadecimal text."""
    with open(path, "rb") as file:
        data = file.read()
    note = data.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
    if note < 0:
        sys.exit(f"package: {path} has no build id")
    return data[note + 16:note + 36].hex()


def read(path):
    with open(path, encoding="utf8") as file:
        return file.read()


def write(path, text, mode=0o644):
    with open(path, "w", encoding="utf8") as file:
        file.write(text)
    os.chmod(path, mode)
