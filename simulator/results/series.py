"""Quantities over time: processors in use, waiting jobs, processors that they request."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.pictures import steps
from simulator.results.schedule import Schedule

Floats: TypeAlias = NDArray[np.float64]


class Series(NamedTuple):
    """A quantity that changes in steps; 0 before the first.

    Parameters
    ----------
    times : (m,) ascending, seconds.
    values : (m,) from each time on.
    """

    times: Floats
    values: Floats

    def between(self, edges: Floats) -> tuple[Floats, Floats]:
        """Mean and largest value in each of the intervals between edges; the last value stays.

        Parameters
        ----------
        edges : (b + 1,) ascending.

        Returns
        -------
        (b,) means and (b,) maxima
        """
        widths = np.diff(self.times, append=self.times[-1:])
        sums = np.concatenate([[0.0], np.cumsum(self.values * widths)])
        made = np.searchsorted(self.times, edges, side="right")  # steps made until each edge
        begun = np.maximum(made - 1, 0)
        at_edge = np.where(made > 0, self.values[begun], 0.0)
        integral = np.where(made > 0, sums[begun] + at_edge * (edges - self.times[begun]), 0.0)
        means = np.diff(integral) / np.diff(edges)
        first, behind = made[:-1], np.searchsorted(self.times, edges[1:], side="left")
        pairs = np.stack([first, np.maximum(first, behind)], axis=1).ravel()
        peaks = np.maximum.reduceat(np.append(self.values, 0.0), pairs)[::2]
        return means, np.where(behind > first, np.maximum(at_edge[:-1], peaks), at_edge[:-1])


def in_use(schedule: Schedule, chosen: NDArray[np.bool_] | None = None) -> Series:
    """Processors held by jobs, or in some of the spans of `Schedule.size_spans`."""
    held = schedule.size_spans()
    spans = held.begin, held.end, held.processors.astype(np.float64)
    return _sum(*(spans if chosen is None else (column[chosen] for column in spans)))


def waiting(schedule: Schedule) -> Series:
    """Number of waiting jobs, of those that ran."""
    return _waiting(schedule, np.ones(len(schedule.jobs)))


def demand(schedule: Schedule) -> Series:
    """Processors that waiting jobs request, of those that ran."""
    return _waiting(schedule, schedule.jobs.processors.astype(np.float64))


def _waiting(schedule: Schedule, amounts: Floats) -> Series:
    ran = schedule.ran
    return _sum(schedule.jobs.submitted[ran], schedule.started[ran], amounts[ran])


def _sum(begins: Floats, ends: Floats, amounts: Floats) -> Series:
    """Sum of amounts, each from a begin to an end."""
    return Series(*steps(np.concatenate([begins, ends]), np.concatenate([amounts, -amounts])))
