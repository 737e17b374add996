"""Time that the core takes to answer one resize point, or one end or submission of a job.

    python benchmarks/scheduler/decision.py [--scenarios fcfs-pr pba-pr] [--rounds 5] [--json]
    python benchmarks/scheduler/decision.py --static [easy conservative] [--queued 10000]
    python benchmarks/scheduler/decision.py --minima --scenarios malleable

Resizable jobs run under each scenario that resizes, on a machine with idle processors. Each job
comes to its resize points, expands, contracts and has a history of several sizes. Only
`core.handle` with the resize point is timed, garbage collection included, by the wall clock and by
the processor time of this process. With queued jobs a decision also depends on the queue and on the
reservation of the head.

With ``--static`` jobs of random requests fill the machine and the queue. They end earlier than they
estimated, and for each job that starts another one is submitted, so that the queue keeps its
length. The ends and the submissions are timed, each of which may cause a scheduling pass. Passes
are bounded as in a service (`passes` of its configuration); ``--unbounded`` leaves out the bounds.
Without names, ``--static`` takes all scenarios, some with other fields. With ``--waiting`` as many
further jobs are not eligible: a third of them held, a third with a begin time, a third with a
dependency. With ``--array`` an array of as many tasks is queued, too.

With ``--minima`` jobs state minima: half of their requests at resize points, where queued jobs need
more than contractions can free; a quarter with ``--static``.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from heapq import heappop, heappush
from itertools import product

import msgspec
import numpy as np

from reshape.topology import Topology
from scheduler.config.settings import NodeConfig, PassConfig, ServeConfig
from scheduler.core.core import Core
from scheduler.model.arrays import TaskArray
from scheduler.model.events import (
    Event,
    JobEnded,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
)
from scheduler.model.machine import Machine
from scheduler.model.orders import Contract, Expand, Start
from scheduler.model.requests import Conditions, Dependency, Term
from scheduler.policies.registry import known
from scheduler.policies.scenarios import scenario
from scheduler.service.driver import PassDepth

CASES = [(100, 0), (1000, 0), (100, 10_000), (1000, 10_000)]
START, MOST = 4, 40
#: Scenarios besides the registered ones: name -> scenario, changed fields.
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "3 reservations": ("easy", {"backfill.reservations": 3}),
    "3 reservations, lxwf": ("easy", {"backfill.reservations": 3, "order": "lxwf"}),
    "easy, sjf": ("easy", {"backfill_order": "sjf"}),
    "easy, lxwf": ("easy", {"backfill_order": "lxwf"}),
    "easy, queue sjf": ("easy", {"order": "sjf"}),
    "conservative, sjf": ("conservative", {"order": "sjf"}),
    "conservative, aging": ("conservative", {"order": "aging"}),
}
PROCESSORS = 1000


def prepared(name: str, running: int, queued: int, *, minima: bool) -> Core:
    """Core with running resizable jobs, and queued jobs that do not fit."""
    processors = running * START * 3
    core = Core(scenario(name), Machine([("m", processors)]))
    spec = JobSpec(START, 1e6, MOST, Topology("arbitrary", step=START))
    large = JobSpec(processors, 1e5)
    if minima:
        spec = msgspec.structs.replace(spec, processors=2 * START, min_processors=START)
        large = msgspec.structs.replace(large, min_processors=processors - running)
    core.handle([JobSubmitted(0.0, job, spec) for job in range(1, running + 1)])
    core.handle([JobStarted(1.0, job) for job in range(1, running + 1)])
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


def random_request(dice: random.Random, *, minima: bool) -> JobSpec:
    """Request whose sizes and walltimes are like those of traces: small and round ones prevail."""
    size = dice.choice([1, 2, 4, 8, 16, 32, 64, 128, dice.randint(1, 256)])
    walltime_s = dice.choice([600, 1800, 3600, 14400, 43200, dice.randint(60, 86400)])
    least = max(1, size // 4) if minima else None
    priority = dice.choice([0.0, 100.0, 1000.0])
    return JobSpec(size, walltime_s, min_processors=least, priority=priority)


def not_eligible(number: int, job: int) -> JobSpec:
    """Request of a job that waits for a release, a time or the end of the job before it."""
    dependency = Dependency((Term("afterok", job - 1),))
    kinds = Conditions("user"), Conditions(begin=1e9), Conditions(dependency=dependency)
    return JobSpec(1, 600.0, conditions=kinds[number % 3])


def static_decisions(
    name: str,
    queued: int,
    count: int,
    seed: int,
    *,
    bounded: bool,
    waiting: int,
    tasks: int,
    minima: bool,
    processors: int = PROCESSORS,
) -> list[float]:
    """Let `count` jobs end while others are queued.

    Returns
    -------
    processor time of each answer to an end or a submission, seconds.
    """
    dice = random.Random(seed)
    base, fields = VARIANTS.get(name, (name, {}))
    passes = PassConfig() if bounded else PassConfig(max_jobs=None, longest_s=None)
    node = NodeConfig("m", processors)
    core = Core(
        ServeConfig((node,), scenario=base, parameters=fields, passes=passes).composed(),
        Machine([(node.name, processors)]),
        kill_at_walltime=False,
    )
    depth = PassDepth(passes.longest_s, None)
    ends: list[tuple[float, int]] = []
    seconds: list[float] = []

    def handle(event: Event) -> None:
        examined, begin = core.partitions[0].state.examined, time.thread_time()
        orders = core.handle([event])
        took = time.thread_time() - begin
        seconds.append(took)
        change = depth.change(core.now, took, core.partitions[0].state.examined - examined)
        if change is not None:
            handle(change)
        for order in orders:
            if isinstance(order, Start):
                length_s = core.jobs[order.job].estimate_s * dice.uniform(0.1, 1.0)
                heappush(ends, (core.now + length_s, order.job))

    filling = JobSubmitted(0.0, 1, JobSpec(processors, 1.0))
    handle(filling)
    for job in range(2, queued + 2):
        handle(JobSubmitted(0.0, job, random_request(dice, minima=minima)))
    last = queued + 1
    for number in range(waiting):
        last += 1
        handle(JobSubmitted(0.0, last, not_eligible(number, last)))
    if tasks:
        array = JobSpec(1, 600.0, array=TaskArray.parse(f"1-{tasks}"))
        handle(JobSubmitted(0.0, last + 1, array))
        last += 1 + tasks
    ends[:] = [(1.0, 1)]
    handle(JobEnded(*ends.pop()))
    seconds.clear()
    for _ in range(count):
        now, job = heappop(ends)
        handle(JobEnded(now, job))
        while len(core.partitions[0].queue) < queued:
            last += 1
            handle(JobSubmitted(now, last, random_request(dice, minima=minima)))
    return seconds


def static_rows(names: list[str], options: argparse.Namespace) -> list[dict[str, object]]:
    """Rows of the table of ends and submissions."""
    known_names = [*known("scenario"), *VARIANTS]
    unknown = [name for name in names if name not in known_names]
    if unknown:
        raise SystemExit(f"unknown scenario {unknown[0]!r}; known: {', '.join(known_names)}")
    rows = []
    for name in names or known_names:
        taken = static_decisions(
            name,
            10_000 if options.queued is None else options.queued,
            options.ends,
            options.seed,
            bounded=not options.unbounded,
            waiting=options.waiting,
            tasks=options.array,
            minima=options.minima,
            processors=options.processors,
        )
        p50, p99, most = (np.percentile(taken, (50, 99, 100)) * 1e3).round(3).tolist()
        row: dict[str, object] = {"scenario": name, "decisions": len(taken)}
        rows.append(row | {"p50_ms": p50, "p99_ms": p99, "max_ms": most})
    return rows


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="resize points of each job (5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    there = [name for name in known("scenario") if scenario(name).resizing is not None]
    parser.add_argument("--scenarios", nargs="+", default=there, help=f"({' '.join(there)})")
    parser.add_argument("--queued", type=int, help="queued jobs (0 and 10000; --static: 10000)")
    parser.add_argument("--static", nargs="*", metavar="SCENARIO", help="time ends and submissions")
    parser.add_argument("--ends", type=int, default=300, help="jobs that end, with --static (300)")
    parser.add_argument(
        "--processors", type=int, default=PROCESSORS, help=f"with --static ({PROCESSORS})"
    )
    parser.add_argument("--waiting", type=int, default=0, help="jobs that are not eligible (0)")
    parser.add_argument("--array", type=int, default=0, help="tasks of a queued array (0)")
    parser.add_argument("--unbounded", action="store_true", help="no bound of passes")
    parser.add_argument("--minima", action="store_true", help="jobs state minima")
    options = parser.parse_args()
    if options.static is not None:
        show(static_rows(options.static, options), options.json)
    else:
        show(resize_rows(options), options.json)


def resize_rows(options: argparse.Namespace) -> list[dict[str, object]]:
    """Rows of the table of resize points."""
    rows = []
    cases = [case for case in CASES if options.queued in (None, case[1])]
    if not cases:
        cases = [(running, options.queued) for running in (100, 1000)]
    for name, (running, queued) in product(options.scenarios, cases):
        core = prepared(name, running, queued, minima=options.minima)
        taken = np.array(decisions(core, running, options.rounds, options.seed)) * 1e6
        resizes = sum(job.resizes for job in core.jobs.values())
        (p50, cpu_p50), (p99, cpu_p99) = np.percentile(taken, (50, 99), axis=0).round(1).tolist()
        row: dict[str, object] = {"scenario": name}
        row |= {"running": running, "queued": queued, "decisions": len(taken), "resizes": resizes}
        row |= {"p50_us": p50, "p99_us": p99, "cpu_p50_us": cpu_p50, "cpu_p99_us": cpu_p99}
        rows.append(row)
    return rows


def show(rows: list[dict[str, object]], as_json: bool) -> None:
    """Print a table, or the same as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    width = max(12, *(len(str(row["scenario"])) for row in rows))
    print(" ".join(f"{name:>{width}}" for name in rows[0]))
    for row in rows:
        print(" ".join(f"{value!s:>{width}}" for value in row.values()))


if __name__ == "__main__":
    main()
