"""A parent with two workers for dry runs on the simulated driver: sim_workers.py SIMAPP MIB

The workers are two processes of SIMAPP; the parent speaks lines for both and does not use CUDA.
"""

import subprocess
import sys

import lines


def main():
    command = sys.argv[1:3]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)]
    for worker in workers:
        worker.stdout.readline()

    def answer():
        for worker in workers:
            worker.stdin.write("sum\n")
        return [word for worker in workers for word in worker.stdout.readline().split()]

    lines.serve(answer)
    for worker in workers:
        worker.stdin.write("quit\n")
        worker.stdin.close()
    sys.exit(any(worker.wait(60) for worker in workers))


main()
