"""Where the library of this installation is: ``cudasnap.library()``, or ``python -m cudasnap`` in a shell.

The program ``cudasnap`` that was installed with it finds the library by itself.
"""
from importlib import metadata
from pathlib import Path

__all__ = ["library"]


def library() -> Path:
    """The absolute path of libcudasnap.so, for LD_PRELOAD."""
    for file in metadata.files("cudasnap") or []:
        path = Path(file.locate())
        if path.name == "libcudasnap.so" and path.is_file():
            return path.resolve()
    raise FileNotFoundError("libcudasnap.so is not there: `pip install --target` leaves out what is no module; install without it")
