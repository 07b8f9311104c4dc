"""Prints the library's path: LD_PRELOAD=$(python -m cudasnap). With arguments it becomes the program: python -m cudasnap status."""
import os
import sys

from . import library, program

# The loader takes blanks and colons for separators, and expands what begins with a dollar sign.
UNFIT = " :$\n"


def main():
    if sys.argv[1:]:
        tool = str(program())
        os.execv(tool, [tool, *sys.argv[1:]])
    path = str(library())
    if any(letter in path for letter in UNFIT):
        sys.exit(f"cudasnap: {path}: a path with blanks, colons or dollar signs cannot be preloaded: install it under another")
    print(path)


try:
    main()
except OSError as error:
    sys.exit(f"cudasnap: {error}")
