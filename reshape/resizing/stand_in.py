"""Release a job that is blocked in Accept for a dead group: ``-m reshape.resizing.stand_in PORT``.

The program runs under ``mpiexec -n 1``. It connects in place of the dead group and sends "cancel"
instead of the group's first message. The job then rolls back to its old size.
"""

from __future__ import annotations

import sys

from mpi4py import MPI

from reshape.ranks.agree import value_of
from reshape.ranks.leak_report import omit_descriptions
from reshape.resizing.joining import CANCEL, Address


def main(port: str) -> None:
    """Connect to `port`, send "cancel", and disconnect."""
    omit_descriptions()
    tie = MPI.COMM_WORLD.Connect(Address.parse(port).port)
    merged = tie.Merge(high=True)
    value_of(merged, CANCEL, root=merged.rank)
    merged.Free()
    tie.Disconnect()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: mpiexec -n 1 python -m reshape.resizing.stand_in PORT")
    main(sys.argv[1])
