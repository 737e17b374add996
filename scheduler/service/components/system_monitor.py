"""The system monitor: agents, nodes, and the status of every group (PRIO 2, System Monitor).

It keeps the latest report of every agent and starts the agents of this machine. What follows from
the end of a group is decided in :mod:`scheduler.service.components.job_ends`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from reshape.errors import ReshapeError
from reshape.wire import messages as m
from scheduler.config.settings import NodeConfig
from scheduler.model.events import Event, NodeJoined, NodeLost
from scheduler.node.directory import ServiceDirectory
from scheduler.service.record.journal import Journal

log = logging.getLogger(__name__)

#: Seconds of silence that one tick counts at most. Ticks come four times a second; a longer time
#: between two of them is a stall of the service itself, in which it could not hear its agents.
STEP_S = 1.0
#: Seconds between two attempts to start the agent of a node.
RESTART_S = 5.0


@dataclass
class AgentState:
    """The latest report of an agent; `groups` is by job, then by group.

    `heard_at` is a reading of the monitor's listening time.
    """

    identity: bytes
    pid: int
    heard_at: float
    groups: dict[int, dict[int, m.GroupStatus]] = field(default_factory=dict)
    restart_points: set[int] = field(default_factory=set)
    folders: set[int] = field(default_factory=set)


class SystemMonitor:
    """Keeps what the agents report.

    Parameters
    ----------
    send : queues a message for a peer, named by its socket identity.
    reserved : processors of nodes that belong to the redirection group, by name.
    journal : keeps the process number of each node's agent across restarts of the service.
    node_lost_s : an agent that is silent for longer has lost its node, seconds.

    Attributes
    ----------
    changed_jobs : jobs whose groups have changed in reports that the driver has not taken yet.
    """

    def __init__(
        self,
        directory: ServiceDirectory,
        nodes: Iterable[NodeConfig],
        send: Callable[[bytes, m.Message], None],
        reserved: Mapping[str, int],
        journal: Journal,
        node_lost_s: float,
    ) -> None:
        self._directory = directory
        self._secret = directory.read_secret()
        self._send = send
        self._reserved = reserved
        self._journal = journal
        self._node_lost_s = node_lost_s
        self._nodes = {node.name: node for node in nodes}
        self.nodes = {node.name: node.processors for node in self._nodes.values()}
        self.agents: dict[str, AgentState] = {}
        self.changed_jobs: set[int] = set()
        self._listened_s = 0.0  # time in which the service was able to hear its agents
        self._ticked_at = time.monotonic()
        self._started_at: dict[str, float] = {}
        # Since when a node has no agent, as listening time; infinite: all its jobs were ended.
        self._missing_since = dict.fromkeys(self.nodes, 0.0)
        self._children: list[subprocess.Popen[bytes]] = []

    # ------------------------------------------------------------------ agents

    def on_agent_hello(
        self,
        identity: bytes,
        hello: m.AgentHello,
        unwanted: Sequence[m.GroupStatus],
        now: float,
    ) -> list[Event]:
        """Note the report of an agent and return the events of its node.

        Parameters
        ----------
        unwanted : living groups of the report that the core does not have (any more). A node that
            joins does so only after they have ended, because its processors are not free before.

        Raises
        ------
        ReshapeError : the agent is refused.
        """
        self._check(hello)
        events: list[Event] = []
        known = self.agents.get(hello.node)
        if known is not None:
            replaced = known.pid != hello.pid
        else:
            replaced = self._journal.has_other_agent(hello.node, hello.pid)
        if replaced:
            log.warning("agent replaced node=%s pid=%d", hello.node, hello.pid)
            points = tuple(hello.restart_points)
            events.append(NodeLost(now, hello.node, points))  # its groups ended with it
            self.agents.pop(hello.node, None)
            known = None
        if known is None:
            for status in unwanted:
                kill = m.KillGroup(
                    job=status.job, group=status.group, grace_s=0, why="its node was lost"
                )
                self._send(identity, kill)
            self._journal.note_agent(hello.node, hello.pid)
            if unwanted:
                return events
            log.info("agent reports node=%s pid=%d", hello.node, hello.pid)
            events.append(self.joined_event(hello.node, now))
        self._note(identity, hello, known)
        return events

    def _check(self, hello: m.AgentHello) -> None:
        if hello.secret != self._secret:
            raise ReshapeError(
                f"the agent of {hello.node} shows another secret: its directory is not this one"
            )
        if hello.node not in self.nodes:
            raise ReshapeError(
                f"node {hello.node!r} is not configured; there are {', '.join(self.nodes)}"
            )

    def _note(self, identity: bytes, hello: m.AgentHello, known: AgentState | None) -> None:
        groups: dict[int, dict[int, m.GroupStatus]] = {}
        for status in hello.groups:
            groups.setdefault(status.job, {})[status.group] = status
        restart_points = set(hello.restart_points)
        before = AgentState(identity, hello.pid, 0.0) if known is None else known
        folders = set(hello.folders)
        self.changed_jobs |= restart_points ^ before.restart_points
        self.changed_jobs |= folders ^ before.folders
        self.changed_jobs.update(
            job
            for job in groups.keys() | before.groups.keys()
            if groups.get(job) != before.groups.get(job)
        )
        self.agents[hello.node] = AgentState(
            identity, hello.pid, self._listened_s, groups, restart_points, folders
        )

    def joined_event(self, node: str, now: float) -> NodeJoined:
        """Return the event of a configured node that is up."""
        held = self._nodes[node]
        kept = self._reserved.get(node, 0)
        return NodeJoined(now, node, held.processors, kept, held.resources)

    def on_tick(self, now: float, *, start_agents: bool, heard_all: bool) -> list[Event]:
        """Find agents that are gone or silent, and start one on every node that has none.

        Parameters
        ----------
        start_agents : whether agents are started.
        heard_all : whether every message that has arrived was read. The silence of an agent is
            judged only then, and only time in which the service was able to hear it counts.
        """
        events: list[Event] = []
        moment = time.monotonic()
        self._listened_s += min(moment - self._ticked_at, STEP_S)
        self._ticked_at = moment
        self._children = [child for child in self._children if child.poll() is None]
        for node in self.nodes:
            agent = self.agents.get(node)
            if agent is not None:
                silent_s = self._listened_s - agent.heard_at
                if not heard_all or (silent_s < self._node_lost_s and self._is_held(node)):
                    continue
                log.error(
                    "node lost node=%s pid=%d: its agent is silent for %.0f s",
                    *(node, agent.pid, silent_s),
                )
                del self.agents[node]
                self.changed_jobs |= agent.groups.keys()
                # The next agent reports the restart points, if it comes in time.
                restart_points = None if start_agents and not self._is_held(node) else ()
                events.append(NodeLost(now, node, restart_points))
                self._missing_since[node] = self._listened_s
            elif self._listened_s - self._missing_since[node] >= self._node_lost_s:
                self._missing_since[node] = inf
                events.append(NodeLost(now, node))
            if not start_agents:
                continue
            # A starting agent takes the lock itself, so the lock is not tried meanwhile.
            since_start = moment - self._started_at.get(node, -RESTART_S)
            if since_start >= RESTART_S and not self._is_held(node):
                self._start_agent(node)
        return events

    def stop_agents(self) -> bool:
        """Tell all agents to end; return whether all have, also those that were just starting."""
        self.send_to_all(m.AgentStop())
        self._children = [child for child in self._children if child.poll() is None]
        return not self._children and not any(map(self._is_held, self.nodes))

    def _is_held(self, node: str) -> bool:
        with self._directory.agent_lock(node) as free:
            return not free

    def _start_agent(self, node: str) -> None:
        self._started_at[node] = time.monotonic()
        with self._directory.log(f"agent-{node}").open("ab") as output:
            argv = [sys.executable, "-m", "reshape", "agent"]
            child = subprocess.Popen(
                [*argv, "--dir", str(self._directory.path), "--node", node],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # the agent outlives the service
            )
        self._children.append(child)

    def send_to(self, node: str, message: m.Message) -> None:
        """Send a message to the agent of a node, if there is one."""
        if node in self.agents:
            self._send(self.agents[node].identity, message)

    def send_to_all(self, message: m.Message) -> None:
        """Send a message to every agent."""
        for node in self.agents:
            self.send_to(node, message)

    # ------------------------------------------------------------------ groups

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
