"""What the agents of nodes have reported last: their groups, folders and restart points.

Commands are repeated until a report shows their effect, so when they were sent is kept here, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.journal.journal import Journal
from scheduler.protocol import messages as m

#: Bytes of large commands that are under way to agents, at most; a larger command goes alone.
MOST_UNDER_WAY = 32 << 20
#: Bytes from which a command is large.
LARGE = 1 << 16


@dataclass
class AgentState:
    """The latest report of an agent.

    Parameters
    ----------
    hello : the report; `host` and `address` are empty on the host of the service.
    identity : of the connection on which it came.
    heard_at : a reading of the monitor's listening time.
    served_before : whether the journal had the agent as that of the node when it first reported.

    Attributes
    ----------
    groups : of the report, by job, then by group.
    restart_points, folders : of the report.
    """

    hello: m.AgentHello
    identity: bytes
    heard_at: float
    served_before: bool

    def __post_init__(self) -> None:
        """Arrange the report for questions about jobs."""
        self.groups: dict[int, dict[int, m.GroupStatus]] = {}
        for status in self.hello.groups:
            self.groups.setdefault(status.job, {})[status.group] = status
        self.restart_points, self.folders = set(self.hello.restart_points), set(self.hello.folders)


class AgentReports:
    """The latest report of each agent.

    Parameters
    ----------
    journal : gets the largest memory of the jobs.

    Attributes
    ----------
    agents : by node.
    changed_jobs : jobs that may differ from their processes; the driver shares and clears them.
    started : groups that were ever reported as alive, by job.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.agents: dict[str, AgentState] = {}
        self.changed_jobs: Final[set[int]] = set()
        self.started: dict[int, set[int]] = {}

    def note(self, agent: AgentState) -> None:
        """Take the report of an agent in place of the one before, if there was one."""
        for status in agent.hello.groups:
            if status.alive or status.began:
                self.started.setdefault(status.job, set()).add(status.group)
        before = self.agents.get(agent.hello.node)
        self.agents[agent.hello.node] = agent
        if before is None:
            self.changed_jobs.update(agent.restart_points, agent.folders, agent.groups)
            self._note_memory({}, agent.hello.max_memory_mib)
            return
        self.changed_jobs.update(agent.restart_points ^ before.restart_points)
        self.changed_jobs.update(agent.folders ^ before.folders)
        self.changed_jobs.update(
            job
            for job in agent.groups.keys() | before.groups.keys()
            if agent.groups.get(job) != before.groups.get(job)
        )
        self._note_memory(before.hello.max_memory_mib, agent.hello.max_memory_mib)

    def _note_memory(self, before: Mapping[int, int], now: Mapping[int, int]) -> None:
        """Note the largest memory of the jobs for which an agent reports a new amount.

        The amounts of several nodes are added. What an earlier agent reported is not lost.
        """
        for job in now:
            if now[job] != before.get(job):
                mib = sum(agent.hello.max_memory_mib.get(job, 0) for agent in self.agents.values())
                if mib > self._journal.max_memory_mib(job):
                    self._journal.note_memory(job, mib)

    def drop(self, node: str) -> None:
        """Forget the report of an agent; the jobs of its groups have changed."""
        self.changed_jobs.update(self.agents.pop(node).groups.keys())

    def status(self, node: str, job: int, group: int) -> m.GroupStatus | None:
        """Return the status of a group as the agent of a node reports it, None if it does not."""
        agent = self.agents.get(node)
        return agent.groups.get(job, {}).get(group) if agent else None

    def statuses(self, job: int) -> list[tuple[str, m.GroupStatus]]:
        """Return (node, status) of every group of a job that an agent reports."""
        return [
            (node, status)
            for node, agent in self.agents.items()
            for status in agent.groups.get(job, {}).values()
        ]

    def nodes_with_folder(self, job: int) -> list[str]:
        """Nodes that hold shared memory of a job."""
        return [node for node, agent in self.agents.items() if job in agent.folders]

    def has_restart_point(self, job: int) -> bool:
        """Whether an agent reports a restart point of this job."""
        return any(job in agent.restart_points for agent in self.agents.values())

    def known_jobs(self) -> set[int]:
        """Return the jobs of which an agent reports a group or a folder."""
        return {
            job for agent in self.agents.values() for job in agent.groups.keys() | agent.folders
        }


class SentCommands:
    """When commands were sent to agents whose reports may not show the effect yet.

    The bytes of large commands under way are bounded. Environments, scripts and arguments may have
    megabytes, and those of many jobs that start together would fill the memory of the service.

    Parameters
    ----------
    repeat_s : time after which a command is repeated, seconds; then it is not under way.
    reports : a group that an agent reports has been started.
    """

    def __init__(self, repeat_s: float, reports: AgentReports) -> None:
        self._repeat_s, self._reports = repeat_s, reports
        # By job and group, then by node and kind of command; monotonic seconds.
        self._sent_at: dict[tuple[int, int], dict[tuple[str, type[m.Message]], float]] = {}
        # Bytes of large commands by node, job and group, and kind of command.
        self._bytes: dict[tuple[tuple[str, int, int], type[m.Message]], int] = {}

    def note(self, node: str, job: int, group: int, kind: type[m.Message]) -> None:
        """Note that a command for a group is sent to the agent of a node now."""
        self._sent_at.setdefault((job, group), {})[node, kind] = time.monotonic()

    def has(self, node: str, job: int, group: int, kind: type[m.Message]) -> bool:
        """Whether a command was sent, as far as that is kept."""
        return (node, kind) in self._sent_at.get((job, group), ())

    def is_under_way(self, node: str, job: int, group: int, kind: type[m.Message]) -> bool:
        """Whether a command was sent so recently that it is not to be repeated."""
        at = self._sent_at.get((job, group), {}).get((node, kind))
        return at is not None and time.monotonic() - at < self._repeat_s

    def begins(self, node: str, job: int, group: int, kind: type[m.Message], size: int = 0) -> bool:
        """Return whether a command of some bytes is to be sent now; it counts as sent then.

        It is not if it is under way, or if many large ones are.
        """
        if self.is_under_way(node, job, group, kind):
            return False
        if size >= LARGE:
            self._bytes = {
                (key, what): other
                for (key, what), other in self._bytes.items()
                if self.is_under_way(*key, what) and self._reports.status(*key) is None
            }
            if self._bytes and sum(self._bytes.values()) + size > MOST_UNDER_WAY:
                return False
            self._bytes[(node, job, group), kind] = size
        self.note(node, job, group, kind)
        return True

    def forget(self, job: int, group: int) -> None:
        """Forget what was sent for a group."""
        self._sent_at.pop((job, group), None)

    def forget_old(self) -> None:
        """Forget what is old enough to be repeated."""
        since = time.monotonic() - self._repeat_s
        self._sent_at = {
            key: recent
            for key, sent in self._sent_at.items()
            if (recent := {what: at for what, at in sent.items() if at > since})
        }
