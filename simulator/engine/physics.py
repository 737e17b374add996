"""How the places of jobs change their run times: gain of contiguity, and shared nodes."""

from __future__ import annotations

from math import inf
from typing import Annotated, Literal

import msgspec

from scheduler.model.sharing import PenaltyRule, Windows


class ContiguityGain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Gain of jobs on contiguous processors.

    Parameters
    ----------
    speedup : share by which they shorten a run time, from 0 to below 1.
    exponent : how fast the gain falls with the distance of the processors in the network; inf: only
        contiguous processors gain.
    """

    speedup: float
    exponent: float = inf

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.speedup < 1:
            raise ValueError(f"speedup must be >= 0 and < 1, got {self.speedup}")
        if not self.exponent >= 0:
            raise ValueError(f"exponent must be >= 0, got {self.exponent}")


class SharingRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How jobs prolong each other on shared nodes; see `Sharing` and docs/sharing.md.

    Parameters
    ----------
    windows : when the demand on a node is examined: at the windows of the table of reservations
        ("table"), or at each change ("changes").
    penalty : rule for the prolongation, in place of that of the machine file.
    overtime : what happens to a job that exceeds its walltime because of others: "kill" or "allow".
    demand_error : largest relative error of the declared demands, drawn for each job.
    """

    windows: Windows = "table"
    penalty: PenaltyRule | None = None
    overtime: Literal["kill", "allow"] = "kill"
    demand_error: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
