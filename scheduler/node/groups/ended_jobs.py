"""How jobs of a node ended, kept after the service has recorded it.

A service whose journal was damaged, or replaced by an older copy, may take a job that has ended for
one that is to start or runs. Its agents then report how the job ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import msgspec

from reshape.wire import messages as m
from scheduler.node.groups.processes import GroupProcesses, ProcessTree

#: Ends that an agent keeps; the oldest are dropped first.
MOST_ENDED = 10_000


class EndedJobs:
    """How jobs ended whose end the service has recorded already.

    The end of a job is known by the order that started its first group; a job that was queued again
    has one for each of its starts. The end of a group is known by the token of its job.

    Parameters
    ----------
    most : number of starts, and of groups, that are kept.
    """

    def __init__(self, most: int = MOST_ENDED) -> None:
        self._most = most
        self._starts: dict[int, bytes] = {}  # job -> digest of the order of its first group
        self._tokens: dict[int, str] = {}  # job -> its token
        self._ends: dict[bytes, GroupProcesses] = {}  # by this digest
        self._groups: dict[tuple[str, int], GroupProcesses] = {}  # by token and number

    def started(self, order: m.StartGroup) -> None:
        """Note the start of a group."""
        self._tokens[order.job] = order.environment.get("RESHAPE_TOKEN", "")
        if order.environment.get("RESHAPE_ROLE") == "first":
            self._starts[order.job] = _digest(order)

    def ended(self, job: int, groups: Sequence[GroupProcesses]) -> None:
        """Keep how the last groups of a job ended, and the job: as one that failed, if one did."""
        start, token = self._starts.pop(job, None), self._tokens.pop(job, "")
        ends = [replace(group, tree=ProcessTree({}), kill_at=None, cpus={}) for group in groups]
        if token:
            self._groups.update(((token, end.group), end) for end in ends)
            _drop_oldest(self._groups, self._most)
        if start is not None and ends:
            self._ends[start] = max(ends, key=lambda end: (end.exit_code, end.signal) != (0, 0))
            _drop_oldest(self._ends, self._most)

    def end_of(self, order: m.StartGroup) -> GroupProcesses | None:
        """Return the first group of a job that this order has started, as the job ended."""
        end = self._ends.get(_digest(order)) if self._ends else None
        return None if end is None else replace(end, group=order.group)

    def end_of_group(self, token: str, group: int) -> GroupProcesses | None:
        """Return a group that was among the last ones of the job with a token, as it ended."""
        end = self._groups.get((token, group))
        return None if end is None else replace(end)


def _drop_oldest(ends: dict[Any, GroupProcesses], most: int) -> None:
    while len(ends) > most:
        del ends[next(iter(ends))]


def _digest(order: m.StartGroup) -> bytes:
    return blake2b(msgspec.msgpack.encode(order), digest_size=16).digest()
