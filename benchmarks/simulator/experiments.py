"""Time of simulations from Python: imports, one small simulation, and many in a sweep.

    python benchmarks/simulator/experiments.py --jobs 1000 --repeat 20 --workers 2

Prints the time of ``import simulator``, of the first simulation (which loads NumPy and the engine),
of one simulation of the same columns afterwards, of one with jobs drawn from a model, and the
number of simulations per second in a sweep. All but the last are medians of processor times.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

IMPORT = "import time; begin = time.process_time(); import simulator"
IMPORTED = f"{IMPORT}; print(time.process_time() - begin)"
FIRST = (
    "import time, simulator; begin = time.process_time(); simulator.simulate("
    "{'submit_s': [0], 'processors': [1], 'run_s': [1]}).metrics;"
    " print(time.process_time() - begin)"
)


def seconds_of(program: str, repeat: int) -> float:
    """Median of what a program prints, in processes of its own."""
    command = [sys.executable, "-c", program]
    runs = (subprocess.run(command, capture_output=True, check=True) for _ in range(repeat))
    return median(float(run.stdout) for run in runs)


def timed(call: Callable[[], object], repeat: int) -> float:
    """Median processor time of a call after a first one, s."""
    call()
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return median(times)


def columns(jobs: int) -> dict[str, Any]:
    """Jobs that wait for each other on 64 processors."""
    rng = np.random.default_rng(1)
    run_s = 1 + np.rint(rng.exponential(2000.0, jobs))
    return {
        "submit_s": np.rint(np.cumsum(rng.exponential(300.0, jobs))),
        "processors": 2 ** rng.integers(0, 6, jobs),
        "run_s": run_s,
        "walltime_s": 2 * run_s,
    }


def main() -> None:
    """Measure and print."""
    import simulator as sim

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    print(f"import simulator                 {1e3 * seconds_of(IMPORTED, 5):8.1f} ms")
    print(f"first simulation, with imports   {1e3 * seconds_of(FIRST, 5):8.1f} ms")
    of_columns = sim.Experiment(sim.Jobs(columns(given.jobs)), processors=64)
    drawn = sim.Experiment(sim.Jobs.drawn("lublin", jobs=given.jobs, processors=64, load=0.8))
    rows: dict[str, Callable[[], object]] = {
        "columns": lambda: sim.simulate(of_columns.jobs, processors=64).metrics,
        "drawn from a model": lambda: drawn.run().metrics,
        "drawing alone": lambda: drawn.jobs.load(1),
    }
    for name, call in rows.items():
        print(f"{given.jobs} jobs, {name:20} {1e3 * timed(call, given.repeat):8.1f} ms")
    count = 10 * given.repeat
    grid = {"load": [0.5 + 0.4 * i / count for i in range(count)]}
    begin = time.perf_counter()
    sim.sweep(of_columns, grid, workers=given.workers, progress=False)
    rate = count / (time.perf_counter() - begin)
    print(f"sweep of {count}, {given.workers} processes       {rate:8.1f} simulations/s")


if __name__ == "__main__":
    main()
