"""Mean turnaround of one workload of computing programs under several scenarios.

    python benchmarks/scheduler/gain.py [--quick] [--processors 16 --share 0.04]
        [--work 2.7] [--spread 1] [--scenarios easy malleable] [--out DIR] [--json]
    python benchmarks/scheduler/gain.py --simulate --processors 16 [--work 2.7]

14 jobs run `all_pairs.py` with one thread a rank on as many processors as there are cores. They
request 1, 2 and 4 of them; a quarter is rigid, the others may have from a quarter of their request
up to the whole machine. Under EASY all keep the sizes that they request. The picture in the output
directory shows all runs. With ``--quick`` programs are so short that the runs show only that all
scenarios work. The exit code is 1 if a program did not verify its result.

With ``--share`` a processor is about this share of a core: the ranks compute less and sleep
between, so that a machine of few cores runs as many processes as one of many. Iterations have as
much less work and take as long. The product of ``--processors`` and ``--share`` should be at most a
third of the cores: starts of groups and the service need cores, too, and take longer than on cores
of their own. So jobs should be long: with ``--work 2.7`` they have 2.7 times as many iterations.
With ``--work 4 --spread 4`` they also come at intervals that are four times as long, so that starts
take a fourth of the time in relation to them, which is about what they take on real cores.

``--simulate`` simulates the same jobs as on cores of their own: with the times that such a program
took on 1 to 16 cores, and starts of half a second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import asdict
from rich.console import Console

import simulator as sim
from reshape.speedup import Tabulated
from reshape.topology import Topology
from scheduler.client.demo.command import failures, is_verified, write_page
from scheduler.client.demo.workload import LONGEST_S, DemoJob, run_workload, shown_progress
from scheduler.journal.journal_reader import reading
from scheduler.model.events import JobSpec
from scheduler.policies.scenarios import changed, scenario
from simulator.engine.costs import Costs, StepTime
from simulator.engine.jobs import SimJob
from simulator.live_runs import RecordedRun
from simulator.workload_models.workload import Workload

PROGRAM = Path(__file__).with_name("all_pairs.py")
JOBS, SEED = 14, 0
#: Pairs that a core computes in a second.
CORE_RATE = 25e6
#: Seconds of an iteration on one processor.
ITERATION_S = 2000**2 / CORE_RATE
#: Seconds that such a program took on a machine with 16 cores, by its ranks.
SPEEDUP = Tabulated({1: 13.2, 2: 7.2, 4: 4.8, 8: 2.8, 16: 2.0})
#: Seconds of starts, ends and joins on cores of their own.
COSTS = Costs(
    start=StepTime(0.5),
    end=StepTime(0.1),
    group=StepTime(0.5),
    join=StepTime(0.03),
    leave=StepTime(0.1),
)


class Case(NamedTuple):
    """How one run is scheduled: its scenario with some fields, and whether jobs state minima."""

    scenario: str
    fields: tuple[str, ...] = ()
    minima: bool = False


CASES = {
    "easy": Case("easy"),
    "steady": Case("steady"),
    "max-b-pr, adaptive": Case("max-b-pr", ("backfill.adaptive_start=0.25",)),
    "malleable": Case("malleable", minima=True),
}


def workload(
    processors: int, share: float, factor: float, spread: float, *, quick: bool
) -> list[DemoJob]:
    """Draw the jobs; they come about as fast as all processors can run them."""
    rng = np.random.default_rng(SEED)
    at_s, jobs = 0.0, []
    for number in range(JOBS):
        request = min(processors, (1, 2, 4)[number % 3])
        rigid = number % 4 == 3
        work = round(int(rng.choice([40, 80, 320])) * request * factor)
        bodies, iterations = (300, 6) if quick else (2000, work)
        bodies = round(bodies * share**0.5)  # forces are computed for each pair
        words = ["--bodies", str(bodies), "--iterations", str(iterations)]
        if share < 1:
            words += ["--rate", str(share * CORE_RATE)]
        jobs.append(
            DemoJob(
                at_s=round(at_s, 2),
                argv=["python", str(PROGRAM), *words],
                processors=request,
                min_processors=None if rigid else max(1, request // 4),
                max_processors=None if rigid else processors,
                topology=None if rigid else Topology("arbitrary"),
                walltime_s=600.0 * spread,
            )
        )
        at_s += float(rng.exponential(0.5 if quick else 50 * spread / processors))
    return jobs


def simulated(jobs: list[DemoJob], processors: int, case: Case) -> Mapping[str, Any]:
    """Metrics of a simulation of the jobs."""
    made = []
    for job in jobs:
        iterations = int(job.argv[job.argv.index("--iterations") + 1])
        spec = JobSpec(
            job.processors,
            job.walltime_s,
            job.max_processors,
            job.topology,
            min_processors=job.min_processors,
        )
        run_s = iterations * ITERATION_S / SPEEDUP.factor(1, job.processors)
        made.append(SimJob(job.at_s, spec, run_s, iterations, SPEEDUP))
    fields = dict(field.split("=") for field in case.fields)
    rules = changed(scenario(case.scenario), fields)
    return sim.simulate(sim.Jobs(Workload(processors, made, COSTS)), scenario=rules).metrics


def row_of(name: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Row of the table."""
    return {
        "scenario": name,
        "turnaround_s": round(metrics["mean_turnaround_s"], 2),
        "wait_s": round(metrics["mean_wait_s"], 2),
        "makespan_s": round(metrics["makespan_s"], 1),
        "used_pct": round(100 * metrics["utilization"], 1),
        "expansions": metrics["expansions"],
        "contractions": metrics["contractions"],
    }


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--processors", type=int, default=os.cpu_count())
    parser.add_argument("--share", type=float, default=1.0, help="of a core, for each processor")
    parser.add_argument("--work", type=float, default=1.0, help="factor of all iterations")
    parser.add_argument("--spread", type=float, default=1.0, help="factor of intervals of arrival")
    parser.add_argument("--simulate", action="store_true", help="run nothing")
    parser.add_argument("--quick", action="store_true", help="short programs")
    parser.add_argument("--out", type=Path, default=Path("gain-out"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    processors = options.processors
    jobs = workload(processors, options.share, options.work, options.spread, quick=options.quick)
    rows, failed = [], []
    for name in options.scenarios:
        case = CASES[name]
        submitted = [job if case.minima else job._replace(min_processors=None) for job in jobs]
        if options.simulate:
            rows.append(row_of(name, simulated(submitted, processors, case)))
            continue
        with shown_progress(Console(stderr=True), name, processors) as progress:
            done = run_workload(
                submitted,
                processors,
                case.scenario,
                options.out / name,
                progress,
                case.fields,
                longest_s=LONGEST_S * options.spread,
            )
        failed += failures(name, done)
        with reading(options.out / name) as journal:
            its = RecordedRun.of(journal.batches()).schedule.metrics()
        verified = sum(map(is_verified, done))
        rows.append(row_of(name, asdict(its)) | {"verified": verified})
    title = f"{JOBS} computing programs on {processors} processors"
    if options.share < 1:
        title += f" of {options.share:g} cores each"
    page = None if options.simulate else write_page(options.out, options.scenarios, title)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        width = max(len(name) for name in (*CASES, *rows[0]))
        print(" ".join(f"{name:>{width}}" for name in rows[0]))
        for row in rows:
            print(" ".join(f"{value!s:>{width}}" for value in row.values()))
        print(page or "simulated, on cores of their own")
    print("\n".join(failed), file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
