"""Speed of simulations of jobs that share nodes, rigid and resizable.

    python benchmarks/simulator/shared_nodes.py TRACE [--processors 412] [--jobs 10000] [--json]

Simulates the first jobs of a trace with demands of the high mix (GUIM 6.3.1) on nodes of four
processors, without sharing and with it; with rigid jobs and with half of the jobs resizable; on the
machine and on ones of ten and a hundred times as many processors. The time is the processor time of
each run, without reading the trace.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from reshape.collection import no_collection
from scheduler.compiled import STATE
from scheduler.config import machine_file as platform
from scheduler.model.procset import ProcSet
from simulator.experiment.experiment import Experiment
from simulator.traces import swf
from simulator.traces.normalise import Rules, normalise
from simulator.workload_models.drawn import CAPACITY, MIXES, NAME, with_demands
from simulator.workload_models.workload import Resizable, of_trace

PER_NODE = 4
SHARING = {"windows": "changes", "overtime": "allow"}


def main() -> None:
    """Print a line for each simulation, or all as JSON."""
    parser = argparse.ArgumentParser(description="Speed of simulations of jobs that share nodes.")
    parser.add_argument("trace", type=Path)
    parser.add_argument("--processors", type=int, default=412)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    trace = with_demands(swf.read(options.trace), MIXES["high"], 1)
    jobs, _ = normalise(trace, options.processors, Rules(overrun="extend"))
    jobs = jobs.first(options.jobs)
    rows = []
    for policy, share in (("easy", 0.0), ("fcfs-pr", 0.5)):
        for times in (1, 10, 100):
            nodes = ProcSet.span(0, times * options.processors // PER_NODE)
            machine = platform.Platform(
                nodes, processors_per_node=PER_NODE, shared_per_node={NAME: CAPACITY}
            )
            how = Resizable(share, "downey:A=64,sigma=1")
            for sharing in (None, SHARING):
                workload = of_trace(jobs, options.processors, how)
                begin = time.process_time()
                with no_collection():
                    experiment = Experiment(
                        workload, machine=machine, scenario=policy, sharing=sharing
                    )
                    found = experiment.run().metrics
                row = {
                    "policy": policy,
                    "resizable": share,
                    "processors": machine.processors,
                    "sharing": sharing is not None,
                    "cpu_s": round(time.process_time() - begin, 2),
                    "resizes": found["expansions"] + found["contractions"],
                    "core": STATE,
                }
                rows.append(row)
                if not options.json:
                    print(*(f"{name}={value}" for name, value in row.items()), flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
