"""Archives whose bytes depend on nothing but what is in them: sorted, with one date, owned by root."""
import gzip
import io
import tarfile
import time
import zipfile


def tar_gz(tree, date, prefix=""):
    """A tree as tar, compressed; folders included, so that they have sane modes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for folder in folders(tree):
            tar.addfile(entry(f"{prefix}{folder}", date, 0o755, tarfile.DIRTYPE))
        for path, file in sorted(tree.items()):
            member = entry(f"{prefix}{path}", date, file.mode, tarfile.REGTYPE)
            member.size = len(file.data)
            tar.addfile(member, io.BytesIO(file.data))
    return gzip.compress(raw.getvalue(), 9, mtime=0)


def folders(tree):
    """All folders of a tree, each after the one that it is in."""
    found = set()
    for path in tree:
        parts = path.split("/")[:-1]
        found.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return sorted(found)


def entry(name, date, mode, kind):
    member = tarfile.TarInfo(name)
    member.mtime, member.mode, member.type = date, mode, kind
    member.uname = member.gname = "root"
    return member


def ar(members, date):
    """An archive as ar writes it, of (name, bytes): the outer form of a Debian package."""
    out = b"!<arch>\n"
    for name, data in members:
        out += f"{name:<16}{date:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data
        out += b"\n" * (len(data) % 2)
    return out


def zip_of(tree, date):
    """A tree as zip file, in the tree's own order."""
    raw = io.BytesIO()
    when = time.gmtime(max(date, 315532800))[:6]
    with zipfile.ZipFile(raw, "w") as archive:
        for path, file in tree.items():
            member = zipfile.ZipInfo(path, when)
            member.create_system = 3
            member.external_attr = (0o100000 | file.mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, file.data, compresslevel=9)
    return raw.getvalue()
