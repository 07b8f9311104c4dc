"""Where the library of this installation is: ``cudasnap.library()``, or ``python -m cudasnap`` in a shell.

The program ``cudasnap`` that was installed with it finds the library by itself.
"""
from importlib import metadata
from pathlib import Path

__all__ = ["library"]


def library() -> Path:
    """The absolute path of libcudasnap.so, for LD_PRELOAD."""
    for file in metadata.files("cudasnap") or []:
        if file.name == "libcudasnap.so":
            return Path(file.locate()).resolve()
    raise FileNotFoundError("libcudasnap.so does not belong to this installation of cudasnap: install it again")
