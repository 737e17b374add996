"""Expected starts of the jobs of a real service, compared with what then happens.

    python benchmarks/scheduler/forecast_outcomes.py [--jobs 24] [--processors 8] [--seed 1]
        [--json]

Real jobs (`sleep`) of random sizes and run times are submitted to a service under EASY. At once,
and again when a third and two thirds of them have ended, it is asked when the queued jobs will
start; the differences from their real starts are printed. First the walltimes are the run times and
what a start costs, about 0.15 s; then they are twice the run times, and jobs end earlier than the
forecast assumes. The service does not end jobs at their walltimes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from scheduler import Client

#: Seconds that the start of a job costs.
START_S = 0.15


def reshape(*command: str) -> None:
    """Run a command of the package; its messages are left out."""
    line = [sys.executable, "-m", "reshape", *command]
    subprocess.run(line, stdout=subprocess.DEVNULL, check=True)


def ended_jobs(client: Client) -> int:
    """Count the jobs that have ended."""
    return sum(job.ended_at is not None for job in client.queue(ended=True))


def measure(options: argparse.Namespace, factor: float) -> list[dict[str, Any]]:
    """Run the jobs, and compare forecasts of three moments with the starts."""
    rng = np.random.default_rng(options.seed)
    sizes = rng.integers(1, options.processors + 1, options.jobs).tolist()
    runs = rng.uniform(1.0, 6.0, options.jobs).round(1).tolist()
    with tempfile.TemporaryDirectory(prefix="reshape-outcomes-") as folder:
        directory = Path(folder) / "service"
        config = Path(folder) / "service.yaml"
        config.write_text(f"processors: {options.processors}\nkill_at_walltime: false\n")
        where = ["--dir", str(directory)]
        reshape("serve", "--background", "--config", str(config), "--scenario", "easy", *where)
        try:
            with Client(directory) as client:
                jobs = [
                    client.submit(
                        ["sleep", f"{run_s:g}"],
                        size,
                        walltime=factor * run_s + START_S,
                        cwd=directory,
                        output="/dev/null",
                    )
                    for size, run_s in zip(sizes, runs, strict=True)
                ]
                forecasts = []
                for ended in (0, options.jobs // 3, 2 * options.jobs // 3):
                    while ended_jobs(client) < ended:
                        time.sleep(0.1)
                    forecasts.append(client.expected_starts())
                for job in jobs:
                    job.wait()
                starts = {job.job: job.started_at for job in client.queue(ended=True)}
        finally:
            reshape("stop", *where)
    rows = []
    for moment, found in zip(
        ("submitted", "a third ended", "two thirds ended"), forecasts, strict=True
    ):
        late = np.array([starts[job.job] - job.start for job in found if job.start is not None])
        if not len(late):  # no job waits any more
            continue
        rows.append(
            {
                "walltimes": "run time" if factor == 1 else f"{factor:g} x run time",
                "moment": moment,
                "jobs": len(late),
                "median_s": round(float(np.median(late)), 2),
                "largest_s": round(float(late[np.abs(late).argmax()]), 2),
                "within_1_s_pct": round(100 * float((np.abs(late) <= 1).mean())),
            }
        )
    return rows


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--processors", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for factor in (1.0, 2.0) for row in measure(options, factor)]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['walltimes']:<18} {row['moment']:<17} {row['jobs']:>3} jobs: median"
            f" {row['median_s']:>6.2f} s, largest {row['largest_s']:>6.2f} s,"
            f" {row['within_1_s_pct']:>3} % within 1 s"
        )


if __name__ == "__main__":
    main()
