"""Prints the library's path: LD_PRELOAD=$(python -m cudasnap)."""
import sys

from . import library

try:
    print(library())
except FileNotFoundError as error:
    sys.exit(f"cudasnap: {error}")
