"""Run times in the simulator: what a resize costs, what a contiguous place gains.

Speedup models are in :mod:`reshape.speedup`.
"""

from __future__ import annotations

from math import inf

import msgspec

from scheduler.core.network import Tree
from scheduler.core.procset import ProcSet


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

    def move_s(self, data_bytes: int) -> float:
        """Pause for moving so many bytes."""
        return data_bytes / self.bytes_per_s


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
