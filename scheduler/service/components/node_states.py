"""States of nodes as `reshape node` shows and changes them; the names are those of sinfo.

idle, mix, alloc    up; none, some or all of its processors are held by jobs
drng, drain         it drains; jobs hold processors of it, or none any more
down                its agent does not report

A removed node that no job holds is not listed, and its agent ends. The scheduler state says which
nodes were removed, so a restarted service does not serve them either.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from reshape.errors import ReshapeError, nearest
from scheduler.config.settings import ServeConfig
from scheduler.core.core import Core
from scheduler.model.events import DrainChanged, Event, NodeLost, NodeRemoved
from scheduler.model.job import FINAL, JobState
from scheduler.model.machine import Node
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.service.components.system_monitor import SystemMonitor, given_back_at
from scheduler.text.formats import listed
from scheduler.text.plain import LONGEST_REASON, check_text

log = logging.getLogger(__name__)


#: Jobs that a node fails to start before it drains.
MOST_UNSTARTED = 2
#: Seconds for which a failed start counts.
COUNTED_S = 3600.0


class NodeStates:
    """Lists and changes the states of the nodes of a service."""

    def __init__(self, core: Core, monitor: SystemMonitor) -> None:
        self._core, self._monitor = core, monitor
        # Node -> job -> time of its failed start there.
        self._unstarted: dict[str, dict[int, float]] = {}

    def table(self) -> list[m.NodeInfo]:
        """Describe all nodes, in the order of the configuration."""
        held, nodes = self._held(), self._core.machine.nodes
        return [
            self._info(name, nodes.get(name), held.get(name, {})) for name in self._monitor.nodes
        ]

    def _held(self) -> dict[str, dict[int, int]]:
        """Count the processors that each job holds, by node and job."""
        held: dict[str, dict[int, int]] = {}
        for number, job in self._core.live.items():
            groups = ProcSet.union(job.own_groups.values())
            for node, part in self._core.machine.by_node(groups).items():
                held.setdefault(node, {})[number] = len(part)
        return held

    def _info(self, name: str, node: Node | None, jobs: dict[int, int]) -> m.NodeInfo:
        agent = self._monitor.reports.agents.get(name)
        count = self._monitor.nodes[name]
        held = sum(jobs.values())
        drains = node is not None and node.is_left
        why = "" if node is None else _why_left(node)
        if agent is None:
            state, why = "down", why or self._monitor.fault_of(name)
        elif drains:
            state = "drng" if held else "drain"
        else:
            state = "alloc" if held >= count else "mix" if held else "idle"
        return m.NodeInfo(
            name=name,
            host="" if agent is None else agent.host,
            processors=count,
            allocated=held,
            state=state,
            launcher=self._monitor.launcher_of(name),
            jobs=sorted(jobs),
            reason=why,
            until=self._monitor.configured[name].until,
            partitions=self._monitor.shares.get(name, {}),
            features=[] if node is None else list(node.features),
        )

    def expire(self, now: float) -> list[Event]:
        """Return the events by which nodes are given back: their jobs end, and they are removed."""
        events: list[Event] = []
        for name in self._monitor.nodes:
            at = given_back_at(self._monitor.configured[name], now)
            if at is not None and at <= now and not self._core.machine.nodes[name].removed:
                log.info("node expires node=%s", name)
                events += [NodeLost(now, name), NodeRemoved(now, name)]
        return events

    def drain_failing(self, jobs: Iterable[int], now: float) -> list[Event]:
        """Return the events that drain the nodes which have failed to start several jobs.

        Parameters
        ----------
        jobs : jobs about which an agent has reported something.
        """
        events: list[Event] = []
        for number in jobs:
            for name, why in self._failed_starts(number).items():
                if (node := self._core.machine.nodes.get(name)) is None or node.is_left:
                    continue
                before = self._unstarted.get(name, {})
                failed = {job: at for job, at in before.items() if now - at < COUNTED_S}
                failed[self._counted(number)] = now
                self._unstarted[name] = failed
                if len(failed) >= MOST_UNSTARTED:
                    del self._unstarted[name]
                    reason = f"{listed('job', sorted(failed))} could not start here: {why}"
                    log.error("drain node=%s: %s", name, reason)
                    events.append(DrainChanged(now, name, True, reason))
        return events

    def _counted(self, number: int) -> int:
        """Job as which a failed start counts: for a step, that of its script."""
        step_of = self._core.jobs[number].spec.step_of
        return number if step_of is None else step_of.job

    def _failed_starts(self, number: int) -> dict[str, str]:
        """Find the nodes that have failed to start a job for a reason of their own, and why.

        If it is not known whose reason it is, that of a job that has failed on several nodes is
        taken for one of the job. A group that was ended on order before it began has not failed.
        """
        job = self._core.live.get(number)
        if job is None or job.state is JobState.COMPLETING:
            return {}
        failed = {
            node: status
            for node, status in self._monitor.reports.statuses(number)
            if status.group in job.groups
            and not (status.alive or status.began)
            and status.fault != "order"
        }
        by_node = {node: s.why for node, s in failed.items() if s.fault == "node"}
        if by_node or any(status.fault for status in failed.values()):
            return by_node
        by_node = {node: s.why for node, s in failed.items() if s.exit_code or s.signal}
        others = [jobs for node, jobs in self._unstarted.items() if node not in by_node]
        counted = self._counted(number)
        elsewhere = [jobs for jobs in others if by_node and counted in jobs]
        for jobs in elsewhere:
            del jobs[counted]
        return {} if elsewhere else by_node

    def change(self, change: m.ChangeNode, now: float) -> DrainChanged:
        """Return the event by which a node drains or is resumed.

        Raises
        ------
        ReshapeError : there is no such node, or it already is as requested.
        """
        node = self._node(change.node)
        if node.removed and change.drains:
            raise _was_removed(change.node)
        if node.is_left == change.drains:
            state = "drains already" if node.drains else "does not drain"
            raise ReshapeError(f"node {change.node} {state}")
        check_text(change.why, "the reason", LONGEST_REASON)
        return DrainChanged(now, change.node, change.drains, change.why)

    def remove(self, name: str, now: float) -> NodeRemoved:
        """Return the event by which a node is removed.

        Raises
        ------
        ReshapeError : there is no such node, it was removed before, or jobs hold processors of it
            and it does not drain.
        """
        node = self._node(name)
        if node.removed:
            raise _was_removed(name)
        jobs = sorted(self._held().get(name, ()))
        if jobs and not node.drains:
            raise ReshapeError(
                f"{listed('job', jobs)} hold{'s' * (len(jobs) == 1)} processors of node {name}: let"
                f" it drain first (reshape node drain {name}), then remove it"
            )
        return NodeRemoved(now, name)

    def _node(self, name: str) -> Node:
        """Return a configured node of the machine, also one that was removed."""
        configured = self._monitor.configured
        if name not in configured:
            raise ReshapeError(f"there is no node {name!r}{nearest(name, configured)}")
        return self._core.machine.nodes[name]

    def follow_removals(self, now: float) -> list[NodeLost]:
        """Stop serving removed nodes that no job holds any more; serve those that were resumed.

        Returns
        -------
        the loss of the nodes whose agents were sent AgentStop.
        """
        nodes, served = self._core.machine.nodes, self._monitor.nodes
        changed = [name for name in self._monitor.configured if name in nodes]
        changed = [name for name in changed if nodes[name].removed == (name in served)]
        held = self._held() if changed else {}
        events = []
        for name in changed:
            if name not in served:
                self._monitor.serve_again(name)
            elif not held.get(name):
                events += self._monitor.dismiss(name, now)
        return events

    def why_of_job(self, number: int) -> str:
        """Describe which nodes of a job drain, and how it leaves them; empty if none does."""
        job = self._core.jobs.get(number)
        machine = self._core.machine
        if job is None or job.state in FINAL or not job.groups:
            return ""
        nodes = [
            machine.nodes[name] for name in machine.by_node(ProcSet.union(job.groups.values()))
        ]
        drain = [
            f"{node.name} ({_why_left(node)})" if _why_left(node) else node.name
            for node in nodes
            if node.is_left
        ]
        if not drain:
            return ""
        leaves = "the job ends there"
        if job.spec.resizable:
            leaves = (
                "it contracts off it at a resize point if its groups on other nodes make up a size"
                " at which it has run, at least that of its request; for that it expands onto other"
                " nodes first when enough processors are idle there; else it ends there"
            )
        return f"drains: {', '.join(drain)}; {leaves}"


def partition_infos(config: ServeConfig, core: Core) -> list[m.PartitionInfo]:
    """Describe the partitions that a configuration names."""
    return [
        m.PartitionInfo(
            name=name,
            scenario=own.scenario or config.scenario,
            processors=core.named(name).machine.processors,
            free=core.named(name).machine.free_count,
            queued=len(core.named(name).queue),
            running=len(core.named(name).live),
            max_processors=own.max_processors,
            max_walltime_s=own.max_walltime_s,
            default_walltime_s=own.default_walltime_s,
        )
        for name, own in config.partitions.items()
    ]


def _why_left(node: Node) -> str:
    """Why groups are to leave a node; empty if no reason was given, or if they are not."""
    if node.removed:
        return "it is removed as soon as its jobs have left it"
    return node.why if node.drains else ""


def _was_removed(name: str) -> ReshapeError:
    return ReshapeError(f"node {name} was removed; reshape node resume {name} takes it back")
