"""Prints the library's path: LD_PRELOAD=$(python -m cudasnap)."""
from . import library

print(library())
