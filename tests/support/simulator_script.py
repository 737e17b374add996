"""Scripts that drive the simulator: a machine, a scenario and jobs in, orders and times out.

Above a line ``----`` stands the input, a line each; lines that begin with ``#`` are comments, empty
lines are free::

    scenario NAME [FIELD=VALUE ...]
    machine PROCESSORS | machine tree NODES K LEVELS
    order batch | order sequential
    cost [start_s=S] [join_s=S] [bytes_per_s=B] [job_start_s=S] [job_end_s=S]
    job NUMBER at=S n=N run=S walltime=S [user=NAME] [max=N] [topology=T] [iterations=N]
        [speedup=MODEL] [data_mib=M]

Below it stands the output: the orders by time, as in the scripts of the core (wake-ups left out),
and a table of the jobs. Jobs are numbered in the order of their submission. A word that is not
listed here is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core_script import order_line
from one_machine import run

from reshape.speedup import parse
from reshape.topology import Topology
from scheduler.config import machine_file as platform
from scheduler.model.events import Event, JobSpec
from scheduler.model.network import Tree
from scheduler.model.orders import Order, WakeAt
from scheduler.policies.scenarios import scenario
from scheduler.text.located import converted
from scheduler.text.tables import Table, render
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.jobs import SimJob
from simulator.workload_models.workload import Workload

REQUIRED = ("at", "n", "run", "walltime")
JOB_COSTS = ("job_start_s", "job_end_s")
OPTIONAL = ("user", "max", "topology", "iterations", "speedup", "data_mib")


def replay(path: Path) -> str:
    """Run a script and return its text with the output that follows from its input."""
    text = path.read_text().partition("\n----\n")[0].rstrip("\n")
    return f"{text}\n----\n{simulate(text)}\n"


def simulate(text: str) -> str:
    """Output for the input of a script.

    Raises
    ------
    ValueError : a line has an unknown word, or lacks one.
    """
    chosen, machine, order = scenario("easy"), platform.flat(1), "batch"
    costs: dict[str, str] = {}
    jobs: list[SimJob] = []
    for line in filter(None, (line.partition("#")[0].strip() for line in text.split("\n"))):
        match line.split():
            case ["scenario", name, *fields]:
                chosen = scenario(name, dict(field.split("=", 1) for field in fields))
            case ["machine", "tree", nodes, k, levels]:
                machine = platform.on_network(Tree(int(k), int(levels)), int(nodes))
            case ["machine", processors]:
                machine = platform.flat(int(processors))
            case ["order", ("batch" | "sequential") as order]:
                pass
            case ["cost", *fields]:
                costs = named(line, fields, (), (*ResizeCost.__struct_fields__, *JOB_COSTS))
            case ["job", number, *fields]:
                jobs.append(read_job(named(line, fields, REQUIRED, OPTIONAL)))
                if int(number) != len(jobs) or jobs[-1].at < max(job.at for job in jobs):
                    raise ValueError(f"{line!r}: number jobs from 1 in the order of submission")
            case _:
                raise ValueError(f"{line!r}: unknown line; see tests/support/simulator_script.py")
    around = [float(costs.pop(name, 0)) for name in JOB_COSTS]
    output: list[str] = []

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        shown = [order for order in orders if not isinstance(order, WakeAt)]
        output.extend(f"@{now:g}  {order_line(order)}".rstrip() for order in shown)

    workload = Workload(None, jobs, Costs.constant(converted(costs, ResizeCost), *around))
    schedule = run(workload, machine, chosen, event_order=order, watch=watch)
    rows: list[Sequence[Any]] = []
    for number, job in enumerate(jobs, 1):
        start, end = float(schedule.started[number - 1]), float(schedule.ended[number - 1])
        sizes = " ".join(f"{at:g}:{size}" for at, size in (schedule.sizes or {}).get(number, ()))
        times = (f"{time:g}" for time in (job.at, start, end, start - job.at))
        rows.append([str(number), *times, sizes, "killed" if schedule.killed[number - 1] else ""])
    head = ["JOB", "SUBMITTED", "START", "END", "WAIT", "SIZES", ""]
    table = render(Table(head, rows, left=frozenset({"SIZES", ""})))
    return "\n".join([*output, "", *(line.rstrip() for line in table.split("\n"))])


def named(
    line: str, fields: list[str], required: Sequence[str], optional: Sequence[str]
) -> dict[str, str]:
    """Values of ``name=value`` words."""
    values = dict(field.partition("=")[::2] for field in fields)
    for name in values:
        if name not in (*required, *optional):
            raise ValueError(f"{line!r}: unknown word {name!r}")
    for name in required:
        if name not in values:
            raise ValueError(f"{line!r}: {name}= is missing")
    return values


def read_job(values: dict[str, str]) -> SimJob:
    """Job of a line."""
    iterations = int(values.get("iterations", 1))
    spec = JobSpec(
        int(values["n"]),
        float(values["walltime"]),
        int(values["max"]) if "max" in values else None,
        Topology.parse(values["topology"]) if "topology" in values else None,
        user=values.get("user", ""),
    )
    return SimJob(
        float(values["at"]),
        spec,
        float(values["run"]),
        iterations,
        parse(values["speedup"]) if "speedup" in values else None,
        round(float(values.get("data_mib", 0)) * 2**20),
    )
