"""Run times in the simulator: what a machine takes besides computing, what a place gains.

Speedup models are in :mod:`reshape.speedup`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

import msgspec
import numpy as np

from scheduler.model.network import Tree
from scheduler.model.procset import ProcSet


class ResizeCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a resize costs; all zero is the paper's study ("no data was redistributed").

    Parameters
    ----------
    start_s : from the decision until a new group is up; the job computes on meanwhile.
    join_s : pause for the join of the groups.
    bytes_per_s : rate at which the job's data moves, all of it; the job pauses.

    Raises
    ------
    ValueError : a negative time, or a rate that is not positive.
    """

    start_s: float = 0.0
    join_s: float = 0.0
    bytes_per_s: float = inf

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("start_s", "join_s"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not self.bytes_per_s > 0:
            raise ValueError(f"bytes_per_s must be > 0, got {self.bytes_per_s}")


class Takes(msgspec.Struct, frozen=True):
    """What a step takes: a fixed time, and one for each process that takes part; seconds.

    Parameters
    ----------
    spread : what was measured over that, of mean 1: one of these factors is drawn each time.
    """

    fixed_s: float = 0.0
    each_s: float = 0.0
    spread: tuple[float, ...] = ()

    @classmethod
    def fitted(cls, measured: Sequence[tuple[float, float]]) -> Takes:
        """Fit by least squares, neither part negative.

        Parameters
        ----------
        measured : (processes, seconds) of each time; all 0 if there is none.
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
        """Seconds for so many processes: drawn, or the mean without a generator."""
        fixed_s, each_s = self.parts(rng)
        return fixed_s + each_s * processes

    def parts(self, rng: np.random.Generator | None = None) -> tuple[float, float]:
        """The fixed time and that for each process, seconds: drawn, or the means."""
        if rng is None or not self.spread:
            return self.fixed_s, self.each_s
        factor = self.spread[rng.integers(len(self.spread))]
        return self.fixed_s * factor, self.each_s * factor


class Costs(msgspec.Struct, frozen=True):
    """What a machine takes besides computing.

    Parameters
    ----------
    start : from the order to start a job to its first iteration (mpiexec, imports, set-up); by its
        processes and those that come up meanwhile.
    end : from the last iteration until the job's processes are gone; by them.
    point : a resize point without a resize: question, answer, waiting for one another; by the job's
        processes.
    group : from the order to expand until the new group is up, while the job computes on; by the
        group's processes and those that come up meanwhile.
    join : pause for the join of the groups; by the processes that there are then.
    leave : from the end of a contraction's pause until the processes that leave are gone, while the
        job computes on; by these.
    bytes_per_s : rate at which the job's data moves, all of it; the job pauses.
    """

    start: Takes = Takes()
    end: Takes = Takes()
    point: Takes = Takes()
    group: Takes = Takes()
    join: Takes = Takes()
    leave: Takes = Takes()
    bytes_per_s: float = inf

    @classmethod
    def constant(cls, resize: ResizeCost, start_s: float, end_s: float, point_s: float) -> Costs:
        """Costs that are the same for any number of processes."""
        return cls(
            Takes(start_s),
            Takes(end_s),
            Takes(point_s),
            Takes(resize.start_s),
            Takes(resize.join_s),
            bytes_per_s=resize.bytes_per_s,
        )


class Coming:
    """Processes that come up, and hold up one another: all share the machine's cores evenly.

    What a process needs of them is the `each_s` of its start. So many alone take as many times
    that; those that come up together are done when the work of all is.
    """

    def __init__(self) -> None:
        self._done_s = 0.0  # what each process there was given so far, seconds of all the cores
        self._at = -inf  # until when
        self._processes = 0
        self._ends: list[tuple[float, int, int]] = []  # (given when up, launch, processes), a heap
        self._launches: list[Any] = []

    def begin(self, now: float, processes: int, each_s: float, launch: Any) -> None:
        """Let processes come up from now on; `up` tells the launch when they are."""
        self._pass(now)
        self._processes += processes
        heappush(self._ends, (self._done_s + each_s, len(self._launches), processes))
        self._launches.append(launch)

    def next_at(self) -> float:
        """When the next are up if nothing else begins; there are some."""
        return self._at + max(0.0, self._ends[0][0] - self._done_s) * self._processes

    def up(self, now: float) -> list[Any]:
        """Launches that are up now, when `next_at` has come."""
        self._pass(now)
        found = []
        self._done_s = max(self._done_s, self._ends[0][0])
        while self._ends and self._ends[0][0] <= self._done_s:
            _, launch, processes = heappop(self._ends)
            self._processes -= processes
            found.append(self._launches[launch])
        return found

    def __bool__(self) -> bool:
        """Whether any are coming up."""
        return bool(self._ends)

    def _pass(self, now: float) -> None:
        if self._processes:
            self._done_s += (now - self._at) / self._processes
        self._at = now


class Contiguity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job gains where its processors are contiguous (LOC section 4): t becomes t (1 - s).

    Contiguous are processors below one switch of the level of so many, or, where the machine is
    flat, consecutive ones.

    Parameters
    ----------
    speedup : s.
    network : of the machine; None: it is flat.

    Raises
    ------
    ValueError : s is not >= 0 and < 1.
    """

    speedup: float = 0.0
    network: Tree | None = None

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.speedup < 1:
            raise ValueError(f"speedup must be >= 0 and < 1, got {self.speedup}")

    def run_s(self, run_s: float, processors: ProcSet) -> float:
        """Run time on these processors, seconds.

        Parameters
        ----------
        run_s : where they are anywhere.
        """
        if self.network is None:
            together = len(processors.intervals) == 1
        else:
            together = self.network.contiguous(processors)
        return run_s * (1 - self.speedup) if together else run_s
