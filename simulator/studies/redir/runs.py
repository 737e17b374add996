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

import simulator as sim
from reshape.errors import ReshapeError
from simulator.studies.redir.report import as_report
from simulator.study.study import Report, Row, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED
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
        `conflict`, `filter`, `counts`, `tau` (seconds).
    """
    path = trace_path(parameters, parameters["trace"])
    how = (parameters["weeks"], parameters["utilization"], parameters["draw"])
    processors: int = parameters["processors"]
    number, week = _week(path, processors, *how, parameters["week"])
    names = ("theta", "alpha", "conflict", "filter", "counts")
    experiment = sim.Experiment(
        sim.Jobs(week).with_rules(exact=True, overrun="extend"),
        processors=processors,
        scenario={"name": "easy", "redirection": {n: parameters[n] or 0 for n in names}},
        tau_s=parameters["tau"],
    )
    if parameters["theta"] is None:
        redirection = experiment.chosen.redirection
        assert redirection is not None
        processors += redirection.group_size(processors)
        experiment = experiment.replace(processors=processors, scenario="easy")
    metrics = experiment.run().metrics
    return {"number": number} | {name: metrics[name] for name in KEPT}


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Ratios to EASY, the paper's claims and pictures."""
    return as_report(rows)


@lru_cache(maxsize=2)
def _weeks(
    path: Path, processors: int, count: int, utilization: float, draw: int
) -> list[tuple[int, Trace]]:
    """Weeks of a trace with their numbers; the runs of one process share them."""
    trace = swf.read(path, fields={*NEEDED, "wait"})
    choice = choose(trace, processors, count, utilization, draw)
    return [(week.number, cut(trace, week)) for week in choice.weeks]


def _week(
    path: Path, processors: int, count: int, utilization: float, draw: int, week: int
) -> tuple[int, Trace]:
    weeks = _weeks(path, processors, count, utilization, draw)
    if not 1 <= week <= len(weeks):
        raise ReshapeError(
            f"{path.name} has {len(weeks)} weeks with a utilization of at least {utilization:g},"
            f" week {week} does not exist; lower the utilization or the number of weeks"
        )
    return weeks[week - 1]
