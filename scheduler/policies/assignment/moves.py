"""When a job that waits at one site is moved to another one."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec


class MoveRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules that keep jobs from moving back and forth for a small gain.

    Parameters
    ----------
    gain : share of the present wait that the wait at the other site may have at most.
    least_s : seconds by which the wait at the other site must be shorter at least.
    depth : number of jobs of each queue that are examined.

    Raises
    ------
    ValueError : a number is out of range.
    """

    gain: float = 0.5
    least_s: float = 60.0
    depth: int = 20

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 <= self.gain <= 1:
            raise ValueError(f"gain must be from 0 to 1, got {self.gain}")
        if not self.least_s >= 0:
            raise ValueError(f"least_s must be >= 0, got {self.least_s}")
        if self.depth < 1:
            raise ValueError(f"depth must be >= 1, got {self.depth}")

    def choice(self, present_s: float, others_s: Sequence[float]) -> int | None:
        """Index of the site to which a job moves; None if it stays.

        The site with the shortest wait is chosen, of equal ones the first.

        Parameters
        ----------
        present_s : expected wait at the site where the job waits, seconds from now.
        others_s : expected waits at the other sites; inf if a site quotes no start.
        """
        best_s, best = min(((wait_s, i) for i, wait_s in enumerate(others_s)), default=(inf, -1))
        is_better = best_s <= self.gain * present_s and best_s <= present_s - self.least_s
        return best if is_better and best_s < inf else None
