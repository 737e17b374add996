"""Processor time of forecasts: 1000 jobs run and 10 000 are queued.

Prints a table: reading the state from a site or a journal, building a copy of the site, one
forecast of all starts, a further quote on the same state, and futures with drawn run times.

    python benchmarks/scheduler/forecast.py [--running 1000] [--queued 10000] [--scenario easy]
        [--depth 1000] [--horizon 86400] [--resizable 0.5]

A service limits the depth of passes to 1000 jobs under conservative backfilling (setting `passes`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import inf

import numpy as np
from msgspec.structs import replace

from scheduler.compiled import STATE
from scheduler.core.core import Core
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.policies.scenarios import scenario
from scheduler.text.tables import Table, render

MEAN_PROCESSORS = 8
QUOTED = JobSpec(4, 3600.0)


def loaded_site(name: str, running: int, queued: int, depth: int | None, resizable: float) -> Core:
    """Site with running jobs, and about the given number of queued jobs."""
    rng = np.random.default_rng(1)
    chosen = scenario(name, {} if depth is None else {"backfill.max_jobs": depth})
    site = Core(chosen, Machine([("n", running * MEAN_PROCESSORS)]))
    count = running + queued
    sizes = rng.integers(1, 2 * MEAN_PROCESSORS, count).tolist()
    walltimes = rng.integers(1, 24 * 60, count).tolist()
    events = []
    for i, (size, minutes) in enumerate(zip(sizes, walltimes, strict=True)):
        spec = JobSpec(size, 60.0 * minutes + count)
        if i % 100 < 100 * resizable:
            spec = replace(spec, max_processors=4 * size, performance="amdahl:serial=0.01")
        events.append(JobSubmitted(float(i), i + 1, spec))
    site.handle(events)  # one pass: conservative backfilling examines the queue in each
    return site


def best_of(times: int, function: Callable[[], object]) -> float:
    """Shortest processor time of several calls, in milliseconds."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        function()
        taken.append(time.process_time() - begun)
    return 1000 * min(taken)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=int, default=1000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--scenario", nargs="*", default=["fcfs", "easy", "conservative"])
    parser.add_argument("--times", type=int, default=3, help="forecasts of which the best counts")
    parser.add_argument("--depth", type=int, help="jobs that a pass examines")
    parser.add_argument("--horizon", type=float, default=inf, help="end of the forecasts, seconds")
    parser.add_argument("--resizable", type=float, default=0.0, help="share of resizable jobs")
    options = parser.parse_args()
    horizon = options.horizon
    print(f"core: {STATE}")
    rows = []
    for name in options.scenario:
        site = loaded_site(name, options.running, options.queued, options.depth, options.resizable)
        state = RecordedState.of_core(site)
        jobs = f"{len(site.live)} + {len(state.jobs) - len(site.live)}"
        times = [
            best_of(3, lambda s=site: RecordedState.of_core(s)),
            best_of(3, state.core),
            best_of(options.times, lambda s=state: forecast(s, horizon_s=horizon)),
            best_of(
                options.times,
                lambda s=state: forecast(s, [QUOTED], horizon_s=horizon, only=[s.last + 1]),
            ),
        ]
        rows.append((name, jobs, *(f"{each:.0f}" for each in times)))
    heads = ["SCENARIO", "RUNNING+QUEUED", "RECORD_MS", "COPY_MS", "FORECAST_MS", "QUOTE_MS"]
    print(render(Table(heads, rows)))


if __name__ == "__main__":
    main()
