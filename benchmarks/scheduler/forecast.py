"""Time of forecasts: 1000 jobs run and 10 000 are queued.

Prints a table: reading the state from a site or a journal, building a copy of the site, one
forecast of all starts, a further quote on the same state, and futures with drawn run times.

    python benchmarks/scheduler/forecast.py [--running 1000] [--queued 10000] [--scenario easy]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from scheduler.compiled import STATE
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.policies.scenarios import scenario
from scheduler.sites.two_groups import TwoGroupSite
from scheduler.text.tables import Table, render

MEAN_PROCESSORS = 8
QUOTED = JobSpec(4, 3600.0)


def loaded_site(name: str, running: int, queued: int) -> TwoGroupSite:
    """Site with running jobs, and about the given number of queued jobs."""
    rng = np.random.default_rng(1)
    site = TwoGroupSite(scenario(name), Machine([("n", running * MEAN_PROCESSORS)]))
    count = running + queued
    sizes = rng.integers(1, 2 * MEAN_PROCESSORS, count).tolist()
    walltimes = rng.integers(1, 24 * 60, count).tolist()
    for i, (size, minutes) in enumerate(zip(sizes, walltimes, strict=True)):
        site.handle([JobSubmitted(float(i), i + 1, JobSpec(size, 60.0 * minutes + count))])
    return site


def best_of(times: int, function: Callable[[], object]) -> float:
    """Shortest time of several calls, in milliseconds."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return 1000 * min(taken)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=int, default=1000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--scenario", nargs="*", default=["fcfs", "easy", "conservative"])
    options = parser.parse_args()
    print(f"core: {STATE}")
    rows = []
    for name in options.scenario:
        site = loaded_site(name, options.running, options.queued)
        state = RecordedState.of_site(site)
        jobs = f"{len(site.live)} + {len(state.jobs) - len(site.live)}"
        times = [
            best_of(3, lambda s=site: RecordedState.of_site(s)),
            best_of(3, state.site),
            best_of(3, lambda s=state: forecast(s)),
            best_of(3, lambda s=state: forecast(s, [QUOTED])),
        ]
        rows.append((name, jobs, *(f"{each:.0f}" for each in times)))
    heads = ["SCENARIO", "RUNNING+QUEUED", "RECORD_MS", "COPY_MS", "FORECAST_MS", "QUOTE_MS"]
    print(render(Table(heads, rows)))


if __name__ == "__main__":
    main()
