"""States of nodes as `reshape node` shows and changes them; the names are those of sinfo.

idle, mix, alloc    up; none, some or all of its processors are held by jobs
drng, drain         it drains; jobs hold processors of it, or none any more
down                its agent does not report
with an asterisk    its agent is silent, and the node is not lost yet: no group starts there

A node that fails to start several jobs drains. That ends as soon as its agent can start processes,
which the service asks it to try again and again; a drain by an administrator ends by one.

A removed node that no job holds is not listed, and its agent ends. The scheduler state says which
nodes were removed, so a restarted service does not serve them either.

The nodes of the Slurm allocation in which a service runs are given back at its end. The time limit
may change, so the allocation is looked up again and again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import inf, isclose

from msgspec.structs import replace

from reshape.errors import ReshapeError, nearest
from scheduler.config.settings import NodeConfig, ServeConfig
from scheduler.core.core import Core
from scheduler.model.events import (
    SERVICE,
    DrainChanged,
    Event,
    NodeLost,
    NodeRemoved,
    SilenceChanged,
)
from scheduler.model.job import FINAL, JobState
from scheduler.model.machine import Node
from scheduler.model.procset import ProcSet
from scheduler.node.slurm import BatchState, BatchStatus
from scheduler.protocol import messages as m
from scheduler.service.components.system_monitor import SAME_END_S, SystemMonitor, given_back_at
from scheduler.state.exclusions import silent_agent_of
from scheduler.text.formats import format_moment, listed
from scheduler.text.plain import LONGEST_REASON, check_text

log = logging.getLogger(__name__)


#: Ends the state of a node whose agent is silent.
SILENT = "*"
#: Jobs that a node fails to start before it drains.
MOST_UNSTARTED = 2
#: Seconds for which a failed start counts, and a drain that it led to.
COUNTED_S = 3600.0
#: Seconds before the silence of a node is over for the core at which it is renewed.
RENEWAL_S = 2.0
#: Seconds for which the core takes a node for silent at most; `node_lost_s` may be infinite.
MOST_SILENCE_S = 3600.0
#: Seconds until the first probe of a node that drains, and between two probes at most.
FIRST_PROBE_S, MOST_PROBE_S = 1.0, 60.0


@dataclass
class Probing:
    """The probes of a node that failed to start jobs; times in seconds.

    Attributes
    ----------
    since : when it began to drain.
    next_at : when the next probe is due.
    pause_s : time until the one after it.
    serial : number of the last one that was ordered; 0: none was.
    """

    since: float
    next_at: float
    pause_s: float
    serial: int = 0


class NodeStates:
    """Lists and changes the states of the nodes of a service.

    Parameters
    ----------
    own_job : id of the Slurm job in whose allocation the service runs; "": it runs in none.
    """

    def __init__(self, core: Core, monitor: SystemMonitor, own_job: str = "") -> None:
        self._core, self._monitor, self._own_job = core, monitor, own_job
        # Node -> job -> time of its failed start there.
        self._unstarted: dict[str, dict[int, float]] = {}
        self._probing: dict[str, Probing] = {}

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
        if node is not None and (failure := self._probe_failure(node)):
            why = f"{why}; the last probe: {failure}"
        if agent is None:
            fault = self._monitor.fault_of(name)
            state, why = "down", "; ".join(filter(None, (why, fault)))
        elif drains:
            state = "drng" if held else "drain"
        else:
            state = "alloc" if held >= count else "mix" if held else "idle"
        is_up = node is not None and node.up
        if is_up and (silent_s := self._monitor.silence_of(name)):
            state += SILENT
            told = f"its agent has been silent for {silent_s:.0f} s"
            why = f"{told}; {why}" if why else told
        return m.NodeInfo(
            name=name,
            host="" if agent is None else agent.hello.host,
            processors=count,
            allocated=held,
            state=state,
            launcher=self._monitor.launcher_of(name),
            jobs=sorted(jobs),
            reason=why,
            until=self._monitor.configured[name].until,
            partitions=self._monitor.shares.get(name, {}),
            features=[] if node is None else list(node.features),
            drained_by="" if node is None else node.drained_by,
        )

    def follow_silence(self, now: float) -> list[Event]:
        """Return the events by which silent nodes get no groups, and by which they get some again.

        A node that joins or is lost is not silent any more for the core. After a restart of the
        service, a node stays silent until its agent reports.
        """
        events: list[Event] = []
        for_s = min(self._monitor.deadlines.node_lost_s, MOST_SILENCE_S)
        exclusions = self._core.exclusions
        for name, node in self._core.machine.nodes.items():
            if not node.up or name not in self._monitor.nodes:
                continue
            known = exclusions.get(silent_agent_of(name))
            if silent_s := self._monitor.silence_of(name):
                if known is None or known.end - now < RENEWAL_S:
                    log.warning("silent node=%s: no report for %.0f s", name, silent_s)
                    events.append(SilenceChanged(now, name, now + for_s))
            elif known is not None and name in self._monitor.reports.agents:
                log.info("node reports again node=%s", name)
                events.append(SilenceChanged(now, name, None))
        return events

    def expire(self, now: float) -> list[Event]:
        """Return the events by which nodes are given back: their jobs end, and they are removed."""
        events: list[Event] = []
        for name in self._monitor.nodes:
            at = given_back_at(self._monitor.configured[name], now)
            if at is not None and at <= now and not self._core.machine.nodes[name].removed:
                log.info("node expires node=%s", name)
                events += [NodeLost(now, name), NodeRemoved(now, name)]
        return events

    @property
    def allocation(self) -> str:
        """Slurm job to look up: that of the service, while it has nodes of the allocation."""
        return self._own_job if self._allocated() else ""

    def _allocated(self) -> list[str]:
        """Nodes of the allocation that the service has."""
        monitor = self._monitor
        return [n for n in monitor.nodes if self._own_job and monitor.launcher_of(n) == "slurm"]

    def see_allocation(self, status: BatchStatus, now: float) -> list[Event]:
        """Note the end of the allocation, and return the events of its nodes if it has changed."""
        if status.state is BatchState.ENDED:
            # The nodes expire at the next tick; they have no agents any more.
            log.warning("Slurm allocation %s has ended: %s", self._own_job, status.word)
            self._monitor.put_nodes(self._allocated_until(time.time()))
            return []
        if status.state is not BatchState.RUNNING:
            return []
        configured, nodes = self._monitor.configured, self._core.machine.nodes
        at, same = status.end or inf, partial(isclose, rel_tol=0, abs_tol=SAME_END_S)
        changed = [
            node
            for node in self._allocated_until(status.end)
            if not same(configured[node.name].until or inf, at)
        ]
        if not changed:
            return []
        end = "it has no end" if status.end is None else f"it ends at {format_moment(status.end)}"
        log.info("the time limit of Slurm allocation %s has changed: %s", self._own_job, end)
        self._monitor.put_nodes(changed)
        up = [node.name for node in changed if node.name in nodes and nodes[node.name].up]
        return [self._monitor.joined_event(name, now) for name in up]

    def _allocated_until(self, end: float | None) -> list[NodeConfig]:
        """Return the nodes of the allocation with another end of it."""
        configured = self._monitor.configured
        return [replace(configured[name], until=end) for name in self._allocated()]

    def is_allocation_over(self, now: float) -> bool:
        """Whether the allocation has ended, and the service has no other nodes."""
        nodes = self._monitor.configured.values()
        ends = [given_back_at(node, now) for node in nodes if node.launcher == "slurm"]
        is_only = bool(self._own_job) and 0 < len(ends) == len(nodes)
        return is_only and all(end is not None and end <= now for end in ends)

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
                    events.append(DrainChanged(now, name, True, reason, SERVICE))
                    self._begin_probing(name, now)
        return events

    def probe(self, now: float) -> list[Event]:
        """Let the agents of nodes that failed to start jobs try again.

        Returns
        -------
        the events that resume the nodes which can start processes again.
        """
        nodes = {name: node for name, node in self._core.machine.nodes.items() if _failed(node)}
        events, held = list[Event](), self._held() if nodes else {}
        for name, node in nodes.items():
            agent = self._monitor.reports.agents.get(name)
            probing = self._probing.get(name) or self._begin_probing(name, now)
            has_ended = agent is not None and agent.hello.probe == probing.serial > 0
            if agent is None or (now < probing.next_at and not has_ended):
                continue
            if has_ended and not agent.hello.probe_failure:
                log.info("resume node=%s: it can start processes again", name)
                events.append(DrainChanged(now, name, False, by=SERVICE))
            elif now >= probing.next_at:
                if has_ended or not probing.serial:  # else the order is repeated
                    probing.serial = max(probing.serial + 1, int(1000 * now))
                probing.next_at = now + probing.pause_s
                probing.pause_s = min(2 * probing.pause_s, MOST_PROBE_S)
                free = node.count - sum(held.get(name, {}).values())
                order = m.ProbeNode(serial=probing.serial, processes=max(1, free))
                self._monitor.send_to(name, order)
        return events

    def _begin_probing(self, name: str, now: float) -> Probing:
        """Begin the probes of a node; if it drained shortly before, with the last pause of then."""
        before = self._probing.get(name)
        is_again = before is not None and now - before.since < COUNTED_S
        pause_s = before.pause_s if before is not None and is_again else FIRST_PROBE_S
        self._probing[name] = Probing(now, now + pause_s, pause_s)
        return self._probing[name]

    def _probe_failure(self, node: Node) -> str:
        """Why the last probe of a node has failed; empty if that is not known, or it needs none."""
        agent, probing = self._monitor.reports.agents.get(node.name), self._probing.get(node.name)
        if agent is None or probing is None or not _failed(node):
            return ""
        return agent.hello.probe_failure if agent.hello.probe == probing.serial else ""

    def _faults(self) -> str:
        """Describe nodes that are down because of an error of their agents, at most three."""
        faults = [f"{name} ({why})" for name, why in self._monitor.awaited().items() if why]
        more = f" and {len(faults) - 3} more nodes" if len(faults) > 3 else ""
        return f"down: {', '.join(faults[:3])}{more}" if faults else ""

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
        by_node = {node: s.why for node, s in failed.items() if s.has_failed}
        others = [jobs for node, jobs in self._unstarted.items() if node not in by_node]
        counted = self._counted(number)
        elsewhere = [jobs for jobs in others if by_node and counted in jobs]
        for jobs in elsewhere:
            del jobs[counted]
        return {} if elsewhere else by_node

    def change(self, change: m.NodeChange, user: str, now: float) -> DrainChanged | NodeRemoved:
        """Return the event by which a node drains, is resumed or is removed.

        An administrator may let a node drain that drains because it failed to start jobs: then it
        drains until one resumes it.

        Parameters
        ----------
        user : name of the administrator.

        Raises
        ------
        ReshapeError : there is no such node, it already is as requested, or it is to be removed
            while jobs hold processors of it and it does not drain.
        """
        match change:
            case m.RemoveNode(node=name):
                return self._removed(name, now)
            case m.DrainNode(node=name, why=why):
                node = self._node(name)
                if node.removed:
                    raise _was_removed(name)
                if node.is_left and not _failed(node):
                    raise ReshapeError(f"node {name} drains already")
                check_text(why, "the reason", LONGEST_REASON)
                return DrainChanged(now, name, True, why, f"user {user}")
            case m.ResumeNode(node=name):
                if not self._node(name).is_left:
                    raise ReshapeError(f"node {name} does not drain")
                return DrainChanged(now, name, False, "", f"user {user}")

    def _removed(self, name: str, now: float) -> NodeRemoved:
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
        """Describe which nodes of a job drain, and how it leaves them; empty if none does.

        For a job that holds no processors, describe nodes whose agents have an error.
        """
        job = self._core.jobs.get(number)
        machine = self._core.machine
        if job is None or job.state in FINAL:
            return ""
        if not job.groups:
            return self._faults()
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


def _failed(node: Node) -> bool:
    """Whether a node drains because it failed to start jobs."""
    return node.drains and node.drained_by == SERVICE and not node.removed


def _why_left(node: Node) -> str:
    """Why groups are to leave a node; empty if no reason was given, or if they are not."""
    if node.removed:
        return "it is removed as soon as its jobs have left it"
    return node.why if node.drains else ""


def _was_removed(name: str) -> ReshapeError:
    return ReshapeError(f"node {name} was removed; reshape node resume {name} takes it back")
