"""Run times of simulated jobs: speedup models, and what a resize costs."""

from __future__ import annotations

from math import inf
from typing import Literal, Protocol

import msgspec


class Speedup(Protocol):
    """How an iteration's time depends on the processors."""

    def factor(self, start: int, size: int) -> float:
        """How many times faster on `size` processors than on `start`."""


class Prio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Speedup model of PRIO (Sudarsan and Ribbens, Priority scheduling ...) section 4.1.

    Parameters
    ----------
    alpha : node efficiency, 0 < alpha <= 1; the paper's experiments use 0.8.
    reading : the formula is printed as ``(P2/P1) ** (alpha * (P2-P1)/P1)``, which is superlinear
        from P2 > 2.25 P1 on and never falls, against the paper's own "realistic speedup" and sweet
        spots. "sweet-spot" reads ``(P2/P1) ** (alpha ** ((P2-P1)/P1))``: the curve of figure 2,
        which rises, peaks near three times the processors (alpha 0.75) and falls. "printed" is as
        printed.

    Raises
    ------
    ValueError : alpha is out of range.
    """

    alpha: float = 0.8
    reading: Literal["sweet-spot", "printed"] = "sweet-spot"

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be > 0 and <= 1, got {self.alpha}")

    def factor(self, start: int, size: int) -> float:
        """How many times faster on `size` processors than on `start`."""
        ratio, growth = size / start, (size - start) / start
        exponent = self.alpha * growth if self.reading == "printed" else self.alpha**growth
        return float(ratio**exponent)


class Amdahl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Amdahl's law: a part of the work (on one processor) is serial, the rest scales perfectly.

    Raises
    ------
    ValueError : serial is no fraction.
    """

    serial: float = 0.05

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.serial <= 1:
            raise ValueError(f"serial must be >= 0 and <= 1, got {self.serial}")

    def factor(self, start: int, size: int) -> float:
        """How many times faster on `size` processors than on `start`."""
        return self._time(start) / self._time(size)

    def _time(self, size: int) -> float:
        return self.serial + (1 - self.serial) / size


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
