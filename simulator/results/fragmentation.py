"""Fragmentation: processors that are idle or unused because of their place.

LOC (Pascual and Miguel-Alonso), section 1, names two kinds after Lo et al. and gives no formula;
the formulas are ours. Both are shares of all processor-seconds from the first submission to the
last end.

*External*: while the head of the queue requests no more processors than are free, so that it waits
only for their places, the processors that it requests are lost.

*Internal*: processors that a job holds beyond those it requested because it gets whole nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.model.events import Event
from scheduler.model.orders import Order
from scheduler.partition.partition import Partition
from simulator.results.schedule import Fragmentation, Schedule


class ExternalLoss:
    """Counts the external fragmentation; a watch of the event loop.

    Attributes
    ----------
    lost : processor-seconds so far.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._since, self._wanted = 0.0, 0
        self.lost = 0.0

    def __call__(self, now: float, events: Sequence[Event], orders: Sequence[Order]) -> None:
        """Note what the head of the queue requests and does not get."""
        if self._wanted:
            self.lost += self._wanted * (now - self._since)
        partition = self._partition
        self._since, self._wanted = now, 0
        if partition.state.placing and partition.queue.jobs:
            head = partition.state.head
            if head is not None and head.spec.processors <= partition.machine.free_count:
                self._wanted = head.spec.processors


def fragmentation(schedule: Schedule, lost: float, asked: NDArray[np.int64]) -> Fragmentation:
    """Compute the fragmentation of a schedule.

    Parameters
    ----------
    lost : processor-seconds counted by `ExternalLoss`.
    asked : (n,) int64, processors that the jobs requested.
    """
    ran = schedule.ran
    if not ran.any():
        return Fragmentation(np.nan, np.nan)
    run = schedule.run_s[ran]
    beyond = float((run * (schedule.jobs.processors - asked)[ran]).sum())
    makespan = float(schedule.ended[ran].max() - schedule.jobs.submitted[ran].min())
    all_s = schedule.processors * makespan
    return Fragmentation(lost / all_s, beyond / all_s) if all_s else Fragmentation(np.nan, np.nan)
