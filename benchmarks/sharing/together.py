"""Jobs that stream memory, alone and together on this node, against the penalty model of GUIM 6.

    python benchmarks/sharing/together.py [--mib 96] [--iterations 12] [--repeats 3] [--json]

starts a real service (`reshape serve`) in a directory of its own and submits jobs of `apps.triad`:

- pair: one job of two processes; the sum of their rates is the capacity of the node.
- alone: one job of one process; its rate is the demand of a process.
- together: two jobs of one process at a time.
- half: the second job has half of the iterations, so that the first one ends alone.
- cached: the second job has arrays of 1 MiB, which stay in a cache; its demand is taken as 0.

The model (6.1) to (6.3) predicts the times of the last three from capacity and demand, by both
readings of the penalty ("excess", "ratio") and of the windows ("table", "changes"). Times are those
of the triads alone, without the start of MPI; medians of the repeats. All cases of a repeat run one
after another, so that a slower machine slows all of them down.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, get_args

from scheduler import Client
from scheduler.client import background
from scheduler.client.requests.submission import prepare
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import PenaltyRule, SharedCapacity, SharedNodes, Windows
from scheduler.protocol import messages as m
from scheduler.text.tables import Table, render

NAME = "memory_bandwidth"
READINGS = [*product(get_args(PenaltyRule), get_args(Windows))]


class Bench:
    """Jobs on a service.

    Parameters
    ----------
    folder : for the service and the outputs of the jobs.
    mib, iterations : of a job.
    """

    def __init__(self, folder: Path, mib: int, iterations: int) -> None:
        self.service, self._folder = folder / "service", folder
        self._mib, self._iterations = mib, iterations

    def run(self, *jobs: tuple[int, float, bool]) -> list[tuple[float, float]]:
        """Run jobs at a time.

        Parameters
        ----------
        jobs : processes, share of the iterations, and whether the arrays are small.

        Returns
        -------
        (time of all triads in s, rate of a process in MB/s) of each job.

        Raises
        ------
        SystemExit : a job fails.
        """
        numbers = [self._submit(*job) for job in jobs]
        found = []
        for number in numbers:
            with Client(self.service) as client:
                job = client.job(number).wait(600.0)
            facts = job.facts
            if not facts.get("verified"):
                sys.exit(f"job {number} ended as {job.state}: see {self._folder}")
            found.append((float(facts["busy_s"]), float(facts["mb_per_s"])))
        return found

    def _submit(self, processes: int, share: float, is_small: bool) -> int:
        mib, sweeps = (1, 10 * self._mib) if is_small else (self._mib, 10)
        argv = ["python", "-m", "apps.triad", "--mib", str(mib), "--sweeps", str(sweeps)]
        argv += ["--iterations", str(round(share * self._iterations))]
        submission = prepare(argv, processes, walltime_s=3600, cwd=self._folder)
        with Client(self.service) as client:
            return client.ask(m.Submit(submission=submission), m.Submitted).job


def predicted(
    capacity: float, run_s: Sequence[float], demands: Sequence[float]
) -> dict[str, list[float]]:
    """Times of jobs of one process that start together on one node, s, by each reading."""
    found = {}
    for penalty, windows in READINGS:
        shared = SharedCapacity(len(run_s), {NAME: capacity}, penalty)
        nodes = SharedNodes(shared, windows)
        for i, (alone_s, demand) in enumerate(zip(run_s, demands, strict=True)):
            nodes.start(i, ProcSet.span(i, 1), (demand,), alone_s, 0.0)
        ends = [0.0] * len(run_s)
        while nodes.jobs:
            number, job = min(nodes.jobs.items(), key=lambda item: (item[1].ends, item[0]))
            ends[number] = job.ends
            nodes.end(number, job.ends)
        found[f"{penalty}/{windows}"] = ends
    return found


def measure(bench: Bench, repeats: int) -> dict[str, Any]:
    """Run all cases and compare them with the model."""
    runs: dict[str, list[list[tuple[float, float]]]] = {}
    cases = {
        "pair": [(2, 1.0, False)],
        "alone": [(1, 1.0, False)],
        "together": [(1, 1.0, False), (1, 1.0, False)],
        "half": [(1, 1.0, False), (1, 0.5, False)],
        "cached alone": [(1, 1.0, True)],
        "cached": [(1, 1.0, False), (1, 1.0, True)],
    }
    for repeat in range(repeats):
        for name, jobs in cases.items():
            print(f"repeat {repeat + 1} of {repeats}: {name}", file=sys.stderr)
            runs.setdefault(name, []).append(bench.run(*jobs))

    def middle(name: str, job: int, value: int) -> float:
        return median(run[job][value] for run in runs[name])

    capacity, demand = 2 * middle("pair", 0, 1), middle("alone", 0, 1)
    alone_s, cached_s = middle("alone", 0, 0), middle("cached alone", 0, 0)
    plans = {
        "together": ((alone_s, alone_s), (demand, demand)),
        "half": ((alone_s, alone_s / 2), (demand, demand)),
        "cached": ((alone_s, cached_s), (demand, 0.0)),
    }
    compared = []
    for name, (run_s, demands) in plans.items():
        model = predicted(capacity, run_s, demands)
        for job in range(2):
            measured_s = middle(name, job, 0)
            compared.append(
                {
                    "case": name,
                    "job": job + 1,
                    "alone_s": run_s[job],
                    "measured_s": measured_s,
                    "factor": measured_s / run_s[job],
                    "predicted_s": {reading: ends[job] for reading, ends in model.items()},
                }
            )
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "capacity_mb_s": capacity,
        "demand_mb_s": demand,
        "repeats": repeats,
        "cases": compared,
    }


def as_text(result: dict[str, Any]) -> str:
    """Write the comparison as a table."""
    readings = [f"{penalty}/{windows}" for penalty, windows in READINGS]
    lines = []
    for case in result["cases"]:
        measured_s, model = case["measured_s"], case["predicted_s"]
        cells = [
            f"{model[reading]:.2f} ({100 * (model[reading] / measured_s - 1):+.0f} %)"
            for reading in readings
        ]
        lines.append(
            [
                *(case["case"], str(case["job"]), f"{case['alone_s']:.2f}", f"{measured_s:.2f}"),
                *(f"{case['factor']:.2f}", *cells),
            ]
        )
    headings = ["CASE", "JOB", "ALONE, S", "MEASURED, S", "FACTOR", *map(str.upper, readings)]
    head = (
        f"{result['cpus']} CPUs, load {result['load']:.1f}; capacity"
        f" {result['capacity_mb_s']:.0f} MB/s, demand {result['demand_mb_s']:.0f} MB/s a process"
    )
    return f"{head}\n{render(Table(headings, lines, left=frozenset(['CASE'])))}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=96, help="MiB of each array of a job (96)")
    parser.add_argument("--iterations", type=int, default=12, help="of a job (12)")
    parser.add_argument("--repeats", type=int, default=3, help="of all cases (3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if min(options.mib, options.iterations - 1, options.repeats) < 1:
        parser.error("--mib and --repeats must be >= 1, --iterations >= 2")
    with tempfile.TemporaryDirectory(prefix="reshape-sharing-") as folder:
        bench = Bench(Path(folder), options.mib, options.iterations)
        background.start(bench.service, ["--processors", "2", "--scenario", "easy"])
        try:
            result = measure(bench, options.repeats)
        finally:
            background.stop(bench.service, kill=True)
    print(json.dumps(result) if options.json else as_text(result))


if __name__ == "__main__":
    main()
