"""A small workload live, replayed and predicted, under several scenarios.

    python benchmarks/scheduler/agreement.py [--scenarios easy fcfs-pr] [--jobs 12] [--out DIR]

Each scenario gets a service of its own on 16 virtual processors and the same workload: synthetic
applications, some of them rigid. Then `reshape replay` hands the journal's events to the decision
core again, and the simulator predicts the mean turnaround from the submissions alone. What the
machine takes for starts, joins, moves and ends is measured in the run itself (`error_pct`), and for
comparison in a run of its own with another workload (`foreign_pct`): on a machine whose load by
others changes, the latter is as far off as the load. The exit code is 1 if a decision differs, or
an `error_pct` is above 10.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from scheduler.demo.progress import Progress
from scheduler.demo.run import run_workload
from scheduler.demo.workload import workload
from scheduler.policies.registry import known

WANTED = ("easy", "fcfs-pr", "pba-pr", "max-b-pr")
PROCESSORS, LIMIT_PCT = 16, 10.0


def live(scenario: str, jobs: int, seed: int, folder: Path) -> None:
    """Run the workload; leaves the journal in the folder."""
    drawn = workload(PROCESSORS, seed, jobs, computing=False)
    with Progress(Console(stderr=True), scenario, PROCESSORS) as progress:
        run_workload(drawn, PROCESSORS, scenario, folder, progress)


def replay(folder: Path, *options: str) -> dict[str, Any]:
    """Run ``reshape replay`` on the journal of a folder."""
    command = [sys.executable, "-m", "reshape", "replay", str(folder), "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    there = [name for name in WANTED if name in (*known("scenario"), *known("resizing"))]
    parser.add_argument("--scenarios", nargs="+", default=there)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("agreement-out"))
    parser.add_argument("--costs", type=Path, help="folder or journal of an earlier costs run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    costs = options.costs or options.out / "costs"
    if options.costs is None:
        live("fcfs-pr", 4, options.seed + 1, costs)
    rows = []
    for scenario in options.scenarios:
        folder = options.out / scenario
        live(scenario, options.jobs, options.seed, folder)
        told = replay(folder, "--predict")
        foreign = replay(folder, "--predict", "--costs", str(costs))
        again = replay(folder, "--policy", scenario)
        row = {name: told[name] for name in ("events", "decisions", "resizes", "identical")}
        row |= {"live_s": told["live"]["mean_turnaround_s"]}
        row |= {"predicted_s": told["predicted"]["mean_turnaround_s"]}
        row |= {"error_pct": told["error_pct"]}
        row |= {"foreign_pct": foreign["error_pct"]}
        row |= {"what_if_s": again["what_if"]["mean_turnaround_s"]}
        rows.append({"scenario": scenario} | row)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print(" ".join(f"{name:>11}" for name in rows[0]))
        for row in rows:
            cells = (f"{v:11.2f}" if isinstance(v, float) else f"{v!s:>11}" for v in row.values())
            print(" ".join(cells))
    good = all(row["identical"] and abs(row["error_pct"]) <= LIMIT_PCT for row in rows)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
