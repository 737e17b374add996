"""Processors that stand idle or unused because of where they are.

LOC (Pascual and Miguel-Alonso) section 1 names the two kinds after Lo et al. and gives no formula;
these are ours. Both are shares of all processor-seconds from the first submission to the last end.

*External*: as long as the first job of the queue asks for no more processors than are free, so that
nothing but their places keeps it waiting, the processors that it asks for are lost.

*Internal*: processors that a job holds beyond those it asked for, as it gets whole nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.core.core import Core
from scheduler.model.events import Event
from scheduler.model.orders import Order
from simulator.results.schedule import Fragmentation, Schedule


class ExternalLoss:
    """Counts processor-seconds lost to places: an engine's watch.

    Attributes
    ----------
    lost : processor-seconds so far.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._since, self._wanted = 0.0, 0
        self.lost = 0.0

    def __call__(self, now: float, events: Sequence[Event], orders: Sequence[Order]) -> None:
        """Note what the head of the queue asks for and could not get."""
        if self._wanted:
            self.lost += self._wanted * (now - self._since)
        core = self._core
        self._since, self._wanted = now, 0
        if core.state.placing and core.queue.jobs:
            head = core.state.head
            if head is not None and head.spec.processors <= core.machine.free_count:
                self._wanted = head.spec.processors


def fragmentation(schedule: Schedule, lost: float, asked: NDArray[np.int64]) -> Fragmentation:
    """Put the numbers of a schedule together.

    Parameters
    ----------
    lost : processor-seconds counted by `ExternalLoss`.
    asked : (n,) int64, processors that the jobs asked for.
    """
    there = ~np.isnan(schedule.ended)
    if not there.any():
        return Fragmentation(np.nan, np.nan)
    run = (schedule.ended - schedule.started)[there]
    beyond = float((run * (schedule.jobs.processors - asked)[there]).sum())
    makespan = float(schedule.ended[there].max() - schedule.jobs.submitted[there].min())
    all_s = schedule.processors * makespan
    return Fragmentation(lost / all_s, beyond / all_s) if all_s else Fragmentation(np.nan, np.nan)
