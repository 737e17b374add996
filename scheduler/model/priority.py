"""The interface of queue orders, and of those that rank jobs by a priority (PRIO 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from scheduler.model.job import Job


class QueueOrder:
    """Order of the queue: the base of a class with typed parameters, `ages` and `key`.

    Its members say what the core may assume of an order. A subclass redefines those in which it
    differs::

        class LargestFirst(QueueOrder, msgspec.Struct, frozen=True):
            ages = False

            def key(self, job: Job, now: float) -> int:
                return -job.processors

    Attributes
    ----------
    refresh_s : time that must pass before an order that ages is applied again, s.
    keeps_alike : whether two jobs of the same processors, estimate, walltime and user's priority
        never change their order.
    """

    __slots__ = ()

    refresh_s: float = 0.0
    keeps_alike: bool = False

    @property
    def ages(self) -> bool:
        """Whether keys change while a job waits, so that each pass sorts the queue again."""
        raise NotImplementedError(f"{type(self).__name__} does not state ages")

    def key(self, job: Job, now: float) -> Any:
        """Sort key at a time (s), ascending; equal keys are ordered by job number."""
        raise NotImplementedError(f"{type(self).__name__} has no method key")

    def keys(self, jobs: Iterable[Job], now: float) -> list[Any]:
        """Sort keys of several jobs at a time (s), as `key` gives them.

        Each sort of a queue that ages asks for the keys of all its jobs.
        """
        key = self.key
        return [key(job, now) for job in jobs]


@runtime_checkable
class Prioritised(Protocol):
    """Queue order that gives queued jobs a priority comparable with that of running ones."""

    def priority(self, job: Job, now: float) -> float:
        """Priority of a queued job at time `now` (s); larger is more urgent."""
