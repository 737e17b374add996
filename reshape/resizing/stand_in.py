"""Release a job that waits in Accept for a dead group: ``-m reshape.resizing.stand_in PORT``.

To be run as ``mpiexec -n 1``. A tiny world connects in place of the dead group and says "cancel"
where the group would have introduced itself; the job then goes on at its old size.
"""

from __future__ import annotations

import sys

from mpi4py import MPI

from reshape.resizing.transaction import CANCEL


def main(port: str) -> None:
    """Connect to `port`, say "cancel", and part again."""
    tie = MPI.COMM_WORLD.Connect(port)
    merged = tie.Merge(high=True)
    merged.bcast(CANCEL, root=merged.rank)
    merged.Free()
    tie.Disconnect()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: mpiexec -n 1 python -m reshape.resizing.stand_in PORT")
    main(sys.argv[1])
