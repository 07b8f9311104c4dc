"""Where the library of this installation is: ``cudasnap.library()``, or ``python -m cudasnap`` in a shell.

The program ``cudasnap`` that was installed with it finds the library by itself.
"""
from importlib import metadata
from pathlib import Path

__all__ = ["library", "program"]


def library() -> Path:
    """The absolute path of libcudasnap.so, for LD_PRELOAD."""
    found = next(_files("libcudasnap.so"), None)
    if found is None:
        raise FileNotFoundError("libcudasnap.so is not there: `pip install --target` leaves out what is no module; install without it")
    return found


def program() -> Path:
    """The absolute path of the program cudasnap."""
    # `pip install --target` puts programs elsewhere than it notes.
    beside = Path(__file__).resolve().parents[1] / "bin" / "cudasnap"
    for path in [*_files("cudasnap"), beside]:
        # Completions have that name too.
        if path.parent.name == "bin" and path.is_file():
            return path
    raise FileNotFoundError("the program cudasnap is not there: install it again")


def _files(name):
    paths = (Path(file.locate()) for file in metadata.files("cudasnap") or [])
    return (path.resolve() for path in paths if path.name == name and path.is_file())
