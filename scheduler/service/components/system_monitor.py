"""The system monitor: agents, nodes, and what is known of every group (PRIO 2, System Monitor).

It keeps what the agents said last and starts the agents of this machine. What follows from the end
of a group is decided in :mod:`scheduler.service.jobs`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from reshape.wire import messages as m
from scheduler.config.settings import NodeConfig
from scheduler.model.events import Event, NodeJoined, NodeLost
from scheduler.node.directory import ServiceDirectory

log = logging.getLogger(__name__)

#: An agent beats once a second; this much silence means that its node is lost.
SILENCE_S = 10.0


@dataclass
class AgentState:
    """What one agent said last; `groups` is by job, then by group."""

    identity: bytes
    pid: int
    heard: float
    groups: dict[int, dict[int, m.GroupStatus]] = field(default_factory=dict)
    restart_points: set[int] = field(default_factory=set)


class SystemMonitor:
    """Knows the agents and what they know.

    Parameters
    ----------
    send : sends a message to a peer by its socket identity.
    reserved : processors of nodes that belong to the redirection group, by name.

    Attributes
    ----------
    news : jobs of whose groups an agent has said something new; for the service to take.
    """

    def __init__(
        self,
        directory: ServiceDirectory,
        nodes: Iterable[NodeConfig],
        send: Callable[[bytes, m.Message], None],
        reserved: Mapping[str, int],
    ) -> None:
        self._directory = directory
        self._secret = directory.read_secret()
        self._send = send
        self._reserved = reserved
        self._nodes = {node.name: node for node in nodes}
        self.nodes = {node.name: node.processors for node in self._nodes.values()}
        self.agents: dict[str, AgentState] = {}
        self.news: set[int] = set()
        self._started: dict[str, float] = {}
        self._children: list[subprocess.Popen[bytes]] = []

    # ------------------------------------------------------------------ agents

    def on_hello(self, identity: bytes, hello: m.AgentHello, now: float) -> list[Event] | str:
        """Take in all an agent knows; give node events, or why the agent is refused."""
        if hello.secret != self._secret:
            return f"agent of {hello.node} shows another secret: its directory is not this one"
        if hello.node not in self.nodes:
            return f"node {hello.node!r} is not configured; there are {', '.join(self.nodes)}"
        events: list[Event] = []
        known = self.agents.get(hello.node)
        if known is not None and known.pid != hello.pid:
            log.warning("agent of %s was replaced: pid %d -> %d", hello.node, known.pid, hello.pid)
            events.append(NodeLost(at=now, node=hello.node))
            known = None
        if known is None:
            log.info("agent of %s is here, pid %d", hello.node, hello.pid)
            events.append(self.joined(hello.node, now))
        groups: dict[int, dict[int, m.GroupStatus]] = {}
        for status in hello.groups:
            groups.setdefault(status.job, {})[status.group] = status
        restart_points = set(hello.restart_points)
        before = AgentState(identity, hello.pid, 0.0) if known is None else known
        self.news |= restart_points ^ before.restart_points
        self.news.update(
            job
            for job in groups.keys() | before.groups.keys()
            if groups.get(job) != before.groups.get(job)
        )
        self.agents[hello.node] = AgentState(
            identity, hello.pid, time.monotonic(), groups, restart_points
        )
        return events

    def joined(self, node: str, now: float) -> NodeJoined:
        """Event of a configured node that is there."""
        held = self._nodes[node]
        kept = self._reserved.get(node, 0)
        return NodeJoined(now, node, held.processors, kept, held.resources)

    def on_tick(self, now: float, *, hire: bool) -> list[Event]:
        """Find silent agents, and (`hire`) start one on every node that has none."""
        events: list[Event] = []
        self._children = [child for child in self._children if child.poll() is None]
        for node in self.nodes:
            agent = self.agents.get(node)
            if agent is not None:
                if time.monotonic() - agent.heard < SILENCE_S and self._is_held(node):
                    continue
                log.error("node %s is lost: its agent (pid %d) is silent", node, agent.pid)
                del self.agents[node]
                events.append(NodeLost(at=now, node=node))
            if not hire:
                continue
            # A starting agent takes the lock itself: do not probe it meanwhile.
            if time.monotonic() - self._started.get(node, -9e9) > 5.0 and not self._is_held(node):
                self._start_agent(node)
        return events

    def dismiss(self) -> bool:
        """Tell all agents to end; True when they have, also those that were just starting."""
        self.tell_all(m.AgentStop())
        self._children = [child for child in self._children if child.poll() is None]
        return not self._children and not any(map(self._is_held, self.nodes))

    def _is_held(self, node: str) -> bool:
        with self._directory.agent_lock(node) as free:
            return not free

    def _start_agent(self, node: str) -> None:
        self._started[node] = time.monotonic()
        with self._directory.log(f"agent-{node}").open("ab") as output:
            argv = [sys.executable, "-m", "reshape", "agent"]
            child = subprocess.Popen(
                [*argv, "--dir", str(self._directory.path), "--node", node],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # it outlives the service
            )
        self._children.append(child)

    def tell(self, node: str, message: m.Message) -> None:
        """Send a message to the agent of a node, if there is one."""
        if node in self.agents:
            self._send(self.agents[node].identity, message)

    def tell_all(self, message: m.Message) -> None:
        """Send a message to every agent."""
        for node in self.agents:
            self.tell(node, message)

    # ------------------------------------------------------------------ groups

    def status(self, node: str, job: int, group: int) -> m.GroupStatus | None:
        """Give what the agent of a node knows of a group, None if it knows none."""
        agent = self.agents.get(node)
        return agent.groups.get(job, {}).get(group) if agent else None

    def statuses(self, job: int) -> list[tuple[str, m.GroupStatus]]:
        """Give (node, status) of every group of a job that some agent knows."""
        return [
            (node, status)
            for node, agent in self.agents.items()
            for status in agent.groups.get(job, {}).values()
        ]

    def has_restart_point(self, job: int) -> bool:
        """Whether some agent sees a restart point of this job."""
        return any(job in agent.restart_points for agent in self.agents.values())

    def known_jobs(self) -> set[int]:
        """Give the jobs that some agent knows a group of."""
        return {job for agent in self.agents.values() for job in agent.groups}
