"""Costs in the simulator: the time of starts, resizes and ends, and the gain of contiguity.

Speedup models are in :mod:`reshape.speedup`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

import msgspec
import numpy as np

from reshape.errors import check_ranges


class ResizeCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of a resize; all zero is PRIO's study ("no data was redistributed").

    Parameters
    ----------
    start_s : from the decision until the new group is up, seconds; the job computes meanwhile.
    join_s : pause for the join of the groups, seconds.
    pause_s : pause of every resize, expansion or contraction, besides the join and the move,
        seconds.
    bytes_per_s : rate at which all data of the job moves; the job pauses.

    Raises
    ------
    ValueError : a negative time, or a rate that is not positive.
    """

    start_s: float = 0.0
    join_s: float = 0.0
    bytes_per_s: float = inf
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        time = ">= 0 and finite"
        check_ranges(self, start_s=time, join_s=time, pause_s=time, bytes_per_s="> 0")


class StepTime(msgspec.Struct, frozen=True):
    """Time of a step: a fixed part and a part for each process that takes part.

    Parameters
    ----------
    fixed_s, each_s : seconds.
    spread : measured over fitted times, with mean 1; one of these factors is drawn each time.
    """

    fixed_s: float = 0.0
    each_s: float = 0.0
    spread: tuple[float, ...] = ()

    @classmethod
    def fitted(cls, measured: Sequence[tuple[float, float]]) -> StepTime:
        """Fit by least squares with both parts >= 0.

        Parameters
        ----------
        measured : (processes, seconds) of each measurement; without any, all is 0.
        """
        if not measured:
            return cls()
        processes, seconds = np.array(measured, dtype=float).T
        each_s, fixed_s = 0.0, seconds.mean()
        if np.ptp(processes) > 0:
            each_s, fixed_s = np.polyfit(processes, seconds, 1)
        if each_s < 0:
            each_s, fixed_s = 0.0, seconds.mean()
        if fixed_s < 0:
            each_s, fixed_s = (processes @ seconds) / (processes @ processes), 0.0
        expected = fixed_s + each_s * processes
        if not expected.all():
            return cls()
        factors = seconds / expected
        return cls(float(fixed_s), float(each_s), tuple((factors / factors.mean()).tolist()))

    def of(self, processes: int, rng: np.random.Generator | None = None) -> float:
        """Seconds for a number of processes: drawn, or the mean without a generator."""
        fixed_s, each_s = self.parts(rng)
        return fixed_s + each_s * processes

    def parts(self, rng: np.random.Generator | None = None) -> tuple[float, float]:
        """The fixed part and the part for each process, seconds: drawn, or the means."""
        if rng is None or not self.spread:
            return self.fixed_s, self.each_s
        factor = self.spread[rng.integers(len(self.spread))]
        return self.fixed_s * factor, self.each_s * factor


class Costs(msgspec.Struct, frozen=True):
    """Times of a machine besides computing, by the number of processes.

    Parameters
    ----------
    start : from the order to start a job to its first iteration (mpiexec, imports, set-up); by its
        processes and those that start at the same time.
    end : from the last iteration until the processes of the job are gone; by these.
    point : a resize point without a resize (question, answer, barrier); by the processes of the
        job.
    group : from the order to expand until the new group is up, while the job computes; by the
        processes of the group and those that start at the same time.
    join : pause for the join of the groups; by the processes after it.
    leave : from the end of the pause of a contraction until the processes that leave are gone,
        while the job computes; by these.
    bytes_per_s : rate at which all data of the job moves; the job pauses.
    pause_s : pause of every resize besides the join and the move.
    """

    start: StepTime = StepTime()
    end: StepTime = StepTime()
    point: StepTime = StepTime()
    group: StepTime = StepTime()
    join: StepTime = StepTime()
    leave: StepTime = StepTime()
    bytes_per_s: float = inf
    pause_s: float = 0.0

    @classmethod
    def constant(cls, resize: ResizeCost, start_s: float = 0.0, end_s: float = 0.0) -> Costs:
        """Costs that are the same for any number of processes; resize points take no time."""
        return cls(
            StepTime(start_s),
            StepTime(end_s),
            group=StepTime(resize.start_s),
            join=StepTime(resize.join_s),
            bytes_per_s=resize.bytes_per_s,
            pause_s=resize.pause_s,
        )


NO_COSTS: Final = Costs()


class ProcessStarts:
    """Processes that are starting at the same time and share the cores of the machine evenly.

    A process needs `each_s` seconds of all cores. n processes that start alone take n times that;
    starts that overlap slow one another down, and no core is idle.
    """

    def __init__(self) -> None:
        self._done_s = 0.0  # core time that each process of them has received so far, seconds
        self._at = -inf  # time up to which it is counted
        self._processes = 0
        self._ends: list[tuple[float, int, int]] = []  # heap of (done_s when up, serial, processes)
        self._started: list[Any] = []

    def begin(self, now: float, processes: int, each_s: float, start: Any) -> None:
        """Begin a start of processes; `up` returns `start` when they are up."""
        self._advance(now)
        self._processes += processes
        heappush(self._ends, (self._done_s + each_s, len(self._started), processes))
        self._started.append(start)

    def next_at(self) -> float:
        """Time at which the next processes are up unless others begin; one start must be open."""
        return self._at + max(0.0, self._ends[0][0] - self._done_s) * self._processes

    def up(self, now: float) -> list[Any]:
        """Return the starts that are complete at `next_at`, which is `now`."""
        self._advance(now)
        starts = []
        self._done_s = max(self._done_s, self._ends[0][0])
        while self._ends and self._ends[0][0] <= self._done_s:
            _, serial, processes = heappop(self._ends)
            self._processes -= processes
            starts.append(self._started[serial])
        return starts

    def __bool__(self) -> bool:
        """Whether any processes are starting."""
        return bool(self._ends)

    def _advance(self, now: float) -> None:
        if self._processes:
            self._done_s += (now - self._at) / self._processes
        self._at = now
