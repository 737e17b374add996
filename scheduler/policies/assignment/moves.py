"""When a job that waits at one site is moved to another one: the same rules simulated and live."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import msgspec


class Expectation(NamedTuple):
    """When a job is expected to start and end at a site, in seconds from now."""

    wait_s: float
    end_s: float


class MoveRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules that keep jobs from moving back and forth for a small gain.

    Parameters
    ----------
    gain : share of the present wait that the wait at the other site may have at most.
    least_s : seconds by which the wait at the other site must be shorter at least.
    rest_s : least time between two moves of a job, s.
    depth : number of jobs of each queue that are examined.
    may_end_later : whether a job may move to a site where it starts earlier and ends later.

    Raises
    ------
    ValueError : a number is out of range.
    """

    gain: float = 0.5
    least_s: float = 60.0
    rest_s: float = 0.0
    depth: int = 20
    may_end_later: bool = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 <= self.gain <= 1:
            raise ValueError(f"gain must be from 0 to 1, got {self.gain}")
        if not (self.least_s >= 0 and self.rest_s >= 0):
            raise ValueError(f"least_s and rest_s must be >= 0, got {self}")
        if self.depth < 1:
            raise ValueError(f"depth must be >= 1, got {self.depth}")

    def may_move_at(self, now: float, moved_at: float) -> bool:
        """Whether a job that was moved last at a time, s (-inf: never), may move again now."""
        return now >= moved_at + self.rest_s

    def choice(self, present: Expectation, others: Sequence[Expectation]) -> int | None:
        """Index of the site to which a job moves; None if it stays.

        The site with the shortest wait is chosen, of equal ones the first.

        Parameters
        ----------
        present : at the site where the job waits.
        others : at the other sites; a wait is inf if the site quotes no start.
        """
        allowed = [
            (other.wait_s, i)
            for i, other in enumerate(others)
            if self.may_end_later or other.end_s <= present.end_s
        ]
        best_s, best = min(allowed, default=(inf, -1))
        is_better = best_s <= self.gain * present.wait_s and best_s <= present.wait_s - self.least_s
        return best if is_better and best_s < inf else None
