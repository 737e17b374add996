"""Speed of simulations of several centres.

    python benchmarks/simulator/centres.py --traces ~/traces              # merged trace, 3 centres
    python benchmarks/simulator/centres.py --centres 100 --jobs 1000000 --ask 5

The first form simulates the first four months of CTC, SDSC-SP2 and SDSC-BLUE, merged, under several
task assignment policies. The second form draws jobs for many centres of 64 to 1024 processors, with
exponential times between submissions so that the load is as given, and assigns each to the least
quoted wait of those that are asked.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

import simulator as sim
from scheduler.compiled import STATE
from scheduler.policies.scenarios import scenario
from simulator.many_centres.rules import CentreDescription
from simulator.studies.sites import centres
from simulator.traces import swf
from simulator.traces.derived import merge

TRACES = {
    "CTC": "CTC-SP2-1996-3.1-cln.swf.gz",
    "SDSC": "SDSC-SP2-1998-4.2-cln.swf.gz",
    "SDSC-Blue": "SDSC-BLUE-2000-4.1-cln.swf.gz",
}
POLICIES = ("random", "less-submittedjobs", "less-jobsinqueue", "less-workleft", "less-waittime")


def main() -> None:
    """Run the benchmark that the options name."""
    parser = argparse.ArgumentParser(description="Speed of simulations of several centres.")
    parser.add_argument("--traces", type=Path, help="Directory of the traces to merge.")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--centres", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--ask", type=int, default=5)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"core {STATE}")
    if options.traces is not None:
        traces = [swf.read(options.traces / name) for name in TRACES.values()]
        trace = merge(traces, [*TRACES], 120)
        for policy in options.policies.split(","):
            begin = time.process_time()
            run = sim.simulate(sim.Jobs(trace), machine=centres("ALL-SJBF"), assign=policy)
            report(policy, len(run.schedule.jobs), time.process_time() - begin)
        return
    generator = np.random.default_rng(options.seed)
    scenario_ = scenario("easy", {"backfill_order": "sjf"})
    many = [
        CentreDescription(f"c{i}", int(2 ** generator.integers(6, 11)), scenario_)
        for i in range(options.centres)
    ]
    jobs = drawn(options.jobs, sum(c.processors for c in many), options.load, generator)
    begin = time.process_time()
    run = sim.simulate(jobs, machine=many, assign="less-waittime", dispatch={"ask": options.ask})
    count = len(run.schedule.jobs)
    report(f"{options.centres} centres, ask {options.ask}", count, time.process_time() - begin)
    wait_s, used_pct = run.metrics["mean_wait_s"], run.metrics["utilization_pct"]
    print(f"mean wait {wait_s:.0f} s, utilization {used_pct:.0f} %")


def drawn(count: int, processors: int, load: float, generator: np.random.Generator) -> sim.Jobs:
    """Jobs of log-uniform sizes and run times, with estimates of up to five times the run time."""
    sizes = np.floor(2 ** generator.uniform(0, 8, count)).astype(np.int64)
    run_s = np.ceil(np.exp(generator.uniform(np.log(30), np.log(36000), count)))
    estimate = np.ceil(run_s * generator.uniform(1, 5, count))
    gap_s = float((sizes * run_s).mean()) / (processors * load)
    return sim.Jobs(
        submit_s=np.cumsum(generator.exponential(gap_s, count)),
        processors=sizes,
        run_s=run_s,
        walltime_s=estimate,
        user=np.arange(1, count + 1) % 100,
    )


def report(name: str, jobs: int, cpu_s: float) -> None:
    """Print the time of a run and the largest memory so far."""
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name}: {jobs} jobs, {cpu_s:.1f} s of one core, {peak_mib:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
