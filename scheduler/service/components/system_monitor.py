"""The system monitor: agents, nodes, and the status of every group (PRIO 2, System Monitor).

It judges from the reports of agents (:mod:`scheduler.service.components.agent_reports`) which nodes
join and which are lost, and has missing agents started. What follows from the end of a group is
decided in :mod:`scheduler.service.components.job_ends`.

An agent that replaced another one says that all groups of its node have ended. Which of their jobs
can restart depends on the restart points, which may lie on hosts whose agents have not reported
since the service started. Until they have, or are lost, such an agent is held back, and its node
stays down.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from math import inf

import psutil

import reshape
from reshape.errors import ReshapeError
from reshape.wire.access import AccessFile
from scheduler.config.settings import NodeConfig, ServeConfig
from scheduler.journal.journal import Journal
from scheduler.model.events import Event, NodeJoined, NodeLost
from scheduler.node.agent_starts import AgentStarts
from scheduler.node.directory import ServiceDirectory
from scheduler.node.processes import is_alive
from scheduler.protocol import messages as m
from scheduler.service.components.agent_reports import AgentReports, AgentState

log = logging.getLogger(__name__)

#: Seconds, besides two heartbeats, after which an agent counts as silent.
SILENT_S = 2.0
#: Seconds of silence that one tick counts at most. Ticks come four times a second; a longer time
#: between two of them is a stall of the service itself, which could not receive reports meanwhile.
STEP_S = 1.0
#: Seconds for which the end of agents on other hosts is awaited.
STOP_S = 5.0
#: Jobs end or leave this many seconds before their node is given back.
GIVE_BACK_S = 5.0
#: Times at which a node is given back that differ by less are the same, seconds.
SAME_END_S = 2.0


class SystemMonitor:
    """Serves the nodes: takes the reports of their agents, and has missing ones started.

    Parameters
    ----------
    send : queues a message for a peer, named by its socket identity.
    journal : keeps the name of each node's agent across restarts of the service.

    Attributes
    ----------
    deadlines : of the configuration.
    shares : processors of nodes that belong to other partitions than the first one, by node.
    configured : all nodes of the configuration and of allocations, removed ones too.
    nodes : number of processors of each node that is served, in the order of the configuration.
    pool_nodes : names of the nodes that elastic pools may have, granted or not.
    has_hosts : whether a node was ever on another host than the service.
    reports : what the agents have reported last.
    """

    def __init__(
        self,
        directory: ServiceDirectory,
        config: ServeConfig,
        send: Callable[[bytes, m.Message], None],
        journal: Journal,
    ) -> None:
        self._directory, self._send, self._journal = directory, send, journal
        self._secret = directory.read_secret()
        self.shares, self.deadlines = config.shares(), config.deadlines
        self._most_silent_s = SILENT_S + 2 * config.deadlines.heartbeat_s
        self.configured = {node.name: node for node in config.nodes}
        self.nodes = {node.name: node.processors for node in self.configured.values()}
        self.reports = AgentReports(journal)
        self._listened_s = 0.0  # time in which the service was able to receive reports
        self._ticked_at = time.monotonic()
        self._starts = AgentStarts(directory, self.configured, config.ssh)
        self.pool_nodes: set[str] = set()
        self.has_hosts = any(map(self.is_remote, self.nodes))
        self._stopping_since: float | None = None
        self._silences: dict[str, str] = {}  # of nodes that were lost for it
        # Node -> its agent before the present one, and host and address of the present one.
        self._before: dict[str, tuple[str | None, str, str]] = {}
        # Node -> its latest agent that was held back, and the listening time of its last report.
        self._held_back: dict[str, tuple[str, float]] = {}
        # Since when a node has no agent, as listening time; infinite: all its jobs were ended.
        self._missing_since = dict.fromkeys(self.nodes, 0.0)

    # ------------------------------------------------------------------ agents

    def replaces(self, identity: bytes, hello: m.AgentHello, *, is_remote: bool) -> bool:
        """Whether the agent of a report has replaced another one of its node.

        Parameters
        ----------
        is_remote : whether the key of the connection proves that the sender is an agent.

        Raises
        ------
        ReshapeError : the agent is refused.
        """
        self._check(identity, hello, is_remote=is_remote)
        agent = self.reports.agents.get(hello.node)
        replaced = self._latest_agent(hello.node) not in (None, hello.incarnation)
        if replaced and agent is not None:
            self._check_host(agent, hello.host, hello.address)
        return replaced

    def on_report(
        self,
        identity: bytes,
        hello: m.AgentHello,
        unwanted: Sequence[m.GroupStatus],
        now: float,
        *,
        replaced: bool,
        loses_groups: bool,
        ended: tuple[int, ...],
    ) -> list[Event]:
        """Note the report of an agent and return the events of its node.

        Parameters
        ----------
        unwanted : living groups of the report that the core does not have. A node that
            joins does so only after they have ended, because its processors are not free before.
        replaced, loses_groups : whether the agent has replaced another one, and whether groups have
            ended with that one.
        ended : jobs whose groups on the node had ended before, as the report says.
        """
        events: list[Event] = []
        if replaced:
            log.warning("agent replaced node=%s pid=%d", hello.node, hello.pid)
            before = self._latest_agent(hello.node)
            self._before[hello.node] = before, hello.host, hello.address
            if loses_groups:
                events.append(self._replaced(hello, ended, now))
            self.reports.agents.pop(hello.node, None)
        agent = self.reports.agents.get(hello.node)
        if agent is None:
            served_before = self._noted_agent(hello.node) == hello.incarnation
            for status in unwanted:
                why = "its node was lost"
                kill = m.KillGroup(job=status.job, group=status.group, grace_s=0, why=why)
                self._send(identity, kill)
            self._journal.note_meta(f"agent {hello.node}", hello.incarnation)
            if unwanted:
                return events
            log.info("agent reports node=%s host=%s pid=%d", hello.node, hello.host, hello.pid)
            events.append(self.joined_event(hello.node, now))
        else:
            served_before = agent.served_before
        self._silences.pop(hello.node, None)
        self.reports.note(AgentState(hello, identity, self._listened_s, served_before))
        if hello.ends:
            log.info("agent ends node=%s", hello.node)
            # The next agent reports the restart points, if it comes in time.
            events.append(self._lose(hello.node, now, None if hello.keeps_memory else ()))
        return events

    def _latest_agent(self, node: str) -> str | None:
        """Name of the latest agent of a node; None if it had none."""
        known = self.reports.agents.get(node)
        return self._noted_agent(node) if known is None else known.hello.incarnation

    def _noted_agent(self, node: str) -> str | None:
        """Name of the latest agent of a node in the journal; None if it had none."""
        return self._journal.meta(f"agent {node}")

    def _check_host(self, agent: AgentState, host: str, address: str | None = None) -> None:
        """Refuse an agent while that of another host serves its node; hosts may share a name.

        Parameters
        ----------
        address : of the host of the agent that is checked; None: not known.
        """
        node, registered, at = agent.hello.node, agent.hello.host, agent.hello.address
        is_same = registered == host and address in (None, at)
        if not is_same and self._silent_s(agent) < self.deadlines.node_lost_s:
            named = (
                [f"{registered} ({at})", f"{host} ({address})"]
                if registered == host
                else [registered, host]
            )
            serving, other = (name or "this host" for name in named)
            raise ReshapeError(
                f"node {node} is served by an agent on {serving}, and not on {other}: end one, or"
                " give each its own node"
            )

    def _replaced(self, hello: m.AgentHello, ended: tuple[int, ...], now: float) -> NodeLost:
        """Return the event of a node whose groups have ended with the agent before this one.

        The segments of its jobs are still there. The restart point of a job on several hosts may be
        on another one of them.
        """
        restart = set(hello.restart_points)
        restart.update(job for job in hello.folders if self.reports.has_restart_point(job))
        return NodeLost(now, hello.node, tuple(sorted(restart)), ended)

    def hold_back(
        self, hello: m.AgentHello, awaited: Sequence[str], ended: tuple[int, ...], now: float
    ) -> list[Event]:
        """Return the loss of a node whose jobs are judged when some other agents have reported."""
        name, before = hello.incarnation, self._held_back.get(hello.node)
        self._held_back[hello.node] = name, self._listened_s
        if before is not None and before[0] == name:
            return []
        self.reports.agents.pop(hello.node, None)
        log.warning(
            "agent replaced node=%s pid=%d: the node stays down until %s reports or is lost",
            *(hello.node, hello.pid, ", ".join(awaited)),
        )
        return [NodeLost(now, hello.node, None, ended)]

    def is_held_back(self, node: str) -> bool:
        """Whether an agent of a node was held back and has reported shortly before."""
        held = self._held_back.get(node)
        return held is not None and self._listened_s - held[1] < self._most_silent_s

    def settings_for(self, arrival: m.AgentArrival, access: AccessFile) -> m.AgentSettings:
        """Return how an agent on another host serves its node.

        Parameters
        ----------
        access : what the processes of jobs need to reach the service.

        Raises
        ------
        ReshapeError : the agent is refused.
        """
        self._check_node(arrival.node, is_remote=True)
        if (agent := self.reports.agents.get(arrival.node)) is not None:
            self._check_host(agent, arrival.host)
        if arrival.release != reshape.__version__:
            raise ReshapeError(
                f"the agent of {arrival.node} on {arrival.host} is of release {arrival.release},"
                f" the service of {reshape.__version__}: install the same release there"
            )
        return m.AgentSettings(
            memory=self._directory.name,
            heartbeat_s=self.deadlines.heartbeat_s,
            job_access=access,
        )

    def _check(self, identity: bytes, hello: m.AgentHello, *, is_remote: bool) -> None:
        if not is_remote and hello.secret != self._secret:
            raise ReshapeError(
                f"the agent of {hello.node} shows another secret: its directory is not this one"
            )
        if hello.node not in self.nodes and not hello.ends:
            # Its jobs were lost for the service, so their processes may not continue.
            self._send(identity, m.AgentStop())
        self._check_node(hello.node, is_remote=is_remote)
        before, *place = self._before.get(hello.node, (None,))
        if before == hello.incarnation:
            is_same = place == [hello.host, hello.address]
            self._send(identity, m.AgentStop(is_replaced=is_same))
            raise ReshapeError(
                f"node {hello.node} is served by an agent that was started after this one, which"
                " ends: start one agent for each node"
            )

    def _check_node(self, node: str, *, is_remote: bool) -> None:
        if node in self.pool_nodes and node not in self.configured:
            raise ReshapeError(f"node {node} is granted by no allocation of its pool")
        if node not in self.configured:
            raise ReshapeError(
                f"node {node!r} is not configured; there are {', '.join(self.nodes)}"
            )
        if node not in self.nodes:
            raise ReshapeError(
                f"node {node} was removed from the service, so its agent ends: reshape node resume"
                f" {node} takes it back"
            )
        if is_remote and self._starts.is_local(node):
            raise ReshapeError(
                f"node {node} has the launcher local, so the service starts its agent on its own"
                " host: set the launcher of the node to none, ssh or slurm"
            )

    def put_nodes(self, nodes: Iterable[NodeConfig]) -> None:
        """Serve further nodes, or change how known ones are served."""
        for node in nodes:
            if node.name not in self.configured:
                self._missing_since[node.name] = self._listened_s
            self.configured[node.name] = node
            self.nodes[node.name] = node.processors
            self.has_hosts = self.has_hosts or self.is_remote(node.name)

    def remove_nodes(self, names: Iterable[str]) -> None:
        """Stop serving nodes that `put_nodes` added, and send their agents AgentStop."""
        for name in names:
            self.send_to(name, m.AgentStop())
            if name in self.reports.agents:
                self.reports.drop(name)
            for known in (
                *(self.nodes, self.configured, self._missing_since),
                *(self._silences, self._before, self._held_back),
            ):
                known.pop(name, None)
            self._starts.remove(name)

    def dismiss(self, node: str, now: float) -> list[NodeLost]:
        """Stop serving a node: its agent ends, and another one is refused."""
        del self.nodes[node]
        log.info("node removed node=%s", node)
        if node not in self.reports.agents:
            return []
        self.send_to(node, m.AgentStop())
        return [self._lose(node, now, ())]

    def serve_again(self, node: str) -> None:
        """Serve a dismissed node again."""
        served = {*self.nodes, node}
        self.nodes = {name: n.processors for name, n in self.configured.items() if name in served}
        self._missing_since[node] = self._listened_s
        log.info("node resumed node=%s", node)

    def _silent_s(self, agent: AgentState) -> float:
        return self._listened_s - agent.heard_at

    def is_remote(self, node: str) -> bool:
        """Whether a node is on another host than the service."""
        return not self._starts.is_local(node)

    def memory_host_of(self, node: str) -> str | None:
        """Name what nodes with the same shared memory have in common; None while it is not known.

        A batch system may grant parts of one host to several allocations of a pool.
        """
        if not self.is_remote(node):
            return ""
        agent = self.reports.agents.get(node)
        return None if agent is None else f"{agent.hello.host} {agent.hello.address}"

    def launcher_of(self, node: str) -> str:
        """Return how the agent of a node is started: its launcher, or by a pool."""
        return "pool" if node in self.pool_nodes else self.configured[node].launcher

    def silence_of(self, node: str) -> float:
        """Seconds for which a node has missed the reports of its agent; 0: it reports.

        Without a report since the service started, or since the node was lost, it is that time.
        """
        agent = self.reports.agents.get(node)
        heard_at = self._missing_since[node] if agent is None else agent.heard_at
        silent_s = self._listened_s - heard_at
        return silent_s if silent_s > self._most_silent_s else 0.0

    def has_heard(self, node: str, within_s: float) -> bool:
        """Whether the agent of a node has reported within so many seconds."""
        agent = self.reports.agents.get(node)
        return agent is not None and self._silent_s(agent) < within_s

    def fault_of(self, node: str) -> str:
        """Return why the agent of a node does not report; empty if not known."""
        return self._starts.faults.get(node) or self._silences.get(node, "")

    def awaited(self) -> dict[str, str]:
        """Nodes whose agents the service starts and that have not reported, and why if known."""
        return {
            name: self.fault_of(name)
            for name, node in self.configured.items()
            if node.launcher != "none" and name in self.nodes and name not in self.reports.agents
        }

    def joined_event(self, node: str, now: float) -> NodeJoined:
        """Return the event of a configured node that is up."""
        held = self.configured[node]
        until, own = given_back_at(held, now), self.shares.get(node, {})
        return NodeJoined(
            now,
            node,
            held.processors,
            resources=held.resources,
            until=until,
            shares=own,
            features=held.features,
        )

    def on_tick(self, now: float, *, start_agents: bool, heard_all: bool) -> list[Event]:
        """Find agents that are gone or silent, and start one on every node that has none.

        Parameters
        ----------
        start_agents : whether agents are started.
        heard_all : whether every message that has arrived was read. The silence of an agent is
            judged only then, not directly after a stall, and only time in which the service was
            able to receive reports counts.
        """
        events: list[Event] = []
        moment = time.monotonic()
        since_s = moment - self._ticked_at
        self._listened_s += min(since_s, STEP_S)
        self._ticked_at = moment
        # After a stall, the thread of ZeroMQ may not have handed over what has arrived.
        heard_all = heard_all and since_s <= STEP_S
        for node in self.nodes:
            agent = self.reports.agents.get(node)
            if agent is not None:
                silent_s = self._silent_s(agent)
                gone = self._starts.is_gone(node) and not _runs(agent.hello.pid)
                if heard_all and (silent_s >= self.deadlines.node_lost_s or gone):
                    log.error(
                        "node lost node=%s pid=%d: its agent is silent for %.0f s",
                        *(node, agent.hello.pid, silent_s),
                    )
                    if not gone:
                        self._silences[node] = f"its agent was silent for {silent_s:.0f} s"
                    # The next agent reports the restart points, if it comes in time.
                    awaits = start_agents and gone
                    events.append(self._lose(node, now, None if awaits else ()))
            elif self._listened_s - self._missing_since[node] >= self.deadlines.node_lost_s:
                self._missing_since[node] = inf
                events.append(NodeLost(now, node))
            if start_agents:
                is_heard = node in self.reports.agents or self.is_held_back(node)
                self._starts.keep_started(node, is_silent=not is_heard)
        return events

    def _lose(self, node: str, now: float, restart_points: tuple[int, ...] | None) -> NodeLost:
        self.reports.drop(node)
        self._missing_since[node] = self._listened_s
        return NodeLost(now, node, restart_points)

    def stop_agents(self) -> bool:
        """Tell all agents to end; return whether all have, also those that were just starting.

        An agent on another host is awaited for `STOP_S`: a host may be out of reach. What killed
        agents have left on this host is removed in the end.
        """
        for node in self.reports.agents:
            self.send_to(node, m.AgentStop())
        moment = time.monotonic()
        if self._stopping_since is None:
            self._stopping_since = moment
        overdue = moment - self._stopping_since > STOP_S
        remote = [node for node in self.reports.agents if self.is_remote(node)]
        if overdue:
            self._starts.give_up()
        ended = self._starts.all_ended() and (overdue or not remote)
        if ended:
            self._starts.remove_remains()
        return ended

    def send_to(self, node: str, message: m.Message) -> None:
        """Send a message to the agent of a node, if there is one."""
        if node in self.reports.agents:
            self._send(self.reports.agents[node].identity, message)


def _runs(pid: int) -> bool:
    """Whether a process of this host runs; the file that an agent has locked may be removed."""
    try:
        return is_alive(psutil.Process(pid))
    except psutil.Error:
        return False


def given_back_at(node: NodeConfig, now: float) -> float | None:
    """Time of the service at which all jobs must have left a node; None: it stays."""
    if node.until is None:
        return None
    return now + node.until - time.time() - GIVE_BACK_S
