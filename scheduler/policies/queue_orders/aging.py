"""Queue orders by the aging priority of PRIO 3.1, for one queue and for several.

A larger priority is more urgent. The scenarios of PRIO 3.3 compare the aging priority of queued
jobs with the running priority of running ones (`scheduler.state.view.running_priority`); the
weights set how they relate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from reshape.errors import check_ranges
from scheduler.model.interfaces import Prioritised, QueueOrder
from scheduler.model.job import Job
from scheduler.model.job_view import original
from scheduler.policies.queue_orders.compiled_keys import aging_keys, aging_priority
from scheduler.text.used_fields import Needs

#: User-assigned priorities by name, unless a configuration names others. PRIO 4.4: "ReSHAPE gives
#: platinum user jobs a higher priority compared to gold user jobs".
CLASSES = {"gold": 100.0, "platinum": 1000.0}


class Aging(QueueOrder, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Queue order by the aging priority, the highest first (PRIO 3.1, after Moab).

    ``Qw * (1 + wait / max(Qlimit, walltime)) + Tw * wait + Nw * processors + user``, where "Qfactor
    determines the urgency of a job to get scheduled. It mainly benefits short running jobs".

    Parameters
    ----------
    qfactor_weight : Qw; with 0 no job overtakes another, and the queue is never sorted again.
    wait_weight : Tw, per minute of wait (Moab counts minutes).
    nodes_weight : Nw, per requested processor; a negative weight favours small jobs.
    qfactor_limit_s : Qlimit, "generally set to 1": lower bound on the walltime, seconds.
    refresh_s : seconds between two evaluations of the priorities, so that a long queue is not
        sorted at every event, as in batch systems; 0 evaluates them at every scheduling pass.

    Raises
    ------
    ValueError : a weight is not finite; `qfactor_weight` or `wait_weight` is negative, so that a
        job could starve; `qfactor_limit_s` or `refresh_s` is out of range.
    """

    keeps_alike = True
    field_needs: ClassVar[Mapping[str, Needs]] = {
        name: Needs(lambda own: own.qfactor_weight != 0, "with a qfactor_weight other than 0")
        for name in ("qfactor_limit_s", "refresh_s")
    }
    qfactor_weight: float = 10.0
    wait_weight: float = 1.0
    nodes_weight: float = 0.0
    qfactor_limit_s: float = 1.0
    refresh_s: float = 10.0

    def __post_init__(self) -> None:
        """Check the weights."""
        check_ranges(self, **dict.fromkeys(self.__struct_fields__, "finite"))
        for name in ("qfactor_weight", "wait_weight"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must be >= 0, or jobs that wait long would fall behind and starve; got"
                    f" {getattr(self, name)}"
                )
        check_ranges(self, qfactor_limit_s="> 0", refresh_s=">= 0")

    @property
    def ages(self) -> bool:
        """Whether jobs may overtake others while they are queued."""
        return self.qfactor_weight != 0

    def priority(self, job: Job, now: float) -> float:
        """Aging priority of a queued job."""
        return aging_priority(job if isinstance(job, Job) else original(job), now, *self._weights)

    @property
    def _weights(self) -> tuple[float, float, float, float]:
        return self.qfactor_weight, self.wait_weight, self.nodes_weight, self.qfactor_limit_s

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, highest first, then the time of submission."""
        if self.qfactor_weight != 0:
            return -self.priority(job, now), job.submitted_at
        # All jobs age at the same rate, so that this key, without the time, gives the same order.
        spec = job.spec
        fixed = self.nodes_weight * spec.processors + spec.priority
        return self.wait_weight * job.submitted_at / 60.0 - fixed, job.submitted_at

    def keys(self, jobs: Iterable[Job], now: float) -> list[tuple[float, float]]:
        """Keys of several jobs, in compiled code."""
        if type(self) is not Aging or not self.ages:  # a subclass may have another priority
            return super().keys(jobs, now)
        return aging_keys(jobs, now, *self._weights)


class ByQueue(QueueOrder):
    """Queue order over several queues with orders of their own, by the priorities these give.

    Parameters
    ----------
    order : order of the queues that have none of their own.
    own : name of a queue -> its order.

    Raises
    ------
    ValueError : an order gives no priority, so that jobs of different queues cannot be compared.
    """

    ages = True  # priorities with different weights grow at different rates

    def __init__(self, order: QueueOrder, own: Mapping[str, QueueOrder]) -> None:
        self._order = _prioritised(order, "the server")
        self._own = {name: _prioritised(by, f"queue {name}") for name, by in own.items()}
        self.refresh_s = min(by.refresh_s for by in (order, *own.values()))

    def priority(self, job: Job, now: float) -> float:
        """Priority of a queued job by the order of its queue."""
        return self._own.get(job.spec.queue, self._order).priority(job, now)

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, highest first, then the time of submission."""
        return -self.priority(job, now), job.submitted_at


def _prioritised(order: QueueOrder, whose: str) -> Prioritised:
    if isinstance(order, Prioritised):
        return order
    raise ValueError(
        f"the order of {whose}, {type(order).__name__}, gives no number, so that its jobs cannot"
        " be compared with those of queues of another order; take aging for both"
    )
