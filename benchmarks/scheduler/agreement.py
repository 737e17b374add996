"""Compares live runs of a small workload with their replays and predictions.

    python benchmarks/scheduler/agreement.py [--scenarios easy fcfs-pr] [--seeds 0 1] [--out DIR]

Each run takes a minute on a service of its own with 16 virtual processors. Its workload is 12
synthetic applications; some of them are rigid, the others have minima and maxima. Then
`reshape replay` hands the events of the journal to the decision core again, and the simulator
predicts the mean turnaround from the submissions alone. The times of starts, joins, moves and ends
are measured in an earlier run of 24 other jobs and in all the other runs, never in the one that is
predicted (`error_pct`); for comparison, in that one alone (`own_pct`). The exit code is 1 if a
decision differs or an `error_pct` is above 10. Other programs on the machine slow a live run down,
which no simulation can predict.

A run whose journal exists in the output directory is not repeated, so that a long series can be
made in several calls.
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

from scheduler.client.demo.workload import run_workload, shown_progress, workload
from scheduler.policies.registry import known

WANTED = ("easy", "fcfs-pr", "pba-pr", "max-b-pr", "malleable")
PROCESSORS, LIMIT_PCT = 16, 10.0
#: The run in which the costs of the machine are measured; no workload has its seed.
COSTS_JOBS, COSTS_SEED, COSTS_SCENARIO = 24, 100, "fcfs-pr"


def live(scenario: str, jobs: int, seed: int, folder: Path) -> None:
    """Run the workload unless its journal exists; leave the journal in the folder."""
    if (folder / "journal.db").is_file():
        return
    drawn = workload(PROCESSORS, seed, jobs, computing=False)
    with shown_progress(Console(stderr=True), scenario, PROCESSORS) as progress:
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
    """Return the figures of a journal's replays, with the costs of other runs."""
    costs = [word for other in others for word in ("--costs", str(other))]
    predicted = replay(folder, "--predict", *costs)
    own, again = replay(folder, "--predict"), replay(folder, "--policy", scenario)
    return {
        **{name: predicted[name] for name in ("events", "decisions", "resizes", "identical")},
        "live_s": predicted["live"]["mean_turnaround_s"],
        "predicted_s": predicted["predicted"]["mean_turnaround_s"],
        "spread_pct": predicted["spread_pct"]["predicted"],
        "error_pct": predicted["error_pct"],
        "own_pct": own["error_pct"],
        "what_if_s": again["what_if"]["mean_turnaround_s"],
    }


if __name__ == "__main__":
    main()
