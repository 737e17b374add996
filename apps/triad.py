"""The triad of STREAM, resizable: ``mpiexec -n 2 python -m apps.triad --mib 128``.

An iteration computes ``a = b + s * c`` several times over arrays that are larger than the caches,
so the memory bandwidth of the node limits it, and jobs on one node slow one another down. NumPy has
no fused triad: the arrays are computed in chunks that stay in a cache between the product and the
sum. The rate that is reported counts 24 bytes an element, as STREAM does (J. McCalpin, STREAM:
Sustainable Memory Bandwidth in High Performance Computers). At the end every element is compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import reshape
from apps.common import add_topology, conclude
from reshape.app import Application

CHUNK = 8192  # elements of float64
BYTES = 24  # read b and c, write a
Floats: TypeAlias = NDArray[np.float64]


def triad(a: Floats, b: Floats, c: Floats, s: float) -> None:
    """Compute ``a = b + s * c`` for arrays of shape (n,)."""
    for begin in range(0, len(a), CHUNK):
        chunk = slice(begin, begin + CHUNK)
        np.multiply(c[chunk], s, out=a[chunk])
        a[chunk] += b[chunk]


def scale(iteration: int) -> float:
    """Factor of an iteration; small, so that all numbers are exact."""
    return 2.0 + iteration % 3


def run(app: Application, options: argparse.Namespace) -> bool:
    """Collective over app.comm. Run all iterations; True if every element is right."""
    shape = (options.mib * 2**20 // 8,)
    a, b, c = (app.rows(name, shape) for name in "abc")
    if app.is_fresh_start:
        indices = a.layout.global_indices(app.comm.rank)[0]
        b.local[:], c.local[:] = indices % 1024, indices % 4096
        app.state["busy_s"] = app.state["bytes"] = 0.0
    for iteration in app.iterations(options.iterations):
        app.comm.Barrier()
        began = time.perf_counter()
        for _ in range(options.sweeps):
            triad(a.local, b.local, c.local, scale(iteration))
        busy_s = app.comm.allreduce(time.perf_counter() - began, MPI.MAX)
        app.state["busy_s"] += busy_s
        app.state["bytes"] += BYTES * options.sweeps * shape[0] / app.comm.size
    indices = a.layout.global_indices(app.comm.rank)[0]
    expected = scale(options.iterations - 1) * (indices % 4096) + indices % 1024
    right = np.array_equal(a.local, expected if options.iterations else 0 * expected)
    return bool(app.comm.allreduce(int(right)) == app.comm.size)


def main() -> int:
    """Run the program; the exit code is 0 if the result is verified."""
    parser = argparse.ArgumentParser(prog="python -m apps.triad", description=__doc__)
    parser.add_argument("--mib", type=int, default=96, help="MiB of each of the three arrays (96)")
    parser.add_argument("--iterations", type=int, default=20, help="iterations (20)")
    parser.add_argument("--sweeps", type=int, default=10, help="triads in an iteration (10)")
    add_topology(parser)
    options = parser.parse_args()
    if options.mib < 1 or options.sweeps < 1 or options.iterations < 0:
        parser.error("--mib and --sweeps must be >= 1, and --iterations >= 0")
    with reshape.application(topology=options.topology) as app:
        verified = run(app, options)
        busy_s = app.state["busy_s"]
        rate = app.state["bytes"] / busy_s / 1e6 if busy_s else 0.0
        text = (
            f"triad: {options.mib} MiB iterations={options.iterations} "
            f"processors={app.comm.size} {rate:.0f} MB/s a process"
        )
        conclude(app, text, verified, mb_per_s=rate, busy_s=busy_s)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
