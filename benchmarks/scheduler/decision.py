"""Time that the core takes to answer one resize point.

    python benchmarks/scheduler/decision.py [--scenarios fcfs-pr pba-pr] [--rounds 5] [--json]

Resizable jobs run under each scenario that resizes, on a machine with idle processors. Each job
comes to its resize points, expands, contracts and has a history of several sizes. Only
`core.handle` with the resize point is timed, garbage collection included, by the wall clock and by
the processor time of this process. With queued jobs a decision also depends on the queue and on the
reservation of the head.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from itertools import product

import numpy as np

from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.events import JobSpec, JobStarted, JobSubmitted, ResizeDone, ResizePoint
from scheduler.model.machine import Machine
from scheduler.model.orders import Contract, Expand
from scheduler.policies.registry import known
from scheduler.policies.scenarios import scenario

CASES = [(100, 0), (1000, 0), (100, 10_000), (1000, 10_000)]
START, MOST = 4, 40


def prepared(name: str, running: int, queued: int) -> Core:
    """Core with so many running resizable jobs, and so many queued jobs that do not fit."""
    core = Core(scenario(name), Machine([("m", running * START * 3)]))
    spec = JobSpec(START, 1e6, MOST, Topology("arbitrary", step=START))
    core.handle([JobSubmitted(0.0, job, spec) for job in range(1, running + 1)])
    core.handle([JobStarted(1.0, job) for job in range(1, running + 1)])
    large = JobSpec(running * START * 3, 1e5)
    waiting = range(running + 1, running + queued + 1)
    core.handle([JobSubmitted(2.0, job, large) for job in waiting])
    return core


def decisions(core: Core, running: int, rounds: int, seed: int) -> list[tuple[float, float]]:
    """Bring each job to a resize point in each round.

    Returns
    -------
    (wall clock, processor time) of each answer, seconds.
    """
    dice = random.Random(seed)
    gain = {job: dice.uniform(0.2, 1.0) for job in range(1, running + 1)}
    seconds = []
    for turn in range(1, rounds + 1):
        for job in dice.sample(range(1, running + 1), running):
            now = core.now + 0.01
            size = core.jobs[job].size
            iteration_s = 100 / (size ** gain[job]) * dice.uniform(0.98, 1.02)
            event = ResizePoint(now, job, turn, iteration_s)
            begin = time.perf_counter(), time.process_time()
            (order,) = core.handle([event])
            end = time.perf_counter(), time.process_time()
            seconds.append((end[0] - begin[0], end[1] - begin[1]))
            if isinstance(order, Expand | Contract):
                core.handle([ResizeDone(now, job, order.serial)])
    return seconds


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="resize points of each job (5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    there = [name for name in known("scenario") if scenario(name).resizing is not None]
    parser.add_argument("--scenarios", nargs="+", default=there, help=f"({' '.join(there)})")
    options = parser.parse_args()
    rows = []
    for name, (running, queued) in product(options.scenarios, CASES):
        core = prepared(name, running, queued)
        taken = np.array(decisions(core, running, options.rounds, options.seed)) * 1e6
        resizes = sum(job.resizes for job in core.jobs.values())
        (p50, cpu_p50), (p99, cpu_p99) = np.percentile(taken, (50, 99), axis=0).round(1).tolist()
        row: dict[str, object] = {"scenario": name}
        row |= {"running": running, "queued": queued, "decisions": len(taken), "resizes": resizes}
        row |= {"p50_us": p50, "p99_us": p99, "cpu_p50_us": cpu_p50, "cpu_p99_us": cpu_p99}
        rows.append(row)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(" ".join(f"{name:>12}" for name in rows[0]))
    for row in rows:
        print(" ".join(f"{value!s:>12}" for value in row.values()))


if __name__ == "__main__":
    main()
