"""Where the time of one simulated trace goes, in seconds of processor time.

    python benchmarks/simulator/phases.py TRACE [--policy easy] [--select count] [--json]

The phases of `reshape simulate` in one process: imports, reading (and of that, unpacking alone),
the rules, the run and the results. The events that the run handed to the core are then handed over
once more to a new core, in a row: its share of the run; the rest is the engine's.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

spent: dict[str, float] = {}


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Take the time of what is done inside."""
    begin = time.process_time()
    yield
    spent[name] = time.process_time() - begin


def main() -> None:
    """Print the phases, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--select", default="count", choices=["count", "first-fit"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with phase("imports"):
        from scheduler.core.core import Core
        from scheduler.model.machine import Machine
        from scheduler.policies.scenarios import scenario
        from simulator.engine.engine import Engine
        from simulator.traces import swf
        from simulator.traces.normalise import NEEDED, machine_size, normalise

    counted = options.select == "count"

    def core() -> Core:
        machine = Machine([("machine", size)], counted=counted)
        chosen = scenario(options.policy)
        return Core(chosen, machine, kill_at_walltime=False, keep_ended=False)

    if options.trace.endswith(".gz"):
        with phase("of reading: unpacking"), gzip.open(options.trace) as file:
            file.read()
    with phase("reading"):
        trace = swf.read(options.trace, fields=NEEDED)
    with phase("rules"):
        size = machine_size(trace)
        jobs, _ = normalise(trace, size)
    gc.disable()
    with phase("run"):
        engine = Engine(core(), jobs, allocations=not counted)
        schedule = engine.run()
    with phase("results"):
        schedule.metrics()
    instants: list[list[object]] = []
    Engine(core(), jobs, watch=lambda now, events, orders: instants.append(events)).run()
    with phase("of the run: core"):
        handle = core().handle
        for events in instants:
            handle(events)  # type: ignore[arg-type]
    names = ["imports", "reading", "of reading: unpacking", "rules", "run", "of the run: core"]
    table = {name: round(spent[name], 3) for name in [*names, "results"] if name in spent}
    if options.json:
        print(json.dumps(table, indent=2))
        return
    for name, seconds in table.items():
        print(f"{name:24}{seconds:8.3f} s{1e6 * seconds / len(jobs):10.2f} us a job")


if __name__ == "__main__":
    main()
