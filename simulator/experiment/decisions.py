"""Decisions about one job of a simulation: why it waits, where it starts, why it is resized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.model.events import Event
from scheduler.model.orders import (
    AnswerRequest,
    Continue,
    Contract,
    Expand,
    Kill,
    Order,
    Reason,
    Requeue,
    Start,
)
from simulator.experiment.tables import Columns
from simulator.results.jobs_csv import names_of
from simulator.traces.trace_jobs import TraceJobs

#: Orders about a job that a simulation gives.
_TOLD = (AnswerRequest, Continue, Contract, Expand, Kill, Requeue, Start)


class JobDecisions:
    """Collects the decisions about a job; a watch of the event loop.

    Parameters
    ----------
    core : of the simulation.
    jobs : of the simulation.
    name : of the job, as the column `job` of the results has it.

    Raises
    ------
    ConfigError : no job has the name.
    """

    def __init__(self, core: Core, jobs: TraceJobs, name: str) -> None:
        names = names_of(jobs.numbers)
        if name not in names:
            fix = "give a value of the column job of the results"
            raise ConfigError(f"no simulated job has the number {name!r}; {fix}", field="job")
        self._core, self._job = core, names.index(name) + 1
        self._rows: list[tuple[float, str, str, str]] = []
        self._latest: tuple[object, ...] = ()

    def __call__(self, time: float, events: Sequence[Event], orders: Sequence[Order]) -> None:
        """Note the orders of an instant for the job, and why it still waits after them."""
        for order in orders:
            if isinstance(order, _TOLD) and order.job == self._job:
                self._note(time, type(order).__name__.lower(), order.reason)
        if any(self._job in partition.queue for partition in self._core.partitions):
            self._note(time, "wait", self._core.reason_pending(self._job))

    def _note(self, time: float, decision: str, reason: Reason) -> None:
        """Add a row, if rule, decision or the job that is waited for differ from the row before."""
        same = (decision, reason.rule, reason.facts.get("head"))
        if same != self._latest:
            self._rows.append((time, decision, reason.rule, reason.sentence))
            self._latest = same

    def table(self) -> Columns:
        """The decisions in their order."""
        at, decisions, rules, sentences = zip(*self._rows, strict=True) if self._rows else ((),) * 4
        return Columns(
            at_s=np.array(at, np.float64),
            decision=np.array(decisions, np.str_),
            rule=np.array(rules, np.str_),
            reason=np.array(sentences, np.str_),
        )
