"""Exclusions: processors that are not available to all jobs from one time to another.

An advance reservation admits the jobs that name it. A node that expires admits no job, and its
exclusion has no end. What is free of a node that failed to start a job, or whose agent is silent,
admits none for a short time. No job starts on excluded processors if, by its estimate, it would
still run when the exclusion begins; a job that is there then (because it exceeded its estimate, or
the exclusion was added later) keeps its processors until it ends or contracts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TypeAlias

import msgspec

from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE

#: Processors, and the times (s) from which and up to which a job may not hold them.
Blocked: TypeAlias = tuple[ProcSet, float, float]


class Exclusion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Processors that most or all jobs may not hold from `begin` to `end`.

    Parameters
    ----------
    name : unique among the exclusions of a machine.
    processors : which ones.
    begin, end : s; `end` itself is outside.
    admits : whether jobs that name the exclusion (`JobSpec.reservation`) may hold them.
    users : whose jobs may name it; (): those of all users.

    Raises
    ------
    ValueError : the exclusion ends before it begins.
    """

    name: str
    processors: ProcSet
    begin: float
    end: float = inf
    admits: bool = False
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the interval."""
        if not self.begin < self.end:
            raise ValueError(
                f"exclusion {self.name!r} must end after it begins, got {self.begin} to {self.end}"
            )

    @property
    def expires(self) -> bool:
        """Whether it stands for a node that expires."""
        return not self.admits and self.end == inf

    def is_open_to(self, user: str) -> bool:
        """Whether jobs of a user may name it."""
        return self.admits and (not self.users or user in self.users)

    def overlaps(self, start: float, until: float) -> bool:
        """Whether a job that runs from `start` to `until` (s) runs in the interval."""
        return self.begin < until and start < self.end


def expiry_of(node: str) -> str:
    """Name of the exclusion that begins when a node expires."""
    return f"expiry of node {node}"


def hold_of(node: str) -> str:
    """Name of the exclusion of a node that failed to start a job."""
    return f"failed start on node {node}"


def silent_agent_of(node: str) -> str:
    """Name of the exclusion of a node whose agent is silent."""
    return f"silent agent of node {node}"


class Exclusions:
    """Exclusions by name.

    The name of a reservation distinguishes jobs in all queries: "" stands for jobs without one.

    Attributes
    ----------
    next_change : time at which the next exclusion begins or ends, s; inf if none does.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Exclusion] = {}
        self.next_change = inf

    def __len__(self) -> int:
        """Count the exclusions."""
        return len(self._by_name)

    def __iter__(self) -> Iterator[Exclusion]:
        """Iterate over the exclusions, in the order in which they were added."""
        return iter(list(self._by_name.values()))

    def get(self, name: str) -> Exclusion | None:
        """Exclusion of a name, if there is one."""
        return self._by_name.get(name)

    def put(self, exclusion: Exclusion, now: float) -> None:
        """Add an exclusion, or replace the one of its name."""
        self._by_name.pop(exclusion.name, None)
        self._by_name[exclusion.name] = exclusion
        self._set_next_change(now)

    def remove(self, name: str, now: float) -> bool:
        """Remove an exclusion; return whether there was one."""
        existed = self._by_name.pop(name, None) is not None
        self._set_next_change(now)
        return existed

    def advance(self, now: float) -> bool:
        """Drop the exclusions that have ended; return whether one has begun or ended since."""
        if now < self.next_change:
            return False
        for exclusion in list(self._by_name.values()):
            if exclusion.end <= now:
                del self._by_name[exclusion.name]
        self._set_next_change(now)
        return True

    def move(self, by_s: float, now: float) -> bool:
        """Move reservations and expiries by some seconds; return whether there is any exclusion.

        A failed start and a silent agent exclude processors for a duration, and are not moved.
        """
        moved = [
            msgspec.structs.replace(old, begin=old.begin + by_s, end=old.end + by_s)
            if old.admits or old.expires
            else old
            for old in self
        ]
        moved = [exclusion for exclusion in moved if exclusion.end > now]
        was_empty = not self._by_name
        self._by_name = {exclusion.name: exclusion for exclusion in moved}
        self._set_next_change(now)
        return not was_empty

    def _set_next_change(self, now: float) -> None:
        self.next_change = inf
        for exclusion in self._by_name.values():
            at = exclusion.begin if exclusion.begin > now else exclusion.end
            if at < self.next_change:
                self.next_change = at

    def blocked(
        self,
        reservation: str,
        start: float,
        until: float,
        everything: ProcSet,
        leaves_by: float = inf,
    ) -> ProcSet:
        """Processors that a job may not hold at any time from `start` to `until` (s).

        Parameters
        ----------
        reservation : name of the reservation of the job; "" if it has none.
        everything : all processors of the machine.
        leaves_by : time (s) by which the job can leave processors of a node that expires.
        """
        excluded = [
            processors
            for processors, begin, end in self.intervals(reservation, everything, leaves_by)
            if begin < until and start < end
        ]
        return ProcSet.union(excluded) if excluded else NONE

    def intervals(
        self, reservation: str, everything: ProcSet, leaves_by: float = inf
    ) -> list[Blocked]:
        """What a job may not hold, and when.

        A job of a reservation may hold the processors of the reservation, in its interval, and no
        others. If there is no such reservation it may hold none.

        Parameters
        ----------
        reservation, everything, leaves_by : see `blocked`.
        """
        own = self._by_name.get(reservation) if reservation else None
        intervals: list[Blocked] = []
        if reservation and (own is None or not own.admits):
            return [(everything, -inf, inf)]
        if own is not None:
            intervals.append((everything - own.processors, -inf, inf))
            intervals.append((own.processors, -inf, own.begin))
            intervals.append((own.processors, own.end, inf))
        for exclusion in self._by_name.values():
            if exclusion is not own and not (exclusion.expires and exclusion.begin >= leaves_by):
                intervals.append((exclusion.processors, exclusion.begin, exclusion.end))
        return [blocked for blocked in intervals if blocked[0]]

    def names(self, processors: ProcSet, start: float, until: float) -> list[str]:
        """Names of the exclusions of any of the processors between two times (s)."""
        return [
            exclusion.name
            for exclusion in self._by_name.values()
            if exclusion.overlaps(start, until) and exclusion.processors & processors
        ]
