"""The cost of a resize point without a resize, under a live service.

    python benchmarks/runtime/resize_point.py [--ranks 1 2 4 8] [--points 300]

starts a service with a scenario that resizes no job (easy), submits this file twice for each number
of ranks, and prints a table. All ranks pass a barrier before each resize point. The cost is the
time of the slowest rank from the barrier to the next iteration. With `every` 0 the job sends a
request at each point; 0.05 s is the default of programs (`RESHAPE_ASK_EVERY_S`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

from reshape.wire.identity import ASK_EVERY_S, PACE_VARIABLE


def measure(points: int) -> None:
    """Run as the job: iterate, and report the quantiles of the costs in milliseconds."""
    import reshape

    with reshape.application() as app:
        app.rows("u", (1000, 100))
        costs = np.zeros(points + 1)
        began = time.perf_counter()
        for step in app.iterations(points + 1):
            costs[step] = time.perf_counter() - began
            app.comm.Barrier()
            began = time.perf_counter()
        slowest = np.array(app.comm.allgather(costs[1:])).max(axis=0)
        median, p90, p99 = np.quantile(1000 * slowest, (0.5, 0.9, 0.99))
        app.report(ranks=app.comm.size, median=median, p90=p90, p99=p99, max=1e3 * slowest.max())


def reshape_command(*arguments: str) -> str:
    """Run the command of this Python and return its output."""
    command = [sys.executable, "-m", "reshape", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def compare(ranks: list[int], points: int) -> None:
    """Run the job on each number of ranks, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        place = ("--dir", f"{folder}/service")
        size = str(max(ranks))
        reshape_command("serve", *place, "--processors", size, "--scenario", "easy", "--background")
        try:
            print(f"a resize point without a resize, ms; {os.cpu_count()} cores, {points} points")
            print(f"{'ranks':>6} {'every':>6} {'median':>8} {'p90':>8} {'p99':>8} {'max':>8}")
            for count, every in product(ranks, ("0", str(ASK_EVERY_S))):
                os.environ[PACE_VARIABLE] = every
                options = ("-n", str(count), "--output", f"{folder}/out", "--wait", "--json")
                program = (sys.executable, str(Path(__file__).resolve()), "--job")
                answer = reshape_command(
                    "submit", *place, *options, "--", *program, "--points", str(points)
                )
                facts = json.loads(answer)[0]["facts"]
                assert facts["ranks"] == count
                figures = (facts[name] for name in ("median", "p90", "p99", "max"))
                print(f"{count:6d} {every:>6}", *(f"{figure:8.3f}" for figure in figures))
        finally:
            reshape_command("stop", *place, "--kill")


def main() -> None:
    """Compare, or run as the job that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        measure(options.points)
    else:
        compare(options.ranks, options.points)


if __name__ == "__main__":
    main()
