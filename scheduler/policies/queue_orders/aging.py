"""Priorities of PRIO 3.1: of queued jobs, which age; of running ones, which near their end.

Larger is more urgent. A priority is a plain number, so that the two kinds can be compared, as the
scenarios of PRIO 3.3 do; how large one is beside the other is set by the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import msgspec

from scheduler.model.job import Job
from scheduler.model.priority import Prioritised

#: User-assigned priorities by name, where a configuration names no others. PRIO 4.4: "ReSHAPE gives
#: platinum user jobs a higher priority compared to gold user jobs".
CLASSES = {"gold": 100.0, "platinum": 1000.0}


class Aging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Order of the queue by the aging priority, the highest first (PRIO 3.1, after Moab).

    ``Qw * (1 + wait / max(Qlimit, walltime)) + Tw * wait + Nw * processors + user``, where "Qfactor
    determines the urgency of a job to get scheduled. It mainly benefits short running jobs".

    Parameters
    ----------
    qfactor_weight : Qw; 0 spares the sorting anew, since then no job overtakes another.
    wait_weight : Tw, for each minute waited (Moab counts minutes).
    nodes_weight : Nw, for each processor asked for; below 0 it favours small jobs.
    qfactor_limit_s : Qlimit, "generally set to 1": a walltime below counts as that long, seconds.
    refresh_s : priorities are worked out anew when so many seconds have passed, as batch systems
        do, so that a long queue need not be sorted at every event; 0 is always.

    Raises
    ------
    ValueError : a weight is no number; waiting would lower a priority, so that a job could starve;
        a limit or an interval is out of range.
    """

    qfactor_weight: float = 10.0
    wait_weight: float = 1.0
    nodes_weight: float = 0.0
    qfactor_limit_s: float = 1.0
    refresh_s: float = 10.0

    def __post_init__(self) -> None:
        """Check the weights."""
        for name in self.__struct_fields__:
            if not isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)}")
        for name in ("qfactor_weight", "wait_weight"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must be >= 0, or jobs that wait long would fall behind and starve; got"
                    f" {getattr(self, name)}"
                )
        if not self.qfactor_limit_s > 0:
            raise ValueError(f"qfactor_limit_s must be > 0, got {self.qfactor_limit_s}")
        if self.refresh_s < 0:
            raise ValueError(f"refresh_s must be >= 0, got {self.refresh_s}")

    @property
    def ages(self) -> bool:
        """Whether jobs may overtake others while they wait."""
        return self.qfactor_weight != 0

    def priority(self, job: Job, now: float) -> float:
        """Priority of a queued job."""
        spec = job.spec
        wait_s = max(0.0, now - job.submitted_at)
        qfactor = 1.0 + wait_s / max(self.qfactor_limit_s, spec.walltime_s)
        return (
            self.qfactor_weight * qfactor
            + self.wait_weight * (wait_s / 60.0)
            + self.nodes_weight * spec.processors
            + spec.priority
        )

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, the highest first, then time of submission."""
        if self.ages:
            return -self.priority(job, now), job.submitted_at
        # All age alike: the order is that of any one moment, and such a key may be kept.
        spec = job.spec
        fixed = self.nodes_weight * spec.processors + spec.priority
        return self.wait_weight * job.submitted_at / 60.0 - fixed, job.submitted_at


class ByQueue:
    """Order of jobs of several queues, each by its own weights: by the numbers they give.

    Parameters
    ----------
    order : of the queues that have no own.
    own : name of a queue -> its order.

    Raises
    ------
    ValueError : an order gives no number that could be compared with those of others.
    """

    ages = True  # numbers of different weights rise at different speeds

    def __init__(self, order: object, own: Mapping[str, object]) -> None:
        self._order = _prioritised(order, "the server")
        self._own = {name: _prioritised(each, f"queue {name}") for name, each in own.items()}
        self.refresh_s = min(
            getattr(each, "refresh_s", 0.0) for each in (self._order, *self._own.values())
        )

    def priority(self, job: Job, now: float) -> float:
        """Priority of a queued job, by the weights of its queue."""
        return self._own.get(job.spec.queue, self._order).priority(job, now)

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, the highest first, then time of submission."""
        return -self.priority(job, now), job.submitted_at


def _prioritised(order: object, whose: str) -> Prioritised:
    if isinstance(order, Prioritised):
        return order
    raise ValueError(
        f"the order of {whose}, {type(order).__name__}, gives no number, so that its jobs cannot"
        " stand in one line with those of queues of another order; take aging for both"
    )
