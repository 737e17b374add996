"""Redirection against EASY with the same processors: figures 1 and 2 of REDIR, on busy weeks.

Faure, Lucarelli, Richard and Trystram, Online scheduling with redirection for parallel jobs, IPDPSW
2020, sections IV and V. The principal group keeps the machine's processors, the redirection group
has alpha times as many in addition; EASY has the processors of both. Run times serve as walltimes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from reshape.errors import ReshapeError
from scheduler.policies.scenarios import scenario
from simulator.results.metrics import Metrics, metrics_of
from simulator.results.schedule import Schedule
from simulator.run import run as simulate
from simulator.studies.redir.report import as_report
from simulator.study.study import Report, Row, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, Rules
from simulator.traces.swf import Trace
from simulator.traces.weeks import choose, cut

#: Numbers of a run that the study keeps.
KEPT = (
    "jobs", "mean_bounded_slowdown", "max_bounded_slowdown", "mean_wait_s", "utilization",
    "redirected", "lost_processor_s",
)  # fmt: skip


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one week with redirection, or without it if theta is None.

    Parameters
    ----------
    parameters : `trace`, `processors` (of its machine), `weeks`, `utilization` and `draw` (the
        choice of the weeks, see `simulator.traces.weeks`), `week` (from 1), `theta`, `alpha`,
        `conflict`, `filter`, `counts`, `tau` (seconds); `warm_h` (hours before the week whose jobs
        are simulated too and do not count; 0 if it is absent).
    """
    path = trace_path(parameters, parameters["trace"])
    warm_s = 3600 * int(parameters.get("warm_h", 0))
    how = (parameters["weeks"], parameters["utilization"], parameters["draw"], warm_s)
    processors: int = parameters["processors"]
    number, week = _week(path, processors, *how, parameters["week"])
    names = ("theta", "alpha", "conflict", "filter", "counts")
    chosen = scenario("easy", {"redirection": {name: parameters[name] or 0 for name in names}})
    assert chosen.redirection is not None
    if parameters["theta"] is None:
        processors += chosen.redirection.group_size(processors)
        chosen = scenario("easy")
    schedule = simulate(week, processors, chosen, Rules(exact=True, overrun="extend"))
    metrics = _of_the_week(schedule, warm_s, parameters["tau"])
    numbers = msgspec.structs.asdict(metrics)
    return {"number": number} | {name: numbers[name] for name in KEPT}


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Ratios to EASY, the paper's claims and pictures."""
    return as_report(rows)


def _of_the_week(schedule: Schedule, warm_s: int, tau: float) -> Metrics:
    """Metrics of the jobs that were submitted from `warm_s` on; the utilization is that of all."""
    metrics = schedule.metrics(tau)
    if not warm_s:
        return metrics
    own = schedule.jobs.submitted >= warm_s
    moved = [run for run in schedule.redirected if own[run[0] - 1]]
    ended = own & ~np.isnan(schedule.ended)
    sizes = schedule.jobs.processors
    of_week = metrics_of(
        schedule.jobs.submitted[ended],
        schedule.started[ended],
        schedule.ended[ended],
        processors=schedule.processors,
        held_s=0.0,
        tau=tau,
        unstarted=int((own & np.isnan(schedule.ended)).sum()),
        killed=int(schedule.killed[own].sum()),
        redirected=len(moved),
        lost_processor_s=sum(float(sizes[job - 1]) * (end - start) for job, start, end in moved),
    )
    return msgspec.structs.replace(of_week, utilization=metrics.utilization)


@lru_cache(maxsize=2)
def _weeks(
    path: Path, processors: int, count: int, utilization: float, draw: int, warm_s: int
) -> list[tuple[int, Trace]]:
    """Weeks of a trace with their numbers; the runs of one process share them."""
    trace = swf.read(path, fields={*NEEDED, "wait"})
    choice = choose(trace, processors, count, utilization, draw)
    return [(week.number, cut(trace, week, warm_s)) for week in choice.weeks]


def _week(
    path: Path, processors: int, count: int, utilization: float, draw: int, warm_s: int, week: int
) -> tuple[int, Trace]:
    weeks = _weeks(path, processors, count, utilization, draw, warm_s)
    if not 1 <= week <= len(weeks):
        raise ReshapeError(
            f"{path.name} has {len(weeks)} weeks with a utilization of at least {utilization:g},"
            f" week {week} does not exist; lower the utilization or the number of weeks"
        )
    return weeks[week - 1]
