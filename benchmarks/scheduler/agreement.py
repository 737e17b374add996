"""A small workload live, replayed and predicted, under several scenarios.

    python benchmarks/scheduler/agreement.py [--scenarios easy fcfs-pr] [--seeds 0 1] [--out DIR]

Each run, a minute, gets a service of its own on 16 virtual processors and a workload of 12 jobs:
synthetic applications, some of them rigid. Then `reshape replay` hands the journal's events to the
decision core again, and the simulator predicts the mean turnaround from the submissions alone. What
the machine takes for starts, joins, moves and ends is measured in a run of 24 other jobs before and
in all the other runs, never in the one that is predicted (`error_pct`); for comparison in that one
alone (`own_pct`). The exit code is 1 if a decision differs, or an `error_pct` is above 10. Other
programs that run meanwhile make a live run slower than the others, which no simulation can know.

A run whose journal is in the output directory already is taken as it is, so that a long series can
be made piece by piece.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from scheduler.demo.progress import RunProgress
from scheduler.demo.run import run_workload
from scheduler.demo.workload import workload
from scheduler.policies.registry import known

WANTED = ("easy", "fcfs-pr", "pba-pr", "max-b-pr")
PROCESSORS, LIMIT_PCT = 16, 10.0
#: The run that tells what the machine takes; its seed is none of the workloads'.
COSTS_JOBS, COSTS_SEED, COSTS_SCENARIO = 24, 100, "fcfs-pr"


def live(scenario: str, jobs: int, seed: int, folder: Path) -> None:
    """Run the workload, unless that was done; leaves the journal in the folder."""
    if (folder / "journal.db").is_file():
        return
    drawn = workload(PROCESSORS, seed, jobs, computing=False)
    with RunProgress(Console(stderr=True), scenario, PROCESSORS) as progress:
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
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(7)))
    parser.add_argument("--out", type=Path, default=Path("agreement-out"))
    parser.add_argument("--costs", type=Path, help="folder or journal of an earlier costs run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    costs = options.costs or options.out / "costs"
    if options.costs is None:
        live(COSTS_SCENARIO, COSTS_JOBS, COSTS_SEED, costs)
    runs = {
        (seed, scenario): options.out / str(seed) / scenario
        for seed, scenario in product(options.seeds, options.scenarios)
    }
    for (seed, scenario), folder in runs.items():
        live(scenario, options.jobs, seed, folder)
    rows = []
    for (seed, scenario), folder in runs.items():
        others = [costs, *(other for other in runs.values() if other != folder)]
        rows.append({"seed": seed, "scenario": scenario} | row(folder, scenario, others))
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print(" ".join(f"{name:>11}" for name in rows[0]))
        for facts in rows:
            cells = (f"{v:11.2f}" if isinstance(v, float) else f"{v!s:>11}" for v in facts.values())
            print(" ".join(cells))
    good = all(facts["identical"] and abs(facts["error_pct"]) <= LIMIT_PCT for facts in rows)
    sys.exit(0 if good else 1)


def row(folder: Path, scenario: str, others: list[Path]) -> dict[str, Any]:
    """What the replays of a journal say, with the costs of other runs."""
    costs = [word for other in others for word in ("--costs", str(other))]
    told = replay(folder, "--predict", *costs)
    own, again = replay(folder, "--predict"), replay(folder, "--policy", scenario)
    return {
        **{name: told[name] for name in ("events", "decisions", "resizes", "identical")},
        "live_s": told["live"]["mean_turnaround_s"],
        "predicted_s": told["predicted"]["mean_turnaround_s"],
        "spread_pct": told["spread_pct"]["predicted"],
        "error_pct": told["error_pct"],
        "own_pct": own["error_pct"],
        "what_if_s": again["what_if"]["mean_turnaround_s"],
    }


if __name__ == "__main__":
    main()
