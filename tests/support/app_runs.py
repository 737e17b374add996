"""Applications run by the ranks of a collective test, instead of by an mpiexec of their own."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from importlib import import_module

import pytest
from mpi4py import MPI


def run_app(patch: pytest.MonkeyPatch, comm: MPI.Intracomm, arguments: str) -> tuple[int, str]:
    """Collective over comm. Return exit code and output of ``python -m apps.ARGUMENTS``.

    Parameters
    ----------
    patch : sets the world and the command line for the duration of the test.
    comm : the world that the application sees.
    """
    name, *options = arguments.split()
    patch.setattr(MPI, "COMM_WORLD", comm)
    patch.setattr("sys.argv", [name, *options])
    output = io.StringIO()
    with redirect_stdout(output):
        code = import_module(f"apps.{name}").main()
    return code, output.getvalue()
