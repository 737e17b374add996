"""How groups ended that the service has recorded already.

A service whose journal was damaged, or replaced by an older copy, may order the start of a group
that has run. Its agent then reports how the group ended and does not start it again.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler.node.processes import GroupProcesses, ProcessTree

#: Groups that an agent keeps; the oldest are dropped first.
MOST = 10_000


class _End(NamedTuple):
    exit_code: int
    signal: int
    why: str


class EndedGroups:
    """Groups that have ended, by job, number and token of the job.

    Parameters
    ----------
    most : number of groups that are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._ends: dict[tuple[int, int, str], _End] = {}

    def add(self, group: GroupProcesses) -> None:
        """Keep how a group of this agent ended."""
        if group.gone and group.token:
            end = _End(group.exit_code, group.signal, group.why)
            self._ends[group.job, group.group, group.token] = end
        while len(self._ends) > self._most:
            del self._ends[next(iter(self._ends))]

    def find(self, job: int, group: int, token: str) -> GroupProcesses | None:
        """Return a group that has ended; None if it is not known."""
        end = self._ends.get((job, group, token))
        if end is None:
            return None
        return GroupProcesses(job, group, ProcessTree({}), gone=True, token=token, **end._asdict())
