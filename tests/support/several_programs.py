"""Several runs of applications in one MPI world, whose start takes longer than the runs."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib import import_module

from driver import run
from mpi4py import MPI

_END = "end of program, exit code"


@cache
def outputs(size: int, programs: tuple[str, ...]) -> dict[str, str]:
    """Return what each program prints; all have to end with exit code 0.

    Parameters
    ----------
    size : number of processes.
    programs : names of modules of `apps`, each with its arguments.
    """
    done = run(size, __file__, json.dumps(programs))
    assert done.returncode == 0, done.stdout + done.stderr
    parts = done.stdout.split(f"{_END} 0\n")
    assert len(parts) == len(programs) + 1, done.stdout + done.stderr
    return dict(zip(programs, parts, strict=False))


def main() -> None:
    """Collective over MPI.COMM_WORLD. Run the programs one after the other."""
    for program in json.loads(sys.argv[1]):
        name, *sys.argv[1:] = program.split()
        codes = MPI.COMM_WORLD.gather(import_module(f"apps.{name}").main())
        if codes is not None:
            print(_END, max(codes), flush=True)


if __name__ == "__main__":
    main()
