"""What MPI alone takes to join and to part two groups, beside the pause of a resize.

    python benchmarks/runtime/join_limit.py [--repeats 5]

A group of processes accepts another one, and the two merge, as in an expansion; then the processes
of the second group leave, as in a contraction. There is no service, no data and no restart point.
The table has the medians that rank 0 of the first group measured, in ms:

    join     port known to both sides: accept and connect, merge, one broadcast
    part     split, free, disconnect
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reshape.mpi import clean_environment, mpiexec_path


def group(side: str, folder: Path, repeats: int) -> None:
    """Collective over COMM_WORLD. Join and part; rank 0 of the accepting side prints the times."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for repeat in range(repeats):
        port = ""
        name = folder / f"port-{repeat}"
        if world.rank == 0 and side == "accept":
            port = MPI.Open_port()
            name.with_suffix(".new").write_text(port)
            name.with_suffix(".new").rename(name)
        elif world.rank == 0:
            while not name.exists():
                time.sleep(0.001)
            port = name.read_text()
        port = world.bcast(port)
        time.sleep(0.2)  # both sides wait in a collective call: only MPI is measured
        began = time.perf_counter()
        tie = world.Accept(port) if side == "accept" else world.Connect(port)
        merged = tie.Merge(side == "connect")
        merged.bcast(None)
        joined = time.perf_counter()
        stays = side == "accept"
        merged.Barrier()
        rest = time.perf_counter()
        remains = merged.Split(0 if stays else MPI.UNDEFINED, world.rank)
        merged.Free()
        tie.Disconnect()
        parted = time.perf_counter()
        if remains != MPI.COMM_NULL:
            remains.Free()
        if world.rank == 0 and side == "accept":
            MPI.Close_port(port)
            print(joined - began, parted - rest, flush=True)


def measure(old: int, new: int, repeats: int) -> list[tuple[float, float]]:
    """Start both groups; return the times of each repetition, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        start = [str(mpiexec_path()), "-n"]
        program = (folder, str(repeats))
        worlds = [
            subprocess.Popen(
                [*start, str(size), sys.executable, __file__, side, *program],
                env=clean_environment(os.environ),
                stdout=subprocess.PIPE,
                text=True,
            )
            for side, size in (("accept", old), ("connect", new))
        ]
        outputs = [world.communicate(timeout=120)[0] for world in worlds]
        lines = outputs[0].splitlines()
    return [(float(a), float(b)) for a, b in map(str.split, lines)]


def main() -> None:
    """Parse the options, measure, print."""
    if len(sys.argv) == 4 and sys.argv[1] in ("accept", "connect"):
        group(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"two groups join and part, MPI alone, ms; {os.cpu_count()} cores")
    print(f"{'ranks':>8} {'first join':>11} {'join':>7} {'part':>7}")
    for old, new in ((2, 2), (4, 2)):
        times = measure(old, new, repeats + 1)
        joins, parts = zip(*times, strict=True)
        later, part = statistics.median(joins[1:]), statistics.median(parts)
        print(f"{old:>5}+{new:<2} {1000 * joins[0]:11.1f} {1000 * later:7.1f} {1000 * part:7.1f}")


if __name__ == "__main__":
    main()
