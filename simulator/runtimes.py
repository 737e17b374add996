"""What a resize costs in the simulator; speedup models are in :mod:`reshape.speedup`."""

from __future__ import annotations

from math import inf

import msgspec


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
