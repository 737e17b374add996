"""A group of a job on a node, and how the jobs of a node ended.

The ends are kept after the service has recorded them. A service whose journal was damaged, or
replaced by an older copy, may take a job that has ended for one that is to start or runs. Its
agents then report how the job ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import msgspec

from scheduler.node.groups.processes import ProcessTree
from scheduler.node.launching.output_end import OutputEnd
from scheduler.node.launching.started import GroupEnd
from scheduler.protocol import messages as m

#: Ends that an agent keeps; the oldest are dropped first.
MOST_ENDED = 10_000


@dataclass
class GroupProcesses:
    """One group of a job: its processes, and how it ended.

    Attributes
    ----------
    gone : whether all processes of the group have ended.
    end : how it ended, then.
    why : reason of its end, of an order to end it or of `end`.
    kill_at : monotonic time at which SIGKILL follows SIGTERM; None if the group is not to end.
    cpus : CPUs to which its ranks on this node were bound, by rank.
    output : path of the file with its standard error, and mostly its output; "": none.
    other_output : path of the file with its standard output, if that is another one.
    own_folders : folders of the service, one a line, in which its output must not be.
    order : the last signal that was ordered; None: there was none.
    signalled : serial of the last signal that it was sent.
    tail : the end of its output, which is read when a failed group has ended; None: it is not.
    """

    job: int
    group: int
    tree: ProcessTree
    gone: bool = False
    end: GroupEnd = field(default_factory=GroupEnd)
    why: str = ""
    kill_at: float | None = None
    cpus: dict[int, list[int]] = field(default_factory=dict)
    output: str = ""
    other_output: str = ""
    own_folders: str = ""
    order: m.SignalGroup | None = None
    signalled: int = 0
    tail: OutputEnd | None = None

    @property
    def output_end(self) -> str | None:
        """The end of its output, "" if it is not read; None as long as it is being read."""
        return "" if self.tail is None else self.tail.text()

    def report(self) -> m.GroupStatus:
        """Status of the group for the service."""
        return m.GroupStatus(
            job=self.job,
            group=self.group,
            alive=not self.gone,
            pid=self.tree.pid,
            exit_code=self.end.exit_code,
            signal=self.end.signal,
            why=self.why,
            proxies=[] if self.tree.start is None else self.tree.start.proxies,
            cpus=self.cpus,
            output_end=self.output_end or "",
            began=self.end.began if self.gone else self.tree.has_begun,
            rank=self.end.rank,
            fault=self.end.fault,
            signalled=self.signalled,
        )


class EndedJobs:
    """The ends of jobs that the service has recorded already.

    The end of a job is known by the order that started its first group, because a job that was
    queued again has one for each of its starts, and the last one by the token of the job.

    Parameters
    ----------
    most : number of starts, and of jobs, that are kept.
    """

    def __init__(self, most: int = MOST_ENDED) -> None:
        self._most = most
        self._starts: dict[int, bytes] = {}  # job -> digest of the order of its first group
        self._tokens: dict[int, str] = {}  # job -> its token
        self._ends: dict[bytes, GroupProcesses] = {}  # by this digest
        self._jobs: dict[str, list[GroupProcesses]] = {}  # last groups, by token

    def started(self, order: m.StartGroup) -> None:
        """Note the start of a group."""
        self._tokens[order.job] = order.environment.get("RESHAPE_TOKEN", "")
        if order.environment.get("RESHAPE_ROLE") == "first":
            self._starts[order.job] = _digest(order)

    def ended(self, job: int, groups: Sequence[GroupProcesses]) -> None:
        """Keep how the last groups of a job ended."""
        start, token = self._starts.pop(job, None), self._tokens.pop(job, "")
        ends = [
            replace(group, tree=ProcessTree({}), kill_at=None, cpus={}, tail=None)
            for group in groups
        ]
        if token and ends:
            self._jobs.pop(token, None)
            self._jobs[token] = ends
            _drop_oldest(self._jobs, self._most)
        if start is not None and ends:
            self._ends[start] = _end_of_all(ends)
            _drop_oldest(self._ends, self._most)

    def end_of(self, order: m.StartGroup) -> GroupProcesses | None:
        """Return the first group of a job that this order has started, as the job ended."""
        end = self._ends.get(_digest(order)) if self._ends else None
        return None if end is None else replace(end, group=order.group)

    def end_of_group(
        self, question: m.ReportEnd, present: Sequence[GroupProcesses]
    ) -> GroupProcesses | None:
        """Return a group as it ended, or as its job did if it left before.

        Parameters
        ----------
        present : groups of the job that the service has not acknowledged as ended.

        Returns
        -------
        None : the job is not known, or still runs.
        """
        ends = self._jobs.get(question.token)
        if self._tokens.get(question.job) == question.token:
            ends = list(present) if all(group.gone for group in present) else None
        if not ends:
            return None
        own = next((end for end in ends if end.group == question.group), None)
        return replace(own or _end_of_all(ends), group=question.group)


def _end_of_all(groups: Sequence[GroupProcesses]) -> GroupProcesses:
    """Return a group that failed, if one did."""
    return max(groups, key=lambda group: (group.end.exit_code, group.end.signal) != (0, 0))


def _drop_oldest(ends: dict[Any, Any], most: int) -> None:
    while len(ends) > most:
        del ends[next(iter(ends))]


def _digest(order: m.StartGroup) -> bytes:
    return blake2b(msgspec.msgpack.encode(order), digest_size=16).digest()
