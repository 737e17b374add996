"""Demands for a shared resource, drawn for the jobs of a trace (GUIM 6.3.1, 6.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from simulator.traces.swf import RESOURCE, SHARED, Trace

#: Percentages of jobs with a high, a medium and a low demand (GUIM 6.3.1).
MIXES: Final = {"high": (80, 10, 10), "med": (50, 10, 40), "low": (10, 10, 80)}
#: Demands of a process, high, medium and low, and what a node has, MB/s (GUIM 6.3.2).
LEVELS: Final = (2000, 1000, 500)
CAPACITY: Final = 6000
NAME: Final = "memory_bandwidth"


class Demands(msgspec.Struct, frozen=True):
    """Demands of jobs for one shared resource.

    Parameters
    ----------
    mix : percentages of jobs with the first, the second ... of the levels; together 100.
    levels : demand of a process.
    capacity : of a node.
    name : of the resource.

    Raises
    ------
    ValueError : percentages are below 0, not as many as levels, or not 100 together; a level is
        below 0, or the capacity below 1.
    """

    mix: Sequence[int] = MIXES["high"]
    levels: Sequence[int] = LEVELS
    capacity: int = CAPACITY
    name: str = NAME

    def __post_init__(self) -> None:
        """Check the parameters."""
        shown = "-".join(map(str, self.mix))
        if len(self.mix) != len(self.levels):
            raise ValueError(f"mix {shown} must have {len(self.levels)} percentages, as the levels")
        if min(self.mix) < 0 or sum(self.mix) != 100:
            raise ValueError(f"mix {shown} must be percentages >= 0 that add up to 100")
        if min(self.levels) < 0 or self.capacity < 1:
            raise ValueError(f"levels must be >= 0 and capacity >= 1, got {self.capacity}")

    def of(self, trace: Trace, seed: int) -> Trace:
        """Trace with these demands in place of any for shared resources.

        The same seed draws the same demands.
        """
        rng = np.random.default_rng(seed)
        shares = np.array(self.mix) / 100
        drawn = rng.choice(np.array(self.levels, dtype=np.int64), len(trace), p=shares)
        kept = {n: column for n, column in trace.columns.items() if not n.startswith(SHARED)}
        ordered = sorted(kept.items(), key=lambda item: item[0].startswith(RESOURCE))
        header = [
            line
            for line in trace.header
            if line.lstrip("; \t").partition(":")[0].strip().lower() != "shared"
        ]
        header.append(f"; Shared: {self.name}={self.capacity}")
        columns = dict(ordered) | {SHARED + self.name: drawn}
        return Trace(trace.path, header, columns, trace.oddities)
