"""The end of a world after an error on one of its ranks."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from typing import NoReturn

from mpi4py import MPI

from reshape.errors import ReshapeError

_FORWARD_S = 0.3  # for mpiexec to forward the output before the abort
_RANK_0_FIRST_S = 0.6  # head start of rank 0, so that it prints an error of all ranks
_ABORTED_S = 10.0


def abort(error: BaseException) -> NoReturn:
    """Print the error and abort this process's world, whose other ranks may wait for this one.

    Connected worlds are not aborted: the process that started them has to end them. An error that
    occurs on every rank is printed once. The exit code is 1, or that of a SystemExit.
    """
    if MPI.COMM_WORLD.rank != 0:
        time.sleep(_RANK_0_FIRST_S)
    code = 1
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            code = error.code
        else:
            print(error.code, file=sys.stderr)
    elif isinstance(error, ReshapeError):
        print(f"reshape: error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or without a reader
            stream.flush()
    time.sleep(_FORWARD_S)
    MPI.COMM_WORLD.Abort(code)
    time.sleep(_ABORTED_S)  # Abort of MPICH 5 returns; mpiexec ends the process
    os._exit(code)
