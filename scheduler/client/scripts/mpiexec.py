"""``mpiexec`` in the script of a job on several hosts: its program runs as a step of the job.

The mpiexec of an MPI library reaches other hosts by ssh, outside of the job. So a script of a job
on several hosts finds `scheduler/node/launching/over_hosts/mpiexec` first on its PATH, which starts
this module. A script on one host finds the mpiexec of its MPI.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reshape.errors import ReshapeError
from reshape.key_values import whole_number
from scheduler.client.scripts.run_command import run_as_step


def read_call(words: Sequence[str]) -> dict[str, Any]:
    """Read the words after ``mpiexec``, as parameters of `run_as_step`.

    Raises
    ------
    ReshapeError : an option is not known here, its value is missing or wrong, or there is no
        program or more than one.
    """
    call: dict[str, Any] = {"processors": None}
    variables: dict[str, str] = {}
    left = [*words]
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if option in ("-n", "-np"):
            call["processors"] = _number(option, _value(option, left))
        elif option in ("-wdir", "-wd"):
            call["cwd"] = Path(_value(option, left))
        elif option in ("-env", "-genv"):
            name = _value(option, left)
            variables[name] = _value(option, left)
        elif option not in ("-envall", "-genvall"):  # which is so without them
            raise ReshapeError(
                f"mpiexec {option}: this job is on several hosts, where mpiexec starts its program"
                " as a step with -n, -wdir, -env and -genv alone: leave it out, or start the"
                " program with reshape run"
            )
    if ":" in left:
        raise ReshapeError(
            "mpiexec: this job is on several hosts, where mpiexec starts one program: leave out"
            " what follows ':', or start each program with reshape run"
        )
    if not left:
        raise ReshapeError("mpiexec: name a program to start")
    return {**call, "argv": left, "environment": os.environ | variables}


def _value(option: str, left: list[str]) -> str:
    if not left:
        raise ReshapeError(f"mpiexec {option}: its value is missing")
    return left.pop(0)


def _number(option: str, value: str) -> int:
    if not whole_number(value):
        raise ReshapeError(f"mpiexec {option}: expected a number of processes >= 1, got {value!r}")
    return int(value)


def main(words: Sequence[str]) -> int:
    """Run an mpiexec, and return its exit code."""
    try:
        return run_as_step(**read_call(words))
    except ReshapeError as error:
        print(f"reshape: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
