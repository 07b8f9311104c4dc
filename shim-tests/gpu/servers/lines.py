"""What the programs here that speak lines have in common: `ready PID`, one answer for each `ask`, the end on `quit` or end of input.

An answer is `answer WORD...`; equal work gives equal words. Whoever cannot run here prints `missing REASON` in place of `ready`.
SERVERS_DEVICE=cpu is for dry runs on a machine without a GPU; SERVERS_SCALE divides the sizes.
"""

import hashlib
import os
import sys

DEVICE = os.environ.get("SERVERS_DEVICE", "cuda")
SCALE = int(os.environ.get("SERVERS_SCALE", "1"))


def missing(reason):
    print(f"missing {reason}", flush=True)
    sys.exit(0)


def digest(*parts):
    """Of bytes: a short word that tells equal from unequal."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()[:32]


def serve(answer):
    """Answers until the end; `answer` gives the words."""
    print(f"ready {os.getpid()}", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "quit":
            break
        if word == "ask":
            print("answer", *answer(), flush=True)
        else:
            print("unknown", flush=True)
