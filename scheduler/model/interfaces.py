"""The interfaces of the policies that the scheduler state calls: queue orders and selections.

A base class says what the core may assume of a policy, and what one does unless its class says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from scheduler.model.groups import leaving_groups
from scheduler.model.job import Job
from scheduler.model.network import Network
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE, Space


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
        """Priority of a queued job at time `now` (s), larger is more urgent (PRIO 3.1)."""


class Selection:
    """Chooses the processors of a group: the base of a class with typed parameters and `select`.

    Its members say what a selection can do. A subclass redefines those in which it differs::

        class Highest(Selection, msgspec.Struct, frozen=True):
            anywhere = True

            def select(self, space: Space, processors: int) -> ProcSet | None:
                return space.free.last(processors)

    Attributes
    ----------
    anywhere : whether it accepts any free processors, if there are enough.
    network : the kind of network that it needs, "tree" or "mesh"; empty: none.
    searches_table : whether it has a method `place` that finds processors and a start on the
        reservation table (`scheduler.state.reservation_table.TableSelection`).
    """

    __slots__ = ()

    anywhere: bool = False
    network: str = ""
    searches_table: bool = False

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many of the free processors; there are enough. None to refuse.

        If it accepts some processors, it must also accept some when more are free.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method select")

    def fits(self, space: Space, processors: int) -> bool:
        """Whether `select` would accept processors; a subclass may have a cheaper test for it."""
        return self.select(space, processors) is not None

    def keep(self, then: Space, now: Space, processors: int) -> ProcSet:
        """Processors free now that must stay free for a job that is to start later.

        By default they are those that the selection would choose then.

        Parameters
        ----------
        then : what will be free when the job starts; `select` accepts this many of it.
        """
        place = self.select(then, processors)
        return ProcSet() if place is None else place & now.free

    def leaving(
        self, space: Space, groups: Mapping[int, ProcSet], processors: int, others: ProcSet = NONE
    ) -> tuple[int, ...] | None:
        """Groups of a job that leave when it contracts; by default the newest of several choices.

        Parameters
        ----------
        groups : groups that may leave, oldest first.
        processors : how many processors are to leave.
        others : processors of the job's other groups.

        Returns
        -------
        groups of exactly this many processors; None if there are none.
        """
        return leaving_groups(groups, processors)

    def held(self, processors: int, per_node: int, network: Network | None) -> int:
        """Processors that a job of this many gets on an exclusive machine; by default whole nodes.

        Parameters
        ----------
        per_node : processors of a node.
        """
        return -(-processors // per_node) * per_node
